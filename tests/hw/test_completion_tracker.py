"""Completion tracker: one end for each request, at its last piece."""

import random

import pytest
from amaranth.sim import Simulator

from golden.errors import ErrorCode
from hw.completion_tracker import CompletionTracker
from hw.params import TmaParams

PARAMS = TmaParams(requests_in_flight=4)


@pytest.mark.parametrize("seed", range(6))
def test_every_request_ends_once_with_all_its_bytes(seed):
    rng = random.Random(seed)
    dut = CompletionTracker(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    totals = [rng.choice((1, 2, 9, 100)) for _ in range(80)]
    walks = [
        (n, k, last) for n in range(80) for last in [rng.randint(0, 2)] for k in range(last + 1)
    ]
    broken = {n for n in range(80) if rng.random() < 0.15}
    completed: list[tuple[int, int]] = []
    errors: list[tuple[int, int, int]] = []

    @sim.add_testbench
    async def bench(ctx):
        passed = 0
        slots: dict[int, int] = {}
        left: dict[int, list[int]] = {}  # slot -> [request, pieces left]
        ending: set[int] = set()
        faults: dict[int, int] = {}  # slot -> line, to be reported before the last piece
        now = None
        for _ in range(6000):
            ctx.set(dut.i.valid, passed < len(walks))
            if passed < len(walks):
                request, walk, last = walks[passed]
                transfer = {
                    "request_id": request,
                    "mbarrier": 8 * request,
                    "pieces": totals[request],
                }
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
                most = left[slot][1] - (slot in faults)
                pieces = min(most, rng.randint(1, 8))
                if pieces:
                    now = (slot, pieces)
                    ctx.set(dut.written.p, {"slot": slot, "pieces": pieces})
            ctx.set(dut.written.valid, now is not None)

            if ctx.get(dut.completion.valid) and ctx.get(dut.completion.ready):
                end = ctx.get(dut.completion.p)
                completed.append((end.address // 8, end.tx_bytes))
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
                passed += 1
            if now and ctx.get(dut.written.ready):
                slot, pieces = now
                left[slot][1] -= pieces
                if left[slot][1] == 0:
                    ending.add(left.pop(slot)[0])
                    del slots[slot]
                now = None
            await ctx.tick()
            if len(completed) + len(errors) == len(totals):
                return

    sim.run()
    whole = [n for n in range(len(totals)) if n not in broken]
    assert sorted(completed) == [(n, 16 * totals[n]) for n in whole]
    expected = [(n, ErrorCode.GMEM_FAULT, (1000 + n) * PARAMS.line_bytes) for n in sorted(broken)]
    assert sorted(errors) == expected


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
