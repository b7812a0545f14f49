"""Permutations of lanes: every lane is where the amount puts it."""

import random
from collections.abc import Callable

import pytest
from amaranth.hdl import Cat

from hw.lib.permute import exchange, rotate
from tests.hw.simulate import evaluate

LANE_BITS = 5


def permuted(function: Callable, lanes: int, samples: list[tuple]) -> list[list[int]]:
    """Lanes of the RTL's permutation for each sample of an amount and the lanes."""

    def build(m, amount, *signals):
        return Cat(function(m, signals, amount, "permuted"))

    words = evaluate(build, [(lanes - 1).bit_length(), *[LANE_BITS] * lanes], samples)
    mask = (1 << LANE_BITS) - 1
    return [[word >> LANE_BITS * lane & mask for lane in range(lanes)] for word in words]


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("function", "place"),
    [
        (exchange, lambda lane, amount, _lanes: lane ^ amount),
        (rotate, lambda lane, amount, lanes: (lane + amount) % lanes),
    ],
    ids=["exchange", "rotate"],
)
def test_each_amount(function, place, lanes):
    rng = random.Random(lanes)
    samples = [
        (amount, *(rng.randrange(1 << LANE_BITS) for _ in range(lanes)))
        for amount in range(lanes)
        for _ in range(5)
    ]
    wanted = []
    for amount, *values in samples:
        result = [0] * lanes
        for lane, value in enumerate(values):
            result[place(lane, amount, lanes)] = value
        wanted.append(result)
    assert permuted(function, lanes, samples) == wanted
