"""Payloads of the unit's ports: requests, tensor maps, memory, shared memory, errors."""

from functools import cache

from amaranth.hdl import signed
from amaranth.lib import data

from hw.layouts.isa import (
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
)
from hw.params import DIMS, PIECE_BYTES, SMEM_OFFSET_BITS, TmaParams


@cache
def request_layout(params: TmaParams) -> data.StructLayout:
    """A request, as one thread issues it.

    Members
    -------
    operation : which; others' members do not count
    request_id : the issuer's name for it; comes back in an error record
    global_address : of a tensor's map, a multiple of 64; of bulk bytes, of 16; of a DSMEM request
        the byte offset in the shared memory of ``dst_cta``
    size : of bulk bytes, a multiple of 16
    mode : of a tensor request
    rank : of a tensor request, the number of coordinates the instruction carries, 1 to 5
    coords : first element of the box, dimension 0 first; TILE_GATHER4: a column, four rows
    im2col_info : of loads and prefetches. IM2COL: offsets, W first; others: wHalo, wOffset
    cache_policy : 64 bits of ``.L2::cache_hint``, 0 without
    smem_address : byte offset in shared memory
    mbarrier : byte offset of the barrier that counts a load's bytes
    multicast, cta_mask : a load goes to all CTAs of the mask
    dst_cta : otherwise to this one, and a DSMEM request, too
    mbarrier_cta : the CTA that holds the barrier
    cta_group_2 : ``.cta_group::2``: the barrier may be the peer's
    reduction_op : of a reduction
    element_type : of a bulk reduction; a tensor's is in its map
    byte_mask : of a bulk store: byte i of each 16 is written where bit i is set
    thread : the issuer, for its bulk groups
    joins_group : a load is in the thread's bulk group until its tensor map is read; stores always
        are, until they are done
    groups : WAIT_GROUP and WAIT_GROUP_READ: so many of the youngest groups may be pending
    """
    return data.StructLayout(
        {
            "operation": Operation,
            "request_id": params.request_id_bits,
            "global_address": GLOBAL_ADDRESS_BITS,
            "size": 32,
            "mode": AccessMode,
            "rank": 3,
            "coords": data.ArrayLayout(signed(32), DIMS),
            "im2col_info": data.ArrayLayout(16, 3),
            "cache_policy": 64,
            "smem_address": SMEM_OFFSET_BITS,
            "mbarrier": SMEM_OFFSET_BITS,
            "multicast": 1,
            "cta_mask": 16,
            "dst_cta": CTA_FIELD_BITS,
            "mbarrier_cta": CTA_FIELD_BITS,
            "cta_group_2": 1,
            "reduction_op": ReductionOp,
            "element_type": ElementType,
            "byte_mask": PIECE_BYTES,
            "thread": params.thread_bits,
            "joins_group": 1,
            "groups": 8,
        }
    )


@cache
def group_result_layout(params: TmaParams) -> data.StructLayout:
    """The wait of this thread, which it issued as ``request_id``, is over."""
    return data.StructLayout({"thread": params.thread_bits, "request_id": params.request_id_bits})


SECTOR_BYTES = 32
"""What memory reduces at a time."""


@cache
def reduction_request_layout(params: TmaParams) -> data.StructLayout:
    """A part of a line that memory is to combine with what it holds.

    ``sector`` is the global address divided by 32; ``pieces`` says which of its two pieces of 16
    bytes take part; ``tag`` comes back.
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
    """The field that names the CTA of a request, where there are several."""
    return {"cta": params.cta_bits} if params.ctas > 1 else {}


@cache
def error_layout(params: TmaParams) -> data.StructLayout:
    """The answer to a refused or failed request.

    Members
    -------
    request_id : of the request
    code : the first cause that applies
    dim : the dimension it was found in, or 0; of MBAR_FAULT, the ``BarrierFault``
    value : the offending value (two's complement where the field is signed)
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
    """An error as the SM gets it; in a cluster ``cta`` issued the request: a fault of a barrier is
    told where the barrier is.
    """
    return data.StructLayout({**error_layout(params).members, **issuer_field(params)})


class DescriptorInvalidate(data.Struct):
    """``fence.proxy.tensormap`` acquire of one address, or of everything at kernel start."""

    address: GLOBAL_ADDRESS_BITS
    all: 1


class DescriptorFill(data.Struct):
    """Words w0 to w15 of a tensor map, or word that they cannot be read."""

    words: data.ArrayLayout(32, 16)
    error: 1


@cache
def gnic_request_layout(params: TmaParams) -> data.StructLayout:
    """A read of one line. ``line`` is the global address divided by ``line_bytes``.

    With ``prefetch`` the line is wanted in L2 only: there is no answer, and ``tag`` means nothing.
    """
    return data.StructLayout(
        {
            "tag": params.tag_bits,
            "line": params.line_address_bits,
            "prefetch": 1,
            "attributes": MemoryAttributes,
        }
    )


@cache
def gnic_response_layout(params: TmaParams) -> data.StructLayout:
    """The line that the request of this tag asked for, byte 0 first; ``error``: unreadable."""
    return data.StructLayout({"tag": params.tag_bits, "error": 1, "data": params.line_bytes * 8})


@cache
def smem_write_layout(params: TmaParams) -> data.ArrayLayout:
    """One clock of the shared-memory port: each lane writes 16 bytes at its own beat.

    Lane ``i`` holds bytes 16 * i to 16 * i + 15 of every beat. ``beat`` is the byte offset divided
    by ``line_bytes``. ``words`` says which groups of 4 bytes are written: all, but of packed types.
    """
    lane = data.StructLayout(
        {"valid": 1, "words": PIECE_WORDS, "beat": params.smem_beat_bits, "data": PIECE_BYTES * 8}
    )
    return data.ArrayLayout(lane, params.lanes)


@cache
def gnic_write_layout(params: TmaParams) -> data.StructLayout:
    """A write to a line, or a reduction.

    ``strobe`` has a bit for each byte of ``data`` that counts; a reduction's comes in wholes of 16.
    The answer carries ``tag``.
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
    """The write of this tag is performed; ``error``: it failed, and nothing of it happened."""
    return data.StructLayout({"tag": params.tag_bits, "error": 1})


@cache
def smem_read_layout(params: TmaParams) -> data.ArrayLayout:
    """One clock of the reading port: each lane reads 16 bytes of its own beat."""
    lane = data.StructLayout({"valid": 1, "beat": params.smem_beat_bits})
    return data.ArrayLayout(lane, params.lanes)


@cache
def lanes_layout(params: TmaParams) -> data.ArrayLayout:
    """A line or beat as pieces."""
    return data.ArrayLayout(PIECE_BYTES * 8, params.lanes)
