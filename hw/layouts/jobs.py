"""Payloads from the request to the generator: requests on their way, walks, columns, jobs."""

from functools import cache

from amaranth.hdl import Mux, Value, signed
from amaranth.lib import data, enum

from hw.layouts.isa import (
    MemoryAttributes,
    Operation,
    Reduction,
    data_style_layout,
    is_dsmem,
    is_reduction,
    is_store,
)
from hw.layouts.ports import error_layout, request_layout
from hw.params import DIMS, PIECE_BYTES, SMEM_OFFSET_BITS, WARP, TmaParams

STEP_BITS = 40
"""A global step of a loop in pieces: an element stride times a tensor stride."""


SHORT_ROW_BITS = 3
"""Of the pieces of a row that is short enough to be one run, or one line, with others though its
end is not in the tensor or they do not lie side by side; a longer one loses less by a run of its
own. Also of the pieces from one such row to the next."""


@cache
def group_layout(params: TmaParams) -> data.StructLayout:
    """The bulk group that a request is in: one of its thread's, if it has ``joined`` any."""
    return data.StructLayout(
        {"joined": 1, "thread": params.thread_bits, "index": params.group_bits}
    )


def stream_of(params: TmaParams, request) -> Value:
    """Return the stream of a request: that of its warp."""
    return request.thread[(WARP - 1).bit_length() :][: params.stream_bits]


def channel_of(params: TmaParams, operation, stream) -> Value:
    """Return the channel (see ``RequestQueue``) of a request: that of its stream, or of stores."""
    return Mux(is_store(operation), params.streams, stream) if params.stores else stream


