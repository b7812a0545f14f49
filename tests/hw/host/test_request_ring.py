"""Request ring: records come in order, each once, and none behind the tail is read."""

import random
from collections import deque

import pytest

from hw.host.request_ring import RECORDS, RequestRing
from hw.layouts.host import RECORD_BYTES, HostError, record_layout
from hw.params import PRESETS
from tests.hw.simulate import Run, run_streams, simulation

PARAMS = PRESETS["host"]
BASE = 0x4000_0000
COUNT = 60


class Host:
    """A host that writes records to a ring, as soon as it has room, and the memory with the ring.

    Parameters
    ----------
    size : int
        Records of the ring, as a power of two.
    bad : int, optional
        Number of a record that cannot be read.
    """

    def __init__(self, seed: int, size: int, bad: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.size = size
        self.bad = bad
        self.records = [self.rng.getrandbits(8 * RECORD_BYTES) for _ in range(COUNT)]
        self.memory: dict[int, int] = {}
        self.written = self.seen = self.read = self.halted = 0
        self.reads: deque[int] = deque()

    async def start(self, ctx) -> None:
        """Set the ring up; the simulation begins here."""
        self.ctx, ring = ctx, simulation(RequestRing, PARAMS).dut.ring
        self.dut, self.ring = simulation(RequestRing, PARAMS).dut, ring
        ctx.set(ring.base, BASE)
        ctx.set(ring.size, self.size)
        await ctx.tick()
        ctx.set(ring.enabled, 1)
        await ctx.tick()
        await ctx.tick()

    def feed(self, run: Run, _cycle: int) -> dict[str, list]:
        places = 1 << self.size
        self.halted = self.ctx.get(self.dut.halted)
        taken = len(run.payloads["o"])
        assert self.ctx.get(self.ring.unit_index) == taken % places
        if self.written < COUNT and self.written - taken < places - 1 and self.rng.random() < 0.3:
            self.memory[self.written % places] = self.records[self.written]
            self.written += 1
            self.ctx.set(self.ring.host_index, self.written % places)
        self.reads += run.payloads["fetch"][self.seen :]
        self.seen = len(run.payloads["fetch"])
        assert self.seen <= self.written, "a read behind the tail"
        assert self.seen - taken <= RECORDS or self.halted
        if not self.reads or self.rng.random() < 0.5:
            return {}
        place, rest = divmod(self.reads.popleft() - BASE, RECORD_BYTES)
        assert (place, rest) == (self.read % places, 0)
        self.read += 1
        record = self.memory[place]
        words = [record >> 32 * n & 0xFFFFFFFF for n in range(RECORD_BYTES // 4)]
        return {"fill": [{"words": words, "error": self.read - 1 == self.bad}]}


def run_host(host: Host, seed: int, **options) -> Run:
    return run_streams(
        simulation(RequestRing, PARAMS),
        {"fill": []},
        ["fetch", "o"],
        feed=host.feed,
        prepare=host.start,
        seed=seed,
        **options,
    )


def values(run: Run) -> list[int]:
    return [record.as_bits() for record in run.payloads["o"]]


@pytest.mark.parametrize("stalls", [{}, {"o": 0.95}, {"fetch": 0.9}])
@pytest.mark.parametrize("size", [1, 3, 15])
@pytest.mark.parametrize("seed", range(2))
def test_records_come_in_order(seed: int, size: int, stalls: dict) -> None:
    host = Host(seed, size)
    run = run_host(host, seed, stalls=stalls, quiet=300)
    assert values(run) == host.records
    assert not host.halted


@pytest.mark.parametrize("seed", range(3))
def test_a_record_that_cannot_be_read_halts_the_ring(seed: int) -> None:
    """Those in front of it go on; it and those behind it do not."""
    host = Host(seed, 3, bad=20 + seed)
    run = run_host(host, seed, quiet=300)
    assert values(run) == host.records[: host.bad]
    assert host.halted
    assert len(run.payloads["fetch"]) <= host.bad + 1 + RECORDS


def test_only_the_first_record_that_cannot_be_read_is_a_fault() -> None:
    sim = simulation(RequestRing, PARAMS)
    dut = sim.dut

    async def drive(ctx) -> None:
        ctx.set(dut.ring.size, 3)
        ctx.set(dut.ring.enabled, 1)
        ctx.set(dut.fetch.ready, 1)
        await ctx.tick()
        ctx.set(dut.ring.host_index, 3)
        await ctx.tick().repeat(10)
        ctx.set(dut.fill.valid, 1)
        for error, code in ((0, "NONE"), (1, "REQUEST_RING"), (1, "NONE")):
            ctx.set(dut.fill.p.error, error)
            assert ctx.get(dut.ring.fault.code) is HostError[code]
            if error and code != "NONE":
                assert ctx.get(dut.ring.fault.value) == 1
            await ctx.tick()
        assert ctx.get(dut.halted)
        assert ctx.get(dut.o.valid)

    sim.run(drive)


def test_rate() -> None:
    """A record every two clocks."""
    words = [0] * (RECORD_BYTES // 4)
    answered = iter(range(1 << 20))

    def feed(run: Run, _cycle: int) -> dict[str, list]:
        new = len(run.payloads["fetch"]) - len(run.taken["fill"])
        return {"fill": [{"words": [next(answered), *words[1:]], "error": 0}] * new}

    async def prepare(ctx) -> None:
        ring = simulation(RequestRing, PARAMS).dut.ring
        ctx.set(ring.size, 15)
        ctx.set(ring.enabled, 1)
        ctx.set(ring.host_index, COUNT)
        await ctx.tick()

    sim = simulation(RequestRing, PARAMS)
    run = run_streams(sim, {"fill": []}, ["fetch", "o"], feed=feed, prepare=prepare, stall=0.0)
    clocks = run.cycles["o"]
    assert len(clocks) == COUNT
    assert clocks[-1] - clocks[0] == 2 * (COUNT - 1)
    assert run.offered["o"][0] - run.taken["fill"][0] == 1


def test_a_new_ring_begins_when_the_records_of_the_old_one_are_taken() -> None:
    """The read that waits when the ring ends is one of the old ring, although its base changes."""
    sim = simulation(RequestRing, PARAMS)
    dut, layout = sim.dut, record_layout(PARAMS)

    async def drive(ctx) -> None:
        ring = dut.ring

        async def answer(number: int) -> None:
            words = [number] + [0] * (RECORD_BYTES // 4 - 1)
            ctx.set(dut.fill.payload, {"words": words, "error": 0})
            ctx.set(dut.fill.valid, 1)
            await ctx.tick()
            ctx.set(dut.fill.valid, 0)

        ctx.set(ring.base, BASE)
        ctx.set(ring.size, 2)
        ctx.set(ring.enabled, 1)
        await ctx.tick()
        ctx.set(ring.host_index, 3)
        await ctx.tick().repeat(5)
        assert ctx.get(dut.fetch.valid)
        ctx.set(ring.enabled, 0)
        await ctx.tick()
        ctx.set(ring.base, 2 * BASE)
        ctx.set(ring.host_index, 0)
        ctx.set(ring.size, 3)
        await ctx.tick()
        ctx.set(ring.enabled, 1)
        ctx.set(ring.host_index, 1)
        await ctx.tick().repeat(5)
        assert ctx.get(ring.busy)
        assert ctx.get(dut.fetch.payload) == BASE
        ctx.set(dut.fetch.ready, 1)
        await ctx.tick().repeat(5)
        assert not ctx.get(dut.fetch.valid)
        await answer(7)
        assert ctx.get(dut.o.valid)
        ctx.set(dut.o.ready, 1)
        await ctx.tick()
        ctx.set(dut.o.ready, 0)
        ctx.set(dut.fetch.ready, 0)
        await ctx.tick().repeat(5)
        assert ctx.get(ring.unit_index) == 0
        assert ctx.get(dut.fetch.valid)
        assert ctx.get(dut.fetch.payload) == 2 * BASE
        ctx.set(dut.fetch.ready, 1)
        await ctx.tick()
        await answer(9)
        assert ctx.get(dut.o.valid)
        assert ctx.get(dut.o.payload).as_bits() == layout.from_bits(9).as_bits()

    sim.run(drive)
