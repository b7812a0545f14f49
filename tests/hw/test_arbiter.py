"""Arbiter: everything arrives, by way in order."""

import random

import pytest

from hw.arbiter import Arbiter
from tests.hw.simulate import run_streams


class Ports(Arbiter):
    """Names the ways, for the simulation."""

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
    """Of two that always wait, each goes every second time."""
    inputs = {f"way_{way}": [way] * 20 for way in range(2)}
    run = run_streams(Ports(8, 2), inputs, ["o"], stall=0)
    assert run.payloads["o"] == [0, 1] * 20
