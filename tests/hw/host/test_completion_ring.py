"""Completion ring: a record of each event that gives one, none over another that was not read."""

import random
from collections import deque
from collections.abc import Callable

import pytest

from hw.host.completion_ring import CompletionRing
from hw.layouts.barriers import BarrierFault
from hw.layouts.host import COMPLETION_BYTES, Completion, CompletionKind, HostError
from hw.layouts.isa import ErrorCode
from hw.params import HOST_ID_BITS, PRESETS
from tests.hw.simulate import Run, run_streams, simulation

PARAMS = PRESETS["host"]
BASE = 0x1230
COUNT = 30
FAULTS = [fault for fault in BarrierFault if fault is not BarrierFault.NONE]


def events(rng: random.Random) -> dict[str, list[tuple[dict, dict | None]]]:
    """Return payloads of each input, each with the record that it gives, or None."""

    def tag() -> tuple[int, int, bool]:
        number, notify = rng.getrandbits(HOST_ID_BITS), rng.random() < 0.5
        return number | notify << HOST_ID_BITS, number, notify

    found: dict[str, list] = {}
    found["barrier_result"] = []
    for _ in range(2 * COUNT):
        whole, number, notify = tag()
        fault = rng.choice(FAULTS) if rng.random() < 0.2 else BarrierFault.NONE
        waits = fault is BarrierFault.NONE and rng.random() < 0.3
        done, state = rng.getrandbits(1), rng.getrandbits(64)
        result = {"tag": whole, "done": done, "waits": waits, "fault": fault, "state": state}
        record = {
            "kind": CompletionKind.BARRIER,
            "request_id": number,
            "code": fault.value,
            "detail": done,
            "value": state,
        }
        gives = (notify and not waits) or fault is not BarrierFault.NONE
        found["barrier_result"].append((result, record if gives else None))
    found["barrier_wake"] = []
    for _ in range(2 * COUNT):
        whole, number, notify = tag()
        fault = BarrierFault.LOCKED if rng.random() < 0.2 else BarrierFault.NONE
        done = rng.getrandbits(1)
        record = {
            "kind": CompletionKind.BARRIER,
            "request_id": number,
            "code": fault.value,
            "detail": done,
        }
        gives = notify or fault is not BarrierFault.NONE
        found["barrier_wake"].append(
            ({"tag": whole, "done": done, "fault": fault}, record if gives else None)
        )
    found["group_result"] = []
    for _ in range(COUNT):
        number = rng.getrandbits(PARAMS.request_id_bits)
        group = {"thread": rng.getrandbits(PARAMS.thread_bits), "request_id": number}
        found["group_result"].append((group, {"kind": CompletionKind.GROUP, "request_id": number}))
    found["error"] = []
    for _ in range(COUNT):
        number, code = rng.getrandbits(PARAMS.request_id_bits), rng.choice(list(ErrorCode))
        dim, value = rng.getrandbits(3), rng.getrandbits(64)
        record = {"kind": CompletionKind.ERROR, "request_id": number, "code": code.value}
        error = {"request_id": number, "code": code, "dim": dim, "value": value}
        found["error"].append((error, record | {"detail": dim, "value": value}))
    found["refused"] = []
    for _ in range(COUNT):
        record = {
            "kind": CompletionKind.REFUSED,
            "request_id": rng.getrandbits(16),
            "code": HostError.OPERATION.value,
            "value": rng.getrandbits(8),
        }
        found["refused"].append((record, record))
    return found


