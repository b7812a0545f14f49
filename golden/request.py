"""Requests: the operands that an instruction passes to the unit, one class for each PTX family.

Shared-memory addresses are byte offsets in a CTA's window; global addresses have 64 bits.
Coordinates are in elements, innermost first. A CTA is given by its rank in the cluster.
"""

from dataclasses import dataclass, fields
from typing import ClassVar

from golden.descriptor import Descriptor
from golden.enums import AccessMode, DataType, Named, ReductionOp
from golden.errors import ErrorCode, TmaError
from golden.fields import any_integer, any_integers, are_ints, raw_bytes, shown
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
_MEMBERS: dict[str, tuple[type[Named], ErrorCode]] = {
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
    for field in fields(request):  # type: ignore[arg-type]
        value = getattr(request, field.name)
        if value is not None or field.default is not None:
            _stored(field.name, value)


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
    return any_integer(_INTEGERS[name], name, value)


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
    """

    tensor_map: AnyMap
    coords: tuple[int, ...]
    mode: AccessMode | None = None

    writes_gmem: ClassVar[bool] = False
    converted: ClassVar[tuple[str, ...]] = ("tensor_map", "coords")


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
        Destination (``.shared::cluster``); None is the issuing CTA. No effect with ``cta_mask``
        (silicon).
    mbarrier_cta : int, optional
        CTA bits of the mbarrier's address. They have no effect (silicon): the mbarrier is in each
        destination. Only with ``cta_group`` 2, they name the CTA that holds it.
    cta_group : int
        2 is ``.cta_group::2``: the mbarrier may be in the other CTA of a pair (PTX ISA, later than
        Hopper).
    """

    smem_address: int = 0
    mbarrier: int = 0
    cta_mask: int | None = None
    dst_cta: int | None = None
    mbarrier_cta: int | None = None
    cta_group: int = 1


@dataclass(frozen=True)
class Prefetch(TensorWalk):
    """``cp.async.bulk.prefetch.tensor``: checked like a load, without effect on data (PTX ISA)."""


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


@dataclass(frozen=True)
class BulkPrefetch(TypedOperands):
    """``cp.async.bulk.prefetch.L2``: checked, without effect on data (PTX ISA)."""

    gmem_address: int
    size: int


@dataclass(frozen=True)
class BulkStore(TypedOperands):
    """``cp.async.bulk``, shared to global memory (silicon).

    ``byte_mask`` is ``.cp_mask``: byte i of each 16 bytes is written if bit i is set (PTX ISA,
    later than Hopper).
    """

    gmem_address: int
    smem_address: int
    size: int
    byte_mask: int = 0xFFFF


@dataclass(frozen=True)
class BulkReduce(TypedOperands):
    """``cp.reduce.async.bulk``, shared to global memory (silicon)."""

    gmem_address: int
    smem_address: int
    size: int
    data_type: DataType
    op: ReductionOp


@dataclass(frozen=True)
class DsmemCopy(TypedOperands):
    """``cp.async.bulk.shared::cluster.shared::cta``: to a CTA of the cluster (silicon).

    ``dst_address`` and ``mbarrier`` are byte offsets in ``dst_cta``, which may be the issuing CTA;
    ``smem_address`` is one in the issuing CTA. Silicon refuses the request in a launch without a
    cluster; one CTA may be a cluster. ``size`` is as in `BulkLoad`. ``mbarrier_cta``, the
    CTA bits of the mbarrier's address, has no effect.
    """

    dst_cta: int
    dst_address: int
    smem_address: int
    size: int
    mbarrier: int = 0
    mbarrier_cta: int | None = None


@dataclass(frozen=True)
class DsmemReduce(DsmemCopy):
    """``cp.reduce.async.bulk.shared::cluster.shared::cta``: integers only (silicon)."""

    data_type: DataType = DataType.UINT32
    op: ReductionOp = ReductionOp.ADD


Request = (
    Load
    | Prefetch
    | Store
    | Reduce
    | BulkLoad
    | BulkPrefetch
    | BulkStore
    | BulkReduce
    | DsmemCopy
    | DsmemReduce
)
"""Any request of the unit."""


@dataclass(frozen=True)
class Completion:
    """A ``complete_tx`` of ``bytes`` bytes, at the mbarrier at offset ``mbarrier`` of ``cta``."""

    cta: int
    mbarrier: int
    bytes: int
