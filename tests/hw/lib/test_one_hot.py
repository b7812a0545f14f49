"""One-hot masks: the lowest bit, the mask of a number, the value of a bit, and its number."""

import pytest

from hw.lib.one_hot import any_of, index_of, lowest_one, one_hot
from tests.hw.simulate import evaluate

WIDTHS = (1, 2, 5, 8)


@pytest.mark.parametrize("width", WIDTHS)
def test_lowest_bit(width):
    samples = [(mask,) for mask in range(1 << width)]
    wanted = [mask & -mask for (mask,) in samples]
    assert evaluate(lambda _m, mask: lowest_one(mask), [width], samples) == wanted


@pytest.mark.parametrize("width", WIDTHS)
def test_mask(width):
    samples = [(number, enable) for number in range(8) for enable in range(2)]
    wanted = [enable << number & (1 << width) - 1 for number, enable in samples]
    assert evaluate(lambda _m, *i: one_hot(*i, width), [3, 1], samples) == wanted


def test_value_of_the_choice_that_applies():
    samples = [(mask, 5, 9, 14) for mask in (0, 1, 2, 4)]
    found = evaluate(
        lambda _m, mask, *values: any_of(zip(mask, values, strict=True)), [3, 4, 4, 4], samples
    )
    assert found == [0, 5, 9, 14]


@pytest.mark.parametrize("width", WIDTHS)
def test_bit_index(width):
    samples = [(0,), *((1 << number,) for number in range(width))]
    assert evaluate(lambda _m, mask: index_of(mask), [width], samples) == [0, *range(width)]
