"""Quotients of small divisors, by multiplication."""

from amaranth.hdl import Module, Signal

BITS = 8
"""Of the dividend and of the quotient."""

RECIPROCAL_BITS = 12
RECIPROCAL_OF = 2048
"""A number divided by 1 to 8: it times the reciprocal, which is rounded up, over this."""


def reciprocal_of(m: Module, divisor_less_one) -> Signal:
    """Return what to multiply with instead of dividing by 1 to 8."""
    reciprocal = Signal(RECIPROCAL_BITS)
    with m.Switch(divisor_less_one):
        for less_one in range(8):
            with m.Case(less_one):
                m.d.comb += reciprocal.eq(-(-RECIPROCAL_OF // (less_one + 1)))
    return reciprocal


def quotient(m: Module, name: str, dividend, reciprocal) -> Signal:
    """Return the low ``BITS`` of ``dividend`` divided by 1 to 8, rounded down."""
    product = Signal(BITS + RECIPROCAL_BITS, name=f"{name}_product")
    m.d.comb += product.eq(dividend[:BITS] * reciprocal)
    return product[RECIPROCAL_OF.bit_length() - 1 :][:BITS]
