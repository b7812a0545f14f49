"""Forms of PTX's instructions around the unit: what each is called, and how it is executed.

The table of ``golden.forms`` and its test are made of this list.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from golden import mbarrier
from golden.arch import EVERY_FEATURE, Arch, Feature
from golden.bulk_group import BulkGroups
from golden.cluster import Cluster
from golden.enums import AccessMode, DataType, Ordering, ReductionOp, ReportMechanism
from golden.forms import Form, Group, Rtl, Run
from golden.mbarrier import Op
from golden.memory import ArrayMemory
from golden.model import execute
from golden.reduction import ASYNC_PAIRS, BULK_PAIRS, DSMEM_PAIRS, TENSOR_PAIRS, Pairs
from golden.request import (
    ApplyPriority,
    BulkApplyPriority,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    DsmemCopy,
    DsmemReduce,
    Load,
    Override,
    Prefetch,
    Reduce,
    Request,
    Store,
)
from golden.tensor_map import TensorMap
from golden.tensormap_replace import tensormap_replace

GMEM_BYTES = 1 << 18
SMEM_BYTES = 1 << 15


def _execute(*requests: Request) -> Run:
    """Return a function that executes requests in a cluster of two CTAs."""

    def run(arch: Arch) -> object:
        gmem = ArrayMemory(np.zeros(GMEM_BYTES, np.uint8))
        smem = [np.zeros(SMEM_BYTES, np.uint8) for _ in range(2)]
        return [execute(request, gmem, smem, arch=arch) for request in requests]

    return run


def _in_cluster(use: Callable[[Cluster], object]) -> Run:
    """Return a function that calls ``use`` with a cluster of two CTAs; it has a barrier at 0."""

    def run(arch: Arch) -> object:
        gmem = ArrayMemory(np.zeros(GMEM_BYTES, np.uint8))
        cluster = Cluster(gmem, 2, smem_bytes=SMEM_BYTES, arch=arch)
        for cta in range(2):
            cluster.mbarrier_init(0, 2, cta=cta)
        return use(cluster)

    return run


# Tensor maps

_DIM = (64, 16, 8, 4, 2)
_STRIDES = (64, 1024, 8192, 32768)


def _tiled(rank: int, kind: str = "u8", **options: Any) -> TensorMap:
    box = (64, 2, 1, 1, 1)[:rank]
    item = TensorMap.tiled(kind, 0, (64,), (), (64,)).data_type.itemsize
    strides = tuple(item * stride for stride in _STRIDES[: rank - 1])
    return TensorMap.tiled(kind, 0, _DIM[:rank], strides, box, **options)


def _image(rank: int, *, wide: bool = False) -> TensorMap:
    corners = (0,) * (1 if wide else rank - 2)
    shape = _DIM[:rank], _STRIDES[: rank - 1], corners, corners, 64, 16
    swizzle = "64B" if wide else "NONE"
    return TensorMap.im2col("u8", 0, *shape, swizzle=swizzle, wide=wide, arch=EVERY_FEATURE)


def _packed(kind: str, elements: int = 128, **options: Any) -> TensorMap:
    shape = (128, 4), (128,), (elements, 2)
    return TensorMap.tiled(kind, 0, *shape, arch=EVERY_FEATURE, **options)


MATRIX = TensorMap.tiled("u8", 0, (64, 16), (64,), (64, 1))
"""Matrix for four rows."""

RANKS, IMAGES = range(1, 6), range(3, 6)
WALKS_W = AccessMode.IM2COL_W, AccessMode.IM2COL_W_128


def _starts(mode: AccessMode) -> list[tuple[TensorMap, tuple[int, ...]]]:
    """Return a tensor map of each rank that a mode has, and a start."""
    if mode in (AccessMode.TILE_GATHER4, AccessMode.TILE_SCATTER4):
        return [(MATRIX, (0, 5, 1, 1, 15))]
    if mode is AccessMode.TILE:
        return [(_tiled(rank), (0,) * rank) for rank in RANKS]
    return [(_image(rank, wide=mode in WALKS_W), (0,) * rank) for rank in IMAGES]


def _loads(mode: AccessMode = AccessMode.TILE, **operands: Any) -> list[Load]:
    return [Load(m, start, mode, **operands) for m, start in _starts(mode)]


def _stores(mode: AccessMode = AccessMode.TILE) -> list[Store]:
    return [Store(m, start, mode) for m, start in _starts(mode)]


def _prefetches(mode: AccessMode = AccessMode.TILE, *, evict_last: bool = False) -> list[Prefetch]:
    return [Prefetch(m, start, mode, evict_last=evict_last) for m, start in _starts(mode)]


ADDRESS = Override(0x1000)


def _extents(rank: int) -> Override:
    """Return an override of the extents of a tensor of ``rank`` dimensions."""
    lower = tuple(stride >> 4 for stride in _STRIDES[: rank - 1])
    return Override(0x1000, _DIM[:rank], lower)


def _overridden(make: Callable[[TensorMap, tuple[int, ...], Override], Request], rank: int) -> Run:
    return _execute(make(_tiled(rank), (0,) * rank, _extents(rank)))


# What the RTL has


def _rtl(operation: str, mode: str = "", *parameters: str) -> Rtl:
    switches = {"STORE": "stores", "REDUCE": "reductions", "GROUP": "stores"}
    first = [name for word, name in switches.items() if word in operation]
    bulk = ["bulk"] if operation.startswith(("BULK", "DSMEM")) else []
    if operation == "DSMEM_REDUCE":
        first = []
    remote = ["ctas"] if operation.startswith("DSMEM") else []
    modes = {"IM2COL": ["im2col"], "IM2COL_W": ["im2col_w"], "IM2COL_W_128": ["im2col_w"]}
    modes |= {"TILE_GATHER4": ["gather4"], "TILE_SCATTER4": ["gather4"]}
    names = dict.fromkeys([*first, *bulk, *remote, *modes.get(mode, []), *parameters])
    return Rtl(operation, mode, parameters=tuple(names))


def _barrier(op: str, *parameters: str) -> Rtl:
    return Rtl(barrier_op=op, parameters=parameters)


# Bulk requests

_CTA = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
_CLUSTER = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_DSMEM = "cp.async.bulk{}.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{}"
_STORE = "cp.async.bulk{}.global.shared::cta.bulk_group{}"
_SCOPES = tuple(Ordering)[1:]
_REPORTS = "mbarrier::report::validity::{per_16bytes::{80000000, 8000, 80, 8}, per_element::ff}"
_REPORTING = tuple(ReportMechanism)[1:]


def _relaxed(make: Callable[[Ordering], Request], scopes: Iterable[Ordering] = _SCOPES) -> Run:
    return _execute(*(make(scope) for scope in scopes))


def _bulk_copies() -> Iterable[Form]:
    bulk = BulkLoad(0x400, 0, 64)
    ordering: dict[str, Any] = {"since": "9.3", "feature": Feature.ORDERING}
    load = _rtl("BULK_LOAD")
    remote = _rtl("BULK_LOAD", "", "ctas")
    yield Form(_CTA, _execute(bulk), "8.6", rtl=load, silicon=("transfers.npz: bulk_load",))
    yield Form(f"{_CTA}.L2::cache_hint", since="8.6", rtl=load)
    ignoring = BulkLoad(0x400, 0, 64, ignore_first=3, ignore_last=15)
    rtl = _rtl("BULK_LOAD", "", "ignore_oob")
    yield Form(f"{_CTA}.ignore_oob", _execute(ignoring), "9.2", rtl=rtl)
    cluster = BulkLoad(0x400, 0, 64, dst_cta=1)
    recorded = ("clusters.npz: BULK_LD",)
    yield Form(_CLUSTER, _execute(cluster), rtl=remote, silicon=recorded)
    yield Form(f"{_CLUSTER}.L2::cache_hint", rtl=remote)
    multicast = BulkLoad(0x400, 0, 64, cta_mask=3)
    recorded = ("clusters.npz: BULK_MC",)
    ptx = f"{_CLUSTER}.multicast::cluster{{::16b}}"
    yield Form(ptx, _execute(multicast), rtl=remote, silicon=recorded)
    wide = BulkLoad(0x400, 0, 64, cta_mask=3, multicast_32b=True)
    ptx = f"{_CLUSTER}.multicast::cluster::32b"
    rtl = _rtl("BULK_LOAD", "", "ctas", "multicast_32b")
    yield Form(ptx, _execute(wide), "9.4", feature=Feature.MULTICAST_32B, rtl=rtl)
    for ptx, dst, where in ((_CTA, None, ()), (_CLUSTER, 1, ("ctas",))):
        rtl = _rtl("BULK_LOAD", "", *where, "report_mechanism")
        reports = (BulkLoad(0x400, 0, 64, dst_cta=dst, report=report) for report in _REPORTING)
        yield Form(f"{ptx}.{_REPORTS}", _execute(*reports), "9.4", feature=Feature.REPORT, rtl=rtl)
        weak = BulkLoad(0x400, 0, 64, dst_cta=dst, ordering=Ordering.WEAK)
        yield Form(ptx.replace("bulk", "bulk.weak", 1), _execute(weak), **ordering)
        relaxed = [BulkLoad(0x400, 0, 64, dst_cta=dst, ordering=scope) for scope in _SCOPES]
        name = ptx.replace("bulk", "bulk.relaxed.{cta, cluster, gpu, sys}", 1)
        yield Form(f"{name}.b128", _execute(*relaxed), **ordering)
    recorded = ("clusters.npz: DCOPY",)
    copy = _rtl("DSMEM_COPY")
    yield Form(_DSMEM.format("", ""), _execute(DsmemCopy(1, 0, 0, 64)), rtl=copy, silicon=recorded)
    weak_copy = DsmemCopy(1, 0, 0, 64, ordering=Ordering.WEAK)
    yield Form(_DSMEM.format(".weak", ""), _execute(weak_copy), **ordering)
    run = _relaxed(lambda scope: DsmemCopy(1, 0, 0, 64, ordering=scope), _SCOPES[:2])
    yield Form(_DSMEM.format(".relaxed.{cta, cluster}", ".b128"), run, **ordering)
    recorded = ("transfers.npz: bulk_store",)
    store, rtl = BulkStore(0, 0, 64), _rtl("BULK_STORE")
    yield Form(_STORE.format("", ""), _execute(store), rtl=rtl, silicon=recorded)
    yield Form(_STORE.format("", ".L2::cache_hint"), rtl=rtl)
    masked = _execute(BulkStore(0, 0, 64, byte_mask=0x0F0F))
    rtl = _rtl("BULK_STORE", "", "cp_mask")
    ptx = _STORE.format("", ".cp_mask")
    yield Form(ptx, masked, "8.6", feature=Feature.CP_MASK, rtl=rtl)
    weak_store = BulkStore(0, 0, 64, ordering=Ordering.WEAK)
    yield Form(_STORE.format(".weak", ""), _execute(weak_store), **ordering)
    run = _relaxed(lambda scope: BulkStore(0, 0, 64, ordering=scope))
    ptx = _STORE.format(".relaxed.{cta, cluster, gpu, sys}", ".b128")
    yield Form(ptx, run, **ordering)


_TYPES = {
    DataType.UINT32: "u32", DataType.INT32: "s32", DataType.UINT64: "u64", DataType.INT64: "s64",
    DataType.FLOAT16: "f16", DataType.BFLOAT16: "bf16", DataType.FLOAT32: "f32",
    DataType.FLOAT64: "f64",
}  # fmt: skip
_BITS = {DataType.UINT32: "b32", DataType.UINT64: "b64"}
_BITWISE = (ReductionOp.AND, ReductionOp.OR, ReductionOp.XOR)
_NOFTZ = (DataType.FLOAT16, DataType.BFLOAT16)


def _choices(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"


def _by_op(pairs: Pairs) -> Iterable[tuple[str, list[tuple[DataType, ReductionOp]]]]:
    """Yield the qualifiers and the pairs of each set of operations that have the same types.

    Bitwise operations have types without a sign; half-precision additions have ``.noftz``.
    """
    for ops in (
        *((ReductionOp.ADD,), (ReductionOp.MIN, ReductionOp.MAX)),
        *((ReductionOp.INC, ReductionOp.DEC), _BITWISE),
    ):
        names = _BITS if ops is _BITWISE else _TYPES
        plain = [kind for kind in names if (kind, ops[0]) in pairs]
        half = [kind for kind in plain if kind in _NOFTZ and ops[0] is ReductionOp.ADD]
        for kinds, suffix in (([kind for kind in plain if kind not in half], ""), (half, ".noftz")):
            if kinds:
                op = _choices([item.name.lower() for item in ops])
                types = _choices([names[kind] for kind in kinds])
                yield f".{op}{suffix}.{types}", list(product(kinds, ops))


def _bulk_reductions() -> Iterable[Form]:
    to_smem = "cp.reduce.async.bulk{}.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    to_gmem = "cp.reduce.async.bulk{}.global.shared::cta.bulk_group"
    for qualifiers, pairs in _by_op(DSMEM_PAIRS):
        requests = [DsmemReduce(1, 0, 0, 64, data_type=kind, op=op) for kind, op in pairs]
        ptx, rtl = to_smem.format("") + qualifiers, _rtl("DSMEM_REDUCE")
        yield Form(ptx, _execute(*requests), rtl=rtl, silicon=("clusters.npz: DRED",))
    for qualifiers, pairs in _by_op(BULK_PAIRS):
        noftz = True if ".noftz" in qualifiers else None
        bulk = [BulkReduce(0, 0, 64, kind, op, noftz=noftz) for kind, op in pairs]
        ptx, rtl = to_gmem.format("") + qualifiers, _rtl("BULK_REDUCE")
        yield Form(ptx, _execute(*bulk), rtl=rtl, silicon=("transfers.npz: bulk_red",))
    add = DataType.UINT32, ReductionOp.ADD
    run = _relaxed(lambda scope: DsmemReduce(1, 0, 0, 64, ordering=scope), _SCOPES[:2])
    ptx = f"{to_smem.format('.relaxed.{cta, cluster}')}.op.type"
    yield Form(ptx, run, "9.3", rtl=_rtl("DSMEM_REDUCE"))
    run = _relaxed(lambda scope: BulkReduce(0, 0, 64, *add, ordering=scope))
    ptx = f"{to_gmem.format('.relaxed.{cta, cluster, gpu, sys}')}.op.type"
    yield Form(ptx, run, "9.3", rtl=_rtl("BULK_REDUCE"))
    single = BulkReduce(0, 0, 64, DataType.FLOAT32, ReductionOp.ADD, noftz=True)
    ptx = f"{to_gmem.format('')}.add.noftz.f32"
    yield Form(ptx, _execute(single), "9.4", rtl=_rtl("BULK_REDUCE"))
    yield Form(f"{to_gmem.format('')}.L2::cache_hint.op.type", rtl=_rtl("BULK_REDUCE"))


def _hints() -> Iterable[Form]:
    ptx = "cp.async.bulk.prefetch.L2.global"
    prefetch, rtl = BulkPrefetch(0, 64), _rtl("BULK_PREFETCH")
    recorded = ("clusters_odd.npz: BULK_PF",)
    yield Form(ptx, _execute(prefetch), rtl=rtl, silicon=recorded)
    yield Form(f"{ptx}.L2::cache_hint", rtl=rtl)
    last = _execute(BulkPrefetch(0, 64, evict_last=True))
    yield Form(f"{ptx}.L2::evict_last", last, "9.4", feature=Feature.EVICTION_PRIORITY)
    tensor = "cp.async.bulk.prefetch.tensor.{}.L2.global.{}"
    rows = (
        ("{1d, 2d, 3d, 4d, 5d}", "tile", AccessMode.TILE, None, "8.0"),
        ("{3d, 4d, 5d}", "im2col", AccessMode.IM2COL, None, "8.0"),
        ("2d", "tile::gather4", AccessMode.TILE_GATHER4, Feature.GATHER4, "8.6"),
        ("{3d, 4d, 5d}", "im2col::w", AccessMode.IM2COL_W, Feature.IM2COL_W, "8.6"),
        ("{3d, 4d, 5d}", "im2col::w::128", AccessMode.IM2COL_W_128, Feature.IM2COL_W_128, "8.6"),
    )
    files = {AccessMode.TILE: "TILE_PF", AccessMode.IM2COL: "IM_PF"}
    for dims, name, mode, feature, since in rows:
        known = (f"clusters_odd.npz: {files[mode]}",) if mode in files else ()
        rtl = _rtl("TENSOR_PREFETCH", mode.name)
        form = Form(tensor.format(dims, name), _execute(*_prefetches(mode)), since)
        yield replace(form, feature=feature, rtl=rtl, silicon=known)
    yield Form(tensor.format("*", "*.L2::cache_hint"), rtl=_rtl("TENSOR_PREFETCH", "TILE"))
    run = _execute(*_prefetches(evict_last=True), *_prefetches(AccessMode.IM2COL, evict_last=True))
    feature, ptx = Feature.EVICTION_PRIORITY, tensor.format("*", "{tile, im2col}.L2::evict_last")
    yield Form(ptx, run, "9.4", feature=feature)
    run = _execute(Prefetch(_tiled(2), (0, 2), override=ADDRESS))
    ptx = tensor.format("*", "*.override::global_address")
    yield _override("TENSOR_PREFETCH", ptx, run)
    yield from _overrides(
        "TENSOR_PREFETCH",
        lambda dim: tensor.format(dim, "tile"),
        lambda m, c, o: Prefetch(m, c, override=o),
    )
    ptx = "applypriority.async.bulk.global.bulk_group.L2::evict_normal"
    new: dict[str, Any] = {"since": "9.4", "feature": Feature.APPLYPRIORITY}
    yield Form(ptx, _execute(BulkApplyPriority(0, 64)), **new)
    ptx = "applypriority.async.bulk.tensor.*.global.bulk_group.{tile, im2col}.L2::evict_normal"
    run = _execute(*(ApplyPriority(m, c) for m, c in _starts(AccessMode.TILE)))
    yield Form(ptx, run, **new)
    yield Form("applypriority{.global}.L2::evict_normal", since="7.4", target="sm_80")
    yield Form("discard{.global}.L2", since="7.4", target="sm_80")
    yield Form("prefetch{.const, .param}.tensormap", rtl=Rtl(port="descriptor_prefetch"))


# Tensor requests


def _override(operation: str, ptx: str, run: Run) -> Form:
    """Return a form with an override of an ``operation`` of the unit."""
    rtl = _rtl(operation, "TILE", "override")
    return Form(ptx, run, "9.4", feature=Feature.OVERRIDE, rtl=rtl)


def _overrides(
    operation: str,
    spelling: Callable[[str], str],
    make: Callable[[TensorMap, tuple[int, ...], Override], Request],
) -> Iterable[Form]:
    """Yield the forms of an instruction that override extents.

    ``spelling`` returns the spelling for a dimension; ``make`` returns a request.
    """
    address = ".override::global_address"
    name = f"{spelling('1d')}{address}.override::global_dim"
    yield _override(operation, name, _overridden(make, 1))
    name = f"{spelling('{2d, 3d, 4d, 5d}')}{address}.override::global_dim_stride"

    def run(arch: Arch) -> object:
        return [_overridden(make, rank)(arch) for rank in RANKS[1:]]

    yield _override(operation, name, run)


_TENSOR = "cp.async.bulk.tensor.{}.shared::{}.global.{}.mbarrier::complete_tx::bytes"
_ALL, _SPATIAL = "{1d, 2d, 3d, 4d, 5d}", "{3d, 4d, 5d}"


def _tensor_loads() -> Iterable[Form]:
    rows = (
        (_ALL, "tile", AccessMode.TILE, None, None, ("load_tile", "TILE_LD", "TILE_MC")),
        (_SPATIAL, "im2col", AccessMode.IM2COL, None, None, ("load_im2col", "IM_LD", "IM_MC")),
        *(
            ("2d", "tile::gather4", AccessMode.TILE_GATHER4, feature, other, None)
            for feature, other in [(Feature.GATHER4_CTA, Feature.GATHER4)]
        ),
        (
            *(_SPATIAL, "im2col::w", AccessMode.IM2COL_W),
            *(Feature.IM2COL_W_CTA, Feature.IM2COL_W, None),
        ),
        (
            *(_SPATIAL, "im2col::w::128", AccessMode.IM2COL_W_128),
            *(Feature.IM2COL_W_128, Feature.IM2COL_W_128, None),
        ),
    )
    for dims, name, mode, to_cta, to_cluster, files in rows:
        load, cluster, multicast = files or ("", "", "")
        recorded = (f"transfers.npz: {load}",) if load else ()
        ptx = _TENSOR.format(dims, "cta", name)
        rtl = _rtl("TENSOR_LOAD", mode.name)
        yield Form(ptx, _execute(*_loads(mode)), "8.6", feature=to_cta, rtl=rtl, silicon=recorded)
        ptx, since = _TENSOR.format(dims, "cluster", name), "8.6" if to_cluster else "8.0"
        rtl = _rtl("TENSOR_LOAD", mode.name, "ctas")
        recorded = (f"clusters.npz: {cluster}",) if cluster else ()
        run = _execute(*_loads(mode, dst_cta=1))
        yield Form(ptx, run, since, feature=to_cluster, rtl=rtl, silicon=recorded)
        recorded = (f"clusters.npz: {multicast}",) if multicast else ()
        run = _execute(*_loads(mode, cta_mask=3))
        ptx += ".multicast::cluster{::16b}"
        yield Form(ptx, run, since, feature=to_cluster, rtl=rtl, silicon=recorded)
    any_load = _TENSOR.format("*", "{cta, cluster}", "*")
    yield Form(f"{any_load}.L2::cache_hint", rtl=_rtl("TENSOR_LOAD", "TILE"))
    wide = _execute(*_loads(cta_mask=3, multicast_32b=True))
    ptx = f"{_TENSOR.format('*', 'cluster', '*')}.multicast::cluster::32b"
    rtl = _rtl("TENSOR_LOAD", "TILE", "ctas", "multicast_32b")
    yield Form(ptx, wide, "9.4", feature=Feature.MULTICAST_32B, rtl=rtl)
    pair = _rtl("TENSOR_LOAD", "TILE", "ctas", "cta_group_2")
    run = _execute(*_loads(dst_cta=0, mbarrier_cta=1, cta_group=2))
    yield Form(f"{any_load}.cta_group::2", run, "8.6", feature=Feature.CTA_GROUP, rtl=pair)
    run = _execute(*_loads(cta_mask=3, mbarrier_cta=1, cta_group=2))
    ptx = f"{_TENSOR.format('*', 'cluster', '*')}.multicast::cluster.cta_group::2"
    yield Form(ptx, run, "8.6", feature=Feature.CTA_GROUP, rtl=pair)
    run = _execute(*(load for report in _REPORTING for load in _loads(report=report)))
    rtl = _rtl("TENSOR_LOAD", "TILE", "report_mechanism")
    yield Form(f"{any_load}.{_REPORTS}", run, "9.4", feature=Feature.REPORT, rtl=rtl)
    run = _execute(*_loads(override=ADDRESS), *_loads(AccessMode.IM2COL, override=ADDRESS))
    yield _override("TENSOR_LOAD", f"{any_load}.override::global_address", run)

    def tiled(dim: str) -> str:
        return _TENSOR.format(dim, "{cta, cluster}", "tile")

    yield from _overrides("TENSOR_LOAD", tiled, lambda m, c, o: Load(m, c, override=o))
    yield from _types_of_loads()


def _types_of_loads() -> Iterable[Form]:
    """Yield loads of the types and swizzles that later architectures have."""
    packed = (("b4x16", "16u4_align8b"), ("b4x16_p64", "16u4_align16b"))
    for name, kind in (*packed, ("b6x16_p32", "16u6_align16b")):
        load = _TENSOR.format("*", "cta", "*") + f", type .{name}"
        tensor_map, rtl = _packed(kind), _rtl("TENSOR_LOAD", "TILE", "sub_byte")
        run = _execute(Load(tensor_map, (0, 0)))
        yield Form(load, run, "8.7", feature=Feature.SUB_BYTE, rtl=rtl)
        ptx = load.replace("::cta", "::cluster")
        run = _execute(Load(tensor_map, (0, 0), dst_cta=1))
        rtl = _rtl("TENSOR_LOAD", "TILE", "sub_byte", "ctas")
        yield Form(ptx, run, "8.7", feature=Feature.SUB_BYTE_CLUSTER, rtl=rtl)
    for name, swizzle, feature in (
        ("32B", "128B_ATOM_32B", Feature.SWIZZLE_ATOMS),
        ("32B with 8B flip", "128B_ATOM_32B_FLIP_8B", Feature.SWIZZLE_ATOMS),
        ("64B", "128B_ATOM_64B", Feature.SWIZZLE_ATOMS),
    ):
        ptx = _TENSOR.format("*", "cta", "*") + f", swizzle 128B with atoms of {name}"
        rtl = _rtl("TENSOR_LOAD", "TILE", "swizzle_atoms")
        yield Form(ptx, _swizzled(swizzle), "8.6", feature=feature, rtl=rtl)
        run = _swizzled(swizzle, dst_cta=1)
        ptx, feature = ptx.replace("::cta", "::cluster"), Feature.SWIZZLE_ATOMS_CLUSTER
        rtl = _rtl("TENSOR_LOAD", "TILE", "swizzle_atoms", "ctas")
        yield Form(ptx, run, "8.6", feature=feature, rtl=rtl)
    ptx = _TENSOR.format("*", "{cta, cluster}", "*") + ", swizzle 96B"
    rtl = _rtl("TENSOR_LOAD", "TILE", "swizzle_96b")
    yield Form(ptx, _swizzled("96B"), "8.8", feature=Feature.SWIZZLE_96B, rtl=rtl)


def _swizzled(swizzle: str, dst_cta: int | None = None) -> Run:
    """Return a function that loads with a swizzle; Hopper's unit would ignore its bits."""

    def run(arch: Arch) -> object:
        matrix = _tiled(2, swizzle=swizzle, arch=arch)
        return _execute(Load(matrix, (0, 0), dst_cta=dst_cta))(arch)

    return run


