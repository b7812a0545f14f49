"""Shared memory: beats, words of barriers and accesses of the host, compared with a model.

The model does what each port does in the clock in which the port does it, so that all of shared
memory is compared, whatever ports write the same words.
"""

import random
from dataclasses import replace

import pytest

from hw.host.shared_memory import SharedMemory
from hw.layouts.host import BUS_BITS
from hw.params import PRESETS, TmaParams
from tests.hw.simulate import Run, run_streams, simulation

PARAMS = {
    line: replace(PRESETS["host"], line_bytes=line, smem_bytes=2048, axi_data_bits=64)
    for line in (16, 64)
}
CLOCKS = 1500
ROWS = 4
"""Beats that are used, from the first and from the last one on: ports meet in them."""


class Ports:
    """Random accesses at all ports, and what they did, by clock."""

    def __init__(self, params: TmaParams, seed: int, barriers: float) -> None:
        self.params = params
        self.rng = random.Random(seed)
        self.barriers = barriers
        self.rows = params.smem_bytes // params.line_bytes
        self.accesses: list[dict] = []
        self.writes: list[list[dict]] = []
        self.reads: list[list[dict]] = []
        self.barrier_reads: list[int | None] = []
        self.barrier_writes: list[tuple[int, int] | None] = []
        self.barrier_data: list[int] = []

    def beat(self) -> int:
        """Return a beat; some are outside the memory."""
        if self.rng.random() < 0.1:
            return self.rows + self.rng.randrange(3)
        return self.rng.choice((0, self.rows - ROWS)) + self.rng.randrange(ROWS)

    async def prepare(self, ctx) -> None:
        self.ctx = ctx
        self.port = simulation(SharedMemory, self.params).dut.barrier_memory

    def _barrier(self) -> None:
        """Read and write words of barriers: accesses that never wait."""
        ctx, port, rng = self.ctx, self.port, self.rng
        self.barrier_data.append(ctx.get(port.read_data))
        words = self.params.line_bytes // 8
        for enable, address, kept in (
            (port.read_en, port.read_address, self.barrier_reads),
            (port.write_en, port.write_address, self.barrier_writes),
        ):
            is_used = rng.random() < self.barriers
            number = self.beat() * words + rng.randrange(words)
            ctx.set(enable, is_used)
            ctx.set(address, number)
            kept.append(number if is_used else None)
        data = rng.getrandbits(64)
        ctx.set(port.write_data, data)
        if (number := self.barrier_writes[-1]) is not None:
            self.barrier_writes[-1] = number, data

    def feed(self, run: Run, cycle: int) -> dict[str, list]:
        self._barrier()
        rng, lanes = self.rng, self.params.lanes
        if cycle >= CLOCKS:
            return {}
        found: dict[str, list] = {}
        if len(self.accesses) == len(run.payloads["answer"]):
            row = min(self.beat(), self.rows - 1)
            address = row * self.params.line_bytes + 4 * rng.randrange(4 * lanes)
            found["access"] = [
                {
                    "is_write": rng.getrandbits(1),
                    "address": address + rng.randrange(4),
                    "data": rng.getrandbits(BUS_BITS),
                    "strobe": rng.getrandbits(4),
                }
            ]
            self.accesses += found["access"]
        if len(self.writes) == len(run.taken["smem_write"]):
            found["smem_write"] = [
                [
                    {
                        "valid": rng.getrandbits(1),
                        "words": rng.choice((15, rng.getrandbits(4))),
                        "beat": self.beat(),
                        "data": rng.getrandbits(128),
                    }
                    for _ in range(lanes)
                ]
            ]
            self.writes += found["smem_write"]
        if len(self.reads) == len(run.taken["smem_read"]):
            read = [{"valid": 1, "beat": self.beat() % self.rows} for _ in range(lanes)]
            found["smem_read"] = [read]
            self.reads += [read]
        return found


class Model:
    """Bytes of shared memory, which begin as 0, and the clock in which each was written last."""

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self.bytes = bytearray(params.smem_bytes)
        self.written = [-1] * params.smem_bytes

    def write(self, clock: int, address: int, data: bytes) -> None:
        if address < len(self.bytes):
            self.bytes[address : address + len(data)] = data
            self.written[address : address + len(data)] = [clock] * len(data)

    def read(self, clock: int, address: int, count: int, data: int) -> None:
        """Compare what was read, but for words that are written in the same clock."""
        for at in range(address, min(address + count, len(self.bytes))):
            if self.written[at] != clock:
                assert self.bytes[at] == data >> 8 * (at - address) & 0xFF, (clock, at)


