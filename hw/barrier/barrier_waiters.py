"""The threads that wait in the mbarrier unit for phases to complete."""

from functools import cache, reduce
from operator import or_

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.layouts.barriers import (
    BARRIER_TAG_BITS,
    BARRIER_WORD_ADDRESS_BITS,
    TIME_LIMIT_BITS,
    BarrierFault,
    BarrierWake,
)
from hw.lib.one_hot import bit_index, lowest_bit
from hw.params import TmaParams

TIME_BITS = TIME_LIMIT_BITS + 1
"""Width of a point in time: one bit more than a limit, so that past and future are told apart."""


class Outcome(enum.Enum, shape=2):
    """How a wait ends."""

    TIME_OVER = 0
    COMPLETE = 1
    LOCKED = 2
    REMOVED = 3


@cache
def waiter_layout(params: TmaParams) -> data.StructLayout:
    """A thread that waits for the barrier in word ``address``; ``conditional``: for its report."""
    return data.StructLayout(
        {
            "address": BARRIER_WORD_ADDRESS_BITS,
            "tag": BARRIER_TAG_BITS,
            "time_limit": TIME_LIMIT_BITS,
            **({"conditional": 1} if params.mbarrier_v1 else {}),
        }
    )


@cache
def barrier_event_layout(params: TmaParams) -> data.StructLayout:
    """What ends the waits for a barrier; with ``unmet`` not those for its conditional phase."""
    return data.StructLayout(
        {
            "address": BARRIER_WORD_ADDRESS_BITS,
            "outcome": Outcome,
            **({"unmet": 1} if params.mbarrier_v1 else {}),
        }
    )


def _selected(one_hot, signals):
    """The bits of the signal whose bit is set."""
    return reduce(
        or_, (Mux(bit, Value.cast(s), 0) for bit, s in zip(one_hot, signals, strict=True))
    )


