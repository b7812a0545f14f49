"""Free list: each number has at most one holder."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from hw.lib.free_list import FreeList


@pytest.mark.parametrize("count", [2, 4, 16, 32])
def test_no_number_is_held_twice(count):
    rng = random.Random(count)
    dut = FreeList(count)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    most = 0

    @sim.add_testbench
    async def drive(ctx):
        nonlocal most
        held: list[int] = []
        offered = None
        for _ in range(30 * count):
            keep = rng.random() < 0.5
            back = held.pop(rng.randrange(len(held))) if held and not keep else None
            ctx.set(dut.returned.valid, back is not None)
            ctx.set(dut.returned.payload, back or 0)
            ctx.set(dut.taken.ready, rng.random() < 0.7)
            number = ctx.get(dut.taken.payload) if ctx.get(dut.taken.valid) else None
            assert offered in (None, number)
            offered = number
            if number is not None and ctx.get(dut.taken.ready):
                offered = None
                assert number < count
                assert number not in held
                assert number != back
                held.append(number)
            most = max(most, len(held))
            await ctx.tick()

    sim.run()
    assert most == count


@pytest.mark.parametrize("count", [8, 64])
def test_a_number_that_came_back_is_free_in_the_next_clock(count):
    """A list of ``count`` numbers, each held for ``count`` clocks, gives one number a clock."""
    dut = FreeList(count)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    clocks = 10 * count
    got = 0

    @sim.add_testbench
    async def drive(ctx):
        nonlocal got
        held: deque = deque([None] * (count - 1))
        ctx.set(dut.taken.ready, 1)
        for _ in range(clocks):
            back = held.popleft()
            ctx.set(dut.returned.valid, back is not None)
            ctx.set(dut.returned.payload, back or 0)
            taken = ctx.get(dut.taken.valid)
            held.append(ctx.get(dut.taken.payload) if taken else None)
            got += taken
            await ctx.tick()

    sim.run()
    assert got == clocks - 1  # the first number is offered in the second clock
