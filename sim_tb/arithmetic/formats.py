"""Formats of PTX values: bits to numbers, and numbers to bits.

Numbers are float64 arrays, exact or rounded to odd (`sim_tb.arithmetic.rounding`); bits are
unsigned arrays. The NaN that a conversion makes has all bits of exponent and fraction set.
"""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from sim_tb.arithmetic.rounding import FORMATS, Doubles, rounded

Array = NDArray[Any]

DTYPES: dict[str, "np.dtype[Any]"] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}

_NANS = {
    "f16": 0x7FFF,
    "bf16": 0x7FFF,
    "tf32": 0x7FFFFFFF,
    "f32": 0x7FFFFFFF,
    "e4m3": 0x7F,
    "e5m2": 0x7F,
}


def numbers(bits: Array, kind: str) -> Doubles:
    """Return the values of bits."""
    return np.ascontiguousarray(bits).view(DTYPES[kind]).astype(np.float64)


def bits_of(
    values: Doubles, kind: str, direction: str = "rn", *, finite: bool = False, relu: bool = False
) -> Array:
    """Return values, rounded to a format.

    Parameters
    ----------
    values : ndarray
        Values, exact or rounded to odd.
    kind : str
        Name of the format.
    direction : str
        Rounding: ``rn``, ``rz``, ``rm``, ``rp`` or ``rna``.
    finite : bool
        Whether overflow gives the greatest finite number (``.satfinite``).
    relu : bool
        Whether negative values give 0.
    """
    form = FORMATS[kind]
    if finite:
        values = np.clip(values, -form.greatest, form.greatest)
    if relu:
        values = np.where(values < 0, 0.0, values)
    result = rounded(values, form, direction).astype(DTYPES[kind])
    bits = result.view(f"u{result.dtype.itemsize}")
    if kind not in _NANS:
        return bits
    return np.where(np.isnan(values), bits.dtype.type(_NANS[kind]), bits)


def flushed(bits: Array, kind: str) -> Array:
    """Return bits with subnormal numbers as zeros of their sign (``.ftz``)."""
    word = bits.dtype.type
    width = 8 * bits.dtype.itemsize
    sign = word(1 << (width - 1))
    exponent = word((1 << (width - 1)) - (1 << (FORMATS[kind].precision - 1)))
    return np.where(bits & exponent == 0, bits & sign, bits)
