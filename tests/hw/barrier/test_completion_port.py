"""Completion port: the bytes of each barrier arrive as COMPLETE_TX operations."""

import random
from collections import Counter

import pytest

from hw.barrier.completion_port import CompletionPort
from hw.layouts.barriers import BarrierOp
from hw.params import TmaParams
from tests.hw.simulate import run_streams

PARAMS = TmaParams(stores=False, reductions=False, im2col=False)


@pytest.mark.parametrize("seed", range(3))
def test_bytes_of_each_barrier(seed: int) -> None:
    rng = random.Random(seed)
    completions = [
        {
            "request_id": number,
            "address": 8 * rng.randrange(4),
            "tx_bytes": 16 * rng.randint(1, 500),
        }
        for number in range(200)
    ]
    run = run_streams(CompletionPort(PARAMS), {"i": completions}, ["o"], seed=seed)
    expected: Counter[int] = Counter()
    for completion in completions:
        expected[completion["address"]] += completion["tx_bytes"]
    arrived: Counter[int] = Counter()
    owners = {completion["request_id"]: completion["address"] for completion in completions}
    for update in run.payloads["o"]:
        assert update.op == BarrierOp.COMPLETE_TX
        assert owners[update.request_id] == update.address
        arrived[update.address] += update.count
    assert arrived == expected
    assert len(run.payloads["o"]) <= len(completions)
