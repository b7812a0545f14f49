"""Ready cuts: a stream goes through, and the path of its ``ready`` ends in a register."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.lib.queue import Queue
from hw.params import TmaParams


class StreamBuffer(wiring.Component):
    """What they have in common.

    Parameters
    ----------
    shape : ShapeLike

    Members
    -------
    i : In(stream)
    o : Out(stream)
    """

    def __init__(self, shape):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})


class SkidBuffer(StreamBuffer):
    """Passes a stream on, and keeps a payload that is not taken at once.

    No latency; a payload a clock. ``i.ready`` is low while a payload is kept.
    """

    def elaborate(self, platform):
        m = Module()
        keeps = Signal()
        kept = Signal(self.shape, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~keeps),
            self.o.valid.eq(keeps | self.i.valid),
            self.o.payload.eq(Mux(keeps, kept, self.i.payload)),
        ]
        with m.If(~keeps):
            m.d.sync += kept.eq(self.i.payload)
        m.d.sync += keeps.eq(self.o.valid & ~self.o.ready)
        return m


class HalfBuffer(StreamBuffer):
    """Passes a stream on, and has no path from one side to the other: neither of ``valid`` nor of
    ``ready``, and no place to keep a payload.

    Latency one clock; a payload every three clocks. ``o`` offers what ``i`` offered the clock
    before; ``i.ready`` is high in the clock after the one in which ``o`` was taken.
    """

    def elaborate(self, platform):
        m = Module()
        offers = Signal()
        taken = Signal()
        takes = self.o.valid & self.o.ready
        m.d.comb += [
            self.o.valid.eq(offers),
            self.o.payload.eq(self.i.payload),
            self.i.ready.eq(taken),
        ]
        m.d.sync += [offers.eq(self.i.valid & ~takes & ~taken), taken.eq(takes)]
        return m


def register_slice(params: TmaParams, shape) -> SkidBuffer | Queue:
    """Return what cuts the path of ``ready`` at a payload a clock; in a ``compact`` unit without a
    multiplexer, and in a clock.
    """
    return Queue(shape, 2) if params.compact else SkidBuffer(shape)
