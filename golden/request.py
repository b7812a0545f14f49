"""Requests: the operands that an instruction passes to the unit, one class for each PTX family.

Shared-memory addresses are byte offsets in a CTA's window; global addresses have 64 bits.
Coordinates are in elements, innermost first. A CTA is given by its rank in the cluster.
"""

from dataclasses import dataclass, field, fields
from typing import ClassVar

from golden.descriptor import Descriptor
from golden.enums import AccessMode, DataType, Named, Ordering, ReductionOp, ReportMechanism
from golden.errors import ErrorCode, TmaError
from golden.fields import (
    any_integer,
    any_integers,
    are_ints,
    integer,
    integers,
    raw_bytes,
    sequence,
    shown,
)
from golden.tensor_map import TensorMap

AnyMap = TensorMap | Descriptor | bytes
"""Every form in which a request may hold its tensor map."""


SIZE_BITS = 0xFFFF0
"""Bits of the size of a bulk request that count (silicon)."""


def moved_bytes(size: int) -> int:
    """Return the bytes that a bulk request of ``size`` moves and counts (silicon).

    Only bits 19:4 of the size count: 24 moves 16 bytes, 2**20 moves none.
    """
    return size & SIZE_BITS


def as_descriptor(tensor_map: AnyMap) -> Descriptor:
    """Return the words w0 to w15 of a tensor map.

    Raises
    ------
    TmaError
        MAP_BYTES, if ``tensor_map`` is bytes and has fewer than 64, or is no tensor map.
    """
    if isinstance(tensor_map, Descriptor):
        return tensor_map
    if isinstance(tensor_map, TensorMap):
        return Descriptor.from_bytes(tensor_map.encode())
    return Descriptor.from_bytes(raw_bytes("tensor_map", tensor_map))


_INTEGERS = {
    **dict.fromkeys(("smem_address", "dst_address"), ErrorCode.SMEM_RANGE),
    **dict.fromkeys(("gmem_address", "size", "byte_mask"), ErrorCode.BULK_ALIGN),
    **dict.fromkeys(("ignore_first", "ignore_last"), ErrorCode.BULK_ALIGN),
    **dict.fromkeys(("w_halo", "w_offset"), ErrorCode.IM2COL_OFFSET),
    "mbarrier": ErrorCode.MBAR_ALIGN,
    "cta_mask": ErrorCode.MASK,
    **dict.fromkeys(("dst_cta", "mbarrier_cta", "cta_group"), ErrorCode.DST_CTA),
}
_SEQUENCES = {"coords": ErrorCode.COORD_RANGE, "im2col_offsets": ErrorCode.IM2COL_OFFSET}
_FLAGS = {
    "multicast_32b": ErrorCode.MASK,
    "evict_last": ErrorCode.MAP_MODE,
    "noftz": ErrorCode.RED_TYPE,
}
_MEMBERS: dict[str, tuple[type[Named], ErrorCode]] = {
    "ordering": (Ordering, ErrorCode.MAP_MODE),
    "report": (ReportMechanism, ErrorCode.REPORT),
    "mode": (AccessMode, ErrorCode.MAP_MODE),
    "data_type": (DataType, ErrorCode.RED_TYPE),
    "op": (ReductionOp, ErrorCode.RED_TYPE),
}


class TypedOperands:
    """Base of all requests: sequences of integers become tuples of ``int``, buffers ``bytes``.

    Raises
    ------
    TmaError
        If a tensor map or a sequence has a wrong type. Integers are checked by `require_types`.
    """

    converted: ClassVar[tuple[str, ...]] = ()
    """Operands that the constructor converts."""

    def __post_init__(self) -> None:
        for name in self.converted:
            value = getattr(self, name)
            kind = type(value)
            if kind is bytes or kind is TensorMap or (kind is tuple and are_ints(value)):
                continue  # the usual types, without a call: requests are made often
            object.__setattr__(self, name, _stored(name, value))


def require_types(request: object) -> None:
    """Refuse an object that is no request, and a request that has an operand of a wrong type.

    Raises
    ------
    TmaError
        With the code of the operand's rule.
    """
    if not isinstance(request, TypedOperands):
        limit = "must be a request, such as Load"
        raise TmaError(ErrorCode.MAP_MODE, "request", 0, limit, shown=shown(request))
    for operand in fields(request):  # type: ignore[arg-type]
        value = getattr(request, operand.name)
        if value is not None or operand.default is not None:
            _stored(operand.name, value)


