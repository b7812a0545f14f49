"""Completion tracker: one end for each request, at its last piece."""

import random
from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from golden.errors import ErrorCode
from hw.completion_tracker import CompletionTracker
from hw.params import TmaParams

PARAMS = TmaParams(requests_in_flight=4)
RANK = 2


@pytest.mark.parametrize("ctas", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_every_request_ends_once_with_all_its_bytes(seed, ctas):
    """In a cluster, remote requests end without a completion, and may find a receiver gone."""
    rng = random.Random(seed)
    params = replace(PARAMS, ctas=ctas)
    dut = CompletionTracker(params)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    totals = [rng.choice((1, 2, 9, 100)) for _ in range(80)]
    walks = [
        (n, k, last) for n in range(80) for last in [rng.randint(0, 2)] for k in range(last + 1)
    ]
    broken = {n for n in range(80) if rng.random() < 0.15}
    remote = {n for n in range(80) if ctas > 1 and rng.random() < 0.5}
    lonely = {n for n in remote if n not in broken and rng.random() < 0.3}
    holders = [rng.randrange(ctas) for _ in range(80)]
    opened: list[int] = []
    completed: list[tuple[int, int]] = []
    errors: list[tuple[int, int, int]] = []

    @sim.add_testbench
    async def bench(ctx):
        passed = 0
        slots: dict[int, int] = {}
        left: dict[int, list[int]] = {}  # slot -> [request, pieces left]
        ending: set[int] = set()
        faults: dict[int, int] = {}  # slot -> line, to be reported before the last piece
        gone: dict[int, int] = {}  # slot -> receiver, likewise
        telling = None
        now = None
        if ctas > 1:
            ctx.set(dut.cta_rank, RANK)
        for _ in range(6000):
            ctx.set(dut.i.valid, passed < len(walks))
            if passed < len(walks):
                request, walk, last = walks[passed]
                transfer = {
                    "request_id": request,
                    "mbarrier": 8 * request,
                    "pieces": totals[request],
                }
                if ctas > 1:
                    delivery = {"remote": request in remote, "signal_cta": holders[request]}
                    transfer["delivery"] = delivery
                ctx.set(dut.i.p.transfer, transfer)
                ctx.set(dut.i.p.first, walk == 0)
                ctx.set(dut.i.p.last, walk == last)
            ctx.set(dut.o.ready, rng.random() < 0.8)
            ctx.set(dut.completion.ready, rng.random() < 0.6)
            ctx.set(dut.error.ready, rng.random() < 0.6)

            ctx.set(dut.fault.valid, 0)
            if faults and rng.random() < 0.3:
                slot, line = faults.popitem()
                ctx.set(dut.fault.p, {"slot": slot, "line": line})
                ctx.set(dut.fault.valid, 1)
                assert ctx.get(dut.fault.ready)
            elif now is None and left and rng.random() < 0.8:
                slot = rng.choice(list(left))
                most = left[slot][1] - (slot in faults or slot in gone)
                pieces = min(most, rng.randint(1, 8))
                if pieces:
                    now = (slot, pieces)
                    ctx.set(dut.written.p, {"slot": slot, "pieces": pieces})
            ctx.set(dut.written.valid, now is not None)
            if ctas > 1:
                if telling is None and gone and rng.random() < 0.3:
                    telling, receiver = gone.popitem()
                    ctx.set(dut.gone.p, {"slot": telling, "receiver": receiver})
                    gone[telling] = receiver  # until it is taken
                ctx.set(dut.gone.valid, telling is not None)
                if telling is not None and ctx.get(dut.gone.ready):
                    del gone[telling]
                    telling = None
                if ctx.get(dut.opened.valid):
                    opened.append(ctx.get(dut.opened.transfer.request_id))
                    assert ctx.get(dut.opened.slot) == ctx.get(dut.o.p.slot)

            if ctx.get(dut.completion.valid) and ctx.get(dut.completion.ready):
                end = ctx.get(dut.completion.p)
                completed.append((end.address // 8, end.tx_bytes))
                if ctas > 1:
                    assert (end.cta, end.holder) == (RANK, holders[end.request_id])
                assert end.address // 8 in ending
            if ctx.get(dut.error.valid) and ctx.get(dut.error.ready):
                record = ctx.get(dut.error.p)
                errors.append((record.request_id, record.code.value, record.value))
                assert record.request_id in ending
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                slot = ctx.get(dut.o.p.slot)
                assert ctx.get(dut.o.p.last) == (walk == last)
                if walk == 0:
                    assert slot not in slots, "a slot given twice"
                    slots[slot] = request
                assert slots[slot] == request, "the walks of a request under two slots"
                if walk == last:
                    left[slot] = [request, totals[request]]
                    if request in broken:
                        faults[slot] = 1000 + request
                    if request in lonely:
                        gone[slot] = request % ctas
                passed += 1
            if now and ctx.get(dut.written.ready):
                slot, pieces = now
                left[slot][1] -= pieces
                if left[slot][1] == 0:
                    ending.add(left.pop(slot)[0])
                    del slots[slot]
                now = None
            await ctx.tick()
            ends = len(completed) + len(errors) + len(remote - broken - lonely)
            if ends == len(totals) and passed == len(walks) and not left:
                return
        raise AssertionError("requests without an end")

    sim.run()
    whole = [n for n in range(len(totals)) if n not in broken | remote]
    assert sorted(completed) == [(n, 16 * totals[n]) for n in whole]
    expected = [(n, ErrorCode.GMEM_FAULT, (1000 + n) * PARAMS.line_bytes) for n in broken]
    expected += [(n, ErrorCode.DST_CTA, n % ctas) for n in lonely]
    assert sorted(errors) == sorted(expected)
    assert opened == ([] if ctas == 1 else list(range(80)))


def test_one_report_a_clock_on_one_slot():
    dut = CompletionTracker(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def bench(ctx):
        ctx.set(dut.i.p.transfer, {"request_id": 1, "mbarrier": 8, "pieces": 64})
        ctx.set(dut.i.p.first, 1)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        slot = ctx.get(dut.o.p.slot)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.written.p, {"slot": slot, "pieces": 1})
        ctx.set(dut.written.valid, 1)
        for _ in range(64):
            assert ctx.get(dut.written.ready)
            assert not ctx.get(dut.completion.valid)
            await ctx.tick()
        ctx.set(dut.written.valid, 0)
        assert ctx.get(dut.completion.valid)
        assert ctx.get(dut.completion.p.tx_bytes) == 1024

    sim.run()
