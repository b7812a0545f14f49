"""Payloads from the request to the request generator: requests, walks, columns and jobs."""

from functools import cache

from amaranth.hdl import Cat, Mux, Value
from amaranth.lib import data

from hw.layouts.columns import (
    column_layout,
    column_step_fields,
    job_step_bits,
    prepared_column_layout,
)
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
from hw.layouts.translation import cause_field
from hw.params import DIMS, PIECE_BYTES, SMEM_OFFSET_BITS, WARP, TmaParams

SHORT_ROW_BITS = 3
"""Width of the length of a *short* row, in pieces, and of the distance between two short rows.

Several short rows can be one run, although each ends outside the tensor, and several can share a
line, although they are not contiguous. A longer row loses little by a run of its own."""


@cache
def group_layout(params: TmaParams) -> data.StructLayout:
    """The bulk group that a request belongs to.

    Members
    -------
    joined : the request belongs to a group; otherwise the other members have no meaning
    thread : number of the thread that issued the request
    index : number of the group among the groups of the thread, modulo ``bulk_groups``
    """
    return data.StructLayout(
        {"joined": 1, "thread": params.thread_bits, "index": params.group_bits}
    )


def stream_of(params: TmaParams, request) -> Value:
    """Return the stream of a request: the number of its warp modulo ``streams``."""
    return request.thread[(WARP - 1).bit_length() :][: params.stream_bits]


def channel_of(params: TmaParams, operation, stream) -> Value:
    """Return the channel (see ``RequestQueue``) of a request of ``stream``.

    A load or prefetch is in the channel of its stream, and a store in the last channel.
    """
    return Mux(is_store(operation), params.streams, stream) if params.stores else stream


