"""Transaction coalescer: sums are exact, in order, and nothing waits without a reason."""

import random
from collections import Counter

import pytest
from amaranth.sim import Simulator

from hw.barrier.tx_coalescer import MAX_TX_BYTES, TxCoalescer
from hw.params import TmaParams
from tests.hw.simulate import Run, run_streams

ALONE = TmaParams()
CLUSTER = TmaParams(ctas=4, cta_group_2=True, mbarrier_v1=True, report_mechanism=True)
ENTRIES = ALONE.completions_waiting


def run_coalescer(items, params=ALONE, **options) -> Run:
    return run_streams(TxCoalescer(params), {"i": items}, ["o"], **options)


def barrier(item) -> tuple:
    """Return the barrier of an input or output: holder and address."""
    get = item.get if isinstance(item, dict) else lambda name, none: getattr(item, name, none)
    return get("holder", 0), get("address", 0)


def completion(number: int, address: int, tx_bytes: int = 16, **where: int) -> dict[str, int]:
    return {"request_id": number, "address": address, "tx_bytes": tx_bytes, **where}


def model(items, run: Run) -> list[tuple]:
    """Return the outputs, given the clocks of all transfers: barrier, bytes, whether one of the
    sum's completions reports, last request.
    """
    waiting: list[tuple] = []
    out = []
    arrivals = dict(zip(run.taken["i"], items, strict=True))
    incoming = None  # in the register behind ``i``
    leaves = set(run.cycles["o"])
    for clock in range(max(leaves) + 1):
        offered = waiting[:1]
        if (item := incoming) is not None and len(waiting) < ENTRIES:
            incoming = None
            named = item["request_id"], item.get("cta", 0)
            reports = item.get("reports", 0)
            for place in range(1, len(waiting)):
                where, total, reported, _ = waiting[place]
                if where == barrier(item) and total + item["tx_bytes"] <= MAX_TX_BYTES:
                    total += item["tx_bytes"]
                    waiting[place] = where, total, reported | reports, named
                    break
            else:
                waiting.append((barrier(item), item["tx_bytes"], reports, named))
                offered = waiting[:1]
        if clock in leaves:
            assert waiting[:1] == offered
            out.append(waiting.pop(0))
        assert len(waiting) <= ENTRIES
        if clock in arrivals:
            assert incoming is None
            incoming = arrivals[clock]
    assert not waiting
    assert incoming is None
    return out


def left(run: Run) -> list[tuple]:
    return [
        (barrier(o), o.tx_bytes, getattr(o, "reports", 0), (o.request_id, getattr(o, "cta", 0)))
        for o in run.payloads["o"]
    ]


@pytest.mark.parametrize("params", [ALONE, CLUSTER])
@pytest.mark.parametrize(("i_stall", "o_stall"), [(0, 0), (0, 0.5), (0.5, 0.5), (0, 0.9), (0.7, 0)])
@pytest.mark.parametrize("barriers", [1, 3, 12])
def test_sums_are_exact(params, i_stall, o_stall, barriers):
    rng = random.Random(barriers)
    items = []
    for number in range(150):
        where = {}
        if params.ctas > 1:
            where = {"holder": rng.randrange(2), "cta": rng.randrange(4)}
            where["reports"] = int(rng.random() < 0.2)
        tx_bytes = rng.choice([0, 16, 1024, MAX_TX_BYTES, MAX_TX_BYTES - 16, 1 << 19])
        items.append(completion(number, 8 * rng.randrange(barriers), tx_bytes, **where))
    run = run_coalescer(items, params, stalls={"i": i_stall, "o": o_stall})
    assert left(run) == model(items, run)
    sums: Counter = Counter()
    for item in items:
        sums[barrier(item)] += item["tx_bytes"]
    for o in run.payloads["o"]:
        sums[barrier(o)] -= o.tx_bytes
    assert not any(sums.values())


