"""Setup block: clips boxes to their tensors, multiplies, and merges rows into runs.

A request and its tensor map become jobs, or a refusal. The items of a request pass through the four
stages of a pipeline, one a clock:

    sequence  takes the item's fields out of the tensor map, and makes the checks without arithmetic
    clip      finds the steps in front of the tensor and up to its end, and the first position
              inside
    multiply  multiplies this position and the element stride by the tensor's stride, and counts the
              steps inside
    combine   accumulates the addresses, runs and loops of the items of a walk
"""

from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import ErrorCode
from hw.layouts.jobs import (
    POSITION_BITS,
    SHORT_ROW_BITS,
    refusal_layout,
    remote_field,
    request_with_map_layout,
    walk_job_layout,
)
from hw.lib.quotient import quotient
from hw.lib.register_slice import HalfBuffer, SkidBuffer
from hw.params import DIMS, PIECE_BYTES, TmaParams
from hw.setup.checks import REPORT_ORDER, Check, report_first
from hw.setup.item_sequencer import LEVEL_N, ItemSequencer
from hw.setup.items import POSITION_LOW_BITS, clipped_item_layout, multiplied_item_layout
from hw.setup.map_decoder import ROW_BITS, last_byte_of

PRODUCTS = Const(sum((a * (b + 1)) % 8 << 3 * (8 * a + b) for a in range(8) for b in range(8)), 192)
"""Table of ``a * (b + 1)`` modulo 8, of three bits each, by ``b`` (low) and ``a`` (high)."""


