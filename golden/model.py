"""Vectorised model: checks and executes any request of the unit.

``golden.plan`` moves the data of tensor requests. This module has bulk requests, destinations, and
the bytes that each mbarrier counts. ``golden.definition`` is the literal equivalent.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from golden.checks import (
    check_arch,
    check_bulk,
    check_cta,
    check_mask,
    check_mbarrier,
    check_pair,
    check_tensor,
)
from golden.enums import SMEM_BYTES, AccessMode, Arch
from golden.errors import ErrorCode, require
from golden.geometry import Operands
from golden.memory import ArrayMemory, Bytes, Memory
from golden.plan import Plan, plan_of
from golden.reduction import BULK_PAIRS, DSMEM_PAIRS, TENSOR_PAIRS, operation
from golden.request import (
    AnyMap,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    Completion,
    DsmemCopy,
    DsmemReduce,
    Load,
    Reduce,
    Request,
    Store,
    TensorRequest,
    TensorWalk,
    as_descriptor,
)


def plan_for(
    tensor_map: AnyMap,
    mode: AccessMode | None = None,
    *,
    store: bool = False,
    arch: Arch = Arch.SM_90A,
) -> Plan:
    """Return the plan of a map; equal maps share one plan.

    Raises
    ------
    TmaError
        MAP_FIELD, if the map is illegal; MAP_MODE, if it does not match mode and direction.
    """
    return plan_of(as_descriptor(tensor_map), mode, store, arch)


def operands_of(request: TensorRequest) -> Operands:
    """Return the start of a request: coordinates and im2col operands."""
    coords = tuple(request.coords)
    if isinstance(request, TensorWalk):
        return Operands(coords, tuple(request.im2col_offsets), request.w_halo, request.w_offset)
    return Operands(coords)


def check(
    request: Request,
    *,
    cta: int = 0,
    ctas: int = 1,
    smem_bytes: int = SMEM_BYTES,
    arch: Arch = Arch.SM_90A,
) -> None:
    """Check a request against all rules of the unit, in the order of `ErrorCode`.

    Parameters
    ----------
    request : Request
        Any request.
    cta, ctas : int
        Rank of the issuing CTA, and number of CTAs in its cluster.
    smem_bytes : int
        Bytes of each CTA's shared-memory window.
    arch : Arch
        Architecture whose features the request may use.

    Raises
    ------
    TmaError
        The first broken rule.

    Examples
    --------
    >>> from golden import Load, TensorMap
    >>> tensor_map = TensorMap.tiled("bf16", 0, (64, 64), (128,), (64, 8))
    >>> check(Load(tensor_map, (5, 0)))
    Traceback (most recent call last):
        ...
    golden.errors.TmaError: coords[0] = 5 starts at byte 10: must be a multiple of 16 \
