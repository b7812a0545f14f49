"""A first-in first-out queue of typed payloads."""

from amaranth.hdl import Module, Mux, Shape, ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

SMALL = 16
"""Most entries that are kept in registers or LUT memory; block memory holds deeper queues."""


class Queue(wiring.Component):
    """Delivers what it accepts, in order.

    Latency: a payload accepted by an empty queue is offered ``latency`` clocks later. With 0 it
    passes, and need not wait if it is taken at once. Throughput: one in and one out a clock (one
    every two clocks with a depth of 1, but for what passes). Back-pressure: accepts while fewer
    than ``depth`` payloads wait, a freed place counting from the next clock on: ``o.ready`` drives
    no output in the same clock, and ``i`` none but, with a latency of 0, ``o``.

    Parameters
    ----------
    shape : ShapeLike
        The payload.
    depth : int
        Payloads that can wait, at least 1.
    latency : int, optional
        0 or 1: kept in registers or LUT memory, however deep. 2: offered from a register, as block
        memory does. If it is not given, 1 up to a depth of ``SMALL``, 2 beyond.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))
    level : Out(range(depth + 1))
        Payloads that wait.
    """

    def __init__(self, shape: ShapeLike, depth: int, *, latency: int | None = None) -> None:
        if depth < 1:
            raise ValueError(f"depth = {depth}: must be at least 1")
        if latency is None:
            latency = 1 if depth <= SMALL else 2
        if latency not in (0, 1, 2):
            raise ValueError(f"latency = {latency}: must be 0, 1 or 2")
        self.depth = depth
        self.latency = latency
        self._width = Shape.cast(shape).width
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        kind = SyncFIFOBuffered if self.latency == 2 else SyncFIFO
        m.submodules.fifo = fifo = kind(width=self._width, depth=self.depth)
        m.d.comb += [
            fifo.w_data.eq(self.i.payload),
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(fifo.w_rdy),
            self.o.payload.eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready),
            self.level.eq(fifo.level),
        ]
        if not self.latency:
            empty = fifo.level == 0
            m.d.comb += [
                self.o.payload.eq(Mux(empty, self.i.payload, fifo.r_data)),
                self.o.valid.eq(Mux(empty, self.i.valid, fifo.r_rdy)),
                fifo.w_en.eq(self.i.valid & ~(empty & self.o.ready)),
            ]
        return m
