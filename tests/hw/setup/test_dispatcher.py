"""Dispatcher: jobs go to loads or stores, and requests are released from their groups once."""

import random
from dataclasses import dataclass
from itertools import pairwise

import pytest

from hw.layouts.isa import ErrorCode
from hw.params import TmaParams
from hw.setup.dispatcher import Dispatcher
from tests.hw.simulate import Run, run_streams

PARAMS = TmaParams(threads=2048)
OUTPUTS = ["load", "store", "error", "released"]


@dataclass(frozen=True)
class Request:
    """A request with its jobs, or a refused request."""

    number: int
    store: bool = False
    joined: bool = True
    jobs: int = 1

    @property
    def group(self) -> dict[str, int]:
        index = self.number % PARAMS.bulk_groups
        return {"joined": self.joined, "thread": self.number, "index": index}

    @property
    def is_released(self) -> bool:
        """True if the first job releases the request from its group; a store stays in its group."""
        return self.joined and not self.store

    def payloads(self) -> list[dict]:
        return [
            {
                "first": job == 0,
                "last": job == self.jobs - 1,
                "group": self.group,
                "transfer": {"request_id": self.number, "mbarrier": 8, "pieces": 9},
                "walk": {"store": self.store, "start": job},
            }
            for job in range(self.jobs)
        ]

    def record(self) -> dict:
        return {
            "request_id": self.number,
            "code": ErrorCode.COORD_NEG,
            "dim": self.number % 5,
            "value": 3 * self.number,
            "group": self.group,
        }


def dispatch(requests: list[Request], refused: list[Request], **options) -> Run:
    jobs = [job for request in requests for job in request.payloads()]
    inputs = {"job": jobs, "refusal": [request.record() for request in refused]}
    return run_streams(Dispatcher(PARAMS), inputs, OUTPUTS, **options)


def jobs_of(run: Run, name: str) -> list[tuple[int, int]]:
    for job in run.payloads[name]:
        assert job.walk.store == (name == "store")
        assert (job.transfer.mbarrier, job.transfer.pieces) == (8, 9)
        assert job.group.thread == job.transfer.request_id
    return [(job.transfer.request_id, job.walk.start) for job in run.payloads[name]]


@pytest.mark.parametrize(
    ("seed", "stall", "stalls"),
    [
        (0, 0.5, {}),
        (1, 0, {}),
        (2, 0.2, {"released": 0.9}),
        (3, 0.2, {"load": 0.9, "error": 0.5}),
        (4, 0.2, {"store": 0.9}),
        (5, 0.1, {"error": 0.95}),
    ],
)
def test_jobs_and_released_groups(seed, stall, stalls):
    rng = random.Random(seed)
    requests = [
        Request(number, rng.random() < 0.5, rng.random() < 0.7, rng.choice((1, 1, 2, 5)))
        for number in range(60)
    ]
    refused = [
        Request(1000 + number, rng.random() < 0.5, rng.random() < 0.7) for number in range(30)
    ]
    run = dispatch(requests, refused, seed=seed, stall=stall, stalls=stalls)
    for name in ("load", "store"):
        wanted = [
            (request.number, job)
            for request in requests
            if request.store == (name == "store")
            for job in range(request.jobs)
        ]
        assert jobs_of(run, name) == wanted
    records = [
        (record.request_id, record.code.value, record.dim, record.value)
        for record in run.payloads["error"]
    ]
    assert records == [
        (request.number, ErrorCode.COORD_NEG.value, request.number % 5, 3 * request.number)
        for request in refused
    ]

    # Tokens without ``joined`` are ignored.
    tokens = [group.thread for group in run.payloads["released"] if group.joined]
    assert all(group.index == group.thread % 8 for group in run.payloads["released"])
    assert [n for n in tokens if n < 1000] == [r.number for r in requests if r.is_released]
    assert [n for n in tokens if n >= 1000] == [r.number for r in refused if r.joined]

    # A load is released after its first job.
    firsts = [
        cycle
        for cycle, (request, job) in zip(
            run.taken["job"], [(r, job) for r in requests for job in range(r.jobs)], strict=True
        )
        if request.is_released and job == 0
    ]
    offered = [
        cycle
        for cycle, group in zip(run.offered["released"], run.payloads["released"], strict=True)
        if group.joined and group.thread < 1000
    ]
    assert all(taken < out for taken, out in zip(firsts, offered, strict=True))


@pytest.mark.parametrize("store", [False, True])
def test_a_job_a_clock(store):
    """A job passes in the clock in which it is offered; its group is released a clock later."""
    run = dispatch([Request(n, store) for n in range(40)], [], stall=0)
    name = "store" if store else "load"
    assert run.cycles[name] == run.taken["job"] == list(range(40))
    assert run.cycles["released"] == ([] if store else list(range(1, 41)))


def test_stores_need_no_room_for_tokens():
    """No released group is taken: two loads pass, and all stores behind them."""
    loads = [Request(number) for number in range(2)]
    stores = [Request(10 + number, store=True) for number in range(20)]
    run = dispatch([*loads, *stores], [], stall=0, stalls={"released": 1.0})
    assert len(run.payloads["store"]) == 20


def test_neither_starves():
    """Loads and refusals release groups in turn."""
    loads, refused = [Request(n) for n in range(40)], [Request(1000 + n) for n in range(40)]
    run = dispatch(loads, refused, stall=0)
    threads = [group.thread for group in run.payloads["released"]]
    assert len(threads) == 80
    assert all((a < 1000) != (b < 1000) for a, b in pairwise(threads))
