"""Prefixes: all values up to each one are combined, in order, with a logarithmic depth."""

import pytest
from amaranth.hdl import Cat, Const

from hw.lib.prefixes import prefixes
from tests.hw.simulate import evaluate


@pytest.mark.parametrize("count", range(1, 10))
def test_sums(count: int) -> None:
    numbers = [3**n for n in range(count)]

    def sums(_m, *values):
        results = prefixes(values, lambda _first, _end, left, right: left + right)
        return Cat((Const(0, 20) + result)[:20] for result in results)

    (packed,) = evaluate(sums, [16] * count, [numbers])
    wanted = [sum(numbers[: end + 1]) for end in range(count)]
    assert [packed >> 20 * n & 0xFFFFF for n in range(count)] == wanted


@pytest.mark.parametrize("count", range(1, 10))
def test_order_and_depth(count: int) -> None:
    """Each combination is told its values, which are in order."""

    def combine(first, end, left, right):
        values = (*left[0], *right[0])
        assert values == tuple(range(first, end))
        return values, max(left[1], right[1]) + 1

    results = prefixes([((n,), 0) for n in range(count)], combine)
    for end, (values, depth) in enumerate(results, 1):
        assert values == tuple(range(end))
        assert depth == (end - 1).bit_length()
