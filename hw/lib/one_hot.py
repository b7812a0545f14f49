"""One-hot masks: pick a bit of a mask, and convert a one-hot mask to a number."""

from amaranth.hdl import Cat, Value
from amaranth.utils import ceil_log2


def lowest_one(mask: Value) -> Value:
    """Return ``mask`` with only its lowest set bit; 0 if no bit is set."""
    return (mask & -mask)[: len(mask)]


def index_of(one_hot: Value) -> Value:
    """Return the number of the set bit of ``one_hot``; 0 if no bit is set."""
    return Cat(
        Cat(bit for number, bit in enumerate(one_hot) if number >> place & 1).any()
        for place in range(ceil_log2(len(one_hot)))
    )
