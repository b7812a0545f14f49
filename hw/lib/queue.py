"""Queue: delivers payloads in the order in which it accepts them."""

from amaranth.hdl import Module, Mux, Shape, ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

SMALL = 16
"""Largest depth that uses registers or LUT memory; deeper queues use block memory."""


BLOCK_BITS = 1024
"""Size in bits of the smallest deep queue that must be in block memory."""


class BlockFIFO(SyncFIFOBuffered):
    """A ``SyncFIFOBuffered`` that synthesis puts into block memory.

    Without the attribute, synthesis takes LUT memory and multiplexers for a wide queue.
    """

    def elaborate(self, platform) -> Module:
        m = super().elaborate(platform)
        m.submodules.storage.attrs["ram_style"] = "block"
        return m


class Queue(wiring.Component):
    """Delivers the payloads that it accepts, in order.

    Latency: a payload that an empty queue accepts is offered ``latency`` clocks later. With 0 it is
    offered in the same clock, and is not stored if it is taken at once. Throughput: a payload in
    and a payload out each clock; with a depth of 1, one every two clocks, except payloads that are
    not stored. Back-pressure: ``i.ready`` is high while fewer than ``depth`` payloads wait; a place
    that becomes free counts from the next clock on. ``o.ready`` drives no output in the same clock,
    and ``i`` drives only ``o``, and that only with a latency of 0.

    Parameters
    ----------
    shape : ShapeLike
        The payload.
    depth : int
        Payloads that can wait, at least 1.
    latency : int, optional
        0 or 1: payloads are in registers or LUT memory, whatever the depth. 2: payloads are offered
        from the output register of a memory. If the queue is deeper than ``SMALL`` and has
        ``BLOCK_BITS`` or more, that is block memory; else synthesis chooses. Default: 1 for a depth
        up to ``SMALL``, else 2.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))
    level : Out(range(depth + 1))
        Number of payloads that wait.

    Raises
    ------
    ValueError
        If ``depth`` or ``latency`` is outside the given ranges.
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
        fifo_class = SyncFIFO
        if self.latency == 2:
            is_block = self.depth > SMALL and self.depth * self._width >= BLOCK_BITS
            fifo_class = BlockFIFO if is_block else SyncFIFOBuffered
        m.submodules.fifo = fifo = fifo_class(width=self._width, depth=self.depth)
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
