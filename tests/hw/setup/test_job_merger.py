"""Job merger: every job arrives, the jobs of a request together."""

import random
from itertools import pairwise

import pytest

from hw.params import TmaParams
from hw.setup.job_merger import JobMerger
from tests.hw.simulate import run_streams

PARAMS = TmaParams(threads=32, streams=1)


def jobs_of(rng: random.Random, first_id: int, requests: int, *, is_tensor: bool) -> list[dict]:
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


@pytest.mark.parametrize("seed", range(3))
def test_all_jobs_arrive_and_requests_stay_together(seed: int) -> None:
    """``o`` never stalls: the loops of a waiting bulk job may change (see the block)."""
    rng = random.Random(seed)
    tensor = jobs_of(rng, 0, 25, is_tensor=True)
    bulk = jobs_of(rng, 100, 25, is_tensor=False)
    inputs = {"tensor": tensor, "bulk": bulk}
    jobs = run_streams(JobMerger(PARAMS), inputs, ["o"], seed=seed, stalls={"o": 0}).payloads["o"]
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