def compare(ports: Ports, run: Run) -> None:
    """Compare all that was read with the model."""
    params, model = ports.params, Model(ports.params)
    events: dict[int, dict] = {}
    for name, items in (
        ("smem_write", ports.writes),
        ("smem_read", zip(ports.reads, run.payloads["smem_data"], strict=True)),
        ("access", zip(ports.accesses, run.payloads["answer"], strict=True)),
    ):
        for clock, item in zip(run.taken[name], items, strict=True):
            events.setdefault(clock, {})[name] = item
    for clock in range(len(ports.barrier_reads) - 1):
        event = events.get(clock, {})
        access, answer = event.get("access", (None, None))
        if access is not None:  # it was read in the clock before
            address = access["address"] & ~3
            model.read(clock, address, 4, answer.data)
        if access is not None and access["is_write"]:
            data = access["data"].to_bytes(4, "little")
            for at in range(4):
                if access["strobe"] >> at & 1:
                    model.write(clock, (access["address"] & ~3) + at, data[at : at + 1])
        for lane, piece in enumerate(event.get("smem_write", ())):
            address = piece["beat"] * params.line_bytes + 16 * lane
            data = piece["data"].to_bytes(16, "little")
            for word in range(4):
                if piece["valid"] and piece["words"] >> word & 1:
                    model.write(clock, address + 4 * word, data[4 * word : 4 * word + 4])
        if written := ports.barrier_writes[clock]:
            model.write(clock, 8 * written[0], written[1].to_bytes(8, "little"))
        if (number := ports.barrier_reads[clock]) is not None:
            model.read(clock, 8 * number, 8, ports.barrier_data[clock + 1])
        if "smem_read" in event:
            asked, beat = event["smem_read"]
            for lane, piece in enumerate(asked):
                address = piece["beat"] * params.line_bytes + 16 * lane
                model.read(clock, address, 16, beat.as_bits() >> 128 * lane & (1 << 128) - 1)


def use(params: TmaParams, seed: int, barriers: float, **options) -> tuple[Ports, Run]:
    ports = Ports(params, seed, barriers)
    inputs: dict[str, list] = {"access": [], "smem_write": [], "smem_read": []}
    run = run_streams(
        simulation(SharedMemory, params),
        inputs,
        ["answer", "smem_data"],
        feed=ports.feed,
        prepare=ports.prepare,
        seed=seed,
        **options,
    )
    return ports, run


@pytest.mark.parametrize(("barriers", "stall"), [(0.1, 0.5), (0.5, 0.0), (0.0, 0.0)])
@pytest.mark.parametrize("line_bytes", PARAMS)
def test_all_ports_at_once(line_bytes: int, barriers: float, stall: float) -> None:
    ports, run = use(PARAMS[line_bytes], 1, barriers, stall=stall)
    compare(ports, run)
    counts = {name: len(clocks) for name, clocks in run.taken.items()}
    assert min(counts.values()) > 100, counts
    assert not any(answer.error for answer in run.payloads["answer"])


def test_a_write_of_no_byte_changes_nothing() -> None:
    """The host always gets the word as it was before its write."""
    sim = simulation(SharedMemory, PARAMS[16])
    inputs = {
        "access": [
            {"is_write": is_write, "address": 64, "data": data, "strobe": strobe}
            for is_write, data, strobe in (
                (1, 0x01020304, 15),
                (1, 0x05060708, 0),
                (1, 0x0A0B0C0D, 5),
                (0, 0, 15),
            )
        ]
    }
    run = run_streams(sim, inputs, ["answer"])
    words = [answer.data for answer in run.payloads["answer"][1:]]
    assert words == [0x01020304, 0x01020304, 0x010B030D]


def test_rates() -> None:
    """A beat written and a beat read a clock; an access takes the banks for two clocks."""
    sim = simulation(SharedMemory, PARAMS[64])
    lane = {"valid": 1, "words": 15, "beat": 1, "data": 5}
    beats = {
        "smem_write": [[lane] * 4] * 50,
        "smem_read": [[{"valid": 1, "beat": 2}] * 4] * 50,
    }
    run = run_streams(sim, beats, ["smem_data"], stall=0.0)
    for clocks in run.taken["smem_write"], run.taken["smem_read"], run.cycles["smem_data"]:
        assert clocks[-1] - clocks[0] == 49
    assert run.cycles["smem_data"][0] - run.taken["smem_read"][0] == 1
    access = {"is_write": 1, "address": 0, "data": 0, "strobe": 15}
    run = run_streams(sim, {**beats, "access": [access]}, ["smem_data", "answer"], stall=0.0)
    assert run.offered["answer"] == [2]
    assert run.taken["smem_write"][:2] == [2, 3]
    assert run.taken["smem_read"][:2] == [1, 2]


def test_beats_wait_until_they_are_taken() -> None:
    left = iter(range(100))
    sim = simulation(SharedMemory, PARAMS[16])
    reads = [[{"valid": 1, "beat": beat}] for beat in range(10)]
    run = run_streams(sim, {"smem_read": reads}, [], until=lambda _: next(left, None) is None)
    assert len(run.taken["smem_read"]) == 2
