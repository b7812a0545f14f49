"""Tables of short rows, of which several share a line of global memory."""

from collections.abc import Callable

from amaranth.hdl import Array, Cat, Const, Value


def lookup(pieces, number, function: Callable[[int, int], int], width: int) -> Value:
    """Return ``function(pieces, number)`` from a table with one entry for each pair.

    Parameters
    ----------
    pieces : Value
        Pieces of a short row; where it is 0, the result is 0.
    number : Value
        Second argument of ``function``.
    function : Callable[[int, int], int]
        Called for all values of ``pieces`` but 0, and all values of ``number``.
    width : int
        Bits of the result.
    """
    table = [
        Const(function(i, n) if i else 0, width)
        for i in range(1 << len(pieces))
        for n in range(1 << len(number))
    ]
    return Array(table)[Cat(number, pieces)]
