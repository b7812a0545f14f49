"""Payloads of runs, lines and beats: from the request generator to shared and global memory.

A *run* is a sequence of pieces that is contiguous in global and in shared memory. A *line* is
``line_bytes`` of global memory, a *beat* the same amount of shared memory; both have one piece of
16 bytes for each lane. *Fill* is what a request writes to the part of a box that has no data.
"""

from functools import cache

from amaranth.lib import data

from hw.layouts.isa import PIECE_WORDS, MemoryAttributes, data_style_layout
from hw.layouts.jobs import SHORT_ROW_BITS, remote_field, write_mode_layout
from hw.layouts.monitor import marks_field
from hw.layouts.ports import holder_field, lanes_layout, reports_field
from hw.layouts.translation import cause_field
from hw.params import SMEM_OFFSET_BITS, TmaParams


@cache
def receipt_layout(params: TmaParams) -> data.StructLayout:
    """Data for the ``complete_tx`` of a packet from another CTA, sent along with the packet's line.

    Members
    -------
    received : the line came from another CTA; 0: the other members do not count
    request_id, cta : request of the packet, and the CTA that issued it
    holder : CTA whose barrier counts the packet; present with ``cta_group_2``
    mbarrier : byte offset of that barrier in shared memory
    tx_words : 4-byte words that the barrier counts for the packet
    reduced : the packet is a reduction: it was combined with the contents of shared memory
    reports : see ``reports_field``
    """
    return data.StructLayout(
        {
            "received": 1,
            "request_id": params.request_id_bits,
            "cta": params.cta_bits,
            **holder_field(params),
            "mbarrier": SMEM_OFFSET_BITS,
            "tx_words": params.lane_bits + 3,
            "reduced": 1,
            **reports_field(params),
        }
    )


def gather_field(params: TmaParams) -> dict:
    """Return the field of ``run_layout`` for short rows that share a line.

    Members of ``gather``
    ---------------------
    extra_rows : rows behind the first one that lie in the same line
    row_step : pieces of global memory from one row to the next
    smem_step : pieces of shared memory from one row to the next
    """
    if not params.gathers_rows:
        return {}
    rows = {
        "extra_rows": params.lane_bits,
        "row_step": SHORT_ROW_BITS,
        "smem_step": SHORT_ROW_BITS,
    }
    return {"gather": data.StructLayout(rows)}


@cache
def run_layout(params: TmaParams, store: bool = False) -> data.StructLayout:
    """A run: pieces that are contiguous in both memories.

    Members
    -------
    last : last run of a store; it may have no pieces
    write_mode, attributes, slot, style : of the request, as in ``walk_layout``
    prefetch : the lines of the run are read into L2 only
    tail_bytes, row_pieces : as in ``walk_layout``
    gather : further rows of ``pieces`` pieces in the same line; see ``gather_field``
    remote : the run goes to shared memory of other CTAs
    start : global piece address of the first piece
    smem : shared-memory piece address of the first piece
    pieces : number of pieces, of one row if rows are gathered
    marks : see ``marks_field``
    """
    if store:
        way = {"last": 1, "write_mode": write_mode_layout(params)}
    else:
        row = {"tail_bytes": 4, "row_pieces": SHORT_ROW_BITS}
        way = {"prefetch": 1, **row, **remote_field(params)}
    return data.StructLayout(
        {
            **way,
            **gather_field(params),
            "attributes": MemoryAttributes,
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "start": params.piece_address_bits,
            "smem": params.smem_piece_bits,
            "pieces": params.box_piece_bits if store else params.run_bits,
            **marks_field(params),
        }
    )


def fill_fields(params: TmaParams) -> dict:
    """Return the fields that steps and stretches of fill have in common.

    ``slot``, ``style`` and ``remote`` are those of the request. ``row_mask`` is as in
    ``walk_layout``: it excludes the gaps between rows, which are never written.
    """
    return {
        "slot": params.slot_bits,
        "style": data_style_layout(params),
        "row_mask": params.row_mask_bits,
        **remote_field(params),
    }


