"""Positions of a tensor that a request visits, row by row of shared memory.

A *row* is contiguous in both memories: ``box_dim[0]`` or ``channels_per_pixel`` elements, or one
slice of an interleaved map. Each mode has one function, which returns the positions of all rows for
given start coordinates. Bounds, addresses and layout do not depend on the mode: they are in
``golden.geometry``.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from golden.descriptor import Descriptor
from golden.enums import AccessMode

Positions = NDArray[np.int64]
"""Positions of rows: shape (rank, rows)."""

PIXELS_W_128 = 128
GROUP_W_128 = 32


def steps_of(d: Descriptor) -> tuple[int, ...]:
    """Return the number of positions of a tiled box in each dimension (silicon).

    It is ``box_dim`` divided by the element stride, rounded up. Without interleave, the element
    stride of dimension 0 has no effect. With interleave, the dimension of slices has one position.
    """
    steps = [-(-box // by) for box, by in zip(d.box_dim, strides_of(d), strict=False)]
    if d.interleave:
        steps[d.rank - 2] = 1
    return tuple(steps)


def strides_of(d: Descriptor) -> tuple[int, ...]:
    """Return the distance of neighbouring positions in each dimension, in elements (silicon)."""
    strides = d.element_strides[: d.rank]
    return strides if d.interleave else (1, *strides[1:])


def tile(d: Descriptor, coords: Sequence[int]) -> Positions:
    """Return the rows of a tiled box, dimension 1 fastest; interleaved: dimension 0 (silicon)."""
    counts = list(steps_of(d))
    if not d.interleave:
        counts[0] = 1  # a row spans dimension 0
    shape = tuple(reversed(counts))
    positions = np.empty((d.rank, *shape), np.int64)
    for i, (start, count, by) in enumerate(zip(coords, counts, strides_of(d), strict=True)):
        along = (slice(None),) + (None,) * i
        positions[i] = (start + np.arange(count, dtype=np.int64) * by)[along]
    return positions.reshape(d.rank, math.prod(counts))


def gather4(coords: Sequence[int]) -> Positions:
    """Return four rows of a matrix, each with its own coordinate (PTX ISA)."""
    return np.array([[coords[0]] * 4, coords[1:5]], np.int64)


def _counted(
    ticks: NDArray[np.int64], start: int, lower: int, last: int, by: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the position of a counter, and the number of its wraps, after each number of ticks.

    The counter counts in steps of ``by`` from ``start`` up to ``last``; after that, it repeats from
    ``lower`` up to ``last``.
    """
    first = (last - start) // by + 1
    period = max((last - lower) // by + 1, 1)
    beyond = ticks - first
    wraps = np.where(beyond < 0, 0, 1 + beyond // period)
    position = np.where(beyond < 0, start + ticks * by, lower + beyond % period * by)
    return position, wraps


def im2col(d: Descriptor, coords: Sequence[int], offsets: Sequence[int]) -> Positions:
    """Return the rows of im2col: a walk through the bounding box, W fastest, image last (silicon).

    Offsets move the positions that are read, not the walk. A coordinate that wraps restarts at the
    lower corner.
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
    """Return the rows of ``im2col::w`` or ``im2col::w::128``: W walks, then images (PTX ISA)."""
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
