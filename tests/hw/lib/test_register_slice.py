"""Ready cuts: nothing is lost, at the rate that each says; ``ready`` follows no input."""

import pytest
from amaranth.sim import Simulator

from hw.lib.register_slice import HalfBuffer, SkidBuffer
from tests.hw.simulate import run_streams

CUTS = SkidBuffer, HalfBuffer


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cut", CUTS)
def test_order(cut, seed):
    items = list(range(200))
    assert run_streams(cut(8), {"i": items}, ["o"], seed=seed).payloads["o"] == items


def test_a_skid_buffer_passes_one_a_clock():
    run = run_streams(SkidBuffer(8), {"i": list(range(100))}, ["o"], stall=0)
    assert run.cycles["o"] == run.taken["i"] == list(range(100))


def test_a_relay_passes_one_in_three_clocks():
    run = run_streams(HalfBuffer(8), {"i": list(range(100))}, ["o"], stall=0)
    assert run.cycles["o"] == list(range(1, 300, 3))
    assert run.taken["i"] == list(range(2, 300, 3))


@pytest.mark.parametrize("cut", CUTS)
def test_ready_comes_from_a_register(cut):
    """In no state do the inputs of a clock change it."""
    dut = cut(8)
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def bench(ctx):
        seen = set()
        for valid, ready in [(1, 0), (0, 0), (1, 1), (1, 1), (0, 1), (1, 0), (1, 1), (0, 0)] * 2:
            found = set()
            for offered, taken in [(0, 0), (0, 1), (1, 0), (1, 1), (valid, ready)]:
                ctx.set(dut.i.valid, offered)
                ctx.set(dut.o.ready, taken)
                found.add(ctx.get(dut.i.ready))
            assert len(found) == 1
            seen |= found
            await ctx.tick()
        assert seen == {0, 1}

    sim.run()
