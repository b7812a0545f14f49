"""Write port: lines by AXI4, of any width; answers in any order."""

import random

import pytest

from hw.axi.write_port import WritePort
from hw.layouts.host import COMPLETION_BYTES, Completion
from hw.params import TmaParams
from tests.hw.axi.slave import Slave
from tests.hw.axi.test_read_port import WIDTHS, params_of
from tests.hw.simulate import Run, run_streams, simulation

COUNT = 60


class Writer:
    """Writes lines with free tags."""

    def __init__(self, params: TmaParams, seed: int, fails: float) -> None:
        self.params = params
        self.rng = random.Random(seed)
        self.slave = Slave(params, seed, fails)
        self.lines: dict[int, dict] = {}  # in flight, by tag
        self.expected: dict[int, int] = {}  # bytes of memory
        self.sent = self.acked = 0

    def feed(self, run: Run, _cycle: int) -> dict[str, list]:
        found: dict[str, list] = self.slave.feed(run)
        for ack in run.payloads["gnic_ack"][self.acked :]:
            del self.lines[ack.tag]
            writes = [write for write in self.slave.writes if write.number == ack.tag]
            assert ack.error == (writes[-1].resps[0] >= 2)
            assert ack.decode == (writes[-1].resps[0] == 3)
            self.acked += 1
        found["gnic_write"] = self._line()
        return found

    def _line(self) -> list[dict]:
        free = [tag for tag in range(self.params.tags) if tag not in self.lines]
        if self.sent == COUNT or not free:
            return []
        tag, size = self.rng.choice(free), self.params.line_bytes
        in_flight = {line["line"] for line in self.lines.values()}
        while (number := self.rng.randrange(64)) in in_flight:  # two writes are not ordered
            pass
        line = {
            "tag": tag,
            "line": number,
            "attributes": {"cache_policy": number * 3},
            "strobe": self.rng.choice(((1 << size) - 1, self.rng.getrandbits(size))),
            "data": self.rng.getrandbits(8 * size),
        }
        for at in range(size):
            if line["strobe"] >> at & 1:
                self.expected[number * size + at] = line["data"] >> 8 * at & 0xFF
        self.lines[tag] = line
        self.sent += 1
        return [line]


def write(params: TmaParams, seed: int, *, fails: float = 0.0,
          **options) -> tuple[Writer, Run]:  # fmt: skip
    writer = Writer(params, seed, fails)
    inputs: dict[str, list] = {"gnic_write": [], "b": []}
    outputs = ["gnic_ack", "aw", "w"]
    run = run_streams(simulation(WritePort, params), inputs, outputs, feed=writer.feed, seed=seed,
                      **options)  # fmt: skip
    return writer, run


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("line_bytes", "bits"), WIDTHS)
def test_memory_gets_the_bytes(line_bytes: int, bits: int, seed: int) -> None:
    writer, run = write(params_of(line_bytes, bits), seed, fails=0.1)
    assert writer.acked == COUNT
    assert writer.slave.memory == writer.expected
    for aw in run.payloads["aw"]:
        assert aw.user.cache_policy == aw.addr // line_bytes * 3


@pytest.mark.parametrize(("line_bytes", "bits"), [(64, 64), (64, 512), (64, 1024)])
def test_a_beat_a_clock(line_bytes: int, bits: int) -> None:
    _, run = write(params_of(line_bytes, bits), 1, stall=0.0)
    beats = max(1, 8 * line_bytes // bits) * COUNT
    clocks = run.cycles["w"]
    assert clocks[-1] - clocks[0] <= beats + 16 * COUNT // 8
    assert run.offered["aw"][0] - run.taken["gnic_write"][0] == 2
    assert run.offered["w"][0] - run.taken["gnic_write"][0] == 2


class CompletionWriter(Writer):
    """Also writes completion records, each to a place of its own behind the lines."""

    def __init__(self, params: TmaParams, seed: int, fails: float) -> None:
        super().__init__(params, seed, fails)
        self.answers: list[bool] = []
        self.records = 0

    def feed(self, run: Run, cycle: int) -> dict[str, list]:
        found = super().feed(run, cycle)
        if self.records == COUNT or self.rng.random() < 0.5:
            return found
        address = 64 * self.params.line_bytes // COMPLETION_BYTES + self.records
        bits = self.rng.getrandbits(8 * COMPLETION_BYTES)
        for at in range(COMPLETION_BYTES):
            self.expected[address * COMPLETION_BYTES + at] = bits >> 8 * at & 0xFF
        self.records += 1
        found["completion_write"] = [{"address": address, "record": Completion.from_bits(bits)}]
        return found


@pytest.mark.parametrize(("line_bytes", "bits"), WIDTHS)
def test_completion_records(line_bytes: int, bits: int) -> None:
    """Only the bytes of each record are written; its answers come in order, with their errors."""
    params = params_of(line_bytes, bits, host=True, request_id_bits=4)
    writer = CompletionWriter(params, 1, fails=0.2)
    inputs: dict[str, list] = {"gnic_write": [], "completion_write": [], "b": []}
    outputs = ["gnic_ack", "completion_ack", "aw", "w"]
    run = run_streams(simulation(WritePort, params), inputs, outputs, feed=writer.feed, seed=1)
    assert (writer.acked, writer.records) == (COUNT, COUNT)
    assert writer.slave.memory == writer.expected
    writes = [write for write in writer.slave.writes if write.number == params.tags]
    assert len(writes) == COUNT
    errors = [write.resps[0] >= 2 for write in writes]
    assert [bool(ack.error) for ack in run.payloads["completion_ack"]] == errors
    assert any(errors)
