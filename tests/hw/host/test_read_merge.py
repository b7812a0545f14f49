"""Read merge: each reader gets the answers to its reads, in order."""

import random
from collections import deque
from collections.abc import Callable

import pytest

from hw.host.read_merge import READS, ReadMerge
from hw.params import TmaParams
from tests.hw.simulate import Run, run_streams

COUNT = 60
PARAMS = TmaParams(axi_data_bits=64)


class Ports(ReadMerge):
    """Read merge whose ports have a name each, for the simulation."""

    def __getattr__(self, name: str):
        kind, _, number = name.rpartition("_")
        if kind in ("request", "fill"):
            return getattr(self, kind)[int(number)]
        raise AttributeError(name)


class Memory:
    """Answers reads in order."""

    def __init__(self, seed: int, share: float = 0.5) -> None:
        self.rng = random.Random(seed)
        self.share = share
        self.reads: deque[int] = deque()
        self.seen = 0

    def feed(self, run: Run, _cycle: int) -> dict[str, list]:
        self.reads += run.payloads["merged_request"][self.seen :]
        self.seen = len(run.payloads["merged_request"])
        if not self.reads or self.rng.random() < self.share:
            return {}
        return {"merged_fill": [answer(self.reads.popleft())]}


def answer(address: int) -> dict:
    """Return what is read at an address."""
    return {
        "words": [address + n & 0xFFFFFFFF for n in range(16)],
        "error": address // 64 % 5 == 0,
        "decode": address // 64 % 10 == 0,
    }


def read(seed: int, reads: list[list[int]], share: float = 0.5, **options) -> Run:
    inputs = {"request_0": reads[0], "request_1": reads[1], "merged_fill": []}
    outputs = ["fill_0", "fill_1", "merged_request"]
    feed = Memory(seed, share).feed
    return run_streams(Ports(PARAMS), inputs, outputs, feed=feed, seed=seed, **options)


def clocks(count: int) -> Callable[[Run], bool]:
    """Return what ends a run after some clocks."""
    left = iter(range(count))
    return lambda _run: next(left, None) is None


def addresses(seed: int, reader: int) -> list[int]:
    rng = random.Random(seed)
    return [128 * rng.randrange(1 << 57) + 64 * reader for _ in range(COUNT)]


@pytest.mark.parametrize("stalls", [{}, {"fill_0": 0.9}, {"request_1": 0.9}])
@pytest.mark.parametrize("seed", range(2))
def test_each_reader_gets_its_answers(seed: int, stalls: dict) -> None:
    reads = [addresses(seed, reader) for reader in range(2)]
    run = read(seed, reads, stalls=stalls)
    for number in range(2):
        asked = [at for at in run.payloads["merged_request"] if at // 64 % 2 == number]
        assert asked == reads[number]
        got = [
            (list(fill.words), fill.error, fill.decode) for fill in run.payloads[f"fill_{number}"]
        ]
        want = [answer(at) for at in reads[number]]
        assert got == [(fill["words"], fill["error"], fill["decode"]) for fill in want]


def test_readers_take_turns() -> None:
    run = read(1, [addresses(1, reader) for reader in range(2)], stall=0.0, share=0.0)
    assert [at // 64 % 2 for at in run.payloads["merged_request"]] == [0, 1] * COUNT


def test_reads_in_flight() -> None:
    """Reads wait while their answers are not taken, and no answer of the other reader passes."""
    reads = [addresses(1, reader) for reader in range(2)]
    run = read(1, [reads[0], []], share=1.0, until=clocks(400))
    assert len(run.payloads["merged_request"]) == READS
    run = read(1, reads, stall=0.0, stalls={"fill_1": 1.0}, share=0.0, until=clocks(400))
    assert len(run.payloads["fill_0"]) == 1
