"""Payloads of runs, lines and beats: from the request generator to shared and global memory."""

from functools import cache

from amaranth.lib import data

from hw.layouts.isa import PIECE_WORDS, MemoryAttributes, data_style_layout
from hw.layouts.jobs import SHORT_ROW_BITS, remote_field, write_mode_layout
from hw.layouts.ports import lanes_layout
from hw.params import SMEM_OFFSET_BITS, TmaParams


@cache
def receipt_layout(params: TmaParams) -> data.StructLayout:
    """What a received packet tells its barrier, which ``holder`` holds; else ``received`` is 0.

    ``reduced``: it was combined with what was there.
    """
    return data.StructLayout(
        {
            "received": 1,
            "request_id": params.request_id_bits,
            "cta": params.cta_bits,
            "holder": params.cta_bits,
            "mbarrier": SMEM_OFFSET_BITS,
            "tx_words": params.lane_bits + 3,
            "reduced": 1,
        }
    )


def gather_field(params: TmaParams) -> dict:
    """The fields of rows that are read with one line."""
    if not params.gathers_rows:
        return {}
    rows = {"more": params.lane_bits, "step": SHORT_ROW_BITS, "pitch": SHORT_ROW_BITS}
    return {"gather": data.StructLayout(rows)}


@cache
def run_layout(params: TmaParams, store: bool = False) -> data.StructLayout:
    """Pieces that are contiguous in both memories.

    ``tail_bytes`` and ``row_pieces`` as in ``walk_layout``. ``last``: of a store, which may end
    with a run of no pieces. ``gather``: so many more rows of ``pieces`` in the same line, each
    ``step`` pieces behind the one before, and ``pitch`` in shared memory.
    """
    if store:
        way = {"last": 1, "write_mode": write_mode_layout(params)}
    else:
        row = {"tail_bytes": 4, "row_pieces": SHORT_ROW_BITS}
        way = {"prefetch": 1, **row, **gather_field(params), **remote_field(params)}
    return data.StructLayout(
        {
            **way,
            "attributes": MemoryAttributes,
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "start": params.piece_address_bits,
            "smem": params.smem_piece_bits,
            "pieces": params.box_piece_bits if store else params.run_bits,
        }
    )


def fill_fields(params: TmaParams) -> dict:
    """The fields that all fill of a request has: whose it is, and which pieces are not in gaps."""
    return {
        "slot": params.slot_bits,
        "style": data_style_layout(params),
        "row_mask": params.row_mask_bits,
        **remote_field(params),
    }


@cache
def fill_step_layout(params: TmaParams) -> data.StructLayout:
    """A step of a walk, by what there is to be filled in front of its run, and behind a chain.

    Members
    -------
    first : of its chain, which begins at ``begin``
    has_run : otherwise the walk has none, and this is its only step
    start, extent : of the run, as in ``walk_layout``
    between : from its start on, the fill between rows that are one run, all in one beat
    ends : the chain, at ``end``
    last : of its request
    """
    return data.StructLayout(
        {
            **fill_fields(params),
            "first": 1,
            "begin": params.smem_piece_bits,
            "has_run": 1,
            "start": params.smem_piece_bits,
            "extent": params.box_piece_bits,
            **({"between": params.lanes} if params.gathers_rows else {}),
            "ends": 1,
            "end": params.smem_piece_bits,
            "last": 1,
        }
    )


@cache
def fill_stretch_layout(params: TmaParams) -> data.StructLayout:
    """Beats to be filled, gaps between rows excepted.

    Members
    -------
    beat, mask : the first, and which of its pieces
    more, last_mask : so many more, all pieces of them but in the last
    last : no more fill for this request; such a stretch may have no pieces
    """
    return data.StructLayout(
        {
            **fill_fields(params),
            "beat": params.smem_beat_bits,
            "mask": params.lanes,
            "more": params.box_piece_bits - params.lane_bits,
            "last_mask": params.lanes,
            "last": 1,
        }
    )


def source_field(params: TmaParams) -> dict:
    """Where the pieces of gathered rows are in their line."""
    source = {"source": data.ArrayLayout(params.lane_bits, params.lanes)}
    return source if params.gathers_rows else {}