@cache
def directed_request_layout(params: TmaParams) -> data.StructLayout:
    """A request with its destination: ``request_layout`` without the CTA operands.

    Members
    -------
    misdirected : the CTA operands are illegal. ``mask``: error MASK applies; ``cta``: error DST_CTA
        applies; ``value``: the offending value
    no_receiver : a load has a mask of 0: it is checked like any load, but moves and signals nothing
    delivery : destination of a load or DSMEM request; present if ``ctas`` > 1
    """
    operands = "multicast", "cta_mask", "dst_cta", "mbarrier_cta"
    fields = request_layout(params).members
    misdirected = data.StructLayout({"mask": 1, "cta": 1, "value": params.mask_bits})
    return data.StructLayout(
        {
            **{name: shape for name, shape in fields.items() if name not in operands},
            "misdirected": misdirected,
            "no_receiver": 1,
            **({"delivery": delivery_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def queued_request_layout(params: TmaParams) -> data.StructLayout:
    """A request that moves data, with its bulk group.

    Members
    -------
    group : present with ``stores``; the other members are those of ``directed_request_layout``
    """
    fields = dict(directed_request_layout(params).members)
    if params.stores:
        fields["group"] = group_layout(params)
    return data.StructLayout(fields)


@cache
def request_with_map_layout(params: TmaParams) -> data.StructLayout:
    """A request with its tensor map.

    Members
    -------
    request : the request
    words : words w0 to w15 of the tensor map, all from one fill
    fault : the map could not be read, and ``words`` have no meaning
    decode, page : see `cause_field`
    """
    return data.StructLayout(
        {
            "request": queued_request_layout(params),
            "words": data.ArrayLayout(32, 16),
            "fault": 1,
            **cause_field(params),
        }
    )


@cache
def refusal_layout(params: TmaParams) -> data.StructLayout:
    """An error record of a refused request, with the request's channel and bulk group.

    Members
    -------
    channel : see ``channel_of``
    group : present with ``stores``; the other members are those of ``error_layout``
    """
    fields = dict(error_layout(params).members) | {"channel": params.channel_bits}
    if params.stores:
        fields["group"] = group_layout(params)
    return data.StructLayout(fields)


def pair_field(params: TmaParams) -> dict[str, data.StructLayout]:
    """Return the field ``pair``, which is present with ``cta_group_2``.

    It selects the CTA whose barrier counts the bytes that a receiver gets; see ``holder_of``.

    Members of ``pair``
    -------------------
    enabled : the CTA of the receiver's pair whose rank has this ``parity``; otherwise the receiver
    """
    if not params.cta_group_2:
        return {}
    return {"pair": data.StructLayout({"enabled": 1, "parity": 1})}


def holder_of(params: TmaParams, source, receiver: Value) -> Value:
    """Return the CTA whose barrier counts the bytes that ``receiver`` gets.

    ``source`` has the field of ``pair_field``.
    """
    if not params.cta_group_2:
        return receiver
    return Mux(source.pair.enabled, Cat(source.pair.parity, receiver[1:]), receiver)


@cache
def delivery_layout(params: TmaParams) -> data.StructLayout:
    """Destination of a load or DSMEM request in a cluster.

    Members
    -------
    remote : other CTAs receive the data, or several, or none; otherwise only the issuer's CTA. Data
        of a DSMEM request is always remote
    mask : the receivers, a bit for each CTA
    pair : see ``pair_field``
    """
    return data.StructLayout({"remote": 1, "mask": params.ctas, **pair_field(params)})


@cache
def transfer_layout(params: TmaParams) -> data.StructLayout:
    """Completion of a request: after ``pieces`` are written, ``complete_tx`` at ``mbarrier``.

    Members
    -------
    request_id : goes into an error record
    mbarrier : byte offset of the barrier in shared memory
    pieces : pieces of shared memory that the request reads or writes
    delivery : destination; present if ``ctas`` > 1
    """
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
    """Write mode of the lines of a store.

    Members
    -------
    remote : to shared memory of another CTA; present if ``ctas`` > 1
    reduction : the destination is combined with the data; present with ``reductions``
    byte_mask : which bytes of each piece are written; present with ``cp_mask``
    """
    fields = {}
    if params.ctas > 1:
        fields["remote"] = 1
    if params.reductions:
        fields["reduction"] = Reduction
    if params.cp_mask:
        fields["byte_mask"] = PIECE_BYTES
    return data.StructLayout(fields)


def remote_field(params: TmaParams) -> dict[str, int]:
    """Return the field ``remote`` of the parts of a load, which is present if ``ctas`` > 1.

    It says that the load's data goes to other CTAs.
    """
    return {"remote": 1} if params.ctas > 1 else {}


def assign_write_mode(params: TmaParams, write_mode, request, element_type) -> list:
    """Return the assignments to ``write_mode`` (of ``write_mode_layout``) for ``request``."""
    assignments = []
    if params.ctas > 1:
        assignments.append(write_mode.remote.eq(is_dsmem(request.operation)))
    if params.reductions:
        reduction = write_mode.reduction
        assignments += [
            reduction.enabled.eq(is_reduction(request.operation)),
            reduction.op.eq(request.reduction_op),
            reduction.element_type.eq(element_type),
        ]
    if params.cp_mask:
        all_bytes = (1 << PIECE_BYTES) - 1
        has_mask = request.operation == Operation.BULK_STORE
        assignments.append(write_mode.byte_mask.eq(Mux(has_mask, request.byte_mask, all_bytes)))
    return assignments


@cache
def walk_layout(params: TmaParams) -> data.StructLayout:
    """A walk: a box or a part of a box, as loops of additions and comparisons.

    The data of a walk that is inside the tensor is a set of *runs* of equal length. A run is
    contiguous in both memories. Up to four nested loops, the innermost first, lead from one run to
    the next. The pieces between the runs in shared memory are fill. A box that needs several walks
    is a *chain* of walks: the fill of the box continues from one walk of the chain to the next.

    Members
    -------
    prefetch : the lines are only fetched into L2
    store : from shared to global memory, without fill; present with ``stores``
    write_mode : how a store writes; present with ``stores``
    remote : data and fill of a load go to shared memory of other CTAs; present if ``ctas`` > 1
    attributes : hints of each line
    style : format of each piece in shared memory
    first, last : this is the first walk, the last walk of its chain
    has_data : a part of the walk is inside the tensor; otherwise all of it is fill
    start : global address of the first run, in pieces
    run : length of a run, in pieces
    tail_bytes : bytes of a row's last piece that are inside the tensor; 0 stands for all 16
    row_pieces : if a run consists of several short rows, the pieces per row that are inside the
        tensor, and ``tail_bytes`` applies to each row; 0: ``tail_bytes`` applies only to the last
        piece of the run
    smem_begin : shared-memory address of the chain's first piece, in pieces; read with ``first``
    smem_end : shared-memory address behind the chain's last piece, in pieces; read with ``last``
    smem_start : shared-memory address of the first run, in pieces
    smem_extent : pieces of shared memory from the start of a run to the first piece that may be
        fill; it includes the gap behind a row
    row_mask : which pieces of each 128 aligned bytes of shared memory belong to rows, and are not
        gaps between rows; with swizzle 96B, of each 384 aligned bytes
    loops : per loop, the repetitions less one (``last``), and the distances in pieces from one
        repetition to the next in global memory (``global_step``) and in shared memory
        (``smem_step``)
    """
    loop = data.StructLayout(
        {
            "last": 8,
            "global_step": job_step_bits(params),
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


def _part_fields(params: TmaParams) -> dict[str, data.StructLayout]:
    """Return the fields of a job's part of a box: a walk and, with ``im2col``, a column."""
    column = {"column": column_layout(params)} if params.im2col else {}
    return {"walk": walk_layout(params), **column}


@cache
def walk_job_layout(params: TmaParams) -> data.StructLayout:
    """A job: one part of a request, as it leaves setup.

    Members
    -------
    first, last : this is the first job, the last job of its request
    stream : see ``stream_of``
    group : bulk group of the request; present with ``stores``
    walk, column : the part of the box; ``column`` is present with ``im2col``
    transfer : completion of the request
    """
    return data.StructLayout(
        {
            "first": 1,
            "last": 1,
            "stream": params.stream_bits,
            **({"group": group_layout(params)} if params.stores else {}),
            **_part_fields(params),
            "transfer": transfer_layout(params),
        }
    )


def steering_bits(params: TmaParams) -> int:
    """Return how many bits at the beginning of a ``walk_job_layout`` decide where a job goes."""
    walk = walk_job_layout(params)["walk"]
    last_field = walk.shape["store" if params.stores else "prefetch"]
    return walk.offset + last_field.offset + last_field.width


@cache
def generator_job_layout(params: TmaParams) -> data.StructLayout:
    """A job whose request has a slot, as it enters the walk generator.

    Members
    -------
    channel : see ``channel_of``
    slot : slot of the request in the completion tracker or store tracker
    last : this is the last job of its request
    walk, column : the part of the box; ``column`` is present with ``im2col``
    """
    return data.StructLayout(
        {
            "channel": params.channel_bits,
            "slot": params.slot_bits,
            "last": 1,
            **_part_fields(params),
        }
    )


@cache
def prepared_job_layout(params: TmaParams) -> data.StructLayout:
    """A job whose column is prepared.

    Members
    -------
    slot, last, walk : see ``generator_job_layout``
    column : see ``prepared_column_layout``
    """
    return data.StructLayout(
        {**slot_walk_layout(params).members, "column": prepared_column_layout(params)}
    )


@cache
def slot_walk_layout(params: TmaParams) -> data.StructLayout:
    """A walk of the request in ``slot``; ``last``: this is the last walk of the request."""
    return data.StructLayout({"slot": params.slot_bits, "last": 1, "walk": walk_layout(params)})


@cache
def column_step_layout(params: TmaParams) -> data.StructLayout:
    """A step of the odometer: the pixels of a walk, or a job that is no column.

    Members
    -------
    channel, slot, last, walk : of the job
    others : see ``column_step_fields``
    """
    walk = in_channel(params, slot_walk_layout(params)).members
    return data.StructLayout({**walk, **column_step_fields(params)})


def in_channel(params: TmaParams, layout: data.StructLayout) -> data.StructLayout:
    """Return ``layout`` with the member ``channel``, for blocks that all channels share."""
    return data.StructLayout({"channel": params.channel_bits, **layout.members})


@cache
def rows_layout(params: TmaParams) -> data.StructLayout:
    """Short rows of a walk that may share a line.

    Members
    -------
    loop : the loop whose steps are the rows, one-hot; 0: no rows of the walk can share a line
    row_step : pieces of global memory from one row to the next
    smem_step : pieces of shared memory from one row to the next
    fill : pieces between rows that are fill; bit i stands for piece i behind a row's first piece
    rows_in_line : for each lane, how many more rows fit in the line behind a row that begins there
    rows_in_beat : the same in shared memory. If there is fill between the rows, the rows must fit
        in the beat; otherwise they must fit in as many pieces as a beat has. Of a store: 1 if the
        row and the next one lie in one beat each, else 0.
    """
    row_counts = data.ArrayLayout(params.lane_bits, params.lanes)
    return data.StructLayout(
        {
            "loop": DIMS - 1,
            "row_step": SHORT_ROW_BITS,
            "smem_step": SHORT_ROW_BITS,
            "fill": params.lanes,
            "rows_in_line": row_counts,
            "rows_in_beat": row_counts,
        }
    )


@cache
def prepared_walk_layout(params: TmaParams) -> data.StructLayout:
    """A walk as the run walker takes it.

    Members
    -------
    slot, last, walk : see ``slot_walk_layout``
    rows : see ``rows_layout``; present if the unit ``gathers_rows``
    """
    rows = {"rows": rows_layout(params)} if params.gathers_rows else {}
    return data.StructLayout({**slot_walk_layout(params).members, **rows})


@cache
def opened_layout(params: TmaParams) -> data.StructLayout:
    """A request that takes a slot in this clock.

    Members
    -------
    valid : a request takes a slot; otherwise the other members have no meaning
    slot : its slot
    transfer : its completion
    """
    return data.StructLayout(
        {"valid": 1, "slot": params.slot_bits, "transfer": transfer_layout(params)}
    )
