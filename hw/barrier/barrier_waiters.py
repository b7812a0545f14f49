"""Barrier waiters: keep the threads that wait for a barrier, and wake each of them once."""

from functools import cache

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.barriers import (
    BARRIER_TAG_BITS,
    BARRIER_WORD_ADDRESS_BITS,
    TIME_LIMIT_BITS,
    BarrierFault,
    BarrierWake,
)
from hw.lib.memory import MOST_ROWS_UNCLOCKED, RowMemory
from hw.lib.one_hot import index_of, lowest_one
from hw.params import TmaParams

TIME_BITS = TIME_LIMIT_BITS + 1
"""Width of a point in time. The bit above a time limit distinguishes past from future."""


class Outcome(enum.Enum, shape=2):
    """Reason why a wait ends."""

    TIME_OVER = 0
    """The time limit has expired."""
    COMPLETE = 1
    """The phase is complete, or INIT has written a word of the other phase."""
    LOCKED = 2
    """An error has locked the barrier."""


@cache
def waiter_layout(params: TmaParams) -> data.StructLayout:
    """Thread that starts to wait.

    Members
    -------
    address : word address of the barrier
    tag : number that the wake returns
    time_limit : clocks that the thread waits at most
    conditional : 1 if the thread waits for the conditional phase; present with ``mbarrier_v1``
    """
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
    """Event that ends the waits for a barrier.

    Members
    -------
    address : word address of the barrier
    outcome : reason why the waits end
    ends_waits : 1 if the event ends the waits for the phase. This member and the next are present
        with ``mbarrier_v1``; without them the event ends all waits
    ends_conditional_waits : 1 if the event ends the waits for the conditional phase
    """
    kinds = {"ends_waits": 1, "ends_conditional_waits": 1} if params.mbarrier_v1 else {}
    return data.StructLayout(
        {
            "address": BARRIER_WORD_ADDRESS_BITS,
            "outcome": Outcome,
            **kinds,
        }
    )


