"""Quotients and remainders: every dividend of 8 bits by every divisor from 1 to 8."""

from itertools import product

from amaranth.hdl import Const

from hw.lib.quotient import (
    BITS,
    FRACTION_BITS,
    divide,
    less_remainder,
    quotient,
    reciprocal_of,
)
from tests.hw.simulate import evaluate


def test_every_quotient():
    def build(m, dividend, divisor_less_one):
        return quotient(m, "result", dividend, reciprocal_of(m, divisor_less_one))

    samples = list(product(range(1 << BITS), range(8)))
    wanted = [dividend // (less_one + 1) for dividend, less_one in samples]
    assert evaluate(build, [BITS, 3], samples) == wanted


def test_every_remainder():
    bits = BITS + FRACTION_BITS

    def build(m, dividend, divisor_less_one):
        reciprocal = reciprocal_of(m, divisor_less_one, bits)
        _, fraction = divide(m, "result", dividend, reciprocal, bits)
        return less_remainder(divisor_less_one, fraction)

    samples = list(product(range(1 << BITS), range(8)))
    wanted = [less_one - dividend % (less_one + 1) for dividend, less_one in samples]
    assert evaluate(build, [BITS, 3], samples) == wanted


def test_quotients_of_14_bits_change_at_multiples():
    """Columns have such dividends; between two multiples a product with a constant is monotonic."""
    bits = 14

    def build(m, dividend, divisor_less_one):
        reciprocal = reciprocal_of(m, divisor_less_one, bits)
        return quotient(m, "result", dividend, reciprocal, bits)

    samples = [
        (dividend, divisor - 1)
        for divisor in range(1, 9)
        for multiple in range(0, 1 << bits, divisor * (1 if divisor > 2 else 16))
        for dividend in (multiple, min(multiple + divisor, 1 << bits) - 1)
    ]
    wanted = [dividend // (less_one + 1) for dividend, less_one in samples]
    assert evaluate(build, [bits, 3], samples) == wanted


def test_higher_bits_of_the_dividend_are_ignored():
    def build(m, dividend):
        return quotient(m, "result", dividend, reciprocal_of(m, Const(0, 3)))

    assert evaluate(build, [12], [(0xF07,), (0x0FF,)]) == [7, 255]
