"""Queue: order, rate, latency and depth."""

import gc
import re

import pytest
from amaranth.back import rtlil

from hw.lib.queue import Queue
from tests.hw.simulate import run_streams

DEPTHS = [1, 2, 3, 16, 17, 40]
ITEMS = [value * 0x9E37 & 0xFFFF for value in range(200)]
"""Payloads of 16 bits, each of which changes often."""


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("seed", range(2))
def test_order(depth, seed):
    run = run_streams(Queue(16, depth), {"i": ITEMS}, ["o"], seed=seed)
    assert run.payloads["o"] == ITEMS


@pytest.mark.parametrize("latency", [1, 2])
def test_parts_stay_together(latency):
    queue = Queue(16, 5, parts=[3, 9], latency=latency)
    assert run_streams(queue, {"i": ITEMS}, ["o"], seed=1).payloads["o"] == ITEMS


@pytest.mark.parametrize("parts", [[0], [3, 0], [8], [4, 5]])
def test_parts_are_limited(monkeypatch, parts):
    monkeypatch.setattr(Queue, "_MustUse__silence", True, raising=False)  # it is never elaborated
    match = rf"parts = {re.escape(str(parts))}: must be 1 or more each, below 8 together"
    with pytest.raises(ValueError, match=match):
        Queue(8, 4, parts=parts)
    gc.collect()


@pytest.mark.parametrize("depth", DEPTHS[1:])
def test_one_a_clock(depth):
    run = run_streams(Queue(8, depth), {"i": list(range(100))}, ["o"], stall=0)
    cycles = run.cycles["o"]
    assert cycles[-1] - cycles[0] == 99
    assert cycles[0] - run.taken["i"][0] == (1 if depth <= 16 else 2)


@pytest.mark.parametrize("depth", [2, 3, 16, 32])
def test_latency_of_one_clock(depth):
    run = run_streams(Queue(8, depth, latency=1), {"i": list(range(100))}, ["o"], stall=0)
    assert run.cycles["o"] == [cycle + 1 for cycle in run.taken["i"]] == list(range(1, 101))


@pytest.mark.parametrize("depth", DEPTHS)
def test_depth(depth):
    clocks = iter(range(200))
    run = run_streams(
        Queue(8, depth),
        {"i": list(range(100))},
        [],  # nothing is taken out
        stall=0,
        until=lambda _: next(clocks, None) is None,
    )
    assert len(run.taken["i"]) == depth


@pytest.mark.parametrize(
    ("depth", "width", "is_block"), [(17, 61, True), (17, 60, False), (16, 128, False)]
)
def test_a_wide_and_deep_queue_is_in_block_memory(depth, width, is_block):
    text = rtlil.convert(Queue(width, depth, latency=2), name="queue")
    assert ('attribute \\ram_style "block"' in text) == is_block


def test_depth_is_at_least_one(monkeypatch):
    monkeypatch.setattr(Queue, "_MustUse__silence", True, raising=False)  # it is never elaborated
    with pytest.raises(ValueError, match="depth = 0: must be at least 1"):
        Queue(8, 0)
    with pytest.raises(ValueError, match="depth = 33: must be at most 32, or latency = 2"):
        Queue(8, 33, latency=1)
    gc.collect()


@pytest.mark.parametrize("depth", [1, 2, 3, 32])
@pytest.mark.parametrize("seed", range(2))
def test_latency_of_none(depth, seed):
    run = run_streams(Queue(16, depth, latency=0), {"i": ITEMS}, ["o"], seed=seed)
    assert run.payloads["o"] == ITEMS
    run = run_streams(Queue(16, depth, latency=0), {"i": ITEMS}, ["o"], stall=0)
    assert run.payloads["o"] == ITEMS
    assert run.cycles["o"] == run.taken["i"] == list(range(len(ITEMS)))
