"""Requests: what an instruction hands to the unit, one class for each of PTX's families.

Shared-memory addresses are byte offsets in a CTA's window, global ones are 64 bits. Coordinates are
innermost first, in elements. CTAs are named by their rank in the cluster.
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
    """What all requests with a tensor map have.

    ``mode`` None is the map's own, tile or im2col.
    """

    tensor_map: AnyMap
    coords: tuple[int, ...]
    mode: AccessMode | None = None

    writes_gmem: ClassVar[bool] = False


@dataclass(frozen=True)
class TensorWalk(TensorRequest):
    """What loads and prefetches have besides: offsets of im2col.

    Parameters
    ----------
    im2col_offsets : tuple of int
        One for each spatial dimension, W first; none is zeros (IM2COL only).
    w_halo, w_offset : int
        Of ``im2col::w`` and ``im2col::w::128`` (PTX ISA, later than Hopper).
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
        In each destination.
    cta_mask : int, optional
        Multicast: the CTAs that receive the box, at the same addresses.
    dst_cta : int, optional
        Without multicast: a CTA of the cluster (``.shared::cluster``); the issuer's if None.
    mbarrier_cta : int, optional
        The CTA that holds the barrier; the destination if None.
    cta_group : int
        2: ``.cta_group::2``, signals may go to the peer of a pair (PTX ISA, later than Hopper).
    """

    smem_address: int = 0
    mbarrier: int = 0
    cta_mask: int | None = None
    dst_cta: int | None = None
    mbarrier_cta: int | None = None
    cta_group: int = 1


@dataclass(frozen=True)
class Prefetch(TensorWalk):
    """``cp.async.bulk.prefetch.tensor``: checked like a load, and without effect (PTX ISA)."""


@dataclass(frozen=True)
class Store(TensorRequest):
    """``cp.async.bulk.tensor``, shared to global memory; im2col is ``im2col_no_offs`` (silicon)."""

    smem_address: int = 0

    writes_gmem: ClassVar[bool] = True


@dataclass(frozen=True)
class Reduce(Store):
    """``cp.reduce.async.bulk.tensor``: like a store, with arithmetic at memory (silicon)."""

    op: ReductionOp = ReductionOp.ADD


@dataclass(frozen=True)
class BulkLoad:
    """``cp.async.bulk``, global to shared memory (silicon: unicast).

    Parameters
    ----------
    gmem_address, smem_address, size : int
        Bytes, multiples of 16.
    mbarrier, cta_mask, dst_cta, mbarrier_cta
        As for `Load`.
    ignore_first, ignore_last : int
        ``.ignore_oob``: bytes at either end, 0 to 15, that are neither read nor written, but
        counted (PTX ISA; that they stay as they were: choice).
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
    """``cp.async.bulk.prefetch.L2``: checked, and without effect (PTX ISA)."""

    gmem_address: int
    size: int


@dataclass(frozen=True)
class BulkStore:
    """``cp.async.bulk``, shared to global memory (silicon).

    ``byte_mask`` is ``.cp_mask``: byte i of each 16 is written where bit i is set (PTX ISA, later
    than Hopper).
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

    ``dst_address`` and ``mbarrier`` are in ``dst_cta``.
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


@dataclass(frozen=True)
class Completion:
    """A ``complete_tx``: ``bytes`` at the barrier at ``mbarrier`` of ``cta``."""

    cta: int
    mbarrier: int
    bytes: int