def _tensor_stores() -> Iterable[Form]:
    store = "cp.async.bulk.tensor.{}.global.shared::cta.{}.bulk_group"
    rows = (
        (_ALL, "tile", AccessMode.TILE, None, "8.0", ("store_tile",)),
        (_SPATIAL, "im2col_no_offs", AccessMode.IM2COL, None, "8.0", ("store_im2col",)),
        ("2d", "tile::scatter4", AccessMode.TILE_SCATTER4, Feature.SCATTER4, "8.6", ()),
        (
            *(_SPATIAL, "im2col_no_offs::w", AccessMode.IM2COL_W),
            *(Feature.IM2COL_NO_OFFS_W, "9.4", ()),
        ),
    )
    for dims, name, mode, feature, since, kinds in rows:
        recorded = tuple(f"transfers.npz: {kind}" for kind in kinds)
        ptx, rtl = store.format(dims, name), _rtl("TENSOR_STORE", mode.name)
        run = _execute(*_stores(mode))
        yield Form(ptx, run, since, feature=feature, rtl=rtl, silicon=recorded)
    yield Form(store.format("*", "*") + ".L2::cache_hint", rtl=_rtl("TENSOR_STORE", "TILE"))
    negative = Store(MATRIX, (-64, -1, 3, 2, 1), AccessMode.TILE_SCATTER4)
    ptx = store.format("2d", "tile::scatter4") + ", negative coordinates"
    rtl = _rtl("TENSOR_STORE", "TILE_SCATTER4", "scatter4_negative")
    yield Form(ptx, _execute(negative), "9.4", feature=Feature.SCATTER4_NEGATIVE, rtl=rtl)
    run = _execute(Store(_tiled(2), (0, 2), override=ADDRESS))
    yield _override("TENSOR_STORE", store.format("*", "*") + ".override::global_address", run)
    yield from _overrides(
        "TENSOR_STORE",
        lambda dim: store.format(dim, "tile"),
        lambda m, c, o: Store(m, c, override=o),
    )
    for name, kind in (("b4x16", "16u4_align8b"), ("b6p2x16", "16u6_align16b")):
        rtl = _rtl("TENSOR_STORE", "TILE", "sub_byte")
        ptx = store.format("*", "*") + f", type .{name}"
        run = _execute(Store(_packed(kind), (0, 0)))
        yield Form(ptx, run, "8.7", feature=Feature.SUB_BYTE, rtl=rtl)
    ptx = store.format("*", "*") + ", type .b6p2x16 in rows of 64 elements"
    short = _packed("16u6_align16b", 64, swizzle="64B")
    run, rtl = _execute(Store(short, (0, 0))), _rtl("TENSOR_STORE", "TILE", "b6p2x16_64")
    yield Form(ptx, run, "8.8", feature=Feature.B6P2X16_STORE, rtl=rtl)
    start = Store(_packed("16u6_align16b", 64), (64, 0))
    ptx = store.format("*", "*") + ", type .b6p2x16 from a multiple of 64"
    yield Form(ptx, _execute(start), "8.8", feature=Feature.B6P2X16_START, rtl=rtl)


