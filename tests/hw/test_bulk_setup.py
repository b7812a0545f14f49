"""Bulk setup: one run, or the first thing that is wrong."""

import random

import pytest

from golden import BulkLoad, ErrorCode, TmaError, check
from hw.bulk_setup import BulkSetup
from hw.layouts import Operation
from hw.params import TmaParams
from tests.hw.simulate import run_streams

PARAMS = TmaParams(smem_bytes=16384)


def described(bulk: BulkLoad, number: int) -> dict:
    return {
        "operation": Operation.BULK_LOAD,
        "request_id": number,
        "global_address": bulk.gmem_address,
        "size": bulk.size,
        "rank": 0,
        "coords": [0] * 5,
        "smem_address": bulk.smem_address,
        "mbarrier": bulk.mbarrier,
    }


def random_bulk(rng: random.Random) -> BulkLoad:
    """One in two has something wrong."""

    def off(chance: float, most: int) -> int:
        return rng.randrange(most) if rng.random() < chance else 0

    size = rng.choice((0, 16, 32, 4096, 16384, 16 * rng.randrange(1000)))
    return BulkLoad(
        16 * rng.randrange(1 << 60) + off(0.1, 16),
        16 * rng.randrange(1024) + off(0.1, 16),
        rng.choice((size, size, size + off(0.3, 16), (1 << 32) - 16)),
        8 * rng.randrange(2048) + off(0.1, 16),
    )


def refusal(bulk: BulkLoad) -> TmaError | None:
    """Why the golden model refuses it."""
    try:
        check(bulk, smem_bytes=PARAMS.smem_bytes)
    except TmaError as error:
        return error
    return None


@pytest.mark.parametrize("size", [0, 16, 1 << 14, (1 << 14) + 16, 5 << 14, (1 << 20) - 16])
def test_a_prefetch_goes_on_in_chunks(size):
    """It has nothing to do with shared memory, whatever stands there."""
    base = (1 << 44) + 48
    prefetch = described(BulkLoad(base, 5, size, 5), 9) | {"operation": Operation.BULK_PREFETCH}
    load = described(BulkLoad(1 << 20, 0, 32), 10)
    run = run_streams(BulkSetup(PARAMS), {"i": [prefetch, load]}, ["job", "error"], seed=size)
    *chunks, after = run.payloads["job"]
    assert not run.payloads["error"]
    assert (after.transfer.request_id, after.walk.prefetch, after.walk.run) == (10, 0, 2)
    at = base // 16
    for chunk in chunks:
        assert (chunk.walk.prefetch, chunk.walk.start) == (1, at)
        assert chunk.walk.has_data == (chunk.walk.run > 0)
        at += chunk.walk.run
    assert at == (base + size) // 16
    assert len(chunks) == max(1, -(-size // PARAMS.smem_bytes))  # a power of two


@pytest.mark.parametrize("change", [{"size": 8}, {"global_address": 8}])
def test_a_prefetch_that_is_refused(change):
    prefetch = described(BulkLoad(0, 0, 1 << 20), 9) | {"operation": Operation.BULK_PREFETCH}
    run = run_streams(BulkSetup(PARAMS), {"i": [prefetch | change] * 2}, ["job", "error"])
    assert not run.payloads["job"]
    assert [record.code.value for record in run.payloads["error"]] == [ErrorCode.BULK_ALIGN] * 2


@pytest.mark.parametrize("seed", range(3))
def test_jobs_and_refusals_are_the_golden_models(seed):
    rng = random.Random(seed)
    requests = [random_bulk(rng) for _ in range(300)]
    inputs = [described(bulk, n) for n, bulk in enumerate(requests)]
    run = run_streams(BulkSetup(PARAMS), {"i": inputs}, ["job", "error"], seed=seed)
    jobs, errors = iter(run.payloads["job"]), iter(run.payloads["error"])
    seen = set()
    for number, bulk in enumerate(requests):
        error = refusal(bulk)
        if error is not None:
            record = next(errors)
            got = (record.request_id, record.code.value, record.dim, record.value)
            assert got == (number, error.code, error.dim, error.value), bulk
            seen.add(error.code)
            continue
        job = next(jobs)
        pieces, smem = bulk.size // 16, bulk.smem_address // 16
        assert (job.transfer.request_id, job.transfer.mbarrier) == (number, bulk.mbarrier)
        assert (job.transfer.pieces, job.walk.run, job.walk.has_data) == (
            *(pieces, pieces),
            pieces > 0,
        )
        assert job.walk.start == bulk.gmem_address // 16
        assert (job.walk.smem_begin, job.walk.smem_end) == (smem, smem + pieces)
        assert (job.walk.smem_start, job.walk.smem_extent) == (smem, pieces)
        assert all(loop.last == 0 for loop in (job.walk.loops[n] for n in range(4)))
        assert (job.walk.style.swizzle.value, job.walk.style.round_tf32) == (0, 0)
    assert next(jobs, None) is next(errors, None) is None
    assert seen == {
        ErrorCode.SMEM_ALIGN,
        ErrorCode.SMEM_RANGE,
        ErrorCode.BULK_ALIGN,
        ErrorCode.MBAR_ALIGN,
    }
