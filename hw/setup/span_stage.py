"""Span stage: finds what the items of a box span in shared memory, and where they begin."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.params import TmaParams
from hw.setup.items import POSITION_LOW_BITS, multiplied_batch_layout, spanned_batch_layout


class SpanStage(wiring.Component):
    """Multiplies the lengths of row and items, from batch to batch of a walk, and adds the offsets
    of the items of a batch.

    Latency: one clock, in which ``advance`` is high. Throughput: a batch a clock. Back-pressure:
    ``o`` stays while ``advance`` is low. Errors: none.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    advance : In(1)
    valid : In(1)
        There is a batch at ``i``.
    i : In(multiplied_batch_layout(params))
    o : Out(spanned_batch_layout(params))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "advance": In(1),
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
        starts_walk = i.common.starts_walk
        last_factor = i.factors[p.setup_pipelines - 1]
        m.d.comb += [
            self.o.eq(out),
            spanned_below.eq(Mux(starts_walk, i.common.row_pitch, out.spanned)),
            held_below.eq(Mux(starts_walk, i.common.row_pieces, out.held)),
        ]
        unchanged = [name for name in out.shape().members if name in i.shape().members]
        unchanged.remove("offsets")
        with m.If(self.advance):
            m.d.sync += [out[name].eq(i[name]) for name in unchanged]
            with m.If(self.valid):
                m.d.sync += [
                    out.spanned.eq(spanned_below * last_factor),
                    out.held.eq(held_below * last_factor),
                ]
        below, address = spanned_below, None
        for way in range(p.setup_pipelines):
            offset = i.offsets[way].low + (i.offsets[way].high << POSITION_LOW_BITS)
            total = Signal(p.piece_address_bits, name=f"offset_{way}")
            m.d.comb += total.eq(offset if address is None else address + offset)
            address = total
            with m.If(self.advance):
                step = i.steps[way]
                m.d.sync += [
                    out.smem_steps[way].eq(below),
                    out.runs[way].eq(below[: p.box_piece_bits] * (step.count_less_one + 1)),
                    out.skipped[way].eq(below[: p.box_piece_bits] * step.skipped_steps),
                    out.are_contiguous[way].eq(
                        (step.global_step == below[: p.box_piece_bits]) | step.is_single
                    ),
                    out.offsets[way].eq(total),
                ]
            below = spanned_below * i.factors[way]
        return m
