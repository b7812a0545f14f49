"""Requests: the operands that an instruction passes to the unit, one class for each PTX family.

Shared-memory addresses are byte offsets in a CTA's window; global addresses have 64 bits.
Coordinates are in elements, innermost first. A CTA is given by its rank in the cluster.
"""

from dataclasses import dataclass
from typing import ClassVar

from golden.descriptor import Descriptor
from golden.enums import AccessMode, DataType, ReductionOp
from golden.tensor_map import TensorMap

AnyMap = TensorMap | Descriptor | bytes
"""Every form in which a request may hold its tensor map."""


def as_descriptor(tensor_map: AnyMap) -> Descriptor:
    """Return the words w0 to w15 of a tensor map.

    Raises
    ------
    TmaError
        MAP_BYTES, if ``tensor_map`` is bytes and has fewer than 64.
    """
    if isinstance(tensor_map, Descriptor):
        return tensor_map
    data = tensor_map if isinstance(tensor_map, bytes) else tensor_map.encode()
    return Descriptor.from_bytes(data)


@dataclass(frozen=True)
class TensorRequest:
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


@dataclass(frozen=True)
class Load(TensorWalk):
    """``cp.async.bulk.tensor``, global to shared memory (silicon: tile, im2col, multicast).

    Parameters
    ----------
    smem_address, mbarrier : int
        Byte offsets of box and mbarrier, the same in each destination.
    cta_mask : int, optional
        Multicast: bit i is set if CTA i receives the box.
    dst_cta : int, optional
        Destination without multicast (``.shared::cluster``); None is the issuing CTA.
    mbarrier_cta : int, optional
        CTA that holds the mbarrier; None is the destination.
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
class BulkLoad:
    """``cp.async.bulk``, global to shared memory (silicon: unicast).

    Parameters
    ----------
    gmem_address, smem_address, size : int
        Addresses, and number of bytes: multiples of 16.
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
class BulkPrefetch:
    """``cp.async.bulk.prefetch.L2``: checked, without effect on data (PTX ISA)."""

    gmem_address: int
    size: int


@dataclass(frozen=True)
class BulkStore:
    """``cp.async.bulk``, shared to global memory (silicon).

    ``byte_mask`` is ``.cp_mask``: byte i of each 16 bytes is written if bit i is set (PTX ISA,
    later than Hopper).
    """

    gmem_address: int
    smem_address: int
    size: int
    byte_mask: int = 0xFFFF


@dataclass(frozen=True)
class BulkReduce:
    """``cp.reduce.async.bulk``, shared to global memory (silicon)."""

    gmem_address: int
    smem_address: int
    size: int
    data_type: DataType
    op: ReductionOp


@dataclass(frozen=True)
class DsmemCopy:
    """``cp.async.bulk.shared::cluster.shared::cta``: to another CTA of the cluster (PTX ISA).

    ``dst_address`` and ``mbarrier`` are byte offsets in ``dst_cta``; ``smem_address`` is one in the
    issuing CTA.
    """

    dst_cta: int
    dst_address: int
    smem_address: int
    size: int
    mbarrier: int = 0
    mbarrier_cta: int | None = None


@dataclass(frozen=True)
class DsmemReduce(DsmemCopy):
    """``cp.reduce.async.bulk.shared::cluster.shared::cta``: integers only (PTX ISA)."""

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
