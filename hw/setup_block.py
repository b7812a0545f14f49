"""Setup block: a request and its tensor map become a walk, or a refusal.

All multiplications and divisions of the unit are here. A row, which is dimension 0 or one slice of
an interleaved map, is counted in pieces; the dimensions above it pass through the pipeline one a
clock, lowest first, each as an *item*:

    select    the item's fields out of the tensor map; all checks that need no arithmetic
    clip      which steps of the item are inside the tensor, and where the first one is
    multiply  first position and element stride by the tensor's stride
    gather    addresses, runs and loops of the items so far
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.descriptor_cache import described_request_layout
from hw.layouts import (
    STEP_BITS,
    DataStyle,
    ErrorCode,
    Fill,
    Operation,
    Swizzle,
    error_layout,
    setup_job_layout,
)
from hw.params import DIMS, PIECE_BYTES, SMEM_OFFSET_BITS, TmaParams

ITEM_SIZE_LOG2 = (0, 1, 2, 2, 3, 3, 1, 2, 2, 3, 1)
"""By tensor-map format, 0 to 10: log2 of the element size in bytes."""

FLOAT_FORMATS = range(6, 11)
TF32_FORMATS = (7, 8)

SPANS = ((Swizzle.SPAN_32B, 2), (Swizzle.SPAN_64B, 4), (Swizzle.SPAN_128B, 8))
"""Pieces in a row of shared memory, by swizzle."""

ROW_BITS = 8
"""Width of a count of pieces in a row: 256 elements of 8 bytes are 128 pieces."""


class MapFormat(data.Struct):
    """Word w2 of a tensor map."""

    im2col: 1
    version: 3
    rank_less_one: 3
    format: 4
    interleave: 2
    swizzle: Swizzle
    fill: Fill
    tf32: 1
    l2_promotion: 2
    atom: 2
    allocation: 1
    wide: 1
    reserved: 9


class Step(data.Struct):
    """One dimension above the row, as it enters ``clip``."""

    coord: signed(32)
    dim_less_one: 32
    box_less_one: 8
    element_stride_less_one: 3
    stride: 36


class ClippedStep(data.Struct):
    """What ``clip`` makes of it: ``count_less_one`` + 1 steps from ``low`` on are inside."""

    steps_less_one: 8
    low: 8
    count_less_one: 8
    full: 1
    outside: 1
    position: 32
    element_stride_less_one: 3
    stride: 36


def quotient(m: Module, name: str, dividend, divisor_less_one) -> Signal:
    """Return 8 bits divided by 1 to 8, rounded down: times ceil(2048 / divisor), over 2048."""
    reciprocal = Signal(12, name=f"{name}_reciprocal")
    with m.Switch(divisor_less_one):
        for less_one in range(8):
            with m.Case(less_one):
                m.d.comb += reciprocal.eq(-(-2048 // (less_one + 1)))
    product = Signal(20, name=f"{name}_product")
    m.d.comb += product.eq(dividend[:8] * reciprocal)
    return product[11:19]


class SetupBlock(wiring.Component):
    """Turns each described request into a job or an error record, in order.

    Latency 4 clocks plus one for each dimension beyond the second; a request of rank R takes
    max(1, R - 1) clocks of throughput, with an interleaved map R. Back-pressure on either output
    stops the pipeline.

    Refuses, in the order of ``ErrorCode``, what a tiled load or prefetch may not ask for; a tensor
    map that could not be read is ``GMEM_FAULT``. A refused request leaves nothing behind.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``described_request_layout``
    job : Out(stream) of ``setup_job_layout``
    error : Out(stream) of ``error_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(described_request_layout(params))),
                "job": Out(stream.Signature(setup_job_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
            }
        )

        # What every item of a request carries along.
        refusal = data.StructLayout({"code": ErrorCode, "dim": range(DIMS), "value": 64})
        common = data.StructLayout(
            {
                "first": 1,
                "last": 1,
                "loop": range(DIMS),
                "prefetch": 1,
                "request_id": params.request_id_bits,
                "smem_address": SMEM_OFFSET_BITS,
                "mbarrier": SMEM_OFFSET_BITS,
                "refusal": refusal,
                "style": DataStyle,
                "row": ROW_BITS,
                "pitch": ROW_BITS,
                "row_mask": 8,
            }
        )
        row = data.StructLayout(
            {
                "start": params.piece_address_bits,
                "low": ROW_BITS,
                "pieces": ROW_BITS,
                "tail_bytes": 4,
                "extent": ROW_BITS,
                "full": 1,
                "outside": 1,
            }
        )
        self._selected_layout = data.StructLayout(
            {
                "common": common,
                "step": Step,
                "base": params.piece_address_bits,
                "coord_pieces": signed(31),
                "dim_pieces": 33,
                "dim_tail": 4,
            }
        )
        self._clipped_layout = data.StructLayout(
            {"common": common, "row": row, "step": ClippedStep}
        )
        self._multiplied_layout = data.StructLayout(
            {
                "common": common,
                "row": row,
                "step": ClippedStep,
                "offset_low": 52,
                "offset_high": 52,
                "global_step": STEP_BITS,
            }
        )

    def elaborate(self, platform):
        m = Module()
        advance = Signal()

        selected = Signal(self._selected_layout, reset_less=True)
        clipped = Signal(self._clipped_layout, reset_less=True)
        multiplied = Signal(self._multiplied_layout, reset_less=True)
        select_valid = Signal()
        clip_valid = Signal()
        multiply_valid = Signal()
        with m.If(advance):
            m.d.sync += [
                select_valid.eq(self.i.valid),
                clip_valid.eq(select_valid),
                multiply_valid.eq(clip_valid),
            ]

        self._select(m, advance, selected)
        self._clip(m, advance, selected, clipped)
        self._multiply(m, advance, clipped, multiplied)
        self._gather(m, advance, multiply_valid, multiplied)
        return m

    def _select(self, m: Module, advance, out) -> None:
        """Feed the items of the request at ``i``; make the checks that need no arithmetic."""
        p = self.params
        request = self.i.p.request
        words = self.i.p.words
        map_format = data.View(MapFormat, words[2])

        # Items are dimensions 1 to R - 1, of an interleaved map 0 to R - 1; rank 1 has one of a
        # single step.
        number = Signal(range(DIMS))
        index = Signal(range(DIMS + 1))
        last = Signal()
        interleaved = Signal()
        is_slice = Signal()
        unit = Signal(2)
        m.d.comb += [
            interleaved.eq(map_format.interleave != 0),
            unit.eq(Mux(map_format.interleave[1], 2, 1)),
            index.eq(number + ~interleaved),
            last.eq((index >= map_format.rank_less_one) | (index == DIMS - 1)),
            is_slice.eq(interleaved & (index + 1 == map_format.rank_less_one)),
            self.i.ready.eq(advance & last),
        ]

        size_log2 = Signal(2)
        known = Signal()
        is_float = Signal()
        rounds = Signal()
        with m.Switch(map_format.format):
            for code, log2 in enumerate(ITEM_SIZE_LOG2):
                with m.Case(code):
                    m.d.comb += [
                        known.eq(1),
                        size_log2.eq(log2),
                        is_float.eq(code in FLOAT_FORMATS),
                        rounds.eq(map_format.tf32 if code in TF32_FORMATS else 0),
                    ]

        inner_bytes = Signal(12)
        coord_bytes = Signal(signed(35))
        dim_bytes = Signal(36)
        row = Signal(ROW_BITS)
        pitch = Signal(ROW_BITS)
        row_mask = Signal(8)
        too_wide = Signal()
        m.d.comb += [
            inner_bytes.eq((words[13][24:] + 1) << size_log2),
            pitch.eq(row),
            row_mask.eq(0xFF),
        ]
        with m.If(interleaved):  # a row is all of one slice; where it starts is a step's matter
            m.d.comb += [row.eq(unit), dim_bytes.eq(unit << 4)]
        with m.Else():
            m.d.comb += [
                row.eq(inner_bytes >> 4),
                coord_bytes.eq(request.coords[0] << size_log2),
                dim_bytes.eq((words[8] + 1) << size_log2),
            ]
            with m.Switch(map_format.swizzle):
                for swizzle, pieces in SPANS:
                    with m.Case(swizzle):
                        m.d.comb += [
                            pitch.eq(pieces),
                            row_mask.eq(Cat((piece % pieces) < row for piece in range(8))),
                            too_wide.eq(inner_bytes > pieces * PIECE_BYTES),
                        ]

        odd_slices = (
            words[0][4]
            | Cat(words[3 + i][0] & (map_format.rank_less_one > i) for i in range(DIMS - 1)).any()
        )
        bad_field = (
            ~known
            | (map_format.interleave == 3)
            | (map_format.interleave[1] & odd_slices)
            | (map_format.rank_less_one >= DIMS)
            | ((map_format.im2col | interleaved) & (map_format.rank_less_one < 2))
            | (map_format.atom != 0)
            | map_format.wide
            | ((map_format.fill == Fill.NAN) & ~is_float)
            | inner_bytes[:4].any()
            | too_wide
            | words[0][:4].any()
        )
        bad_mode = map_format.im2col | (request.rank != map_format.rank_less_one + 1)
        # A prefetch has no place in shared memory; its box must be one that a load could have.
        prefetch = request.operation == Operation.TENSOR_PREFETCH
        smem_address = Mux(prefetch, 0, request.smem_address)
        mbarrier = Mux(prefetch, 0, request.mbarrier)
        barrier_outside = mbarrier > p.smem_bytes - 8

        common = out.common
        refusal = common.refusal
        with m.If(advance):
            with m.If(self.i.valid):
                m.d.sync += number.eq(Mux(last, 0, number + 1))
            m.d.sync += [
                common.first.eq(number == 0),
                common.last.eq(last),
                # The slice has one step and needs no loop, so that four are enough.
                common.loop.eq(Mux(is_slice, DIMS - 1, number - (interleaved & last))),
                common.request_id.eq(request.request_id),
                common.prefetch.eq(prefetch),
                common.smem_address.eq(smem_address),
                common.mbarrier.eq(mbarrier),
                common.style.swizzle.eq(map_format.swizzle),
                common.style.fill.eq(map_format.fill),
                common.style.round_tf32.eq(rounds),
                common.row.eq(row),
                common.pitch.eq(pitch),
                common.row_mask.eq(row_mask),
                out.base.eq(Cat(words[0], words[1]) >> 4),
                out.coord_pieces.eq(coord_bytes >> 4),
                out.dim_pieces.eq((dim_bytes + PIECE_BYTES - 1) >> 4),
                out.dim_tail.eq(dim_bytes[:4]),
                refusal.code.eq(ErrorCode.NONE),
                refusal.dim.eq(0),  # every cause of a tiled load is one of dimension 0
                refusal.value.eq(0),
            ]
            with m.If(self.i.p.fault):
                m.d.sync += [
                    refusal.code.eq(ErrorCode.GMEM_FAULT),
                    refusal.value.eq(request.global_address),
                ]
            for condition, code, value in (
                (bad_field, ErrorCode.MAP_FIELD, words[2]),
                (bad_mode, ErrorCode.MAP_MODE, request.rank),
                (smem_address[:7].any(), ErrorCode.SMEM_ALIGN, smem_address),
                (barrier_outside, ErrorCode.SMEM_RANGE, mbarrier),
                (coord_bytes[:4].any(), ErrorCode.COORD_ALIGN, request.coords[0]),
                (mbarrier[:3].any(), ErrorCode.MBAR_ALIGN, mbarrier),
            ):
                with m.Elif(condition):
                    m.d.sync += [refusal.code.eq(code), refusal.value.eq(value)]

            step = out.step
            with m.Switch(index):
                with m.Case(0):
                    m.d.sync += [
                        step.coord.eq(request.coords[0]),
                        step.dim_less_one.eq(words[8]),
                        step.box_less_one.eq(words[13][24:]),
                        step.element_stride_less_one.eq(words[13][:3]),
                        step.stride.eq(unit),
                    ]
                for dim in range(1, DIMS):
                    with m.Case(dim):
                        m.d.sync += [
                            step.coord.eq(request.coords[dim]),
                            step.dim_less_one.eq(words[8 + dim]),
                            step.box_less_one.eq(
                                Mux(is_slice, 0, words[14].word_select(dim - 1, 8))
                            ),
                            step.element_stride_less_one.eq(words[13].word_select(dim, 3)),
                            step.stride.eq(Cat(words[2 + dim], words[7].word_select(dim - 1, 4))),
                        ]
            with m.If(map_format.rank_less_one == 0):
                m.d.sync += step.eq(0)

    def _clip(self, m: Module, advance, item, out) -> None:
        """Intersect the item, and the row, with the tensor."""
        step = item.step
        divisor = step.element_stride_less_one
        before = Signal(32)  # positions from the start to the tensor, less one
        behind = Signal(signed(34))  # positions from the start to the tensor's last
        m.d.comb += [before.eq(~step.coord), behind.eq(step.dim_less_one - step.coord)]
        steps_less_one = quotient(m, "steps_less_one", step.box_less_one, divisor)
        skipped_less_one = quotient(m, "skipped_less_one", before, divisor)
        reachable_less_one = quotient(m, "reachable_less_one", behind, divisor)

        negative = Signal()
        low = Signal(9)
        high = Signal(8)  # the last step inside
        remainder = Signal(3)
        m.d.comb += [
            negative.eq(step.coord < 0),
            low.eq(Mux(negative, skipped_less_one + 1, 0)),
            high.eq(steps_less_one),
            # of before over the divisor; below 8, so three bits of the difference do
            remainder.eq(before[:3] - skipped_less_one[:3] * (divisor + 1)),
        ]
        with m.If((behind < 256) & (reachable_less_one < steps_less_one)):
            m.d.comb += high.eq(reachable_less_one)
        with m.If(advance):
            m.d.sync += [
                out.common.eq(item.common),
                out.step.steps_less_one.eq(steps_less_one),
                out.step.low.eq(low),
                out.step.count_less_one.eq(high - low),
                out.step.full.eq((low == 0) & (high == steps_less_one)),
                out.step.outside.eq((negative & (before >= 256)) | (low > high) | (behind < 0)),
                out.step.position.eq(Mux(negative, divisor - remainder, step.coord)),
                out.step.element_stride_less_one.eq(divisor),
                out.step.stride.eq(step.stride),
            ]

        pieces = item.common.row
        coord = item.coord_pieces
        to_end = Signal(signed(35))
        row_low = Signal(ROW_BITS)
        row_high = Signal(ROW_BITS)
        ends = Signal()
        m.d.comb += [
            to_end.eq(item.dim_pieces - coord),
            row_low.eq(Mux(coord < 0, -coord, 0)),
            ends.eq(to_end <= pieces),
            row_high.eq(Mux(ends, to_end, pieces)),
        ]
        with m.If(advance):
            m.d.sync += [
                out.row.start.eq(item.base + Mux(coord < 0, 0, coord)),
                out.row.low.eq(row_low),
                out.row.pieces.eq(row_high - row_low),
                out.row.tail_bytes.eq(Mux(ends, item.dim_tail, 0)),
                out.row.extent.eq(Mux(row_high == pieces, item.common.pitch, row_high) - row_low),
                out.row.full.eq(
                    (coord >= 0) & (~ends | ((to_end == pieces) & (item.dim_tail == 0)))
                ),
                out.row.outside.eq((to_end <= 0) | (coord + pieces <= 0)),
            ]

    def _multiply(self, m: Module, advance, item, out) -> None:
        """Multiply by the tensor's stride, half of the position at a time."""
        step = item.step
        with m.If(advance):
            m.d.sync += [
                out.common.eq(item.common),
                out.row.eq(item.row),
                out.step.eq(step),
                out.offset_low.eq(step.position[:16] * step.stride),
                out.offset_high.eq(step.position[16:] * step.stride),
                out.global_step.eq((step.element_stride_less_one + 1) * step.stride),
            ]

    def _gather(self, m: Module, advance, valid, item) -> None:
        """Accumulate the items of a request; offer the job, or its refusal, after the last."""
        p = self.params
        window = p.smem_bytes // PIECE_BYTES
        common, row, step = item.common, item.row, item.step
        first = common.first

        done = Signal()
        too_large = Signal()
        smem_address = Signal(SMEM_OFFSET_BITS, reset_less=True)
        refusal = Signal(common.refusal.shape(), reset_less=True)
        job = Signal(setup_job_layout(p), reset_less=True)
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
        steps = Signal(9)
        count = Signal(9)
        m.d.comb += [
            stride.eq(Mux(first, common.pitch, spanned_below)),
            held.eq(Mux(first, common.row, held_below)),
            is_open.eq(Mux(first, row.full & (common.row == common.pitch), open_below)),
            steps.eq(step.steps_less_one + 1),
            count.eq(step.count_less_one + 1),
        ]
        spanned = Signal(p.box_piece_bits + 9)
        overflow = Signal()
        merges = Signal()
        offset = Signal(68)
        run = Signal(p.box_piece_bits)
        smem_begin = common.smem_address[4:]
        smem_end = Signal(p.smem_piece_bits + 1)
        m.d.comb += [
            spanned.eq(stride * steps),
            overflow.eq((spanned > window) | (~first & overflow_below)),
            merges.eq(is_open & ((item.global_step == stride) | (step.steps_less_one == 0))),
            offset.eq(item.offset_low + (item.offset_high << 16)),
            run.eq(stride * count),
            smem_end.eq(smem_begin + spanned),
        ]

        with m.If(advance):
            m.d.sync += done.eq(valid & common.last)
        with m.If(advance & valid):
            m.d.sync += [
                spanned_below.eq(spanned),
                held_below.eq(held * steps),
                open_below.eq(merges & step.full),
                overflow_below.eq(overflow),
                too_large.eq(overflow | (smem_end > window)),
                smem_address.eq(common.smem_address),
                refusal.eq(common.refusal),
                job.transfer.request_id.eq(common.request_id),
                job.transfer.mbarrier.eq(common.mbarrier),
                job.transfer.pieces.eq(held * steps),
                walk.prefetch.eq(common.prefetch),
                walk.style.eq(common.style),
                walk.has_data.eq(Mux(first, ~row.outside, walk.has_data) & ~step.outside),
                walk.start.eq(Mux(first, row.start, walk.start) + offset),
                walk.tail_bytes.eq(row.tail_bytes),
                walk.smem_begin.eq(smem_begin),
                walk.smem_end.eq(smem_end),
                walk.smem_start.eq(
                    Mux(first, smem_begin + row.low, walk.smem_start) + stride * step.low
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

        # The footprint ranks between the causes that were found by looking alone.
        error = self.error
        refused = Signal()
        m.d.comb += [
            refused.eq(refusal.code != ErrorCode.NONE),
            error.p.request_id.eq(job.transfer.request_id),
            error.p.code.eq(refusal.code),
            error.p.dim.eq(refusal.dim),
            error.p.value.eq(refusal.value),
        ]
        with m.Switch(refusal.code):
            with m.Case(
                ErrorCode.GMEM_FAULT, ErrorCode.MAP_FIELD, ErrorCode.MAP_MODE, ErrorCode.SMEM_ALIGN
            ):
                pass
            with m.Default(), m.If(too_large):
                m.d.comb += [
                    refused.eq(1),
                    error.p.code.eq(ErrorCode.SMEM_RANGE),
                    error.p.value.eq(smem_address),
                ]
        m.d.comb += [
            self.job.p.eq(job),
            self.job.valid.eq(done & ~refused),
            error.valid.eq(done & refused),
            advance.eq(~done | Mux(refused, error.ready, self.job.ready)),
        ]
