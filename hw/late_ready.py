"""Late ready: cuts the path of ``ready`` without a place for a payload."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class LateReady(wiring.Component):
    """Passes a stream on, and tells in the clock after that a payload was taken.

    No latency; a payload every two clocks. ``i.ready`` comes from a register: it is high for the
    clock after the one in which ``o`` was taken, in which ``o`` offers nothing.

    Parameters
    ----------
    shape : ShapeLike

    Members
    -------
    i : In(stream)
    o : Out(stream)
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        taken = Signal()
        m.d.comb += [
            self.o.valid.eq(self.i.valid & ~taken),
            self.o.payload.eq(self.i.payload),
            self.i.ready.eq(taken),
        ]
        m.d.sync += taken.eq(self.o.valid & self.o.ready)
        return m
