"""Arithmetic of reductions on whole arrays, and the legal pairs of type and operation.

``golden.definition`` has the same arithmetic on single numbers.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.enums import DataType, ReductionOp

Words = NDArray[Any]
Combine = Callable[[Words, Words], Words]
Pairs = frozenset[tuple[DataType, ReductionOp]]

_ARITHMETIC = (ReductionOp.ADD, ReductionOp.MIN, ReductionOp.MAX)
_COUNTING = (ReductionOp.INC, ReductionOp.DEC)
_BITWISE = (ReductionOp.AND, ReductionOp.OR, ReductionOp.XOR)
_ADD = (ReductionOp.ADD,)
_ORDER = (ReductionOp.MIN, ReductionOp.MAX)


def _pairs(ops: dict[DataType, tuple[ReductionOp, ...]]) -> Pairs:
    return frozenset((kind, op) for kind in ops for op in ops[kind])


TENSOR_PAIRS = _pairs(
    {
        DataType.UINT32: _ARITHMETIC + _COUNTING + _BITWISE,
        DataType.INT32: _ARITHMETIC + _BITWISE,
        DataType.UINT64: _ARITHMETIC + _BITWISE,
        DataType.INT64: _ORDER,
        DataType.FLOAT16: _ARITHMETIC,
        DataType.BFLOAT16: _ARITHMETIC,
        DataType.FLOAT32: _ADD,
        DataType.FLOAT64: _ADD,
        DataType.FLOAT32_FTZ: _ADD,
        DataType.TFLOAT32: _ADD,
        DataType.TFLOAT32_FTZ: _ADD,
    }
)
"""Pairs of tensor reductions (silicon; documents omit f64 and list more bitwise pairs)."""

BULK_PAIRS = _pairs(
    {
        DataType.UINT32: _ARITHMETIC + _COUNTING + _BITWISE,
        DataType.INT32: _ARITHMETIC + _BITWISE,
        DataType.UINT64: _ARITHMETIC + _BITWISE,
        DataType.INT64: _ORDER + _BITWISE,
        DataType.FLOAT16: _ARITHMETIC,
        DataType.BFLOAT16: _ARITHMETIC,
        DataType.FLOAT32: _ADD,
        DataType.FLOAT64: _ADD,
    }
)
"""Pairs of bulk reductions to global memory (silicon); PTX calls bitwise types b32 and b64."""

DSMEM_PAIRS = _pairs(
    {
        DataType.UINT32: _ARITHMETIC + _COUNTING + _BITWISE,
        DataType.INT32: _ARITHMETIC + _BITWISE,
        DataType.UINT64: _ADD,
    }
)
"""Pairs of bulk reductions to the shared memory of a cluster (silicon)."""

ASYNC_PAIRS = DSMEM_PAIRS | _pairs({DataType.INT64: _ADD})
"""Pairs of ``red.async`` (silicon)."""

NAN_HALF = 0x7FFF
NAN_SINGLE = 0x7FFFFFFF
NAN_DOUBLE = 0xFFF8000000000000
"""NaN that a reduction returns, by size of the type (silicon)."""

_INFINITY = {DataType.FLOAT16: 0x7C00, DataType.BFLOAT16: 0x7F80}


def has_nan(values: Words) -> bool:
    """Return whether one of the floating-point ``values`` is a NaN, in one fast pass."""
    if not values.size:
        return False
    top = values.reshape(-1)[values.argmax()]  # argmax takes a NaN for the maximum
    return bool(top != top)


def _flushed(words: Words) -> Words:
    """Return the words; subnormals become zero of the same sign."""
    tiny = words & np.uint32(0x7F800000) == 0
    return np.where(tiny, words & np.uint32(0x80000000), words) if tiny.any() else words


def _add_single(flush: bool, m: Words, s: Words) -> Words:
    if flush:
        m, s = _flushed(m), _flushed(s)
    with np.errstate(all="ignore"):
        total = m.view(np.float32) + s.view(np.float32)
    words: Words = total.view(np.uint32)
    if flush:
        words = _flushed(words)
    if has_nan(total):
        words[np.isnan(total)] = NAN_SINGLE
    return words


def _add_half(kind: DataType, m: Words, s: Words) -> Words:
    # NumPy and ml_dtypes add in binary32: wide enough that rounding twice equals rounding once.
    with np.errstate(all="ignore"):
        words: Words = (m.view(kind.dtype) + s.view(kind.dtype)).view(np.uint16)
    magnitude = words & np.uint16(0x7FFF)
    if magnitude[magnitude.argmax()] > _INFINITY[kind]:
        words[magnitude > _INFINITY[kind]] = NAN_HALF
    return words


def _add_double(m: Words, s: Words) -> Words:
    a, b = m.view(np.float64), s.view(np.float64)
    with np.errstate(all="ignore"):
        total = a + b
    words: Words = total.view(np.uint64)
    if has_nan(total):
        nan = np.isnan(total)
        words = np.where(nan, np.uint64(NAN_DOUBLE), words)
        words = np.where(np.isnan(a), m, words)
        words = np.where(np.isnan(b), s, words)
    return words


def _ordered(words: NDArray[np.int16]) -> NDArray[np.int16]:
    """Map 16-bit floats to integers in the same order, -0 below +0; the map is its own inverse."""
    return words ^ (words >> np.int16(15) & np.int16(0x7FFF))


def _extreme_half(extreme: Combine, kind: DataType, m: Words, s: Words) -> Words:
    result = extreme(_ordered(m.view(np.int16)), _ordered(s.view(np.int16)))
    words: Words = _ordered(result).view(np.uint16)
    magnitudes = m & np.uint16(0x7FFF), s & np.uint16(0x7FFF)
    if any(size[size.argmax()] > _INFINITY[kind] for size in magnitudes):
        nan_m, nan_s = (size > _INFINITY[kind] for size in magnitudes)
        words = np.where(nan_m, s, np.where(nan_s, m, words))
        words[nan_m & nan_s] = NAN_HALF
    return words


def _extreme(extreme: Combine, kind: DataType, m: Words, s: Words) -> Words:
    words: Words = extreme(m.view(kind.dtype), s.view(kind.dtype)).view(m.dtype)
    return words


def _increment(m: Words, s: Words) -> Words:
    words: Words = np.where(m >= s, m.dtype.type(0), m + m.dtype.type(1))
    return words


def _decrement(m: Words, s: Words) -> Words:
    words: Words = np.where((m == 0) | (m > s), s, m - m.dtype.type(1))
    return words


@cache
def operation(op: ReductionOp, data_type: DataType) -> Combine:
    """Return the function that computes memory's words after a reduction (silicon).

    Parameters
    ----------
    op, data_type
        One of the pairs above.

    Returns
    -------
    callable
        Takes memory's words and the source's words, arrays of unsigned integers of the type's size,
        and returns a new array of words.

    Examples
    --------
    >>> add = operation(ReductionOp.ADD, DataType.UINT32)
    >>> add(np.uint32([7, 0xFFFFFFFF]), np.uint32([1, 2])).tolist()
    [8, 1]
    """
    simple: dict[ReductionOp, Combine] = {
        ReductionOp.INC: _increment,
        ReductionOp.DEC: _decrement,
        ReductionOp.AND: np.bitwise_and,
        ReductionOp.OR: np.bitwise_or,
        ReductionOp.XOR: np.bitwise_xor,
    }
    if op in simple:
        return simple[op]
    half = data_type in _INFINITY
    if op is not ReductionOp.ADD:
        extreme = np.maximum if op is ReductionOp.MAX else np.minimum
        return partial(_extreme_half if half else _extreme, extreme, data_type)
    if half:
        return partial(_add_half, data_type)
    if data_type is DataType.FLOAT64:
        return _add_double
    return partial(_add_single, data_type.flushes) if data_type.is_float else np.add
