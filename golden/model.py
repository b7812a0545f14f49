"""Vectorised model: checks and executes any request of the unit.

``golden.plan`` moves the data of tensor requests. This module has bulk requests, destinations, and
the bytes that each mbarrier counts. ``golden.definition`` is the literal equivalent.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter, is_

import numpy as np

from golden.arch import Arch, Feature, any_of
from golden.checks import (
    BARRIER_BYTES,
    check_bulk,
    check_cta,
    check_feature,
    check_mask,
    check_mbarrier,
    check_pair,
    check_tensor,
)
from golden.enums import (
    SMEM_BYTES,
    AccessMode,
    DataType,
    MapMode,
    Ordering,
    ReductionOp,
    ReportMechanism,
)
from golden.errors import ErrorCode, TmaError, require
from golden.fields import any_integer, require_arch, shown
from golden.geometry import Operands
from golden.map_rules import cluster_features
from golden.memory import Addresses, ArrayMemory, Bytes, Memory, require_memory
from golden.plan import Plan, plan_of
from golden.reduction import BULK_PAIRS, DSMEM_PAIRS, TENSOR_PAIRS, operation
from golden.request import (
    AnyMap,
    ApplyPriority,
    BulkApplyPriority,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    Completion,
    DsmemCopy,
    DsmemReduce,
    Load,
    Prefetch,
    Reduce,
    Request,
    Store,
    TensorRequest,
    TensorWalk,
    TypedOperands,
    as_descriptor,
    moved_bytes,
    require_types,
)

_BYTE = np.dtype(np.uint8)

_OVERRIDE_BYTES = 128 * 1024
"""Bytes from the address of an override that must exist (PTX ISA)."""


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


@lru_cache(maxsize=256)
def _plan_of_map(tensor_map: AnyMap, mode: AccessMode | None, store: bool, arch: Arch) -> Plan:
    """Return the plan of a map in any form; equal arguments share one plan."""
    return plan_of(as_descriptor(tensor_map), mode, store, arch)


def plan_of_request(request: TensorRequest, arch: Arch = Arch.SM_90A) -> Plan:
    """Return the plan of a request; raise the error of its map or its mode."""
    store = isinstance(request, Store)
    if request.override is None:
        return _plan_of_map(request.tensor_map, request.mode, store, arch)
    return plan_of(request.descriptor, request.mode, store, arch)


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
    _plan(request, cta, ctas, smem_bytes, arch)


def _plan(request: Request, cta: int, ctas: int, smem_bytes: int, arch: Arch) -> Plan | None:
    """Check a request; return its plan if it is a tensor request."""
    try:
        return _checked(request, cta, ctas, smem_bytes, arch)
    except TypeError:  # an operand cannot be hashed
        require_types(request)
        raise


def _require_memories(gmem: object, smem: Sequence[object], cta: int) -> None:
    """Refuse memories of a wrong type, and the rank of a CTA that has no shared memory."""
    if type(gmem) is not ArrayMemory:
        require_memory("gmem", gmem)
    if type(cta) is not int or not 0 <= cta < len(smem):  # the message takes time
        check_cta("cta", any_integer(ErrorCode.DST_CTA, "cta", cta), len(smem))
    window = smem[cta]
    if not isinstance(window, np.ndarray) or window.dtype != _BYTE or window.ndim != 1:
        limit = "must be a list of arrays of uint8 with one axis, one for each CTA"
        raise TmaError(ErrorCode.ARRAY, f"smem[{cta}]", 0, limit, shown=shown(window))


@lru_cache(maxsize=1024)
def _checked(request: Request, cta: int, ctas: int, smem_bytes: int, arch: Arch) -> Plan | None:
    """Check a request; return its plan if it is a tensor request. Equal requests share a result."""
    plan = None
    require_types(request)
    require_arch(arch)
    if isinstance(request, TensorRequest):
        plan = _check_tensor(request, smem_bytes, arch)
    else:
        _check_bulk(request, smem_bytes, arch)
    if isinstance(request, Load | BulkLoad):
        _check_destination(request, cta, ctas)
    elif isinstance(request, DsmemCopy):
        check_cta("dst_cta", request.dst_cta, ctas)
    if isinstance(request, Load | BulkLoad | DsmemCopy):
        check_mbarrier(request.mbarrier)
    return plan


def _check_tensor(request: TensorRequest, smem_bytes: int, arch: Arch) -> Plan:
    """Check a tensor request, except for its destination; return its plan."""
    store = isinstance(request, Store)
    if request.override is not None:
        _check_override(request, arch)
    plan = plan_of_request(request, arch)
    _check_qualifiers(request, arch)
    if not store:
        _check_target(request, plan)
    if isinstance(request, Load) and request.cta_group != 1:
        check_feature(Feature.CTA_GROUP, arch, "cta_group", request.cta_group)
    smem_address = request.smem_address if isinstance(request, Load | Store) else None
    mbarrier = request.mbarrier if isinstance(request, Load) else None
    check_tensor(plan, operands_of(request), smem_address, smem_bytes, mbarrier)
    if isinstance(request, Reduce):
        check_pair(plan.data_type, request.op, TENSOR_PAIRS)
    return plan


_TARGETS = {
    AccessMode.TILE_GATHER4: Feature.GATHER4,
    AccessMode.IM2COL_W: Feature.IM2COL_W,
}
"""Features that the mode of a load to ``.shared::cluster`` needs, and that of a prefetch."""


def _check_target(request: TensorRequest, plan: Plan) -> None:
    """Refuse a load or prefetch that the architecture has for ``.shared::cta`` only."""
    to_l2 = not isinstance(request, Load)
    if isinstance(request, Load) and request.dst_cta is None and request.cta_mask is None:
        return
    mode, arch = plan.mode, plan.arch
    if mode in _TARGETS:
        check_feature(_TARGETS[mode], arch, "mode", mode, shown=mode.name)
    for feature, name, value in () if to_l2 else cluster_features(plan.data_type, plan.swizzle):
        check_feature(feature, arch, name, value, shown=value.name)


def _check_override(request: TensorRequest, arch: Arch) -> None:
    """Check the rules of ``.override::global_address`` and ``.override_attribute``."""
    override = request.override
    assert override is not None
    shown = f"{override.global_address:#x}"
    name = "override.global_address"
    check_feature(Feature.OVERRIDE, arch, name, override.global_address, shown=shown)
    if not override.global_dim:
        return
    d = request.descriptor
    is_tile = request.mode in (None, AccessMode.TILE) and d.mode is MapMode.TILE
    mode = AccessMode(int(d.mode)) if request.mode is None else request.mode
    limit = "must be TILE with an override of extents"
    require(is_tile, ErrorCode.OVERRIDE, "mode", mode, limit, shown=mode.name)
    for i, start in enumerate(request.coords):
        limit = "must be 0 with an override of extents"
        require(start == 0, ErrorCode.OVERRIDE, f"coords[{i}]", start, limit, dim=i)
    if isinstance(request, Load) and request.cta_mask is not None:
        limit = "must be True with an override of extents"
        is_wide = request.multicast_32b
        require(is_wide, ErrorCode.OVERRIDE, "multicast_32b", 0, limit, shown="False")


def _check_qualifiers(request: TypedOperands, arch: Arch) -> None:
    """Check the qualifiers of any request that PTX has since version 9.3."""
    if isinstance(request, ApplyPriority | BulkApplyPriority):
        name = type(request).__name__
        check_feature(Feature.APPLYPRIORITY, arch, "request", 0, shown=name)
    if isinstance(request, Prefetch | BulkPrefetch) and request.evict_last:
        check_feature(Feature.EVICTION_PRIORITY, arch, "evict_last", 1, shown="True")
    if isinstance(request, BulkLoad | BulkStore | BulkReduce | DsmemCopy):
        _check_ordering(request, arch)
    if isinstance(request, Load | BulkLoad):
        mask = request.cta_mask
        if request.multicast_32b:
            check_feature(Feature.MULTICAST_32B, arch, "multicast_32b", 1, shown="True")
            limit = "must not be None with multicast_32b"
            require(mask is not None, ErrorCode.MASK, "cta_mask", 0, limit, shown="None")
        elif mask is not None:
            limit = "must have 16 bits without multicast_32b"
            require(mask < 1 << 16, ErrorCode.MASK, "cta_mask", mask, limit, shown=hex(mask))
        report = request.report
        if report:
            check_feature(Feature.REPORT, arch, "report", report, shown=report.name)


def _check_ordering(request: BulkLoad | BulkStore | BulkReduce | DsmemCopy, arch: Arch) -> None:
    """Check ``.weak`` or ``.relaxed`` with a scope."""
    ordering = request.ordering
    if ordering is None:
        return
    reduces = isinstance(request, BulkReduce | DsmemReduce)
    if not reduces:
        check_feature(Feature.ORDERING, arch, "ordering", ordering, shown=ordering.name)
    allowed = [item for item in Ordering if item is not Ordering.WEAK or not reduces]
    if isinstance(request, DsmemCopy):
        allowed = [item for item in allowed if item <= Ordering.RELAXED_CLUSTER]
    limit = f"must be {any_of(item.name for item in allowed)}"
    holds = ordering in allowed
    require(holds, ErrorCode.MAP_MODE, "ordering", ordering, limit, shown=ordering.name)


_NOFTZ = {DataType.FLOAT16: True, DataType.BFLOAT16: True, DataType.FLOAT32: False}
"""Types whose addition may have ``.noftz``, and whether PTX requires it."""


def _check_noftz(request: BulkReduce) -> None:
    """Check ``.noftz``: some additions must have it, others must not."""
    if request.noftz is None:
        return
    required = _NOFTZ.get(request.data_type) if request.op is ReductionOp.ADD else None
    if request.noftz:
        holds, limit = required is not None, "is allowed in additions of f16, bf16 and f32 only"
    else:
        holds, limit = not required, "must be True"
    shown = f"{request.noftz} for {request.op.name} of {request.data_type.name}"
    require(holds, ErrorCode.RED_TYPE, "noftz", request.noftz, limit, shown=shown)


def _check_bulk(
    request: BulkLoad | BulkPrefetch | BulkApplyPriority | BulkStore | BulkReduce | DsmemCopy,
    smem_bytes: int,
    arch: Arch,
) -> None:
    """Check a bulk request, except for its destination."""
    _check_qualifiers(request, arch)
    match request:
        case BulkPrefetch() | BulkApplyPriority():
            check_bulk(size=request.size, smem={}, gmem_address=request.gmem_address, smem_bytes=0)
            return
        case BulkStore() if request.byte_mask != 0xFFFF:
            mask = request.byte_mask
            check_feature(Feature.CP_MASK, arch, "byte_mask", mask, shown=hex(mask))
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
    if isinstance(request, BulkReduce):
        _check_noftz(request)
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
            report, limit = request.report, f"must be DISABLED with {name}"
            holds = not (count and report)
            require(holds, ErrorCode.REPORT, "report", report, limit, shown=report.name)


def _check_destination(request: Load | BulkLoad, cta: int, ctas: int) -> None:
    """Check the CTAs that receive the data and hold the mbarriers."""
    if request.cta_mask is not None:
        check_mask(request.cta_mask, ctas)
    else:
        check_cta("dst_cta", cta if request.dst_cta is None else request.dst_cta, ctas)
    if isinstance(request, Load) and request.cta_group != 1:
        _check_pair_of_ctas(request, cta, ctas)


def _check_pair_of_ctas(request: Load, cta: int, ctas: int) -> None:
    """Check the CTAs that hold the mbarriers of a request with ``.cta_group::2`` (choice)."""
    group, holder = request.cta_group, request.mbarrier_cta
    require(group == 2, ErrorCode.DST_CTA, "cta_group", group, "must be 1 or 2")
    if request.cta_mask is None and holder is not None:
        dst = cta if request.dst_cta is None else request.dst_cta
        limit = f"must be {dst} or {dst ^ 1}"
        require(holder in (dst, dst ^ 1), ErrorCode.DST_CTA, "mbarrier_cta", holder, limit)
    for signalled in (*signalled_by(request, cta), *([] if holder is None else [holder])):
        check_cta("mbarrier_cta", signalled, ctas)


def receivers_of(request: Load | BulkLoad, cta: int) -> list[int]:
    """Return the ranks of the CTAs whose shared memory is written."""
    mask = request.cta_mask
    if mask is None:
        return [cta if request.dst_cta is None else request.dst_cta]
    return [rank for rank in range(mask.bit_length()) if mask >> rank & 1]


def signalled_by(request: Load | BulkLoad, cta: int) -> list[int]:
    """Return for each receiver the rank of the CTA whose mbarrier counts its bytes.

    It is the receiver. With ``.cta_group::2`` it is the CTA of ``mbarrier_cta``, and with multicast
    that of the receiver's pair whose rank has the parity of ``mbarrier_cta``.
    """
    receivers = receivers_of(request, cta)
    if isinstance(request, BulkLoad) or request.cta_group == 1:
        return receivers
    if request.cta_mask is None:
        return receivers if request.mbarrier_cta is None else [request.mbarrier_cta]
    holder = cta if request.mbarrier_cta is None else request.mbarrier_cta
    return [rank & ~1 | holder & 1 for rank in receivers]


_QUALIFIERS = attrgetter(
    *("w_halo", "w_offset", "dst_cta", "cta_group", "multicast_32b", "report", "override"),
)
_NO_QUALIFIERS = (0, 0, None, 1, False, ReportMechanism.DISABLED, None)
"""Operands of a plain load, which is executed without a look at each of them."""


def _plain_receivers(request: Load, smem: Sequence[Bytes], cta: int, arch: Arch) -> Sequence[int]:
    """Return the CTAs that receive a plain load; none if its mbarrier or CTAs may be illegal."""
    address, mbarrier, mask = request.smem_address, request.mbarrier, request.cta_mask
    last = smem[cta].size - BARRIER_BYTES
    if type(address) is not int or type(mbarrier) is not int or mbarrier % BARRIER_BYTES:
        return ()
    if not 0 <= mbarrier <= last:
        return ()
    if mask is None:
        return (cta,)
    if type(mask) is not int or not 0 < mask < 1 << min(len(smem), 16):
        return ()
    if not arch.is_same_for_clusters:
        return ()
    return receivers_of(request, cta)


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
    _require_memories(gmem, smem, cta)
    # A comparison of identities, because a wrong type may be equal: 0.0 is no halo.
    if type(request) is Load and all(map(is_, _QUALIFIERS(request), _NO_QUALIFIERS)):
        receivers = _plain_receivers(request, smem, cta, arch)
        if receivers:
            # The plan checks all other operands.
            plan = _plan_of_map(request.tensor_map, request.mode, False, arch)
            result = []
            for rank in receivers:
                coords, offsets = request.coords, request.im2col_offsets
                count = plan.load(gmem, smem[rank], request.smem_address, coords, offsets)
                result.append(Completion(rank, request.mbarrier, count))
            return result
    checked = _plan(request, cta, len(smem), smem[cta].size, arch)
    if isinstance(request, TensorRequest):
        assert checked is not None
        return _tensor(checked, request, gmem, smem, cta)
    match request:
        case BulkLoad():
            return _bulk_load(request, gmem, smem, cta)
        case DsmemCopy():
            return _dsmem(request, smem, cta)
        case BulkPrefetch() | BulkApplyPriority():
            return []
    size = moved_bytes(request.size)
    source = smem[cta][request.smem_address :][:size]
    if not size:
        return []
    if isinstance(request, BulkReduce):
        word = f"u{request.data_type.itemsize}"
        memory = read_range(gmem, request.gmem_address, size)
        operands = np.ascontiguousarray(memory).view(word), source.view(word)
        combined = operation(request.op, request.data_type)(*operands)
        write_range(gmem, request.gmem_address, combined.view(np.uint8))
    elif request.byte_mask == 0xFFFF:
        write_range(gmem, request.gmem_address, source)
    else:
        byte = np.arange(size)
        enabled = byte[request.byte_mask >> byte % 16 & 1 == 1]
        addresses = enabled.astype(np.uint64) + np.uint64(request.gmem_address)
        gmem.write(addresses, source[enabled])
    return []


def _tensor(
    plan: Plan, request: TensorRequest, gmem: Memory, smem: Sequence[Bytes], cta: int
) -> list[Completion]:
    """Execute a tensor request."""
    if request.override is not None and isinstance(request, Load | Store):
        # Undefined in PTX, if they do not exist; a prefetch of missing memory is ignored.
        ends = request.override.global_address + np.array([0, _OVERRIDE_BYTES - 1], np.uint64)
        gmem.read(ends.astype(np.uint64))
    if isinstance(request, Load):
        start = (request.smem_address, request.coords, request.im2col_offsets)
        halo = (request.w_halo, request.w_offset)
        counts = [
            plan.load(gmem, smem[receiver], *start, *halo)
            for receiver in receivers_of(request, cta)
        ]
        signalled = zip(signalled_by(request, cta), counts, strict=True)
        reports = bool(request.report) and _matches(request.report, gmem, _sources(plan, request))
        return [Completion(rank, request.mbarrier, count, reports) for rank, count in signalled]
    if isinstance(request, Store):
        operands = (gmem, smem[cta], request.smem_address, request.coords)
        if isinstance(request, Reduce):
            plan.reduce(request.op, *operands)
        else:
            plan.store(*operands)
    return []  # a prefetch has no effect


def _sources(plan: Plan, request: TensorRequest) -> Addresses:
    """Return the addresses of the bytes that a load reads, in ascending order."""
    spread = plan.spread(0, operands_of(request))
    byte = np.arange(plan.piece_bytes)
    addresses = spread.gmem[..., None] + byte.astype(np.uint64)
    return np.unique(addresses[byte < spread.inside[..., None]])


def _matches(report: ReportMechanism, gmem: Memory, addresses: Addresses) -> bool:
    """Return whether one of the inspected elements has the pattern.

    ``addresses`` are those of the bytes that are read, in ascending order.
    """
    data, pattern = gmem.read(addresses) & np.uint8(report.mask), report.pattern
    starts = np.flatnonzero(addresses % np.uint64(report.spacing) == 0)
    # All bytes of an element must be read.
    starts = starts[starts + len(pattern) <= addresses.size]
    last = len(pattern) - 1
    starts = starts[addresses[starts + last] - addresses[starts] == last]
    found = np.ones(starts.size, bool)
    for i, byte in enumerate(pattern):
        found &= data[starts + i] == byte
    return bool(found.any())


def _bulk_load(
    request: BulkLoad, gmem: Memory, smem: Sequence[Bytes], cta: int
) -> list[Completion]:
    """Execute a bulk load."""
    size = moved_bytes(request.size)
    if not size:
        return []
    receivers = receivers_of(request, cta)
    first = request.ignore_first
    moved = size - first - request.ignore_last
    if moved > 0:
        data = read_range(gmem, request.gmem_address + first, moved)
        start = request.smem_address + first
        for receiver in receivers:
            smem[receiver][start : start + moved] = data
    report = request.report
    reports = bool(report) and _matches(report, gmem, _range(request.gmem_address, size))
    return [Completion(rank, request.mbarrier, size, reports) for rank in receivers]


def _dsmem(request: DsmemCopy, smem: Sequence[Bytes], cta: int) -> list[Completion]:
    """Execute a copy or reduction to the shared memory of a CTA of the cluster."""
    size = moved_bytes(request.size)
    if not size:
        return []
    source = smem[cta][request.smem_address :][:size]
    target = smem[request.dst_cta][request.dst_address :][:size]
    if isinstance(request, DsmemReduce):
        word = f"u{request.data_type.itemsize}"
        combine = operation(request.op, request.data_type)
        result = combine(target.view(word), source.view(word))
        target.view(word)[:] = result
    else:
        target[:] = source
    return [Completion(request.dst_cta, request.mbarrier, size)]


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