class Host:
    """A host that reads a ring by the phase of each record, and the memory with the ring."""

    def __init__(self, seed: int, size: int, reads: float = 0.3, fails: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.places = 1 << size
        self.size, self.reads, self.fails = size, reads, fails
        self.memory = [0] * self.places
        self.writes: deque = deque()
        self.got: list[int] = []  # records, without their phases
        self.seen = self.answered = self.lost = 0

    def has_read(self, given: dict) -> Callable[[Run], bool]:
        """Return what ends a run when all records of ``given`` were read, and nothing goes on."""
        count = sum(map(len, expected(given).values()))
        left = iter(range(100))
        return lambda _run: len(self.got) >= count and next(left, None) is None

    async def start(self, ctx) -> None:
        """Set the ring up; the simulation begins here."""
        self.ctx = ctx
        self.ring = simulation(CompletionRing, PARAMS).dut.ring
        ctx.set(self.ring.base, BASE * COMPLETION_BYTES)
        ctx.set(self.ring.size, self.size)
        ctx.set(self.ring.enabled, 1)
        await ctx.tick().repeat(2)

    def feed(self, run: Run, _cycle: int) -> dict[str, list]:
        new = run.payloads["write"][self.seen :]
        self.seen += len(new)
        self.writes += [(write.address - BASE, write.record.as_bits()) for write in new]
        answered = len(run.taken["ack"])
        assert self.ctx.get(self.ring.unit_index) == answered % self.places
        self._read(answered)
        if not self.writes or self.rng.random() < 0.6:
            return {}
        place, record = self.writes.popleft()
        assert place == self.answered % self.places, "a record in a place of another"
        assert self.answered - len(self.got) < self.places - 1, "a record over one not read"
        phase = 1 - self.answered // self.places % 2
        assert Completion.from_bits(record).phase == phase
        error = self.rng.random() < self.fails
        self.memory[place] = record if not error else phase << 120
        self.lost += error
        self.answered += 1
        return {"ack": [{"error": error}]}

    def _read(self, answered: int) -> None:
        """Read the next record, if its phase says that it is there."""
        if self.rng.random() >= self.reads:
            return
        number = len(self.got)
        record = self.memory[number % self.places]
        if record >> 120 == 1 - number // self.places % 2 and number < self.answered:
            self.got.append(record & ~(0xFF << 120))
            self.ctx.set(self.ring.host_index, len(self.got) % self.places)
        else:
            assert number >= answered, "the index of a record that is not there"


def drive(seed: int, host: Host, **options) -> tuple[dict, Run]:
    given = events(random.Random(seed))
    inputs: dict[str, list] = {name: [p for p, _ in items] for name, items in given.items()}
    run = run_streams(
        simulation(CompletionRing, PARAMS),
        {**inputs, "ack": []},
        ["write"],
        feed=host.feed,
        prepare=host.start,
        seed=seed,
        **{"quiet": 5000, **options},
    )
    return given, run


def expected(given: dict) -> dict[str, list[int]]:
    return {
        name: [Completion.const(record).as_value().value for _, record in items if record]
        for name, items in given.items()
    }


@pytest.mark.parametrize("reads", [0.05, 1.0])
@pytest.mark.parametrize("size", [1, 3, 15])
@pytest.mark.parametrize("seed", range(2))
def test_each_event_gives_its_record_in_order(seed: int, size: int, reads: float) -> None:
    host = Host(seed, size, reads)
    given, _ = drive(seed, host, until=host.has_read(events(random.Random(seed))))
    wanted = expected(given)
    assert sorted(host.got) == sorted(record for records in wanted.values() for record in records)
    for records in wanted.values():
        left = iter(host.got)
        assert all(record in left for record in records), "records of an input out of order"


def test_inputs_wait_while_nobody_reads() -> None:
    left = iter(range(600))
    host = Host(1, 2, reads=0.0)
    _, run = drive(1, host, until=lambda _: next(left, None) is None)
    assert len(run.payloads["write"]) == 3  # a ring of 4 records is full with 3
    taken = {name: len(clocks) for name, clocks in run.taken.items()}
    assert taken["refused"] <= 3


def test_records_that_cannot_be_written_are_lost() -> None:
    """Those behind them are not."""
    host = Host(1, 3, reads=1.0, fails=0.3)
    given, _ = drive(1, host, until=host.has_read(events(random.Random(1))))
    count = sum(map(len, expected(given).values()))
    assert len(host.got) == host.answered == count
    assert host.lost == host.got.count(0) > 5


def test_a_record_that_cannot_be_written_is_a_fault() -> None:
    sim = simulation(CompletionRing, PARAMS)
    dut = sim.dut

    async def drive_ring(ctx) -> None:
        ctx.set(dut.ring.size, 3)
        ctx.set(dut.ring.enabled, 1)
        ctx.set(dut.write.ready, 1)
        ctx.set(dut.refused.valid, 1)
        await ctx.tick().until(dut.write.valid)
        await ctx.tick().until(dut.write.valid)
        ctx.set(dut.refused.valid, 0)
        await ctx.tick()
        ctx.set(dut.ack.valid, 1)
        for index, (error, code) in enumerate(((0, "NONE"), (1, "COMPLETION_RING"))):
            ctx.set(dut.ack.p.error, error)
            assert ctx.get(dut.completed)
            assert ctx.get(dut.ring.fault.code) is HostError[code]
            assert ctx.get(dut.ring.fault.value) == index
            assert ctx.get(dut.ring.busy)
            await ctx.tick()
        ctx.set(dut.ack.valid, 0)
        assert not ctx.get(dut.completed)
        assert not ctx.get(dut.ring.busy)
        assert ctx.get(dut.ring.unit_index) == 2

    sim.run(drive_ring)


def test_rate() -> None:
    """A record every two clocks."""
    host = Host(1, 15, reads=0.0)
    _, run = drive(1, host, stall=0.0, quiet=100)
    clocks = run.cycles["write"]
    assert clocks[-1] - clocks[0] == 2 * (len(clocks) - 1)


def test_a_new_ring_begins_at_0_with_phase_1() -> None:
    """Events wait while the ring is not enabled."""
    sim = simulation(CompletionRing, PARAMS)
    dut = sim.dut

    async def drive_ring(ctx) -> None:
        ring = dut.ring
        ctx.set(dut.write.ready, 1)
        ctx.set(dut.refused.valid, 1)
        for base in 0x100, 0x2000:
            ctx.set(ring.base, base)
            ctx.set(ring.size, 2)
            await ctx.tick().repeat(4)
            assert not ctx.get(dut.write.valid)
            ctx.set(ring.host_index, 0)
            ctx.set(ring.enabled, 1)
            await ctx.tick().until(dut.write.valid)
            write = ctx.get(dut.write.payload)
            assert (write.address, write.record.phase) == (base // COMPLETION_BYTES, 1)
            ctx.set(ring.enabled, 0)
            await ctx.tick()
            assert ctx.get(ring.busy)
            ctx.set(ring.base, 0)
            ctx.set(ring.enabled, 1)  # too early: the record of before is not in memory
            await ctx.tick().repeat(4)
            assert not ctx.get(dut.write.valid)
            ctx.set(ring.enabled, 0)
            ctx.set(dut.ack.valid, 1)
            await ctx.tick()
            ctx.set(dut.ack.valid, 0)
            await ctx.tick()
            assert not ctx.get(ring.busy)

    sim.run(drive_ring)
