"""Skid buffer: cuts the path of ``ready`` and costs no clock."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.params import TmaParams
from hw.queue import Queue


class SkidBuffer(wiring.Component):
    """Passes a stream on, and keeps a payload that is not taken at once.

    No latency; a payload a clock. ``i.ready`` comes from a register: it is low while a payload is
    kept.

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


def ready_cut(params: TmaParams, shape) -> SkidBuffer | Queue:
    """Return what cuts the path of ``ready``; in a ``compact`` unit without a multiplexer, and in a
    clock.
    """
    return Queue(shape, 2) if params.compact else SkidBuffer(shape)
