"""Random legal requests of every mode, type and layout, at and across every edge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from golden import (
    AccessMode,
    ApplyPriority,
    Arch,
    ArrayMemory,
    BulkApplyPriority,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    DataType,
    DsmemCopy,
    DsmemReduce,
    Feature,
    HashedMemory,
    Interleave,
    Load,
    Memory,
    Override,
    Plan,
    Prefetch,
    Reduce,
    ReportMechanism,
    Request,
    Store,
    Swizzle,
    TensorMap,
    TmaError,
    check,
)
from golden.model import operands_of
from golden.reduction import BULK_PAIRS, DSMEM_PAIRS, TENSOR_PAIRS

Rng = np.random.Generator

CTAS = 4
SMEM_BYTES = 32768
GMEM_BYTES = 1 << 18
LARGEST_STRIDE = (1 << 40) - 32
LARGEST_EXTENT, LARGEST_COORDINATE = 1 << 32, (1 << 31) - 1
MOST_UNITS = 500
"""Approximate largest number of elements or slices of a box; the literal definition is slow."""

LATER = Arch.SM_103A
"""Architecture with all types and swizzles."""

HOPPER_TYPES = tuple(kind for kind in DataType if not kind.is_sub_byte)
SPECIAL = (0, 1, 0x7F, 0x80, 0x7C, 0xFF, 0x7FFF, 0x8000)
"""Bytes and half words that are part of special numbers."""


@dataclass(frozen=True)
class Case:
    """A request, its issuing CTA, and the architecture."""

    request: Request
    cta: int = 0
    arch: Arch = Arch.SM_90A

    @property
    def writes_gmem(self) -> bool:
        """True if the request needs a writable global memory."""
        return isinstance(self.request, Store | BulkStore | BulkReduce)

    def memories(self, seed: int) -> tuple[Memory, list[np.ndarray]]:
        """Return new global and shared memories, the same for the same seed."""
        rng = np.random.default_rng(seed)
        smem = [random_bytes(rng, SMEM_BYTES) for _ in range(CTAS)]
        gmem = ArrayMemory(random_bytes(rng, GMEM_BYTES)) if self.writes_gmem else HashedMemory()
        return gmem, smem


def random_bytes(rng: Rng, count: int) -> np.ndarray:
    """Return random data in which special numbers are frequent."""
    halves = rng.integers(0, 1 << 16, count // 2, dtype=np.uint16)
    special = rng.random(count // 8) < 0.3
    wide = halves.reshape(-1, 4)
    wide[special] = rng.choice(np.array(SPECIAL, np.uint16) * 0x101, (int(special.sum()), 4))
    wide[:, 3][special] = rng.choice([0x7FF0, 0xFFF0, 0, 0x8000, 0x7C00, 0x7F80], special.sum())
    wide[:, 1][special] = rng.choice([0x7F80, 0xFF80, 0, 0x8000, 0x7FC0, 0x1], special.sum())
    return halves.view(np.uint8)


def pick(rng: Rng, *choices):
    """Return one of ``choices``."""
    return choices[int(rng.integers(len(choices)))]


def random_row(rng: Rng, room: int) -> tuple[int, DataType]:
    """Return the bytes of a row, 16 to 2,048 and at most ``room``, and a type.

    A row has at most 256 elements of the type.
    """
    row = 16 << int(rng.integers(8))
    while row > max(room, 16):
        row //= 2
    kinds = DataType.UINT8, DataType.UINT16, DataType.FLOAT32, DataType.FLOAT64
    return row, next(kind for kind in kinds if row <= 256 * kind.itemsize)


def swizzle_of(rng: Rng, arch: Arch) -> Swizzle:
    """Return any swizzle of the architecture."""
    return Swizzle(int(rng.integers(8 if arch.has(Feature.SWIZZLE_ATOMS) else 4)))


def _extent(rng: Rng, extent: int) -> int:
    """Return ``extent``, or in one of ten cases a larger one."""
    if rng.random() < 0.9:
        return extent
    return max(extent, int(LARGEST_EXTENT ** rng.random()))


def _tensor(rng: Rng, extents: list[int], inner_bytes: int, align: int, small: bool):
    """Return base address and strides of a tensor of ``inner_bytes`` by ``extents``."""
    strides, dense = [], inner_bytes
    for extent in extents:
        dense = min(-(-dense // align) * align, LARGEST_STRIDE // align * align)
        choices = [dense, dense, dense + align * int(rng.integers(0, 20)), align, 0]
        if not small:
            most = pick(rng, 1 << int(rng.integers(4, 36)), LARGEST_STRIDE // align)
            choices += [1 << 35, align * int(rng.integers(most))]
        strides.append(pick(rng, *choices))
        dense = max(strides[-1] * extent, dense)
    base = align * int(rng.integers(0, 64 if small else 1 << 30))
    return base, strides


def tiled(
    rng: Rng,
    data_type: DataType,
    arch: Arch,
    *,
    interleaved: bool,
    small: bool,
    most: int = MOST_UNITS,
):
    """Return a tiled map of up to about ``most`` units; ``small``: within `GMEM_BYTES`."""
    rank = int(rng.integers(3 if interleaved else 1, 6))
    interleave = Interleave(int(rng.integers(1, 3)) if interleaved else 0)
    swizzle = swizzle_of(rng, arch)
    unit = 128 // data_type.smem_bits
    widest = unit * ((swizzle.span or 256) // 16) if not interleaved else 64
    wide = data_type > DataType.PACKED_16U4_ALIGN8B
    box = [128 if wide else unit * int(rng.integers(1, min(widest, 256) // unit + 1))]
    strides = [int(rng.choice([1] * 6 + [2, 3, 4, 5, 6, 7, 8])) for _ in range(rank)]
    while len(box) < rank:
        longest = 4 if most <= MOST_UNITS else pick(rng, 4, 9, 40, 256)
        box.append(min(int(rng.integers(1, longest + 1)) * strides[len(box)], 256))
    while prod(-(-n // e) for n, e in zip(box, [1, *strides[1:]], strict=True)) > most:
        at = int(np.argmax(box[1:])) + 1
        if box[at] == 1:
            box[0] = unit
            break
        box[at] = max(1, box[at] // 2)
    dims = [max(1, n + int(rng.choice([0, 0, 1, -1, n, rng.integers(-8, 9)]))) for n in box]
    dims = dims if small else [_extent(rng, n) for n in dims]
    if data_type.is_sub_byte:
        dims[0] = 128 * int(rng.integers(1, 3)) if wide else max(2, dims[0] // 2 * 2)
    align = 32 if interleave is Interleave.INTERLEAVE_32B or data_type.is_sub_byte else 16
    row = dims[0] * (16 * interleave if interleaved else 1)
    row = row if interleaved else -(-row * data_type.bits // 8)
    base, global_strides = _tensor(rng, dims[1:], row, align, small)
    return TensorMap.tiled(
        data_type,
        base,
        dims,
        global_strides,
        box,
        strides,
        interleave=interleave,
        swizzle=swizzle,
        oob_fill=int(rng.integers(2)) if data_type.is_float else 0,
        arch=arch,
    )


def tile_coords(rng: Rng, tensor_map: TensorMap, *, store: bool) -> tuple[int, ...]:
    """Return a start inside, across an edge, outside, or at the limits of coordinates."""
    interleaved = bool(tensor_map.interleave)
    kind = tensor_map.data_type
    step = 1 if interleaved else 128 // kind.smem_bits
    if kind > DataType.PACKED_16U4_ALIGN8B:
        step = 128
    coords = []
    inside = rng.random() < 0.5
    for i, (box, dim) in enumerate(zip(tensor_map.box_dim, tensor_map.global_dim, strict=True)):
        low = 0 if store else -box - 2
        start = int(rng.choice([0, 0, 1, -1, rng.integers(low, dim + 2)]))
        if inside and rng.random() < 0.9:
            start = int(rng.integers(0, max(dim - box, 0) + 1))
        elif not store and rng.random() < 0.02:
            start = pick(rng, -(1 << 31), (1 << 31) - 256)
        start = start // step * step if i == 0 else start
        coords.append(max(start, 0) if store else min(start, LARGEST_COORDINATE // step * step))
    return tuple(coords)


def im2col(
    rng: Rng,
    data_type: DataType,
    *,
    interleaved: bool,
    small: bool,
    wide: bool = False,
    most: int = MOST_UNITS,
):
    """Return an im2col map; ``small``: for stores, whose corners are inside the tensor."""
    rank = int(rng.integers(3, 6))
    interleave = Interleave(int(rng.integers(1, 3)) if interleaved else 0)
    arch = LATER if wide else Arch.SM_90A
    swizzle = swizzle_of(rng, arch)
    unit = 128 // data_type.smem_bits
    widest = unit * ((swizzle.span or 64) // 16) if not interleaved else 256
    channels = unit * int(rng.integers(1, min(widest, 64) // unit + 1))
    pixels = min(1024, max(1, most // (1 if interleaved else channels)))
    pixels = pixels if rng.random() < 0.05 else int(rng.integers(1, pixels + 1))
    first = 0 if interleaved else 1
    dims = [int(rng.integers(1, 9)) for _ in range(rank)]
    if not interleaved:
        dims[0] = max(1, channels + int(rng.choice([0, 0, 3, -3, 40])))
    dims = dims if small else [_extent(rng, n) for n in dims]
    spatial = 1 if wide else rank - 2
    most = {3: 100, 4: 100, 5: 15}[rank]
    inside = small and not wide
    lower = [int(rng.integers(0 if inside else -3, 3)) for _ in range(spatial)]
    upper = [int(rng.integers(-2, 1 if inside else min(4, most))) for _ in range(spatial)]
    if not small and rng.random() < 0.2:
        end = {3: 2000, 4: 128, 5: 16}[rank]
        lower, upper = ([int(n) for n in rng.integers(-end, end, spatial)] for _ in range(2))
    for j in range(spatial):
        dims[first + j] = max(dims[first + j], lower[j] - upper[j] + 1)
    align = 32 if interleave is Interleave.INTERLEAVE_32B else 16
    row = dims[0] * (16 * interleave if interleaved else data_type.itemsize)
    base, strides = _tensor(rng, dims[1:], row, align, small)
    return TensorMap.im2col(
        data_type,
        base,
        dims,
        strides,
        lower,
        upper,
        channels,
        pixels,
        [int(rng.choice([1, 1, 1, 2, 3])) for _ in range(rank)],
        interleave=interleave,
        swizzle=swizzle,
        oob_fill=int(rng.integers(2)) if data_type.is_float else 0,
        wide=wide,
        arch=arch,
    )


def im2col_coords(rng: Rng, tensor_map: TensorMap, *, store: bool) -> tuple[int, ...]:
    """Return a start in the bounding box; channels and images may be outside the tensor."""
    rank, interleaved = tensor_map.rank, bool(tensor_map.interleave)
    first = 0 if interleaved else 1
    low = 0 if store else -2
    beyond = int(rng.integers(0, 2))
    ends = [min(n + 2 * beyond, LARGEST_COORDINATE) for n in tensor_map.global_dim]
    coords = [int(rng.integers(low * beyond, end)) for end in ends]
    if not store and rng.random() < 0.1:
        coords[-1] = -int(rng.integers(1 << int(rng.integers(1, 31))))
    if not interleaved:
        unit = 128 // tensor_map.data_type.smem_bits
        coords[0] = unit * int(rng.integers(low, 3))
    for j in range(1 if tensor_map.wide else rank - 2):
        last = tensor_map.global_dim[first + j] - 1 + tensor_map.upper_corner[j]
        start = int(rng.integers(tensor_map.lower_corner[j], last + 1))
        coords[first + j] = max(start, 0) if store else start
    return tuple(coords)


def _smem(rng: Rng) -> int:
    return 128 * int(rng.integers(0, 96))


def _mbarrier(rng: Rng) -> int:
    return 8 * int(rng.integers(0, SMEM_BYTES // 8))


def load_tile(
    rng: Rng,
    *,
    interleaved: bool = False,
    arch: Arch = Arch.SM_90A,
    most: int = MOST_UNITS,
) -> Case:
    kinds = HOPPER_TYPES if arch is Arch.SM_90A or interleaved else tuple(DataType)
    kind = pick(rng, *kinds)
    tensor_map = tiled(rng, kind, arch, interleaved=interleaved, small=False, most=most)
    coords = tile_coords(rng, tensor_map, store=False)
    return Case(Load(tensor_map, coords, smem_address=_smem(rng), mbarrier=_mbarrier(rng)), 0, arch)


def load_short_rows(rng: Rng) -> Case:
    """Return a load of rows of 16 to 112 bytes that begin at most 112 bytes apart."""
    box = [16 * int(rng.integers(1, 8)), *(int(n) for n in rng.integers(1, (40, 4, 3)))]
    box = box[: int(rng.integers(2, 5))]
    dims = [int(rng.integers(1, 2 * n + 1)) for n in box]
    strides = [16 * int(n) for n in rng.integers(8, size=len(box) - 1)]
    base = 16 * int(rng.integers(1 << 30))
    swizzle = Swizzle(int(pick(rng, 0, 0, 3)))
    tensor_map = TensorMap.tiled("u8", base, dims, strides, box, swizzle=swizzle)
    coords = tile_coords(rng, tensor_map, store=False)
    return Case(Load(tensor_map, coords, smem_address=_smem(rng), mbarrier=_mbarrier(rng)))


def load_im2col(rng: Rng, *, interleaved: bool = False, most: int = MOST_UNITS) -> Case:
    kind = pick(rng, *HOPPER_TYPES)
    tensor_map = im2col(rng, kind, interleaved=interleaved, small=False, most=most)
    coords = im2col_coords(rng, tensor_map, store=False)
    count = tensor_map.rank - 2
    offsets = tuple(int(n) for n in rng.integers(0, 5, count)) if rng.random() < 0.8 else ()
    return Case(Load(tensor_map, coords, im2col_offsets=offsets, smem_address=_smem(rng)))


def store_tile(rng: Rng, *, interleaved: bool = False, arch: Arch = Arch.SM_90A) -> Case:
    kinds = HOPPER_TYPES if arch is Arch.SM_90A or interleaved else tuple(DataType)
    tensor_map = tiled(rng, pick(rng, *kinds), arch, interleaved=interleaved, small=True)
    coords = tile_coords(rng, tensor_map, store=True)
    return Case(Store(tensor_map, coords, smem_address=_smem(rng)), 1, arch)


def store_im2col(rng: Rng, *, interleaved: bool = False) -> Case:
    tensor_map = im2col(rng, pick(rng, *HOPPER_TYPES), interleaved=interleaved, small=True)
    coords = im2col_coords(rng, tensor_map, store=True)
    return Case(Store(tensor_map, coords, smem_address=_smem(rng)))


def _reduced(rng: Rng, tensor_map: TensorMap, coords: tuple[int, ...]) -> Case:
    ops = [op for kind, op in sorted(TENSOR_PAIRS) if kind is tensor_map.data_type]
    return Case(Reduce(tensor_map, coords, smem_address=_smem(rng), op=pick(rng, *ops)))


REDUCED_TYPES = tuple(sorted({kind for kind, _ in TENSOR_PAIRS}))


def reduce_tile(rng: Rng, *, interleaved: bool = False) -> Case:
    kind = pick(rng, *REDUCED_TYPES)
    tensor_map = tiled(rng, kind, Arch.SM_90A, interleaved=interleaved, small=True)
    return _reduced(rng, tensor_map, tile_coords(rng, tensor_map, store=True))


def reduce_im2col(rng: Rng, *, interleaved: bool = False) -> Case:
    kind = pick(rng, *REDUCED_TYPES)
    tensor_map = im2col(rng, kind, interleaved=interleaved, small=True)
    return _reduced(rng, tensor_map, im2col_coords(rng, tensor_map, store=True))


def _routed(rng: Rng, case: Case) -> Case:
    """Return the same load for other destinations."""
    cta = int(rng.integers(CTAS))
    if rng.random() < 0.5:
        where = {"cta_mask": int(rng.integers(1 << CTAS))}
    else:
        where = {"dst_cta": int(rng.integers(CTAS))}
    ignored = {"mbarrier_cta": int(rng.integers(CTAS))}
    return Case(replace(case.request, **where, **ignored), cta, case.arch)


def multicast(rng: Rng) -> Case:
    return _routed(rng, load_tile(rng) if rng.random() < 0.5 else load_im2col(rng))


def cta_pair(rng: Rng) -> Case:
    case = load_tile(rng, arch=LATER)
    if rng.random() < 0.5:
        mask, holder = int(rng.integers(1, 1 << CTAS)), int(rng.integers(CTAS))
        request = replace(case.request, cta_mask=mask, mbarrier_cta=holder, cta_group=2)
    else:
        dst = int(rng.integers(CTAS))
        holder = dst ^ int(rng.integers(2))
        request = replace(case.request, dst_cta=dst, mbarrier_cta=holder, cta_group=2)
    return Case(request, int(rng.integers(CTAS)), LATER)


def gather4(rng: Rng, *, store: bool = False) -> Case:
    while True:
        kind = pick(rng, *DataType)
        tensor_map = tiled(rng, kind, LATER, interleaved=False, small=store)
        if tensor_map.rank == 2:
            break
    tensor_map = replace(tensor_map, box_dim=(tensor_map.box_dim[0], 1))
    start = tile_coords(rng, tensor_map, store=store)[0]
    low = 0 if store else -2
    rows = rng.integers(low, tensor_map.global_dim[1] + 2, 4)
    coords = (start, *(int(row) for row in rows))
    if store:
        request = Store(tensor_map, coords, AccessMode.TILE_SCATTER4, smem_address=_smem(rng))
    else:
        request = Load(tensor_map, coords, AccessMode.TILE_GATHER4, smem_address=_smem(rng))
    return Case(request, 0, LATER)


def im2col_w(rng: Rng, *, mode: AccessMode = AccessMode.IM2COL_W, store: bool = False) -> Case:
    tensor_map = im2col(rng, pick(rng, *HOPPER_TYPES), interleaved=False, small=store, wide=True)
    coords = im2col_coords(rng, tensor_map, store=store)
    if store:
        request = Store(tensor_map, coords, mode, smem_address=_smem(rng))
    else:
        halo, offset = int(rng.integers(0, 12)), int(rng.integers(0, 32))
        address = _smem(rng) % 8192
        request = Load(tensor_map, coords, mode, (), halo, offset, smem_address=address)
    return Case(request, 0, Arch.SM_107A if store else LATER)


def prefetch(rng: Rng) -> Case:
    load = (load_tile(rng) if rng.random() < 0.5 else load_im2col(rng)).request
    return Case(Prefetch(load.tensor_map, load.coords, im2col_offsets=load.im2col_offsets))


def _bulk(rng: Rng) -> dict[str, int]:
    return {
        "smem_address": 16 * int(rng.integers(0, 1024)),
        "size": 16 * int(rng.choice([0, 1, 2, rng.integers(0, 60)])) + _ignored_bits(rng),
    }


def _ignored_bits(rng: Rng) -> int:
    """Return bits of a size that do not count; mostly none."""
    if rng.random() < 0.8:
        return 0
    return int(rng.integers(16)) | int(rng.integers(1 << 12)) << 20


def bulk_load(rng: Rng) -> Case:
    request = BulkLoad(16 * int(rng.integers(0, 1 << 40)), **_bulk(rng), mbarrier=_mbarrier(rng))
    if rng.random() < 0.3:
        first, last = (int(n) for n in rng.integers(0, 16, 2))
        return Case(replace(request, ignore_first=first, ignore_last=last), 2)
    return _routed(rng, Case(request))


def bulk_store(rng: Rng) -> Case:
    request = BulkStore(16 * int(rng.integers(0, 4096)), **_bulk(rng))
    if rng.random() < 0.5:
        return Case(request, 3)
    return Case(replace(request, byte_mask=int(rng.integers(0, 1 << 16))), 3, Arch.SM_100A)


def bulk_reduce(rng: Rng) -> Case:
    kind, op = pick(rng, *sorted(BULK_PAIRS))
    return Case(BulkReduce(16 * int(rng.integers(0, 4096)), **_bulk(rng), data_type=kind, op=op))


def bulk_prefetch(rng: Rng) -> Case:
    return Case(BulkPrefetch(16 * int(rng.integers(0, 4096)), 16 * int(rng.integers(0, 4096))))


def dsmem(rng: Rng) -> Case:
    cta, dst = int(rng.integers(CTAS)), int(rng.integers(CTAS))
    # Half of the shared memory is for sources, the other half for destinations.
    where = {"dst_cta": dst, "dst_address": SMEM_BYTES // 2 + 16 * int(rng.integers(0, 900))}
    where |= {**_bulk(rng), "mbarrier": _mbarrier(rng), "mbarrier_cta": int(rng.integers(CTAS))}
    where["smem_address"] %= SMEM_BYTES // 2 - 1024
    if rng.random() < 0.5:
        return Case(DsmemCopy(**where), cta)
    kind, op = pick(rng, *sorted(DSMEM_PAIRS))
    return Case(DsmemReduce(**where, data_type=kind, op=op), cta)


def overridden(
    rng: Rng,
    makers: Sequence[Callable[[Rng], Case]] = (load_tile, store_tile, load_im2col, gather4),
) -> Case:
    """Return a request of one of ``makers`` that overrides its address, or its extents, too.

    A load may become a prefetch.
    """
    case = pick(rng, *makers)(rng)
    request = case.request
    m = request.tensor_map
    align = 32 if m.interleave is Interleave.INTERLEAVE_32B or m.data_type.is_sub_byte else 16
    address = align * int(rng.integers(0, GMEM_BYTES // 2 // align))
    changes = {"override": Override(address)}
    if m.box_dim and request.mode is None and rng.random() < 0.6:
        strides = [align * int(rng.integers(0, 64)) for _ in m.global_strides]
        large = not case.writes_gmem and rng.random() < 0.3
        upper = int(rng.integers(1 << 4 * len(strides))) if large else 0
        dims = tuple(int(n) for n in rng.integers(1, 40, m.rank))
        lower = tuple(stride >> 4 for stride in strides)
        changes |= {"override": Override(address, dims, lower, upper), "coords": (0,) * m.rank}
    request = replace(request, **changes)
    if isinstance(request, Load) and rng.random() < 0.3:
        request = Prefetch(
            m, request.coords, request.mode, request.im2col_offsets, override=request.override
        )
    return Case(request, case.cta, Arch.SM_107A)


def reporting(rng: Rng) -> Case:
    """Return a load that reports; many sources have one of the patterns."""
    case = pick(rng, load_tile, load_im2col, gather4, bulk_load)(rng)
    request = replace(case.request, report=ReportMechanism(int(rng.integers(6))))
    if isinstance(request, BulkLoad):
        request = replace(request, ignore_first=0, ignore_last=0)
    return Case(request, case.cta, Arch.SM_107A)


def scatter4_anywhere(rng: Rng) -> Case:
    """Return a scatter4 whose coordinates may be negative."""
    request = gather4(rng, store=True).request
    unit = 128 // request.tensor_map.data_type.smem_bits
    start = request.coords[0] - (128 if unit == 16 else unit) * int(rng.integers(3))
    rows = (row - int(rng.integers(3)) for row in request.coords[1:])
    return Case(replace(request, coords=(start, *rows)), 0, Arch.SM_107A)


def short_b6p2x16(rng: Rng) -> Case:
    """Return a store of 6-bit elements in rows of 64 or 128."""
    arch = pick(rng, Arch.SM_103A, Arch.SM_107A)
    rank = int(rng.integers(1, 4))
    box = [pick(rng, 64, 128), *(int(n) for n in rng.integers(1, 5, rank - 1))]
    dims = [64 * int(rng.integers(1, 6)), *(int(n) for n in rng.integers(1, 6, rank - 1))]
    base, strides = _tensor(rng, dims[1:], dims[0] * 6 // 8, 16, small=True)
    swizzle = pick(rng, *("NONE", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_64B"))
    tensor_map = TensorMap.tiled(
        "16U6_ALIGN16B", base, dims, strides, box, swizzle=swizzle, arch=arch
    )
    coords = (64 * int(rng.integers(0, 4)), *(int(rng.integers(0, n)) for n in dims[1:]))
    return Case(Store(tensor_map, coords, smem_address=_smem(rng)), 0, arch)


def eviction(rng: Rng) -> Case:
    """Return a request that only changes the priority of lines in L2."""
    load = (load_tile(rng) if rng.random() < 0.5 else load_im2col(rng)).request
    kind = pick(rng, Prefetch, ApplyPriority, BulkPrefetch, BulkApplyPriority)
    last = {"evict_last": True} if kind in (Prefetch, BulkPrefetch) else {}
    if kind in (BulkPrefetch, BulkApplyPriority):
        return Case(kind(16, 64, **last), 0, Arch.SM_107A)
    return Case(kind(load.tensor_map, load.coords, **last), 0, Arch.SM_107A)


MODES: dict[str, Callable[[Rng], Case]] = {
    "load_tile": load_tile,
    "load_tile_interleaved": lambda rng: load_tile(rng, interleaved=True),
    "load_short_rows": load_short_rows,
    "load_im2col": load_im2col,
    "load_im2col_interleaved": lambda rng: load_im2col(rng, interleaved=True),
    "store_tile": store_tile,
    "store_tile_interleaved": lambda rng: store_tile(rng, interleaved=True),
    "store_im2col": store_im2col,
    "store_im2col_interleaved": lambda rng: store_im2col(rng, interleaved=True),
    "reduce_tile": reduce_tile,
    "reduce_tile_interleaved": lambda rng: reduce_tile(rng, interleaved=True),
    "reduce_im2col": reduce_im2col,
    "reduce_im2col_interleaved": lambda rng: reduce_im2col(rng, interleaved=True),
    "multicast": multicast,
    "prefetch": prefetch,
    "bulk_load": bulk_load,
    "bulk_store": bulk_store,
    "bulk_reduce": bulk_reduce,
    "bulk_prefetch": bulk_prefetch,
    "dsmem": dsmem,
    "sm_100a_load_tile": lambda rng: load_tile(rng, arch=LATER),
    "sm_100a_store_tile": lambda rng: store_tile(rng, arch=LATER),
    "sm_100a_gather4": gather4,
    "sm_100a_scatter4": lambda rng: gather4(rng, store=True),
    "sm_100a_im2col_w": im2col_w,
    "sm_100a_im2col_w_128": lambda rng: im2col_w(rng, mode=AccessMode.IM2COL_W_128),
    "sm_100a_im2col_w_store": lambda rng: im2col_w(rng, store=True),
    "sm_100a_cta_pair": cta_pair,
    "sm_103a_b6p2x16": short_b6p2x16,
    "sm_107a_override": overridden,
    "sm_107a_override_store": lambda rng: overridden(rng, (store_tile, reduce_tile)),
    "sm_107a_report": reporting,
    "sm_107a_scatter4": scatter4_anywhere,
    "sm_107a_prefetch": eviction,
}


def random_case(rng: Rng, mode: str) -> Case:
    """Return a legal request of ``mode`` that accesses only existing memory."""
    for _ in range(500):
        try:
            case = MODES[mode](rng)
            check(case.request, cta=case.cta, ctas=CTAS, smem_bytes=SMEM_BYTES, arch=case.arch)
        except TmaError:
            continue
        if not isinstance(case.request, Store) or reach(case.request) <= GMEM_BYTES:
            return case
    raise AssertionError(f"none of 500 requests of {mode} is legal")


def reach(request: Store) -> int:
    """Return the address behind the tensor and its padding."""
    m = request.tensor_map
    assert isinstance(m, TensorMap)
    if request.override is not None:
        o = request.override
        changes = {"global_address": o.global_address}
        if o.global_dim:
            changes |= {"global_dim": o.global_dim, "global_strides": o.global_strides}
        m = replace(m, **changes)
    row = m.global_dim[0] * (16 * m.interleave if m.interleave else m.data_type.itemsize)
    outer = zip(m.global_dim[1:], m.global_strides, strict=True)
    return m.global_address + row + 16 + sum((n - 1) * stride for n, stride in outer)


def overlaps(request: Request, arch: Arch) -> bool:
    """Return whether it writes a byte twice, so that the result depends on the order."""
    if not isinstance(request, Store):
        return False
    plan = Plan(request.descriptor, request.mode, store=True, arch=arch)
    spread = plan.spread(request.smem_address, operands_of(request))
    starts = np.sort(spread.gmem[spread.inside > 0])
    return bool((np.diff(starts) < plan.piece_bytes).any())
