"""Payloads of the front end for hosts: records in memory, accesses of the AXI4-Lite port."""

from functools import cache

from amaranth.hdl import Shape, ShapeLike, signed
from amaranth.lib import data, enum

from hw.layouts.barriers import BARRIER_COUNT_BITS
from hw.layouts.isa import (
    GLOBAL_ADDRESS_BITS,
    AccessMode,
    ElementType,
    ReductionOp,
)
from hw.params import DIMS, PIECE_BYTES, SMEM_OFFSET_BITS, TmaParams

RECORD_BYTES = 64
"""Bytes of a request record, which is as long as the part of a tensor map that the unit reads."""

COMPLETION_BYTES = 16
"""Bytes of a completion record."""

INDEX_BITS = 15
"""Width of the index of a record in its ring."""

WINDOW_BITS = 20
"""Bits of an address in the window on shared memory; one more bit tells it from the registers."""

BUS_ADDRESS_BITS = WINDOW_BITS + 1
"""Width of an address of the AXI4-Lite port."""

BUS_BITS = 32
"""Width of the data of the AXI4-Lite port."""

BARRIER_OPERATIONS = 0x10
"""Number of the first mbarrier operation in ``operation``; others follow as in ``BarrierOp``."""


class MapOperation(enum.Enum, shape=8):
    """Operations of the descriptor cache in ``operation`` of a request record."""

    INVALIDATE_MAP = 0x20
    INVALIDATE_ALL_MAPS = 0x21
    PREFETCH_MAP = 0x22


class HostError(enum.Enum, shape=4):
    """Cause of an error of the host's; docs/host.md has a table of them.

    Those up to COMPLETION_RING are in the register ERROR. The others refuse a request record.
    """

    NONE = 0
    ADDRESS = 1
    READ_ONLY = 2
    PARTIAL_WRITE = 3
    RING_STATE = 4
    RING_BASE = 5
    RING_SIZE = 6
    RING_INDEX = 7
    REQUEST_RING = 8
    COMPLETION_RING = 9
    RESERVED_BITS = 10
    OPERATION = 11
    MBARRIER = 12


class CompletionKind(enum.Enum, shape=8):
    """Event that a completion record reports."""

    BARRIER = 0
    GROUP = 1
    ERROR = 2
    REFUSED = 3


class RecordFlags(data.Struct):
    """Flags of a request record.

    Members
    -------
    fence : 1 if the record is begun when all records before it have ended
    notify : 1 if a barrier operation gives a completion record; a TRY_WAIT at the end of the wait
    joins_group : as in ``request_layout``
    v1 : as in ``BarrierCommand``
    """

    fence: 1
    notify: 1
    joins_group: 1
    v1: 1


@cache
def record_layout(params: TmaParams) -> data.FlexibleLayout:
    """Request record: an operation that a host asks for. Bits outside of its members must be 0.

    Members
    -------
    operation : an `Operation` up to WAIT_GROUP_READ, `BARRIER_OPERATIONS` and a `BarrierOp`, or a
        `MapOperation`
    flags : see `RecordFlags`
    request_id : number that a completion record returns
    mode, rank, element_type, reduction_op, thread, cache_policy, byte_mask : as in
        ``request_layout``
    global_address : as in ``request_layout``; address of the map of a `MapOperation`; ``state`` of
        a barrier operation
    smem_address : as in ``request_layout``
    mbarrier : as in ``request_layout``; ``address`` of a barrier operation
    size : bytes of a bulk request; ``groups`` of a wait; ``count`` of a barrier operation
    coords : as in ``request_layout``. With ``ignore_oob``, bits 3:0 of the first two are
        ``ignore_first`` and ``ignore_last`` of a bulk load. The first one is the ``time_limit`` of
        a barrier operation
    im2col_info : as in ``request_layout``
    """
    places: dict[str, tuple[int, ShapeLike]] = {  # first bit, and shape
        "operation": (0, 8),
        "flags": (8, RecordFlags),
        "request_id": (16, params.request_id_bits),
        "mode": (32, AccessMode),
        "rank": (36, 3),
        "element_type": (40, ElementType),
        "reduction_op": (44, ReductionOp),
        "thread": (48, params.thread_bits),
        "global_address": (64, GLOBAL_ADDRESS_BITS),
        "smem_address": (128, SMEM_OFFSET_BITS),
        "mbarrier": (160, SMEM_OFFSET_BITS),
        "size": (192, BARRIER_COUNT_BITS),
        "coords": (224, data.ArrayLayout(signed(32), DIMS)),
        "im2col_info": (384, data.ArrayLayout(16, 3)),
        "byte_mask": (432, PIECE_BYTES),
        "cache_policy": (448, 64),
    }
    fields = {name: data.Field(shape, offset) for name, (offset, shape) in places.items()}
    return data.FlexibleLayout(RECORD_BYTES * 8, fields)


@cache
def reserved_bits(params: TmaParams) -> int:
    """Return the mask of the bits of a request record that must be 0."""
    used = 0
    for _, field in record_layout(params):
        used |= (1 << Shape.cast(field.shape).width) - 1 << field.offset
    return ~used & (1 << RECORD_BYTES * 8) - 1


class Completion(data.Struct):
    """Completion record: an operation ended, or a request failed or was refused.

    Members
    -------
    value : BARRIER: ``state`` of its result. ERROR: ``value`` of the error record. REFUSED:
        ``operation``, ``mbarrier``, or the number of the first word with reserved bits
    request_id : ``request_id`` of the record
    kind : see `CompletionKind`
    code : BARRIER: its `BarrierFault`. ERROR: its `ErrorCode`. REFUSED: its `HostError`
    detail : BARRIER: 1 if the phase is complete. ERROR: ``dim`` of the error record
    zero : 0
    phase : 1 in the first round of the ring, 0 in the second, and so on
    """

    value: 64
    request_id: 16
    kind: CompletionKind
    code: 8
    detail: 8
    zero: 16
    phase: 8


class HostFault(data.Struct):
    """Error of a ring.

    Members
    -------
    code : cause; NONE if there is no error in this clock
    value : index of the record
    """

    code: HostError
    value: BUS_BITS


class BusAccess(data.Struct):
    """Access of the AXI4-Lite port.

    Members
    -------
    is_write : 1 for a write
    address : byte address; the low two bits do not count
    data : bytes that are written
    strobe : bytes of ``data`` that are written, one bit for each
    """

    is_write: 1
    address: BUS_ADDRESS_BITS
    data: BUS_BITS
    strobe: BUS_BITS // 8


class BusAnswer(data.Struct):
    """Answer to an access.

    Members
    -------
    error : the access was refused (SLVERR), and changed nothing
    data : bytes that were read
    """

    error: 1
    data: BUS_BITS


@cache
def completion_write_layout(params: TmaParams) -> data.StructLayout:
    """Write of a completion record.

    Members
    -------
    address : address of the record divided by ``COMPLETION_BYTES``
    record : the record
    """
    return data.StructLayout({"address": params.piece_address_bits, "record": Completion})


class CompletionAnswer(data.Struct):
    """Answer to the write of a completion record; answers come in order.

    Members
    -------
    error : 1 if the record could not be written
    """

    error: 1
