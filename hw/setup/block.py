"""Setup block: a request and its tensor map become walks, or a refusal.

All multiplications and divisions of the unit are here. The items of a request pass one a clock:

    sequence  the item's fields out of the tensor map; all checks that need no arithmetic
    clip      where the item enters the tensor and leaves it, and the first position inside
    multiply  that position and the element stride by the tensor's stride; the steps inside
    combine   addresses, runs and loops of the items so far
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.front.descriptor_cache import request_with_map_layout
from hw.layouts.isa import ErrorCode
from hw.layouts.jobs import (
    POSITION_BITS,
    SHORT_ROW_BITS,
    STEP_BITS,
    refusal_layout,
    remote_field,
    walk_job_layout,
)
from hw.lib.quotient import quotient
from hw.lib.register_slice import HalfBuffer, SkidBuffer
from hw.params import DIMS, PIECE_BYTES, TmaParams
from hw.setup.item_sequencer import RESTART_BITS, ItemSequencer, N, found_layout, item_common_layout
from hw.setup.map_decoder import ROW_BITS, last_byte_of

_OTHERS = (code for code in ErrorCode if code not in (ErrorCode.NONE, ErrorCode.GMEM_FAULT))
CAUSES = (ErrorCode.GMEM_FAULT, *_OTHERS)
"""In the order in which they are reported; a map that was not read has no other."""


POSITION_LOW_BITS = 16
"""Of a position, multiplied for themselves."""


TIMES = Const(sum((a * (b + 1)) % 8 << 3 * (8 * a + b) for a in range(8) for b in range(8)), 192)
"""Table of a * (b + 1), of three bits each."""


class ClippedStep(data.Struct):
    """What ``clip`` makes of it: the steps from ``low`` on are behind the tensor's start.

    If it ``may_end`` inside the box, it does so with the step ``reachable_less_one``. ``outside``:
    it is too far away on either side. ``is_void`` as in ``Step``.
    """

    steps_less_one: 8
    low: 9
    reachable_less_one: 8
    may_end: 1
    outside: 1
    position: signed(POSITION_BITS)
    element_stride_less_one: 3
    stride: 36
    is_void: 1


class CountedStep(data.Struct):
    """And ``multiply``: ``count_less_one`` + 1 steps from ``low`` on are inside the tensor.

    ``is_single``: of one step, inside or not; ``full``: all steps are inside, ``outside``: none is.
    """

    is_single: 1
    low: 8
    count_less_one: 8
    full: 1
    outside: 1
    element_stride_less_one: 3


class ClippedImageStep(data.Struct):
    """A dimension of an image behind ``clip``; ``misplaced``: its start is refused."""

    dim: range(DIMS)
    level: range(DIMS - 1)
    is_fixed: 1
    misplaced: 1
    coord: signed(32)
    position: signed(POSITION_BITS)
    restart: signed(RESTART_BITS)
    last: signed(POSITION_BITS)
    limit: 32


def setup_ports(params: TmaParams) -> dict:
    """The ports of the block and of each of its pipelines."""
    return {
        "i": In(stream.Signature(request_with_map_layout(params))),
        "job": Out(stream.Signature(walk_job_layout(params))),
        "error": Out(stream.Signature(refusal_layout(params))),
    }


def pieces_of(params: TmaParams, element, elements_less_one) -> Value:
    """Return how many pieces hold so many elements."""
    return (last_byte_of(params, element, elements_less_one) >> 4) + 1


class SetupBlock(wiring.Component):
    """Turns each described request into its jobs or an error record, in order.

    So many pipelines as there are work on requests in turn, and what they make of them leaves in
    turn. Latency 4 clocks plus one for each item of the request beyond the first. A request a clock
    as long as none has more items than there are pipelines; a job a clock. A ``compact`` unit takes
    two clocks more, and a request in up to four clocks more than one has items. Back-pressure on
    either output holds all up.

    Refuses, in the order of ``ErrorCode``, what a request may not ask for; a tensor map that could
    not be read is ``GMEM_FAULT``. A refused request leaves nothing behind.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``request_with_map_layout``
    job : Out(stream) of ``walk_job_layout``
    error : Out(stream) of ``refusal_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(setup_ports(params))

    def elaborate(self, platform):
        m = Module()
        ways = range(self.params.setup_pipelines)
        if self.params.compact:
            m.submodules.pipeline_0 = pipeline = SetupPipeline(self.params)
            m.submodules.door_0 = door = HalfBuffer(self.i.payload.shape())
            m.submodules.exit_0 = way_out = HalfBuffer(self.job.payload.shape())
            connect(m, flipped(self.i), door.i)
            connect(m, door.o, pipeline.i)
            connect(m, pipeline.job, way_out.i)
            connect(m, way_out.o, flipped(self.job))
            connect(m, pipeline.error, flipped(self.error))
            return m
        enters = Signal(ways)  # whose turn it is to take a request ...
        leaves = Signal(ways)  # ... and to give what it made of one
        for way in ways:
            m.submodules[f"pipeline_{way}"] = pipeline = SetupPipeline(self.params)
            # What is still being taken apart does not hold up the others' turn.
            m.submodules[f"door_{way}"] = door = SkidBuffer(self.i.payload.shape())
            connect(m, door.o, pipeline.i)
            m.d.comb += door.i.payload.eq(self.i.payload)
            with m.If(enters == way):
                m.d.comb += [door.i.valid.eq(self.i.valid), self.i.ready.eq(door.i.ready)]
            with m.If(leaves == way):
                for own, made in ((self.job, pipeline.job), (self.error, pipeline.error)):
                    m.d.comb += [
                        own.valid.eq(made.valid),
                        own.payload.eq(made.payload),
                        made.ready.eq(own.ready),
                    ]
        done = (self.job.ready & self.job.valid & self.job.p.last) | (
            self.error.ready & self.error.valid
        )
        for turn, taken in ((enters, self.i.valid & self.i.ready), (leaves, done)):
            with m.If(taken):
                m.d.sync += turn.eq(Mux(turn == ways[-1], 0, turn + 1))
        return m


