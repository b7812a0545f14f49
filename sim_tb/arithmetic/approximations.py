"""Approximate functions of f32, as the interpolator of an H200 computes them.

A mantissa is a segment and a distance X from its start. The result is C0 + C1 * X + C2 * X**2 with
integer coefficients of the segment. X**2 is the sum of the products of the bits of X, as a squarer
adds them, without the columns below 2**-15; the sum is cut, not rounded. The coefficients
(``approximations.csv``) were solved from recordings of all mantissas of an octave, and give each
of them.

Inputs and results are float32 arrays; a NaN is 0x7fffffff. Functions whose name ends in ``_ftz``
take subnormal inputs as zeros, and give zeros for subnormal results.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

_MANTISSA = 23
_ONE = 1 << _MANTISSA
_NAN = np.uint32(0x7FFFFFFF)
_LEAST = np.float32(2.0**-126)

_SQUARE_BITS = 15
"""Fraction bits of the squarer's result."""

_SUM_BITS = 17
"""Bits of the sum below the unit of C1 and C2."""


@dataclass(frozen=True)
class Interpolator:
    """Piecewise quadratic function of a mantissa.

    Parameters
    ----------
    c0, c1, c2 : ndarray
        Coefficients of each segment, int64; C1 and C2 in units of 2**17 of the result.
    distance : int
        Bits of the distance from the start of a segment.
    scale : int
        Bits from the unit of the result to that of C0.
    bias : int
        Constant that is added, in units of the result.
    """

    c0: Integers
    c1: Integers
    c2: Integers
    distance: int
    scale: int
    bias: int

    def __call__(self, mantissas: Integers) -> Integers:
        """Return the sum of each mantissa; a mantissa counts through the segments."""
        segment = mantissas >> self.distance
        x = mantissas & ((1 << self.distance) - 1)
        squares = _squares(self.distance)[x]
        return (
            (self.c0[segment] << self.scale)
            + self.bias
            + self.c1[segment] * (x << (_SUM_BITS - self.distance))
            + self.c2[segment] * (squares << (_SUM_BITS - _SQUARE_BITS))
        )


@cache
def _squares(bits: int) -> Integers:
    """Return the squarer's result of each distance: 0.X squared, in units of 2**-15."""
    distance = np.arange(1 << bits)
    total = np.zeros(1 << bits, np.int64)
    for high in range(1, bits + 1):
        for low in range(high, bits + 1):
            column = 2 * high if high == low else high + low - 1
            if column <= _SQUARE_BITS:
                both = distance >> (bits - high) & distance >> (bits - low) & 1
                total += both << (_SQUARE_BITS - column)
    return total


_FORMS = {"ex2": (17, 15, 24457), "rcp": (16, 15, 8094), "rsqrt": (17, 15, 32766), "lg2": (17, 13, 1674)}
"""Bits of the distance, scale of C0, and bias of each function."""


