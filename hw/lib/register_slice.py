"""Register slices: pass a stream on, and keep the paths of its two sides apart."""

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


class PipelineRegister(StreamBuffer):
    """Passes a stream on from a register, which takes a payload while it is empty or emptied.

    Latency: one clock. Throughput: a payload a clock. Back-pressure: ``i.ready`` follows
    ``o.ready`` in the same clock while a payload waits.

    Parameters and members are those of ``StreamBuffer``.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        valid = Signal()
        payload = Signal(self.shape, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~valid | self.o.ready),
            self.o.valid.eq(valid),
            self.o.payload.eq(payload),
        ]
        with m.If(self.i.ready):
            m.d.sync += [valid.eq(self.i.valid), payload.eq(self.i.payload)]
        return m


class SkidBuffer(StreamBuffer):
    """Passes a stream on without a register, and holds a payload that is not taken at once.

    Latency: none. Throughput: a payload a clock. Back-pressure: ``i.ready`` comes from a register,
    and is low while a payload waits.

    Parameters and members are those of ``StreamBuffer``.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        waits = Signal()
        payload = Signal(self.shape, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~waits),
            self.o.valid.eq(waits | self.i.valid),
            self.o.payload.eq(Mux(waits, payload, self.i.payload)),
        ]
        m.d.sync += waits.eq(self.o.valid & ~self.o.ready)
        with m.If(~waits):
            m.d.sync += payload.eq(self.i.payload)
        return m


class DoubleBuffer(StreamBuffer):
    """Passes a stream on from a register, with a second one for what comes while that waits.

    Latency: one clock. Throughput: a payload a clock. Back-pressure: ``i.ready`` comes from a
    register, and is low while two payloads wait.

    Parameters and members are those of ``StreamBuffer``.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        valid = Signal()
        second_valid = Signal()
        payload = Signal(self.shape, reset_less=True)
        second = Signal(self.shape, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~second_valid),
            self.o.valid.eq(valid),
            self.o.payload.eq(payload),
        ]
        with m.If(~valid | self.o.ready):
            m.d.sync += [
                valid.eq(self.i.valid | second_valid),
                payload.eq(Mux(second_valid, second, self.i.payload)),
                second_valid.eq(0),
            ]
        with m.Elif(self.i.ready):
            m.d.sync += [second_valid.eq(self.i.valid), second.eq(self.i.payload)]
        return m
