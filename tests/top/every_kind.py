"""Requests of each kind that coverage distinguishes, even those that random tests rarely have."""

import math
from dataclasses import dataclass, field
from typing import Any

from golden import (
    AccessMode,
    BulkLoad,
    BulkReduce,
    BulkStore,
    DataType,
    Load,
    Reduce,
    ReductionOp,
    Store,
    TensorMap,
)
from sim_tb.coverage.boxes import (
    WIDE_PACKED,
    Alignment,
    Fill,
    Interleaving,
    Mode,
    Rank,
    Side,
    Size,
    Swizzling,
)
from sim_tb.coverage.load_kinds import HOPPER_SWIZZLES, LoadKind
from sim_tb.coverage.store_kinds import ReductionKind, StoreKind
from tests.golden.random_requests import Rng, pick
from tests.unit_arch import LATER_UNIT

LINE = 128
STARTS = {
    Alignment.LINE: (0,),
    Alignment.B32: (32, 64, 96),
    Alignment.B16: (16, 48, 80, 112),
}
PACKED = {
    Size.U4_8B: DataType.PACKED_16U4_ALIGN8B,
    Size.U4_16B: DataType.PACKED_16U4_ALIGN16B,
    Size.U6_16B: DataType.PACKED_16U6_ALIGN16B,
}


def type_of(rng: Rng, size: Size, fill: Fill) -> DataType:
    """Return a random data type of that size; the NaN fill needs a floating-point type."""
    if size in PACKED:
        return PACKED[size]
    kinds = [kind for kind in DataType if not kind.is_sub_byte and f"{kind.itemsize}B" == size]
    return pick(rng, *(kind for kind in kinds if kind.is_float or fill is Fill.ZERO))


@dataclass
class Box:
    """Dimensions of a tensor, and coordinates and extents of a box in it.

    ``operands`` are further operands of the load, such as ``w_halo``.
    """

    dims: list[int]
    coords: list[int]
    box: list[int]
    pixels: int = 0
    operands: dict[str, int] = field(default_factory=dict)


