"""Startup: clearing after a reset, drain, and idle."""

import random

import pytest
from amaranth.sim import Simulator

from hw.front.startup import SETTLED, Startup
from hw.layouts.ports import control_rows
from hw.params import TmaParams

PARAMS = TmaParams(line_bytes=16, tags=4, requests_in_flight=8, threads=4, streams=1)
ROWS = control_rows(PARAMS)


def simulate(drive) -> None:
    dut = Startup(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def run(ctx):
        await drive(ctx, dut)

    sim.run()


def test_the_rows_are_those_of_the_deepest_memory() -> None:
    assert control_rows(TmaParams(tags=64, requests_in_flight=8, threads=32, streams=1)) == 64
    assert control_rows(TmaParams(tags=8, requests_in_flight=16, threads=32, streams=1)) == 32
    assert ROWS == 8


def test_each_row_is_cleared_once_before_the_first_request() -> None:
    async def drive(ctx, dut):
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        cleared = []
        for _ in range(ROWS):
            assert not ctx.get(dut.o.valid)
            assert not ctx.get(dut.i.ready)
            assert ctx.get(dut.clear.enabled)
            cleared.append(ctx.get(dut.clear.row))
            await ctx.tick()
        assert cleared == list(range(ROWS))
        for _ in range(4):
            assert not ctx.get(dut.clear.enabled)
            await ctx.tick()
        assert ctx.get(dut.o.valid)
        assert ctx.get(dut.i.ready)

    simulate(drive)


def test_it_is_idle_when_nothing_was_busy_for_some_clocks() -> None:
    async def drive(ctx, dut):
        clocks = 0
        while not ctx.get(dut.control.idle):
            await ctx.tick()
            clocks += 1
        assert clocks == ROWS + SETTLED
        for length in 1, 5:
            ctx.set(dut.busy, 1)
            await ctx.tick().repeat(length)
            ctx.set(dut.busy, 0)
            await ctx.tick()
            assert not ctx.get(dut.control.idle)
            await ctx.tick().repeat(SETTLED - 1)
            assert not ctx.get(dut.control.idle)
            await ctx.tick()
            assert ctx.get(dut.control.idle)

    simulate(drive)


@pytest.mark.parametrize("seed", range(4))
def test_drain_withdraws_no_request_and_accepts_none_later(seed: int) -> None:
    """Requests pass in order, and an offered one stays offered, while ``drain`` changes."""
    rng = random.Random(seed)
    passed: list[int] = []

    async def drive(ctx, dut):
        number, offered, draining = 0, False, 0
        for _ in range(2000):
            if rng.random() < 0.1:
                ctx.set(dut.control.drain, rng.random() < 0.5)
            draining = draining + 1 if ctx.get(dut.control.drain) else 0
            ctx.set(dut.i.valid, 1)
            ctx.set(dut.i.p.request_id, number)
            ctx.set(dut.o.ready, rng.random() < 0.5)
            valid, ready = ctx.get(dut.o.valid), ctx.get(dut.o.ready)
            assert valid or not offered
            assert ctx.get(dut.i.ready) == (valid and ready)
            if valid and ready:
                assert draining < 3
                passed.append(ctx.get(dut.o.p.request_id))
                number += 1
            offered = valid and not ready
            if offered:
                draining = 0  # it was offered before
            await ctx.tick()

    simulate(drive)
    assert passed == list(range(len(passed)))
    assert len(passed) > 200
