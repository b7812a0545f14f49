"""Tags: none is in flight twice, and answers that belong to no access are found."""

import random

import pytest
from amaranth.sim import Simulator

from hw.lib.queue import SMALL
from hw.lib.tags import Tags
from hw.params import TmaParams


def params_of(tags: int) -> TmaParams:
    return TmaParams(line_bytes=16, tags=tags, requests_in_flight=2, stores=False, reductions=False)


@pytest.mark.parametrize("tags", [2, 4, 64])
@pytest.mark.parametrize("seed", range(2))
def test_wrong_and_doubled_answers(tags: int, seed: int) -> None:
    """Half of the answers have a random tag: it is wrong unless that tag is in flight.

    In turn, more tags are taken than answered, and more answered than taken. A tag can be taken
    again in the clock after its answer, or with many tags three clocks later; the last one too.
    """
    latest = 0 if tags <= SMALL else 3
    rng = random.Random(seed)
    dut = Tags(params_of(tags))
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    wrong = right = 0
    levels = set()  # numbers of tags in flight

    @sim.add_testbench
    async def drive(ctx):
        nonlocal wrong, right
        in_flight: set[int] = set()
        answered_at = dict.fromkeys(range(tags), 1)  # of the tags that are free
        for clock in range(400 * tags):
            taken = None
            rate = 0.2 if clock // (10 * tags) % 2 else 0.6
            ctx.set(dut.taken.ready, rng.random() < rate)
            if any(clock - answered_at[tag] > latest for tag in answered_at):
                assert ctx.get(dut.taken.valid), "no free tag is offered"
            if ctx.get(dut.taken.valid) and ctx.get(dut.taken.ready):
                taken = ctx.get(dut.taken.payload)
                assert taken not in in_flight, "a tag in flight twice"
            answer = None
            if rng.random() < 0.6:
                known = in_flight and rng.random() < 0.5
                answer = rng.choice(sorted(in_flight)) if known else rng.randrange(tags)
                if taken is not None and rng.random() < 0.1:
                    answer = taken  # too early
            ctx.set(dut.answer.valid, answer is not None)
            ctx.set(dut.answer.payload, answer or 0)
            await ctx.tick()
            if answer is not None:
                assert ctx.get(dut.wrong) == (answer not in in_flight)
                wrong += answer not in in_flight
                right += answer in in_flight
                if answer in in_flight:
                    answered_at[answer] = clock
                in_flight.discard(answer)
            if taken is not None:
                in_flight.add(taken)
                del answered_at[taken]
            levels.add(len(in_flight))

    sim.run()
    assert min(wrong, right) > 20 * tags
    assert {tags // 4, tags} <= levels


@pytest.mark.parametrize("seed", range(3))
def test_after_a_reset(seed: int) -> None:
    """Generations are random at first; answers are wrong during the clearing and afterwards."""
    tags = 8
    rng = random.Random(seed)
    dut = Tags(params_of(tags))
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        # What another life left: all tags taken, some of them answered, each several times.
        for _ in range(50):
            ctx.set(dut.taken.ready, rng.random() < 0.7)
            ctx.set(dut.answer.valid, rng.random() < 0.5)
            ctx.set(dut.answer.payload, rng.randrange(tags))
            await ctx.tick()
        ctx.set(dut.taken.ready, 0)
        ctx.set(dut.answer.valid, 1)
        for clock in range(4 * tags):
            ctx.set(dut.clear.enabled, clock < tags)
            ctx.set(dut.clear.row, clock % tags)
            ctx.set(dut.answer.payload, rng.randrange(tags))
            await ctx.tick()
            assert ctx.get(dut.wrong)

    sim.run()


@pytest.mark.parametrize(("tags", "clocks"), [(2, 1), (64, 2)])
def test_a_tag_is_free_soon_after_its_answer(tags: int, clocks: int) -> None:
    dut = Tags(params_of(tags))
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        ctx.set(dut.taken.ready, 1)
        await ctx.tick().repeat(2 * tags + 8)
        ctx.set(dut.answer.valid, 1)
        ctx.set(dut.answer.payload, 1)
        for _ in range(clocks):
            assert not ctx.get(dut.taken.valid)
            await ctx.tick()
            ctx.set(dut.answer.valid, 0)
        assert ctx.get(dut.taken.valid)
        assert ctx.get(dut.taken.payload) == 1

    sim.run()