def _tensor_reductions() -> Iterable[Form]:
    reduce = "cp.reduce.async.bulk.tensor.{}.global.shared::cta.{}.{}.bulk_group"
    ops = {op: [kind for kind, other in sorted(TENSOR_PAIRS) if other is op] for op in ReductionOp}
    for op, kinds in ops.items():
        requests = [
            Reduce(_tiled(rank, kind.name, swizzle="NONE"), (0,) * rank, op=op)
            for kind, rank in product(kinds, RANKS)
        ]
        ptx, rtl = reduce.format(_ALL, op.name.lower(), "tile"), _rtl("TENSOR_REDUCE", "TILE")
        yield Form(ptx, _execute(*requests), rtl=rtl, silicon=("transfers.npz: red_tile",))
    add = "{add, min, max, inc, dec, and, or, xor}"
    images = [
        Reduce(_words(_image(rank, wide=wide)), (0,) * rank, mode)
        for wide, mode in ((False, AccessMode.IM2COL), (True, AccessMode.IM2COL_W))
        for rank in IMAGES
    ]
    recorded = ("transfers.npz: red_im2col",)
    ptx, rtl = reduce.format(_SPATIAL, add, "im2col_no_offs"), _rtl("TENSOR_REDUCE", "IM2COL")
    yield Form(ptx, _execute(*images[:3]), rtl=rtl, silicon=recorded)
    ptx, rtl = reduce.format(_SPATIAL, add, "im2col_no_offs::w"), _rtl("TENSOR_REDUCE", "IM2COL_W")
    feature = Feature.IM2COL_NO_OFFS_W
    yield Form(ptx, _execute(*images[3:]), "9.4", feature=feature, rtl=rtl)
    ptx = reduce.format("*", add, "*.L2::cache_hint")
    yield Form(ptx, rtl=_rtl("TENSOR_REDUCE", "TILE"))
    run = _execute(Reduce(_tiled(2, "u32"), (0, 2), override=ADDRESS))
    ptx = reduce.format("*", add, "*") + ".override::global_address"
    yield _override("TENSOR_REDUCE", ptx, run)
    yield from _overrides(
        "TENSOR_REDUCE",
        lambda dim: reduce.format(dim, add, "tile"),
        lambda m, c, o: Reduce(_words(m), c, override=o),
    )


