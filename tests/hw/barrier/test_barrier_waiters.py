"""Barrier waiters: each wait ends once, for the right reason, and in the right clock."""

import random
from dataclasses import dataclass

import pytest
from amaranth.sim import Simulator

from hw.barrier.barrier_waiters import BarrierWaiters, Outcome
from hw.layouts.barriers import BARRIER_WORD_ADDRESS_BITS, BarrierFault
from hw.params import TmaParams
from tests.quick import quick


@dataclass(frozen=True)
class Thread:
    """A thread that asks for an entry."""

    address: int
    tag: int
    time_limit: int
    conditional: int = 0


@dataclass(frozen=True)
class Event:
    """The end of the waits for an address."""

    address: int
    outcome: Outcome
    ends_waits: int = 1
    ends_conditional_waits: int = 1


@dataclass(frozen=True)
class Clock:
    """Inputs of one clock. The thread comes only if there was room in the clock before."""

    thread: Thread | None = None
    event: Event | None = None
    ready: int = 1


Wake = tuple[int, int, BarrierFault]
"""Tag, done, fault."""


def rtl(stimulus: list[Clock], params: TmaParams) -> list[tuple[int, Wake | None]]:
    """Return whether a thread may come next, and the wake that is offered, clock by clock."""
    dut = BarrierWaiters(params)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    trace: list[tuple[int, Wake | None]] = []

    @sim.add_testbench
    async def drive(ctx):
        had_room = 0
        for clock in stimulus:
            wake = None
            if ctx.get(dut.wake.valid):
                p = ctx.get(dut.wake.payload)
                wake = p.tag, p.done, p.fault
            ctx.set(dut.wake.ready, clock.ready)
            ctx.set(dut.event.valid, clock.event is not None)
            if clock.event is not None:
                ctx.set(dut.event.p.address, clock.event.address)
                ctx.set(dut.event.p.outcome, clock.event.outcome)
                if params.mbarrier_v1:
                    for name in ("ends_waits", "ends_conditional_waits"):
                        ctx.set(dut.event.p[name], getattr(clock.event, name))
            comes = clock.thread is not None and had_room and clock.event is None
            ctx.set(dut.i.valid, comes)
            if comes:
                for name in ("address", "tag", "time_limit"):
                    ctx.set(dut.i.p[name], getattr(clock.thread, name))
                if params.mbarrier_v1:
                    ctx.set(dut.i.p.conditional, clock.thread.conditional)
            had_room = ctx.get(dut.has_free | (dut.has_room & ~dut.i.valid))
            trace.append((had_room, wake))
            await ctx.tick()

    sim.run()
    return trace


def ref(stimulus: list[Clock], params: TmaParams) -> list[tuple[int, Wake | None]]:
    """Return the same from the contract: entries, checked in rotation, that leave in rotation."""
    count = params.barrier_waiters
    waiting: dict[int, tuple[Thread, int]] = {}  # by entry: the thread, and when it came
    ended: dict[int, tuple[Thread, Outcome]] = {}  # by entry: waits whose wakes were not chosen
    leaving: tuple[int, Wake] | None = None  # the wake that is offered next, and its entry
    offered: Wake | None = None
    last_left = -1
    checked: tuple[Thread, int] | None = None  # who waited in the entry checked a clock ago
    new_entry: int | None = None  # of the thread that comes next
    trace = []
    for now, clock in enumerate(stimulus):
        comes = clock.thread is not None and new_entry is not None and clock.event is None
        occupied = {*waiting, *ended, new_entry, leaving[0] if leaving else None}
        free = [entry for entry in range(count) if entry not in occupied]
        has_room = bool(free) or (new_entry is not None and not comes)
        trace.append((int(has_room), offered))

        # A wake leaves the entries when the port is free. The next one in rotation is then chosen.
        chosen = None
        port_is_free = offered is None or clock.ready
        may_choose = leaving is None or port_is_free
        if port_is_free:
            offered = leaving[1] if leaving else None
        if may_choose:
            leaving = None
            if ended:
                chosen = min(ended, key=lambda entry: (entry <= last_left, entry))
                thread, outcome = ended[chosen]
                locked = outcome is Outcome.LOCKED
                fault = BarrierFault.LOCKED if locked else BarrierFault.NONE
                leaving = chosen, (thread.tag, int(outcome is Outcome.COMPLETE), fault)
                last_left = chosen

        ends = {}
        if clock.event is not None:
            for entry, (thread, _) in waiting.items():
                kind = "ends_conditional_waits" if thread.conditional else "ends_waits"
                if thread.address == clock.event.address and getattr(clock.event, kind):
                    ends[entry] = clock.event.outcome
        entry = (now - 1) % count
        wait = waiting.get(entry)
        if wait is not None and wait is checked and now - wait[1] >= wait[0].time_limit:
            ends.setdefault(entry, Outcome.TIME_OVER)
        checked = waiting.get(now % count)

        if chosen is not None:
            del ended[chosen]
        for entry, outcome in ends.items():
            ended[entry] = waiting.pop(entry)[0], outcome
        if comes:
            waiting[new_entry] = clock.thread, now
        if comes or new_entry is None:
            new_entry = free[0] if free else None
    return trace


