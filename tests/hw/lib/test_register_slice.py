"""Register slices: order, rate, and where ``ready`` comes from."""

import pytest
from amaranth.sim import Simulator

from hw.lib.register_slice import DoubleBuffer, PipelineRegister, SingleBuffer, SkidBuffer
from tests.hw.simulate import run_streams

BUFFERS = SingleBuffer, PipelineRegister, SkidBuffer, DoubleBuffer


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("buffer", BUFFERS)
def test_order(buffer, seed):
    items = list(range(200))
    assert run_streams(buffer(8), {"i": items}, ["o"], seed=seed).payloads["o"] == items


@pytest.mark.parametrize("buffer", [PipelineRegister, DoubleBuffer])
def test_one_a_clock(buffer):
    run = run_streams(buffer(8), {"i": list(range(100))}, ["o"], stall=0)
    assert run.taken["i"] == list(range(100))
    assert run.cycles["o"] == list(range(1, 101))


def test_a_skid_buffer_has_no_latency():
    run = run_streams(SkidBuffer(8), {"i": list(range(100))}, ["o"], stall=0)
    assert run.taken["i"] == run.cycles["o"] == list(range(100))


def test_a_single_buffer_passes_one_in_two_clocks():
    run = run_streams(SingleBuffer(8), {"i": list(range(100))}, ["o"], stall=0)
    assert run.taken["i"] == list(range(0, 200, 2))
    assert run.cycles["o"] == list(range(1, 201, 2))


@pytest.mark.parametrize("buffer", [SingleBuffer, SkidBuffer, DoubleBuffer])
def test_ready_comes_from_a_register(buffer):
    """The inputs of a clock do not change ``i.ready`` in that clock, in any state."""
    dut = buffer(8)
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        seen = set()
        for valid, ready in [(1, 0), (0, 0), (1, 1), (1, 1), (0, 1), (1, 0), (1, 1), (0, 0)] * 2:
            levels = set()
            for offered, taken in [(0, 0), (0, 1), (1, 0), (1, 1), (valid, ready)]:
                ctx.set(dut.i.valid, offered)
                ctx.set(dut.o.ready, taken)
                levels.add(ctx.get(dut.i.ready))
            assert len(levels) == 1
            seen |= levels
            await ctx.tick()
        assert seen == {0, 1}

    sim.run()