class BarrierWaiters(wiring.Component):
    """Keeps waiting threads until their phase is complete or their time limit expires.

    All waits for a barrier are for its current phase, because a thread waits only if that phase is
    incomplete. So an entry holds no phase, and an event ends all waits for its address at once, by
    comparison. An event in the clock after the acceptance of a thread ends the wait of that thread.
    If an event and the expiry of a time limit come in the same clock, the event is the reason. Each
    wait ends once.

    Time limits: one entry is checked per clock, in rotation. If no other wake is offered, the wake
    of an expired thread is offered ``time_limit + 3`` to ``time_limit + 3 + barrier_waiters``
    clocks after the thread was accepted. Latency: the first wake after an event is offered three
    clocks after the event. Throughput: a thread or an event, and a wake, per clock; an entry is
    free again when its wake is offered. Order: wakes leave in rotation of the entries, also those
    of one event; a wake waits for at most ``barrier_waiters`` others. Back-pressure: ``has_room``
    is 0 while all entries are occupied; a wake that is not taken keeps the wakes behind it in their
    entries. Errors: none.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(waiter_layout(params), always_ready=True))
        Threads that start to wait, while ``event`` is not valid. A thread may come if in the clock
        before ``has_free`` was 1, or if ``has_room`` was 1 and no thread came.
    has_room : Out(1)
        An entry is free.
    has_free : Out(1)
        An entry is free besides that of the thread that may come in this clock.
    event : In(stream.Signature(barrier_event_layout(params), always_ready=True))
        Events that end waits.
    wake : Out(stream.Signature(BarrierWake))
        Ends of waits.
    busy : Out(1)
        A thread waits.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(waiter_layout(params), always_ready=True)),
                "has_room": Out(1),
                "has_free": Out(1),
                "event": In(stream.Signature(barrier_event_layout(params), always_ready=True)),
                "wake": Out(stream.Signature(BarrierWake)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        entries = self.params.barrier_waiters
        depth = max(entries, 2)  # a memory of one row would have no address
        in_block = True if entries > MOST_ROWS_UNCLOCKED else None
        m.submodules.tags = RowMemory(BARRIER_TAG_BITS, depth, in_block=in_block)
        m.submodules.deadlines = deadlines = RowMemory(TIME_BITS, depth)

        # Masks have one bit per entry; an entry is selected by a one-hot mask.
        addresses = [
            Signal(BARRIER_WORD_ADDRESS_BITS, name=f"address_{n}", reset_less=True)
            for n in range(entries)
        ]
        waiting = Signal(entries)
        wake_pending = Signal(entries)  # the wait has ended, and its wake was not chosen yet
        leaving = Signal(entries)  # the wake that was chosen, and is offered next
        current_time = Signal(TIME_BITS)
        new_entry = self._insert(m, waiting | wake_pending | leaving, current_time, addresses)
        ended_by_event = Signal(entries)
        event_matches = self._match_event(m, new_entry, addresses)
        m.d.comb += ended_by_event.eq(Mux(self.event.valid, waiting & event_matches, 0))

        # Check one deadline per clock. If the entry was waiting when its deadline was read, and is
        # still waiting a clock later, it is the same wait. The memory holds deadlines less 1.
        scan_index = Signal(range(entries))
        scanned_index = Signal(range(entries))
        scanned_waiting = Signal()
        clocks_to_deadline = Signal(signed(TIME_BITS))
        ended_by_time = Signal(entries)
        read_deadline = deadlines.read_port()
        m.d.sync += [
            scan_index.eq(Mux(scan_index == entries - 1, 0, scan_index + 1)),
            scanned_index.eq(scan_index),
            scanned_waiting.eq(waiting.bit_select(scan_index, 1)),
        ]
        is_expired = scanned_waiting & (clocks_to_deadline < 0)
        m.d.comb += [
            read_deadline.addr.eq(scan_index),
            clocks_to_deadline.eq(read_deadline.data - current_time),
            ended_by_time.eq(Mux(is_expired, waiting & (1 << scanned_index), 0)),
        ]

        # Why the last wait of each entry has ended: by an event, or else by its time limit.
        by_event = Signal(entries)
        locked = Signal(entries)
        for number in range(entries):
            with m.If(waiting[number]):
                m.d.sync += [
                    by_event[number].eq(ended_by_event[number]),
                    locked[number].eq(self.event.p.outcome == Outcome.LOCKED),
                ]

        dequeues = self._choose(m, wake_pending, leaving)
        self._offer_wake(m, leaving, by_event, locked)
        m.d.comb += self.busy.eq((waiting | wake_pending | leaving).any())
        m.d.sync += [
            waiting.eq(
                (waiting | Mux(self.i.valid, new_entry, 0)) & ~(ended_by_event | ended_by_time)
            ),
            wake_pending.eq((wake_pending | ended_by_event | ended_by_time) & ~dequeues),
            Assert(
                ~self.i.valid | (new_entry.any() & ~self.event.valid),
                "barrier_waiters: a thread came without a free entry or with an event\n",
            ),
        ]
        return m

    def _insert(
        self, m: Module, occupied: Value, current_time: Signal, addresses: list[Signal]
    ) -> Signal:
        """Store the thread that comes; return its entry, one-hot.

        The entry is chosen in the clock before: the lowest one that was free.
        """
        entries = self.params.barrier_waiters
        tags, deadlines = m.submodules.tags, m.submodules.deadlines
        free_entries = Signal(entries)
        new_entry = Signal(entries)
        has_new_entry = Signal()
        last_time = Signal(TIME_BITS, init=-1)  # that of the last clock
        write_tag, write_deadline = tags.write_port(), deadlines.write_port()
        m.d.sync += [current_time.eq(current_time + 1), last_time.eq(current_time)]
        m.d.comb += [
            free_entries.eq(~(occupied | new_entry)),
            self.has_free.eq(free_entries.any()),
            self.has_room.eq(self.has_free | has_new_entry),
            *(port.en.eq(self.i.valid) for port in (write_tag, write_deadline)),
            *(port.addr.eq(index_of(new_entry)) for port in (write_tag, write_deadline)),
            write_tag.data.eq(self.i.p.tag),
            write_deadline.data.eq(last_time + self.i.p.time_limit),
        ]
        with m.If(self.i.valid | ~has_new_entry):
            m.d.sync += [
                new_entry.eq(lowest_one(free_entries)),
                has_new_entry.eq(self.has_free),
            ]
        with m.If(self.i.valid):
            for number, address in enumerate(addresses):
                with m.If(new_entry[number]):
                    m.d.sync += address.eq(self.i.p.address)
        return new_entry

    def _match_event(self, m: Module, new_entry: Signal, addresses: list[Signal]) -> Value:
        """Return the entries whose waits the event ends, if there is an event."""
        entries = self.params.barrier_waiters
        same_address = Signal(entries)
        m.d.comb += same_address.eq(Cat(address == self.event.p.address for address in addresses))
        if not self.params.mbarrier_v1:
            return same_address
        conditional = Signal(entries)
        with m.If(self.i.valid):
            m.d.sync += conditional.eq(
                (conditional & ~new_entry) | Mux(self.i.p.conditional, new_entry, 0)
            )
        ends = self.event.p
        return same_address & (
            Mux(ends.ends_conditional_waits, conditional, 0) | Mux(ends.ends_waits, ~conditional, 0)
        )

    def _choose(self, m: Module, wake_pending: Signal, leaving: Signal) -> Signal:
        """Choose the next wake in rotation: first those of the entries above the last one.

        The lowest 1 of the wakes above the last one, or else of all wakes, is found by a single
        subtraction of 1, which inverts this bit and those below it. Return the entry that is chosen
        in this clock, one-hot.
        """
        entries = self.params.barrier_waiters
        above_last = Signal(entries)
        later = Signal(entries)
        less_one = Signal(2 * entries + 2)
        none_later, is_none = less_one[entries], less_one[-1]
        low, high = less_one[:entries], less_one[entries + 1 : -1]
        next_entry = Signal(entries)
        dequeues = Signal(entries)
        advance = Signal()
        is_leaving = Signal()
        wake_valid = Signal()
        m.d.comb += [
            later.eq(wake_pending & above_last),
            less_one.eq(Cat(later, Const(0, 1), wake_pending) - 1),
            next_entry.eq((later & ~low) | (wake_pending & ~high)),
            advance.eq(~is_leaving | ~wake_valid | self.wake.ready),
            dequeues.eq(Mux(advance, next_entry, 0)),
            self.wake.valid.eq(wake_valid),
        ]
        with m.If(advance):
            m.d.sync += [leaving.eq(next_entry), is_leaving.eq(~is_none)]
            with m.If(~is_none):
                m.d.sync += above_last.eq(Mux(none_later, ~(wake_pending ^ high), ~(later ^ low)))
        with m.If(~wake_valid | self.wake.ready):
            m.d.sync += wake_valid.eq(is_leaving)
        return dequeues

    def _offer_wake(self, m: Module, leaving: Signal, by_event: Signal, locked: Signal) -> None:
        """Look up the wake that was chosen, and offer it."""
        read_tag = m.submodules.tags.read_port()
        done = Signal()
        is_locked = Signal()
        takes_next = ~self.wake.valid | self.wake.ready
        m.d.comb += [
            read_tag.en.eq(takes_next),
            read_tag.addr.eq(index_of(leaving)),
            self.wake.p.tag.eq(read_tag.data),
            self.wake.p.done.eq(done),
        ]
        with m.If(takes_next):
            m.d.sync += [
                done.eq((leaving & by_event & ~locked).any()),
                is_locked.eq((leaving & by_event & locked).any()),
            ]
        with m.If(is_locked):
            m.d.comb += self.wake.p.fault.eq(BarrierFault.LOCKED)
