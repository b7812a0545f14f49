"""Free list: each number has one holder."""

import random

import pytest
from amaranth.sim import Simulator

from hw.free_list import FreeList


@pytest.mark.parametrize("count", [2, 4, 16, 32])
def test_no_number_is_held_twice(count):
    rng = random.Random(count)
    dut = FreeList(count)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    most = 0

    @sim.add_testbench
    async def bench(ctx):
        nonlocal most
        held: list[int] = []
        for _ in range(30 * count):
            keep = rng.random() < 0.5
            back = held.pop(rng.randrange(len(held))) if held and not keep else None
            ctx.set(dut.returned.valid, back is not None)
            ctx.set(dut.returned.payload, back or 0)
            ctx.set(dut.taken.ready, rng.random() < 0.7)
            if ctx.get(dut.taken.valid) and ctx.get(dut.taken.ready):
                number = ctx.get(dut.taken.payload)
                assert number < count
                assert number not in held
                assert number != back
                held.append(number)
            most = max(most, len(held))
            await ctx.tick()

    sim.run()
    assert most == count
