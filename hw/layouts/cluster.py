"""Payloads between the SMs of a cluster: packets of data, and stores of threads."""

from functools import cache

from amaranth.lib import data

from hw.layouts.isa import CTA_FIELD_BITS, PIECE_WORDS, Reduction, data_style_layout
from hw.layouts.jobs import pair_field
from hw.layouts.ports import lanes_layout, reports_field
from hw.params import PIECE_BYTES, SMEM_OFFSET_BITS, TmaParams


@cache
def packet_layout(params: TmaParams) -> data.StructLayout:
    """Packet: up to ``line_bytes`` bytes for the shared memory of another CTA.

    Members
    -------
    request_id : ``request_id`` of the request
    cta : rank of the CTA that issued the request
    mbarrier : byte offset of the barrier that counts the packet's bytes
    pair : selects the CTA that holds the barrier, see `pair_field`
    tx_words : words of 4 bytes that the barrier counts
    reduction : reduction, if shared memory combines the packet with what it holds; present with
        ``reductions``
    style : format of the data in shared memory
    beat : beat of the lanes from ``boundary`` on: byte offset in shared memory divided by
        ``line_bytes``
    boundary : number of the first lane that belongs to ``beat``; the lanes below it belong to the
        beat after it
    valid : lanes that are written, one bit per lane
    words : words of 4 bytes that each lane writes, one bit per word
    data : 16 bytes for each lane, before swizzling
    reports : see `reports_field`
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "cta": params.cta_bits,
            "mbarrier": SMEM_OFFSET_BITS,
            **pair_field(params),
            "tx_words": params.lane_bits + 3,
            **({"reduction": Reduction} if params.reductions else {}),
            "style": data_style_layout(params),
            "beat": params.smem_beat_bits,
            "boundary": params.lane_bits,
            "valid": params.lanes,
            "words": data.ArrayLayout(PIECE_WORDS, params.lanes),
            "data": lanes_layout(params),
            **reports_field(params),
        }
    )


@cache
def remote_store_layout(params: TmaParams) -> data.StructLayout:
    """Remote store: ``st.async`` or ``red.async`` of a thread.

    Members
    -------
    request_id : number that the issuer chooses; an error record returns it
    dst_cta : rank of the CTA whose shared memory is written, and which holds the barrier
    address : byte offset in that shared memory, a multiple of 16
    mbarrier : byte offset of the barrier that counts the written bytes, a multiple of 8
    reduction : enabled for ``red.async``
    words : words of the 16 bytes that are written, one bit per word of 4 bytes: one word, two words
        at a multiple of 8, or all four
    data : 16 bytes at ``address``
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "dst_cta": CTA_FIELD_BITS,
            "address": SMEM_OFFSET_BITS,
            "mbarrier": SMEM_OFFSET_BITS,
            "reduction": Reduction,
            "words": PIECE_WORDS,
            "data": PIECE_BYTES * 8,
        }
    )