@cache
def interpolator(name: str) -> Interpolator:
    """Return the interpolator of ``ex2``, ``rcp``, ``rsqrt`` or ``lg2``."""
    with Path(__file__).with_name("approximations.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["function"] == name]
    columns = (np.array([int(row[key]) for row in rows], np.int64) for key in ("c0", "c1", "c2"))
    return Interpolator(*columns, *_FORMS[name])


def _fields(x: Floats) -> tuple[Integers, Integers]:
    """Return biased exponent and mantissa."""
    bits = x.view(np.uint32).astype(np.int64)
    return bits >> _MANTISSA & 0xFF, bits & (_ONE - 1)


def _finished(values: NDArray[np.float64], nan: NDArray[np.bool_]) -> Floats:
    """Return f64 values, which f32 holds, as f32; zeros of their sign for subnormal ones."""
    values = np.where(np.abs(values) < _LEAST, np.copysign(0.0, values), values)
    return np.where(nan, _NAN, values.astype(np.float32).view(np.uint32)).view(np.float32)


def flushed(x: Floats) -> Floats:
    """Return values with subnormal numbers as zeros of their sign."""
    bits = x.view(np.uint32)
    small = bits & np.uint32(0x7F800000) == 0
    return np.where(small, bits & np.uint32(0x80000000), bits).view(np.float32)


def ex2_ftz(x: Floats) -> Floats:
    """Return 2**x: of \\|x\\| cut to 23 fraction bits, in one's complement if x is negative."""
    magnitude = np.minimum(np.abs(x.astype(np.float64)), 1024)
    fixed = np.where(np.isnan(x), 0, magnitude * _ONE).astype(np.int64)
    fixed = np.where(np.signbit(x) & (fixed & (_ONE - 1) != 0), ~fixed, np.where(np.signbit(x), -fixed, fixed))
    unit = interpolator("ex2")(fixed & (_ONE - 1)) >> _SUM_BITS
    return _finished(np.ldexp(unit.astype(np.float64), (fixed >> _MANTISSA) - _MANTISSA), np.isnan(x))


def rcp_ftz(x: Floats) -> Floats:
    """Return 1 / x."""
    exponent, mantissa = _fields(x)
    unit = (interpolator("rcp")(mantissa) >> _SUM_BITS).astype(np.float64)
    result = np.ldexp(unit, 127 - exponent - _MANTISSA - 1)
    result = np.where(exponent == 0, np.inf, np.where(np.isinf(x), 0.0, result))
    return _finished(np.copysign(result, x), np.isnan(x))


def rsqrt_ftz(x: Floats) -> Floats:
    """Return 1 / sqrt(x)."""
    exponent, mantissa = _fields(x)
    odd = (exponent & 1) == 0
    half = (exponent - 127 - odd) // 2
    unit = (interpolator("rsqrt")(mantissa + _ONE * odd) >> _SUM_BITS).astype(np.float64)
    unit = np.where(~odd & (mantissa == 0), 2.0 * _ONE, unit)
    result = np.ldexp(unit, -half - _MANTISSA - 1)
    result = np.where(exponent == 0, np.copysign(np.inf, x), np.where(np.isinf(x), 0.0, result))
    return _finished(result, np.isnan(x) | ((x < 0) & (exponent != 0)))


_LG2_BITS = 39
"""Fraction bits of the interpolator of ``lg2``."""


def _cut_to_single(values: Integers) -> NDArray[np.float64]:
    """Return fixed-point numbers of 39 fraction bits, not negative, cut to 24 bits."""
    exact = np.ldexp(values.astype(np.float64), -_LG2_BITS)
    near = exact.astype(np.float32)
    down = np.where(near > exact, np.nextafter(near, np.float32(0)), near)
    return down.astype(np.float64)


def lg2_ftz(x: Floats) -> Floats:
    """Return log2(x): exponent plus fraction, of which 36 bits are kept below 2, and 26 below 1/2.

    A negative result is the one's complement of the sum, cut toward zero.
    """
    exponent, mantissa = _fields(x)
    whole = exponent - 127
    kept = np.where(whole < -1, _LG2_BITS - 26, _LG2_BITS - 36)
    fraction = interpolator("lg2")(mantissa) >> kept << kept
    total = (whole << _LG2_BITS) + fraction
    negative = total < 0
    magnitude = np.where(negative, -total - (1 << kept), total)
    result = np.where(negative, -1.0, 1.0) * _cut_to_single(magnitude)
    result = np.where((mantissa == 0) & (whole == 0), 0.0, result)
    result = np.where(exponent == 0, -np.inf, np.where(np.isposinf(x), np.inf, result))
    return _finished(result, np.isnan(x) | ((x < 0) & (exponent != 0)))


_SCALE = np.float32(2.0**24)
"""Factor that makes a subnormal number a normal one."""


def _subnormal(x: Floats) -> NDArray[np.bool_]:
    return np.abs(x) < _LEAST


def ex2(x: Floats) -> Floats:
    """Return 2**x; a subnormal result is the square of a normal one."""
    small = x < -126
    root = ex2_ftz(np.where(small, x * np.float32(0.5), x))
    return np.where(small, root * root, root)


def lg2(x: Floats) -> Floats:
    """Return log2(x), of subnormal inputs too."""
    small = _subnormal(x)
    result = lg2_ftz(np.where(small, x * _SCALE, x))
    return np.where(small, result - np.float32(24), result)


def rcp(x: Floats) -> Floats:
    """Return 1 / x, with subnormal inputs and results."""
    small, large = _subnormal(x), np.abs(x) > 2.0**126
    factor = np.where(small, _SCALE, np.where(large, np.float32(0.25), np.float32(1)))
    return rcp_ftz(x * factor) * factor


def rsqrt(x: Floats) -> Floats:
    """Return 1 / sqrt(x), of subnormal inputs too."""
    small = _subnormal(x)
    result = rsqrt_ftz(np.where(small, x * _SCALE, x))
    return np.where(small, result * np.float32(2.0**12), result)


def quotient(a: Floats, b: Floats) -> Floats:
    """Return a / b, as the product of a and 1 / b."""
    return a * rcp(b)


def sqrt(x: Floats) -> Floats:
    return np.sqrt(x)
def sin(x: Floats) -> Floats:
    return np.sin(x)
def cos(x: Floats) -> Floats:
    return np.cos(x)
def tanh(x: Floats) -> Floats:
    return np.tanh(x)


def _high_words(x, function):
    return x


def rcp_high(x):
    return x
def rsqrt_high(x):
    return x
