"""One-hot masks: pick a bit or a value, and convert between a one-hot mask and a number."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Mux, Value
from amaranth.utils import ceil_log2


def lowest_one(mask: Value) -> Value:
    """Return ``mask`` with only its lowest set bit; 0 if no bit is set."""
    return (mask & -mask)[: len(mask)]


def one_hot(number: Value, enable: Value, width: int) -> Value:
    """Return ``width`` bits, of which bit ``number`` is set with ``enable``.

    Where ``enable`` is 0, the mask is 0 also in a simulation with four states in which ``number``
    is undefined. A shift of ``enable`` would be undefined.
    """
    return Mux(enable, 1 << number, 0)[:width]


def any_of(choices: Iterable[tuple[Value, Value]]) -> Value:
    """Return the value of the choice that applies, or 0; at most one does.

    Each choice is whether it applies, and its value.
    """
    return reduce(or_, (value & applies.replicate(len(value)) for applies, value in choices))


def index_of(mask: Value) -> Value:
    """Return the number of the set bit of a one-hot ``mask``; 0 if no bit is set."""
    return Cat(
        Cat(bit for number, bit in enumerate(mask) if number >> place & 1).any()
        for place in range(ceil_log2(len(mask)))
    )
