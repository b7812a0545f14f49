"""Remainders by 3, without a division."""

from amaranth.hdl import Const, Module, Signal, Value


def modulo_3(m: Module, value: Value, name: str) -> Signal:
    """Return ``value`` modulo 3, as the signal ``name``.

    The digits of ``value`` to base 4 have a sum with the same remainder, because 4 modulo 3 is 1.
    The sum is taken again until it is at most 6; a table gives the remainder of that.
    """
    most = (1 << len(value)) - 1
    while most > 6:
        digits = [value[at : at + 2] for at in range(0, len(value), 2)]
        most = 3 * len(digits)
        total = Signal(range(most + 1), name=f"{name}_up_to_{most}")
        m.d.comb += total.eq(sum(digits))
        value = total
    table = sum(number % 3 << 2 * number for number in range(most + 1))
    remainder = Signal(2, name=name)
    m.d.comb += remainder.eq(Const(table, 2 * (most + 1)).word_select(value, 2))
    return remainder
