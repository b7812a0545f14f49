"""Completions that wait are added up: sums are exact, order is kept, nothing waits for nothing."""

import random
from collections import Counter

import pytest

from hw.params import TmaParams
from hw.tx_coalescer import ENTRIES, MOST_BYTES, TxCoalescer
from tests.hw.simulate import Run, run_streams

ALONE = TmaParams()
CLUSTER = TmaParams(ctas=4)


def run_coalescer(items, params=ALONE, **options) -> Run:
    return run_streams(TxCoalescer(params), {"i": items}, ["o"], **options)


def barrier(item) -> tuple:
    """What names it, of an input or an output."""
    get = item.get if isinstance(item, dict) else lambda name, none: getattr(item, name, none)
    return get("holder", 0), get("address", 0)


def completion(number: int, address: int, tx_bytes: int = 16, **where: int) -> dict[str, int]:
    return {"request_id": number, "address": address, "tx_bytes": tx_bytes, **where}


def model(items, run: Run) -> list[tuple]:
    """What leaves, when it is known in which clocks: barrier, bytes, name of the last."""
    waiting: list[tuple] = []
    out = []
    inputs = dict(zip(run.taken["i"], items, strict=True))
    leaves = set(run.cycles["o"])
    for clock in range(max(leaves) + 1):
        offered = waiting[:1]
        if (item := inputs.get(clock)) is not None:
            named = item["request_id"], item.get("cta", 0)
            for place in range(1, len(waiting)):
                where, total, _ = waiting[place]
                if where == barrier(item) and total + item["tx_bytes"] <= MOST_BYTES:
                    waiting[place] = where, total + item["tx_bytes"], named
                    break
            else:
                waiting.append((barrier(item), item["tx_bytes"], named))
                offered = waiting[:1]
        if clock in leaves:
            assert waiting[:1] == offered
            out.append(waiting.pop(0))
        assert len(waiting) <= ENTRIES
    assert not waiting
    return out


def left(run: Run) -> list[tuple]:
    return [
        (barrier(o), o.tx_bytes, (o.request_id, getattr(o, "cta", 0))) for o in run.payloads["o"]
    ]


@pytest.mark.parametrize("params", [ALONE, CLUSTER])
@pytest.mark.parametrize(("i_stall", "o_stall"), [(0, 0), (0, 0.5), (0.5, 0.5), (0, 0.9), (0.7, 0)])
@pytest.mark.parametrize("barriers", [1, 3, 12])
def test_sums_are_exact(params, i_stall, o_stall, barriers):
    rng = random.Random(barriers)
    items = []
    for number in range(400):
        where = {}
        if params.ctas > 1:
            where = {"holder": rng.randrange(2), "cta": rng.randrange(4)}
        tx_bytes = rng.choice([0, 16, 1024, MOST_BYTES, MOST_BYTES - 16, 1 << 19])
        items.append(completion(number, 8 * rng.randrange(barriers), tx_bytes, **where))
    run = run_coalescer(items, params, stalls={"i": i_stall, "o": o_stall})
    assert left(run) == model(items, run)
    sums: Counter = Counter()
    for item in items:
        sums[barrier(item)] += item["tx_bytes"]
    for o in run.payloads["o"]:
        sums[barrier(o)] -= o.tx_bytes
    assert not any(sums.values())


def test_no_latency_and_one_a_clock():
    items = [completion(n, 0) for n in range(100)]
    run = run_coalescer(items, stall=0)
    assert run.cycles["o"] == run.taken["i"] == list(range(100))
    assert [o.request_id for o in run.payloads["o"]] == list(range(100))


def held_until(clock: int):
    """An output that is stuck at first: feed nothing, and hold ``o`` for so many clocks."""
    return lambda _run, cycle: {} if cycle < clock else None


@pytest.mark.parametrize("number", [2, 3, 50])
def test_a_backlog_leaves_as_one(number):
    """The first is at ``o`` already; all behind it are one."""
    items = [completion(n, 64, 32) for n in range(number)]
    dut = TxCoalescer(ALONE)
    stuck = run_streams(dut, {"i": items}, ["o"], stalls={"i": 0, "o": 1.0}, quiet=5)
    assert stuck.taken["i"] == list(range(number))