@cache
def fill_step_layout(params: TmaParams) -> data.StructLayout:
    """A step of a walk, as the fill collector needs it.

    Members
    -------
    first_of_chain : the step is the first one of its chain of walks
    chain_begin : shared-memory piece address at which the chain begins
    has_run : the step has a run; 0: its walk has none, and this is its only step
    start, extent : of the run, as ``smem_start`` and ``smem_extent`` in ``walk_layout``
    inner_fill : fill between rows that are gathered into this run; bit i stands for piece
        ``start + i``, and all of them lie in the beat of ``start``
    last_of_chain : the step is the last one of its chain
    chain_end : shared-memory piece address at which the chain ends
    last_of_request : the step is the last one of its request
    """
    return data.StructLayout(
        {
            **fill_fields(params),
            "first_of_chain": 1,
            "chain_begin": params.smem_piece_bits,
            "has_run": 1,
            "start": params.smem_piece_bits,
            "extent": params.box_piece_bits,
            **({"inner_fill": params.lanes} if params.gathers_rows else {}),
            "last_of_chain": 1,
            "chain_end": params.smem_piece_bits,
            "last_of_request": 1,
        }
    )


@cache
def fill_stretch_layout(params: TmaParams) -> data.StructLayout:
    """A stretch: consecutive beats to be filled, except for the gaps between rows.

    Members
    -------
    beat : shared-memory beat address of the first beat
    mask : pieces of the first beat that are fill
    extra_beats : beats behind the first one; all of their pieces are fill, but in the last
    last_mask : pieces of the last one of the extra beats that are fill
    last : last stretch of its request; it may have no pieces
    """
    return data.StructLayout(
        {
            **fill_fields(params),
            "beat": params.smem_beat_bits,
            "mask": params.lanes,
            "extra_beats": params.box_piece_bits - params.lane_bits,
            "last_mask": params.lanes,
            "last": 1,
        }
    )


def source_field(params: TmaParams) -> dict:
    """Return the field of a line's use for gathered rows.

    ``source`` holds, for each place, the number of the line's piece that moves to that place.
    """
    source = {"source": data.ArrayLayout(params.lane_bits, params.lanes)}
    return source if params.gathers_rows else {}


@cache
def line_use_layout(params: TmaParams) -> data.StructLayout:
    """Use of a line: where its pieces go when it arrives.

    ``origin``, ``valid`` and ``tail`` are numbered by place. Place i is piece i of the line, unless
    the unit gathers rows: then ``source`` says which piece of the line moves there.

    Members
    -------
    slot, style : of the request
    origin : shared-memory piece address of place 0, whether place 0 is used or not
    valid : places that are used
    tail : places that hold the last piece of a row
    tail_bytes : bytes of a tail piece that are inside the tensor, the rest is fill; 0: all 16
    source : piece of the line that moves to each place
    remote : the line goes to shared memory of other CTAs
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "origin": params.smem_piece_bits,
            "valid": params.lanes,
            "tail": params.lanes,
            "tail_bytes": 4,
            **source_field(params),
            **remote_field(params),
        }
    )


def second_row_field(params: TmaParams) -> dict:
    """Return the fields of a store's line for a second row; see ``store_line_layout``."""
    fields = {"second": params.lanes, "second_origin": params.smem_piece_bits}
    return fields if params.gathers_rows else {}


@cache
def store_line_layout(params: TmaParams) -> data.StructLayout:
    """A line to write to global memory, and where its bytes are in shared memory.

    Place i is piece i of the line. If the unit gathers rows, the line may have two of them.

    Members
    -------
    last : last line of the request; it may have no valid pieces
    write_mode, attributes, slot, style : of the request
    line : global address divided by ``line_bytes``
    origin, valid : as in ``line_use_layout``
    second : those of the valid pieces that are the second of two rows; then the pieces of each row
        are in one beat
    second_origin : ``origin`` of the second row
    marks : see ``marks_field``
    """
    return data.StructLayout(
        {
            "last": 1,
            "write_mode": write_mode_layout(params),
            "attributes": MemoryAttributes,
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "line": params.line_address_bits,
            "origin": params.smem_piece_bits,
            "valid": params.lanes,
            **second_row_field(params),
            **marks_field(params),
        }
    )


@cache
def write_line_layout(params: TmaParams) -> data.StructLayout:
    """A line of a store with its bytes; ``last`` and ``valid`` as in ``store_line_layout``.

    ``has_pieces``: a piece is ``valid``.
    """
    return data.StructLayout(
        {
            "last": 1,
            "has_pieces": 1,
            "slot": params.slot_bits,
            "write_mode": write_mode_layout(params),
            "attributes": MemoryAttributes,
            "line": params.line_address_bits,
            "valid": params.lanes,
            "data": lanes_layout(params),
        }
    )


