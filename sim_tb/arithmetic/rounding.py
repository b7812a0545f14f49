"""Rounding of exact results: one rounding of a sum, product, quotient or root, in every direction.

A sum that float64 does not hold is rounded to odd: the last bit of an inexact result is one. A
later rounding to a format of at most 50 bits is then the rounding of the exact sum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Parameters
    ----------
    precision : int
        Bits of the significand, the hidden one included.
    least : int
        Exponent of the least normal number.
    greatest : float
        Greatest finite number.
    """

    precision: int
    least: int
    greatest: float


FORMATS = {
    "f64": Format(53, -1022, float(np.finfo(np.float64).max)),
    "f32": Format(24, -126, float(np.finfo(np.float32).max)),
    "tf32": Format(11, -126, (2 - 2.0**-10) * 2.0**127),
    "f16": Format(11, -14, 65504.0),
    "bf16": Format(8, -126, (2 - 2.0**-7) * 2.0**127),
    "e4m3": Format(4, -6, 448.0),
    "e5m2": Format(3, -14, 57344.0),
}


def _away(values: Doubles) -> Doubles:
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


DIRECTIONS: dict[str, Callable[[Doubles], Doubles]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
    "rna": _away,
}
"""Rounding to an integer: to nearest even, to zero, down, up, to nearest with ties away from 0."""


def rounded(values: Doubles, form: Format, direction: str = "rn") -> Doubles:
    """Return exact or odd values, rounded to a format, in float64.

    Overflow gives infinity, or the greatest finite number where the direction is away from
    infinity. NaN and infinities stay.
    """
    _, exponent = np.frexp(values)
    unit = np.maximum(exponent - 1, form.least) - (form.precision - 1)
    result = np.ldexp(DIRECTIONS[direction](np.ldexp(values, -unit)), unit)
    result = np.where(np.isfinite(values), result, values)
    over = np.isfinite(values) & (np.abs(result) > form.greatest)
    if not over.any():
        return result
    down, up = direction in ("rz", "rm"), direction in ("rz", "rp")
    kept = (values > 0) & down | (values < 0) & up
    return np.where(over, np.copysign(np.where(kept, form.greatest, np.inf), values), result)


def sum_error(a: Doubles, b: Doubles, total: Doubles) -> Doubles:
    """Return a + b - total, exactly, of a total that is rounded to nearest."""
    other = total - a
    return (a - (total - other)) + (b - other)


def _to_odd(total: Doubles, error: Doubles) -> Doubles:
    """Return total + error rounded to odd, from total rounded to nearest and its error."""
    bits = total.view(np.int64)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    return np.where(inexact, bits + toward, bits).view(np.float64)


def odd_sum(a: Doubles, b: Doubles) -> Doubles:
    """Return a + b, rounded to odd."""
    total = a + b
    return _to_odd(total, sum_error(a, b, total))


def odd_integers(values: Array) -> Doubles:
    """Return integers as float64, rounded to odd."""
    if values.dtype.itemsize < 8:
        return values.astype(np.float64)
    low = (values & values.dtype.type(0xFFFFFFFF)).astype(np.float64)
    high = (values >> values.dtype.type(32)).astype(np.float64)
    return odd_sum(high * 2.0**32, low)


_TIE_BITS, _TIE = 0x1FFFFFFF, 0x10000000
"""Bits of a float64 that a normal float32 has not, and their value midway between two float32."""


def fused_single(a: Array, b: Array, c: Array) -> NDArray[np.float32]:
    """Return a * b + c of float32 arrays, rounded once to nearest even."""
    product = a.astype(np.float64) * b.astype(np.float64)
    total = product + c
    twice_rounded = (total.view(np.int64) & _TIE_BITS == _TIE) | (np.abs(total) < 2.0**-125)
    if twice_rounded.any():  # rare: the rounding to float64 may have made, or hidden, a tie
        total = odd_sum(product, c.astype(np.float64))
    return total.astype(np.float32)


_SPLITTER = 134217729.0
"""2**27 + 1: splits a float64 in two halves."""

_SAFE = 2.0**480
"""Magnitudes between 1 / _SAFE and _SAFE have products whose error float64 holds."""


