"""Sums of the tensor cores: what one ``wgmma`` or ``mma.sync`` makes of its operands.

The rules are taken from recordings of an H200 (``tests/silicon/ptx``).
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Doubles = NDArray[np.float64]
Exponents = NDArray[np.int16]

BF16 = np.dtype(ml_dtypes.bfloat16)

STEP_BYTES = 32
"""Bytes of k that one instruction multiplies: 8 tf32 values, 16 of 16 bits, 32 of 8 bits."""

_ZERO = -2000
"""Exponent of a zero: less than that of every product."""

_LEAST_SUM = -400
"""Exponent that a sum of zeros takes: less than that of every product, and far from the limits of
double."""


_NARROW = 13
"""Bits that terms of 8-bit operands keep, and the fraction of their sums."""

_PRODUCTS = 1 << 17
"""Products that are looked at together: their exponents fit a cache."""

_FEW = 16
"""If at most one of so many products loses bits, these are taken apart."""


@dataclass(frozen=True)
class _Format:
    """Format of operands.

    Parameters
    ----------
    fraction : int
        Bits of the fraction.
    least : int
        Exponent of subnormal numbers.
    terms : int
        Bits below the greatest exponent of a sum that each of its terms keeps.
    """

    fraction: int
    least: int
    terms: int


_FORMATS = {
    BF16: _Format(7, -126, 25),
    np.dtype(np.float16): _Format(10, -14, 25),
    np.dtype(np.float32): _Format(10, -126, 25),
    np.dtype(ml_dtypes.float8_e4m3fn): _Format(3, -6, _NARROW),
    np.dtype(ml_dtypes.float8_e5m2): _Format(2, -14, _NARROW),
}
_INTEGERS = (np.dtype(np.int8), np.dtype(np.uint8))
_ACCUMULATORS = {np.dtype(np.float32): -126, np.dtype(np.float16): -14}
"""Types of accumulators, with the exponent of subnormal numbers."""


def multiply_accumulate(
    a: Array, b: Array, c: Array, *, together: int = 0, compiled: bool = True
) -> Array:
    """Return ``a @ b.T + c`` as the tensor cores sum it up.

    One instruction adds C and its products at once. Each term is truncated to a multiple of
    2^(m-25), where m is the greatest exponent of all terms; that of a product is the sum of its
    operands' exponents. The sum is rounded toward zero to float32, or to the nearest float16.
    Operands of 8 bits keep 2^(m-13), and their sum 13 bits of fraction. Integers are exact,
    modulo 2^32. Instructions follow each other in steps of 32 bytes of k.

    Choices, as silicon was not recorded there: a NaN is 0x7fffffff or 0x7fff, and a float32 sum
    beyond the greatest number becomes that number.

    Parameters
    ----------
    a : array
        m x k: bfloat16, float16, float32 (tf32: the low 13 bits are dropped), float8_e4m3fn,
        float8_e5m2, int8 or uint8.
    b : array
        n x k, of the same type; the two of 8-bit floats and the two of integers may differ.
    c : array
        m x n: float32, float16, or int32 with integers.
    together : int
        Elements of k that one instruction multiplies. 0: those of 32 bytes.
    compiled : bool
        In a simulation, use the function of the simulator where it has one. False: only NumPy.

    Raises
    ------
    TypeError
        If the tensor cores have no sum of these types.
    ValueError
        If the shapes do not match.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or c.shape != (len(a), len(b)):
        raise ValueError(
            f"a {a.shape}, b {b.shape}, c {c.shape}: shapes must be (m, k), (n, k), (m, n)"
        )
    _check_types(a, b, c)
    if a.dtype in _INTEGERS:
        return (a.astype(np.float64) @ b.astype(np.float64).T + c).astype(np.int64).astype(np.int32)
    formats = _FORMATS[a.dtype], _FORMATS[b.dtype]
    left, right = _operand(a), _operand(b)
    k = together or STEP_BYTES // a.dtype.itemsize
    multiply = _compiled() if compiled else None
    if multiply and c.dtype == np.float32 and all(np.isfinite(x).all() for x in (left, right, c)):
        return _multiplied(multiply, left, right, c, k, formats)
    rows = max(_PRODUCTS // max(k * len(b), 1), 1)
    blocks = [slice(start, start + rows) for start in range(0, len(a), rows)] or [slice(0)]
    for start in range(0, a.shape[1], k):
        part = slice(start, start + k)
        c = np.concatenate(
            [_step(left[block, part], right[:, part], c[block], formats) for block in blocks]
        )
    return c


def wide(values: Array) -> Doubles:
    """Convert to double, in which products of two operands are exact."""
    if values.dtype == BF16:
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


def _check_types(a: Array, b: Array, c: Array) -> None:
    same = a.dtype == b.dtype or (
        a.dtype.itemsize == 1 and (a.dtype in _INTEGERS) == (b.dtype in _INTEGERS)
    )
    if a.dtype in _INTEGERS:
        right = b.dtype in _INTEGERS and c.dtype == np.int32
    else:
        right = a.dtype in _FORMATS and b.dtype in _FORMATS and c.dtype in _ACCUMULATORS
        if c.dtype == np.float16:
            right = right and a.dtype not in (BF16, np.dtype(np.float32))
    if not (same and right):
        raise TypeError(f"the tensor cores do not multiply {a.dtype} by {b.dtype} into {c.dtype}")


def _operand(values: Array) -> Doubles:
    if values.dtype == np.float32:
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return wide(values)


@cache
def _compiled() -> Callable[..., None] | None:
    """Return the function of the testbench that multiplies; None outside of a simulation."""
    try:
        return multiply_in(ctypes.CDLL(None))
    except AttributeError:
        return None


def multiply_in(library: ctypes.CDLL) -> Callable[..., None]:
    """Return the function of ``sim_tb/testbench/dpi/tensor_cores.cpp`` in a library.

    Raises
    ------
    AttributeError
        If it is not there.
    """
    function = library.tensor_cores_multiply
    sizes, numbers, pointers = [ctypes.c_size_t] * 4, [ctypes.c_int32] * 3, [ctypes.c_void_p] * 3
    function.argtypes = [*sizes, *numbers, ctypes.c_uint32, *pointers]
    function.restype = None
    return function


def _multiplied(
    multiply: Callable[..., None],
    a: Doubles,
    b: Doubles,
    c: Array,
    together: int,
    formats: tuple[_Format, _Format],
) -> Array:
    """Return ``multiply_accumulate`` of finite numbers and float32, by the compiled function."""
    result = np.array(c, order="C")
    arrays = np.ascontiguousarray(a), np.ascontiguousarray(b), result
    sizes = len(a), len(b), a.shape[1], together
    terms = formats[0].terms
    rules = formats[0].least, formats[1].least, terms, terms == _NARROW
    multiply(*sizes, *rules, *(array.ctypes.data for array in arrays))
    return result


def _step(a: Doubles, b: Doubles, c: Array, formats: tuple[_Format, _Format]) -> Array:
    """Return the result of one instruction, as an array of the type of ``c``."""
    start = c.astype(np.float64)
    if np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(start).all():
        return _rounded(_finite_sum(a, b, start, c.dtype, formats), c.dtype)
    with np.errstate(invalid="ignore"):
        special = a @ b.T + start
    a, b, start = (np.where(np.isfinite(x), x, 0.0) for x in (a, b, start))
    result = _rounded(_finite_sum(a, b, start, c.dtype, formats), c.dtype)
    np.copyto(result, special, where=np.isinf(special), casting="same_kind")
    bits = np.dtype(f"u{c.dtype.itemsize}")
    result.view(bits)[np.isnan(special)] = np.iinfo(bits).max >> 1
    return result


def _finite_sum(
    a: Doubles, b: Doubles, c: Doubles, dtype: np.dtype[Any], formats: tuple[_Format, _Format]
) -> Doubles:
    """Return the exact sum of the truncated terms."""
    left = np.ascontiguousarray(_exponents(a, formats[0].least).T)[:, :, None]
    right = np.ascontiguousarray(_exponents(b, formats[1].least).T)[:, None, :]
    exponents = left + right  # of the products, by k, m and n
    greatest = exponents.max(axis=0)
    np.maximum(greatest, _exponents(c, _ACCUMULATORS[dtype]), out=greatest)
    np.maximum(greatest, _LEAST_SUM, out=greatest)
    unit = greatest - np.int16(formats[0].terms)
    scale = _power_of_two(-unit)
    lossy = exponents < unit + np.int16(formats[0].fraction + formats[1].fraction)
    for operand in left, right:
        if (operand == _ZERO).any():
            lossy &= operand != _ZERO
    if np.count_nonzero(lossy) > lossy.size // _FEW:
        total = _truncated_products(a, b, scale)
    else:
        # The sum is whole, and the error of double is far less than a half.
        total = np.rint((a @ b.T) * scale - _lost(a, b, scale, np.flatnonzero(lossy)))
    total += np.trunc(c * scale)
    total *= _power_of_two(unit)
    if formats[0].terms == _NARROW:
        last = _power_of_two(np.maximum(_exponents(total, _LEAST_SUM), _LEAST_SUM) - _NARROW)
        total = np.trunc(total / last) * last
    return total


def _truncated_products(a: Doubles, b: Doubles, scale: Doubles) -> Doubles:
    """Return the sums of the products, each times ``scale`` and then truncated."""
    total, term = np.zeros_like(scale), np.empty_like(scale)
    for left, right in zip(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), strict=True):
        np.multiply(left[:, None], right, out=term)
        term *= scale
        total += np.trunc(term, out=term)
    return total