@cache
def performed_layout(params: TmaParams) -> data.StructLayout:
    """Progress of a store.

    Members
    -------
    slot : of the request
    answered : one line of the store was answered
    failed : that line could not be written
    decode, page : see `cause_field`
    receiver_absent : the line failed because its receiver, the CTA of number ``line``, does not run
    line : number of the line that failed, or of the receiver
    total_valid : ``total_lines`` is valid; it is so once for each request
    total_lines : number of lines that the store writes
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "answered": 1,
            "failed": 1,
            **cause_field(params),
            **({"receiver_absent": 1} if params.ctas > 1 else {}),
            "line": params.line_address_bits,
            "total_valid": 1,
            "total_lines": params.box_piece_bits,
        }
    )


@cache
def line_request_layout(params: TmaParams) -> data.StructLayout:
    """A line to read, and its use; ``use`` does not count for a ``prefetch``.

    ``marks``: see ``marks_field``.
    """
    return data.StructLayout(
        {
            "prefetch": 1,
            "attributes": MemoryAttributes,
            "line": params.line_address_bits,
            "use": line_use_layout(params),
            **marks_field(params),
        }
    )


@cache
def line_arrival_layout(params: TmaParams) -> data.StructLayout:
    """A line that arrived, and its use. ``failed``: it could not be read, ``data`` is void."""
    return data.StructLayout(
        {"use": line_use_layout(params), "failed": 1, "data": lanes_layout(params)}
    )


@cache
def rotated_line_layout(params: TmaParams) -> data.StructLayout:
    """A line whose pieces are in the lanes of their shared-memory addresses before swizzling.

    Members
    -------
    slot, style : of the request
    beat : shared-memory beat address of the lanes from ``boundary`` on
    next_beat : that of the lanes below ``boundary``; without meaning if that is 0
    boundary : first lane of ``beat``
    pieces : pieces of the request that the line stands for, even if none of them is written
    valid : lanes whose piece is written
    words : 4-byte words of each piece that are written, as in ``smem_write_layout``
    remote : the line goes to shared memory of other CTAs
    reports : see ``reports_field``; does not count for a line that came from another CTA
    receipt : of a line that came from another CTA; see ``receipt_layout``
    data : the pieces
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "beat": params.smem_beat_bits,
            "next_beat": params.smem_beat_bits,
            "boundary": params.lane_bits,
            "pieces": params.lane_bits + 1,
            "valid": params.lanes,
            **({"words": data.ArrayLayout(PIECE_WORDS, params.lanes)} if params.word_masks else {}),
            **remote_field(params),
            **reports_field(params),
            **({"receipt": receipt_layout(params)} if params.ctas > 1 else {}),
            "data": lanes_layout(params),
        }
    )


@cache
def fill_beat_layout(params: TmaParams) -> data.StructLayout:
    """A beat of fill, before swizzling.

    The beats of one stream come request by request; those of several streams come in any order.

    Members
    -------
    slot, style, stream : of the request
    beat : shared-memory beat address
    valid : pieces that are filled
    last : last beat of fill of its request; it may have no pieces
    remote : the beat goes to shared memory of other CTAs
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "beat": params.smem_beat_bits,
            "valid": params.lanes,
            "last": 1,
            **remote_field(params),
            "stream": params.stream_bits,
        }
    )


@cache
def written_layout(params: TmaParams) -> data.StructLayout:
    """Pieces that were written to shared memory.

    Members
    -------
    slot : of the request
    pieces : number of pieces that were written since the last report
    receipt : of a line that came from another CTA, whose ``slot`` and ``pieces`` do not count
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "pieces": params.box_piece_bits,
            **({"receipt": receipt_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def absent_receiver_layout(params: TmaParams) -> data.StructLayout:
    """A receiver of the request under ``slot`` that does not run: the CTA of that number."""
    return data.StructLayout({"slot": params.slot_bits, "receiver": params.cta_bits})


@cache
def line_report_layout(params: TmaParams) -> data.StructLayout:
    """If ``valid``, a line of the request under ``slot`` has the pattern that the load reports."""
    return data.StructLayout({"valid": 1, "slot": params.slot_bits})


@cache
def read_fault_layout(params: TmaParams) -> data.StructLayout:
    """A read fault: the line of the request under ``slot`` that could not be read."""
    return data.StructLayout(
        {"slot": params.slot_bits, **cause_field(params), "line": params.line_address_bits}
    )