def setup_ports(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the ports of the block, which are also those of each of its pipelines."""
    return {
        "i": In(stream.Signature(request_with_map_layout(params))),
        "job": Out(stream.Signature(walk_job_layout(params))),
        "error": Out(stream.Signature(refusal_layout(params))),
    }


def pieces_of(params: TmaParams, element, elements_less_one: Value) -> Value:
    """Return the number of pieces that hold ``elements_less_one + 1`` elements."""
    return (last_byte_of(params, element, elements_less_one) >> 4) + 1


class SetupBlock(wiring.Component):
    """Turns each tensor request with its map into jobs or a refusal, in order.

    Requests are dealt to the pipelines round robin, and their jobs and refusals are collected in
    the same order.

    Latency: 4 clocks, and one for each item of the request beyond the first. Throughput: a request
    a clock as long as no request has more items than there are pipelines; a job a clock. A
    ``compact`` unit has a latency of two clocks more, and takes a request of N items every N + 4
    clocks or faster. Back-pressure: a job or refusal that waits holds up all requests behind it.

    Errors: a request that violates a check is refused, with the first error in the order of
    ``ErrorCode``. If the tensor map could not be read, the error is GMEM_FAULT. A refused request
    has no job and no other effect.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(request_with_map_layout(params)))
    job : Out(stream.Signature(walk_job_layout(params)))
    error : Out(stream.Signature(refusal_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(setup_ports(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        ways = range(self.params.setup_pipelines)
        if self.params.compact:
            m.submodules.pipeline_0 = pipeline = SetupPipeline(self.params)
            m.submodules.input_slice_0 = input_slice = HalfBuffer(self.i.payload.shape())
            m.submodules.output_slice_0 = output_slice = HalfBuffer(self.job.payload.shape())
            connect(m, flipped(self.i), input_slice.i)
            connect(m, input_slice.o, pipeline.i)
            connect(m, pipeline.job, output_slice.i)
            connect(m, output_slice.o, flipped(self.job))
            connect(m, pipeline.error, flipped(self.error))
            return m
        input_turn = Signal(ways)  # the pipeline that gets the next request
        output_turn = Signal(ways)  # the pipeline whose jobs or refusal are next
        for way in ways:
            m.submodules[f"pipeline_{way}"] = pipeline = SetupPipeline(self.params)
            # A request whose items are still being sequenced does not hold up the next pipeline.
            m.submodules[f"input_skid_{way}"] = input_skid = SkidBuffer(self.i.payload.shape())
            connect(m, input_skid.o, pipeline.i)
            m.d.comb += input_skid.i.payload.eq(self.i.payload)
            with m.If(input_turn == way):
                m.d.comb += [
                    input_skid.i.valid.eq(self.i.valid),
                    self.i.ready.eq(input_skid.i.ready),
                ]
            with m.If(output_turn == way):
                for port, source in ((self.job, pipeline.job), (self.error, pipeline.error)):
                    m.d.comb += [
                        port.valid.eq(source.valid),
                        port.payload.eq(source.payload),
                        source.ready.eq(port.ready),
                    ]
        o_fire = (self.job.ready & self.job.valid & self.job.p.last) | (
            self.error.ready & self.error.valid
        )
        for turn, fire in ((input_turn, self.i.valid & self.i.ready), (output_turn, o_fire)):
            with m.If(fire):
                m.d.sync += turn.eq(Mux(turn == ways[-1], 0, turn + 1))
        return m


class CombineState:
    """Registers of the combine stage.

    Parameters
    ----------
    params : TmaParams
    early_error_shape : Shape
        Of ``early_error_layout``.

    Attributes
    ----------
    done : Signal
        All items of a walk are accumulated in ``job``.
    last_item : Signal
        The walk is the last one of its request.
    too_large : Signal
        The box exceeds the CTA's shared memory.
    early_error, channel : Signal
        Of the request.
    job : Signal
        The job, with all items up to the last one that was taken.
    spanned_below : Signal
        Pieces of shared memory that the items up to the last one span.
    held_below : Signal
        Pieces of the box in them.
    open_below : Signal
        They are one run, all of it inside the tensor, that a higher dimension may prolong.
    overflow_below : Signal
        They exceed the CTA's shared memory.
    """

    def __init__(self, params: TmaParams, early_error_shape) -> None:
        self.done = Signal()
        self.last_item = Signal(reset_less=True)
        self.too_large = Signal()
        self.early_error = Signal(early_error_shape, reset_less=True)
        self.channel = Signal(params.channel_bits, reset_less=True)
        self.job = Signal(walk_job_layout(params), reset_less=True)
        self.spanned_below = Signal(params.box_piece_bits, reset_less=True)
        self.held_below = Signal(params.box_piece_bits, reset_less=True)
        self.open_below = Signal(reset_less=True)
        self.overflow_below = Signal(reset_less=True)


@dataclass(frozen=True)
class CombinedItem:
    """Sums over the item that the combine stage takes, and over the items below.

    Parameters
    ----------
    smem_step : Signal
        Pieces of shared memory from a step of the item to the next.
    held_below : Signal
        Pieces of the box in the row and the items below.
    spanned : Signal
        Pieces of shared memory that all steps span.
    overflow : Signal
        The box exceeds the CTA's shared memory.
    merges : Signal
        The steps are contiguous in both memories, and become one run.
    offset : Signal
        Offset of the first position inside in global memory, in pieces.
    run : Signal
        Length of the merged run, in pieces.
    is_outside : Signal
        No step is inside the tensor.
    smem_end : Signal
        Shared-memory address behind the box, in pieces.
    row_start : Signal
        Shared-memory address of the row's first piece inside the tensor, in pieces.
    """

    smem_step: Signal
    held_below: Signal
    spanned: Signal
    overflow: Signal
    merges: Signal
    offset: Signal
    run: Signal
    is_outside: Signal
    smem_end: Signal
    row_start: Signal


class SetupPipeline(wiring.Component):
    """Turns tensor requests into jobs or refusals, an item a clock.

    Latency: 4 clocks, and one for each item of a request beyond the first. Throughput: a request
    every N clocks, N being its items. Back-pressure: a stage waits only for the next stage, and the
    last stage for the outputs; in a ``compact`` unit all stages wait together. Errors: as of
    ``SetupBlock``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(request_with_map_layout(params)))
    job : Out(stream.Signature(walk_job_layout(params)))
    error : Out(stream.Signature(refusal_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(setup_ports(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        clipped = Signal(clipped_item_layout(self.params), reset_less=True)
        multiplied = Signal(multiplied_item_layout(self.params), reset_less=True)
        may_clip, may_multiply, may_combine = (
            Signal(name=name) for name in ("may_clip", "may_multiply", "may_combine")
        )
        clipped_valid = Signal()
        multiplied_valid = Signal()
        m.submodules.item_sequencer = items = ItemSequencer(self.params)
        connect(m, flipped(self.i), items.i)
        # A pipeline that waits for its turn at the outputs fills its empty stages. A compact unit
        # has one pipeline, which takes no turns, and prefers the shorter path.
        fills_stages = Const(not self.params.compact)
        m.d.comb += [
            may_multiply.eq(may_combine | (fills_stages & ~multiplied_valid)),
            may_clip.eq(may_multiply | (fills_stages & ~clipped_valid)),
            items.o.ready.eq(may_clip),
        ]
        with m.If(may_clip):
            m.d.sync += clipped_valid.eq(items.o.valid)
        with m.If(may_multiply):
            m.d.sync += multiplied_valid.eq(clipped_valid)
        self._clip(m, may_clip, items.o.p, clipped)
        self._multiply(m, may_multiply, clipped, items.early_error, multiplied)
        self._combine(m, may_combine, multiplied_valid, multiplied)
        return m

    def _clip(self, m: Module, advance: Value, item, out) -> None:
        """Clip stage: find where the item, and the row, enter and leave the tensor."""
        step = item.step
        divisor_less_one = step.element_stride_less_one
        to_first_less_one = Signal(
            32
        )  # positions from the start of the box to the tensor, less one
        to_last = Signal(signed(34))  # positions from the start of the box to the tensor's last
        coord = Signal(signed(32))
        m.d.comb += [
            to_first_less_one.eq(step.coord_complement),
            coord.eq(~step.coord_complement),
            to_last.eq(step.dim_less_one - coord),
        ]
        skipped_less_one = quotient(m, "skipped_less_one", to_first_less_one, step.reciprocal)

        is_negative = Signal()
        first_inside = Signal(3)  # below 8, so three bits of each term are enough
        skipped_positions = Signal(3)
        product_index = Cat(divisor_less_one, skipped_less_one[:3])
        m.d.comb += [
            is_negative.eq(coord < 0),
            skipped_positions.eq(PRODUCTS.word_select(product_index, 3)),
            first_inside.eq(skipped_positions + (divisor_less_one - to_first_less_one[:3])),
        ]
        with m.If(advance):
            m.d.sync += [
                out.common.eq(item.common),
                out.step.steps_less_one.eq(
                    quotient(m, "steps_less_one", step.box_less_one, step.reciprocal)
                ),
                out.step.skipped_steps.eq(Mux(is_negative, skipped_less_one + 1, 0)),
                out.step.steps_to_end_less_one.eq(
                    quotient(m, "steps_to_end_less_one", to_last, step.reciprocal)
                ),
                out.step.may_end.eq(to_last < 256),
                out.step.is_outside.eq((is_negative & (to_first_less_one >= 256)) | (to_last < 0)),
                out.step.position.eq(Mux(is_negative, first_inside, coord)),
                out.step.element_stride_less_one.eq(divisor_less_one),
                out.step.stride.eq(step.stride),
                out.step.is_absent.eq(step.is_absent),
            ]
        self._clip_row(m, advance, item, out)
        if self.params.im2col:
            self._place_image(m, advance, item, out)

    def _clip_row(self, m: Module, advance: Value, item, out) -> None:
        """Clip the row, in pieces; a row has at most 256 elements."""
        p = self.params
        to_first_less_one = Signal(32)  # elements from the start of the row to the tensor, less one
        to_last = Signal(signed(34))  # elements from the start of the row to the tensor's last
        is_negative = Signal()
        m.d.comb += [
            is_negative.eq(item.row_start < 0),
            to_first_less_one.eq(~item.row_start),
            to_last.eq(item.row_dim_less_one - item.row_start),
        ]
        skipped_pieces = pieces_of(p, item.element, to_first_less_one[:8])
        with m.If(advance):
            m.d.sync += [
                out.row.start.eq(item.base + Mux(is_negative, 0, item.row_start_pieces)),
                out.row.skipped_pieces.eq(Mux(is_negative, skipped_pieces, 0)),
                out.row.pieces_to_end.eq(pieces_of(p, item.element, to_last[:8])),
                out.row.may_end.eq(to_last < 256),
                out.row.is_outside.eq((is_negative & (to_first_less_one >= 256)) | (to_last < 0)),
                out.row.tail_bytes.eq(item.tail_bytes),
            ]

    def _place_image(self, m: Module, advance: Value, item, out) -> None:
        """Find the positions of a dimension of an image.

        It is not clipped here: the im2col walker clips each pixel.
        """
        step, image = item.step, item.image
        coord = (~step.coord_complement).as_signed()
        last = Signal(signed(POSITION_BITS))
        position = Signal(signed(POSITION_BITS))
        m.d.comb += [
            last.eq(step.dim_less_one + image.upper),
            position.eq(coord + image.offset),
        ]
        is_below = image.has_lower_bound & (coord < image.lower)
        with m.If(advance):
            m.d.sync += [
                out.image.dim.eq(image.dim),
                out.image.level.eq(image.level),
                out.image.is_fixed.eq(image.is_fixed),
                out.image.is_misplaced.eq(image.is_bounded & ((coord > last) | is_below)),
                out.image.coord.eq(coord),
                out.image.position.eq(position),
                out.image.restart.eq(image.restart),
                out.image.last.eq(last + image.offset),
                out.image.limit.eq(step.dim_less_one),
            ]
            with m.If(item.common.is_image):
                m.d.sync += out.step.position.eq(position)

    def _multiply(self, m: Module, advance: Value, item, early_error, out) -> None:
        """Multiply stage: multiply the position by the tensor's stride, each half of the position
        apart, and count the steps and pieces inside the tensor.
        """
        step = item.step
        low, high = step.position[:POSITION_LOW_BITS], step.position[POSITION_LOW_BITS:]
        window_end = self.params.smem_bytes // PIECE_BYTES
        with m.If(advance):
            m.d.sync += [
                out.common.eq(item.common),
                out.early_error.eq(early_error),
                out.steps.eq(step.steps_less_one + 1),
                out.window_pieces.eq(window_end - item.common.smem_address[4:]),
                out.offset_low.eq(low * step.stride),
                out.offset_high.eq(high.as_signed() * step.stride),
                out.global_step.eq((step.element_stride_less_one + 1) * step.stride),
            ]
            if self.params.im2col:
                m.d.sync += [
                    out.image.eq(item.image),
                    out.restart_offset.eq(item.image.restart * step.stride),
                ]
            if "has_row_count" in item.common.shape().members:
                with m.If(item.common.has_row_count):
                    m.d.sync += out.steps.eq(item.common.row_count)
        self._count_steps(m, advance, step, out.step)
        self._count_row(m, advance, item, out.row)

    def _count_steps(self, m: Module, advance: Value, step, out) -> None:
        """Count the steps inside the tensor."""
        tensor_ends = Signal()  # the tensor ends inside the box
        last_step = Signal(8)  # the last step inside
        m.d.comb += [
            tensor_ends.eq(step.may_end & (step.steps_to_end_less_one < step.steps_less_one)),
            last_step.eq(Mux(tensor_ends, step.steps_to_end_less_one, step.steps_less_one)),
        ]
        with m.If(advance):
            m.d.sync += [
                out.is_single.eq(step.steps_less_one == 0),
                out.skipped_steps.eq(step.skipped_steps),
                out.count_less_one.eq(last_step - step.skipped_steps),
                out.is_full.eq((step.skipped_steps == 0) & ~tensor_ends),
                out.is_outside.eq(step.is_outside | (step.skipped_steps > last_step)),
                out.element_stride_less_one.eq(step.element_stride_less_one),
            ]
            with m.If(step.is_absent):
                m.d.sync += [out.eq(0), out.is_single.eq(1), out.is_full.eq(1)]

    def _count_row(self, m: Module, advance: Value, item, out) -> None:
        """Count the pieces of the row inside the tensor."""
        row = item.row
        row_pieces = item.common.row_pieces
        tensor_ends = Signal()  # the tensor ends inside the row, or with it
        is_cut = Signal()  # the row has pieces behind the tensor's end
        is_whole = Signal()  # no piece of the row is outside
        is_short = Signal()
        end = Signal(ROW_BITS)  # of the pieces inside
        extent_end = Signal(ROW_BITS)
        m.d.comb += [
            tensor_ends.eq(row.may_end & (row.pieces_to_end <= row_pieces)),
            is_cut.eq(row.may_end & (row.pieces_to_end < row_pieces)),
            end.eq(Mux(is_cut, row.pieces_to_end, row_pieces)),
            extent_end.eq(Mux(is_cut, row.pieces_to_end, item.common.row_pitch)),
            is_whole.eq((row.skipped_pieces == 0) & ~is_cut),
            is_short.eq(row_pieces >> SHORT_ROW_BITS == 0),
        ]
        with m.If(advance):
            m.d.sync += [
                out.start.eq(row.start),
                out.skipped_pieces.eq(row.skipped_pieces),
                out.pieces.eq(end - row.skipped_pieces),
                out.tail_bytes.eq(Mux(tensor_ends, row.tail_bytes, 0)),
                out.extent.eq(extent_end - row.skipped_pieces),
                out.short_pieces.eq(Mux(is_short, end - row.skipped_pieces, 0)),
                out.is_full.eq(is_whole & (is_short | ~(tensor_ends & (row.tail_bytes != 0)))),
                out.is_outside.eq(row.is_outside | (row.skipped_pieces >= end)),
            ]

    def _combine(self, m: Module, advance: Value, valid: Value, item) -> None:
        """Combine stage: accumulate the items of a walk, and offer the job or the refusal."""
        state = CombineState(self.params, item.early_error.shape())
        sums = self._sum(m, item, state)
        with m.If(advance):
            m.d.sync += state.done.eq(valid & item.common.ends_walk)
        with m.If(advance & valid):
            self._accumulate(m, item, state, sums)
        refused = self._refuse(m, advance, valid, item, state, sums)
        m.d.comb += [
            self.job.p.eq(state.job),
            self.job.valid.eq(state.done & ~refused),
            self.error.valid.eq(state.done & refused & state.last_item),
            advance.eq(
                ~state.done | Mux(refused, self.error.ready | ~state.last_item, self.job.ready)
            ),
        ]

    def _sum(self, m: Module, item, state: CombineState) -> CombinedItem:
        """Return the sums over ``item`` and the items below."""
        p = self.params
        common, row, step = item.common, item.row, item.step
        starts_walk, is_image = common.starts_walk, self._is_image(item)
        smem_step = Signal(p.box_piece_bits)
        held_below = Signal(p.box_piece_bits)
        is_open = Signal()
        count = Signal(9)
        is_row_step = starts_walk | is_image
        is_open_row = row.is_full & (common.row_pieces == common.row_pitch)
        m.d.comb += [
            smem_step.eq(Mux(is_row_step, common.row_pitch, state.spanned_below)),
            held_below.eq(Mux(is_row_step, common.row_pieces, state.held_below)),
            is_open.eq(Mux(starts_walk, is_open_row, state.open_below)),
            count.eq(step.count_less_one + 1),
        ]
        spanned = Signal(len(smem_step) + len(item.steps))
        window_slack = Signal(signed(max(len(spanned), len(item.window_pieces)) + 1))
        overflow = Signal()
        merges = Signal()
        offset = Signal(p.piece_address_bits)
        run = Signal(p.box_piece_bits)
        smem_begin = common.smem_address[4:]
        smem_end = Signal(p.smem_piece_bits)
        is_outside = Signal()
        row_start = Signal(p.smem_piece_bits)
        is_contiguous = (item.global_step == smem_step) | step.is_single
        first_row = smem_begin + row.skipped_pieces
        next_row = state.job.walk.smem_start + common.row_pitch
        m.d.comb += [
            spanned.eq(smem_step * item.steps),
            window_slack.eq(item.window_pieces - spanned),
            overflow.eq((window_slack < 0) | (~starts_walk & state.overflow_below)),
            merges.eq(is_open & ~is_image & is_contiguous),
            offset.eq(item.offset_low + (item.offset_high << POSITION_LOW_BITS)),
            run.eq(smem_step * count),
            smem_end.eq(smem_begin + spanned),
            is_outside.eq(step.is_outside),
            row_start.eq(Mux(common.first_item, first_row, next_row)),
        ]
        return CombinedItem(
            smem_step,
            held_below,
            spanned,
            overflow,
            merges,
            offset,
            run,
            is_outside,
            smem_end,
            row_start,
        )

    def _is_image(self, item) -> Value:
        return item.common.is_image if self.params.im2col else Const(0, 1)

    def _accumulate(self, m: Module, item, state: CombineState, sums: CombinedItem) -> None:
        """Add ``item`` to the registers, in a clock in which it is taken."""
        p = self.params
        common, step, job = item.common, item.step, state.job
        m.d.sync += [
            state.last_item.eq(common.last_item),
            state.spanned_below.eq(sums.spanned),
            state.held_below.eq(sums.held_below * item.steps),
            state.open_below.eq(sums.merges & step.is_full),
            state.overflow_below.eq(sums.overflow),
            state.too_large.eq(sums.overflow),
            state.early_error.eq(item.early_error),
            job.first.eq(Mux(common.starts_walk, common.first_item, job.first)),
            job.last.eq(common.last_item),
            *([job.group.eq(common.group)] if p.stores else ()),
            job.stream.eq(common.stream),
            state.channel.eq(common.channel),
            job.transfer.request_id.eq(common.request_id),
            job.transfer.mbarrier.eq(common.mbarrier),
            job.transfer.pieces.eq(sums.held_below * item.steps),
            *([job.transfer.delivery.eq(common.delivery)] if p.ctas > 1 else ()),
        ]
        self._accumulate_walk(m, item, job.walk, sums)

    def _accumulate_walk(self, m: Module, item, walk, sums: CombinedItem) -> None:
        """Add ``item`` to the walk: its address, its run or its loop."""
        p = self.params
        common, row, step = item.common, item.row, item.step
        starts_walk = common.starts_walk
        counts_rows = "has_row_count" in common.shape().members
        has_row_count = common.has_row_count if counts_rows else Const(0, 1)
        skipped = Mux(has_row_count, 0, sums.smem_step * step.skipped_steps)
        m.d.sync += [
            walk.prefetch.eq(common.prefetch),
            *(walk[name].eq(common.delivery[name]) for name in remote_field(p)),
            *(walk[name].eq(common[name]) for name in ("store", "write_mode") if p.stores),
            walk.attributes.eq(common.attributes),
            walk.style.eq(common.style),
            walk.first.eq(Mux(starts_walk, common.first_item, walk.first)),
            walk.last.eq(common.last_item),
            walk.has_data.eq(Mux(starts_walk, ~row.is_outside, walk.has_data) & ~sums.is_outside),
            walk.start.eq(Mux(starts_walk, row.start, walk.start) + sums.offset),
            walk.tail_bytes.eq(row.tail_bytes),
            walk.row_pieces.eq(row.short_pieces),
            walk.smem_begin.eq(common.smem_address[4:]),
            walk.smem_end.eq(sums.smem_end),
            walk.smem_start.eq(Mux(starts_walk, sums.row_start, walk.smem_start) + skipped),
            walk.row_mask.eq(common.row_mask),
        ]
        with m.If(starts_walk):
            m.d.sync += [
                walk.run.eq(row.pieces),
                walk.smem_extent.eq(row.extent),
                *(loop.last.eq(0) for loop in walk.loops),
            ]
        with m.If(sums.merges):
            m.d.sync += [walk.run.eq(sums.run), walk.smem_extent.eq(sums.run)]
        for number, loop in enumerate(walk.loops):
            with m.If(common.loop == number):
                m.d.sync += [
                    loop.last.eq(Mux(sums.merges, 0, step.count_less_one)),
                    loop.global_step.eq(item.global_step),
                    loop.smem_step.eq(sums.smem_step),
                ]

    def _refuse(
        self,
        m: Module,
        advance: Value,
        valid: Value,
        item,
        state: CombineState,
        sums: CombinedItem,
    ) -> Signal:
        """Find the first error of the request, and make its error record.

        Errors that need arithmetic are merged with the early error. Return whether the request is
        refused.
        """
        p = self.params
        early_error, job, error = state.early_error, state.job, self.error
        code = early_error.code
        names = list(early_error.values.shape().members)
        values = [early_error.values[name] for name in names]
        address_index = names.index("smem_address")
        # Of a late check, ``value`` is the number of the offending value.
        late = [Check(state.too_large, ErrorCode.SMEM_RANGE, address_index, 0)]
        refused_d = item.early_error.code != ErrorCode.NONE
        refused_q = Signal(reset_less=True)
        refused = Signal()
        if p.im2col:
            m.d.comb += sums.is_outside.eq(
                item.step.is_outside & (~item.common.is_image | item.image.is_fixed)
            )
            with m.If(advance & valid):
                self._combine_image(m, item, sums.offset, job.column)
            misplaced_d, misplaced, dim, coord = self._misplaced(m, advance & valid, item)
            refused_d |= misplaced_d
            late.append(Check(misplaced, ErrorCode.IM2COL_START, len(values), dim))
            values.append(coord)
        with m.If(advance & valid):
            m.d.sync += refused_q.eq(refused_d)
        m.d.comb += refused.eq(refused_q | state.too_large)
        value_index = Signal(range(len(values)))
        choices = Signal(data.ArrayLayout(len(error.p.value), 1 << len(value_index)))
        m.d.comb += [
            value_index.eq(early_error.value_index),
            *(choices[number].eq(value) for number, value in enumerate(values)),
            error.p.request_id.eq(job.transfer.request_id),
            *([error.p.group.eq(job.group)] if p.stores else ()),
            error.p.channel.eq(state.channel),
            error.p.code.eq(code),
            error.p.dim.eq(early_error.dim),
            error.p.value.eq(choices.as_value().word_select(value_index, len(error.p.value))),
        ]

        def comes_first(check: Check) -> Check:
            """Return ``check`` as not violated if the early error comes before it."""
            codes_before = REPORT_ORDER[: REPORT_ORDER.index(check.code)]
            is_later = Cat(code == before for before in codes_before).any()
            return replace(check, violated=check.violated & ~is_later)

        def report(_number: int, check: Check) -> None:
            m.d.comb += [
                value_index.eq(check.value),
                error.p.code.eq(check.code),
                error.p.dim.eq(check.dim),
            ]

        report_first(m, [comes_first(check) for check in late], report)
        return refused

    def _combine_image(self, m: Module, item, offset: Value, column) -> None:
        """Give a level of the column its positions and addresses."""
        p = self.params
        common, row, image = item.common, item.row, item.image
        m.d.sync += [
            column.enabled.eq(common.is_image),
            *([column.stops_outside.eq(common.stops_outside)] if p.im2col_w and p.stores else ()),
            column.pixels.eq(common.pixels),
            column.grouped.eq(common.grouped),
            column.halo.eq(common.halo),
            column.pitch.eq(common.row_pitch),
            column.skipped_pieces.eq(row.skipped_pieces),
        ]
        address_q = Signal(self.params.piece_address_bits, reset_less=True)
        address_d = Signal(self.params.piece_address_bits)
        m.d.comb += address_d.eq(Mux(common.starts_walk, row.start, address_q) + offset)
        m.d.sync += address_q.eq(address_d)
        with m.If(common.starts_walk):  # a level without an item is absent
            for level in (column.levels[number] for number in range(LEVEL_N)):
                m.d.sync += [
                    level.absent.eq(1),
                    level.position.eq(0),
                    level.restart.eq(0),
                    level.restart_address.eq(0),
                ]
        for number in range(DIMS - 1):
            level = column.levels[number]
            with m.If(number <= image.level):
                m.d.sync += level.address.eq(address_d)
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
            self._find_dense(m, item, column)

    def _find_dense(self, m: Module, item, column) -> None:
        """Find out whether neighbouring pixels are contiguous, with the item of dimension W."""
        common, row = item.common, item.row
        is_contiguous = (
            row.is_full
            & (common.row_pieces == common.row_pitch)
            & (item.global_step == common.row_pieces)
        )
        has_unit_stride = item.step.element_stride_less_one == 0
        is_power_of_two = Const(1, 1)
        if self.params.compact:
            fits = Cat(common.row_pieces == 1 << log2 for log2 in range(1 << len(column.row_log2)))
            is_power_of_two = fits.any()
            for log2, fit in enumerate(fits):
                with m.If(fit):
                    m.d.sync += column.row_log2.eq(log2)
        m.d.sync += column.dense.eq(is_contiguous & has_unit_stride & is_power_of_two)

    def _misplaced(self, m: Module, fire: Value, item) -> tuple[Signal, Signal, Signal, Signal]:
        """Find out whether the start of an im2col box is outside the bounding box.

        Return whether it is, up to the item that is taken in this clock and up to the last item
        taken, and the lowest dimension with a wrong coordinate and that coordinate.
        """
        image = item.image
        misplaced_d = Signal()
        misplaced_q = Signal(reset_less=True)
        dim = Signal.like(image.dim, reset_less=True)
        coord = Signal(signed(32), reset_less=True)
        is_misplaced = image.is_misplaced & item.common.is_image
        m.d.comb += misplaced_d.eq(is_misplaced | (misplaced_q & ~item.common.starts_walk))
        with m.If(fire):
            m.d.sync += misplaced_q.eq(misplaced_d)
            with m.If(is_misplaced):
                m.d.sync += [dim.eq(image.dim), coord.eq(image.coord)]
        return misplaced_d, misplaced_q, dim, coord