def draw(
    rng: random.Random, params: TmaParams, clocks: int, share: float, stall: float
) -> list[Clock]:
    """Return random inputs: an event in a tenth of the clocks, threads in ``share`` of them."""
    limits = [1, 2, 3, 10, 30, 100, (1 << 32) - 1]

    def kinds() -> tuple[int, int]:
        return rng.choice([(1, 0), (0, 1), (1, 1)]) if params.mbarrier_v1 else (1, 1)

    stimulus = []
    for number in range(clocks):
        address = rng.choice([0, 1, 5, (1 << 21) - 1])
        thread = event = None
        if rng.random() < share:
            conditional = rng.getrandbits(1) if params.mbarrier_v1 else 0
            thread = Thread(address, number, rng.choice(limits), conditional)
        if rng.random() < 0.1:
            event = Event(address, rng.choice([Outcome.COMPLETE, Outcome.LOCKED]), *kinds())
        stimulus.append(Clock(thread, event, int(rng.random() >= stall)))
    return stimulus


@pytest.mark.parametrize("waiters", [1, 2, 3, 8, TmaParams().barrier_waiters])
@pytest.mark.parametrize("seed", quick(range(4), 2))
def test_every_clock(waiters, seed):
    """The room and the wakes of each clock are those of the model."""
    rng = random.Random(seed)
    params = TmaParams(barrier_waiters=waiters, mbarrier_v1=bool(seed % 2))
    share, stall = ((0.3, 0), (0.8, 0.5), (0.4, 0.8), (1, 0.2))[seed]
    stimulus = draw(rng, params, 1500, share, stall)
    expected = ref(stimulus, params)
    assert rtl(stimulus, params) == expected
    kinds = {wake[1:] for _, wake in expected if wake}
    assert kinds == {
        (1, BarrierFault.NONE),
        (0, BarrierFault.NONE),
        (0, BarrierFault.LOCKED),
    }
    fills_all = waiters <= 8 or stall
    assert {has_room for has_room, _ in expected} == ({0, 1} if fills_all else {1})


def first_wakes(trace: list[tuple[int, Wake | None]]) -> dict[int, int]:
    """Return for each tag the clock in which its wake was offered first."""
    clocks: dict[int, int] = {}
    for clock, (_, wake) in enumerate(trace):
        if wake:
            clocks.setdefault(wake[0], clock)
    return clocks


@pytest.mark.parametrize("limit", [1, 2, 7, 20])
def test_latency(limit):
    """The wake of a phase three clocks after its event; that of a time limit within its window."""
    params = TmaParams(barrier_waiters=4)
    for start in range(1, 5):  # the first entry is chosen in the clock after a reset
        head = [Clock()] * start
        thread = Clock(Thread(3, 9, limit))
        trace = rtl([*head, thread, *[Clock()] * (limit + 10)], params)
        assert trace == ref([*head, thread, *[Clock()] * (limit + 10)], params)
        (clock,) = first_wakes(trace).values()
        assert limit + 3 <= clock - start <= limit + 3 + params.barrier_waiters

        event = Clock(event=Event(3, Outcome.COMPLETE))
        trace = rtl([*head, Clock(Thread(3, 9, 1 << 20)), event, *[Clock()] * 5], params)
        assert first_wakes(trace) == {9: start + 4}


def test_time_wraps_around():
    """A limit of 32 bits is not in the past: the wait stays."""
    params = TmaParams(barrier_waiters=2)
    stimulus = [Clock(), Clock(Thread(0, 1, (1 << 32) - 1)), *[Clock()] * 50]
    assert first_wakes(rtl(stimulus, params)) == {}


def test_a_wake_that_is_not_taken_keeps_the_others():
    """The wake at the port does not change; the others stay in their entries."""
    params = TmaParams(barrier_waiters=3)
    threads = [Clock(Thread(0, tag, 1 << 20), ready=0) for tag in range(3)]
    event = Clock(event=Event(0, Outcome.COMPLETE), ready=0)
    trace = rtl([Clock(), *threads, event, *[Clock(ready=0)] * 20, *[Clock()] * 5], params)
    assert [wake[0] for _, wake in trace if wake] == [0] * 19 + [1, 2]
    assert [has_room for has_room, _ in trace[3:8]] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("seed", quick(range(3), 2))
def test_all_entries_keep_their_addresses(seed):
    """Threads take all entries; then each wait ends with an event of its own, in any order."""
    params = TmaParams()
    rng = random.Random(seed)
    threads = [
        Thread(rng.getrandbits(BARRIER_WORD_ADDRESS_BITS), tag, time_limit=100_000)
        for tag in range(params.barrier_waiters)
    ]
    comes = [clock for thread in threads for clock in (Clock(thread), Clock())]
    ends = []
    for thread in rng.sample(threads, len(threads)):
        ends += [Clock(event=Event(thread.address, Outcome.COMPLETE))]
        ends += [Clock()] * rng.randint(0, 3)
    for clocks in range(2):
        stimulus = [*comes, *[Clock()] * clocks, *ends]
        trace = rtl(stimulus, params)
        assert trace == ref(stimulus, params)
        assert sum(wake is not None for _, wake in trace) > 60