def _product_error(a: Doubles, b: Doubles, product: Doubles) -> Doubles:
    """Return a * b - product, exactly, of operands that are not extreme."""
    a_high = (a * _SPLITTER) - ((a * _SPLITTER) - a)
    b_high = (b * _SPLITTER) - ((b * _SPLITTER) - b)
    a_low, b_low = a - a_high, b - b_high
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _moderate(values: Doubles) -> NDArray[np.bool_]:
    magnitude = np.abs(values)
    return np.asarray((magnitude == 0) | ((magnitude < _SAFE) & (magnitude > 1 / _SAFE)))


def fused_double(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """Return a * b + c of float64 arrays, rounded once to nearest even."""
    product = a * b
    error = _product_error(a, b, product)
    inner = c + error
    total = product + inner
    rest = odd_sum(sum_error(c, error, inner), sum_error(product, inner, total))
    factors = np.isfinite(a) & np.isfinite(b)
    plain = np.where(factors & np.isinf(c), c, product + c)
    finite = factors & np.isfinite(c)
    vector = _moderate(a) & _moderate(b) & _moderate(c) & (total != 0)
    result = np.where(finite & vector, total + rest, plain)
    for at in np.flatnonzero(finite & ~vector).tolist():
        exact = Fraction(a[at].item()) * Fraction(b[at].item()) + Fraction(c[at].item())
        if exact:  # the sign of an exact zero is that of the plain sum
            result[at] = _nearest(exact)
    return result


def _nearest(value: Fraction) -> float:
    """Return a number other than 0 as float64, rounded to nearest even."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _orders(name: str, result: Array, sources: list[Array]) -> Array:
    """Return the sign of ``result`` minus the exact result of finite operands."""
    if result.dtype == np.float64:
        return _orders_by_fractions(name, result, sources)
    wide = [source.astype(np.float64) for source in sources]
    got = result.astype(np.float64)
    if name == "add":
        return np.sign(got - odd_sum(*wide))
    if name == "mul":
        return np.sign(got - wide[0] * wide[1])
    if name == "fma":
        return np.sign(got - odd_sum(wide[0] * wide[1], wide[2]))
    if name == "sqrt":
        return np.sign(got * got - wide[0])
    return np.sign(got * wide[1] - wide[0]) * np.sign(wide[1])


_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b,
}


def _orders_by_fractions(name: str, result: Doubles, sources: list[Doubles]) -> Doubles:
    orders = np.zeros(result.shape)
    for at, got in enumerate(result.tolist()):
        if not all(np.isfinite(source[at]) for source in sources):
            continue
        if not np.isfinite(got):
            orders[at] = np.sign(got)
            continue
        values = [Fraction(source[at].item()) for source in sources]
        if name == "sqrt":
            difference = Fraction(got) ** 2 - values[0]
        else:
            difference = Fraction(got) - _EXACT[name](*values)
        orders[at] = int(difference > 0) - int(difference < 0)
    return orders


_NEAREST: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
}


def operate(name: str, sources: list[Array], direction: str = "rn") -> Array:
    """Return a sum, product, quotient, root or fused sum of float32 or float64 arrays.

    Parameters
    ----------
    name : str
        ``add``, ``mul``, ``div``, ``sqrt`` or ``fma``.
    sources : list of ndarray
        Operands of one shape and type.
    direction : str
        ``rn``, ``rz``, ``rm`` or ``rp``.
    """
    if name == "fma":
        fused = fused_single if sources[0].dtype == np.float32 else fused_double
        result: Array = fused(*sources)
    else:
        result = _NEAREST[name](*sources)
    if direction == "rn":
        return result
    finite: NDArray[np.bool_] = np.isfinite(np.stack(sources)).all(axis=0)
    if name == "div":
        finite = finite & (sources[1] != 0)
        sources = [sources[0], np.where(finite, sources[1], sources[1].dtype.type(1))]
    order = np.where(finite, _orders(name, result, sources), 0)
    down = (result > 0) & (direction == "rz") | (direction == "rm")
    up = (result < 0) & (direction == "rz") | (direction == "rp")
    low = np.nextafter(result, result.dtype.type(-np.inf))
    high = np.nextafter(result, result.dtype.type(np.inf))
    result = np.where((order > 0) & down, low, np.where((order < 0) & up, high, result))
    if direction == "rm" and name in ("add", "fma"):
        first = sources[0] if name == "add" else sources[0] * sources[1]
        opposite = np.signbit(first) != np.signbit(sources[-1])
        result = np.where((result == 0) & opposite & finite, -np.abs(result), result)
    return result