[COORD_ALIGN, silicon]
    """
    _checked(request, cta, ctas, smem_bytes, arch)


@lru_cache(maxsize=1024)
def _checked(request: Request, cta: int, ctas: int, smem_bytes: int, arch: Arch) -> Plan | None:
    """Check a request; return its plan if it is a tensor request. Equal requests share a result."""
    plan = None
    if isinstance(request, TensorRequest):
        plan = _check_tensor(request, smem_bytes, arch)
    else:
        _check_bulk(request, smem_bytes, arch)
    if isinstance(request, Load | BulkLoad):
        _check_destination(request, cta, ctas)
    elif isinstance(request, DsmemCopy):
        check_cta("dst_cta", request.dst_cta, ctas)
        is_other = request.dst_cta != cta
        limit = f"must be another CTA than the issuer, {cta}"
        require(is_other, ErrorCode.DST_CTA, "dst_cta", request.dst_cta, limit)
        _check_barrier_cta(request.mbarrier_cta, (request.dst_cta,))
    if isinstance(request, Load | BulkLoad | DsmemCopy):
        check_mbarrier(request.mbarrier)
    return plan


def _check_tensor(request: TensorRequest, smem_bytes: int, arch: Arch) -> Plan:
    """Check a tensor request, except for its destination; return its plan."""
    store = isinstance(request, Store)
    plan = plan_for(request.tensor_map, request.mode, store=store, arch=arch)
    if isinstance(request, Load):
        holds = request.cta_group == 1
        check_arch(holds, arch, "cta_group", request.cta_group, "1")
    smem_address = request.smem_address if isinstance(request, Load | Store) else None
    mbarrier = request.mbarrier if isinstance(request, Load) else None
    check_tensor(plan, operands_of(request), smem_address, smem_bytes, mbarrier)
    if isinstance(request, Reduce):
        check_pair(plan.data_type, request.op, TENSOR_PAIRS)
    return plan


def _check_bulk(
    request: BulkLoad | BulkPrefetch | BulkStore | BulkReduce | DsmemCopy,
    smem_bytes: int,
    arch: Arch,
) -> None:
    """Check a bulk request, except for its destination."""
    match request:
        case BulkPrefetch():
            check_bulk(size=request.size, smem={}, gmem_address=request.gmem_address, smem_bytes=0)
            return
        case BulkStore():
            holds = request.byte_mask == 0xFFFF
            check_arch(holds, arch, "byte_mask", request.byte_mask, "0xFFFF")
    smem = {"smem_address": request.smem_address}
    if isinstance(request, DsmemCopy):
        smem["dst_address"] = request.dst_address
    pair = None
    if isinstance(request, BulkReduce | DsmemReduce):
        pair = request.data_type, request.op
    check_bulk(
        size=request.size,
        smem=smem,
        gmem_address=0 if isinstance(request, DsmemCopy) else request.gmem_address,
        mbarrier=request.mbarrier if isinstance(request, BulkLoad | DsmemCopy) else None,
        smem_bytes=smem_bytes,
        pair=pair,
        pairs=DSMEM_PAIRS if isinstance(request, DsmemReduce) else BULK_PAIRS,
    )
    if isinstance(request, BulkStore):
        limit = "must fit in 16 bits"
        mask = request.byte_mask
        require(0 <= mask < 1 << 16, ErrorCode.BULK_ALIGN, "byte_mask", mask, limit)
    if isinstance(request, BulkLoad):
        ignored = {
            "ignore_first": request.ignore_first,
            "ignore_last": request.ignore_last,
        }
        remote = request.cta_mask is not None or request.dst_cta is not None
        for name, count in ignored.items():
            most = 0 if remote else 15
            limit = f"must be from 0 to {most}" + " with cta_mask or dst_cta" * remote
            require(0 <= count <= most, ErrorCode.BULK_ALIGN, name, count, limit)


def _check_barrier_cta(mbarrier_cta: int | None, allowed: Sequence[int]) -> None:
    """Refuse an mbarrier in a CTA that is not allowed to hold it."""
    if mbarrier_cta is not None:
        limit = f"must be {' or '.join(map(str, allowed))}"
        holds = mbarrier_cta in allowed
        require(holds, ErrorCode.DST_CTA, "mbarrier_cta", mbarrier_cta, limit)


def _check_destination(request: Load | BulkLoad, cta: int, ctas: int) -> None:
    """Check the CTAs that receive the data and hold the mbarriers."""
    group = request.cta_group if isinstance(request, Load) else 1
    limit = "must be 1 or 2"
    require(group in (1, 2), ErrorCode.DST_CTA, "cta_group", group, limit)
    if request.cta_mask is not None:
        check_mask(request.cta_mask, ctas)
        dst = -1 if request.dst_cta is None else request.dst_cta
        limit = "must be None with cta_mask"
        require(dst == -1, ErrorCode.DST_CTA, "dst_cta", dst, limit)
        holder = cta if request.mbarrier_cta is None else request.mbarrier_cta
        _check_barrier_cta(holder, range(ctas) if group == 2 else (cta,))
        for signalled in signalled_by(request, cta):
            check_cta("mbarrier_cta", signalled, ctas)
        return
    dst = cta if request.dst_cta is None else request.dst_cta
    check_cta("dst_cta", dst, ctas)
    _check_barrier_cta(request.mbarrier_cta, (dst, dst ^ 1) if group == 2 else (dst,))
    if request.mbarrier_cta is not None:
        check_cta("mbarrier_cta", request.mbarrier_cta, ctas)


def receivers_of(request: Load | BulkLoad, cta: int) -> list[int]:
    """Return the ranks of the CTAs whose shared memory is written."""
    mask = request.cta_mask
    if mask is None:
        return [cta if request.dst_cta is None else request.dst_cta]
    return [rank for rank in range(mask.bit_length()) if mask >> rank & 1]


def signalled_by(request: Load | BulkLoad, cta: int) -> list[int]:
    """Return for each receiver the rank of the CTA whose mbarrier counts its bytes.

    With ``.cta_group::2`` and multicast, it is the CTA of the receiver's pair whose rank has the
    parity of ``mbarrier_cta``.
    """
    receivers = receivers_of(request, cta)
    if request.cta_mask is None:
        only = receivers[0] if request.mbarrier_cta is None else request.mbarrier_cta
        return [only]
    if isinstance(request, Load) and request.cta_group == 2:
        holder = cta if request.mbarrier_cta is None else request.mbarrier_cta
        return [rank & ~1 | holder & 1 for rank in receivers]
    return receivers


def execute(
    request: Request,
    gmem: Memory,
    smem: Sequence[Bytes],
    *,
    cta: int = 0,
    arch: Arch = Arch.SM_90A,
) -> list[Completion]:
    """Check and execute a request.

    Parameters
    ----------
    request : Request
        Any request.
    gmem : Memory
        Global memory.
    smem : sequence of ndarray
        Shared memory of each CTA of the cluster: arrays of uint8 of the same length.
    cta : int
        Rank of the issuing CTA.
    arch : Arch
        Architecture whose features the request may use.

    Returns
    -------
    list of Completion
        The ``complete_tx`` operations, one for each receiver. The unit may split them.

    Raises
    ------
    TmaError
        If the unit refuses the request, which then has no effect.
    """
    plan = _checked(request, cta, len(smem), smem[cta].size, arch)
    if isinstance(request, TensorRequest):
        assert plan is not None
        return _tensor(plan, request, gmem, smem, cta)
    match request:
        case BulkPrefetch():
            return []
        case BulkLoad():
            return _bulk_load(request, gmem, smem, cta)
        case DsmemCopy():
            return _dsmem(request, smem, cta)
    source = smem[cta][request.smem_address :][: request.size]
    if not request.size:
        return []
    if isinstance(request, BulkReduce):
        word = f"u{request.data_type.itemsize}"
        memory = read_range(gmem, request.gmem_address, request.size)
        operands = np.ascontiguousarray(memory).view(word), source.view(word)
        result = operation(request.op, request.data_type)(*operands)
        write_range(gmem, request.gmem_address, result.view(np.uint8))
    elif request.byte_mask == 0xFFFF:
        write_range(gmem, request.gmem_address, source)
    else:
        byte = np.arange(request.size)
        enabled = byte[request.byte_mask >> byte % 16 & 1 == 1]
        addresses = enabled.astype(np.uint64) + np.uint64(request.gmem_address)
        gmem.write(addresses, source[enabled])
    return []


def _tensor(
    plan: Plan, request: TensorRequest, gmem: Memory, smem: Sequence[Bytes], cta: int
) -> list[Completion]:
    """Execute a tensor request."""
    if isinstance(request, Load):
        start = (request.smem_address, request.coords, request.im2col_offsets)
        halo = (request.w_halo, request.w_offset)
        for receiver in receivers_of(request, cta):
            count = plan.load(gmem, smem[receiver], *start, *halo)
        return [Completion(rank, request.mbarrier, count) for rank in signalled_by(request, cta)]
    if isinstance(request, Store):
        operands = (gmem, smem[cta], request.smem_address, request.coords)
        if isinstance(request, Reduce):
            plan.reduce(request.op, *operands)
        else:
            plan.store(*operands)
    return []  # a prefetch has no effect


def _bulk_load(
    request: BulkLoad, gmem: Memory, smem: Sequence[Bytes], cta: int
) -> list[Completion]:
    """Execute a bulk load."""
    first, last = request.ignore_first, request.size - request.ignore_last
    if first < last:
        data = read_range(gmem, request.gmem_address + first, last - first)
        for receiver in receivers_of(request, cta):
            smem[receiver][request.smem_address :][first:last] = data
    return [Completion(rank, request.mbarrier, request.size) for rank in signalled_by(request, cta)]


def _dsmem(request: DsmemCopy, smem: Sequence[Bytes], cta: int) -> list[Completion]:
    """Execute a copy or reduction to the shared memory of another CTA."""
    source = smem[cta][request.smem_address :][: request.size]
    target = smem[request.dst_cta][request.dst_address :][: request.size]
    if isinstance(request, DsmemReduce) and request.size:
        word = f"u{request.data_type.itemsize}"
        combine = operation(request.op, request.data_type)
        result = combine(target.view(word), source.view(word))
        target.view(word)[:] = result
    else:
        target[:] = source
    return [Completion(request.dst_cta, request.mbarrier, request.size)]


def _range(address: int, size: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.arange(size, dtype=np.uint64) + np.uint64(address)


def read_range(memory: Memory, address: int, size: int) -> Bytes:
    """Return ``size`` bytes from ``address``; a view if ``memory`` is one array."""
    if isinstance(memory, ArrayMemory):
        first = address - memory.base
        if 0 <= first <= memory.bytes.size - size:
            return memory.bytes[first : first + size]
    return memory.read(_range(address, size))


def write_range(memory: Memory, address: int, data: Bytes) -> None:
    """Write ``data`` at ``address``."""
    if isinstance(memory, ArrayMemory):
        first = address - memory.base
        if 0 <= first <= memory.bytes.size - data.size:
            memory.bytes[first : first + data.size] = data
            return
    memory.write(_range(address, data.size), data)
