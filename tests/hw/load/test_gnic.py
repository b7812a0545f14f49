"""GNIC port: tags, out-of-order answers, read faults."""

import random
from collections import deque
from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from hw.load.gnic import Gnic
from hw.params import TmaParams

PARAMS = TmaParams(line_bytes=16, tags=4, requests_in_flight=2)
LINES = 200


def use_of(line: int) -> dict:
    return {
        "slot": line % 2,
        "style": {"swizzle": line % 4, "fill": line % 2, "round_tf32": line // 2 % 2},
        "origin": line * 7 % (1 << 20),
        "valid": 1,
        "tail": line % 2,
        "tail_bytes": line % 16,
    }


@pytest.mark.parametrize("seed", range(4))
def test_every_line_comes_back_with_its_use(seed):
    rng = random.Random(seed)
    dut = Gnic(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    arrived: dict[int, object] = {}
    failed: list[int] = []
    passed: list[int] = []  # lines that left in the clock before
    most_in_flight = 0

    @sim.add_testbench
    async def drive(ctx):
        nonlocal most_in_flight
        sent = 0
        admitted = False
        memory: dict[int, int] = {}  # tag -> line
        while len(arrived) < LINES or passed:
            ctx.set(dut.i.valid, sent < LINES)
            ctx.set(dut.i.p, {"line": 1000 + sent, "use": use_of(1000 + sent)})
            ctx.set(dut.request.ready, rng.random() < 0.7)
            admits_next = rng.random() < 0.7
            ctx.set(dut.admits_next, admits_next)
            ctx.set(dut.fault.ready, 1)
            answered = None
            if not memory or rng.random() < 0.4:
                ctx.set(dut.response.valid, 0)
            else:
                answered = rng.choice(list(memory))
                line = memory[answered]
                ctx.set(dut.response.p, {"tag": answered, "data": line * 3, "error": line % 5 == 0})
                ctx.set(dut.response.valid, 1)
            if ctx.get(dut.i.ready) and sent < LINES:
                sent += 1
            if ctx.get(dut.request.valid) and ctx.get(dut.request.ready):
                tag = ctx.get(dut.request.p.tag)
                assert tag not in memory, "a tag in flight twice"
                memory[tag] = ctx.get(dut.request.p.line)
            most_in_flight = max(most_in_flight, len(memory))
            if ctx.get(dut.fault.valid):
                failed.append(ctx.get(dut.fault.p.line))
            # A fault is reported at the latest in the clock behind that in which its line leaves.
            assert all((line in failed) == (line % 5 == 0) for line in passed)
            passed.clear()
            if ctx.get(dut.o.valid):
                payload = ctx.get(dut.o.p)
                line = payload.data[0] // 3
                assert line not in arrived
                assert payload.failed == (line % 5 == 0)
                arrived[line] = payload.use
                passed.append(line)
            assert ctx.get(dut.response.ready) == admitted
            if answered is not None and admitted:
                del memory[answered]
            admitted = admits_next
            await ctx.tick()

    sim.run()
    expected = range(1000, 1000 + LINES)
    assert sorted(arrived) == list(expected)
    for line, use in arrived.items():
        wanted = use_of(line)
        assert (use.slot, use.origin, use.valid) == (wanted["slot"], wanted["origin"], 1)
        assert (use.tail, use.tail_bytes) == (wanted["tail"], wanted["tail_bytes"])
        assert use.style.swizzle.value == wanted["style"]["swizzle"]
    assert sorted(failed) == [line for line in expected if line % 5 == 0]
    assert most_in_flight == PARAMS.tags


def test_as_many_tags_as_clocks_of_latency_are_almost_a_line_a_clock():
    """A tag is in use from its request to the second clock after the response."""
    params = replace(PARAMS, tags=64)
    dut = Gnic(params)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    clocks = 10 * params.tags
    asked = 0

    @sim.add_testbench
    async def drive(ctx):
        nonlocal asked
        answers: deque = deque([None] * params.tags)
        for port in (dut.i.valid, dut.request.ready, dut.admits_next, dut.fault.ready):
            ctx.set(port, 1)
        for _ in range(clocks):
            tag = answers.popleft()
            ctx.set(dut.response.valid, tag is not None)
            ctx.set(dut.response.p.tag, tag or 0)
            asks = ctx.get(dut.request.valid)
            answers.append(ctx.get(dut.request.p.tag) if asks else None)
            asked += asks
            await ctx.tick()

    sim.run()
    assert asked >= clocks * params.tags // (params.tags + 2) - 1


@pytest.mark.parametrize("seed", range(3))
def test_wrong_tags_are_dropped_and_reported(seed):
    """Responses of random tags among the right ones: only those of tags in flight arrive."""
    rng = random.Random(seed)
    dut = Gnic(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    arrived: list[int] = []
    expected: list[int] = []
    wrong: list[int] = []
    reported: list[int] = []

    @sim.add_testbench
    async def drive(ctx):
        sent = 0
        memory: dict[int, int] = {}  # tag -> line
        offered = None
        admitted = False
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.fault.ready, 1)
        for clock in range(3000):
            last = clock > 2950
            ctx.set(dut.i.p, {"line": sent, "use": use_of(sent)})
            ctx.set(dut.request.ready, rng.random() < 0.7)
            admits_next = last or rng.random() < 0.7
            ctx.set(dut.admits_next, admits_next)
            ctx.set(dut.wrong_tag.ready, last or rng.random() < 0.5)
            if offered is None and not last and rng.random() < 0.6:
                right = memory and rng.random() < 0.6
                offered = rng.choice(list(memory)) if right else rng.randrange(PARAMS.tags)
                ctx.set(dut.response.p, {"tag": offered, "data": memory.get(offered, 0)})
            ctx.set(dut.response.valid, offered is not None)
            taken = offered is not None and ctx.get(dut.response.ready)
            asks = ctx.get(dut.request.valid) and ctx.get(dut.request.ready)
            tag = ctx.get(dut.request.p.tag)
            sent += ctx.get(dut.i.ready)
            if ctx.get(dut.wrong_tag.valid) and ctx.get(dut.wrong_tag.ready):
                reported.append(ctx.get(dut.wrong_tag.payload))
            if ctx.get(dut.o.valid):
                arrived.append(ctx.get(dut.o.p.use.origin))
            assert admitted or not taken
            admitted = admits_next
            if taken:
                if offered in memory:
                    expected.append(use_of(memory.pop(offered))["origin"])
                else:
                    wrong.append(offered)
                offered = None
            if asks:
                assert tag not in memory, "a tag in flight twice"
                memory[tag] = ctx.get(dut.request.p.line)
            await ctx.tick()

    sim.run()
    assert arrived == expected
    assert reported == wrong
    assert min(len(arrived), len(reported)) > 100
