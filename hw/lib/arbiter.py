"""Arbiter: several streams into one."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Arbiter(wiring.Component):
    """Merges streams in turn: of those that wait, the next one after the last that was taken.

    No latency. A stream that was offered at ``o`` stays there until it is taken. None waits for
    more than one payload of each of the others; of packets, one packet.

    Parameters
    ----------
    shape : ShapeLike
    ways : int
    packets : bool
        A payload has a field ``last``; what comes before it in a stream is not to be parted from
        it.

    Members
    -------
    i : In(stream), one for each way
    o : Out(stream)
    """

    def __init__(self, shape, ways: int, *, packets: bool = False):
        self.ways = ways
        self.packets = packets
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
        held = Signal(range(self.ways), init=self.ways - 1)
        for way in reversed(range(self.ways)):
            with m.If(self.i[way].valid):
                m.d.comb += first.eq(way)
        for way in reversed(range(1, self.ways)):
            with m.If(self.i[way].valid & (way > held)):
                m.d.comb += first.eq(way)
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
        with m.If(self.o.valid):
            parted = ~self.o.p.last if self.packets else 0
            m.d.sync += [locked.eq(~self.o.ready | parted), held.eq(chosen)]
        return m
