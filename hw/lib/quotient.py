"""Quotients by 1 to 8, computed as products with a reciprocal."""

from amaranth.hdl import Module, Signal, Value

BITS = 8
"""Width of the dividend and of the quotient."""

RECIPROCAL_BITS = 12
"""Width of a reciprocal."""

RECIPROCAL_OF = 2048
"""Scale of a reciprocal: the reciprocal of ``d`` is ``RECIPROCAL_OF / d``, rounded up."""


def reciprocal_of(m: Module, divisor_less_one: Value) -> Signal:
    """Return the reciprocal of a divisor from 1 to 8, from a table."""
    reciprocal = Signal(RECIPROCAL_BITS)
    with m.Switch(divisor_less_one):
        for less_one in range(8):
            with m.Case(less_one):
                m.d.comb += reciprocal.eq(-(-RECIPROCAL_OF // (less_one + 1)))
    return reciprocal


def quotient(m: Module, name: str, dividend: Value, reciprocal: Value) -> Value:
    """Return the low ``BITS`` of ``dividend`` divided by 1 to 8, rounded down.

    ``reciprocal`` comes from ``reciprocal_of``. The product is the signal ``<name>_product``.
    """
    product = Signal(BITS + RECIPROCAL_BITS, name=f"{name}_product")
    m.d.comb += product.eq(dividend[:BITS] * reciprocal)
    return product[RECIPROCAL_OF.bit_length() - 1 :][:BITS]
