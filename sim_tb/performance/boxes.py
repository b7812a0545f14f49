"""Random boxes to be timed that no file holds: every mode, rank, type, layout and edge."""

from math import prod

import numpy as np

from golden import DataType, Interleave, Load, Plan, Swizzle, TensorMap, TmaError
from golden.checks import check_tensor
from golden.enums import SMEM_BYTES
from golden.model import operands_of

Rng = np.random.Generator

TYPES = tuple(kind for kind in DataType if not kind.is_sub_byte)
MODES = {"tile": 0.55, "tile interleaved": 0.15, "im2col": 0.2, "im2col interleaved": 0.1}
"""How often each is drawn."""

MOST_BYTES = 8192
FAR = 0.03
"""Share of coordinates that are as far outside as they go."""


def one_of(rng: Rng, *choices: int) -> int:
    """One of ``choices``."""
    return int(rng.choice(choices))


def tensor(rng: Rng, extents: list[int], row_bytes: int, align: int) -> tuple[int, list[int]]:
    """Base address, and strides of ``extents`` over rows of ``row_bytes``: dense or with gaps."""
    strides, dense = [], row_bytes
    for extent in extents:
        dense = -(-dense // align) * align
        strides.append(dense + align * one_of(rng, 0, 0, int(rng.integers(0, 20))))
        dense = strides[-1] * extent
    return align * int(rng.integers(0, 1 << 23)), strides


def layout(rng: Rng, interleaved: bool) -> tuple[DataType, Interleave, Swizzle]:
    """Type, interleave and swizzle."""
    interleave = Interleave(int(rng.integers(1, 3)) if interleaved else 0)
    return TYPES[int(rng.integers(len(TYPES)))], interleave, Swizzle(int(rng.integers(4)))


def inner_elements(rng: Rng, kind: DataType, swizzle: Swizzle) -> int:
    """Elements of a row of 16 bytes up to what swizzle and box allow."""
    unit = 128 // kind.smem_bits
    widest = min(swizzle.span or 256 * kind.itemsize, 256 * kind.itemsize)
    return unit * int(rng.integers(1, widest // 16 + 1))


def tiled(rng: Rng, interleaved: bool) -> tuple[TensorMap, tuple[int, ...]]:
    """A tiled map and where a box starts."""
    rank = int(rng.integers(3 if interleaved else 1, 6))
    kind, interleave, swizzle = layout(rng, interleaved)
    first = 0 if interleaved else 1
    elements = 1 if interleaved else inner_elements(rng, kind, swizzle)
    row = 16 * interleave if interleaved else elements * kind.itemsize
    steps = [1] * rank
    rows = int(2 ** rng.uniform(0, np.log2(MOST_BYTES // row)))
    for i in rng.permutation(np.arange(first, rank)):
        steps[i] = int(rng.integers(1, max(1, rows // prod(steps[first:])) + 1))
    by = [one_of(rng, *[1] * 7, 2, 3, int(rng.integers(1, 9))) for _ in range(rank)]
    box = [min(count * stride, 256) for count, stride in zip(steps, by, strict=True)]
    if not interleaved:
        box[0] = elements
    dims = [max(1, n * one_of(rng, 1, 1, 2, 4) + one_of(rng, 0, 0, 1, -1, 5)) for n in box]
    inner = dims[0] * (row if interleaved else kind.itemsize)
    base, strides = tensor(rng, dims[1:], inner, 16 * max(interleave, 1))
    fill = int(rng.integers(2)) if kind.is_float else 0
    shape = kind, base, dims, strides, box, by
    options = {"interleave": interleave, "swizzle": swizzle, "oob_fill": fill}
    tensor_map = TensorMap.tiled(*shape, **options)  # type: ignore[arg-type]
    inside = rng.random() < 0.5
    coords = []
    for i, (size, extent) in enumerate(zip(box, dims, strict=True)):
        start = int(rng.integers(0, max(extent - size, 0) + 1))
        if not inside and rng.random() < 0.5:
            start = int(rng.integers(-size, extent + 2))
        if not inside and rng.random() < FAR:
            start = one_of(rng, -(1 << 31), (1 << 31) - 256)
        unit = 128 // kind.smem_bits if i < first else 1
        coords.append(start // unit * unit)
    return tensor_map, tuple(coords)


def im2col(rng: Rng, interleaved: bool) -> tuple[TensorMap, tuple[int, ...], tuple[int, ...]]:
    """An im2col map, where a column starts, and its offsets."""
    rank = int(rng.integers(3, 6))
    kind, interleave, swizzle = layout(rng, interleaved)
    first = 0 if interleaved else 1
    channels = min(inner_elements(rng, kind, swizzle), 256)
    row = 16 * interleave if interleaved else channels * kind.itemsize
    pixels = min(int(2 ** rng.uniform(0, np.log2(MOST_BYTES // row))), 1024)
    dims = [int(rng.integers(1, 3 * pixels ** (1 / (rank - 1)) + 6)) for _ in range(rank)]
    if not interleaved:
        dims[0] = max(1, channels * one_of(rng, 1, 2) + one_of(rng, 0, 0, 3, -3))
    reach = {3: 3, 4: 3, 5: 2}[rank]
    lower = [int(rng.integers(-reach, 2)) for _ in range(rank - 2)]
    upper = [int(rng.integers(-1, reach + 1)) for _ in range(rank - 2)]
    for j in range(rank - 2):
        dims[first + j] = max(dims[first + j], lower[j] - upper[j] + 1)
    inner = dims[0] * (row if interleaved else kind.itemsize)
    base, strides = tensor(rng, dims[1:], inner, 16 * max(interleave, 1))
    by = [one_of(rng, 1, 1, 1, 2, 3) for _ in range(rank)]
    fill = int(rng.integers(2)) if kind.is_float else 0
    shape = kind, base, dims, strides, lower, upper, channels, pixels, by
    options = {"interleave": interleave, "swizzle": swizzle, "oob_fill": fill}
    tensor_map = TensorMap.im2col(*shape, **options)  # type: ignore[arg-type]
    coords = [int(rng.integers(0, extent)) for extent in dims]
    if not interleaved:
        coords[0] = channels * one_of(rng, 0, 0, 1)
    for j in range(rank - 2):
        last = dims[first + j] - 1 + upper[j]
        coords[first + j] = int(rng.integers(lower[j], last + 1))
    offsets = tuple(int(n) for n in rng.integers(0, 4, rank - 2))
    return tensor_map, tuple(coords), offsets


def random_load(rng: Rng) -> Load:
    """A load that the unit accepts."""
    name = str(rng.choice(list(MODES), p=list(MODES.values())))
    mode, _, interleaved = name.partition(" ")
    while True:
        try:
            if mode == "tile":
                tensor_map, coords = tiled(rng, bool(interleaved))
                offsets: tuple[int, ...] = ()
            else:
                tensor_map, coords, offsets = im2col(rng, bool(interleaved))
            address = 128 * int(rng.integers(0, 16))
            load = Load(tensor_map, coords, im2col_offsets=offsets, smem_address=address)
            check_tensor(Plan(tensor_map), operands_of(load), address, SMEM_BYTES)
        except TmaError:  # a combination that there is not
            continue
        return load


def random_loads(seed: int, count: int) -> list[Load]:
    """So many; always the same for a seed."""
    rng = np.random.default_rng(seed)
    return [random_load(rng) for _ in range(count)]


def mode_of(load: Load) -> str:
    """Its mode, a key of ``MODES``."""
    plan = Plan(load.tensor_map)
    return plan.mode.name.lower() + " interleaved" * plan.interleaved


def described(load: Load) -> str:
    """What makes a box slow or fast, in a line."""
    tensor_map = load.tensor_map
    assert isinstance(tensor_map, TensorMap)
    plan = Plan(tensor_map)
    names = [f"rank {tensor_map.rank}"]
    names += [tensor_map.interleave.name] * plan.interleaved
    names += [tensor_map.swizzle.name] * bool(tensor_map.swizzle)
    names.append(f"{plan.rows()} rows of {plan.row_bytes} bytes")
    shapes = {"dims": tensor_map.global_dim, "strides": tensor_map.global_strides}
    if plan.mode.map_mode:
        corners = {"lower": tensor_map.lower_corner, "upper": tensor_map.upper_corner}
        shapes |= {**corners, "offsets": load.im2col_offsets}
    else:
        shapes["box"] = tensor_map.box_dim
    shapes |= {"by": tensor_map.element_strides, "at": load.coords}
    texts = [f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items() if shape]
    address = f"from {tensor_map.global_address % 128} into the line"
    return ", ".join([*names, *texts, address])
