"""Line assembler: puts the beats of a line that is wider than the AXI4 port together."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.axi import axi_line_layout, line_beat_layout
from hw.lib.memory import RowMemory
from hw.params import TmaParams


class LineAssembler(wiring.Component):
    """Puts the beats of each line together. Beats of different lines may come in any order.

    All beats of a line but the last wait in memories, one for each place in a line, with a row for
    each line. A further memory counts the beats of each line that came. It is cleared after a
    reset, a line a clock, and no beat is taken meanwhile.

    Latency: two clocks from the last beat to the line. Throughput: a beat a clock. Back-pressure:
    a last beat waits while ``o`` is held up, and all beats behind it. Errors: a line of which a
    beat has an error has one.

    Parameters
    ----------
    params : TmaParams
        With ``axi_bytes`` below ``line_bytes``.

    Members
    -------
    i : In(stream) of ``line_beat_layout``; the beats of a line in order
    o : Out(stream) of ``axi_line_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(line_beat_layout(params))),
                "o": Out(stream.Signature(axi_line_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        last = p.line_bytes // p.axi_bytes - 1
        count_layout = data.StructLayout({"beats": range(last + 1), "failed": 1, "decode": 1})
        m.submodules.counts = counts = RowMemory(count_layout, p.axi_lines)
        count_write, count_read = counts.write_port(), counts.read_port(forwards=True)

        clears = Signal(init=1)
        row = Signal(p.axi_line_bits)  # to be cleared
        with m.If(clears):
            m.d.sync += [row.eq(row + 1), clears.eq(row != p.axi_lines - 1)]

        # A beat, with the count of those before it.
        beat_valid = Signal()
        beat = Signal(line_beat_layout(p), reset_less=True)
        count = count_read.data
        is_last = count.beats == last
        failed = count.failed | beat.error
        decode = count.decode | beat.decode
        # A line, of which all beats but the last come from the memories.
        line_valid = Signal()
        last_beat = Signal(line_beat_layout(p), reset_less=True)
        advance = Signal()
        ends = beat_valid & is_last
        m.d.comb += [
            advance.eq(~ends | ~line_valid | self.o.ready),
            self.i.ready.eq(advance & ~clears),
            count_read.en.eq(advance),
            count_read.addr.eq(self.i.p.id),
            count_write.en.eq(clears | (beat_valid & advance)),
            count_write.addr.eq(Mux(clears, row, beat.id)),
            count_write.data.beats.eq(Mux(clears | is_last, 0, count.beats + 1)),
            count_write.data.failed.eq(failed & ~is_last & ~clears),
            count_write.data.decode.eq(decode & ~is_last & ~clears),
        ]
        with m.If(advance):
            m.d.sync += [beat_valid.eq(self.i.valid & self.i.ready), beat.eq(self.i.payload)]
        with m.If(ends & advance):
            m.d.sync += [
                line_valid.eq(1),
                last_beat.eq(beat),
                last_beat.error.eq(failed),
                last_beat.decode.eq(decode),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += line_valid.eq(0)

        parts = []
        for number in range(last):
            memory = RowMemory(p.axi_data_bits, p.axi_lines)
            m.submodules[f"beats_{number}"] = memory
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.en.eq(beat_valid & (count.beats == number)),
                write.addr.eq(beat.id),
                write.data.eq(beat.data),
                read.en.eq(ends & advance),
                read.addr.eq(beat.id),
            ]
            parts.append(read.data)
        m.d.comb += [
            self.o.valid.eq(line_valid),
            self.o.p.id.eq(last_beat.id),
            self.o.p.error.eq(last_beat.error),
            self.o.p.decode.eq(last_beat.decode),
            self.o.p.data.eq(Cat(*parts, last_beat.data)),
        ]
        return m
