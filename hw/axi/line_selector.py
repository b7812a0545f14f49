"""Line selector: takes a line out of a beat of an AXI4 port that is wider."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.axi import axi_line_layout, line_beat_layout, place_bits
from hw.lib.memory import RowMemory
from hw.params import TmaParams


class LineSelector(wiring.Component):
    """Takes each line out of its beat, from the place that its address has there.

    Latency: one clock. Throughput: a line a clock. Back-pressure: ``i.ready`` follows ``o.ready``.

    Parameters
    ----------
    params : TmaParams
        With ``axi_bytes`` above ``line_bytes``.

    Members
    -------
    opened : In(stream) of the number of a line and its place in its beat; always ready
        A line is read; its beat comes in the next clock or later.
    i : In(stream) of ``line_beat_layout``
    o : Out(stream) of ``axi_line_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self._place_bits = place_bits(params, params.line_bytes)
        opened = stream.Signature(params.axi_line_bits + self._place_bits, always_ready=True)
        super().__init__(
            {
                "opened": In(opened),
                "i": In(stream.Signature(line_beat_layout(params))),
                "o": Out(stream.Signature(axi_line_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.places = places = RowMemory(self._place_bits, p.axi_lines)
        write, read = places.write_port(), places.read_port()
        valid = Signal()
        beat = Signal(line_beat_layout(p), reset_less=True)
        m.d.comb += [
            write.en.eq(self.opened.valid),
            write.addr.eq(self.opened.payload[: p.axi_line_bits]),
            write.data.eq(self.opened.payload[p.axi_line_bits :]),
            self.i.ready.eq(~valid | self.o.ready),
            read.en.eq(self.i.ready),
            read.addr.eq(self.i.p.id),
            self.o.valid.eq(valid),
            self.o.p.id.eq(beat.id),
            self.o.p.error.eq(beat.error),
            self.o.p.decode.eq(beat.decode),
            self.o.p.data.eq(beat.data.word_select(read.data, p.line_bytes * 8)),
        ]
        with m.If(self.i.ready):
            m.d.sync += [valid.eq(self.i.valid), beat.eq(self.i.payload)]
        return m
