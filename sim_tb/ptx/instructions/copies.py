"""Bulk and tensor copies, bulk groups, asynchronous stores, and edits of tensor maps."""

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
    Store,
    TmaError,
    tensormap_replace,
)
from sim_tb.ptx.engine import Origin, Reduction
from sim_tb.ptx.instructions.barriers import shared_place
from sim_tb.ptx.instructions.thread_copies import copy_of_threads
from sim_tb.ptx.machine import Mask, Warp, changed, read_bytes, unsigned, write_bytes
from sim_tb.ptx.operands import Execute, Operands, Read, instruction
from sim_tb.ptx.syntax import TYPE_BYTES
from sim_tb.ptx.waits import Wait
from sim_tb.testbench.requests import GoldenRequest

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

_FIELDS = (
    *("global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride"),
    *("elemtype", "interleave_layout", "swizzle_mode", "fill_mode"),
)
"""Fields that ``tensormap.replace`` can change."""


@instruction("cp")
def copy(ins: Operands) -> Execute:
    """``cp.async`` and ``cp.async.bulk`` in all their forms."""
    if "bulk" not in ins.parts:
        return copy_of_threads(ins)
    if ins.has("commit_group"):
        return _commit(ins)
    if ins.has("wait_group"):
        return _wait_group(ins)
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
    if field not in _FIELDS:
        raise ins.refuse(f".{field}")
    address = ins.address(0)
    index = ins.read(1, "u32") if len(ins) == 3 else None
    value = ins.read(len(ins) - 1, ins.parts[-1])

    def execute(warp: Warp, mask: Mask) -> None:
        where = address(warp)
        for lane in np.flatnonzero(mask).tolist():
            before = read_bytes(warp, space, int(where[lane]), _MAP_BYTES, lane)
            number = int(value(warp)[lane])
            if field == "global_dim" and number == 0:
                number = 1 << 32
            try:
                which = int(index(warp)[lane]) if index else None
                after = tensormap_replace(before, field, number, which)
            except TmaError as error:
                raise Origin(ins.instruction, warp, lane).error(error) from None
            write_bytes(warp, space, int(where[lane]), after, lane)

    return execute


def _copy_map(ins: Operands) -> Execute:
    """``tensormap.cp_fenceproxy``: shared to global memory, by a whole warp."""
    target, source = ins.address(0), ins.address(1)

    def execute(warp: Warp, mask: Mask) -> None:
        lane = int(np.argmax(mask))
        data = read_bytes(warp, "shared", int(source(warp)[lane]), _MAP_BYTES, lane)
        where = int(target(warp)[lane])
        warp.cta.grid.observer.copy_map(warp, lane, where)
        write_bytes(warp, "global", where, data, lane)

    return execute


def _commit(ins: Operands) -> Execute:
    def execute(warp: Warp, mask: Mask) -> None:
        for lane in np.flatnonzero(mask).tolist():
            warp.cta.engine.commit_group(Origin(ins.instruction, warp, lane))

    return execute


def _wait_group(ins: Operands) -> Execute:
    """``wait_group``, with ``.read`` until the sources have been read."""
    ins.require_parts(("async", "bulk", "wait_group", "read"))
    groups, read = ins.read(0, "u32"), ins.has("read")

    def execute(warp: Warp, mask: Mask) -> Wait:
        numbers = groups(warp)
        answers = [
            warp.cta.engine.wait_group(
                Origin(ins.instruction, warp, lane), int(numbers[lane]), read=read
            )
            for lane in np.flatnonzero(mask).tolist()
        ]
        return Wait.until(answers, ins.instruction.opcode, lambda: changed(warp))

    return execute


def _allocated(ins: Operands, warp: Warp, lane: int, address: int, size: int) -> int:
    """Return an address in global memory as a number without sign.

    Raises
    ------
    PtxError
        If its bytes are in no allocation.
    """
    memory = warp.cta.grid.memory
    if size and memory.offsets(np.array([address], np.int64), size)[0] < 0:
        raise Origin(ins.instruction, warp, lane).error(
            f"address {unsigned(address):#x} is outside global memory ({size} bytes)"
        )
    return unsigned(address)


MakeRequest = Callable[[Warp, int], tuple[GoldenRequest, int]]
"""Returns the request of a thread, and the generic address of its tensor map or 0."""


def _issued(ins: Operands, make: MakeRequest, policy: Read | None) -> Execute:
    """Return the execution that issues the request that ``make`` returns for each thread."""

    def execute(warp: Warp, mask: Mask) -> None:
        for lane in np.flatnonzero(mask).tolist():
            hint = int(policy(warp)[lane]) if policy else 0
            origin = Origin(ins.instruction, warp, lane)
            try:
                request, tensor_map = make(warp, lane)
            except TmaError as error:
                raise origin.error(error) from None
            warp.cta.engine.issue(origin, request, tensor_map, hint)
        changed(warp)

    return execute


