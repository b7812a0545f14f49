"""Permutations of lanes: every lane is where the amount puts it."""

import random
from collections.abc import Callable

import pytest
from amaranth.hdl import Cat

from hw.lib.permute import exchange, gather, rotate
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


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_each_start_and_mask_of_gather(lanes):
    bits = (lanes - 1).bit_length()

    values = [lane + 1 for lane in range(lanes)]
    cases = [(start, mask) for start in range(lanes) for mask in range(lanes)]

    def build(m, amount, *signals):
        return Cat(gather(m, signals, amount[:bits], amount[bits:], "gathered"))

    samples = [(start | mask << bits, *values) for start, mask in cases]
    words = evaluate(build, [2 * bits, *[LANE_BITS] * lanes], samples)
    for (start, mask), word in zip(cases, words, strict=True):
        result = [word >> LANE_BITS * lane & ((1 << LANE_BITS) - 1) for lane in range(lanes)]
        assert result == [values[(lane + start) % lanes ^ mask] for lane in range(lanes)]
