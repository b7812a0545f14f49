"""Bulk refusal: every request gets its refusal, in order."""

import random
from dataclasses import replace

import pytest

from hw.layouts.isa import ErrorCode, Operation
from hw.params import PRESETS, TmaParams
from hw.setup.bulk_refusal import BulkRefusal
from tests.hw.simulate import run_streams

LOADS = replace(PRESETS["tiny"], threads=64, streams=2)
BOTH = TmaParams(bulk=False)


@pytest.mark.parametrize("params", [LOADS, BOTH], ids=["loads", "stores"])
@pytest.mark.parametrize("seed", range(2))
def test_each_request_is_refused(params: TmaParams, seed: int) -> None:
    rng = random.Random(seed)
    operations = [Operation.BULK_LOAD, Operation.BULK_PREFETCH]
    operations += [Operation.BULK_STORE, Operation.BULK_REDUCE] if params.stores else []
    requests = []
    for number in range(40):
        request = {
            "operation": rng.choice(operations),
            "request_id": number,
            "thread": rng.randrange(params.threads),
        }
        if params.stores:
            request["group"] = {"joined": 1, "thread": request["thread"], "index": number % 8}
        requests.append(request)
    refusals = run_streams(BulkRefusal(params), {"i": requests}, ["error"], seed=seed)
    assert len(refusals.payloads["error"]) == len(requests)
    for refusal, request in zip(refusals.payloads["error"], requests, strict=True):
        assert refusal.request_id == request["request_id"]
        assert refusal.code == ErrorCode.MAP_MODE
        assert refusal.value == request["operation"].value
        is_store = request["operation"] in (Operation.BULK_STORE, Operation.BULK_REDUCE)
        stream = request["thread"] // 32 % params.streams
        assert refusal.channel == (params.streams if is_store else stream)
        if params.stores:
            assert (refusal.group.thread, refusal.group.index) == (
                request["thread"],
                request["request_id"] % 8,
            )
