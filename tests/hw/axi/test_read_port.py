"""Read port: lines and tensor maps by AXI4, of any width, with beats of all reads mixed."""

import random

import pytest

from hw.axi.read_port import ReadPort
from hw.params import TmaParams
from tests.hw.axi.slave import Slave
from tests.hw.simulate import Run, run_streams, simulation

COUNT = 60
WIDTHS = [(line, bits) for line in (16, 64, 128) for bits in (64, 128, 512, 1024)]


def params_of(line_bytes: int, bits: int, **options) -> TmaParams:
    return TmaParams(
        line_bytes=line_bytes, address_bits=40, tags=8, requests_in_flight=4, axi_data_bits=bits,
        threads=4, streams=1, axi_cache=0b0011, axi_prot=0b001, **options,
    )  # fmt: skip


class Reader:
    """Asks for lines with free tags, and for tensor maps; checks what comes."""

    def __init__(self, params: TmaParams, seed: int, fails: float) -> None:
        self.params = params
        self.rng = random.Random(seed)
        self.slave = Slave(params, seed, fails)
        self.lines: dict[int, int] = {}  # in flight, by id: of loads, and of reductions
        self.asked = self.prefetched = self.answered = self.reduced = 0
        self.reductions = COUNT // 2  # that are not asked for
        self.maps = [self.rng.randrange(1 << 34) * 64 for _ in range(20)]

    def feed(self, run: Run, _cycle: int) -> dict[str, list]:
        for answer in run.payloads["gnic_response"][self.answered :]:
            self._check(answer.tag, answer)
            self.answered += 1
        for answer in run.payloads["reduced_line"][self.reduced :]:
            self._check(self.params.tags + answer.number, answer)
            self.reduced += 1
        requests = {"gnic_request": self._request(), "reduction_read": self._reduction()}
        return requests | self.slave.feed(run)

    def _check(self, number: int, answer) -> None:
        """Compare a line with that which was read."""
        address, size = self.lines.pop(number), self.params.line_bytes
        (read,) = [read for read in self.slave.reads if read.number == number]
        assert read.address == address
        failed = any(resp >= 2 for resp in read.resps)
        assert answer.error == failed
        assert answer.decode == (3 in read.resps)
        if not failed:
            assert answer.data == self.slave.read(address, size)
        self.slave.reads.remove(read)

    def _line(self) -> int:
        return self.rng.randrange(1 << 40) // self.params.line_bytes

    def _reduction(self) -> list[dict]:
        tags = self.params.tags
        free = [n for n in range(self.params.axi_reductions) if n + tags not in self.lines]
        if not self.reductions or not free or self.rng.random() < 0.5:
            return []
        self.reductions -= 1
        number, line = self.rng.choice(free), self._line()
        self.lines[number + tags] = line * self.params.line_bytes
        return [{"number": number, "line": line, "attributes": {"cache_policy": line * 3}}]

    def _request(self) -> list[dict]:
        free = [tag for tag in range(self.params.tags) if tag not in self.lines]
        if self.asked == COUNT or not free:
            return []
        line = self._line()
        attributes = {"l2_promotion": 2, "cache_policy": line * 3}
        if self.rng.random() < 0.2:
            self.prefetched += 1
            return [{"line": line, "prefetch": 1, "tag": 5, "attributes": attributes}]
        tag = self.rng.choice(free)
        self.lines[tag] = line * self.params.line_bytes
        self.asked += 1
        return [{"line": line, "prefetch": 0, "tag": tag, "attributes": attributes}]


def read(params: TmaParams, seed: int, fails: float = 0.0, **options) -> tuple[Reader, Run]:
    reader = Reader(params, seed, fails)
    inputs = {
        "gnic_request": [],
        "reduction_read": [],
        "descriptor_request": list(reader.maps),
        "r": [],
    }
    outputs = ["gnic_response", "reduced_line", "descriptor_fill", "ar"]
    run = run_streams(simulation(ReadPort, params), inputs, outputs, feed=reader.feed, seed=seed,
                      **options)  # fmt: skip
    return reader, run


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("line_bytes", "bits"), WIDTHS)
def test_lines_and_maps_come_as_they_are_in_memory(line_bytes: int, bits: int, seed: int) -> None:
    params = params_of(line_bytes, bits, axi_prefetch=bool(seed))
    reader, run = read(params, seed, fails=0.1)
    assert reader.answered == COUNT
    assert reader.reduced == COUNT // 2
    assert not reader.lines
    above = 1 << params.axi_line_bits
    maps = [read for read in reader.slave.reads if read.number == above]
    assert [read.address for read in maps] == reader.maps
    assert all(read.size * read.beats == 64 and read.user == 0 for read in maps)
    for read_, fill in zip(maps, run.payloads["descriptor_fill"], strict=True):
        failed = any(resp >= 2 for resp in read_.resps)
        assert fill.error == failed
        assert fill.decode == (3 in read_.resps)
        if not failed:
            words = sum(word << 32 * at for at, word in enumerate(fill.words))
            assert words == reader.slave.read(read_.address, 64)
    prefetches = [read for read in reader.slave.reads if read.number == above + 1]
    assert len(prefetches) == (reader.prefetched if seed else 0)
    assert reader.prefetched > 5
    assert all(read.user == read.address // line_bytes * 3 for read in prefetches)


@pytest.mark.parametrize(("line_bytes", "bits"), [(64, 64), (64, 512), (64, 1024)])
def test_a_beat_a_clock(line_bytes: int, bits: int) -> None:
    reader, run = read(params_of(line_bytes, bits), 1, stall=0.0)
    lines = COUNT + reader.reduced
    beats = max(1, 8 * line_bytes // bits) * lines + max(1, 512 // bits) * len(reader.maps)
    clocks = run.cycles["gnic_response"]
    assert clocks[-1] - clocks[0] < 1.2 * beats + 4 * len(reader.maps) + reader.prefetched
    assert run.offered["ar"][0] - run.taken["descriptor_request"][0] == 1
