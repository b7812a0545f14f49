"""Short rows: tables of what follows from their length."""

from collections.abc import Callable

from amaranth.hdl import Array, Cat, Const, Value

SHORT_ROW_BITS = 3
"""Of the pieces of a row that is short enough to be one run, or one line, with others though its
end is not in the tensor or they do not lie side by side; a longer one loses less by a run of its
own. Also of the pieces from one such row to the next."""


def of_row(pieces, number, function: Callable[[int, int], int], width: int) -> Value:
    """Return ``function(pieces, number)`` of a short row's pieces and a number, from a table; 0 of
    no pieces.
    """
    table = [
        Const(function(i, n) if i else 0, width)
        for i in range(1 << len(pieces))
        for n in range(1 << len(number))
    ]
    return Array(table)[Cat(number, pieces)]