def _stored(name: str, value: object) -> object:
    """Return an operand in the type in which it is stored, or raise the code of its rule."""
    if name == "tensor_map":
        is_map = isinstance(value, TensorMap | Descriptor)
        return value if is_map else raw_bytes(name, value)
    if name in _SEQUENCES:
        return any_integers(_SEQUENCES[name], name, value)
    if name in _MEMBERS:
        kind, code = _MEMBERS[name]
        if not isinstance(value, kind):
            limit = f"must be a member of {kind.__name__}"
            raise TmaError(code, name, 0, limit, shown=shown(value))
        return value
    if name == "override":
        if not isinstance(value, Override):
            raise TmaError(ErrorCode.OVERRIDE, name, 0, "must be an Override", shown=shown(value))
        return value
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise TmaError(_FLAGS[name], name, 0, "must be True or False", shown=shown(value))
        return value
    return any_integer(_INTEGERS[name], name, value)


@dataclass(frozen=True)
class Override:
    """Values that a request uses instead of those of its tensor map (PTX ISA, ``SM_107A``).

    Parameters
    ----------
    global_address : int
        ``.override::global_address``. The 128 KiB from it must exist.
    global_dim : tuple of int
        ``.override::global_dim`` or ``.override::global_dim_stride``: 8 bits for each extent, 1 to
        255. Empty: the extents and strides are those of the map. An extent of 0 is refused
        (choice).
    lower_strides : tuple of int
        32 bits for each dimension from 1 on: bits 35:4 of its stride.
    upper_strides : int
        4 bits for each dimension from 1 on, the first lowest: bits 39:36 of its stride.

    Raises
    ------
    TmaError
        OVERRIDE or LENGTH, if an operand cannot hold the value.

    Examples
    --------
    >>> Override(0x1000, (64, 8), (0x10,), 0x1).global_strides == (0x100 + (1 << 36),)
    True
    """

    global_address: int
    global_dim: tuple[int, ...] = ()
    lower_strides: tuple[int, ...] = ()
    upper_strides: int = 0

    def __post_init__(self) -> None:
        code, rank = ErrorCode.OVERRIDE, len(sequence("global_dim", self.global_dim))
        strides = max(rank - 1, 0)
        checked = {
            "global_address": integer(
                code, "global_address", self.global_address, 0, (1 << 64) - 1
            ),
            "global_dim": integers(code, "global_dim", self.global_dim, rank, 1, 255),
            "lower_strides": integers(
                code, "lower_strides", self.lower_strides, strides, 0, (1 << 32) - 1
            ),
            "upper_strides": integer(
                code, "upper_strides", self.upper_strides, 0, (1 << 4 * strides) - 1
            ),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def global_strides(self) -> tuple[int, ...]:
        """Strides of the dimensions from 1 on, in bytes."""
        return tuple(
            (lower | (self.upper_strides >> 4 * i & 15) << 32) << 4
            for i, lower in enumerate(self.lower_strides)
        )

    def applied(self, d: Descriptor) -> Descriptor:
        """Return a tensor map with these values.

        Raises
        ------
        TmaError
            OVERRIDE, if there are extents, but not as many as the map has dimensions.
        """
        words = list(d.words)
        words[0], words[1] = self.global_address & 0xFFFFFFFF, self.global_address >> 32
        if self.global_dim:
            count, limit = len(self.global_dim), f"must be {d.rank}, the rank of the map"
            if count != d.rank:
                raise TmaError(ErrorCode.OVERRIDE, "len(global_dim)", count, limit)
            words[3 : 3 + len(self.lower_strides)] = self.lower_strides
            words[7] = self.upper_strides
            words[8 : 8 + count] = (extent - 1 for extent in self.global_dim)
        return Descriptor(tuple(words))


@dataclass(frozen=True)
class TensorRequest(TypedOperands):
    """Operands of all requests with a tensor map.

    Parameters
    ----------
    tensor_map : TensorMap or Descriptor or bytes
        Tensor map, legal or not.
    coords : tuple of int
        Start of the box.
    mode : AccessMode, optional
        Access mode; None is the map's own, tile or im2col.
    override : Override, optional
        Values that replace some of the map (PTX ISA, ``SM_107A``).
    """

    tensor_map: AnyMap
    coords: tuple[int, ...]
    mode: AccessMode | None = None
    override: Override | None = field(default=None, kw_only=True)

    writes_gmem: ClassVar[bool] = False
    converted: ClassVar[tuple[str, ...]] = ("tensor_map", "coords")

    @property
    def descriptor(self) -> Descriptor:
        """Words w0 to w15 of the tensor map, after the override."""
        d = as_descriptor(self.tensor_map)
        return d if self.override is None else self.override.applied(d)


@dataclass(frozen=True)
class TensorWalk(TensorRequest):
    """Operands of tensor loads and prefetches: im2col offsets.

    Parameters
    ----------
    im2col_offsets : tuple of int
        One offset for each spatial dimension, W first; an empty tuple is zeros (IM2COL only).
    w_halo, w_offset : int
        Halo and offset of ``im2col::w`` and ``im2col::w::128`` (PTX ISA, later than Hopper).
    """

    im2col_offsets: tuple[int, ...] = ()
    w_halo: int = 0
    w_offset: int = 0

    converted: ClassVar[tuple[str, ...]] = ("tensor_map", "coords", "im2col_offsets")


@dataclass(frozen=True)
class Load(TensorWalk):
    """``cp.async.bulk.tensor``, global to shared memory (silicon: tile, im2col, multicast).

    Parameters
    ----------
    smem_address, mbarrier : int
        Byte offsets of box and mbarrier, the same in each destination.
    cta_mask : int, optional
        Multicast: bit i is set if CTA i receives the box. With no bit set, the request does
        nothing (silicon).
    dst_cta : int, optional
        Destination (``.shared::cluster``); None is the issuing CTA (``.shared::cta``). No effect
        with ``cta_mask`` (silicon).
    mbarrier_cta : int, optional
        CTA bits of the mbarrier's address. They have no effect (silicon): the mbarrier is in each
        destination. Only with ``cta_group`` 2, they name the CTA that holds it.
    cta_group : int
        2 is ``.cta_group::2``: the mbarrier may be in the other CTA of a pair (PTX ISA, later than
        Hopper).
    multicast_32b : bool
        ``.multicast::cluster::32b``: ``cta_mask`` has 32 bits instead of 16 (PTX ISA, ``SM_107A``).
    report : ReportMechanism
        Pattern that the load reports to the mbarriers of its receivers, which need layout v1 (PTX
        ISA, ``SM_107A``).
    """

    smem_address: int = 0
    mbarrier: int = 0
    cta_mask: int | None = None
    dst_cta: int | None = None
    mbarrier_cta: int | None = None
    cta_group: int = 1
    multicast_32b: bool = field(default=False, kw_only=True)
    report: ReportMechanism = field(default=ReportMechanism.DISABLED, kw_only=True)


@dataclass(frozen=True)
class Prefetch(TensorWalk):
    """``cp.async.bulk.prefetch.tensor``: checked like a load, without effect on data (PTX ISA).

    ``evict_last`` is ``.L2::evict_last`` (``SM_107A``).
    """

    evict_last: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class ApplyPriority(TensorWalk):
    """``applypriority.async.bulk.tensor.L2::evict_normal``: a prefetch's last use (PTX ISA).

    It needs ``SM_107A`` and has no effect on data, but joins a bulk group. It is checked like a
    prefetch (choice).
    """


@dataclass(frozen=True)
class Store(TensorRequest):
    """``cp.async.bulk.tensor``, shared to global memory; im2col is ``im2col_no_offs`` (silicon)."""

    smem_address: int = 0

    writes_gmem: ClassVar[bool] = True


@dataclass(frozen=True)
class Reduce(Store):
    """``cp.reduce.async.bulk.tensor``: a store that combines with global memory (silicon)."""

    op: ReductionOp = ReductionOp.ADD


@dataclass(frozen=True)
class BulkLoad(TypedOperands):
    """``cp.async.bulk``, global to shared memory (silicon).

    Parameters
    ----------
    gmem_address, smem_address : int
        Addresses, multiples of 16.
    size : int
        Number of bytes, of which bits 19:4 count; see `moved_bytes`. With no byte, the mbarrier
        is not signalled (silicon).
    mbarrier, cta_mask, dst_cta, mbarrier_cta
        As in `Load`.
    ignore_first, ignore_last : int
        ``.ignore_oob``: number of bytes at the start and the end, 0 to 15, that are not read, but
        counted (PTX ISA). Their place in shared memory stays unchanged (choice).
    multicast_32b, report
        As in `Load`.
    ordering : Ordering, optional
        ``.weak`` or ``.relaxed`` with a scope; None: PTX has no such qualifier, which is weak (PTX
        ISA 9.3; not on ``SM_120A``).
    """

    gmem_address: int
    smem_address: int
    size: int
    mbarrier: int = 0
    cta_mask: int | None = None
    dst_cta: int | None = None
    mbarrier_cta: int | None = None
    ignore_first: int = 0
    ignore_last: int = 0
    multicast_32b: bool = field(default=False, kw_only=True)
    report: ReportMechanism = field(default=ReportMechanism.DISABLED, kw_only=True)
    ordering: Ordering | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class BulkPrefetch(TypedOperands):
    """``cp.async.bulk.prefetch.L2``: checked, without effect on data (PTX ISA).

    ``evict_last`` is ``.L2::evict_last`` (``SM_107A``).
    """

    gmem_address: int
    size: int
    evict_last: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class BulkApplyPriority(TypedOperands):
    """``applypriority.async.bulk.L2::evict_normal``, as `ApplyPriority` (PTX ISA, ``SM_107A``)."""

    gmem_address: int
    size: int


@dataclass(frozen=True)
class BulkStore(TypedOperands):
    """``cp.async.bulk``, shared to global memory (silicon).

    ``byte_mask`` is ``.cp_mask``: byte i of each 16 bytes is written if bit i is set (PTX ISA,
    later than Hopper). ``ordering`` is as in `BulkLoad`.
    """

    gmem_address: int
    smem_address: int
    size: int
    byte_mask: int = 0xFFFF
    ordering: Ordering | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class BulkReduce(TypedOperands):
    """``cp.reduce.async.bulk``, shared to global memory (silicon).

    ``noftz`` is ``.noftz``: an addition of FLOAT16, BFLOAT16 or FLOAT32 keeps subnormals, as it
    does without (silicon). PTX requires it for the first two; None: where it is required.
    ``ordering`` is ``.relaxed`` with a scope; None is RELAXED_SYS (PTX ISA).
    """

    gmem_address: int
    smem_address: int
    size: int
    data_type: DataType
    op: ReductionOp
    noftz: bool | None = field(default=None, kw_only=True)
    ordering: Ordering | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class DsmemCopy(TypedOperands):
    """``cp.async.bulk.shared::cluster.shared::cta``: to a CTA of the cluster (silicon).

    ``dst_address`` and ``mbarrier`` are byte offsets in ``dst_cta``, which may be the issuing CTA;
    ``smem_address`` is one in the issuing CTA. Silicon refuses the request in a launch without a
    cluster; one CTA may be a cluster. ``size`` is as in `BulkLoad`. ``mbarrier_cta``, the
    CTA bits of the mbarrier's address, has no effect. ``ordering`` is as in `BulkLoad`, with the
    scope of the CTA or the cluster.
    """

    dst_cta: int
    dst_address: int
    smem_address: int
    size: int
    mbarrier: int = 0
    mbarrier_cta: int | None = None
    ordering: Ordering | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class DsmemReduce(DsmemCopy):
    """``cp.reduce.async.bulk.shared::cluster.shared::cta``: integers only (silicon)."""

    data_type: DataType = DataType.UINT32
    op: ReductionOp = ReductionOp.ADD


Request = (
    Load
    | Prefetch
    | ApplyPriority
    | Store
    | Reduce
    | BulkLoad
    | BulkPrefetch
    | BulkApplyPriority
    | BulkStore
    | BulkReduce
    | DsmemCopy
    | DsmemReduce
)
"""Any request of the unit."""


@dataclass(frozen=True)
class Completion:
    """A ``complete_tx`` of ``bytes`` bytes, at the mbarrier at offset ``mbarrier`` of ``cta``.

    ``reports``: before it, the request reports to the mbarrier that its data is not valid.
    """

    cta: int
    mbarrier: int
    bytes: int
    reports: bool = field(default=False, repr=False)
