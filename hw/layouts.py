"""What travels between the blocks: every payload, field by field.

Fields are listed from bit 0 upwards. *Piece* is 16 aligned bytes, *line* is ``line_bytes`` aligned
bytes of global memory, *beat* is ``line_bytes`` aligned bytes of shared memory. A payload whose
widths follow from the parameters is made by a function of them.
"""

import types
from functools import cache

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum

from golden.errors import ErrorCode as GoldenCode
from hw.params import DIMS, PIECE_BYTES, SMEM_OFFSET_BITS, TmaParams

DESCRIPTOR_BITS = 512
"""The significant half of a tensor map: words w0 to w15."""

GLOBAL_ADDRESS_BITS = 64
"""Addresses in requests and tensor maps are CUDA's, whatever the memory port carries."""

BARRIER_COUNT_BITS = 21
"""A number of arrivals or of transaction bytes."""

STEP_BITS = 40
"""A global step of a loop in pieces: an element stride times a tensor stride."""


def _error_code(namespace: dict[str, object]) -> None:
    namespace["__doc__"] = "Why a request was refused: ``golden.errors.ErrorCode`` below 32."
    namespace.update({code.name: code.value for code in GoldenCode if code < 32})


ErrorCode = types.new_class("ErrorCode", (enum.Enum,), {"shape": unsigned(5)}, _error_code)


class Swizzle(enum.Enum, shape=2):
    """Which bits of a shared-memory address are permuted (tensor map w2[14:13])."""

    NONE = 0
    SPAN_32B = 1
    SPAN_64B = 2
    SPAN_128B = 3


class Fill(enum.Enum, shape=1):
    """What elements outside the tensor read as (tensor map w2[15])."""

    ZERO = 0
    NAN = 1


class DataStyle(data.Struct):
    """How the bytes of a request look in shared memory; the same for all of its pieces."""

    swizzle: Swizzle
    fill: Fill
    round_tf32: 1


class BarrierOp(enum.Enum, shape=3):
    """Operations of the mbarrier unit."""

    INIT = 0
    INVAL = 1
    ARRIVE = 2
    ARRIVE_EXPECT_TX = 3
    EXPECT_TX = 4
    COMPLETE_TX = 5
    TEST_WAIT_PARITY = 6


class Operation(enum.Enum, shape=2):
    """What a request asks for. A prefetch brings lines to L2; nothing tells of its end."""

    TENSOR_LOAD = 0
    BULK_LOAD = 1
    TENSOR_PREFETCH = 2
    BULK_PREFETCH = 3


@cache
def request_layout(params: TmaParams) -> data.StructLayout:
    """A request, as one thread issues it.

    Members
    -------
    operation : which; others' members do not count
    request_id : the issuer's name for it; comes back in an error record
    global_address : of a tensor's map, a multiple of 64; of bulk bytes, of 16
    size : of bulk bytes, a multiple of 16
    rank : of a tensor, the number of coordinates the instruction carries, 1 to 5
    coords : first element of the box, dimension 0 first
    smem_address : byte offset of a load's destination
    mbarrier : byte offset of the barrier that counts a load's bytes
    """
    return data.StructLayout(
        {
            "operation": Operation,
            "request_id": params.request_id_bits,
            "global_address": GLOBAL_ADDRESS_BITS,
            "size": 32,
            "rank": 3,
            "coords": data.ArrayLayout(signed(32), DIMS),
            "smem_address": SMEM_OFFSET_BITS,
            "mbarrier": SMEM_OFFSET_BITS,
        }
    )


