"""Fill cutter: cuts stretches of fill into beats of shared memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.jobs import remote_field
from hw.layouts.lines import fill_beat_layout, fill_stretch_layout
from hw.lib.remainder import modulo_3
from hw.params import TmaParams


class FillCutter(wiring.Component):
    """Cuts stretches of fill into beats, and excludes the gaps between rows.

    Latency: one clock. Throughput: one beat a clock, no clock lost between stretches.
    Back-pressure: ``i.ready`` follows ``o.ready`` while the last beat of a stretch is offered.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``fill_stretch_layout``
    o : Out(stream) of ``fill_beat_layout``; ``stream`` is left 0
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(fill_stretch_layout(params))),
                "o": Out(stream.Signature(fill_beat_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        busy = Signal()
        stretch = Signal(fill_stretch_layout(p), reset_less=True)  # its beats not yet emitted
        last_beat = Signal(reset_less=True)
        row_mask = Signal(8)  # pieces of these 128 bytes that belong to rows
        in_rows = Signal(p.lanes)  # pieces of this beat that belong to rows
        piece = Cat(Const(0, p.lane_bits), stretch.beat)
        if p.row_mask_bits == 8:
            m.d.comb += row_mask.eq(stretch.row_mask)
        else:
            third = modulo_3(m, piece[3:], "third")
            m.d.comb += row_mask.eq(stretch.row_mask.word_select(third, 8))
        beat = self.o.p
        m.d.comb += [
            in_rows.eq(row_mask.word_select(piece[p.lane_bits : 3], p.lanes)),
            self.i.ready.eq(~busy | (self.o.ready & last_beat)),
            self.o.valid.eq(busy),
            beat.slot.eq(stretch.slot),
            beat.style.eq(stretch.style),
            beat.beat.eq(stretch.beat),
            beat.valid.eq(stretch.mask & in_rows),
            beat.last.eq(last_beat & stretch.last),
            *(beat[name].eq(stretch[name]) for name in remote_field(p)),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                busy.eq(self.i.valid),
                stretch.eq(self.i.p),
                last_beat.eq(self.i.p.extra_beats == 0),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += [
                stretch.beat.eq(stretch.beat + 1),
                stretch.extra_beats.eq(stretch.extra_beats - 1),
                last_beat.eq(stretch.extra_beats == 1),
                stretch.mask.eq(Mux(stretch.extra_beats == 1, stretch.last_mask, ~0)),
            ]
        return m
