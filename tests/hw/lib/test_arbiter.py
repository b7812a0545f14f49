"""Arbiter: every payload arrives, and those of an input arrive in order."""

import random
from itertools import combinations, pairwise

import pytest
from amaranth.lib import data

from hw.lib.arbiter import Arbiter
from tests.hw.simulate import Simulation, run_streams


class Ports(Arbiter):
    """Arbiter whose inputs are the ports ``way_0`` and so on, for the simulation."""

    def __getattr__(self, name):
        if name.startswith("way_"):
            return self.i[int(name[4:])]
        raise AttributeError(name)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_lost_nothing_reordered(seed):
    rng = random.Random(seed)
    inputs = {f"way_{way}": [rng.randrange(64) * 4 + way for _ in range(50)] for way in range(3)}
    run = run_streams(Ports(8, 3), inputs, ["o"], seed=seed)
    for way in range(3):
        assert [item for item in run.payloads["o"] if item % 4 == way] == inputs[f"way_{way}"]


def test_turns_are_taken():
    """Two inputs that are always valid are chosen alternately."""
    inputs = {f"way_{way}": [way] * 20 for way in range(2)}
    run = run_streams(Ports(8, 2), inputs, ["o"], stall=0)
    assert run.payloads["o"] == [0, 1] * 20


@pytest.mark.parametrize("seed", range(3))
def test_packets_are_not_parted(seed):
    rng = random.Random(seed)
    packet = data.StructLayout({"last": 1, "way": 2, "number": 8})
    inputs = {}
    for way in range(3):
        lasts = [rng.random() < 0.4 for _ in range(60)] + [True]
        inputs[f"way_{way}"] = [
            {"last": last, "way": way, "number": number} for number, last in enumerate(lasts)
        ]
    run = run_streams(Ports(packet, 3, packets=True), inputs, ["o"], seed=seed)
    got = run.payloads["o"]
    assert len(got) == 183
    for item, following in pairwise(got):
        assert item.last or (following.way, following.number) == (item.way, item.number + 1)


@pytest.mark.parametrize("ways", range(2, 6))
def test_the_next_valid_input_is_chosen(ways):
    """Any inputs are valid in any clock; all payloads are taken."""
    dut = Arbiter(8, ways)
    rng = random.Random(ways)

    async def drive(ctx):
        last = ways - 1
        for _ in range(400):
            valid = [rng.random() < 0.5 for _ in range(ways)]
            for way in range(ways):
                ctx.set(dut.i[way].valid, valid[way])
                ctx.set(dut.i[way].payload, way)
            ctx.set(dut.o.ready, 1)
            assert ctx.get(dut.o.valid) == any(valid)
            if any(valid):
                last = next(
                    way for way in ((last + 1 + n) % ways for n in range(ways)) if valid[way]
                )
                assert ctx.get(dut.o.payload) == last
                assert [ctx.get(i.ready) for i in dut.i] == [way == last for way in range(ways)]
            await ctx.tick()

    Simulation(dut).run(drive)


@pytest.mark.parametrize("ways", range(2, 6))
def test_any_inputs_take_turns(ways):
    """Any set of inputs that are always valid are chosen in their order."""
    for size in range(2, ways + 1):
        for chosen in combinations(range(ways), size):
            inputs = {f"way_{way}": [way] * 10 for way in chosen}
            run = run_streams(Ports(8, ways), inputs, ["o"], stall=0)
            assert run.payloads["o"] == [*chosen] * 10
