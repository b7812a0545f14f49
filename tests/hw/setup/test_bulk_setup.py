"""Bulk setup: a job of one run, or the error record of the golden model."""

import random
from dataclasses import replace
from itertools import product

import pytest

from golden import (
    Arch,
    BulkLoad,
    BulkReduce,
    BulkStore,
    DataType,
    DsmemCopy,
    DsmemReduce,
    ErrorCode,
    ReductionOp,
    TmaError,
    check,
)
from golden.request import moved_bytes
from hw.layouts.isa import Operation
from hw.params import TmaParams
from hw.setup.bulk_setup import BulkSetup
from tests.hw.golden_requests import group_of
from tests.hw.simulate import run_streams
from tests.unit_arch import LATER_UNIT

PARAMS = TmaParams(smem_bytes=16384)


def bulk_input(bulk: BulkLoad, number: int) -> dict:
    return {
        "operation": Operation.BULK_LOAD,
        "request_id": number,
        "global_address": bulk.gmem_address,
        "size": bulk.size % (1 << 20),
        "rank": 0,
        "coords": [0] * 5,
        "smem_address": bulk.smem_address,
        "mbarrier": bulk.mbarrier,
    }


def random_bulk(rng: random.Random) -> BulkLoad:
    """Return a bulk load; every second one is illegal."""

    def misalign(chance: float, most: int) -> int:
        return rng.randrange(most) if rng.random() < chance else 0

    size = rng.choice((0, 16, 32, 4096, 16384, 16 * rng.randrange(1000)))
    return BulkLoad(
        16 * rng.randrange(1 << 60) + misalign(0.1, 16),
        16 * rng.randrange(1024) + misalign(0.1, 16),
        rng.choice((size, size, size + misalign(0.3, 16), size | 1 << 20, (1 << 32) - 1)),
        8 * rng.randrange(2048) + misalign(0.1, 16),
    )


def refusal(
    bulk: BulkLoad | BulkStore | BulkReduce | DsmemCopy, arch: Arch = Arch.SM_90A
) -> TmaError | None:
    """Return the error with which the golden model refuses ``bulk``, or None."""
    try:
        check(bulk, smem_bytes=PARAMS.smem_bytes, arch=arch)
    except TmaError as error:
        return error
    return None


