"""Bulk and tensor copies, bulk groups, asynchronous stores, and edits of tensor maps.

Each request is executed by the golden model when it is issued, which is one of the orders that the
unit may choose.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from golden import (
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    DataType,
    DsmemCopy,
    Load,
    Prefetch,
    Reduce,
    ReductionOp,
    Request,
    Store,
    TmaError,
    tensormap_replace,
)
from sim_tb.ptx.instructions.barriers import mistake, shared_place
from sim_tb.ptx.machine import LANES, Mask, Warp, load, store
from sim_tb.ptx.operands import Execute, Operands, Read, instruction
from sim_tb.ptx.parser import TYPE_BYTES

_TYPES = {
    "u32": DataType.UINT32,
    "s32": DataType.INT32,
    "u64": DataType.UINT64,
    "s64": DataType.INT64,
    "f16": DataType.FLOAT16,
    "bf16": DataType.BFLOAT16,
    "f32": DataType.FLOAT32,
    "f64": DataType.FLOAT64,
    "b32": DataType.UINT32,
    "b64": DataType.UINT64,
}

_OPERATIONS = {op.name.lower(): op for op in ReductionOp}

_MAP_BYTES = 128


@instruction("cp")
def copy(ins: Operands) -> Execute:
    """``cp.async.bulk`` in all its forms."""
    if "bulk" not in ins.parts:
        raise ins.refuse()
    if ins.has("commit_group"):
        return _commit()
    if ins.has("wait_group"):
        return lambda _warp, _mask: None  # each request is complete when it is issued
    return _tensor(ins) if ins.has("tensor") else _bulk(ins)


@instruction("tensormap")
def tensor_map(ins: Operands) -> Execute:
    """``tensormap.replace`` and ``tensormap.cp_fenceproxy``."""
    space = "global" if ins.has("global") else "shared" if "shared::cta" in ins.parts else "generic"
    if ins.parts[1] == "cp_fenceproxy":
        return _copy_map(ins)
    if ins.parts[1:3] != ("replace", "tile"):
        raise ins.refuse()
    field = ins.parts[3]
    address = ins.address(0)
    index = ins.read(1, "u32") if len(ins) == 3 else None
    value = ins.read(len(ins) - 1, ins.parts[-1])

    def execute(warp: Warp, mask: Mask) -> None:
        where = address(warp)
        for lane in np.flatnonzero(mask).tolist():
            before = _map_bytes(warp, space, int(where[lane]), lane)
            number = int(value(warp)[lane])
            if field == "global_dim" and number == 0:
                number = 1 << 32
            try:
                which = int(index(warp)[lane]) if index else None
                after = tensormap_replace(before, field, number, which)
            except TmaError as error:
                raise mistake(ins, warp, lane, error) from None
            _put_map(warp, space, int(where[lane]), lane, after)

    return execute


def _one(lane: int) -> Mask:
    mask = np.zeros(LANES, bool)
    mask[lane] = True
    return mask


def _chunks(address: int) -> list[int]:
    return list(range(address, address + _MAP_BYTES, 16))


def _map_bytes(warp: Warp, space: str, address: int, lane: int) -> bytes:
    """Return the tensor map at an address of a thread."""
    parts = [
        load(warp, space, np.full(LANES, at, np.int64), 16, _one(lane))[lane].tobytes()
        for at in _chunks(address)
    ]
    return b"".join(parts)


def _put_map(warp: Warp, space: str, address: int, lane: int, data: bytes) -> None:
    for index, at in enumerate(_chunks(address)):
        part = np.frombuffer(data[16 * index : 16 * index + 16], np.uint8)
        values = np.broadcast_to(part, (LANES, 16))
        store(warp, space, np.full(LANES, at, np.int64), values, _one(lane))


def _copy_map(ins: Operands) -> Execute:
    """``tensormap.cp_fenceproxy``: shared to global memory, by a whole warp."""
    target, source = ins.address(0), ins.address(1)

    def execute(warp: Warp, mask: Mask) -> None:
        lane = int(np.argmax(mask))
        data = _map_bytes(warp, "shared", int(source(warp)[lane]), lane)
        _put_map(warp, "global", int(target(warp)[lane]), lane, data)

    return execute


def _commit() -> Execute:
    def execute(warp: Warp, mask: Mask) -> None:
        for lane in np.flatnonzero(mask).tolist():
            thread = LANES * warp.index + int(lane)
            warp.cta.cluster.unit.groups(warp.cta.rank, thread).commit_group()

    return execute


def _issued(ins: Operands, make: Callable[[Warp, int], Request]) -> Execute:
    """Return the execution that issues the request that ``make`` returns for each thread."""

    def execute(warp: Warp, mask: Mask) -> None:
        unit, rank = warp.cta.cluster.unit, warp.cta.rank
        for lane in np.flatnonzero(mask).tolist():
            thread = LANES * warp.index + int(lane)
            try:
                unit.issue(make(warp, int(lane)), cta=rank, thread=thread)
            except TmaError as error:
                raise mistake(ins, warp, lane, error) from None
        warp.cta.grid.events += 1

    return execute


def _integers(reads: Sequence[Read], warp: Warp, lane: int) -> tuple[int, ...]:
    return tuple(int(read(warp)[lane]) for read in reads)


_TENSOR_PARTS = (
    *("async", "bulk", "tensor", "prefetch", "reduce", "1d", "2d", "3d", "4d", "5d", "L2"),
    *("shared::cluster", "shared::cta", "global", "mbarrier::complete_tx::bytes", "bulk_group"),
    *("tile", "im2col", "im2col_no_offs", "multicast::cluster", "L2::cache_hint", *_OPERATIONS),
)


def _tensor(ins: Operands) -> Execute:
    """``cp.async.bulk.tensor``, ``cp.reduce.async.bulk.tensor`` and ``.prefetch.tensor``."""
    ins.require_parts(_TENSOR_PARTS)
    loads = "mbarrier::complete_tx::bytes" in ins.parts
    where = 1 if loads else 0
    coords, tensor = ins.coordinates(where), ins.address(where)
    offsets: list[Read] = []
    extra = 3 if loads else 1
    if ins.has("im2col"):
        offsets = ins.reads(extra, "u16")
        extra += 1
    mask_read = ins.read(extra, "u16") if ins.has("multicast::cluster") else None
    smem = None if ins.has("prefetch") else ins.address(0 if loads else 1)
    barrier = ins.address(2) if loads else None
    operation = next((_OPERATIONS[part] for part in ins.parts if part in _OPERATIONS), None)

    def make(warp: Warp, lane: int) -> Request:
        data = _map_bytes(warp, "generic", int(tensor(warp)[lane]), lane)
        place = _integers(coords, warp, lane)
        if smem is None:
            return Prefetch(data, place, im2col_offsets=_integers(offsets, warp, lane))
        cta, offset = shared_place(int(smem(warp)[lane]))
        if barrier is not None:
            rank, mbarrier = shared_place(int(barrier(warp)[lane]))
            request = Load(
                data,
                place,
                im2col_offsets=_integers(offsets, warp, lane),
                smem_address=offset,
                mbarrier=mbarrier,
                dst_cta=cta,
                mbarrier_cta=rank,
            )
            if mask_read is None:
                return request
            return replace(request, cta_mask=int(mask_read(warp)[lane]), dst_cta=None)
        if operation is not None:
            return Reduce(data, place, smem_address=offset, op=operation)
        return Store(data, place, smem_address=offset)

    return _issued(ins, make)


_BULK_PARTS = (
    *("async", "bulk", "prefetch", "reduce", "L2", "shared::cluster", "shared::cta", "global"),
    *("mbarrier::complete_tx::bytes", "bulk_group", "multicast::cluster", "L2::cache_hint"),
    *("noftz", *_OPERATIONS, *_TYPES),
)


def _bulk(ins: Operands) -> Execute:
    """``cp.async.bulk``, ``cp.reduce.async.bulk`` to global memory, and ``.prefetch``."""
    ins.require_parts(_BULK_PARTS)
    if ins.has("prefetch"):
        start, count = ins.address(0), ins.read(1, "u32")
        return _issued(
            ins, lambda warp, lane: BulkPrefetch(int(start(warp)[lane]), int(count(warp)[lane]))
        )
    target, source, size = ins.address(0), ins.address(1), ins.read(2, "u32")
    if ins.has("mbarrier::complete_tx::bytes"):
        if ins.has("reduce"):
            raise ins.refuse()
        return _issued(ins, _bulk_load(ins, target, source, size))
    kind = _TYPES.get(ins.parts[-1])
    operation = next((_OPERATIONS[part] for part in ins.parts if part in _OPERATIONS), None)

    def make(warp: Warp, lane: int) -> Request:
        address, count = int(target(warp)[lane]), int(size(warp)[lane])
        _, offset = shared_place(int(source(warp)[lane]))
        if operation is None or kind is None:
            return BulkStore(address, offset, count)
        return BulkReduce(address, offset, count, kind, operation)

    return _issued(ins, make)


def _bulk_load(
    ins: Operands, target: Read, source: Read, size: Read
) -> Callable[[Warp, int], Request]:
    """Return the maker of a bulk load, from global memory or from the shared memory of the CTA."""
    barrier = ins.address(3)
    from_global = ins.has("global")
    mask_read = ins.read(4, "u16") if ins.has("multicast::cluster") else None

    def make(warp: Warp, lane: int) -> Request:
        cta, offset = shared_place(int(target(warp)[lane]))
        rank, mbarrier = shared_place(int(barrier(warp)[lane]))
        start, count = int(source(warp)[lane]), int(size(warp)[lane])
        if not from_global:
            return DsmemCopy(
                cta, offset, shared_place(start)[1], count, mbarrier=mbarrier, mbarrier_cta=rank
            )
        request = BulkLoad(start, offset, count, mbarrier=mbarrier, dst_cta=cta, mbarrier_cta=rank)
        if mask_read is None:
            return request
        return replace(request, cta_mask=int(mask_read(warp)[lane]), dst_cta=None)

    return make


_ASYNC_PARTS = (
    *("async", "weak", "relaxed", "cluster", "shared::cluster", "mbarrier::complete_tx::bytes"),
    *("v2", "v4", *_OPERATIONS, *_TYPES),
)


def store_async(ins: Operands) -> Execute:
    """``st.async``: registers to the shared memory of a CTA, with an mbarrier there."""
    ins.require_parts(_ASYNC_PARTS)
    size = TYPE_BYTES[ins.parts[-1]]
    address, barrier = ins.address(0), ins.address(2)
    sources = ins.reads(1, f"b{8 * size}")

    def execute(warp: Warp, mask: Mask) -> None:
        where, signals = address(warp), barrier(warp)
        values = np.stack([read(warp) for read in sources], axis=1)
        for lane in np.flatnonzero(mask).tolist():
            cta, offset = shared_place(int(where[lane]))
            _, mbarrier = shared_place(int(signals[lane]))
            try:
                unit = warp.cta.cluster.unit
                unit.st_async([(offset, values[lane].tobytes())], mbarrier, cta=cta)
            except TmaError as error:
                raise mistake(ins, warp, lane, error) from None
        warp.cta.grid.events += 1

    return execute


def reduce_async(ins: Operands) -> Execute:
    """``red.async``: a reduction in the shared memory of a CTA, with an mbarrier there."""
    ins.require_parts(_ASYNC_PARTS)
    kind = ins.parts[-1]
    operation = next((_OPERATIONS[part] for part in ins.parts if part in _OPERATIONS), None)
    if operation is None:
        raise ins.refuse()
    address, value, barrier = ins.address(0), ins.read(1, "b" + kind[1:]), ins.address(2)

    def execute(warp: Warp, mask: Mask) -> None:
        where, signals, values = address(warp), barrier(warp), value(warp)
        for lane in np.flatnonzero(mask).tolist():
            cta, offset = shared_place(int(where[lane]))
            _, mbarrier = shared_place(int(signals[lane]))
            try:
                warp.cta.cluster.unit.red_async(
                    [(offset, int(values[lane]))], _TYPES[kind], operation, mbarrier, cta=cta
                )
            except TmaError as error:
                raise mistake(ins, warp, lane, error) from None
        warp.cta.grid.events += 1

    return execute
