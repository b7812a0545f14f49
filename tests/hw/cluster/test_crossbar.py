"""Crossbar: every payload arrives, in order and at full rate, and receivers are independent."""

import random
from itertools import chain

import pytest
from amaranth.sim import Simulator

from hw.cluster.crossbar import Crossbar
from tests.hw.simulate import run_streams, simulation
from tests.quick import quick

PAYLOADS = 1 << 16
SPREAD = 0x9E37
"""Odd factor: products of small numbers, modulo ``PAYLOADS``, have any bits."""


class Ports(Crossbar):
    """Crossbar with a name for each port, which the simulation needs."""

    def __getattr__(self, name):
        if name.startswith(("in_", "out_")):
            side, number = name.split("_")
            return {"in": self.i, "out": self.o}[side][int(number)]
        raise AttributeError(name)


def traffic(masks: list[list[int]]) -> dict[str, list[dict[str, int]]]:
    """Return payloads with these masks, by sender. A payload holds its sender and its position."""
    return {
        f"in_{cta}": [
            {"mask": mask, "payload": 1024 * cta + place} for place, mask in enumerate(sent)
        ]
        for cta, sent in enumerate(masks)
    }


def check(masks: list[list[int]], run, *, complete: bool = True) -> None:
    """Check that each receiver got its payloads of each sender in order; all, if ``complete``."""
    for receiver in range(len(masks)):
        got = run.payloads[f"out_{receiver}"]
        for sender, sent in enumerate(masks):
            wanted = [place for place, mask in enumerate(sent) if mask >> receiver & 1]
            mine = [item % 1024 for item in got if item // 1024 == sender]
            assert mine == (wanted if complete else wanted[: len(mine)]), (sender, receiver)


def simulate(masks, **options):
    """Run a crossbar with payloads of ``masks``. They go through it as products with ``SPREAD``."""
    ctas = len(masks)
    outs = [f"out_{cta}" for cta in range(ctas)]
    inputs = traffic(masks)
    for item in chain(*inputs.values()):
        item["payload"] = item["payload"] * SPREAD % PAYLOADS
    block = simulation(Ports, 16, ctas, depth=options.pop("depth", 2))
    run = run_streams(block, inputs, outs, **options)
    inverse = pow(SPREAD, -1, PAYLOADS)
    for out in outs:
        run.payloads[out] = [item * inverse % PAYLOADS for item in run.payloads[out]]
    return run


def after(clocks: int):
    """Return a condition that ends a run after ``clocks`` clocks."""
    left = iter(range(clocks))
    return lambda _run: next(left, None) is None


@pytest.mark.parametrize(("ctas", "depth"), [(1, 2), (2, 2), (3, 1), (3, 2), (4, 5), (16, 2)])
@pytest.mark.parametrize("seed", quick(range(3), 1))
def test_all_arrives_in_order(ctas, depth, seed):
    """Random masks, also 0, and ports of different speeds."""
    rng = random.Random(1000 * ctas + 10 * depth + seed)
    full = (1 << ctas) - 1
    masks = [
        [
            rng.choice((0, full, 1 << rng.randrange(ctas), rng.randrange(full + 1)))
            for _ in range(rng.choice((0, 60 // ctas, 240 // ctas)))
        ]
        for _ in range(ctas)
    ]
    ports = [f"{side}_{cta}" for side in ("in", "out") for cta in range(ctas)]
    stalls = {port: rng.choice((0, 0.3, 0.8)) for port in ports}
    run = simulate(masks, depth=depth, seed=seed, stalls=stalls)
    check(masks, run)


PATTERNS = {
    "one to all": lambda ctas: [[(1 << ctas) - 1] * 64 if cta == 1 else [] for cta in range(ctas)],
    "all to all": lambda ctas: [[(1 << ctas) - 1] * (64 // ctas) for _ in range(ctas)],
    "two to all": lambda ctas: [[(1 << ctas) - 1] * (32 if cta < 2 else 0) for cta in range(ctas)],
    "a permutation": lambda ctas: [[1 << (3 * cta + 1) % ctas] * 64 for cta in range(ctas)],
    "all to one": lambda ctas: [[1] * (64 // ctas) for _ in range(ctas)],
    "pairs": lambda ctas: [[3 << (cta & ~1)] * 32 for cta in range(ctas)],
}


@pytest.mark.parametrize("ctas", [2, 4, 8])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_payload_a_clock_at_every_receiver(pattern, ctas):
    masks = PATTERNS[pattern](ctas)
    run = simulate(masks, stall=0)
    check(masks, run)
    for cta in range(ctas):
        cycles = run.cycles[f"out_{cta}"]
        count = sum(mask >> cta & 1 for sent in masks for mask in sent)
        assert cycles == list(range(2, 2 + count))  # the first was accepted in clock 0


def test_no_clock_is_lost_once_all_have_caught_up():
    """All to all: a receiver that starts early gets only the senders' oldest payloads ahead."""
    ctas, opens = 4, (0, 9, 30, 17)
    masks = [[15] * 40 for _ in range(ctas)]
    dut = Ports(16, ctas)
    got: list[list[int]] = [[] for _ in range(ctas)]
    cycles: list[list[int]] = [[] for _ in range(ctas)]
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        left = [list(sent) for sent in traffic(masks).values()]
        for cycle in range(30 + 4 * 40 + 10):
            for cta in range(ctas):
                ctx.set(dut.o[cta].ready, cycle >= opens[cta])
                ctx.set(dut.i[cta].valid, bool(left[cta]))
                if left[cta]:
                    ctx.set(dut.i[cta].payload, left[cta][0])
            for cta in range(ctas):
                if ctx.get(dut.i[cta].ready) and left[cta]:
                    left[cta].pop(0)
                if ctx.get(dut.o[cta].valid) and ctx.get(dut.o[cta].ready):
                    got[cta].append(ctx.get(dut.o[cta].payload))
                    cycles[cta].append(cycle)
            await ctx.tick()

    sim.run()
    # Before the last receiver began, each of the others was given the oldest payload of each sender
    # and the last one's queue took two.
    assert [sum(cycle < 30 for cycle in mine) for mine in cycles] == [6, 6, 0, 6]
    assert cycles[2] == list(range(30, 30 + 160))
    for mine in cycles:
        assert mine[-1] <= cycles[2][-1]
        assert len(mine) == 160
    for cta in 0, 1, 3:
        # It had four more payloads than the last receiver; then it is given one a clock.
        late = [cycle for cycle in cycles[cta] if cycle >= 40]
        assert late == list(range(40, late[-1] + 1))


def test_turns_are_taken():
    """Every receiver serves senders that always wait round robin, whatever the others do."""
    for stall in 0, 0.5:
        run = simulate([[1] * 20 for _ in range(4)], stall=0, stalls={"out_0": stall})
        assert [item // 1024 for item in run.payloads["out_0"]] == [0, 1, 2, 3] * 20
    # One sends to all, and each of the others to a receiver of its own.
    masks = [[15] * 30, *([1 << cta] * 30 for cta in range(1, 4))]
    run = simulate(masks, stall=0)
    check(masks, run)
    for cta in range(1, 4):
        assert [item // 1024 for item in run.payloads[f"out_{cta}"]] == [0, cta] * 30


@pytest.mark.parametrize("depth", [2, 4])
def test_a_receiver_that_never_takes(depth):
    """A blocked receiver stalls only the senders whose oldest payload is for it."""
    masks = [
        [6] * 100,  # 0 never sends to receiver 3
        [1] * 100,  # nor does 1,
        [4, 12, 12, 4, 4] * 20,  # but 2 does,
        [2, 2, 8, 2] * 25,  # and 3.
    ]
    run = simulate(masks, stall=0, stalls={"out_3": 1}, until=after(150), depth=depth)
    check(masks, run, complete=False)
    assert run.payloads["out_3"] == []
    # The queue of receiver 3 holds the first ``depth`` of 2, 3, 2, 3, ...; of the next payload of
    # each, what is for others is delivered.
    in_queue = [[1, 2], [2, 6]] if depth == 4 else [[1], [2]]
    stuck = [index for index in range(10) if masks[2][index] >> 3][len(in_queue[0])], 10
    mine = [item % 1024 for item in run.payloads["out_2"] if item // 1024 == 2]
    assert mine == list(range(stuck[0] + 1))
    theirs = [item % 1024 for item in run.payloads["out_1"] if item // 1024 == 3]
    blocked = [place for place, mask in enumerate(masks[3]) if mask == 8][len(in_queue[1])]
    assert theirs == [place for place in range(blocked) if masks[3][place] == 2]
    assert len(run.taken["in_2"]) == stuck[0] + depth
    assert len(run.taken["in_3"]) == blocked + depth
    # The others' traffic flows: all of it, a payload a clock.
    assert run.cycles["out_0"] == list(range(2, 102))
    zero = [
        c for c, i in zip(run.cycles["out_1"], run.payloads["out_1"], strict=True) if i // 1024 == 0
    ]
    assert len(zero) == 100
    assert zero[-1] <= 101 + len(theirs) + len(mine)


def test_an_empty_mask_costs_a_clock_of_its_sender():
    """A payload for no receiver does not enter the queue of its sender."""
    masks = [[0, 0, 1, 0, 0, 0, 1], []]
    run = simulate(masks, stall=0)
    assert run.taken["in_0"] == list(range(7))
    assert run.cycles["out_0"] == [4, 8]
    assert run.payloads["out_0"] == [2, 6]
    run = simulate([[1] * 3 + [0] * 50, []], stall=0, stalls={"out_0": 1}, until=after(80))
    assert len(run.taken["in_0"]) == 53
