"""Floating-point adder: small formats exhaustively, the formats of reductions by classes."""

import math
import random
from bisect import bisect_left
from functools import cache
from itertools import product

import numpy as np
import pytest
from amaranth.sim import Simulator

from hw.layouts.isa import ElementType, ReductionOp
from hw.reduce.fp_adder import LATENCY, FpAdder
from tests.hw.verilated import FORMATS, check, executable

HALVES = (ElementType.F16, ElementType.BF16)


@cache
def numbers(exponent_bits: int, fraction_bits: int) -> list[float]:
    """Return the values of the words from zero to infinity; infinity counts as the next number."""
    bias = (1 << (exponent_bits - 1)) - 1
    values = []
    for word in range((((1 << exponent_bits) - 1) << fraction_bits) + 1):
        exponent, fraction = divmod(word, 1 << fraction_bits)
        leading = min(exponent, 1) << fraction_bits
        values.append(math.ldexp(leading + fraction, max(exponent, 1) - bias - fraction_bits))
    return values


def model(exponent_bits: int, fraction_bits: int, a: int, b: int, flush: bool) -> int | None:
    """Return the word of the sum, or None if it is NaN."""
    table = numbers(exponent_bits, fraction_bits)
    infinity = len(table) - 1
    minus = 1 << (exponent_bits + fraction_bits)
    tiny = range(1, 1 << fraction_bits)

    def flushed(word: int) -> int:
        return word & minus if flush and word % minus in tiny else word

    a, b = flushed(a), flushed(b)
    if max(a % minus, b % minus) > infinity:
        return None
    if infinity in (a % minus, b % minus):
        infinite = {word for word in (a, b) if word % minus == infinity}
        return infinite.pop() if len(infinite) == 1 else None
    x, y = (math.copysign(table[word % minus], -1 if word & minus else 1) for word in (a, b))
    exact = x + y
    sign = minus if math.copysign(1, exact) < 0 else 0
    above = min(bisect_left(table, abs(exact)), infinity)
    if table[above] != abs(exact) and above:
        below = above - 1
        twice = table[below] + table[above]
        nearer = below if 2 * abs(exact) < twice else above
        above = nearer if 2 * abs(exact) != twice else below + below % 2
    return flushed(sign | above)


@pytest.mark.parametrize(
    "bits", [(2, 1), (2, 3), (3, 2), pytest.param((4, 3), marks=pytest.mark.regress)], ids=str
)
def test_every_sum_of_a_small_format(bits):
    width = 1 + sum(bits)
    cases = list(product((False, True), range(1 << width), range(1 << width)))
    random.Random(0).shuffle(cases)  # so that neighbours differ, in flush too
    dut = FpAdder(*bits)
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        for clock in range(len(cases) + LATENCY):
            if clock < len(cases):
                flush, a, b = cases[clock]
                ctx.set(dut.flush, flush)
                ctx.set(dut.a, a)
                ctx.set(dut.b, b)
            if clock >= LATENCY:
                flush, a, b = cases[clock - LATENCY]
                got = None if ctx.get(dut.is_nan) else ctx.get(dut.total)
                want = model(*bits, a, b, flush)
                assert got == want, f"{a:#x} + {b:#x}, flush {flush}: {got}, not {want}"
            await ctx.tick()

    sim.run()


@pytest.mark.simulators.with_args(executable)
@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_sums(kind):
    """A quarter of the pairs of one seed."""
    pairs = 0
    for a, b in FORMATS[kind].pairs(0):
        pairs += check(ReductionOp.ADD, kind, a[::4], b[::4])
    assert pairs == 1 << 17


@pytest.mark.simulators.with_args(executable)
@pytest.mark.regress
@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_many_sums(kind):
    seeds = range(32 if kind in HALVES else 80)
    pairs = 0
    for seed in seeds:
        for pair in FORMATS[kind].pairs(seed):
            pairs += check(ReductionOp.ADD, kind, *pair, f"seed {seed}")
    assert pairs == len(seeds) << 19


@pytest.mark.simulators.with_args(executable)
@pytest.mark.regress
@pytest.mark.parametrize("kind", HALVES, ids=lambda kind: kind.name)
def test_special_halves_with_every_half(kind):
    every = np.arange(1 << 16, dtype=np.uint16)
    for special in FORMATS[kind].specials():
        other = np.full_like(every, special)
        for op in ReductionOp.ADD, ReductionOp.MIN, ReductionOp.MAX:
            check(op, kind, every, other)
            check(op, kind, other, every)