class SetupPipeline(wiring.Component):
    """One pipeline of the setup block: an item a clock.

    Latency 4 clocks plus one for each item of a request beyond the first; throughput one request in
    as many clocks as it has items. A stage waits only for the one behind it, and the last for the
    outputs; of a single pipeline all wait together.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i, job, error : as of ``SetupBlock``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(setup_ports(params))

        common = item_common_layout(params)
        self._counts_rows = "has_rows" in common.members
        start = params.piece_address_bits
        clipped_row = {"low": ROW_BITS + 1, "to_end": ROW_BITS + 1, "may_end": 1, "tail": 4}
        row = {
            "low": ROW_BITS,
            "pieces": ROW_BITS,
            "tail_bytes": 4,
            "short": SHORT_ROW_BITS,
            "extent": ROW_BITS,
            "full": 1,
        }
        both = {"start": start, "outside": 1}
        clipped = {
            "common": common,
            "row": data.StructLayout(both | clipped_row),
            "step": ClippedStep,
        }
        multiplied = {
            "common": common,
            "row": data.StructLayout(both | row),
            "step": CountedStep,
            "found": found_layout(params),
            "steps": params.pixel_bits if self._counts_rows else 9,
            "room": signed(params.smem_piece_bits + 1),
            "offset_low": min(start, POSITION_LOW_BITS + 36),
            "offset_high": max(0, min(start, POSITION_BITS + 36) - POSITION_LOW_BITS),
            "global_step": STEP_BITS,
        }
        if params.im2col:
            clipped["image"] = multiplied["image"] = ClippedImageStep
            multiplied["restart_offset"] = start
        self._clipped_layout = data.StructLayout(clipped)
        self._multiplied_layout = data.StructLayout(multiplied)

    def elaborate(self, platform):
        m = Module()
        clipped = Signal(self._clipped_layout, reset_less=True)
        multiplied = Signal(self._multiplied_layout, reset_less=True)
        may_clip, may_multiply, may_combine = (
            Signal(name=name) for name in ("may_clip", "may_multiply", "may_combine")
        )
        has_clipped = Signal()
        has_multiplied = Signal()
        m.submodules.item_sequencer = items = ItemSequencer(self.params)
        connect(m, flipped(self.i), items.i)
        # A pipeline that waits for its turn goes on behind what waits. A single one has no turns,
        # and the shorter path.
        closes_up = Const(not self.params.compact)
        m.d.comb += [
            may_multiply.eq(may_combine | (closes_up & ~has_multiplied)),
            may_clip.eq(may_multiply | (closes_up & ~has_clipped)),
            items.o.ready.eq(may_clip),
        ]
        with m.If(may_clip):
            m.d.sync += has_clipped.eq(items.o.valid)
        with m.If(may_multiply):
            m.d.sync += has_multiplied.eq(has_clipped)
        self._clip(m, may_clip, items.o.p, clipped)
        self._multiply(m, may_multiply, clipped, items.found, multiplied)
        self._combine(m, may_combine, has_multiplied, multiplied)
        return m

    def _clip(self, m: Module, advance, item, out) -> None:
        """Where the item, and the row, enter and leave the tensor."""
        step = item.step
        divisor = step.element_stride_less_one
        before = Signal(32)  # positions from the start to the tensor, less one
        behind = Signal(signed(34))  # positions from the start to the tensor's last
        coord = Signal(signed(32))
        m.d.comb += [
            before.eq(step.before),
            coord.eq(~step.before),
            behind.eq(step.dim_less_one - coord),
        ]
        skipped_less_one = quotient(m, "skipped_less_one", before, step.reciprocal)

        negative = Signal()
        first_inside = Signal(3)  # below 8, so that three bits of each term do
        skipped = Signal(3)  # positions
        m.d.comb += [
            negative.eq(coord < 0),
            skipped.eq(TIMES.word_select(Cat(divisor, skipped_less_one[:3]), 3)),
            first_inside.eq(skipped + (divisor - before[:3])),
        ]
        with m.If(advance):
            m.d.sync += [
                out.common.eq(item.common),
                out.step.steps_less_one.eq(
                    quotient(m, "steps_less_one", step.box_less_one, step.reciprocal)
                ),
                out.step.low.eq(Mux(negative, skipped_less_one + 1, 0)),
                out.step.reachable_less_one.eq(
                    quotient(m, "reachable_less_one", behind, step.reciprocal)
                ),
                out.step.may_end.eq(behind < 256),
                out.step.outside.eq((negative & (before >= 256)) | (behind < 0)),
                out.step.position.eq(Mux(negative, first_inside, coord)),
                out.step.element_stride_less_one.eq(divisor),
                out.step.stride.eq(step.stride),
                out.step.is_void.eq(step.is_void),
            ]
        self._clip_row(m, advance, item, out)
        if self.params.im2col:
            self._place_image(m, advance, item, out)

    def _clip_row(self, m: Module, advance, item, out) -> None:
        """Of a row the pieces are counted; it has no more than 256 elements."""
        p = self.params
        before = Signal(32)  # elements from the start to the tensor, less one
        behind = Signal(signed(34))  # elements from the start to the tensor's last
        negative = Signal()
        m.d.comb += [
            negative.eq(item.start < 0),
            before.eq(~item.start),
            behind.eq(item.dim_less_one - item.start),
        ]
        with m.If(advance):
            m.d.sync += [
                out.row.start.eq(item.base + Mux(negative, 0, item.start_pieces)),
                out.row.low.eq(Mux(negative, pieces_of(p, item.element, before[:8]), 0)),
                out.row.to_end.eq(pieces_of(p, item.element, behind[:8])),
                out.row.may_end.eq(behind < 256),
                out.row.outside.eq((negative & (before >= 256)) | (behind < 0)),
                out.row.tail.eq(item.tail),
            ]

    def _place_image(self, m: Module, advance, item, out) -> None:
        """Place a dimension of an image: it is not clipped here, but as the column is walked."""
        step, image = item.step, item.image
        coord = (~step.before).as_signed()
        last = Signal(signed(POSITION_BITS))
        position = Signal(signed(POSITION_BITS))
        m.d.comb += [
            last.eq(step.dim_less_one + image.upper),
            position.eq(coord + image.offset),
        ]
        with m.If(advance):
            m.d.sync += [
                out.image.dim.eq(image.dim),
                out.image.level.eq(image.level),
                out.image.is_fixed.eq(image.is_fixed),
                out.image.misplaced.eq(
                    image.is_bounded & ((coord > last) | (image.has_lower & (coord < image.lower)))
                ),
                out.image.coord.eq(coord),
                out.image.position.eq(position),
                out.image.restart.eq(image.restart),
                out.image.last.eq(last + image.offset),
                out.image.limit.eq(step.dim_less_one),
            ]
            with m.If(item.common.is_image):
                m.d.sync += out.step.position.eq(position)

    def _multiply(self, m: Module, advance, item, found, out) -> None:
        """Multiply by the tensor's stride, half of the position at a time. Meanwhile, count."""
        step = item.step
        low, high = step.position[:POSITION_LOW_BITS], step.position[POSITION_LOW_BITS:]
        with m.If(advance):
            m.d.sync += [
                out.common.eq(item.common),
                out.found.eq(found),
                out.steps.eq(step.steps_less_one + 1),
                out.room.eq(self.params.smem_bytes // PIECE_BYTES - item.common.smem_address[4:]),
                out.offset_low.eq(low * step.stride),
                out.offset_high.eq(high.as_signed() * step.stride),
                out.global_step.eq((step.element_stride_less_one + 1) * step.stride),
            ]
            if self.params.im2col:
                m.d.sync += [
                    out.image.eq(item.image),
                    out.restart_offset.eq(item.image.restart * step.stride),
                ]
            if self._counts_rows:
                with m.If(item.common.has_rows):
                    m.d.sync += out.steps.eq(item.common.rows)
        self._count(m, advance, step, out.step)
        self._count_row(m, advance, item, out.row)

    def _count(self, m: Module, advance, step, out) -> None:
        """The steps inside the tensor."""
        ends = Signal()
        high = Signal(8)  # the last step inside
        m.d.comb += [
            ends.eq(step.may_end & (step.reachable_less_one < step.steps_less_one)),
            high.eq(Mux(ends, step.reachable_less_one, step.steps_less_one)),
        ]
        with m.If(advance):
            m.d.sync += [
                out.is_single.eq(step.steps_less_one == 0),
                out.low.eq(step.low),
                out.count_less_one.eq(high - step.low),
                out.full.eq((step.low == 0) & ~ends),
                out.outside.eq(step.outside | (step.low > high)),
                out.element_stride_less_one.eq(step.element_stride_less_one),
            ]
            with m.If(step.is_void):
                m.d.sync += [out.eq(0), out.is_single.eq(1), out.full.eq(1)]

    def _count_row(self, m: Module, advance, item, out) -> None:
        """The pieces of the row inside the tensor."""
        row = item.row
        pieces = item.common.row
        ends = Signal()  # the tensor, not behind the row
        is_short = Signal()  # there are pieces behind the tensor
        is_whole = Signal()
        few = Signal()  # pieces
        high = Signal(ROW_BITS)
        end = Signal(ROW_BITS)
        m.d.comb += [
            ends.eq(row.may_end & (row.to_end <= pieces)),
            is_short.eq(row.may_end & (row.to_end < pieces)),
            high.eq(Mux(is_short, row.to_end, pieces)),
            end.eq(Mux(is_short, row.to_end, item.common.pitch)),
            is_whole.eq((row.low == 0) & ~is_short),
            few.eq(pieces >> SHORT_ROW_BITS == 0),
        ]
        with m.If(advance):
            m.d.sync += [
                out.start.eq(row.start),
                out.low.eq(row.low),
                out.pieces.eq(high - row.low),
                out.tail_bytes.eq(Mux(ends, row.tail, 0)),
                out.extent.eq(end - row.low),
                out.short.eq(Mux(few, high - row.low, 0)),
                out.full.eq(is_whole & (few | ~(ends & (row.tail != 0)))),
                out.outside.eq(row.outside | (row.low >= high)),
            ]

    def _combine(self, m: Module, advance, valid, item) -> None:
        """Accumulate the items of a walk; offer the job, or the refusal, after the last."""
        p = self.params
        common, row, step = item.common, item.row, item.step
        first = common.first
        has_rows = common.has_rows if self._counts_rows else Const(0, 1)
        is_image = common.is_image if p.im2col else Const(0, 1)

        done = Signal()
        ends = Signal(reset_less=True)
        too_large = Signal()
        refused = Signal()
        refused_earlier = Signal(reset_less=True)
        found = Signal(item.found.shape(), reset_less=True)
        channel = Signal(p.channel_bits, reset_less=True)
        job = Signal(walk_job_layout(p), reset_less=True)
        walk = job.walk

        # Of the lower dimensions: the pieces they span in shared memory, the pieces they hold,
        # and whether they are one run that may go on: all inside, contiguous in both memories.
        spanned_below = Signal(p.box_piece_bits, reset_less=True)
        held_below = Signal(p.box_piece_bits, reset_less=True)
        open_below = Signal(reset_less=True)
        overflow_below = Signal(reset_less=True)
        stride = Signal(p.box_piece_bits)
        held = Signal(p.box_piece_bits)
        is_open = Signal()
        count = Signal(9)
        of_row = first | is_image
        m.d.comb += [
            stride.eq(Mux(of_row, common.pitch, spanned_below)),
            held.eq(Mux(of_row, common.row, held_below)),
            is_open.eq(Mux(first, row.full & (common.row == common.pitch), open_below)),
            count.eq(step.count_less_one + 1),
        ]
        spanned = Signal(len(stride) + len(item.steps))
        left = Signal(signed(max(len(spanned), len(item.room)) + 1))  # of the window
        overflow = Signal()
        merges = Signal()
        offset = Signal(p.piece_address_bits)
        run = Signal(p.box_piece_bits)
        smem_begin = common.smem_address[4:]
        smem_end = Signal(p.smem_piece_bits)
        outside = Signal()
        row_start = Signal(p.smem_piece_bits)
        m.d.comb += [
            spanned.eq(stride * item.steps),
            left.eq(item.room - spanned),
            overflow.eq((left < 0) | (~first & overflow_below)),
            merges.eq(is_open & ~is_image & ((item.global_step == stride) | step.is_single)),
            offset.eq(item.offset_low + (item.offset_high << POSITION_LOW_BITS)),
            run.eq(stride * count),
            smem_end.eq(smem_begin + spanned),
            outside.eq(step.outside),
            row_start.eq(Mux(common.opens, smem_begin + row.low, walk.smem_start + common.pitch)),
        ]

        with m.If(advance):
            m.d.sync += done.eq(valid & common.last)
        with m.If(advance & valid):
            m.d.sync += [
                ends.eq(common.ends),
                spanned_below.eq(spanned),
                held_below.eq(held * item.steps),
                open_below.eq(merges & step.full),
                overflow_below.eq(overflow),
                too_large.eq(overflow),
                found.eq(item.found),
                job.first.eq(Mux(first, common.opens, job.first)),
                job.last.eq(common.ends),
                *([job.group.eq(common.group)] if p.stores else ()),
                job.stream.eq(common.stream),
                channel.eq(common.channel),
                job.transfer.request_id.eq(common.request_id),
                job.transfer.mbarrier.eq(common.mbarrier),
                job.transfer.pieces.eq(held * item.steps),
                *([job.transfer.delivery.eq(common.delivery)] if p.ctas > 1 else ()),
                walk.prefetch.eq(common.prefetch),
                *(walk[name].eq(common.delivery[name]) for name in remote_field(p)),
                *(walk[name].eq(common[name]) for name in ("store", "write_mode") if p.stores),
                walk.attributes.eq(common.attributes),
                walk.style.eq(common.style),
                walk.first.eq(Mux(first, common.opens, walk.first)),
                walk.last.eq(common.ends),
                walk.has_data.eq(Mux(first, ~row.outside, walk.has_data) & ~outside),
                walk.start.eq(Mux(first, row.start, walk.start) + offset),
                walk.tail_bytes.eq(row.tail_bytes),
                walk.row_pieces.eq(row.short),
                walk.smem_begin.eq(smem_begin),
                walk.smem_end.eq(smem_end),
                walk.smem_start.eq(
                    Mux(first, row_start, walk.smem_start) + Mux(has_rows, 0, stride * step.low)
                ),
                walk.row_mask.eq(common.row_mask),
            ]
            with m.If(first):
                m.d.sync += [
                    walk.run.eq(row.pieces),
                    walk.smem_extent.eq(row.extent),
                    *(loop.last.eq(0) for loop in walk.loops),
                ]
            with m.If(merges):
                m.d.sync += [walk.run.eq(run), walk.smem_extent.eq(run)]
            for number, loop in enumerate(walk.loops):
                with m.If(common.loop == number):
                    m.d.sync += [
                        loop.last.eq(Mux(merges, 0, step.count_less_one)),
                        loop.global_step.eq(item.global_step),
                        loop.smem_step.eq(stride),
                    ]

        # Causes that arithmetic has found rank between those that were found by looking alone.
        code = found.code
        values = [found.values[name] for name in found.values.shape().members]
        named = list(found.values.shape().members).index
        late = [(ErrorCode.SMEM_RANGE, too_large, 0, named("smem_address"))]
        refused_now = item.found.code != ErrorCode.NONE
        if p.im2col:
            m.d.comb += outside.eq(step.outside & (~is_image | item.image.is_fixed))
            with m.If(advance & valid):
                self._combine_image(m, item, offset, job.column)
            misplaced_now, misplaced, dim, coord = self._misplaced(m, advance & valid, item)
            refused_now |= misplaced_now
            late.append((ErrorCode.IM2COL_START, misplaced, dim, len(values)))
            values.append(coord)
        with m.If(advance & valid):
            m.d.sync += refused_earlier.eq(refused_now)
        m.d.comb += refused.eq(refused_earlier | too_large)
        error = self.error
        chosen = Signal(range(len(values)))
        choices = Signal(data.ArrayLayout(len(error.p.value), 1 << len(chosen)))
        m.d.comb += [
            chosen.eq(found.chosen),
            *(choices[number].eq(value) for number, value in enumerate(values)),
            error.p.request_id.eq(job.transfer.request_id),
            *([error.p.group.eq(job.group)] if p.stores else ()),
            error.p.channel.eq(channel),
            error.p.code.eq(code),
            error.p.dim.eq(found.dim),
            error.p.value.eq(choices.as_value().word_select(chosen, len(error.p.value))),
        ]
        for cause, is_so, dim, number in reversed(late):
            earlier = Cat(code == other for other in CAUSES[: CAUSES.index(cause)])
            with m.If(is_so & ~earlier.any()):
                m.d.comb += [
                    chosen.eq(number),
                    error.p.code.eq(cause),
                    error.p.dim.eq(dim),
                ]
        m.d.comb += [
            self.job.p.eq(job),
            self.job.valid.eq(done & ~refused),
            error.valid.eq(done & refused & ends),
            advance.eq(~done | Mux(refused, error.ready | ~ends, self.job.ready)),
        ]

    def _combine_image(self, m: Module, item, offset, column) -> None:
        """Give a level of the column its positions and addresses."""
        p = self.params
        common, row, image = item.common, item.row, item.image
        m.d.sync += [
            column.enabled.eq(common.is_image),
            *([column.stops_outside.eq(common.stops_outside)] if p.im2col_w and p.stores else ()),
            column.pixels.eq(common.pixels),
            column.grouped.eq(common.grouped),
            column.halo.eq(common.halo),
            column.pitch.eq(common.pitch),
            column.skipped_pieces.eq(row.low),
        ]
        start = Signal(self.params.piece_address_bits, reset_less=True)
        moved = Signal(self.params.piece_address_bits)
        m.d.comb += moved.eq(Mux(common.first, row.start, start) + offset)
        m.d.sync += start.eq(moved)
        with m.If(common.first):  # until its item comes, a level is absent
            for level in (column.levels[number] for number in range(N)):
                m.d.sync += [
                    level.absent.eq(1),
                    level.position.eq(0),
                    level.restart.eq(0),
                    level.restart_address.eq(0),
                ]
        for number in range(DIMS - 1):
            level = column.levels[number]
            with m.If(number <= image.level):
                m.d.sync += level.address.eq(moved)
            with m.If((image.level == number) & ~image.is_fixed):
                m.d.sync += [
                    level.absent.eq(0),
                    level.position.eq(image.position),
                    level.restart.eq(image.restart),
                    level.restart_address.eq(item.restart_offset),
                    level.last.eq(image.last),
                    level.limit.eq(image.limit),
                    level.stride_less_one.eq(item.step.element_stride_less_one),
                    level.step.eq(item.global_step),
                ]
        with m.If(image.level == 0):
            contiguous = row.full & (common.row == common.pitch) & (item.global_step == common.row)
            one_by_one = item.step.element_stride_less_one == 0
            walked = Const(1, 1)
            if p.compact:
                shifts = Cat(common.row == 1 << log2 for log2 in range(1 << len(column.row_log2)))
                walked = shifts.any()
                for log2, fits in enumerate(shifts):
                    with m.If(fits):
                        m.d.sync += column.row_log2.eq(log2)
            m.d.sync += column.dense.eq(contiguous & one_by_one & walked)

    def _misplaced(self, m: Module, taken, item) -> tuple[Signal, Signal, Signal, Signal]:
        """Return whether the start of an image is refused, with this item and in the clock after,
        and then the lowest dimension and its coordinate that are the cause.
        """
        image = item.image
        now = Signal()
        found = Signal(reset_less=True)
        dim = Signal.like(image.dim, reset_less=True)
        value = Signal(signed(32), reset_less=True)
        misplaced = image.misplaced & item.common.is_image
        m.d.comb += now.eq(misplaced | (found & ~item.common.first))
        with m.If(taken):
            m.d.sync += found.eq(now)
            with m.If(misplaced):
                m.d.sync += [dim.eq(image.dim), value.eq(image.coord)]
        return now, found, dim, value
