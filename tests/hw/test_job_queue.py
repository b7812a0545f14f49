"""Job queue: in order, at once if it is empty, and full after as many jobs as it is to keep."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from hw.job_queue import JobQueue
from hw.params import TmaParams
from tests.hw.simulate import run_streams

PARAMS = TmaParams(line_bytes=16, requests_in_flight=16)


class Cleared(wiring.Component):
    """A job queue without what is left open: the columns of walks."""

    def __init__(self, params: TmaParams):
        self.queue = JobQueue(params)
        super().__init__(self.queue.signature)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        connect(m, flipped(self.i), queue.i)
        m.d.comb += [
            self.o.valid.eq(queue.o.valid),
            queue.o.ready.eq(self.o.ready),
            self.o.p.eq(queue.o.p),
        ]
        with m.If(~queue.o.p.column.enabled):
            m.d.comb += self.o.p.column.eq(0)
        return m


def jobs(rng: random.Random, count: int, columns: float) -> list[dict]:
    return [
        {
            "slot": number % 16,
            "last": rng.randrange(2),
            "walk": {"start": rng.randrange(1 << 60), "run": number},
            "column": {"enabled": rng.random() < columns, "pixels": number},
        }
        for number in range(count)
    ]


def seen(job) -> dict:
    pixels = job.column.pixels if job.column.enabled else None
    return {"slot": job.slot, "last": job.last, "run": job.walk.run, "pixels": pixels}


def wanted(job: dict) -> dict:
    walk, column = job["walk"], job["column"]
    pixels = column["pixels"] if column["enabled"] else None
    return {"slot": job["slot"], "last": job["last"], "run": walk["run"], "pixels": pixels}


@pytest.mark.parametrize("stall", [0, 0.3, 0.8])
@pytest.mark.parametrize("depth", [1, 4, 16])
def test_jobs_stay_in_order(depth, stall):
    params = TmaParams(line_bytes=16, requests_in_flight=16, jobs_waiting=depth)
    sent = jobs(random.Random(depth), 80, 0.4)
    run = run_streams(Cleared(params), {"i": sent}, ["o"], seed=depth, stall=stall)
    assert [seen(job) for job in run.payloads["o"]] == [wanted(job) for job in sent]


def test_a_walk_passes_at_once_and_a_column_in_a_clock():
    for columns, clocks in ((0, 0), (1, 1)):
        run = run_streams(
            Cleared(PARAMS), {"i": jobs(random.Random(1), 20, columns)}, ["o"], stall=0
        )
        assert run.cycles["o"] == [cycle + clocks for cycle in run.taken["i"]]
        assert run.cycles["o"] == list(range(clocks, 20 + clocks))


def test_takes_jobs_that_do_not_get_on():
    run = run_streams(
        Cleared(PARAMS),
        {"i": jobs(random.Random(2), 20, 0)},
        ["o"],
        stalls={"i": 0, "o": 1},
        until=lambda run: len(run.taken["i"]) == PARAMS.jobs_waiting,
    )
    assert run.taken["i"] == list(range(PARAMS.jobs_waiting))
