"""Approximate functions of f32, as the interpolator of an H200 computes them.

A mantissa is a segment and a distance X from its start. The result is C0 + C1 * X + C2 * X**2 with
integer coefficients of the segment. X**2 is the sum of the products of the bits of X, as a squarer
adds them, without the columns below 2**-15; the sum is cut, not rounded. The coefficients
(``approximations.csv``) are the only ones that give what was recorded: all mantissas of an octave,
and for ``sqrt``, ``sin`` and ``tanh`` about 17,000 random inputs each.

Inputs and results are float32 arrays; a NaN is 0x7fffffff. Functions whose name ends in ``_ftz``
take subnormal inputs as zeros, and give zeros for subnormal results.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

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
        Coefficients of each segment, int64; C1 and C2 in units of 2**17 of the sum.
    distance : int
        Bits of the distance from the start of a segment.
    scale : int
        Bits from the unit of the sum to that of C0.
    bias : int
        Constant that is added, in units of the sum.
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
        constant: Integers = (self.c0[segment] << self.scale) + self.bias
        linear: Integers = self.c1[segment] * (x << (_SUM_BITS - self.distance))
        square: Integers = self.c2[segment] * (squares << (_SUM_BITS - _SQUARE_BITS))
        return constant + linear + square


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


_FORMS = {
    "ex2": (17, 15, 24457),
    "rcp": (16, 15, 8094),
    "rsqrt": (17, 15, 32766),
    "lg2": (17, 13, 1674),
    "sqrt": (17, 16, 0),
    "sin": (17, 13, 0),
    "tanh": (17, 17, 0),
}
"""Bits of the distance, scale of C0, and bias of each function."""


@cache
def interpolator(name: str) -> Interpolator:
    """Return an interpolator of `_FORMS`."""
    with Path(__file__).with_name("approximations.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["function"] == name]
    c0, c1, c2 = (np.array([int(row[key]) for row in rows], np.int64) for key in ("c0", "c1", "c2"))
    return Interpolator(c0, c1, c2, *_FORMS[name])


def _fields(x: Floats) -> tuple[Integers, Integers]:
    """Return biased exponent and mantissa."""
    bits = x.view(np.uint32).astype(np.int64)
    return bits >> _MANTISSA & 0xFF, bits & (_ONE - 1)


def _finished(values: Doubles, nan: Flags) -> Floats:
    """Return float64 values, which f32 holds, as f32; zeros of their sign for subnormal ones."""
    values = np.where(np.abs(values) < _LEAST, np.copysign(0.0, values), values)
    return np.where(nan, _NAN, values.astype(np.float32).view(np.uint32)).view(np.float32)


def flushed(x: Floats) -> Floats:
    """Return values with subnormal numbers as zeros of their sign."""
    bits = x.view(np.uint32)
    small = bits & np.uint32(0x7F800000) == 0
    if not small.any():
        return x
    return np.where(small, bits & np.uint32(0x80000000), bits).view(np.float32)


def _cut(values: Integers, bits: int) -> Doubles:
    """Return fixed-point numbers, not negative, of ``bits`` fraction bits, cut to 24 bits."""
    exact = np.ldexp(values.astype(np.float64), -bits)
    near = exact.astype(np.float32)
    return np.where(near > exact, np.nextafter(near, np.float32(0)), near).astype(np.float64)


def ex2_ftz(x: Floats) -> Floats:
    r"""Return 2**x, of \|x\| cut to 23 fraction bits.

    A negative x that is no integer gives the one's complement of these bits.
    """
    negative = np.signbit(x)
    magnitude = np.where(np.isnan(x), 0, np.minimum(np.abs(x).astype(np.float64), 1024))
    fixed = (magnitude * _ONE).astype(np.int64)
    inverted = np.where(fixed & (_ONE - 1) == 0, -fixed, ~fixed)
    fixed = np.where(negative, inverted, fixed)
    unit = (interpolator("ex2")(fixed & (_ONE - 1)) >> _SUM_BITS).astype(np.float64)
    return _finished(np.ldexp(unit, (fixed >> _MANTISSA) - _MANTISSA), np.isnan(x))


def rcp_ftz(x: Floats) -> Floats:
    """Return 1 / x."""
    exponent, mantissa = _fields(x)
    unit = (interpolator("rcp")(mantissa) >> _SUM_BITS).astype(np.float64)
    result = np.ldexp(unit, 127 - exponent - _MANTISSA - 1)
    result = np.where(exponent == 0, np.inf, np.where(np.isinf(x), 0.0, result))
    return _finished(np.copysign(result, x), np.isnan(x))


def _halved(x: Floats) -> tuple[Integers, Integers]:
    """Return half the exponent, and the mantissa in an octave of even or of odd exponents."""
    exponent, mantissa = _fields(x)
    odd = 1 - (exponent & 1)
    return (exponent - 127 - odd) // 2, mantissa + _ONE * odd


def rsqrt_ftz(x: Floats) -> Floats:
    """Return 1 / sqrt(x)."""
    half, mantissa = _halved(x)
    unit = (interpolator("rsqrt")(mantissa) >> _SUM_BITS).astype(np.float64)
    unit = np.where(mantissa == 0, 2.0 * _ONE, unit)
    result = np.ldexp(unit, -half - _MANTISSA - 1)
    zero = np.abs(x) < _LEAST
    result = np.where(zero, np.copysign(np.inf, x), np.where(np.isinf(x), 0.0, result))
    return _finished(result, np.isnan(x) | ((x < 0) & ~zero))


def sqrt_ftz(x: Floats) -> Floats:
    """Return the square root of x."""
    half, mantissa = _halved(x)
    unit = (interpolator("sqrt")(mantissa) >> (_SUM_BITS + 1)).astype(np.float64)
    zero = np.abs(x) < _LEAST
    result = np.where(np.isinf(x), np.inf, np.ldexp(unit, half - _MANTISSA))
    return _finished(np.where(zero, np.copysign(0.0, x), result), np.isnan(x) | ((x < 0) & ~zero))


_FIXED_BITS = 39
"""Fraction bits of the sums of ``lg2`` and ``sin``."""


def lg2_ftz(x: Floats) -> Floats:
    """Return log2(x): exponent plus fraction, of which 36 bits are kept, and 26 below 1/2.

    A negative result is the one's complement of the sum, cut toward zero.
    """
    exponent, mantissa = _fields(x)
    whole = exponent - 127
    kept = np.where(whole < -1, _FIXED_BITS - 26, _FIXED_BITS - 36)
    fraction = interpolator("lg2")(mantissa) >> kept << kept
    total = (whole << _FIXED_BITS) + fraction
    magnitude = np.where(total < 0, -total - (1 << kept), total)
    result = np.where(total < 0, -1.0, 1.0) * _cut(magnitude, _FIXED_BITS)
    result = np.where((mantissa == 0) & (whole == 0), 0.0, result)
    result = np.where(exponent == 0, -np.inf, np.where(np.isposinf(x), np.inf, result))
    return _finished(result, np.isnan(x) | ((x < 0) & (exponent != 0)))


_QUADRANT = 23
"""Bits of an angle in a quadrant."""

_TURN = np.float64(np.float32(0.15915494))
"""1 / (2 pi), as the unit multiplies by it."""


def _wave(x: Floats, quadrants: int) -> Floats:
    """Return the sine of x plus a number of quadrants; x in turns is cut to 25 fraction bits."""
    exact = np.abs(x).astype(np.float64) * _TURN
    turns = exact.astype(np.float32)
    turns = np.where(turns > exact, np.nextafter(turns, np.float32(0)), turns)
    turns = np.where(np.isfinite(turns), turns, 0).astype(np.float64)
    angle = (np.fmod(turns, 1.0) * (4 << _QUADRANT)).astype(np.int64)
    quadrant = (angle >> _QUADRANT) + quadrants
    within = angle & (_ONE - 1)
    mirrored = np.where(quadrant & 1, within ^ (_ONE - 1), within)
    result = _cut(interpolator("sin")(mirrored), _FIXED_BITS)
    result = np.where((quadrant & 1 == 1) & (within == 0), 1.0, result)
    negative = (quadrant & 2 != 0) ^ (np.signbit(x) & (quadrants == 0))
    return _finished(np.where(negative, -result, result), ~np.isfinite(x))


def sin(x: Floats) -> Floats:
    """Return the sine of x radians."""
    return _wave(x, 0)


def cos(x: Floats) -> Floats:
    """Return the cosine of x radians."""
    return _wave(x, 1)


_TANH_LEAST, _TANH_END = -8, 3
"""Exponents from which ``tanh`` is interpolated, and is 1; below, it is its argument."""

_TANH_BITS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3])
"""Bits of the mantissa that choose a segment, from the least exponent."""

_TANH_FIRST = np.cumsum(1 << _TANH_BITS) - (1 << _TANH_BITS)
"""First segment of each exponent."""

_TANH_FRACTION = 41
"""Fraction bits of the sum of ``tanh``."""


def tanh(x: Floats) -> Floats:
    """Return the hyperbolic tangent, interpolated from 2**-8 to 8."""
    exponent, mantissa = _fields(x)
    octave = np.clip(exponent - 127, _TANH_LEAST, _TANH_END - 1) - _TANH_LEAST
    bits = _TANH_BITS[octave]
    segment = _TANH_FIRST[octave] + (mantissa >> (_MANTISSA - bits))
    form = interpolator("tanh")
    rest = mantissa & ((1 << (_MANTISSA - bits)) - 1)
    distance = rest >> (_MANTISSA - bits - form.distance)
    result = _cut(form(segment << form.distance | distance), _TANH_FRACTION)
    result = np.where(exponent - 127 >= _TANH_END, 1.0, result)
    small = exponent - 127 < _TANH_LEAST
    values = np.where(small, x, np.copysign(result, x).astype(np.float32))
    return np.where(np.isnan(x), _NAN, values.view(np.uint32)).view(np.float32)


_SCALE = np.float32(2.0**24)
"""Factor that makes a subnormal number a normal one."""


def _scaled(function: Callable[[Floats], Floats], x: Floats, factor: np.float32) -> Floats:
    """Return a function of normal numbers for all; that of x * 2**24 is ``factor`` too small."""
    small = np.abs(x) < _LEAST
    if not small.any():
        return function(x)
    result = function(np.where(small, x * _SCALE, x))
    return np.where(small, result * factor, result)


def ex2(x: Floats) -> Floats:
    """Return 2**x; a subnormal result is the square of a normal one."""
    small = x < -126
    root = ex2_ftz(np.where(small, x * np.float32(0.5), x))
    return np.where(small, root * root, root)


def lg2(x: Floats) -> Floats:
    """Return log2(x), of subnormal inputs too."""
    small = np.abs(x) < _LEAST
    result = lg2_ftz(np.where(small, x * _SCALE, x))
    return np.where(small, result - np.float32(24), result)


def rcp(x: Floats) -> Floats:
    """Return 1 / x, with subnormal inputs and results."""
    large = np.abs(x) > 2.0**126
    factor = np.where(large, np.float32(0.25), np.float32(1))
    return _scaled(rcp_ftz, x * factor, _SCALE) * factor


def rsqrt(x: Floats) -> Floats:
    """Return 1 / sqrt(x), of subnormal inputs too."""
    return _scaled(rsqrt_ftz, x, np.float32(2.0**12))


def sqrt(x: Floats) -> Floats:
    """Return the square root of x, of subnormal inputs too."""
    return _scaled(sqrt_ftz, x, np.float32(2.0**-12))


def quotient(a: Floats, b: Floats) -> Floats:
    """Return a / b as ``div.approx``: a times 1 / b, which is 0 if b is above 2**126."""
    return a * _scaled(rcp_ftz, b, _SCALE)


def full_quotient(a: Floats, b: Floats) -> Floats:
    """Return a / b as ``div.full``: a times 1 / b of all b."""
    return a * rcp(b)


def rcp_high(x: Doubles) -> Doubles:
    """Return 1 / x of the high words of doubles, in high words; the low ones are 0."""
    fraction, exponent = np.frexp(_high_word(x))
    result = np.ldexp(rcp_ftz(fraction.astype(np.float32)).astype(np.float64), -exponent)
    return _high_double(result)


def rsqrt_high(x: Doubles) -> Doubles:
    """Return 1 / sqrt(x) of the high words of doubles, in high words; the low ones are 0."""
    fraction, exponent = np.frexp(_high_word(x))
    odd = exponent & 1
    root = rsqrt_ftz(np.ldexp(fraction, odd).astype(np.float32)).astype(np.float64)
    return _high_double(np.ldexp(root, -((exponent - odd) // 2)))


def _high_word(x: Doubles) -> Doubles:
    return (np.ascontiguousarray(x).view(np.int64) >> 32 << 32).view(np.float64)


def _high_double(values: Doubles) -> Doubles:
    """Return the high words of results; subnormal ones are zeros of their sign."""
    values = np.where(np.abs(values) < 2.0**-1022, np.copysign(0.0, values), values)
    return _high_word(values)
