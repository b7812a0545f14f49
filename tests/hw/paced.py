"""A component without back-pressure between streams that wait."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.lib.queue import Queue

DEPTH = 8


class Paced(wiring.Component):
    """A component with an output for each input, whose ports are always ready.

    Outputs wait in a queue of ``DEPTH``; an input waits while as many are under way.

    Members
    -------
    i, o : the streams of ``inner``, which may wait
    """

    def __init__(self, inner) -> None:
        self.inner = inner
        ports = {"i": In, "o": Out}
        super().__init__(
            {
                name: flow(stream.Signature(getattr(inner, name).payload.shape()))
                for name, flow in ports.items()
            }
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.inner = inner = self.inner
        m.submodules.queue = queue = Queue(self.o.payload.shape(), DEPTH)
        under_way = Signal(range(DEPTH + 1))
        connect(m, queue.o, flipped(self.o))
        m.d.comb += [
            self.i.ready.eq(under_way != DEPTH),
            inner.i.valid.eq(self.i.valid & self.i.ready),
            inner.i.payload.eq(self.i.payload),
            queue.i.valid.eq(inner.o.valid),
            queue.i.payload.eq(inner.o.payload),
        ]
        m.d.sync += under_way.eq(under_way + inner.i.valid - (self.o.valid & self.o.ready))
        return m
