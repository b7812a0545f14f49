"""Quotients by 1 to 8, computed as products with a reciprocal."""

from amaranth.hdl import Cat, Const, Module, Signal, Value

BITS = 8
"""Width of the dividend and of the quotient, where no other width is given."""

FRACTION_BITS = 3
"""Bits behind the point of a quotient. If the reciprocal is for dividends that are as many bits
wider, they tell the remainder."""


def reciprocal_bits(bits: int = BITS) -> int:
    """Return the width of a reciprocal for dividends of ``bits`` bits."""
    return bits + 4


def reciprocal_of(m: Module, divisor_less_one: Value, bits: int = BITS) -> Signal:
    """Return the reciprocal of a divisor from 1 to 8, from a table.

    It is ``2**(bits + 3)`` divided by the divisor, rounded up. The error of a product with a
    dividend of ``bits`` bits is below an eighth, so the quotient is exact.
    """
    reciprocal = Signal(reciprocal_bits(bits))
    with m.Switch(divisor_less_one):
        for less_one in range(8):
            with m.Case(less_one):
                m.d.comb += reciprocal.eq(-(-(1 << bits + 3) // (less_one + 1)))
    return reciprocal


def divide(
    m: Module, name: str, dividend: Value, reciprocal: Value, bits: int = BITS
) -> tuple[Value, Value]:
    """Return the low ``bits`` of ``dividend`` divided by 1 to 8, rounded down, and its fraction of
    ``FRACTION_BITS``.

    ``reciprocal`` comes from ``reciprocal_of``. The product is the signal ``<name>_product``.
    """
    product = Signal(bits + reciprocal_bits(bits), name=f"{name}_product")
    m.d.comb += product.eq(dividend[:bits] * reciprocal)
    return product[bits + 3 :][:bits], product[bits + 3 - FRACTION_BITS : bits + 3]


def quotient(m: Module, name: str, dividend: Value, reciprocal: Value, bits: int = BITS) -> Value:
    """Return the first result of ``divide``."""
    return divide(m, name, dividend, reciprocal, bits)[0]


def less_remainder(divisor_less_one: Value, fraction: Value) -> Value:
    """Return ``divisor_less_one`` less the remainder of a division, from a table.

    ``fraction`` comes from ``divide``, with a dividend that is ``FRACTION_BITS`` narrower than the
    reciprocal is for. The error of the product is below 1/64 then. An exact quotient that is not a
    multiple of an eighth is at least 1/56 below the next one, so that the fraction is exact, too:
    the remainder is ``divisor * fraction / 8``, rounded up.
    """
    table = [
        (less_one - -(-(less_one + 1) * eighths // 8)) % 8
        for eighths in range(8)
        for less_one in range(8)
    ]
    rows = Const(sum(value << 3 * number for number, value in enumerate(table)), 3 * len(table))
    return rows.word_select(Cat(divisor_less_one, fraction), 3)
