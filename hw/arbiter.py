"""Arbiter: several streams into one."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Arbiter(wiring.Component):
    """Merges streams that seldom carry anything; the lowest number goes first.

    No latency. A stream that was offered at ``o`` stays there until it is taken.

    Parameters
    ----------
    shape : ShapeLike
    ways : int

    Members
    -------
    i : In(stream), one for each way
    o : Out(stream)
    """

    def __init__(self, shape, ways: int):
        self.ways = ways
        super().__init__(
            {
                "i": In(stream.Signature(shape)).array(ways),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        first = Signal(range(self.ways))
        chosen = Signal(range(self.ways))
        locked = Signal()
        for way in reversed(range(self.ways)):
            with m.If(self.i[way].valid):
                m.d.comb += first.eq(way)
        held = Signal(range(self.ways))
        with m.If(locked):
            m.d.comb += chosen.eq(held)
        with m.Else():
            m.d.comb += chosen.eq(first)
        for way in range(self.ways):
            with m.If(chosen == way):
                m.d.comb += [
                    self.o.valid.eq(self.i[way].valid),
                    self.o.payload.eq(self.i[way].payload),
                    self.i[way].ready.eq(self.o.ready),
                ]
        m.d.sync += [held.eq(chosen), locked.eq(self.o.valid & ~self.o.ready)]
        return m