def _policy(ins: Operands) -> Read | None:
    """Return the reader of the cache policy, which is the last operand."""
    return ins.read(len(ins) - 1, "u64") if ins.has("L2::cache_hint") else None


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
    if f"{len(coords)}d" not in ins.parts:
        raise ins.refuse(f"{len(coords)} coordinates")
    offsets: list[Read] = []
    extra = 3 if loads else 1
    if ins.has("im2col"):
        offsets = ins.reads(extra, "u16")
        extra += 1
    mask_read = ins.read(extra, "u16") if ins.has("multicast::cluster") else None
    smem = None if ins.has("prefetch") else ins.address(0 if loads else 1)
    barrier = ins.address(2) if loads else None
    operation = next((_OPERATIONS[part] for part in ins.parts if part in _OPERATIONS), None)

    def make(warp: Warp, lane: int) -> tuple[GoldenRequest, int]:
        where = int(tensor(warp)[lane])
        data = read_bytes(warp, "generic", where, _MAP_BYTES, lane)
        if smem is not None:
            first = int.from_bytes(data[:8], "little", signed=True)
            _allocated(ins, warp, lane, first, 1)
        return request_of(warp, lane, data), where

    def request_of(warp: Warp, lane: int, data: bytes) -> GoldenRequest:
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

    return _issued(ins, make, _policy(ins))


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
            ins,
            lambda warp, lane: (
                BulkPrefetch(unsigned(int(start(warp)[lane])), int(count(warp)[lane])),
                0,
            ),
            _policy(ins),
        )
    target, source, size = ins.address(0), ins.address(1), ins.read(2, "u32")
    if ins.has("mbarrier::complete_tx::bytes"):
        if ins.has("reduce"):
            raise ins.refuse()
        return _issued(ins, _bulk_load(ins, target, source, size), _policy(ins))
    kind = _TYPES.get(ins.parts[-1])
    operation = next((_OPERATIONS[part] for part in ins.parts if part in _OPERATIONS), None)

    def make(warp: Warp, lane: int) -> tuple[GoldenRequest, int]:
        count = int(size(warp)[lane])
        address = _allocated(ins, warp, lane, int(target(warp)[lane]), count)
        _, offset = shared_place(int(source(warp)[lane]))
        if operation is None or kind is None:
            return BulkStore(address, offset, count), 0
        return BulkReduce(address, offset, count, kind, operation), 0

    return _issued(ins, make, _policy(ins))


def _bulk_load(ins: Operands, target: Read, source: Read, size: Read) -> MakeRequest:
    """Return the maker of a bulk load, from global memory or from the shared memory of the CTA."""
    barrier = ins.address(3)
    from_global = ins.has("global")
    mask_read = ins.read(4, "u16") if ins.has("multicast::cluster") else None

    def make(warp: Warp, lane: int) -> tuple[GoldenRequest, int]:
        cta, offset = shared_place(int(target(warp)[lane]))
        rank, mbarrier = shared_place(int(barrier(warp)[lane]))
        start, count = int(source(warp)[lane]), int(size(warp)[lane])
        if not from_global:
            start = shared_place(start)[1]
            return DsmemCopy(cta, offset, start, count, mbarrier=mbarrier, mbarrier_cta=rank), 0
        start = _allocated(ins, warp, lane, start, count)
        request = BulkLoad(start, offset, count, mbarrier=mbarrier, dst_cta=cta, mbarrier_cta=rank)
        if mask_read is not None:
            request = replace(request, cta_mask=int(mask_read(warp)[lane]), dst_cta=None)
        return request, 0

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

    def data_of(warp: Warp) -> list[bytes]:
        values = np.stack([read(warp) for read in sources], axis=1)
        return [row.tobytes() for row in values]

    return _stored(ins, address, barrier, data_of, None)


def _stored(
    ins: Operands,
    address: Read,
    barrier: Read,
    data_of: Callable[[Warp], list[bytes]],
    reduction: Reduction | None,
) -> Execute:
    """Return the execution of ``st.async`` or ``red.async``, for each mbarrier at once."""

    def execute(warp: Warp, mask: Mask) -> None:
        where, signals, data = address(warp), barrier(warp), data_of(warp)
        stores: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
        lanes: dict[tuple[int, int], int] = {}
        for lane in np.flatnonzero(mask).tolist():
            rank, offset = shared_place(int(where[lane]))
            key = rank, shared_place(int(signals[lane]))[1]
            stores.setdefault(key, []).append((offset, data[lane]))
            lanes.setdefault(key, lane)
        for (rank, mbarrier), parts in stores.items():
            origin = Origin(ins.instruction, warp, lanes[rank, mbarrier])
            warp.cta.engine.store_async(origin, rank, parts, mbarrier, reduction)
        changed(warp)

    return execute


def reduce_async(ins: Operands) -> Execute:
    """``red.async``: a reduction in the shared memory of a CTA, with an mbarrier there."""
    ins.require_parts(_ASYNC_PARTS)
    kind = ins.parts[-1]
    operation = next((_OPERATIONS[part] for part in ins.parts if part in _OPERATIONS), None)
    if operation is None:
        raise ins.refuse()
    address, value, barrier = ins.address(0), ins.read(1, "b" + kind[1:]), ins.address(2)

    def data_of(warp: Warp) -> list[bytes]:
        return [each.tobytes() for each in value(warp)]

    return _stored(ins, address, barrier, data_of, (_TYPES[kind], operation))
