"""Queue: delivers payloads in the order in which it accepts them."""

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
    near_bits : int, optional
        Bits at the beginning of the payload that steer logic. They lie in a memory of their own,
        with pointers of their own, so that placement can put them near that logic, however far the
        rest of a wide payload is spread. Only with a latency of 1. Default: 0.
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
        If ``depth``, ``latency`` or ``near_bits`` is outside the given ranges.
    """

    def __init__(
        self, shape: ShapeLike, depth: int, *, near_bits: int = 0, latency: int | None = None
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
        if near_bits and latency != 1:
            raise ValueError(f"near_bits = {near_bits}: must be 0 with latency = {latency}")
        self.depth = depth
        self.latency = latency
        self._near_bits = near_bits
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
        is_clocked = self.latency == 2
        is_block = is_clocked and self.depth > SMALL and self.depth * self._width >= BLOCK_BITS
        in_block = None if self.depth > SMALL and not is_block else is_block
        near, far = self._near_bits, self._width - self._near_bits
        m.submodules.storage = storage = RowMemory(far, self.depth, in_block=in_block)
        write, read = storage.write_port(), storage.read_port(clocked=is_clocked)
        produce, consume = (Signal(range(self.depth), name=name) for name in ("produce", "consume"))
        payload, offered = Value.cast(self.i.payload), Value.cast(self.o.payload)
        waiting = Signal(range(self.depth + 1))
        enters = Signal()  # a payload is stored
        dequeues = Signal()  # a payload is read
        leaves = Signal()  # a payload that waited leaves
        m.d.comb += [
            self.level.eq(waiting),
            self.i.ready.eq(waiting != self.depth),
            enters.eq(self.i.valid & self.i.ready),
            write.en.eq(enters),
            write.data.eq(payload[near:]),
            offered[near:].eq(read.data),
        ]
        places = [(write, produce, enters), (read, consume, dequeues)]
        if near:
            m.submodules.near = near_storage = RowMemory(near, self.depth)
            near_write, near_read = near_storage.write_port(), near_storage.read_port(clocked=False)
            # Pointers that start at another row are not merged with those of the rest.
            near_produce, near_consume = (
                Signal(range(self.depth), init=min(1, self.depth - 1), name=name)
                for name in ("near_produce", "near_consume")
            )
            m.d.comb += [
                near_write.en.eq(enters),
                near_write.data.eq(payload[:near]),
                offered[:near].eq(near_read.data),
            ]
            places += [(near_write, near_produce, enters), (near_read, near_consume, dequeues)]
        # ``leaves`` comes late, and does not go through the sum.
        with m.If(enters != leaves):
            m.d.sync += waiting.eq(Mux(enters, waiting + 1, waiting - 1))
        if self._width >= WIDE and not is_block:
            # The free row is written in any case, so that neither ``i.valid``, which is often late,
            # nor ``i.ready``, which goes far, drives the enable of a wide row.
            has_room = Signal(init=1)  # as ``i.ready`` says
            with m.If(enters != leaves):
                m.d.sync += has_room.eq(~enters | (waiting != self.depth - 1))
            m.d.comb += write.en.eq(has_room)
        is_power_of_two = self.depth & (self.depth - 1) == 0
        for port, place, moves in places:
            wraps = 0 if is_power_of_two else place == self.depth - 1
            m.d.comb += port.addr.eq(place)
            with m.If(moves):
                m.d.sync += place.eq(Mux(wraps, 0, place + 1))
        if is_clocked:
            is_offered = Signal()  # the first payload is in the read port's register
            is_stored = waiting[1:].any() | (waiting[0] & ~is_offered)  # another one waits
            m.d.comb += [
                dequeues.eq(is_stored & (self.o.ready | ~is_offered)),
                leaves.eq(is_offered & self.o.ready),
                read.en.eq(dequeues),
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
