"""Payloads of the unit's ports: requests, tensor maps, global and shared memory, errors."""

from functools import cache

from amaranth.hdl import Const, ShapeLike, Value, signed
from amaranth.lib import data

from hw.layouts.isa import (
    BULK_SIZE_BITS,
    CTA_FIELD_BITS,
    GLOBAL_ADDRESS_BITS,
    PIECE_WORDS,
    AccessMode,
    ElementType,
    ErrorCode,
    MemoryAttributes,
    Operation,
    Reduction,
    ReductionOp,
    ReportMechanism,
)
from hw.params import DIMS, PIECE_BYTES, SMEM_OFFSET_BITS, TmaParams

IGNORED_BITS = (PIECE_BYTES - 1).bit_length()
"""Width of a number of bytes that ``.ignore_oob`` ignores: less than a piece."""

OVERRIDE_STRIDES = DIMS - 1
"""Strides of a tensor, one for each dimension from 1 on."""


def control_rows(params: TmaParams) -> int:
    """Return the rows of the deepest memory that is cleared after a reset."""
    threads = params.threads if params.stores else 0
    return max(params.requests_in_flight, params.tags, threads)


@cache
def clear_layout(params: TmaParams) -> data.StructLayout:
    """A row of the control memories that is cleared; see ``hw.front.startup``.

    Members
    -------
    enabled : the row is cleared in this clock; nothing else is written
    row : number of the row, modulo the rows of each memory
    """
    return data.StructLayout({"enabled": 1, "row": (control_rows(params) - 1).bit_length()})


@cache
def override_layout() -> data.StructLayout:
    """Values that a tensor request uses instead of those of its tensor map.

    Members
    -------
    enabled : 1 if there is an ``.override::global_address``
    has_extents : 1 if there is an ``.override_attribute`` as well, with all extents and strides
    global_address : address of the tensor
    global_dim : extents, dimension 0 first, 1 to 255
    lower_strides : bits 35:4 of the strides of the dimensions from 1 on
    upper_strides : bits 39:36 of these strides, that of dimension 1 lowest
    """
    return data.StructLayout(
        {
            "enabled": 1,
            "has_extents": 1,
            "global_address": GLOBAL_ADDRESS_BITS,
            "global_dim": data.ArrayLayout(8, DIMS),
            "lower_strides": data.ArrayLayout(32, OVERRIDE_STRIDES),
            "upper_strides": 4 * OVERRIDE_STRIDES,
        }
    )


@cache
def request_layout(params: TmaParams) -> data.StructLayout:
    """Request: one instruction of one thread.

    A request uses the members that its ``operation`` needs; the unit ignores the others.

    Members
    -------
    operation : operation, as `Operation` lists them
    request_id : number that the issuer chooses; an error record returns it
    global_address : tensor request: address of the tensor map, a multiple of 64. Bulk request:
        global address of the first byte, a multiple of 16. DSMEM request: byte offset of the
        destination in the shared memory of ``dst_cta``, a multiple of 16
    size : bytes of a bulk or DSMEM request: bits 19:4 of the instruction's operand count, and the
        others are ignored
    mode : access mode of a tensor request
    rank : number of coordinates of a tensor request, 1 to 5
    coords : coordinates of a tensor request: the first element of the box, dimension 0 first. With
        TILE_GATHER4 and TILE_SCATTER4: one column, then four rows
    im2col_info : im2col operands of a tensor load or prefetch. IM2COL: the offsets, W first.
        IM2COL_W and IM2COL_W_128: wHalo, then wOffset
    cache_policy : operand of ``.L2::cache_hint``; 0 if the instruction has none
    smem_address : byte offset in shared memory: destination of a load, source of a store,
        reduction or DSMEM request
    mbarrier : byte offset of the mbarrier that counts the bytes of a load or DSMEM request
    multicast : 1 if a load writes the shared memory of every CTA of ``cta_mask``
    cta_mask : destination CTAs of a multicast load, one bit per CTA rank
    dst_cta : rank of the destination CTA of a DSMEM request or of a load without ``multicast``. The
        mbarrier is in each destination CTA
    mbarrier_cta : with ``cta_group_2``, rank of the CTA that holds the mbarrier; otherwise ignored
    cta_group_2 : ``.cta_group::2``: 1 if the mbarrier may be in the other CTA of the pair
    reduction_op : operation of a reduction
    element_type : element type of a bulk reduction; a tensor reduction has that of its tensor map
    byte_mask : bytes that a bulk store writes: bit i selects byte i of every 16 bytes
    thread : number of the issuing thread, which owns the bulk groups
    joins_group : 1 if a load joins the bulk group of its thread, until its tensor map has been
        read. Stores and reductions always join it, until their writes are performed
    groups : operand N of WAIT_GROUP and WAIT_GROUP_READ: number of youngest committed groups that
        may still be pending when the wait ends
    ignore_first, ignore_last : ``.ignore_oob`` of a bulk load: bytes at the start and at the end
        that need not exist; present with ``ignore_oob``
    map_override : see `override_layout`; present with ``override``
    report : pattern that a load reports to its barriers; present with ``report_mechanism``
    """
    later: dict[str, ShapeLike] = {}
    if params.ignore_oob:
        later |= {"ignore_first": IGNORED_BITS, "ignore_last": IGNORED_BITS}
    if params.override:
        later["map_override"] = override_layout()
    if params.report_mechanism:
        later["report"] = ReportMechanism
    return data.StructLayout(
        {
            "operation": Operation,
            "request_id": params.request_id_bits,
            "global_address": GLOBAL_ADDRESS_BITS,
            "size": BULK_SIZE_BITS,
            "mode": AccessMode,
            "rank": 3,
            "coords": data.ArrayLayout(signed(32), DIMS),
            "im2col_info": data.ArrayLayout(16, 3),
            "cache_policy": 64,
            "smem_address": SMEM_OFFSET_BITS,
            "mbarrier": SMEM_OFFSET_BITS,
            "multicast": 1,
            "cta_mask": params.mask_bits,
            "dst_cta": CTA_FIELD_BITS,
            "mbarrier_cta": CTA_FIELD_BITS,
            "cta_group_2": 1,
            "reduction_op": ReductionOp,
            "element_type": ElementType,
            "byte_mask": PIECE_BYTES,
            "thread": params.thread_bits,
            "joins_group": 1,
            "groups": 8,
            **later,
        }
    )


