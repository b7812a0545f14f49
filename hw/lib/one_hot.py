"""One-hot selection: functions on masks with one bit per candidate."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Mux, Value


def lowest_one(mask: Value) -> Value:
    """Return ``mask`` with only its lowest 1; 0 if ``mask`` is 0."""
    return (mask & -mask)[: len(mask)]


def index_of(one_hot: Value) -> Value:
    """Return the index of the 1 in ``one_hot``; 0 if ``one_hot`` is 0."""
    return Cat(
        Cat(bit for index, bit in enumerate(one_hot) if index >> place & 1).any()
        for place in range((len(one_hot) - 1).bit_length())
    )


def select(one_hot: Value, values: Iterable[Value]) -> Value:
    """Return the bits of the element of ``values`` whose bit of ``one_hot`` is 1; 0 if none is."""
    return reduce(or_, (Mux(bit, Value.cast(v), 0) for bit, v in zip(one_hot, values, strict=True)))
