"""Monitor registers: counts of 64 bits of one moment, and events one after the other."""

import random
from dataclasses import replace

from hw.host.monitor_registers import WORDS, MonitorRegister
from hw.host.registers import RegisterFile
from hw.layouts.monitor import Counter, EventKind
from hw.params import PRESETS
from sim_tb.trace.records import Event, decode
from tests.hw.host.bus import Bus
from tests.hw.simulate import simulation

PARAMS = replace(PRESETS["host"], counters=True)


def run(drive) -> None:
    """Run ``drive(bus, ctx, dut)`` with the register file of a unit with counters."""
    sim = simulation(RegisterFile, PARAMS)

    async def testbench(ctx):
        await drive(Bus(ctx, sim.dut), ctx, sim.dut)

    sim.run(testbench)


def test_the_halves_of_a_count_are_of_one_moment():
    async def drive(bus, ctx, dut):
        rng = random.Random(1)
        for _ in range(20):
            first, later = rng.getrandbits(64), rng.getrandbits(64)
            number = rng.choice(list(Counter))
            assert await bus.access(MonitorRegister.COUNTER_SELECT, number.value) is not None
            assert ctx.get(dut.counters.select) is number
            ctx.set(dut.counters.value, first)
            assert await bus.access(MonitorRegister.COUNTER_LOW) == first & 0xFFFF_FFFF
            ctx.set(dut.counters.value, later)
            assert await bus.access(MonitorRegister.COUNTER_HIGH) == first >> 32
            assert await bus.access(MonitorRegister.COUNTER_LOW, 5) is None  # only read
            assert await bus.access(MonitorRegister.COUNTER_HIGH) == first >> 32

    run(drive)


def test_the_counters_stop():
    async def drive(bus, ctx, dut):
        for value in (0, 1, 3, 1, 2, 0):
            assert await bus.access(MonitorRegister.COUNTER_CONTROL, value) is not None
            assert ctx.get(dut.counters.freeze) == value & 1
            ctx.set(dut.counters.settled, value & 1)
            assert await bus.access(MonitorRegister.COUNTER_CONTROL) == (value & 1) * 0b101
            assert not ctx.get(dut.counters.clear)

    run(drive)


def test_clear_is_a_pulse_of_one_clock():
    async def drive(_bus, ctx, dut):
        pulses = []
        ctx.set(dut.answer.ready, 1)
        ctx.set(dut.access.p.address, MonitorRegister.COUNTER_CONTROL)
        ctx.set(dut.access.p.is_write, 1)
        ctx.set(dut.access.p.data, 2)
        ctx.set(dut.access.p.strobe, 15)
        ctx.set(dut.access.valid, 1)
        for _ in range(6):
            await ctx.tick()
            ctx.set(dut.access.valid, 0)
            pulses.append(ctx.get(dut.counters.clear))
        assert pulses == [1, 0, 0, 0, 0, 0]

    run(drive)


def test_a_host_takes_events_one_after_the_other():
    async def drive(bus, ctx, dut):
        rng = random.Random(2)
        events = [
            Event(
                100 * number,
                rng.choice(list(EventKind)),
                *(bool(rng.getrandbits(1)) for _ in range(2)),
                *(rng.getrandbits(bits) for bits in (8, 16, 32, 32)),
            )
            for number in range(10)
        ]
        raw = b""
        assert await bus.access(MonitorRegister.TRACE_STATUS) == 0
        for event in events:
            word = int.from_bytes(event.encode(), "little")
            ctx.set(dut.trace.payload.as_value(), word)
            ctx.set(dut.trace.valid, 1)
            assert await bus.access(MonitorRegister.TRACE_STATUS) == 1
            for register in WORDS:
                raw += (await bus.access(register)).to_bytes(4, "little")
            assert await bus.access(MonitorRegister.TRACE_STATUS, 0) is not None
            assert not ctx.get(dut.trace.ready)
            ctx.set(dut.answer.ready, 1)
            ctx.set(dut.access.p.address, MonitorRegister.TRACE_STATUS)
            ctx.set(dut.access.p.is_write, 1)
            ctx.set(dut.access.p.data, 1)
            ctx.set(dut.access.p.strobe, 15)
            ctx.set(dut.access.valid, 1)
            taken = []
            for _ in range(4):
                taken.append(ctx.get(dut.trace.ready))
                await ctx.tick()
                ctx.set(dut.access.valid, 0)
            assert sum(taken) == 1
            ctx.set(dut.trace.valid, 0)
            await ctx.tick()
        assert decode(raw) == events

    run(drive)
