"""Dispatcher: every job arrives, the jobs of a request together, and goes to loads or stores;
requests are released from their groups once.
"""

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
    inputs = {"tensor": jobs, "refusal": [request.record() for request in refused]}
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
            run.taken["tensor"], [(r, job) for r in requests for job in range(r.jobs)], strict=True
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
    """A job is offered a clock after it was taken; its group is released a clock later."""
    run = dispatch([Request(n, store) for n in range(40)], [], stall=0)
    name = "store" if store else "load"
    assert run.taken["tensor"] == list(range(40))
    assert run.cycles[name] == list(range(1, 41))
    assert run.cycles["released"] == ([] if store else list(range(2, 42)))


def random_jobs(rng: random.Random, first_id: int, requests: int, *, is_tensor: bool) -> list[dict]:
    """Return the jobs of loads; only those of tensor requests have loops and columns."""
    jobs = []
    for number in range(requests):
        count = rng.randint(1, 3)
        for index in range(count):
            walk = {"start": rng.randrange(1 << 20)}
            job = {
                "first": index == 0,
                "last": index == count - 1,
                "transfer": {"request_id": first_id + number},
                "walk": walk,
                "column": {"enabled": is_tensor and rng.random() < 0.5},
            }
            if is_tensor:
                steps = [rng.randrange(256) for _ in range(4)]
                walk["loops"] = [{"last": 1, "global_step": s, "smem_step": s + 1} for s in steps]
                job["column"] |= {"pixels": rng.randrange(1000), "pitch": rng.randrange(200)}
            jobs.append(job)
    return jobs


def check_joined(jobs, tensor: list[dict], bulk: list[dict]) -> None:
    """Compare the jobs of ``load`` with the inputs, and find the jobs of a request together."""
    for given, is_tensor in ((tensor, True), (bulk, False)):
        arrived = [job for job in jobs if (job.transfer.request_id < 100) == is_tensor]
        assert len(arrived) == len(given)
        for job, expected in zip(arrived, given, strict=True):
            assert job.transfer.request_id == expected["transfer"]["request_id"]
            assert job.walk.start == expected["walk"]["start"]
            assert job.column.enabled == expected["column"]["enabled"]
            if is_tensor:
                assert [
                    (loop.last, loop.global_step, loop.smem_step) for loop in job.walk.loops
                ] == [tuple(loop.values()) for loop in expected["walk"]["loops"]]
                assert (job.column.pixels, job.column.pitch) == (
                    expected["column"]["pixels"],
                    expected["column"]["pitch"],
                )
            else:
                assert all(loop.last == 0 for loop in job.walk.loops)
    for job, following in pairwise(jobs):
        assert job.last or following.transfer.request_id == job.transfer.request_id


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_all_jobs_arrive_and_requests_stay_together(seed: int, stores: bool) -> None:
    rng = random.Random(seed)
    tensor = random_jobs(rng, 0, 25, is_tensor=True)
    bulk = random_jobs(rng, 100, 25, is_tensor=False)
    params = TmaParams(threads=32, streams=1, stores=stores, reductions=stores)
    outputs = OUTPUTS if stores else ["load"]
    run = run_streams(Dispatcher(params), {"tensor": tensor, "bulk": bulk}, outputs, seed=seed)
    check_joined(run.payloads["load"], tensor, bulk)


def test_tensor_and_bulk_requests_take_turns():
    """Both wait always: a job a clock leaves, request by request from either input."""
    rng = random.Random(0)
    tensor = random_jobs(rng, 0, 20, is_tensor=True)
    bulk = random_jobs(rng, 100, 20, is_tensor=False)
    dut = Dispatcher(TmaParams(threads=32, streams=1))
    run = run_streams(dut, {"tensor": tensor, "bulk": bulk}, OUTPUTS, stall=0)
    times = run.cycles["load"]
    assert times == list(range(1, len(times) + 1))
    firsts = [job.transfer.request_id < 100 for job in run.payloads["load"] if job.first]
    assert all(a != b for a, b in pairwise(firsts))


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