@cache
def group_result_layout(params: TmaParams) -> data.StructLayout:
    """End of a wait for bulk groups.

    Members
    -------
    thread : number of the thread that waited
    request_id : ``request_id`` of its WAIT_GROUP or WAIT_GROUP_READ
    """
    return data.StructLayout({"thread": params.thread_bits, "request_id": params.request_id_bits})


SECTOR_BYTES = 32
"""Bytes of a sector, the unit of a memory-side reduction."""


@cache
def reduction_request_layout(params: TmaParams) -> data.StructLayout:
    """Reduction of one sector of 32 bytes in global memory.

    Members
    -------
    tag : number that the requester chooses; the answer returns it
    sector : global address divided by 32
    op, element_type : operation and element type
    pieces : pieces of 16 bytes that are reduced: bit i selects bytes 16 * i to 16 * i + 15
    data : source operands, byte 0 first
    """
    return data.StructLayout(
        {
            "tag": params.tag_bits,
            "sector": params.address_bits - 5,
            "op": ReductionOp,
            "element_type": ElementType,
            "pieces": SECTOR_BYTES // PIECE_BYTES,
            "data": SECTOR_BYTES * 8,
        }
    )


def issuer_field(params: TmaParams) -> dict[str, int]:
    """Return the field ``cta``, the rank of the issuing CTA; no field in a unit of one CTA."""
    return {"cta": params.cta_bits} if params.ctas > 1 else {}


def holder_field(params: TmaParams) -> dict[str, int]:
    """Return the field ``holder``, the rank of the CTA that holds a barrier.

    It is present with ``cta_group_2``. Without it, a barrier counts what its own CTA receives.
    """
    return {"holder": params.cta_bits} if params.cta_group_2 else {}


def reports_field(params: TmaParams) -> dict[str, int]:
    """Return the field ``reports``: data of a load has the pattern that the load reports.

    It is present with ``report_mechanism``.
    """
    return {"reports": 1} if params.report_mechanism else {}


def decode_field(params: TmaParams) -> dict[str, int]:
    """Return the field ``decode``: no memory is at the address (DECERR).

    It counts beside an error, which without it is one of the memory there (SLVERR). It is present
    with an AXI4 port.
    """
    return {"decode": 1} if params.axi_data_bits else {}


