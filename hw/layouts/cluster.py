"""Payloads between the SMs of a cluster."""

from functools import cache

from amaranth.lib import data

from hw.layouts.isa import CTA_FIELD_BITS, PIECE_WORDS, Reduction, data_style_layout
from hw.layouts.jobs import SignalTo
from hw.layouts.ports import lanes_layout
from hw.params import PIECE_BYTES, SMEM_OFFSET_BITS, TmaParams


@cache
def packet_layout(params: TmaParams) -> data.StructLayout:
    """Up to a beat for the shared memory of another CTA, and its barrier.

    Members
    -------
    request_id, cta : of the request, and who issued it
    mbarrier, signal, signal_cta : the barrier that counts ...
    tx_words : ... so many words of 4 bytes
    reduction : how shared memory takes it
    style, beat, boundary, valid, words, data : as in ``rotated_line_layout``
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "cta": params.cta_bits,
            "mbarrier": SMEM_OFFSET_BITS,
            "signal": SignalTo,
            "signal_cta": params.cta_bits,
            "tx_words": params.lane_bits + 3,
            **({"reduction": Reduction} if params.reductions else {}),
            "style": data_style_layout(params),
            "beat": params.smem_beat_bits,
            "boundary": params.lane_bits,
            "valid": params.lanes,
            "words": data.ArrayLayout(PIECE_WORDS, params.lanes),
            "data": lanes_layout(params),
        }
    )


@cache
def remote_store_layout(params: TmaParams) -> data.StructLayout:
    """``st.async`` or ``red.async`` of a thread: ``words`` of the 16 bytes at ``address``.

    ``address`` is a multiple of 16; ``data`` its 16 bytes. ``mbarrier`` is in the same CTA.
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
