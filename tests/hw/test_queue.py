"""Queues: first in, first out, at full rate, and as deep as they say."""

import gc

import pytest

from hw.layouts import Operation
from hw.params import TmaParams
from hw.queue import Queue
from hw.request_queue import RequestQueue
from tests.hw.simulate import run_streams

DEPTHS = [1, 2, 3, 16, 17, 40]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("seed", range(2))
def test_order(depth, seed):
    items = list(range(200))
    run = run_streams(Queue(8, depth), {"i": items}, ["o"], seed=seed)
    assert run.payloads["o"] == items


@pytest.mark.parametrize("depth", DEPTHS[1:])
def test_one_a_clock(depth):
    run = run_streams(Queue(8, depth), {"i": list(range(100))}, ["o"], stall=0)
    cycles = run.cycles["o"]
    assert cycles[-1] - cycles[0] == 99
    assert cycles[0] - run.taken["i"][0] == (1 if depth <= 16 else 2)


@pytest.mark.parametrize("depth", DEPTHS)
def test_holds_as_many_as_it_says(depth):
    clocks = iter(range(200))
    run = run_streams(
        Queue(8, depth),
        {"i": list(range(100))},
        [],  # nothing is taken out
        stall=0,
        until=lambda _: next(clocks, None) is None,
    )
    assert len(run.taken["i"]) == depth


def test_depth_has_a_limit(monkeypatch):
    monkeypatch.setattr(Queue, "_MustUse__silence", True, raising=False)  # it is never elaborated
    with pytest.raises(ValueError, match="depth = 0: must be at least 1"):
        Queue(8, 0)
    gc.collect()


def test_requests_keep_their_operands():
    params = TmaParams(request_queue_depth=3)
    requests = [
        {
            "operation": Operation(n % 3 == 0),
            "request_id": n,
            "global_address": n << 40,
            "size": 16 * n,
            "rank": n % 5 + 1,
            "coords": [-n, n, 1 - n, n + 1, 2 * n],
            "smem_address": 128 * n,
            "mbarrier": 8 * n,
        }
        for n in range(60)
    ]
    run = run_streams(RequestQueue(params), {"i": requests}, ["tensor", "bulk"], seed=1)
    for name, operation in ("tensor", Operation.TENSOR_LOAD), ("bulk", Operation.BULK_LOAD):
        got = [
            {field: getattr(item, field) for field in requests[0]} | {"coords": list(item.coords)}
            for item in run.payloads[name]
        ]
        assert got == [request for request in requests if request["operation"] == operation]