class BarrierWaiters(wiring.Component):
    """Keeps threads until the phase that they wait for is complete, or their time is over.

    All waits for a barrier are for its present phase: they began when it was not complete. So an
    entry holds no phase, and an event ends all waits of its address at once, by comparison. An
    event of the clock after an entry came finds it. If its time is over in the clock of the event,
    the event counts. Each wait ends once.

    Time limits: one entry a clock is looked at, in rotation. Without other wakes, a wake for want
    of time is offered ``time_limit + 2`` to ``time_limit + 2 + barrier_waiters`` clocks after the
    entry came. Latency: an event is answered by the first wake two clocks later. Throughput: an
    entry or an event, and a wake, each clock; an entry's place is free again as its wake is
    offered. Wakes of one event, or of several, leave in no order, but in rotation: none waits for
    more than ``barrier_waiters`` others. Back-pressure: none but ``has_room``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(waiter_layout(params), always_ready=True))
        Only with ``has_room``, and not in the clock of an event.
    has_room : Out(1)
    event : In(stream.Signature(barrier_event_layout(params), always_ready=True))
    wake : Out(stream.Signature(BarrierWake))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(waiter_layout(params), always_ready=True)),
                "has_room": Out(1),
                "event": In(stream.Signature(barrier_event_layout(params), always_ready=True)),
                "wake": Out(stream.Signature(BarrierWake)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        entries = self.params.barrier_waiters
        depth = max(entries, 2)  # never a memory without an address
        m.submodules.tags = tags = Memory(shape=BARRIER_TAG_BITS, depth=depth, init=[])
        m.submodules.deadlines = deadlines = Memory(shape=TIME_BITS, depth=depth, init=[])

        # Entries are selected one-hot; a mask has a bit for each.
        addresses = [
            Signal(BARRIER_WORD_ADDRESS_BITS, name=f"address_{n}", reset_less=True)
            for n in range(entries)
        ]
        outcomes = [Signal(Outcome, name=f"outcome_{n}", reset_less=True) for n in range(entries)]
        waiting = Signal(entries)
        leaving = Signal(entries)

        # An entry comes.
        now = Signal(TIME_BITS)
        free = Signal(entries)
        place = Signal(entries)
        write_tag, write_deadline = tags.write_port(), deadlines.write_port()
        m.d.sync += now.eq(now + 1)
        m.d.comb += [
            free.eq(~(waiting | leaving)),
            place.eq(lowest_bit(free)),
            self.has_room.eq(free.any()),
            *(port.en.eq(self.i.valid) for port in (write_tag, write_deadline)),
            *(port.addr.eq(bit_index(place)) for port in (write_tag, write_deadline)),
            write_tag.data.eq(self.i.p.tag),
            write_deadline.data.eq(now + self.i.p.time_limit),
        ]
        with m.If(self.i.valid):
            for number, address in enumerate(addresses):
                with m.If(place[number]):
                    m.d.sync += address.eq(self.i.p.address)

        # An event ends waits.
        concerned = Signal(entries)
        m.d.comb += concerned.eq(Cat(address == self.event.p.address for address in addresses))
        if self.params.mbarrier_v1:
            conditional = Signal(entries)
            with m.If(self.i.valid):
                m.d.sync += conditional.eq(
                    (conditional & ~place) | Mux(self.i.p.conditional, place, 0)
                )
            concerned = concerned & ~Mux(self.event.p.unmet, conditional, 0)
        ended = Signal(entries)
        m.d.comb += ended.eq(Mux(self.event.valid, waiting & concerned, 0))

        # Time ends waits. An entry that waited as its deadline was read, and still does, is the
        # same one.
        look = Signal(range(entries))
        looked = Signal(range(entries))
        looked_waiting = Signal()
        time_left = Signal(signed(TIME_BITS))
        over = Signal(entries)
        read_deadline = deadlines.read_port()
        m.d.sync += [
            look.eq(Mux(look == entries - 1, 0, look + 1)),
            looked.eq(look),
            looked_waiting.eq(waiting.bit_select(look, 1)),
        ]
        m.d.comb += [
            read_deadline.addr.eq(look),
            time_left.eq(read_deadline.data - now),
            over.eq(Mux(looked_waiting & (time_left <= 0), waiting & (1 << looked), 0)),
        ]
        for number, outcome in enumerate(outcomes):
            with m.If(ended[number]):
                m.d.sync += outcome.eq(self.event.p.outcome)
            with m.Elif(over[number]):
                m.d.sync += outcome.eq(Outcome.TIME_OVER)

        # Ended waits leave, those behind the last one first.
        behind = Signal(entries)
        first = Signal(entries)
        offers = Signal()
        advance = Signal()
        leaves = Signal(entries)
        outcome = Signal(Outcome)
        read_tag = tags.read_port()
        m.d.comb += [
            first.eq(lowest_bit(Mux((leaving & behind).any(), leaving & behind, leaving))),
            advance.eq(~offers | self.wake.ready),
            leaves.eq(Mux(advance, first, 0)),
            read_tag.en.eq(advance),
            read_tag.addr.eq(bit_index(first)),
            self.wake.valid.eq(offers),
            self.wake.p.tag.eq(read_tag.data),
            self.wake.p.done.eq(outcome == Outcome.COMPLETE),
        ]
        with m.Switch(outcome):
            with m.Case(Outcome.LOCKED):
                m.d.comb += self.wake.p.fault.eq(BarrierFault.LOCKED)
            with m.Case(Outcome.REMOVED):
                m.d.comb += self.wake.p.fault.eq(BarrierFault.UNINITIALISED)
        with m.If(advance):
            m.d.sync += [offers.eq(leaving.any()), outcome.eq(_selected(first, outcomes))]
            with m.If(leaving.any()):
                m.d.sync += behind.eq(~(first | (first - 1)))

        m.d.sync += [
            waiting.eq((waiting | Mux(self.i.valid, place, 0)) & ~(ended | over)),
            leaving.eq((leaving | ended | over) & ~leaves),
            Assert(
                ~self.i.valid | (self.has_room & ~self.event.valid),
                "barrier waiters: a thread found no place\n",
            ),
        ]
        return m