@pytest.mark.parametrize("size", [0, 16, 24, 1 << 14, (1 << 20) - 1])
def test_a_prefetch_may_be_longer_than_shared_memory(size):
    """The shared-memory operands of a prefetch are not checked."""
    base = (1 << 44) + 48
    prefetch = bulk_input(BulkLoad(base, 5, size, 5), 9) | {"operation": Operation.BULK_PREFETCH}
    load = bulk_input(BulkLoad(1 << 20, 0, 32), 10)
    run = run_streams(BulkSetup(PARAMS), {"i": [prefetch, load]}, ["job", "error"], seed=size)
    job, next_job = run.payloads["job"]
    assert not run.payloads["error"]
    assert (next_job.transfer.request_id, next_job.walk.prefetch, next_job.walk.run) == (10, 0, 2)
    walk = job.walk
    assert (walk.prefetch, walk.start, walk.run) == (1, base // 16, size // 16)
    assert walk.has_data == (size > 0)


def test_a_prefetch_that_is_refused():
    prefetch = bulk_input(BulkLoad(8, 0, 1 << 19), 9) | {"operation": Operation.BULK_PREFETCH}
    run = run_streams(BulkSetup(PARAMS), {"i": [prefetch] * 2}, ["job", "error"])
    assert not run.payloads["job"]
    assert [record.code.value for record in run.payloads["error"]] == [ErrorCode.BULK_ALIGN] * 2


def test_a_load_that_moves_nothing_signals_nothing():
    """It is a prefetch: of no bytes, or of those that no CTA of an empty mask receives."""
    requests = [
        bulk_input(BulkLoad(0, 0, 16), 1),
        bulk_input(BulkLoad(0, 0, 16), 2) | {"no_receiver": 1},
        *(bulk_input(BulkLoad(0, 0, size), 3) for size in (0, 1, 15, 1 << 20, 1 << 31)),
        bulk_input(BulkLoad(0, 0, 16, 1), 4) | {"no_receiver": 1},
    ]
    run = run_streams(BulkSetup(PARAMS), {"i": requests}, ["job", "error"])
    assert [job.walk.prefetch for job in run.payloads["job"]] == [0, *[1] * 6]
    assert [record.request_id for record in run.payloads["error"]] == [4]


@pytest.mark.parametrize("seed", range(3))
def test_loads_against_golden(seed):
    rng = random.Random(seed)
    requests = [random_bulk(rng) for _ in range(300)]
    inputs = [bulk_input(bulk, n) for n, bulk in enumerate(requests)]
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
        pieces, smem = moved_bytes(bulk.size) // 16, bulk.smem_address // 16
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


TYPES = tuple(kind for kind in DataType if kind <= DataType.FLOAT32_FTZ)


def random_store(rng: random.Random) -> BulkStore | BulkReduce:
    """Return a bulk store or reduction; every second one is illegal."""
    bulk = random_bulk(rng)
    if rng.random() < 0.4:
        mask = rng.choice((0xFFFF, 0, rng.getrandbits(16)))
        return BulkStore(bulk.gmem_address, bulk.smem_address, bulk.size, mask)
    kind, op = rng.choice(TYPES), rng.choice(list(ReductionOp))
    return BulkReduce(bulk.gmem_address, bulk.smem_address, bulk.size, kind, op)


def store_input(store: BulkStore | BulkReduce, number: int) -> dict:
    """Return the request of a store; it has junk where it has no operand."""
    request = bulk_input(BulkLoad(store.gmem_address, store.smem_address, store.size, 5), number)
    request["group"] = group_of(number)
    if isinstance(store, BulkReduce):
        request |= {"operation": Operation.BULK_REDUCE, "byte_mask": number % 3}
        kind, op = FORMATS.index(store.data_type), store.op.value
    else:
        request |= {"operation": Operation.BULK_STORE, "byte_mask": store.byte_mask}
        kind, op = 0, 7
    return request | {"element_type": kind, "reduction_op": op}


FORMATS = (
    *(DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.INT32),
    *(DataType.UINT64, DataType.INT64, DataType.FLOAT16, DataType.FLOAT32),
    *(DataType.FLOAT32_FTZ, DataType.FLOAT64, DataType.BFLOAT16),
)
"""Data types, in the order of their numbers in tensor maps."""


@pytest.mark.parametrize("arch", [Arch.SM_90A, LATER_UNIT])
def test_stores_against_golden(arch):
    """A unit without byte masks refuses them as Hopper does."""
    rng = random.Random(1)
    params = replace(PARAMS, cp_mask=arch is LATER_UNIT)
    stores = [random_store(rng) for _ in range(400)]
    inputs = [store_input(store, n) for n, store in enumerate(stores)]
    run = run_streams(BulkSetup(params), {"i": inputs}, ["job", "error"], stall=0.2)
    jobs, errors = iter(run.payloads["job"]), iter(run.payloads["error"])
    seen = set()
    for number, store in enumerate(stores):
        error = refusal(store, arch)
        output = next(jobs if error is None else errors)
        group = {"joined": output.group.joined, "thread": output.group.thread}
        assert group | {"index": output.group.index} == group_of(number)
        if error is not None:
            got = (output.request_id, output.code.value, output.dim, output.value)
            assert got == (number, error.code, error.dim, error.value), store
            seen.add(error.code)
            continue
        walk, pieces = output.walk, moved_bytes(store.size) // 16
        assert (output.transfer.request_id, output.transfer.mbarrier) == (number, 0)
        assert (output.first, output.last, walk.store, walk.prefetch) == (1, 1, 1, 0)
        assert (walk.start, walk.smem_start) == (store.gmem_address // 16, store.smem_address // 16)
        assert (walk.run, walk.has_data, walk.tail_bytes) == (pieces, pieces > 0, 0)
        reduction = walk.write_mode.reduction
        assert reduction.enabled == isinstance(store, BulkReduce)
        if isinstance(store, BulkReduce):
            assert reduction.op.value == store.op
            assert FORMATS[reduction.element_type.value] is store.data_type
        if params.cp_mask:
            mask = store.byte_mask if isinstance(store, BulkStore) else 0xFFFF
            assert walk.write_mode.byte_mask == mask
    assert next(jobs, None) is next(errors, None) is None
    wanted = {
        *(ErrorCode.SMEM_ALIGN, ErrorCode.SMEM_RANGE, ErrorCode.BULK_ALIGN, ErrorCode.RED_TYPE),
        *([] if params.cp_mask else [ErrorCode.MAP_MODE]),
    }
    assert seen == wanted


@pytest.mark.parametrize(
    ("without", "records"),
    [
        ({"reductions": False}, [(2, ErrorCode.RED_TYPE, 0)]),
        (
            {"stores": False, "reductions": False},
            [(1, ErrorCode.MAP_MODE, 5), (2, ErrorCode.MAP_MODE, 7)],
        ),
    ],
)
def test_a_unit_without_stores_or_reductions_refuses_them(without, records):
    load = bulk_input(BulkLoad(1 << 20, 0, 32), 0)
    store = load | {"operation": Operation.BULK_STORE, "request_id": 1, "byte_mask": 0xFFFF}
    reduction = load | {"operation": Operation.BULK_REDUCE, "request_id": 2, "element_type": 2}
    params = replace(PARAMS, **without)
    run = run_streams(BulkSetup(params), {"i": [load, store, reduction]}, ["job", "error"])
    got = [(record.request_id, record.code.value, record.value) for record in run.payloads["error"]]
    assert got == records
    assert len(run.payloads["job"]) == 3 - len(records)


def dsmem_input(copy: DsmemCopy, number: int) -> dict:
    """Return the request of a copy or a reduction between shared memories."""
    reduces = isinstance(copy, DsmemReduce)
    kind, op = (FORMATS.index(copy.data_type), copy.op.value) if reduces else (0, 7)
    return {
        "operation": Operation.DSMEM_REDUCE if reduces else Operation.DSMEM_COPY,
        "request_id": number,
        "global_address": copy.dst_address,
        "size": copy.size % (1 << 20),
        "smem_address": copy.smem_address,
        "mbarrier": copy.mbarrier,
        "element_type": kind,
        "reduction_op": op,
    }


def test_copies_between_shared_memories_against_golden():
    """Reductions have all types and operations; every second copy has a bad operand."""
    rng = random.Random(3)
    copies: list[DsmemCopy] = [
        DsmemReduce(0, 32 * number, 64, 32, 8, data_type=kind, op=op)
        for number, (kind, op) in enumerate(product(TYPES, ReductionOp))
    ]
    for _ in range(200):
        low = rng.choice((0, 0, 0, rng.randrange(16)))
        wrong = rng.randrange(8)
        copies.append(
            DsmemCopy(
                0,
                16 * rng.randrange(1024) + (low if wrong == 0 else 0),
                16 * rng.randrange(1024) + (low if wrong == 1 else 0),
                rng.choice((0, 16, 16 * rng.randrange(1000))),
                8 * rng.randrange(2048) + (low if wrong == 2 else 0),
            )
        )
    inputs = [dsmem_input(copy, number) for number, copy in enumerate(copies)]
    run = run_streams(BulkSetup(PARAMS), {"i": inputs}, ["job", "error"], stall=0.1)
    jobs, errors = iter(run.payloads["job"]), iter(run.payloads["error"])
    seen = set()
    for number, copy in enumerate(copies):
        error = refusal(copy)
        if error is not None:
            record = next(errors)
            got = record.request_id, record.code.value, record.value
            assert got == (number, error.code, error.value), copy
            seen.add(error.code)
            continue
        job = next(jobs)
        pieces = moved_bytes(copy.size) // 16
        assert (job.transfer.request_id, job.walk.run, job.walk.store) == (number, pieces, 1)
        assert (job.walk.start, job.walk.smem_start) == (
            copy.dst_address // 16,
            copy.smem_address // 16,
        )
        reduction = job.walk.write_mode.reduction
        assert reduction.enabled == isinstance(copy, DsmemReduce)
        if isinstance(copy, DsmemReduce):
            assert reduction.op.value == copy.op
            assert FORMATS[reduction.element_type.value] is copy.data_type
    assert next(jobs, None) is next(errors, None) is None
    assert seen == {
        *(ErrorCode.SMEM_ALIGN, ErrorCode.SMEM_RANGE, ErrorCode.RED_TYPE, ErrorCode.MBAR_ALIGN),
    }
