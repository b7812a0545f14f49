"""Prefixes: combines the first one, two, three and more of several values."""

from collections.abc import Callable, Sequence
from functools import cache

from amaranth.hdl import Value


def prefixes(
    values: Sequence[Value], combine: Callable[[int, int, Value, Value], Value]
) -> list[Value]:
    """Return, for each value, the combination of all values up to it.

    ``combine(first, end, left, right)`` combines the values from number ``first`` up to ``end``; it
    must be associative. Each result has a depth that grows with the logarithm of its values.
    """

    @cache
    def over(first: int, end: int) -> Value:
        if end - first == 1:
            return values[first]
        middle = first + (1 << (end - first - 1).bit_length() - 1)
        return combine(first, end, over(first, middle), over(middle, end))

    return [over(0, end) for end in range(1, len(values) + 1)]
