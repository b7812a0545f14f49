"""One rounding of exact results in every direction, held to fractions."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from sim_tb.arithmetic.formats import bits_of
from sim_tb.arithmetic.rounding import FORMATS, fused_double, odd_integers, operate, rounded

SEED = 24
EXACT = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
}


def numbers(rng, dtype, count, spread):
    """Return random numbers with exponents in a range, some of them integers."""
    exponent = rng.integers(-spread, spread, count)
    values = np.ldexp(rng.uniform(1, 2, count), exponent) * rng.choice([-1, 1], count)
    values[::7] = np.rint(np.clip(values[::7], -9, 9)) + 20
    return values.astype(dtype)


def literal(value, form, direction):
    """Return a fraction, rounded by the definition."""
    if not value:
        return 0.0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= abs(value) < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, form.least) - form.precision + 1)
    whole = {"rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil}[direction]
    result = whole(value / unit) * unit
    if abs(result) <= Fraction(form.greatest):
        return float(result)
    kept = direction == "rz" or direction == ("rm" if value > 0 else "rp")
    return math.copysign(form.greatest if kept else math.inf, 1 if value > 0 else -1)


@pytest.mark.parametrize("direction", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "mul", "div", "fma", "sqrt"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_operation_rounds_once(kind, name, direction):
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    dtype = {"f32": np.float32, "f64": np.float64}[kind]
    spread = {"f32": 100, "f64": 700}[kind]
    operands = {"fma": 3, "sqrt": 1}.get(name, 2)
    sources = []
    for width in (3, 30, spread):
        sources.append([numbers(rng, dtype, 150, width) for _ in range(operands)])
    values = [np.concatenate(column) for column in zip(*sources, strict=True)]
    if name == "sqrt":
        values = [np.abs(values[0])]
    with np.errstate(all="ignore"):
        got = operate(name, values, direction)
    for index, result in enumerate(got.tolist()):
        exact = [Fraction(column[index].item()) for column in values]
        if name != "sqrt":
            assert result == literal(EXACT[name](*exact), FORMATS[kind], direction), index
            continue
        square = Fraction(result) ** 2
        other = math.nextafter(result, math.inf if square < exact[0] else 0)
        if kind == "f32":
            toward = np.float32(np.inf if square < exact[0] else 0)
            other = np.nextafter(dtype(result), toward).item()
        if square != exact[0]:
            middle = (Fraction(result) + Fraction(other)) / 2
            near = (square < exact[0]) == (exact[0] < middle**2)
            below = square < exact[0]
            assert {"rn": near, "rz": below, "rm": below, "rp": not below}[direction], index


def test_zero_of_a_sum_has_the_sign_of_the_direction():
    one = np.ones(1, np.float32)
    assert not np.signbit(operate("add", [one, -one], "rn"))[0]
    assert np.signbit(operate("add", [one, -one], "rm"))[0]
    assert np.signbit(operate("fma", [one, one, -one], "rm"))[0]


def test_fused_double_has_extreme_operands():
    a = np.array([2.0**600, 2.0**-600, 5e-324, 2.0**1023])
    b = np.array([2.0**600, 2.0**-500, 0.5, 2.0])
    c = np.array([-np.inf, 5e-324, 5e-324, -(2.0**1023)])
    with np.errstate(all="ignore"):
        assert fused_double(a, b, c).tolist() == [-np.inf, 5e-324, 1e-323, 2.0**1023]


@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "e5m2"])
def test_rounding_to_nearest_is_that_of_the_type(kind):
    dtypes = {
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
    }
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    values = numbers(rng, np.float32, 4000, 20)
    values = values[np.abs(values) <= FORMATS[kind].greatest]
    expected = values.astype(dtypes[kind])
    got = bits_of(values.astype(np.float64), kind, finite=True)
    assert (got == expected.view(got.dtype)).all()


@pytest.mark.parametrize("direction", ["rz", "rm", "rp", "rna"])
def test_rounding_has_a_direction(direction):
    values = np.array([1 + 2.0**-11, 1 + 2.0**-12, -1 - 2.0**-11, 1e6, -1e6, 2.0**-26])
    got = rounded(values, FORMATS["f16"], direction).tolist()
    up, inf, most, least = 1 + 2.0**-10, math.inf, 65504.0, 2.0**-24
    assert (
        got
        == {
            "rz": [1, 1, -1, most, -most, 0],
            "rm": [1, 1, -up, most, -inf, 0],
            "rp": [up, up, -1, inf, -most, least],
            "rna": [up, 1, -up, inf, -inf, 0],
        }[direction]
    )


def test_conversion_saturates_and_clamps():
    values = np.array([1e9, -1e9, np.nan, -2.0])
    assert bits_of(values, "e4m3", finite=True).tolist() == [0x7E, 0xFE, 0x7F, 0xC0]
    assert bits_of(values, "e5m2", finite=True).tolist() == [0x7B, 0xFB, 0x7F, 0xC0]
    assert bits_of(values, "f16", relu=True).tolist() == [0x7C00, 0, 0x7FFF, 0]


def test_wide_integers_are_rounded_to_odd():
    tie = (1 << 60) + (1 << 36)
    values = np.array([tie, tie + 1, tie - 1, -tie - 1], np.int64)
    near = rounded(odd_integers(values), FORMATS["f32"])
    above = (1 << 60) + (1 << 37)
    assert near.tolist() == [1 << 60, above, 1 << 60, -above]
