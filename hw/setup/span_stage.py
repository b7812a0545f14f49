"""Span stage: finds what the items of a box span in shared memory, and where they begin."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.lib.prefixes import prefixes
from hw.params import TmaParams
from hw.setup.items import (
    POSITION_LOW_BITS,
    multiplied_batch_layout,
    spanned_batch_layout,
    starts_walk,
    sum_of,
)


class SpanStage(wiring.Component):
    """Multiplies the lengths of row and items, from batch to batch of a walk, and the steps inside
    and in front of the tensor by what the items below span. Adds the parts of products with
    strides, and the offsets of the items of a batch. No product follows another one here.

    Latency: one clock. Throughput: a batch a clock. Back-pressure: none. Errors: none.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    valid : In(1)
        There is a batch at ``i``.
    i : In(multiplied_batch_layout(params))
    o : Out(spanned_batch_layout(params))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "valid": In(1),
                "i": In(multiplied_batch_layout(params)),
                "o": Out(spanned_batch_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p, i = self.params, self.i
        out = Signal(spanned_batch_layout(p), reset_less=True)
        spanned_below = Signal(p.box_piece_bits)  # by the row and the items below
        held_below = Signal(p.box_piece_bits)
        is_first = starts_walk(p, i.common)
        last_factor = i.factors[p.setup_pipelines - 1]
        m.d.comb += [
            self.o.eq(out),
            spanned_below.eq(Mux(is_first, i.common.row_pitch, out.spanned)),
            held_below.eq(Mux(is_first, i.common.row_pieces, out.held)),
        ]
        added_up = "global_steps", "offsets", "restart_offsets"
        unchanged = [
            name
            for name in out.shape().members
            if name in i.shape().members and name not in added_up
        ]
        m.d.sync += [
            *(out[name].eq(i[name]) for name in unchanged),
            out.has_open_row.eq(i.row.is_full & (i.common.row_pieces == i.common.row_pitch)),
        ]
        with m.If(self.valid):
            m.d.sync += [
                out.spanned.eq(spanned_below * last_factor),
                out.held.eq(held_below * last_factor),
            ]
        offsets = [offset.low + (offset.high << POSITION_LOW_BITS) for offset in i.offsets]
        bits = p.piece_address_bits
        totals = prefixes(
            [offset[:bits] for offset in offsets],
            lambda _first, _end, left, right: (left + right)[:bits],
        )
        below = spanned_below
        for way in range(p.setup_pipelines):
            step, global_step = i.steps[way], sum_of(i.global_steps[way])
            count, skipped_steps = step.count_less_one + 1, step.skipped_steps
            if way:
                scaled = i.scaled[way - 1]
                count = (scaled.count_less_one + i.factors[way - 1])[: p.box_piece_bits]
                skipped_steps = scaled.skipped_steps
            m.d.sync += [
                out.smem_steps[way].eq(below),
                out.runs[way].eq(spanned_below * count),
                out.skipped[way].eq(spanned_below * skipped_steps),
                out.global_steps[way].eq(global_step),
                out.are_contiguous[way].eq(
                    (global_step == below[: p.box_piece_bits]) | step.is_single
                ),
                out.offsets[way].eq(totals[way]),
            ]
            if p.im2col:
                m.d.sync += out.restart_offsets[way].eq(sum_of(i.restart_offsets[way]))
            below = spanned_below * i.factors[way]
        return m
