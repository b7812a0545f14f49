"""Line guard: lines in the range get to memory, all others are answered with an error."""

import random
from dataclasses import replace

import pytest

from hw.context.line_guard import LineGuard
from hw.layouts.ports import (
    gnic_ack_layout,
    gnic_request_layout,
    gnic_response_layout,
    gnic_write_layout,
)
from hw.params import TmaParams
from tests.hw.simulate import run_streams

PARAMS = TmaParams(line_bytes=32, address_bits=40, tags=64)
FIRST, LAST = 0x1000, 0x10FF
"""Granules of 128 bytes of the range."""


def is_inside(params: TmaParams, line: int) -> bool:
    return FIRST <= line * params.line_bytes // 128 <= LAST


def lines(params: TmaParams, rng: random.Random, count: int) -> list[int]:
    """Return lines at the ends of the range, in it and outside."""
    per_granule = 128 // params.line_bytes
    first, behind = FIRST * per_granule, (LAST + 1) * per_granule
    ends = [first - 1, first, behind - 1, behind, 0, (1 << params.line_address_bits) - 1]
    return [rng.choice((*ends, rng.randrange(first, behind))) for _ in range(count)]


def guarded(guard: LineGuard, accesses: list[dict], seed: int):
    """Run accesses; memory answers each that it gets, in any order."""
    rng = random.Random(seed)
    seen, waiting = 0, []

    async def allow(ctx):
        ctx.set(guard.allowed, {"first": FIRST, "last": LAST})

    def feed(run, _cycle):
        nonlocal seen
        new = run.payloads["o"][seen:]
        seen += len(new)
        waiting.extend(access.tag for access in new if not getattr(access, "prefetch", 0))
        if not waiting or rng.random() < 0.5:
            return {}
        return {"o_answer": [{"tag": waiting.pop(rng.randrange(len(waiting)))}]}

    return run_streams(guard, {"i": accesses, "o_answer": []}, ["o", "answer"], seed=seed,
                       stall=rng.choice((0, 0.4)), feed=feed, prepare=allow)  # fmt: skip


@pytest.mark.parametrize("line_bytes", [16, 32, 128])
def test_reads(line_bytes: int) -> None:
    params = replace(PARAMS, line_bytes=line_bytes)
    guard = LineGuard(params, gnic_request_layout(params), gnic_response_layout(params))
    rng = random.Random(line_bytes)
    accesses = [
        {"tag": tag, "line": line, "prefetch": rng.random() < 0.3}
        for tag, line in enumerate(lines(params, rng, params.tags))
    ]
    run = guarded(guard, accesses, line_bytes)
    got = [(each.tag, each.line) for each in run.payloads["o"]]
    inside = [each for each in accesses if is_inside(params, each["line"])]
    assert got == [(each["tag"], each["line"]) for each in inside]
    assert len(inside) not in (0, len(accesses))
    errors = {each.tag: each.error for each in run.payloads["answer"]}
    assert len(errors) == len(run.payloads["answer"])
    assert errors == {
        each["tag"]: not is_inside(params, each["line"])
        for each in accesses
        if not each["prefetch"]
    }


def test_writes() -> None:
    guard = LineGuard(PARAMS, gnic_write_layout(PARAMS), gnic_ack_layout(PARAMS))
    rng = random.Random(7)
    accesses = [
        {"tag": tag, "line": line, "strobe": rng.getrandbits(32), "data": rng.getrandbits(256)}
        for tag, line in enumerate(lines(PARAMS, rng, PARAMS.tags))
    ]
    run = guarded(guard, accesses, 7)
    inside = [each for each in accesses if is_inside(PARAMS, each["line"])]
    got = [
        {"tag": each.tag, "line": each.line, "strobe": each.strobe, "data": each.data}
        for each in run.payloads["o"]
    ]
    assert got == inside
    errors = {each.tag: each.error for each in run.payloads["answer"]}
    assert errors == {each["tag"]: not is_inside(PARAMS, each["line"]) for each in accesses}


def test_an_empty_range_lets_nothing_pass() -> None:
    guard = LineGuard(PARAMS, gnic_write_layout(PARAMS), gnic_ack_layout(PARAMS))

    async def allow_nothing(ctx):
        ctx.set(guard.allowed, {"first": 1, "last": 0})

    accesses = [{"tag": line, "line": line} for line in range(12)]
    run = run_streams(guard, {"i": accesses, "o_answer": []}, ["o", "answer"], stall=0,
                      prepare=allow_nothing)  # fmt: skip
    assert run.payloads["o"] == []
    assert [each.tag for each in run.payloads["answer"]] == [*range(12)]
    assert all(each.error for each in run.payloads["answer"])