def shift_tile(rng: Rng, side: Side, box: Box, step: int, is_store: bool) -> None:
    """Move a tile across the tensor's edge on ``side``, in its last dimension, by ``step``.

    A store has no negative coordinates.
    """
    last = len(box.dims) - 1
    match side:
        case Side.LOW:
            box.coords[last] = -step
        case Side.HIGH:
            box.coords[last] = box.dims[last] - step
        case Side.BOTH:
            box.dims[last] = max(step // 2, 1)
            box.coords[last] = -step
            box.box[last] += step if last else 0
        case Side.OUTSIDE:
            above, below = box.dims[last] + step, -4 * box.box[last]
            box.coords[last] = above if is_store else pick(rng, above, below)


def shift_column(rng: Rng, side: Side, box: Box, positions: int, ticks: int) -> None:
    """Move a column of ``ticks`` pixels across the tensor's edge on ``side``, in the images.

    ``positions`` is the number of pixels of one image.
    """
    images = -(-ticks // positions)
    low, box.dims[-1] = {
        Side.INSIDE: (0, images + 1),
        Side.LOW: (-1, images + 1),
        Side.HIGH: (2, 3),
        Side.BOTH: (-1, 1),
        Side.OUTSIDE: (pick(rng, 5, -images - 3), 2),
    }[side]
    box.coords[-1] = low


def tensor_load(
    rng: Rng, sample: LoadKind, data_type: DataType | None = None, *, is_store: bool = False
) -> Load:
    """Return a random tensor load of the kind ``sample``, of a random type unless one is given.

    With ``is_store``, a store of the same box is legal.
    """
    assert sample.rank is not None
    assert sample.size is not None
    assert sample.fill is not None
    assert sample.side is not None
    if data_type is None:
        data_type = type_of(rng, sample.size, sample.fill)
    rank = int(sample.rank)
    unit = {Interleaving.B16: 16, Interleaving.B32: 32}.get(sample.interleave, 0)
    per_piece = 128 // data_type.smem_bits
    widest = {Swizzling.NONE: 5, Swizzling.B32: 2, Swizzling.B64: 4, Swizzling.B96: 6}
    inner = per_piece * int(rng.integers(2, widest.get(sample.swizzle, 8) + 1))
    if data_type > DataType.PACKED_16U4_ALIGN8B:
        inner = 128
    box = Box(
        dims=[inner * 2, *(int(rng.integers(4, 7)) for _ in range(rank - 1))],
        coords=[0, *(int(rng.integers(0, 3)) for _ in range(rank - 1))],
        box=[inner] + [2] * (rank - 1),
    )
    mode = AccessMode[sample.mode.name]
    if mode is AccessMode.TILE:
        step = inner if sample.size in WIDE_PACKED else per_piece
        shift_tile(rng, sample.side, box, step if rank == 1 else 1, is_store)
    elif mode is AccessMode.TILE_GATHER4:
        gather(rng, sample.side, box)
    elif is_store:
        image_of_store(rng, sample.side, box, first=0 if unit else 1)
    else:
        image(rng, sample.side, mode, box, first=0 if unit else 1)
    return build(rng, sample, data_type, mode, box, unit)


def gather(rng: Rng, side: Side, box: Box) -> None:
    """Choose four rows: all inside, some outside on ``side``, or all outside."""
    rows = [int(row) for row in rng.integers(0, box.dims[1], 4)]
    low, high = -1, box.dims[1]
    at = int(rng.integers(3))
    if side in (Side.LOW, Side.BOTH):
        rows[at] = low
    if side in (Side.HIGH, Side.BOTH):
        rows[at + 1] = high
    if side is Side.OUTSIDE:
        rows = [pick(rng, low, high) for _ in rows]
    box.coords[1:] = rows
    box.box[1] = 1


def image(rng: Rng, side: Side, mode: AccessMode, box: Box, first: int) -> None:
    """Choose a column of pixels that starts at the first pixel of an image."""
    rank = len(box.dims)
    if first == 0:
        box.dims[0] = int(rng.integers(3, 6))
    if mode is AccessMode.IM2COL:
        box.coords[first : first + rank - 2] = [0] * (rank - 2)
        positions = math.prod(box.dims[first : first + rank - 2])
        box.pixels = 2 * positions + 2
        if side in (Side.INSIDE, Side.OUTSIDE):
            box.pixels = int(rng.integers(1, positions + 1))
        shift_column(rng, side, box, positions, box.pixels)
        return
    box.operands["w_halo"] = int(rng.integers(0, 3))
    box.coords[1] = 0
    if mode is AccessMode.IM2COL_W_128:
        box.dims[1], ticks = 40, 128 + box.operands["w_halo"]
    else:
        ticks = 2 * box.dims[1] + 2
    box.pixels = ticks - box.operands["w_halo"]
    shift_column(rng, side, box, box.dims[1], ticks)


def image_of_store(rng: Rng, side: Side, box: Box, first: int) -> None:
    """Choose a column of pixels that starts at the first pixel of an image, for a store."""
    rank = len(box.dims)
    if first == 0:
        box.dims[0] = int(rng.integers(3, 6))
    spatial = slice(first, first + rank - 2)
    box.coords[spatial] = [0] * (rank - 2)
    positions = math.prod(box.dims[spatial])
    box.coords[-1], box.dims[-1], box.pixels = {
        Side.INSIDE: (0, 2, int(rng.integers(1, positions + 1))),
        Side.HIGH: (0, 1, positions + 1),
        Side.OUTSIDE: (3, 2, int(rng.integers(1, positions + 1))),
    }[side]


def build(
    rng: Rng, sample: LoadKind, data_type: DataType, mode: AccessMode, box: Box, unit: int
) -> Load:
    """Return the load of ``box``, with strides and a base that give the alignment of ``sample``."""
    element = unit * 8 or data_type.bits
    dense, strides = box.dims[0] * element // 8, []
    for extent in box.dims[1:]:
        strides.append(-(-dense // LINE) * LINE)
        dense = strides[-1] * extent
    start = box.coords[0] * element // 8
    base = (1 << 24) + (pick(rng, *STARTS[sample.alignment]) - start) % LINE
    shared = {
        "data_type": data_type,
        "global_address": base,
        "global_dim": box.dims,
        "global_strides": strides,
        "interleave": unit // 16,
        "swizzle": list(Swizzling).index(sample.swizzle),
        "oob_fill": list(Fill).index(sample.fill),
        "arch": LATER_UNIT,
    }
    if mode in (AccessMode.TILE, AccessMode.TILE_GATHER4):
        return Load(TensorMap.tiled(**shared, box_dim=box.box), tuple(box.coords), mode)
    wide = mode is not AccessMode.IM2COL
    corners = (0,) * (1 if wide else len(box.dims) - 2)
    tensor_map = TensorMap.im2col(
        **shared,
        lower_corner=corners,
        upper_corner=corners,
        channels_per_pixel=box.box[0],
        pixels_per_column=box.pixels,
        wide=wide,
    )
    return Load(tensor_map, tuple(box.coords), mode, **box.operands)


def load_of(rng: Rng, sample: LoadKind) -> Load | BulkLoad:
    """Return a random load of the kind ``sample`` to offset 0 of shared memory."""
    if sample.mode is Mode.BULK:
        address = (1 << 24) + pick(rng, *STARTS[sample.alignment])
        return BulkLoad(address, 0, 16 * int(rng.integers(1, 40)))
    return tensor_load(rng, sample)


def store_of(rng: Rng, kind: StoreKind) -> Store | BulkStore:
    """Return a random store of a kind, from offset 0 of shared memory."""
    if kind.mode is Mode.BULK:
        address = (1 << 24) + pick(rng, *STARTS[kind.alignment])
        return BulkStore(address, 0, 16 * int(rng.integers(1, 40)))
    bins: dict[str, Any] = dict(zip(kind.dimensions, kind.bins, strict=True))
    load = tensor_load(rng, LoadKind(fill=Fill.ZERO, **bins), is_store=True)
    return Store(load.tensor_map, load.coords, load.mode)


def reduction_of(rng: Rng, kind: ReductionKind) -> Reduce | BulkReduce:
    """Return a random reduction of a kind, from offset 0 of shared memory."""
    data_type, op = DataType[kind.type.name], ReductionOp[kind.operation.name]
    if kind.mode is Mode.BULK:
        address = (1 << 24) + pick(rng, *STARTS[kind.alignment])
        return BulkReduce(address, 0, 16 * int(rng.integers(1, 40)), data_type, op)
    bins = kind.mode, Rank.THREE, Size(f"{data_type.itemsize}B"), pick(rng, *HOPPER_SWIZZLES)
    sample = LoadKind(*bins, Interleaving.NONE, Fill.ZERO, kind.alignment, kind.side)
    load = tensor_load(rng, sample, data_type, is_store=True)
    return Reduce(load.tensor_map, load.coords, load.mode, op=op)
