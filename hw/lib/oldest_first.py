"""Oldest first: the choice between two queues by the tickets of their heads."""

from collections.abc import Sequence

from amaranth.hdl import Value


def second_goes_first(valids: Sequence, tickets: Sequence) -> Value:
    """Return whether the second of two queue heads is taken before the first.

    ``valids`` says which heads are there. Tickets are counted modulo twice as many as are in use at
    once: so the sign of their difference says which one is older. If both heads have the same
    ticket, the first is taken.
    """
    first, second = tickets
    difference = (second - first)[: len(first)]
    return valids[1] & (~valids[0] | difference[-1])
