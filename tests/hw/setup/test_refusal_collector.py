"""Refusal collector: every refusal arrives once, and frees its channel once."""

import random
from collections import Counter

import pytest
from amaranth.sim import Simulator

from hw.layouts.isa import ErrorCode
from hw.params import TmaParams
from hw.setup.refusal_collector import RefusalCollector
from tests.hw.simulate import run_streams

PARAMS = TmaParams()


def refusals_of(rng: random.Random, first_id: int) -> list[dict]:
    return [
        {
            "request_id": first_id + number,
            "code": ErrorCode.SMEM_ALIGN,
            "value": rng.randrange(1 << 40),
            "channel": rng.randrange(PARAMS.channels),
        }
        for number in range(40)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_lost_and_order_kept(seed: int) -> None:
    rng = random.Random(seed)
    inputs = {"tensor": refusals_of(rng, 0), "bulk": refusals_of(rng, 1000)}
    run = run_streams(RefusalCollector(PARAMS), inputs, ["o"], seed=seed)
    for given in inputs.values():
        ids = [refusal["request_id"] for refusal in given]
        arrived = [refusal for refusal in run.payloads["o"] if refusal.request_id in ids]
        assert [(r.request_id, r.value, r.channel) for r in arrived] == [
            (refusal["request_id"], refusal["value"], refusal["channel"]) for refusal in given
        ]


@pytest.mark.parametrize("seed", range(2))
def test_each_refusal_frees_its_channel(seed: int) -> None:
    """``refused`` has one bit set in exactly those clocks before which a refusal is taken."""
    rng = random.Random(seed)
    refusals = refusals_of(rng, 0)
    dut = RefusalCollector(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    freed: Counter[int] = Counter()

    @sim.add_testbench
    async def drive(ctx) -> None:
        pending = list(refusals)
        taken_channel = None
        for _ in range(400):
            if not ctx.get(dut.tensor.valid) and pending and rng.random() < 0.7:
                ctx.set(dut.tensor.payload, pending.pop(0))
                ctx.set(dut.tensor.valid, 1)
            ctx.set(dut.o.ready, rng.random() < 0.5)
            wanted = 0 if taken_channel is None else 1 << taken_channel
            assert ctx.get(dut.refused) == wanted
            taken_channel = None
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                taken_channel = ctx.get(dut.o.p.channel)
                freed[taken_channel] += 1
            taken = ctx.get(dut.tensor.valid) and ctx.get(dut.tensor.ready)
            await ctx.tick()
            if taken:
                ctx.set(dut.tensor.valid, 0)

    sim.run()
    assert freed == Counter(refusal["channel"] for refusal in refusals)