@cache
def error_layout(params: TmaParams) -> data.StructLayout:
    """The answer to a refused or failed request.

    Members
    -------
    request_id : of the request
    code : the first cause that applies
    dim : the dimension it was found in, or 0
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
        {"tag": params.tag_bits, "line": params.line_address_bits, "prefetch": 1}
    )


@cache
def gnic_response_layout(params: TmaParams) -> data.StructLayout:
    """The line that the request of this tag asked for, byte 0 first; ``error``: unreadable."""
    return data.StructLayout({"tag": params.tag_bits, "error": 1, "data": params.line_bytes * 8})


@cache
def smem_write_layout(params: TmaParams) -> data.ArrayLayout:
    """One clock of the shared-memory port: each lane writes 16 bytes at its own beat.

    Lane ``i`` holds bytes 16 * i to 16 * i + 15 of every beat. ``beat`` is the byte offset divided
    by ``line_bytes``.
    """
    lane = data.StructLayout({"valid": 1, "beat": params.smem_beat_bits, "data": PIECE_BYTES * 8})
    return data.ArrayLayout(lane, params.lanes)


class BarrierCommand(data.Struct):
    """One mbarrier operation.

    ``count``: arrivals of INIT and ARRIVE, bytes of the tx operations, the parity of
    TEST_WAIT_PARITY. ARRIVE_EXPECT_TX is one arrival and ``count`` bytes. ``tag`` comes back.
    """

    op: BarrierOp
    address: SMEM_OFFSET_BITS
    count: BARRIER_COUNT_BITS
    tag: 8


class BarrierResult(data.Struct):
    """The answer to a command, in the order of the commands.

    ``done``: TEST_WAIT_PARITY found the phase complete. ``error``: the operation was not done
    (MBAR_FAULT). ``state``: the word before the operation.
    """

    tag: 8
    done: 1
    error: 1
    state: 64


@cache
def barrier_completion_layout(params: TmaParams) -> data.StructLayout:
    """``complete_tx`` of a whole request."""
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "address": SMEM_OFFSET_BITS,
            "tx_bytes": BARRIER_COUNT_BITS,
        }
    )


@cache
def barrier_fault_layout(params: TmaParams) -> data.StructLayout:
    """A ``complete_tx`` that the barrier at ``address`` could not take."""
    return data.StructLayout({"request_id": params.request_id_bits, "address": SMEM_OFFSET_BITS})


@cache
def transfer_layout(params: TmaParams) -> data.StructLayout:
    """What completes a request: ``pieces`` written, then ``complete_tx`` at ``mbarrier``."""
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "mbarrier": SMEM_OFFSET_BITS,
            "pieces": params.box_piece_bits,
        }
    )


@cache
def walk_layout(params: TmaParams) -> data.StructLayout:
    """A box, ready to be walked by adding and comparing.

    The part of the box inside the tensor is a set of equal *runs*, contiguous in both memories;
    up to four nested loops, innermost first, lead from one to the next. What lies between the
    runs in shared memory is fill.

    Members
    -------
    prefetch : only the lines are wanted, in L2
    style : of every piece
    has_data : some part of the box is inside the tensor
    start : global piece address of the first run
    run : pieces in a run
    tail_bytes : bytes of a run's last piece that are inside the tensor; 0: all 16
    smem_begin, smem_end : the box in shared memory, in pieces
    smem_start : shared-memory piece address of the first run
    smem_extent : from the start of a run to where fill may begin; skips the gap behind a row
    row_mask : which of the 8 pieces of 128 aligned bytes belong to rows, not to gaps
    loops : repetitions less one, and what a repetition adds to both addresses
    """
    loop = data.StructLayout(
        {
            "last": 8,
            "global_step": STEP_BITS,
            "smem_step": params.box_piece_bits,
        }
    )
    return data.StructLayout(
        {
            "prefetch": 1,
            "style": DataStyle,
            "has_data": 1,
            "start": params.piece_address_bits,
            "run": params.box_piece_bits,
            "tail_bytes": 4,
            "smem_begin": params.smem_piece_bits,
            "smem_end": params.smem_piece_bits,
            "smem_start": params.smem_piece_bits,
            "smem_extent": params.box_piece_bits,
            "row_mask": 8,
            "loops": data.ArrayLayout(loop, DIMS - 1),
        }
    )


@cache
def setup_job_layout(params: TmaParams) -> data.StructLayout:
    """What setup makes of a request."""
    return data.StructLayout({"transfer": transfer_layout(params), "walk": walk_layout(params)})


@cache
def generator_job_layout(params: TmaParams) -> data.StructLayout:
    """A walk whose completion is tracked under ``slot``."""
    return data.StructLayout({"slot": params.slot_bits, "walk": walk_layout(params)})


@cache
def run_layout(params: TmaParams) -> data.StructLayout:
    """Pieces that are contiguous in both memories; ``tail_bytes`` as in ``walk_layout``."""
    return data.StructLayout(
        {
            "prefetch": 1,
            "slot": params.slot_bits,
            "style": DataStyle,
            "start": params.piece_address_bits,
            "smem": params.smem_piece_bits,
            "pieces": params.box_piece_bits,
            "tail_bytes": 4,
        }
    )


@cache
def fill_run_layout(params: TmaParams) -> data.StructLayout:
    """Shared-memory pieces from ``smem`` on to be filled, gaps between rows excepted.

    ``last``: no more fill for this request; such a stretch may be empty.
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": DataStyle,
            "smem": params.smem_piece_bits,
            "pieces": params.box_piece_bits,
            "row_mask": 8,
            "last": 1,
        }
    )


@cache
def line_use_layout(params: TmaParams) -> data.StructLayout:
    """What becomes of a line when it arrives.

    Members
    -------
    slot, style : of the request
    origin : shared-memory piece address that the line's piece 0 has, were it used
    valid : which pieces are used
    tail : the last piece of a run, of which ...
    tail_bytes : ... so many bytes count and the rest is fill; 0: all 16 count
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": DataStyle,
            "origin": params.smem_piece_bits,
            "valid": params.lanes,
            "tail": params.lanes,
            "tail_bytes": 4,
        }
    )


@cache
def line_request_layout(params: TmaParams) -> data.StructLayout:
    """A line to read and its use; of a ``prefetch`` there is none."""
    return data.StructLayout(
        {"prefetch": 1, "line": params.line_address_bits, "use": line_use_layout(params)}
    )


@cache
def lanes_layout(params: TmaParams) -> data.ArrayLayout:
    """A line or beat as pieces."""
    return data.ArrayLayout(PIECE_BYTES * 8, params.lanes)


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
    ``pieces`` of its pieces in the line, even where none is to be written.
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "swizzle": Swizzle,
            "beat": params.smem_beat_bits,
            "boundary": params.lane_bits,
            "pieces": params.lane_bits + 1,
            "valid": params.lanes,
            "data": lanes_layout(params),
        }
    )


@cache
def fill_beat_layout(params: TmaParams) -> data.StructLayout:
    """Pieces of one beat to be filled, before swizzling; ``last`` as in ``fill_run_layout``."""
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": DataStyle,
            "beat": params.smem_beat_bits,
            "valid": params.lanes,
            "last": 1,
        }
    )


@cache
def written_layout(params: TmaParams) -> data.StructLayout:
    """So many more pieces of a request are in shared memory."""
    return data.StructLayout({"slot": params.slot_bits, "pieces": params.box_piece_bits})


@cache
def read_fault_layout(params: TmaParams) -> data.StructLayout:
    """A line of a request that could not be read."""
    return data.StructLayout({"slot": params.slot_bits, "line": params.line_address_bits})