@cache
def directed_request_layout(params: TmaParams) -> data.StructLayout:
    """A request of which it is known where it writes.

    Members
    -------
    misdirected : CTAs that there are not (MASK, DST_CTA), with the value that says so
    delivery : where a load or DSMEM request writes; in a cluster
    """
    operands = "multicast", "cta_mask", "dst_cta", "mbarrier_cta"
    fields = request_layout(params).members
    misdirected = data.StructLayout({"mask": 1, "cta": 1, "value": 16})
    return data.StructLayout(
        {
            **{name: shape for name, shape in fields.items() if name not in operands},
            "misdirected": misdirected,
            **({"delivery": delivery_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def queued_request_layout(params: TmaParams) -> data.StructLayout:
    """A request that moves data, and the bulk group that it is in."""
    fields = dict(directed_request_layout(params).members)
    if params.stores:
        fields["group"] = group_layout(params)
    return data.StructLayout(fields)


@cache
def refusal_layout(params: TmaParams) -> data.StructLayout:
    """An error record, and the channel and the bulk group that its request was in."""
    fields = dict(error_layout(params).members) | {"channel": params.channel_bits}
    if params.stores:
        fields["group"] = group_layout(params)
    return data.StructLayout(fields)


class SignalTo(enum.Enum, shape=2):
    """Which CTA's barrier counts what arrives at a receiver."""

    RECEIVER = 0
    PAIR = 1
    """The one of the receiver's pair with the parity of ``signal_cta``."""
    CTA = 2
    """``signal_cta``."""


@cache
def delivery_layout(params: TmaParams) -> data.StructLayout:
    """Where a request writes: with ``remote``, the shared memories of all CTAs of ``mask``."""
    return data.StructLayout(
        {
            "remote": 1,
            "mask": params.ctas,
            "signal": SignalTo,
            "signal_cta": params.cta_bits,
        }
    )


@cache
def transfer_layout(params: TmaParams) -> data.StructLayout:
    """What completes a request: ``pieces`` written, then ``complete_tx`` at ``mbarrier``."""
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "mbarrier": SMEM_OFFSET_BITS,
            "pieces": params.box_piece_bits,
            **({"delivery": delivery_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def write_mode_layout(params: TmaParams) -> data.StructLayout:
    """How the lines of a store are written.

    ``byte_mask``: which bytes of each piece. ``remote``: to shared memory of another CTA.
    """
    writing = {}
    if params.ctas > 1:
        writing["remote"] = 1
    if params.reductions:
        writing["reduction"] = Reduction
    if params.cp_mask:
        writing["byte_mask"] = PIECE_BYTES
    return data.StructLayout(writing)


def remote_field(params: TmaParams) -> dict[str, int]:
    """The field by which all parts of a load say that they go to other CTAs, in a cluster."""
    return {"remote": 1} if params.ctas > 1 else {}


def assign_write_mode(params: TmaParams, writing, request, element_type) -> list:
    """Return what makes ``writing`` that of ``request``."""
    made = []
    if params.ctas > 1:
        made.append(writing.remote.eq(is_dsmem(request.operation)))
    if params.reductions:
        reduction = writing.reduction
        made += [
            reduction.enabled.eq(is_reduction(request.operation)),
            reduction.op.eq(request.reduction_op),
            reduction.element_type.eq(element_type),
        ]
    if params.cp_mask:
        all_bytes = (1 << PIECE_BYTES) - 1
        masked = request.operation == Operation.BULK_STORE
        made.append(writing.byte_mask.eq(Mux(masked, request.byte_mask, all_bytes)))
    return made


@cache
def walk_layout(params: TmaParams) -> data.StructLayout:
    """A box, or a part of it, ready to be walked by adding and comparing.

    What is inside the tensor is a set of equal *runs*, contiguous in both memories; up to four
    nested loops, innermost first, lead from one to the next. What lies between the runs in shared
    memory is fill. A box in several walks is a *chain*: fill goes on from one to the next.

    Members
    -------
    prefetch : only the lines are wanted, in L2
    store : from shared to global memory, and how; there is no fill
    remote : a load whose lines and fill go to shared memory of other CTAs
    attributes : of every line
    style : of every piece
    first, last : of its chain
    has_data : something is inside the tensor
    start : global piece address of the first run
    run : pieces in a run
    tail_bytes : bytes of a row's last piece that are inside the tensor; 0: all 16
    row_pieces : of each of the run's rows that is inside the tensor, if these are short; 0: of the
        run only the last piece is a row's
    smem_begin, smem_end : the chain in shared memory, in pieces; ``smem_begin`` counts where it
        begins, ``smem_end`` where it ends
    smem_start : shared-memory piece address of the first run
    smem_extent : from the start of a run to where fill may begin; skips the gap behind a row
    row_mask : which pieces of 128 aligned bytes belong to rows, not to gaps; with swizzle 96B, of
        384 bytes
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
            **({"store": 1, "write_mode": write_mode_layout(params)} if params.stores else {}),
            **remote_field(params),
            "attributes": MemoryAttributes,
            "style": data_style_layout(params),
            "first": 1,
            "last": 1,
            "has_data": 1,
            "start": params.piece_address_bits,
            "run": params.run_bits,
            "tail_bytes": 4,
            "row_pieces": SHORT_ROW_BITS,
            "smem_begin": params.smem_piece_bits,
            "smem_end": params.smem_piece_bits,
            "smem_start": params.smem_piece_bits,
            "smem_extent": params.box_piece_bits,
            "row_mask": params.row_mask_bits,
            "loops": data.ArrayLayout(loop, DIMS - 1),
        }
    )


POSITION_BITS = 36
"""A position in a tensor, signed: extent, coordinate, corner and offset added up."""


@cache
def level_layout(params: TmaParams) -> data.StructLayout:
    """A dimension of an image as an odometer's wheel, in positions and in piece addresses.

    Members
    -------
    absent : there is no such dimension: it wraps at each step
    position : where the column starts
    restart : where a wrapped wheel goes on; its address is relative to the level above
    last : behind it, the wheel wraps
    limit : last position in the tensor
    stride_less_one, step : from one position to the next
    address : of the column's start, levels above included
    """
    return data.StructLayout(
        {
            "absent": 1,
            "position": signed(POSITION_BITS),
            "restart": signed(POSITION_BITS),
            "last": signed(POSITION_BITS),
            "limit": 32,
            "stride_less_one": 3,
            "step": STEP_BITS,
            "address": params.piece_address_bits,
            "restart_address": params.piece_address_bits,
        }
    )


@cache
def column_layout(params: TmaParams) -> data.StructLayout:
    """A column of pixels of an image: what the im2col walker makes walks of. The walk that it comes
    with holds what they have in common.

    Members
    -------
    enabled : it is one; otherwise the walk is ready
    stops_outside : the first pixel outside and all behind it are left out
    pixels : rows of the column; with ``grouped``, of its first part
    grouped : ``im2col::w::128``: after each 32 pixels, ``halo`` more that the walk does not count
    pitch : pieces of shared memory from a pixel to the next
    skipped_pieces : pieces of a pixel in front of the tensor's first channel
    dense : pixels side by side are contiguous in both memories
    row_log2 : of so many pieces each; in a ``compact`` unit, where only such are ``dense``
    levels : W, H, D, N
    """
    return data.StructLayout(
        {
            "enabled": 1,
            **({"stops_outside": 1} if params.im2col_w and params.stores else {}),
            "pixels": params.pixel_bits,
            "grouped": 1,
            "halo": 5,
            "pitch": 8,
            "skipped_pieces": 8,
            "dense": 1,
            **({"row_log2": 2} if params.compact else {}),
            "levels": data.ArrayLayout(level_layout(params), DIMS - 1),
        }
    )


def _part_fields(params: TmaParams) -> dict[str, data.StructLayout]:
    """The part of a box that a job is: a walk, or in a unit with im2col a column of them."""
    column = {"column": column_layout(params)} if params.im2col else {}
    return {"walk": walk_layout(params), **column}


@cache
def walk_job_layout(params: TmaParams) -> data.StructLayout:
    """One of the parts of a request, ``first`` to ``last``, and what completes the request."""
    return data.StructLayout(
        {
            "first": 1,
            "last": 1,
            "stream": params.stream_bits,
            **({"group": group_layout(params)} if params.stores else {}),
            "transfer": transfer_layout(params),
            **_part_fields(params),
        }
    )


@cache
def generator_job_layout(params: TmaParams) -> data.StructLayout:
    """A part of a request whose completion is tracked under ``slot``; ``last``: of its request."""
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "last": 1,
            "stream": params.stream_bits,
            **_part_fields(params),
        }
    )


@cache
def slot_walk_layout(params: TmaParams) -> data.StructLayout:
    """A walk of the request under ``slot``; ``last``: its last one."""
    return data.StructLayout({"slot": params.slot_bits, "last": 1, "walk": walk_layout(params)})


@cache
def opened_layout(params: TmaParams) -> data.StructLayout:
    """What a request is whose slot was opened: there is one if ``valid``."""
    return data.StructLayout(
        {"valid": 1, "slot": params.slot_bits, "transfer": transfer_layout(params)}
    )
