"""Job store: each channel's jobs leave it in order, with all of their bits."""

import random
from collections import deque

import pytest

from hw.generate.job_store import JobStore
from hw.layouts.jobs import prepared_job_layout
from hw.params import TmaParams
from tests.hw.simulate import Simulation

PARAMS = {"block memory": TmaParams(), "heads only": TmaParams(jobs_waiting=2)}


@pytest.mark.parametrize("name", PARAMS)
def test_jobs_leave_as_they_came(name: str) -> None:
    """Random contents, and as many jobs in each channel as it may have."""
    params = PARAMS[name]
    dut = JobStore(params)
    layout = prepared_job_layout(params)
    rng = random.Random(1)
    coming = [rng.randrange(params.channels) for _ in range(60)]
    stored: list[deque[int]] = [deque() for _ in range(params.channels)]
    checked = 0

    async def drive(ctx) -> None:
        nonlocal checked
        while coming or any(stored):
            if coming and len(stored[coming[-1]]) < params.jobs_waiting:
                channel, bits = coming.pop(), rng.getrandbits(layout.size)
                stored[channel].append(bits)
                ctx.set(dut.i.p.channel, channel)
                for field in layout.members:
                    value = layout.from_bits(bits)[field]
                    ctx.set(dut.i.p[field], value)
                ctx.set(dut.i.valid, 1)
                await ctx.tick()
                ctx.set(dut.i.valid, 0)
                if coming and rng.random() < 0.7:
                    continue
            await ctx.tick().repeat(4)
            channel = rng.choice([number for number, jobs in enumerate(stored) if jobs])
            ctx.set(dut.channel, channel)
            await ctx.tick()
            ctx.set(dut.has_turn, 1)
            assert ctx.get(dut.first_valid)
            first = ctx.get(dut.first)
            assert first.as_bits() == stored[channel].popleft()
            await ctx.tick()
            ctx.set(dut.has_turn, 0)
            ctx.set(dut.done, {"valid": 1, "last": first.last})
            await ctx.tick()
            ctx.set(dut.done.valid, 0)
            checked += 1

    Simulation(dut).run(drive)
    assert checked == 60


def test_a_job_of_one_step_a_clock_of_any_channel() -> None:
    """The heads of a channel are full again when its next job of one step leaves."""
    params = TmaParams()
    dut = JobStore(params)
    count = 12
    left: list[list[int]] = []

    async def drive(ctx) -> None:
        ctx.set(dut.i.p.column.ends, 1)
        for channel in range(params.channels):
            ctx.set(dut.i.p.channel, channel)
            for number in range(count):
                ctx.set(dut.i.p.slot, number)
                ctx.set(dut.i.valid, 1)
                await ctx.tick()
            ctx.set(dut.i.valid, 0)
            await ctx.tick().repeat(8)
            ctx.set(dut.channel, channel)
            await ctx.tick()
            ctx.set(dut.has_turn, 1)
            slots = []
            for _ in range(count):
                if ctx.get(dut.first_valid):
                    slots.append(ctx.get(dut.first.slot))
                done = ctx.get(dut.first_valid)
                await ctx.tick()
                ctx.set(dut.done, {"valid": done})
            ctx.set(dut.has_turn, 0)
            await ctx.tick()
            ctx.set(dut.done.valid, 0)
            left.append(slots)

    Simulation(dut).run(drive)
    assert left == [[*range(count)]] * params.channels


@pytest.mark.parametrize("name", PARAMS)
def test_jobs_come_and_leave_in_every_clock(name: str) -> None:
    """Jobs of several channels move up at once, while others come and leave."""
    params = PARAMS[name]
    dut = JobStore(params)
    rng = random.Random(2)
    stored: list[deque[int]] = [deque() for _ in range(params.channels)]
    slots = 1 << len(dut.i.p.slot)
    taken = 0

    async def drive(ctx) -> None:
        nonlocal taken
        turn = 0
        await ctx.tick()
        ctx.set(dut.has_turn, 1)
        for number in range(3000):
            channel = rng.randrange(params.channels)
            comes = len(stored[channel]) < params.jobs_waiting and rng.random() < 0.9
            ctx.set(dut.i.valid, comes)
            ctx.set(dut.i.p.channel, channel)
            ctx.set(dut.i.p.slot, number % slots)
            ctx.set(dut.i.p.column.ends, rng.randrange(2))
            next_turn = rng.choice([*range(params.channels), channel])
            ctx.set(dut.channel, next_turn)
            leaves = ctx.get(dut.first_valid)
            if leaves:
                assert ctx.get(dut.first.slot) == stored[turn].popleft() % slots
                taken += 1
            if comes:
                stored[channel].append(number)
            await ctx.tick()
            ctx.set(dut.done, {"valid": leaves})
            turn = next_turn
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.has_turn, 0)
        await ctx.tick()
        ctx.set(dut.done.valid, 0)
        for turn, jobs in enumerate(stored):
            ctx.set(dut.channel, turn)
            while jobs:
                await ctx.tick().repeat(8)
                assert ctx.get(dut.first_valid)
                assert ctx.get(dut.first.slot) == jobs.popleft() % slots
                await ctx.tick()
                ctx.set(dut.done, {"valid": 1})
                await ctx.tick()
                ctx.set(dut.done.valid, 0)
                taken += 1

    Simulation(dut).run(drive)
    assert taken > 1500
