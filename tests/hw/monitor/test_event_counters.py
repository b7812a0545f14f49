"""Event counters: each count is the sum of its amounts, whatever stops and clears them."""

import random
from functools import cache

import pytest
from amaranth.hdl import Value
from amaranth.lib import enum

from hw.layouts.monitor import COUNT_BITS, Counter
from hw.monitor.event_counters import EventCounters
from tests.hw.simulate import Simulation

WIDTHS = {"cycles": 1, "lines_read": 1, "pieces_written": 4, "reads_in_flight": 10, "refused": 2}
SETTLE = 66
"""Clocks in which an event gets into the memory, for 64 rows."""


class Counts:
    """Counters in simulation, beside the sums of their amounts."""

    def __init__(self, ctx, dut: EventCounters, rng: random.Random) -> None:
        self.ctx, self.dut, self.rng = ctx, dut, rng
        self.sums = dict.fromkeys(WIDTHS, 0)

    async def run(self, clocks: int, *, freeze: int = 0, largest: bool = False) -> None:
        """Run for some clocks, with random amounts or the largest ones."""
        self.ctx.set(self.dut.port.freeze, freeze)
        for _ in range(clocks):
            for name, width in WIDTHS.items():
                most = (1 << width) - 1
                amount = most if largest or self.rng.random() < 0.3 else self.rng.randint(0, most)
                self.ctx.set(self.dut.amounts[name], amount)
                self.sums[name] += 0 if freeze else amount
            await self.ctx.tick()

    async def clear(self) -> None:
        """Clear in one clock, whose amounts do not count."""
        self.ctx.set(self.dut.port.clear, 1)
        await self.run(1)
        self.ctx.set(self.dut.port.clear, 0)
        self.sums = dict.fromkeys(WIDTHS, 0)

    async def read(self, number: int) -> int:
        """Return the value of a counter."""
        self.ctx.set(Value.cast(self.dut.port.select), number)
        await self.ctx.tick()
        return self.ctx.get(self.dut.port.value)

    async def check(self) -> None:
        """Stop, and compare the values of all numbers, also of those without a counter."""
        self.ctx.set(self.dut.port.freeze, 1)
        clocks = 0
        while not self.ctx.get(self.dut.port.settled):
            await self.run(1, freeze=1)
            clocks += 1
        assert clocks <= SETTLE
        names = {Counter[name.upper()].value: name for name in WIDTHS}
        for number in range(64):
            expected = self.sums[names[number]] if number in names else 0
            assert await self.read(number) == expected % (1 << self.dut.bits), number


@cache
def counters(bits: int) -> Simulation:
    """Return the simulation of counters of this width."""
    return Simulation(EventCounters(WIDTHS, Counter, bits))


def run(sim: Simulation, drive) -> None:
    async def begin(ctx) -> None:
        await drive(Counts(ctx, sim.dut, random.Random(sim.dut.bits)))

    sim.run(begin)


@pytest.mark.parametrize("bits", [COUNT_BITS, 8])
def test_all_amounts_count_once(bits: int) -> None:
    """Also the largest amounts for a long time, beyond the lower half of a count, and around it."""

    async def drive(counts: Counts) -> None:
        assert counts.dut.settle_clocks == SETTLE
        await counts.run(3)
        await counts.check()
        await counts.run(500)
        await counts.check()
        await counts.run(300, largest=True)
        await counts.run(20, freeze=1)
        await counts.run(1)
        await counts.check()

    run(counters(bits), drive)


def test_a_carry_reaches_the_upper_half() -> None:
    """A count of 40 bits has halves of 20 bits, and passes the lower one."""

    async def drive(counts: Counts) -> None:
        await counts.run(2200, largest=True)
        assert counts.sums["reads_in_flight"] > 1 << 20
        await counts.check()

    run(counters(40), drive)


@pytest.mark.parametrize("seed", range(5))
def test_counts_begin_at_0_after_a_clear(seed: int) -> None:
    """At any place of the visits, twice in a row, and while the counters are stopped."""

    async def drive(counts: Counts) -> None:
        rng = counts.rng = random.Random(seed)
        for _ in range(6):
            await counts.run(rng.randint(0, 150))
            await counts.clear()
            await counts.run(rng.choice([0, 1, 2, 70]), freeze=rng.randint(0, 1))
            if rng.random() < 0.5:
                await counts.clear()
            await counts.run(rng.randint(0, 90))
            await counts.check()

    run(counters(COUNT_BITS), drive)


def test_a_running_value_misses_the_last_clocks_only() -> None:
    async def drive(counts: Counts) -> None:
        history = []
        for _ in range(300):
            counts.ctx.set(counts.dut.port.select, Counter.PIECES_WRITTEN)
            await counts.run(1)
            history.append(counts.sums["pieces_written"])
            if len(history) > SETTLE + 1:
                low, high = history[-2 - SETTLE], history[-1]
                assert low <= counts.ctx.get(counts.dut.port.value) <= high

    run(counters(COUNT_BITS), drive)


def test_values_are_not_settled_while_events_are_missing() -> None:
    async def drive(counts: Counts) -> None:
        await counts.run(200)
        assert not counts.ctx.get(counts.dut.port.settled)
        await counts.run(SETTLE - 1, freeze=1)
        assert not counts.ctx.get(counts.dut.port.settled)
        await counts.run(1, freeze=1)
        assert counts.ctx.get(counts.dut.port.settled)
        await counts.run(1)
        assert not counts.ctx.get(counts.dut.port.settled)

    run(counters(COUNT_BITS), drive)


def test_the_rows_are_as_many_as_there_are_numbers() -> None:
    class Few(enum.Enum, shape=2):
        NONE = 0
        ONLY = 1

    async def drive(ctx) -> None:
        dut = sim.dut
        assert (dut.rows, dut.settle_clocks) == (4, 6)
        ctx.set(dut.amounts.only, 7)
        await ctx.tick().repeat(50)
        ctx.set(dut.port.freeze, 1)
        ctx.set(dut.port.select, Few.ONLY)
        await ctx.tick().repeat(dut.settle_clocks)
        assert ctx.get(dut.port.settled)
        assert ctx.get(dut.port.value) == 50 * 7 % 256

    sim = Simulation(EventCounters({"only": 3}, Few, 8))
    sim.run(drive)