def _lost(a: Doubles, b: Doubles, scale: Doubles, products: Array) -> Doubles:
    """Return what sums lose because some of their products are truncated, times ``scale``.

    ``products`` are the numbers of these products, in an array by k, m and n.
    """
    k, places = np.divmod(products, scale.size)
    rows, columns = np.divmod(places, scale.shape[1])
    terms = a[rows, k] * b[columns, k] * scale.ravel()[places]
    lost = np.bincount(places, terms - np.trunc(terms), scale.size)
    return lost.astype(np.float64, copy=False).reshape(scale.shape)


def _rounded(total: Doubles, dtype: np.dtype[Any]) -> Array:
    """Round to float32 toward zero, or to the nearest float16."""
    with np.errstate(over="ignore"):
        result = total.astype(dtype)
    if dtype == np.float32:
        result.view(np.int32)[...] -= np.abs(result) > np.abs(total)
    return result


def _exponents(values: Doubles, least: int) -> Exponents:
    """Return floor(log2) of each magnitude, ``least`` at least, and ``_ZERO`` for zeros."""
    exponents = ((np.ascontiguousarray(values).view(np.int64) >> 52) & 0x7FF).astype(np.int16)
    exponents -= 1023
    return np.where(values == 0, np.int16(_ZERO), np.maximum(exponents, np.int16(least)))


def _power_of_two(exponents: Exponents) -> Doubles:
    return ((exponents.astype(np.int64) + 1023) << 52).view(np.float64)
