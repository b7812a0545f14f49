"""Event recorder: events have their time, stay in order, and are counted where they are lost."""

import gc
import random

import pytest

from hw.monitor.event_recorder import EVENTS_WAITING, MOST_SOURCES, EventRecorder
from tests.hw.simulate import Simulation, simulation

SOURCES = 5


def record(sim: Simulation, share: float, ready: float, clocks: int, seed: int = 0) -> dict:
    """Offer events at random, and take them at random.

    Returns
    -------
    dict
        ``offered``: time and number of the events of each source; ``taken``: the records;
        ``lost``: how many events the recorder reports as lost.
    """
    dut = sim.dut
    rng = random.Random(seed)
    offered: list[list[tuple[int, int]]] = [[] for _ in range(dut.sources)]
    taken, lost = [], 0

    async def drive(ctx) -> None:
        nonlocal lost
        number = 0
        for clock in range(clocks + 60):
            quiet = clock >= clocks
            for source, offer in enumerate(dut.i):
                valid = not quiet and rng.random() < share
                ctx.set(offer.valid, valid)
                if valid:
                    number += 1
                    offered[source].append((ctx.get(dut.now), number))
                    ctx.set(offer.event.stream, source)
                    ctx.set(offer.event.request_id, number)
                    ctx.set(offer.event.argument, ~number & 0xFFFF_FFFF)
                    ctx.set(offer.event.slot, number & 0xFFFF)
                    ctx.set(offer.event.clock, rng.getrandbits(32))
                    ctx.set(offer.event.gap, rng.getrandbits(1))
            ready_now = quiet or rng.random() < ready
            ctx.set(dut.o.ready, ready_now)
            lost += ctx.get(dut.lost)
            if ready_now and ctx.get(dut.o.valid):
                taken.append((ctx.get(dut.now), ctx.get(dut.o.payload)))
            await ctx.tick()

    sim.run(drive)
    return {"offered": offered, "taken": taken, "lost": lost}


def check(run: dict) -> list[list[int]]:
    """Check the records of a run against what was offered; return the numbers of lost events of
    each source.
    """
    lost = []
    for source, events in enumerate(run["offered"]):
        taken = [event for _, event in run["taken"] if event.stream == source]
        times = {number: time for time, number in events}
        for event in taken:
            number = event.request_id
            assert event.clock == times[number]
            assert event.argument == ~number & 0xFFFF_FFFF
            assert event.slot == number & 0xFFFF
        numbers = [event.request_id for event in taken]
        assert numbers == sorted(set(numbers))
        lost.append([number for _, number in events if number not in numbers])
    assert sum(map(len, lost)) == run["lost"]
    return lost


def gaps(run: dict) -> int:
    """Return how many records have ``gap``."""
    return sum(event.gap for _, event in run["taken"])


@pytest.mark.parametrize("seed", range(2))
def test_an_event_is_lost_only_behind_another_one_of_its_source(seed: int) -> None:
    """With a ready output and few events, an event is taken within as many clocks as there are
    sources.
    """
    run = record(simulation(EventRecorder, SOURCES), 0.05, 1.0, 600, seed)
    lost = check(run)
    for events, missing in zip(run["offered"], lost, strict=True):
        times = {number: time for time, number in events}
        for number in missing:
            assert any(0 < times[number] - time < SOURCES for time, _ in events)
    assert len(run["taken"]) > 100
    assert run["lost"] < len(run["taken"]) // 20


def test_all_sources_at_once() -> None:
    sim = simulation(EventRecorder, MOST_SOURCES)
    run = record(sim, 1.0, 1.0, 1)
    assert len(run["taken"]) == MOST_SOURCES
    assert not any(check(run))
    assert run["lost"] == gaps(run) == 0
    assert [clock for clock, _ in run["taken"]] == list(range(3, 3 + MOST_SOURCES))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("share", "ready"), [(0.5, 1.0), (0.3, 0.2), (0.1, 0.05), (0.9, 0.05)])
def test_lost_events_are_counted_and_leave_a_gap(share: float, ready: float, seed: int) -> None:
    run = record(simulation(EventRecorder, SOURCES), share, ready, 200, seed)
    assert any(check(run))
    assert 0 < gaps(run) <= run["lost"]


def test_a_gap_is_in_front_of_the_next_event() -> None:
    """The queue fills up; the first event behind the lost ones has a gap, and no other."""
    sim = simulation(EventRecorder, 1)
    dut, taken = sim.dut, []

    async def drive(ctx) -> None:
        for number in range(EVENTS_WAITING + 6):
            ctx.set(dut.i[0].valid, 1)
            ctx.set(dut.i[0].event.request_id, number)
            await ctx.tick()
        ctx.set(dut.i[0].valid, 0)
        await ctx.tick().repeat(4)
        for clock in range(40):
            ctx.set(dut.o.ready, 1)
            ctx.set(dut.i[0].valid, clock in (10, 12))
            ctx.set(dut.i[0].event.request_id, 1000 + clock)
            if ctx.get(dut.o.valid):
                taken.append((ctx.get(dut.o.p.request_id), ctx.get(dut.o.p.gap)))
            await ctx.tick()

    sim.run(drive)
    assert taken == [*((number, 0) for number in range(EVENTS_WAITING)), (1010, 1), (1012, 0)]


def test_numbers_of_sources_that_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(EventRecorder, "_MustUse__silence", True, raising=False)
    with pytest.raises(ValueError, match="sources = 0: must be from 1 to 32"):
        EventRecorder(0)
    with pytest.raises(ValueError, match="sources = 33: must be from 1 to 32"):
        EventRecorder(33)
    gc.collect()  # while they are silenced
