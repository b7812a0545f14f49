"""Which positions of a tensor a request visits, row by row of shared memory.

A *row* is what lies side by side in both memories: ``box_dim[0]`` or ``channels_per_pixel``
elements, or one slice of an interleaved map. Each mode is one function from start coordinates to
the positions of all rows; bounds, addresses and layout are the same for all and live in
``golden.plan``.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from golden.descriptor import Descriptor
from golden.enums import AccessMode

Positions = NDArray[np.int64]
"""Of shape (rank, rows)."""

PIXELS_W_128 = 128
GROUP_W_128 = 32


def steps_of(d: Descriptor) -> tuple[int, ...]:
    """Positions that a tiled box has in each dimension (silicon).

    ``box_dim`` divided by the element stride and rounded up; without interleave dimension 0 has no
    element stride, with it the dimension of slices counts once.
    """
    steps = [-(-box // by) for box, by in zip(d.box_dim, strides_of(d), strict=False)]
    if d.interleave:
        steps[d.rank - 2] = 1
    return tuple(steps)


def strides_of(d: Descriptor) -> tuple[int, ...]:
    """Positions from one step to the next in each dimension (silicon)."""
    strides = d.element_strides[: d.rank]
    return strides if d.interleave else (1, *strides[1:])


def tile(d: Descriptor, coords: Sequence[int]) -> Positions:
    """Rows of a tiled box, dimension 1 fastest; of an interleaved one dimension 0 (silicon)."""
    counts = list(steps_of(d))
    if not d.interleave:
        counts[0] = 1  # a row is all of dimension 0
    shape = tuple(reversed(counts))
    positions = np.empty((d.rank, *shape), np.int64)
    for i, (start, count, by) in enumerate(zip(coords, counts, strides_of(d), strict=True)):
        along = (slice(None),) + (None,) * i
        positions[i] = (start + np.arange(count, dtype=np.int64) * by)[along]
    return positions.reshape(d.rank, math.prod(counts))


def gather4(coords: Sequence[int]) -> Positions:
    """Four rows of a matrix, each with its own coordinate (PTX ISA)."""
    return np.array([[coords[0]] * 4, coords[1:5]], np.int64)


def _counted(
    ticks: NDArray[np.int64], start: int, lower: int, last: int, by: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Position after each number of ticks of a counter, and how often it has wrapped.

    It counts from ``start`` by ``by`` up to ``last``, and from ``lower`` ever after.
    """
    first = (last - start) // by + 1
    period = max((last - lower) // by + 1, 1)
    beyond = ticks - first
    wraps = np.where(beyond < 0, 0, 1 + beyond // period)
    position = np.where(beyond < 0, start + ticks * by, lower + beyond % period * by)
    return position, wraps


def im2col(d: Descriptor, coords: Sequence[int], offsets: Sequence[int]) -> Positions:
    """Rows of im2col: a walk through the bounding box, W fastest, then images (silicon).

    Offsets move what is read, not the walk; a coordinate that wraps restarts at the lower corner.
    """
    first = 0 if d.interleave else 1
    rank, by = d.rank, d.element_strides
    positions = np.empty((rank, d.pixels_per_column), np.int64)
    if d.interleave:
        positions[rank - 2] = coords[rank - 2]
    else:
        positions[0] = coords[0]
    ticks = np.arange(d.pixels_per_column, dtype=np.int64)
    for j, (lower, upper) in enumerate(zip(d.lower_corner, d.upper_corner, strict=True)):
        i = first + j
        last = d.global_dim[i] - 1 + upper
        position, ticks = _counted(ticks, coords[i], lower, last, by[i])
        positions[i] = position + (offsets[j] if offsets else 0)
    positions[rank - 1] = coords[rank - 1] + ticks * by[rank - 1]
    return positions


def im2col_w(
    d: Descriptor, coords: Sequence[int], mode: AccessMode, halo: int, offset: int
) -> Positions:
    """Rows of ``im2col::w`` and ``im2col::w::128``: W walks, then images (PTX ISA)."""
    if mode is AccessMode.IM2COL_W:
        ticks = np.arange(d.pixels_per_column + halo, dtype=np.int64)
    else:
        groups = PIXELS_W_128 // GROUP_W_128
        ends = GROUP_W_128 * (1 + np.arange(groups, dtype=np.int64))
        halos = ends[None, :] + np.arange(halo, dtype=np.int64)[:, None]
        ticks = np.concatenate([np.arange(PIXELS_W_128, dtype=np.int64), halos.ravel()])
    positions = np.repeat(np.array(coords, np.int64)[:, None], ticks.size, axis=1)
    lower = d.lower_corner[0] + offset
    last = d.global_dim[1] + d.upper_corner[0] + offset - 1
    start = coords[1] + offset
    positions[1], wraps = _counted(ticks, start, lower, last, d.element_strides[1])
    positions[-1] += wraps * d.element_strides[d.rank - 1]
    return positions
