"""Register slices: pass a stream on, and cut the combinational path of its ``ready``."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class StreamBuffer(wiring.Component):
    """Ports of a register slice.

    Parameters
    ----------
    shape : ShapeLike
        The payload.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape: ShapeLike) -> None:
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})


class SingleBuffer(StreamBuffer):
    """Passes a stream on from a register, which takes a payload while it is empty.

    Latency: one clock. Throughput: a payload every two clocks. Back-pressure: ``i.ready`` comes
    from a register, and is low while a payload waits.

    Parameters and members are those of ``StreamBuffer``.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        valid = Signal()
        payload = Signal(self.shape, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~valid),
            self.o.valid.eq(valid),
            self.o.payload.eq(payload),
        ]
        with m.If(~valid):
            m.d.sync += [valid.eq(self.i.valid), payload.eq(self.i.payload)]
        with m.Elif(self.o.ready):
            m.d.sync += valid.eq(0)
        return m


class DoubleBuffer(StreamBuffer):
    """Passes a stream on from a register; a second register takes what comes while that is full.

    It is a ``Queue`` of two payloads for wide ones: a LUT for each bit, where memory takes more.

    Latency: one clock. Throughput: a payload a clock. Back-pressure: ``i.ready`` comes from a
    register, and is low while both registers are full.

    Parameters and members are those of ``StreamBuffer``.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        is_full = Signal()
        waiting = Signal(self.shape, reset_less=True)
        valid = Signal()
        payload = Signal(self.shape, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~is_full),
            self.o.valid.eq(valid),
            self.o.payload.eq(payload),
        ]
        with m.If(~is_full):
            m.d.sync += waiting.eq(self.i.payload)
        with m.If(~valid | self.o.ready):
            m.d.sync += [
                valid.eq(is_full | self.i.valid),
                payload.eq(Mux(is_full, waiting, self.i.payload)),
                is_full.eq(0),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += is_full.eq(1)
        return m
