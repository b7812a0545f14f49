"""Lite port: every read and write is one access, in turn, and its answer comes back."""

import random

import pytest

from hw.host.lite_port import LitePort
from hw.layouts.axi import Response
from hw.layouts.host import BUS_ADDRESS_BITS, BUS_BITS
from tests.hw.simulate import Run, run_streams, simulation

COUNT = 60


class Master:
    """Addresses and data of reads and writes; answers each access, some with an error."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.reads = [rng.getrandbits(BUS_ADDRESS_BITS) for _ in range(COUNT)]
        self.writes = [
            (rng.getrandbits(BUS_ADDRESS_BITS), rng.getrandbits(BUS_BITS), rng.getrandbits(4))
            for _ in range(COUNT)
        ]
        self.answers: list[dict] = []

    def inputs(self) -> dict[str, list]:
        """Return what is offered at the inputs."""
        return {
            "ar": [{"addr": address, "prot": self.rng.getrandbits(3)} for address in self.reads],
            "aw": [{"addr": address, "prot": 0} for address, _, _ in self.writes],
            "w": [{"data": data, "strb": strobe} for _, data, strobe in self.writes],
            "answer": [],
        }

    def feed(self, run: Run, _cycle: int) -> dict[str, list]:
        accesses = run.payloads["access"]
        assert len(accesses) - len(self.answers) <= 1, "an access before the answer to the last"
        if len(accesses) == len(self.answers):
            return {}
        answer = {"error": self.rng.random() < 0.3, "data": self.rng.getrandbits(BUS_BITS)}
        self.answers.append(answer)
        return {"answer": [answer]}


def drive(seed: int, inputs=None, **options) -> tuple[Master, Run]:
    master = Master(seed)
    run = run_streams(
        simulation(LitePort),
        {**master.inputs(), **(inputs or {})},
        ["access", "b", "r"],
        feed=master.feed,
        seed=seed,
        **options,
    )
    return master, run


@pytest.mark.parametrize(
    "stalls", [{}, {"aw": 0.95}, {"w": 0.95}, {"b": 0.95}, {"r": 0.95, "ar": 0.0}, {"answer": 0.9}]
)
@pytest.mark.parametrize("seed", range(2))
def test_each_access_is_done_once_and_answered(seed: int, stalls: dict) -> None:
    master, run = drive(seed, stalls=stalls)
    accesses = run.payloads["access"]
    reads = [access.address for access in accesses if not access.is_write]
    writes = [(a.address, a.data, a.strobe) for a in accesses if a.is_write]
    assert reads == master.reads
    assert writes == master.writes
    assert len(master.answers) == 2 * COUNT
    pairs = list(zip(accesses, master.answers, strict=True))
    resp = {False: Response.OKAY, True: Response.SLVERR}
    assert [(r.data, r.resp) for r in run.payloads["r"]] == [
        (answer["data"], resp[answer["error"]]) for access, answer in pairs if not access.is_write
    ]
    assert [b.resp for b in run.payloads["b"]] == [
        resp[answer["error"]] for access, answer in pairs if access.is_write
    ]


def test_reads_and_writes_take_turns() -> None:
    _, run = drive(1, stall=0.0)
    kinds = [access.is_write for access in run.payloads["access"]]
    assert kinds in ([0, 1] * COUNT, [1, 0] * COUNT)


@pytest.mark.parametrize("missing", ["aw", "w"])
def test_a_write_waits_for_both_of_its_parts(missing: str) -> None:
    """Reads go on meanwhile."""
    clocks = iter(range(2000))
    _, run = drive(1, inputs={missing: []}, until=lambda _: next(clocks, None) is None)
    assert len(run.payloads["r"]) == COUNT
    assert not run.payloads["b"]
    assert not any(access.is_write for access in run.payloads["access"])


def test_rate_and_latency() -> None:
    _, run = drive(1, inputs={"aw": [], "w": []}, stall=0.0)
    clocks = run.cycles["access"]
    assert run.offered["access"][0] - run.taken["ar"][0] == 2
    assert run.offered["r"][0] - run.taken["answer"][0] == 1
    assert clocks[-1] - clocks[0] == 3 * (COUNT - 1)
