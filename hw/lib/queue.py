"""Queue: delivers payloads in the order in which it accepts them."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.lib.memory import MOST_ROWS_UNCLOCKED, RowMemory

SMALL = 16
"""Largest depth that uses registers or LUT memory; deeper queues use block memory."""

WIDE = 64
"""Width from which the write enable has a register of its own."""

BLOCK_BITS = 1024
"""Size in bits of the smallest deep queue that must be in block memory."""


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
    parts : sequence of int, optional
        Widths of parts of the payload, from its beginning. Each part, and what is behind the last
        one, lies in a memory of its own, with pointers of its own. So placement can put each part
        near the logic that uses it, however far the whole payload is spread. Default: none.
    latency : int, optional
        0 or 1: payloads are in registers or LUT memory; the depth is at most
        ``MOST_ROWS_UNCLOCKED``. 2: payloads are offered from the output register of a memory. That
        is LUT memory up to a depth of ``SMALL``; if the queue is deeper and has ``BLOCK_BITS`` or
        more, it is block memory; else synthesis chooses. Default: 1 for a depth up to ``SMALL``,
        else 2.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))
    level : Out(range(depth + 1))
        Number of payloads that wait.

    Raises
    ------
    ValueError
        If ``depth``, ``latency`` or ``parts`` is outside the given ranges.
    """

    def __init__(
        self, shape: ShapeLike, depth: int, *, parts: Sequence[int] = (), latency: int | None = None
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth = {depth}: must be at least 1")
        if latency is None:
            latency = 1 if depth <= SMALL else 2
        if latency not in (0, 1, 2):
            raise ValueError(f"latency = {latency}: must be 0, 1 or 2")
        if latency < 2 and depth > MOST_ROWS_UNCLOCKED:
            raise ValueError(
                f"depth = {depth}: must be at most {MOST_ROWS_UNCLOCKED}, or latency = 2"
            )
        width = Shape.cast(shape).width
        if parts and (min(parts) < 1 or sum(parts) >= width):
            raise ValueError(f"parts = {parts}: must be 1 or more each, below {width} together")
        self.depth = depth
        self.latency = latency
        self._parts = tuple(parts)
        self._width = width
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        is_clocked = self.latency == 2
        is_block = is_clocked and self.depth > SMALL and self.depth * self._width >= BLOCK_BITS
        payload, offered = Value.cast(self.i.payload), Value.cast(self.o.payload)
        waiting = Signal(range(self.depth + 1))
        enters = Signal()  # a payload is stored
        dequeues = Signal()  # a payload is read
        leaves = Signal()  # a payload that waited leaves
        m.d.comb += [
            self.level.eq(waiting),
            self.i.ready.eq(waiting != self.depth),
            enters.eq(self.i.valid & self.i.ready),
        ]
        # ``leaves`` comes late, and does not go through the sum.
        with m.If(enters != leaves):
            m.d.sync += waiting.eq(Mux(enters, waiting + 1, waiting - 1))
        write_enable = enters
        if self._width >= WIDE and not is_block:
            # The free row is written in any case, so that neither ``i.valid``, which is often late,
            # nor ``i.ready``, which goes far, drives the enable of a wide row.
            write_enable = Signal(init=1, name="has_room")  # as ``i.ready`` says
            with m.If(enters != leaves):
                m.d.sync += write_enable.eq(~enters | (waiting != self.depth - 1))
        in_block = None if self.depth > SMALL and not is_block else is_block
        start = 0
        for number, width in enumerate((*self._parts, self._width - sum(self._parts))):
            of_part = f"_{number}" if number < len(self._parts) else ""
            bits = slice(start, start + width)
            storage = RowMemory(width, self.depth, in_block=in_block)
            m.submodules[f"storage{of_part}"] = storage
            write, read = storage.write_port(), storage.read_port(clocked=is_clocked)
            m.d.comb += [
                write.en.eq(write_enable),
                write.data.eq(payload[bits]),
                offered[bits].eq(read.data),
            ]
            if is_clocked:
                m.d.comb += read.en.eq(dequeues)
            # Pointers that start at different rows are not merged.
            first = (number + 1) % self.depth if of_part else 0
            for name, port, moves in ("produce", write, enters), ("consume", read, dequeues):
                place = Signal(range(self.depth), init=first, name=f"{name}{of_part}")
                m.d.comb += port.addr.eq(place)
                with m.If(moves):
                    m.d.sync += place.eq(self._after(place))
            start += width
        if is_clocked:
            is_offered = Signal()  # the first payload is in the read port's register
            is_stored = waiting[1:].any() | (waiting[0] & ~is_offered)  # another one waits
            m.d.comb += [
                dequeues.eq(is_stored & (self.o.ready | ~is_offered)),
                leaves.eq(is_offered & self.o.ready),
                self.o.valid.eq(is_offered),
            ]
            m.d.sync += is_offered.eq(dequeues | (is_offered & ~self.o.ready))
            return m
        is_empty = waiting == 0
        m.d.comb += [
            self.o.valid.eq(~is_empty),
            dequeues.eq(self.o.valid & self.o.ready),
            leaves.eq(dequeues),
        ]
        if self.latency == 0:
            with m.If(is_empty):
                m.d.comb += [
                    self.o.valid.eq(self.i.valid),
                    self.o.payload.eq(self.i.payload),
                    dequeues.eq(0),
                    enters.eq(self.i.valid & ~self.o.ready),
                ]
        return m

    def _after(self, place: Signal) -> Value:
        """Return the row behind ``place``."""
        if self.depth & (self.depth - 1) == 0:
            return place + 1
        return Mux(place == self.depth - 1, 0, place + 1)
