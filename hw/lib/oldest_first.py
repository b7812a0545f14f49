"""Oldest first: the choice between two queues by the tickets of their heads."""

from collections.abc import Sequence

from amaranth.hdl import Value


def second_goes_first(valids: Sequence, tickets: Sequence, oldest: Value) -> Value:
    """Return whether the second of two queue heads is taken before the first.

    ``valids`` says which heads are there. Tickets are numbers modulo ``1 << len(oldest)``, counted
    from ``oldest``, the oldest ticket in use. If both heads have the same ticket, the first is
    taken.
    """
    ages = [(ticket - oldest)[: len(oldest)] for ticket in tickets]
    return valids[1] & (~valids[0] | (ages[1] < ages[0]))
