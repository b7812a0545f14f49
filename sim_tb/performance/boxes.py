"""Random legal loads of every mode, rank, type, layout and edge, for the benchmark."""

from math import prod

import numpy as np

from golden import DataType, Interleave, Load, Plan, Swizzle, TensorMap, TmaError
from golden.checks import check_tensor
from golden.enums import SMEM_BYTES
from golden.model import operands_of

Rng = np.random.Generator

TYPES = tuple(dtype for dtype in DataType if not dtype.is_sub_byte)
MODES = {"tile": 0.55, "tile interleaved": 0.15, "im2col": 0.2, "im2col interleaved": 0.1}
"""Probability of each mode."""

MAX_BYTES = 8192
"""Most bytes of a box, roughly."""

FAR_OUTSIDE = 0.03
"""Probability of a coordinate near the lowest or the highest int32."""


def choose(rng: Rng, *choices: int) -> int:
    """Return one of ``choices``, each with the same probability."""
    return int(rng.choice(choices))


def base_and_strides(
    rng: Rng, extents: list[int], row_bytes: int, align: int
) -> tuple[int, list[int]]:
    """Return a base address, and strides of ``extents`` over rows of ``row_bytes`` bytes.

    Addresses and strides are multiples of ``align``; a dimension is dense or has gaps.
    """
    strides, dense = [], row_bytes
    for extent in extents:
        dense = -(-dense // align) * align
        strides.append(dense + align * choose(rng, 0, 0, int(rng.integers(0, 20))))
        dense = strides[-1] * extent
    return align * int(rng.integers(0, 1 << 23)), strides


def layout(rng: Rng, interleaved: bool) -> tuple[DataType, Interleave, Swizzle]:
    """Return an element type, an interleave and a swizzle."""
    interleave = Interleave(int(rng.integers(1, 3)) if interleaved else 0)
    return TYPES[int(rng.integers(len(TYPES)))], interleave, Swizzle(int(rng.integers(4)))


def inner_elements(rng: Rng, dtype: DataType, swizzle: Swizzle) -> int:
    """Return the elements of a row: 16 bytes up to the limits of the swizzle and the box."""
    unit = 128 // dtype.smem_bits
    widest = min(swizzle.span or 256 * dtype.itemsize, 256 * dtype.itemsize)
    return unit * int(rng.integers(1, widest // 16 + 1))


def random_tile(rng: Rng, interleaved: bool) -> tuple[TensorMap, tuple[int, ...]]:
    """Return a tiled map and the coordinates of a box."""
    rank = int(rng.integers(3 if interleaved else 1, 6))
    dtype, interleave, swizzle = layout(rng, interleaved)
    first = 0 if interleaved else 1
    elements = 1 if interleaved else inner_elements(rng, dtype, swizzle)
    row = 16 * interleave if interleaved else elements * dtype.itemsize
    counts = [1] * rank  # of elements that the box takes, by dimension
    rows = int(2 ** rng.uniform(0, np.log2(MAX_BYTES // row)))
    for i in rng.permutation(np.arange(first, rank)):
        counts[i] = int(rng.integers(1, max(1, rows // prod(counts[first:])) + 1))
    element_strides = [choose(rng, *[1] * 7, 2, 3, int(rng.integers(1, 9))) for _ in range(rank)]
    box = [min(count * stride, 256) for count, stride in zip(counts, element_strides, strict=True)]
    if not interleaved:
        box[0] = elements
    dims = [max(1, n * choose(rng, 1, 1, 2, 4) + choose(rng, 0, 0, 1, -1, 5)) for n in box]
    inner = dims[0] * (row if interleaved else dtype.itemsize)
    base, strides = base_and_strides(rng, dims[1:], inner, 16 * max(interleave, 1))
    fill = int(rng.integers(2)) if dtype.is_float else 0
    shape = dtype, base, dims, strides, box, element_strides
    options = {"interleave": interleave, "swizzle": swizzle, "oob_fill": fill}
    tensor_map = TensorMap.tiled(*shape, **options)  # type: ignore[arg-type]
    inside = rng.random() < 0.5
    coords = []
    for i, (size, extent) in enumerate(zip(box, dims, strict=True)):
        start = int(rng.integers(0, max(extent - size, 0) + 1))
        if not inside and rng.random() < 0.5:
            start = int(rng.integers(-size, extent + 2))
        if not inside and rng.random() < FAR_OUTSIDE:
            start = choose(rng, -(1 << 31), (1 << 31) - 256)
        unit = 128 // dtype.smem_bits if i < first else 1
        coords.append(start // unit * unit)
    return tensor_map, tuple(coords)


def random_im2col(
    rng: Rng, interleaved: bool
) -> tuple[TensorMap, tuple[int, ...], tuple[int, ...]]:
    """Return an im2col map, the coordinates of a column of pixels, and its im2col offsets."""
    rank = int(rng.integers(3, 6))
    dtype, interleave, swizzle = layout(rng, interleaved)
    first = 0 if interleaved else 1
    channels = min(inner_elements(rng, dtype, swizzle), 256)
    row = 16 * interleave if interleaved else channels * dtype.itemsize
    pixels = min(int(2 ** rng.uniform(0, np.log2(MAX_BYTES // row))), 1024)
    dims = [int(rng.integers(1, 3 * pixels ** (1 / (rank - 1)) + 6)) for _ in range(rank)]
    if not interleaved:
        dims[0] = max(1, channels * choose(rng, 1, 2) + choose(rng, 0, 0, 3, -3))
    reach = {3: 3, 4: 3, 5: 2}[rank]
    lower = [int(rng.integers(-reach, 2)) for _ in range(rank - 2)]
    upper = [int(rng.integers(-1, reach + 1)) for _ in range(rank - 2)]
    for j in range(rank - 2):
        dims[first + j] = max(dims[first + j], lower[j] - upper[j] + 1)
    inner = dims[0] * (row if interleaved else dtype.itemsize)
    base, strides = base_and_strides(rng, dims[1:], inner, 16 * max(interleave, 1))
    element_strides = [choose(rng, 1, 1, 1, 2, 3) for _ in range(rank)]
    fill = int(rng.integers(2)) if dtype.is_float else 0
    shape = dtype, base, dims, strides, lower, upper, channels, pixels, element_strides
    options = {"interleave": interleave, "swizzle": swizzle, "oob_fill": fill}
    tensor_map = TensorMap.im2col(*shape, **options)  # type: ignore[arg-type]
    coords = [int(rng.integers(0, extent)) for extent in dims]
    if not interleaved:
        coords[0] = channels * choose(rng, 0, 0, 1)
    for j in range(rank - 2):
        last = dims[first + j] - 1 + upper[j]
        coords[first + j] = int(rng.integers(lower[j], last + 1))
    offsets = tuple(int(n) for n in rng.integers(0, 4, rank - 2))
    return tensor_map, tuple(coords), offsets


def random_load(rng: Rng) -> Load:
    """Return a load that the unit accepts."""
    name = str(rng.choice(list(MODES), p=list(MODES.values())))
    mode, _, interleaved = name.partition(" ")
    while True:
        try:
            if mode == "tile":
                tensor_map, coords = random_tile(rng, bool(interleaved))
                offsets: tuple[int, ...] = ()
            else:
                tensor_map, coords, offsets = random_im2col(rng, bool(interleaved))
            address = 128 * int(rng.integers(0, 16))
            load = Load(tensor_map, coords, im2col_offsets=offsets, smem_address=address)
            check_tensor(Plan(tensor_map), operands_of(load), address, SMEM_BYTES)
        except TmaError:  # the combination is illegal: draw again
            continue
        return load


def random_loads(seed: int, count: int) -> list[Load]:
    """Return ``count`` loads, always the same for a seed."""
    rng = np.random.default_rng(seed)
    return [random_load(rng) for _ in range(count)]


def mode_of(load: Load) -> str:
    """Return the mode of a load, a key of ``MODES``."""
    plan = Plan(load.tensor_map)
    return plan.mode.name.lower() + " interleaved" * plan.interleaved


def describe(load: Load) -> str:
    """Return the parameters of a box that determine its cycles, in one line."""
    tensor_map = load.tensor_map
    assert isinstance(tensor_map, TensorMap)
    plan = Plan(tensor_map)
    parts = [f"rank {tensor_map.rank}"]
    parts += [tensor_map.interleave.name] * plan.interleaved
    parts += [tensor_map.swizzle.name] * bool(tensor_map.swizzle)
    parts.append(f"{plan.rows()} rows of {plan.row_bytes} bytes")
    shapes = {"dims": tensor_map.global_dim, "strides": tensor_map.global_strides}
    if plan.mode.map_mode:
        corners = {"lower corner": tensor_map.lower_corner, "upper corner": tensor_map.upper_corner}
        shapes |= {**corners, "offsets": load.im2col_offsets}
    else:
        shapes["box"] = tensor_map.box_dim
    shapes |= {"element strides": tensor_map.element_strides, "coordinates": load.coords}
    parts += [f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items() if shape]
    parts.append(f"tensor at byte {tensor_map.global_address % 128} of a line")
    return ", ".join(parts)
