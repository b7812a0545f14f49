"""Dispatcher: every job its way, and every request that leaves its bulk group once."""

import random
from dataclasses import dataclass
from itertools import count

import pytest

from hw.dispatcher import WAITING, Dispatcher
from hw.layouts import ErrorCode
from hw.params import TmaParams
from tests.hw.simulate import Run, run_streams

PARAMS = TmaParams(threads=2048)
OUTPUTS = ["load", "store", "error", "released"]


@dataclass(frozen=True)
class Request:
    """Jobs of a request, or one that is refused."""

    number: int
    store: bool = False
    joined: bool = True
    jobs: int = 1

    @property
    def group(self) -> dict[str, int]:
        index = self.number % PARAMS.bulk_groups
        return {"joined": self.joined, "thread": self.number, "index": index}

    @property
    def leaves(self) -> bool:
        """A store stays in its group."""
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
def test_every_job_goes_its_way(seed, stall, stalls):
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

    # A token of a request that has not joined any group counts nowhere.
    tokens = [group.thread for group in run.payloads["released"] if group.joined]
    assert all(group.index == group.thread % 8 for group in run.payloads["released"])
    assert [n for n in tokens if n < 1000] == [r.number for r in requests if r.leaves]
    assert [n for n in tokens if n >= 1000] == [r.number for r in refused if r.joined]

    # It is given with the first job.
    firsts = [
        cycle
        for cycle, (request, job) in zip(
            run.taken["job"], [(r, job) for r in requests for job in range(r.jobs)], strict=True
        )
        if request.leaves and job == 0
    ]
    offered = [
        cycle
        for cycle, group in zip(run.offered["released"], run.payloads["released"], strict=True)
        if group.joined and group.thread < 1000
    ]
    assert all(taken < out for taken, out in zip(firsts, offered, strict=True))


@pytest.mark.parametrize("waits", ["load", "store"])
def test_two_jobs_wait_while_the_other_direction_goes_on(waits):
    """The third holds back all that come behind it."""
    waiting = [Request(number, store=waits == "store") for number in range(3)]
    others = [Request(10 + number, store=waits == "load") for number in range(30)]
    goes_on = "load" if waits == "store" else "store"
    stalls = {waits: 1.0}
    run = dispatch([*waiting[:WAITING], *others], [], stall=0, stalls=stalls)
    assert len(run.payloads[goes_on]) == 30
    times = run.cycles[goes_on]
    assert times[-1] - times[0] == 29
    clocks = count()
    run = dispatch(
        [*waiting, *others], [], stall=0, stalls=stalls, until=lambda _: next(clocks) == 50
    )
    assert len(run.taken["job"]) == WAITING
    assert not run.payloads[goes_on]


@pytest.mark.parametrize("store", [False, True])
def test_a_job_a_clock(store):
    """One clock after it was given, its token too."""
    run = dispatch([Request(n, store) for n in range(40)], [], stall=0)
    name = "store" if store else "load"
    assert run.cycles[name] == [cycle + 1 for cycle in run.taken["job"]]
    assert run.taken["job"] == list(range(40))
    assert run.cycles["released"] == ([] if store else run.cycles[name])


def test_stores_need_no_room_for_tokens():
    """Nobody takes tokens: stores pass by two loads that have given theirs."""
    loads = [Request(number) for number in range(2)]
    stores = [Request(10 + number, store=True) for number in range(20)]
    run = dispatch([*loads, *stores], [], stall=0, stalls={"released": 1.0})
    assert len(run.payloads["store"]) == 20


def test_a_refusal_goes_first():
    """Loads and refusals at once want the way of the tokens: nothing is lost, neither starves."""
    loads, refused = [Request(n) for n in range(40)], [Request(1000 + n) for n in range(20)]
    run = dispatch(loads, refused, stall=0)
    assert run.taken["refusal"] == list(range(20))
    assert len(run.payloads["released"]) == 60
