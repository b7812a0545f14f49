"""Quotients by 1 to 8, computed as products with a reciprocal."""

from amaranth.hdl import Module, Signal, Value

BITS = 8
"""Width of the dividend and of the quotient, where no other width is given."""


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


def quotient(m: Module, name: str, dividend: Value, reciprocal: Value, bits: int = BITS) -> Value:
    """Return the low ``bits`` of ``dividend`` divided by 1 to 8, rounded down.

    ``reciprocal`` comes from ``reciprocal_of``. The product is the signal ``<name>_product``.
    """
    product = Signal(bits + reciprocal_bits(bits), name=f"{name}_product")
    m.d.comb += product.eq(dividend[:bits] * reciprocal)
    return product[bits + 3 :][:bits]