def test_a_latency_of_one_and_one_a_clock():
    items = [completion(n, 0) for n in range(100)]
    run = run_coalescer(items, stall=0)
    assert run.taken["i"] == list(range(100))
    assert run.cycles["o"] == list(range(1, 101))
    assert [o.request_id for o in run.payloads["o"]] == list(range(100))


def run_stuck(items, clocks: int) -> tuple[list[int], list]:
    """Stall ``o`` for ``clocks`` clocks. Return the clocks of the inputs, and the outputs."""
    dut = TxCoalescer(ALONE)
    taken: list[int] = []
    out: list = []
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        for clock in range(clocks + 20):
            ctx.set(dut.i.valid, len(taken) < len(items))
            if len(taken) < len(items):
                ctx.set(dut.i.payload, items[len(taken)])
            ctx.set(dut.o.ready, clock >= clocks)
            is_taken = ctx.get(dut.i.valid) and ctx.get(dut.i.ready)
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                o = ctx.get(dut.o.payload)
                out.append((clock, o.request_id, o.address, o.tx_bytes))
            await ctx.tick()
            if is_taken:
                taken.append(clock)

    sim.run()
    return taken, out


@pytest.mark.parametrize("number", [2, 3, 50])
def test_a_backlog_leaves_as_one(number):
    """The first is offered at ``o`` and must not change; the others leave as one."""
    items = [completion(n, 64, 32) for n in range(number)]
    taken, out = run_stuck(items, 60)
    assert taken == list(range(number))
    assert out == [(60, 0, 64, 32), (61, number - 1, 64, 32 * (number - 1))]


def test_backlogs_of_several_barriers_keep_the_order_of_their_first():
    items = [completion(n, address) for n, address in enumerate([0, 8, 16, 8, 16, 8, 24])]
    _, out = run_stuck(items, 20)
    assert out == [(20, 0, 0, 16), (21, 5, 8, 48), (22, 4, 16, 32), (23, 6, 24, 16)]


def test_a_sum_stays_within_what_one_may_have():
    items = [completion(n, 0, tx) for n, tx in enumerate([1, MAX_TX_BYTES - 1, 2, 1, MAX_TX_BYTES])]
    _, out = run_stuck(items, 20)
    assert [(number, total) for _, number, _, total in out] == [
        (0, 1),
        (3, MAX_TX_BYTES),
        (2, 2),
        (4, MAX_TX_BYTES),
    ]


def test_waits_while_all_entries_are_taken():
    full = [completion(n, 8 * n) for n in range(ENTRIES)]
    other = completion(9, 8 * ENTRIES)
    taken, out = run_stuck([*full[:-1], full[1], full[-1], full[2], other], 20)
    assert taken == [*range(ENTRIES + 2), 21]
    assert [total for *_, total in out] == [16, 32, 32, 16, 16]


def test_one_that_is_offered_is_not_added_to():
    full = [completion(n, 8 * n) for n in range(ENTRIES)]
    taken, out = run_stuck([*full, completion(9, 0)], 20)
    assert taken[-1] == ENTRIES
    assert [number for _, number, *_ in out] == [0, 1, 2, 3, 9]


def test_without_entries_the_ports_are_connected():
    dut = TxCoalescer(TmaParams(completions_waiting=0))
    sim = Simulator(dut)

    @sim.add_testbench
    async def drive(ctx):
        for number in range(8):
            valid, ready = number & 1, number >> 1 & 1
            ctx.set(dut.i.valid, valid)
            ctx.set(dut.i.payload, completion(number, 8, 16 * number))
            ctx.set(dut.o.ready, ready)
            await ctx.delay(1e-9)
            o = ctx.get(dut.o.payload)
            assert (ctx.get(dut.o.valid), ctx.get(dut.i.ready)) == (valid, ready)
            assert (o.request_id, o.address, o.tx_bytes) == (number, 8, 16 * number)

    sim.run()
