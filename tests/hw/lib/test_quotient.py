"""Quotients: every dividend of 8 bits by every divisor from 1 to 8."""

from itertools import product

from amaranth.hdl import Const

from hw.lib.quotient import BITS, quotient, reciprocal_of
from tests.hw.simulate import evaluate


def test_every_quotient():
    def build(m, dividend, divisor_less_one):
        return quotient(m, "result", dividend, reciprocal_of(m, divisor_less_one))

    samples = list(product(range(1 << BITS), range(8)))
    wanted = [dividend // (less_one + 1) for dividend, less_one in samples]
    assert evaluate(build, [BITS, 3], samples) == wanted


def test_higher_bits_of_the_dividend_are_ignored():
    def build(m, dividend):
        return quotient(m, "result", dividend, reciprocal_of(m, Const(0, 3)))

    assert evaluate(build, [12], [(0xF07,), (0x0FF,)]) == [7, 255]