@cache
def error_layout(params: TmaParams) -> data.StructLayout:
    """Error of a refused or failed request, or of an answer that belongs to none.

    Members
    -------
    request_id : ``request_id`` of the request; 0 with WRONG_TAG
    code : first cause that applies, in the order of `ErrorCode`
    dim : dimension of the offending value, or 0; with MBAR_FAULT, the `BarrierFault`; with
        WRONG_TAG, 0 for the answer to a read and 1 for that to a write; with GMEM_FAULT, the
        `PageFault`, or behind AXI4 the `Response`
    value : offending value, in two's complement if the field is signed
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "code": ErrorCode,
            "dim": 3,
            "value": GLOBAL_ADDRESS_BITS,
        }
    )


@cache
def error_record_layout(params: TmaParams) -> data.StructLayout:
    """Error record: an error as the unit reports it to its SM.

    In a cluster it also has ``cta``, the rank of the CTA that issued the request: the SM that holds
    an mbarrier reports its faults, also those of requests from other CTAs.

    Members
    -------
    request_id, code, dim, value : as in `error_layout`
    cta : rank of the issuing CTA; present if ``ctas`` is above 1
    """
    return data.StructLayout({**error_layout(params).members, **issuer_field(params)})


class DescriptorInvalidate(data.Struct):
    """Invalidation of cached tensor maps: ``fence.proxy.tensormap`` acquire, or a kernel start.

    Members
    -------
    address : address of the tensor map that is invalidated
    all : 1 if all tensor maps are invalidated, and ``address`` is ignored
    """

    address: GLOBAL_ADDRESS_BITS
    all: 1


@cache
def descriptor_fill_layout(params: TmaParams) -> data.StructLayout:
    """Answer to a read of a tensor map.

    Members
    -------
    words : words w0 to w15
    error : 1 if the tensor map could not be read; then ``words`` are undefined
    decode : see `decode_field`
    """
    return data.StructLayout(
        {"words": data.ArrayLayout(32, 16), "error": 1, **decode_field(params)}
    )


@cache
def gnic_request_layout(params: TmaParams) -> data.StructLayout:
    """Read of one line of global memory.

    Members
    -------
    tag : number of the read, unique among the reads in flight; the response returns it
    line : global address divided by ``line_bytes``
    prefetch : 1 if the line is only brought to L2: there is no response, and ``tag`` is undefined
    attributes : cache hints
    """
    return data.StructLayout(
        {
            "tag": params.tag_bits,
            "line": params.line_address_bits,
            "prefetch": 1,
            "attributes": MemoryAttributes,
        }
    )


def is_unanswered(access: data.View) -> Value:
    """Return 1 if an access has no answer: a prefetch, at the port that has them."""
    return access.prefetch if "prefetch" in access.shape().members else Const(0)


@cache
def gnic_response_layout(params: TmaParams) -> data.StructLayout:
    """Response to a read of a line; responses may come in any order.

    Members
    -------
    tag : ``tag`` of the read
    error : 1 if the line could not be read; then ``data`` is undefined
    decode : see `decode_field`
    data : bytes of the line, byte 0 first
    """
    return data.StructLayout(
        {
            "tag": params.tag_bits,
            "error": 1,
            **decode_field(params),
            "data": params.line_bytes * 8,
        }
    )


@cache
def smem_write_layout(params: TmaParams) -> data.ArrayLayout:
    """Write to shared memory: every lane writes up to 16 bytes, each at its own beat.

    Lane i is bytes 16 * i to 16 * i + 15 of every beat. A beat is ``line_bytes`` aligned bytes.

    Members
    -------
    valid : 1 if the lane writes
    words : words of 4 bytes that are written, one bit per word; only packed types and
        ``st.async`` write fewer than all four
    beat : byte offset in shared memory divided by ``line_bytes``
    data : 16 bytes, byte 0 first
    """
    lane = data.StructLayout(
        {"valid": 1, "words": PIECE_WORDS, "beat": params.smem_beat_bits, "data": PIECE_BYTES * 8}
    )
    return data.ArrayLayout(lane, params.lanes)


@cache
def gnic_write_layout(params: TmaParams) -> data.StructLayout:
    """Write to a line of global memory, or reduction of a line.

    Members
    -------
    tag : number of the write, unique among the writes in flight; the answer returns it
    line : global address divided by ``line_bytes``
    attributes : cache hints
    reduction : operation, if memory combines the bytes with those it holds
    strobe : bytes that are written, one bit per byte; a reduction selects whole pieces of 16 bytes
    data : bytes of the line, byte 0 first
    """
    return data.StructLayout(
        {
            "tag": params.tag_bits,
            "line": params.line_address_bits,
            "attributes": MemoryAttributes,
            "reduction": Reduction,
            "strobe": params.line_bytes,
            "data": params.line_bytes * 8,
        }
    )


@cache
def gnic_ack_layout(params: TmaParams) -> data.StructLayout:
    """Answer to a write or reduction of a line: it is performed.

    Members
    -------
    tag : ``tag`` of the write
    error : 1 if the write failed and changed nothing
    decode : see `decode_field`
    """
    return data.StructLayout({"tag": params.tag_bits, "error": 1, **decode_field(params)})


@cache
def smem_read_layout(params: TmaParams) -> data.ArrayLayout:
    """Read of shared memory: every lane reads 16 bytes, each of its own beat.

    Members
    -------
    valid : 1 if the lane reads
    beat : byte offset in shared memory divided by ``line_bytes``
    """
    lane = data.StructLayout({"valid": 1, "beat": params.smem_beat_bits})
    return data.ArrayLayout(lane, params.lanes)


def assign_lanes(lanes, others) -> list:
    """Return the assignments of the lanes of a port to ``lanes``, whose beats may be narrower or
    wider, as those of a context and of all contexts are.
    """
    return [
        lane[name].eq(other[name])
        for lane, other in zip(lanes, others, strict=True)
        for name in lane.shape().members
    ]


@cache
def lanes_layout(params: TmaParams) -> data.ArrayLayout:
    """Bytes of a line or beat as an array of pieces: element i is bytes 16 * i to 16 * i + 15."""
    return data.ArrayLayout(PIECE_BYTES * 8, params.lanes)