def _words(m: TensorMap) -> TensorMap:
    """Return a map of bytes as one of 32-bit words of the same places."""
    return tensormap_as(m, DataType.UINT32)


def tensormap_as(m: TensorMap, kind: DataType) -> TensorMap:
    """Return a map of bytes whose elements are of a type, with the same bytes in a row."""
    item = kind.itemsize
    fields: dict[str, Any] = {"data_type": kind, "global_dim": (64 // item, *m.global_dim[1:])}
    if m.box_dim:
        fields["box_dim"] = (64 // item, *m.box_dim[1:])
    else:
        fields["channels_per_pixel"] = 64 // item
    return replace(m, **fields)


# Groups, tensor maps and fences


def _wait(read: bool) -> Callable[[Cluster], object]:
    def use(cluster: Cluster) -> object:
        cluster.issue(BulkStore(0, 0, 64))
        groups = cluster.groups()
        groups.commit_group()
        wait = groups.wait_group_read if read else groups.wait_group
        return [wait(n) for n in range(3)]

    return use


def _groups() -> Iterable[Form]:
    def commit(arch: Arch) -> object:
        groups = BulkGroups()
        groups.issue()
        groups.commit_group()
        return arch

    recorded = ("transfers.npz: store_tile",)
    group = "cp.async.bulk.{}"
    yield Form(group.format("commit_group"), commit, rtl=_rtl("COMMIT_GROUP"), silicon=recorded)
    run, rtl = _in_cluster(_wait(False)), _rtl("WAIT_GROUP")
    yield Form(group.format("wait_group N"), run, rtl=rtl, silicon=recorded)
    run, rtl = _in_cluster(_wait(True)), _rtl("WAIT_GROUP_READ")
    yield Form(group.format("wait_group.read N"), run, rtl=rtl)


_EDITS = {
    "global_address": (0x1000, None), "rank": (1, None), "box_dim": (8, 1), "global_dim": (9, 1),
    "global_stride": (128, 0), "element_stride": (2, 1), "elemtype": (6, None),
    "interleave_layout": (0, None), "swizzle_mode": (2, None), "fill_mode": (0, None),
}  # fmt: skip


def _edited(field: str, value: int, index: int | None = None) -> Run:
    data = _tiled(2).encode()
    return lambda arch: tensormap_replace(data, field, value, index, arch=arch)


def _map_edits() -> Iterable[Form]:
    replace_tile = "tensormap.replace.tile.{}{{.global, .shared::cta}}.b1024"
    base: dict[str, Any] = {"since": "8.3", "target": "sm_90a"}
    for field, (value, index) in _EDITS.items():
        recorded = (f"tensormap_replace.npz: {field}",)
        ptx = replace_tile.format(field)
        yield Form(ptx, _edited(field, value, index), silicon=recorded, **base)
    ptx = replace_tile.format("elemtype") + ", types 13 to 15"
    yield Form(ptx, _edited("elemtype", 13), "8.7", feature=Feature.SUB_BYTE)
    ptx = replace_tile.format("swizzle_mode") + ", 96B"
    yield Form(ptx, _edited("swizzle_mode", 4), "8.8", feature=Feature.SWIZZLE_96B)
    ptx = replace_tile.format("swizzle_atomicity")
    run = _edited("swizzle_atomicity", 1)
    yield Form(ptx, run, "8.6", feature=Feature.SWIZZLE_ATOMS)
    ptx = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned"
    yield Form(ptx, since="8.3")


def _fences() -> Iterable[Form]:
    yield Form("fence.proxy.async{.global, .shared::cta, .shared::cluster}")
    yield Form(
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster", since="8.6"
    )
    yield Form("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", since="8.6")
    tensormap = "fence.proxy.tensormap::generic.{}.{{cta, cluster, gpu, sys}}"
    yield Form(tensormap.format("release"), since="8.3")
    acquire = tensormap.format("acquire") + " [a], 128"
    yield Form(acquire, since="8.3", rtl=Rtl(port="descriptor_invalidate"))
    yield Form("fence.mbarrier_init.release.cluster")
    yield Form("fence.proxy.alias", since="7.5", target="sm_70")


# mbarriers


def _updating(op: Op, count: int = 1, *, remote: bool = False) -> Run:
    def use(cluster: Cluster) -> object:
        if op is Op.COMPLETE_TX:
            cluster.mbarrier_expect_tx(0, count, cta=int(remote))
        issuer = 0 if remote else None
        return cluster.mbarrier_update(op, 0, count, cta=int(remote), issuer=issuer)

    return _in_cluster(use)


def _multicast(op: Op) -> Run:
    def use(cluster: Cluster) -> object:
        if op is Op.COMPLETE_TX:
            cluster.mbarrier_update(Op.EXPECT_TX, 0, 1, cta_mask=3)
        return cluster.mbarrier_update(op, 0, 1, cta_mask=3)

    return _in_cluster(use)


_UPDATES = (
    ("expect_tx", Op.EXPECT_TX, "8.0", "EXPECT", "EXPECT_CL"),
    ("complete_tx", Op.COMPLETE_TX, "8.0", "COMPLETE_CTA", "COMPLETE"),
    ("arrive", Op.ARRIVE, "7.0", "ARRIVE", "R_ARRIVE"),
    ("arrive.expect_tx", Op.ARRIVE_EXPECT_TX, "8.0", "ARR_EXPECT", "R_ARR_EXPECT"),
    ("arrive_drop", Op.ARRIVE_DROP, "7.0", "DROP", "R_DROP"),
    ("arrive_drop.expect_tx", Op.ARRIVE_DROP_EXPECT_TX, "8.0", "DROP_EXPECT", "R_DROP_EXPECT"),
)


def _updates() -> Iterable[Form]:
    for name, op, since, local, remote in _UPDATES:
        orders = "" if name.endswith("_tx") and "." not in name else "{.release, .relaxed}"
        ptx = f"mbarrier.{name}{orders}{{.cta, .cluster}}"
        recorded = (f"barriers.npz: {local}",)
        rtl = _barrier(op.name)
        since_target: dict[str, Any] = {
            "since": since,
            "target": "sm_80" if since == "7.0" else "sm_90",
        }
        form = Form(f"{ptx}.shared::cta.b64", _updating(op), rtl=rtl, silicon=recorded)
        yield replace(form, **since_target)
        recorded = (f"clusters.npz: {remote}",)
        rtl = _barrier(op.name, "ctas")
        run = _updating(op, remote=True)
        yield Form(f"{ptx}.shared::cluster.b64", run, rtl=rtl, silicon=recorded)
        ptx += ".shared::cluster.multicast::cluster::32b.b64"
        rtl = _barrier(op.name, "ctas", "multicast_32b")
        yield Form(ptx, _multicast(op), "9.4", feature=Feature.MULTICAST_32B, rtl=rtl)
    for name, op, local in (
        ("arrive", Op.ARRIVE_NO_COMPLETE, "ARRIVE_NC"),
        ("arrive_drop", Op.ARRIVE_DROP_NO_COMPLETE, "DROP_NC"),
    ):
        ptx, recorded = f"mbarrier.{name}.noComplete.shared::cta.b64", (f"barriers.npz: {local}",)
        yield Form(ptx, _updating(op), "7.0", "sm_80", rtl=_barrier(op.name), silicon=recorded)


def _with_v1(use: Callable[[Cluster], object]) -> Run:
    def prepared(cluster: Cluster) -> object:
        cluster.mbarrier_init(8, 1, v1=True)
        return use(cluster)

    return _in_cluster(prepared)


def _barrier_states() -> Iterable[Form]:
    init = "mbarrier.init.shared::cta.b64"
    old: dict[str, Any] = {"since": "7.0", "target": "sm_80"}
    v1: dict[str, Any] = {"since": "9.3", "feature": Feature.MBARRIER_V1}
    run = _in_cluster(lambda cluster: cluster.mbarrier_init(8, 1))
    rtl, recorded = _barrier("INIT"), ("barriers.npz: INIT",)
    yield Form(init, run, rtl=rtl, silicon=recorded, **old)
    ptx = init.replace("init", "init.layout::v0")
    yield Form(ptx, run, "9.3", rtl=_barrier("INIT"))
    ptx, v1 = (
        init.replace("init", "init.layout::v1"),
        {"since": "9.3", "feature": Feature.MBARRIER_V1},
    )
    rtl = _barrier("INIT", "mbarrier_v1")
    yield Form(ptx, _with_v1(lambda _: None), rtl=rtl, **v1)
    run = _in_cluster(lambda cluster: cluster.mbarrier_inval(0))
    rtl, recorded = _barrier("INVAL"), ("barriers.npz: INVAL",)
    ptx = "mbarrier.inval.shared::cta.b64"
    yield Form(ptx, run, rtl=rtl, silicon=recorded, **old)
    sem = "{.acquire, .relaxed}{.cta, .cluster}.shared::cta.b64"
    for test, version in (("test_wait", "7.0"), ("try_wait", "7.8")):
        target = "sm_80" if test == "test_wait" else "sm_90"
        op, name = test.upper(), test.partition("_")[0].upper()
        run = _in_cluster(lambda cluster: cluster.mbarrier_test_wait(0, 0))
        ptx, recorded = f"mbarrier.{test}{sem}", (f"barriers.npz: {name}",)
        yield Form(ptx, run, version, target, rtl=_barrier(op), silicon=recorded)
        run = _in_cluster(lambda cluster: cluster.mbarrier_test_wait_parity(0, 1))
        ptx, recorded = f"mbarrier.{test}.parity{sem}", (f"barriers.npz: {name}_P",)
        version = "7.1" if test == "test_wait" else version
        yield Form(ptx, run, version, target, rtl=_barrier(f"{op}_PARITY"), silicon=recorded)
        run = _with_v1(lambda cluster: cluster.mbarrier_test_wait_parity(8, 1, conditional=True))
        ptx = f"mbarrier.{test}.parity.phase_type::conditional{sem}"
        rtl = _barrier(f"{op}_PARITY", "mbarrier_v1")
        yield Form(ptx, run, rtl=rtl, **v1)
        ptx = f"mbarrier.{test}.phase_type::primary{sem} waitComplete|reportPredicate, reportValue"
        run = _with_v1(lambda cluster: mbarrier.reported(cluster.word(8), v1=True))
        yield Form(ptx, run, **v1)
    run = _in_cluster(lambda cluster: cluster.mbarrier_pending_count(cluster.word(0)))
    rtl, recorded = _barrier("PENDING_COUNT"), ("barriers.npz: PENDING",)
    ptx = "mbarrier.pending_count.b64"
    yield Form(ptx, run, rtl=rtl, silicon=recorded, **old)
    run = _in_cluster(lambda cluster: [cluster.mbarrier_check_layout(0, n) for n in range(2)])
    yield Form("mbarrier.check_layout.layout::{v0, v1}.shared::cta.b64", run, "9.3")
    ptx = "report of an asynchronous operation to an mbarrier of layout v1"
    run = _with_v1(lambda cluster: cluster.mbarrier_report(8, mbarrier.NOT_VALID))
    rtl = _barrier("REPORT", "mbarrier_v1")
    yield Form(ptx, run, rtl=rtl, **v1)
    recorded = ("barriers.npz: CP_ARRIVE",)
    yield Form("cp.async.mbarrier.arrive{.noinc}.shared::cta.b64", silicon=recorded, **old)


# Asynchronous stores of registers, and multimem


def _remote_registers() -> Iterable[Form]:
    tail = "shared::cluster.mbarrier::complete_tx::bytes"
    store = f"st.async{{.weak}}.{tail}"

    def storing(size: int) -> Run:
        return _in_cluster(lambda cluster: cluster.st_async([(16, bytes(size))], 0, cta=1))

    port = Rtl(port="remote_store", parameters=("ctas",))
    for types, size, name, since in (
        ("{b32, u32, s32, f32}", 4, "b32", "8.1"),
        ("{b64, u64, s64, f64}", 8, "b64", "8.1"),
        ("v2.{b32, u32, s32, f32}", 8, "v2.b32", "8.1"),
        ("v2.{b64, u64, s64, f64}", 16, "v2.b64", "8.1"),
        ("v4.{b32, u32, s32, f32}", 16, "v4.b32", "8.1"),
        ("b128", 16, "", "9.2"),
    ):
        recorded = (f"clusters.npz: STAS {name}",) if name else ()
        yield Form(f"{store}.{types}", storing(size), since, rtl=port, silicon=recorded)
    for qualifiers, pairs in _by_op(ASYNC_PAIRS):
        ptx = f"red.async.relaxed.cluster.{tail}{qualifiers}"

        def use(cluster: Cluster, pairs: list[tuple[DataType, ReductionOp]] = pairs) -> object:
            return [cluster.red_async([(16, 1)], *pair, 0, cta=1) for pair in pairs]

        silicon = ("clusters.npz: REDAS",)
        yield Form(ptx, _in_cluster(use), "8.1", rtl=port, silicon=silicon)
    yield Form("st.async{.mmio}.release.{gpu, sys}.global.type", since="8.7", target="sm_100")
    yield Form("red.async{.mmio}.release.{gpu, sys}.global.add.type", since="8.7", target="sm_100")


def _multimem() -> Iterable[Form]:
    copy = "multimem.cp.async.bulk{}.global.shared::cta.bulk_group{}"
    yield Form(copy.format("", ""), since="9.1")
    yield Form(copy.format("", ".cp_mask"), since="9.1", target="sm_100")
    ordering = "sm_90a, sm_100a, sm_103a, sm_107a"
    yield Form(copy.format(".weak", ""), since="9.3", target=ordering)
    ptx = copy.format(".relaxed.{cta, cluster, gpu, sys}", ".b128")
    yield Form(ptx, since="9.3", target=ordering)
    reduce = "multimem.cp.reduce.async.bulk{}.global.shared::cta.bulk_group.op.type"
    yield Form(reduce.format(""), since="9.1")
    yield Form(reduce.format(".relaxed.{cta, cluster, gpu, sys}"), since="9.3")
    yield Form("multimem.{ld_reduce, st, red}", since="8.1")
    yield Form("multimem.st.async.release.{gpu, sys}.global.type", since="9.3", target="sm_100")
    yield Form(
        "multimem.red.async.release.{gpu, sys}.global.add.type", since="9.3", target="sm_100"
    )


_ABSENCES = (
    ("multimem.", "it needs several GPUs"),
    ("tensormap.", "the generic proxy edits and copies maps"),
    ("fence.", "it orders accesses outside the unit"),
    ("::evict_", "the priority of a line in L2 moves no data"),
    ("discard{", "it is an access of a thread"),
    (".async{.mmio}", "it is an access of a thread"),
    ("cp.async.mbarrier", "it is part of `cp.async`, an access of a thread"),
    (".weak", "the data moves as without the qualifier"),
    (".relaxed.", "the data moves as without the qualifiers"),
    ("check_layout", "it tests a bit of the barrier's word, which a thread can read"),
    ("reportPredicate", "it decodes the barrier's word, which a thread can read"),
)
"""Why the RTL lacks forms, by a part of their spelling."""


def _explained(forms: Iterable[Form]) -> tuple[Form, ...]:
    """Return ``forms``, those that the RTL lacks with the first reason of ``_ABSENCES``."""
    return tuple(
        form
        if form.rtl
        else replace(form, absence=next(why for part, why in _ABSENCES if part in form.ptx))
        for form in forms
    )


HINT = (
    "`.L2::cache_hint` and L2 promotion are hints without effect on the data. The golden model has "
    "no operand for a cache policy; the RTL passes it on to the memory."
)

GROUPS = (
    Group(
        "Bulk copies",
        f"{HINT} `.weak` and `.relaxed` have no effect on the data; the RTL has no operand for "
        "them, and always moves whole pieces of 16 bytes. `.mbarrier::report::disabled` is the "
        "default.",
        _explained(_bulk_copies()),
    ),
    Group("Bulk reductions", "", _explained(_bulk_reductions())),
    Group(
        "Prefetches and priorities",
        "A prefetch may be dropped; the golden model checks it and does nothing.",
        _explained(_hints()),
    ),
    Group(
        "Tensor loads",
        "An asterisk stands for each dimension and each load mode that the rows above have.",
        _explained(_tensor_loads()),
    ),
    Group("Tensor stores", "", _explained(_tensor_stores())),
    Group("Tensor reductions", "", _explained(_tensor_reductions())),
    Group("Bulk groups", "", _explained(_groups())),
    Group(
        "Tensor maps",
        "The generic proxy edits and copies maps, so that the RTL has no part in it.",
        _explained(_map_edits()),
    ),
    Group(
        "Proxy fences",
        "Fences order accesses of the SM and its memory; the golden model executes each request at "
        "once. In the unit, only an acquire of a tensor map has an effect.",
        _explained(_fences()),
    ),
    Group(
        "mbarriers: state",
        "PTX assembles layout v1 for `sm_90`, too. That Hopper's barriers have no layout v1 is a "
        "choice: in the recorded words, the bit that marks it here has no effect.",
        _explained(_barrier_states()),
    ),
    Group("mbarriers: arrivals and bytes", "", _explained(_updates())),
    Group(
        "Asynchronous stores and reductions of registers",
        "They are no requests of the unit, but signal mbarriers of other CTAs as the unit does.",
        _explained(_remote_registers()),
    ),
    Group(
        "Multimem",
        "Multimem addresses stand for memory of several GPUs, which this project does not have.",
        _explained(_multimem()),
    ),
)
"""All forms."""