@cache
def line_use_layout(params: TmaParams) -> data.StructLayout:
    """What becomes of a line when it arrives.

    Members
    -------
    slot, style : of the request
    origin : shared-memory piece address that the line's piece 0 has, were it used
    valid : which pieces are used
    source : which piece of the line takes the place of each; those above are of the places
    tail : the last pieces of rows, of which ...
    tail_bytes : ... so many bytes count and the rest is fill; 0: all 16 count
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


@cache
def store_line_layout(params: TmaParams) -> data.StructLayout:
    """A line to write, and where its bytes are.

    Members
    -------
    last : of the request, which may end with a line without valid pieces
    writing, attributes, slot, style : of the request
    line : global address divided by ``line_bytes``
    origin, valid : as in ``line_use_layout``
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
        }
    )


@cache
def write_line_layout(params: TmaParams) -> data.StructLayout:
    """A line of a store with its bytes; ``last`` and ``valid`` as in ``store_line_layout``."""
    return data.StructLayout(
        {
            "last": 1,
            "write_mode": write_mode_layout(params),
            "attributes": MemoryAttributes,
            "slot": params.slot_bits,
            "line": params.line_address_bits,
            "valid": params.lanes,
            "data": lanes_layout(params),
        }
    )


@cache
def performed_layout(params: TmaParams) -> data.StructLayout:
    """News of a store.

    Members
    -------
    slot : of the request
    answered : a line of the store was answered
    failed, line : a line could not be written
    receiver_absent : the line failed because its receiver, the CTA ``line``, does not run
    total_valid, total_lines : the number of lines of the store is known from now on
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "answered": 1,
            "failed": 1,
            **({"receiver_absent": 1} if params.ctas > 1 else {}),
            "line": params.line_address_bits,
            "total_valid": 1,
            "total_lines": params.box_piece_bits,
        }
    )


@cache
def line_request_layout(params: TmaParams) -> data.StructLayout:
    """A line to read and its use; of a ``prefetch`` there is none."""
    return data.StructLayout(
        {
            "prefetch": 1,
            "attributes": MemoryAttributes,
            "line": params.line_address_bits,
            "use": line_use_layout(params),
        }
    )


@cache
def line_arrival_layout(params: TmaParams) -> data.StructLayout:
    """A line that arrived, and its use; ``failed``: it could not be read, ``data`` is void."""
    return data.StructLayout(
        {"use": line_use_layout(params), "failed": 1, "data": lanes_layout(params)}
    )


@cache
def rotated_line_layout(params: TmaParams) -> data.StructLayout:
    """A line whose pieces stand in the lane of their shared-memory address before swizzling.

    Lanes from ``boundary`` on belong to ``beat``, those below it to the next beat. The request has
    ``pieces`` of its pieces in the line, even where none is to be written. ``words`` as in
    ``smem_write_layout``. In a cluster a line may be ``remote``, or one that was received.
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "beat": params.smem_beat_bits,
            "boundary": params.lane_bits,
            "pieces": params.lane_bits + 1,
            "valid": params.lanes,
            "data": lanes_layout(params),
            **({"words": data.ArrayLayout(PIECE_WORDS, params.lanes)} if params.word_masks else {}),
            **remote_field(params),
            **({"receipt": receipt_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def fill_beat_layout(params: TmaParams) -> data.StructLayout:
    """Pieces of one beat to be filled, before swizzling; ``last`` as in ``fill_stretch_layout``.

    Beats of a stream come request by request; those of several streams in any order.
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
    """So many more pieces of a request are in shared memory, or what was received is."""
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "pieces": params.box_piece_bits,
            **({"receipt": receipt_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def absent_receiver_layout(params: TmaParams) -> data.StructLayout:
    """A receiver of a request that does not run."""
    return data.StructLayout({"slot": params.slot_bits, "receiver": params.cta_bits})


@cache
def read_fault_layout(params: TmaParams) -> data.StructLayout:
    """A line of a request that could not be read."""
    return data.StructLayout({"slot": params.slot_bits, "line": params.line_address_bits})
