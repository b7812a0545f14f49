"""Remainders of numbers that are no power of two, without division."""

from amaranth.hdl import Const, Module, Signal


def modulo_3(m: Module, value, name: str) -> Signal:
    """Return ``value`` modulo 3: that of the sum of its digits to base 4, again and again."""
    most = (1 << len(value)) - 1
    while most > 6:
        digits = [value[at : at + 2] for at in range(0, len(value), 2)]
        most = 3 * len(digits)
        total = Signal(range(most + 1), name=f"{name}_up_to_{most}")
        m.d.comb += total.eq(sum(digits))
        value = total
    table = sum(number % 3 << 2 * number for number in range(most + 1))
    rest = Signal(2, name=name)
    m.d.comb += rest.eq(Const(table, 2 * (most + 1)).word_select(value, 2))
    return rest
