"""Arithmetic of reductions, whole arrays at once, and which pairs of type and operation exist.

``golden.definition`` says the same a number at a time.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.enums import DataType, ReductionOp

Words = NDArray[Any]
Pairs = frozenset[tuple[DataType, ReductionOp]]

_ARITHMETIC = (ReductionOp.ADD, ReductionOp.MIN, ReductionOp.MAX)
_COUNTING = (ReductionOp.INC, ReductionOp.DEC)
_BITWISE = (ReductionOp.AND, ReductionOp.OR, ReductionOp.XOR)
_ADD = (ReductionOp.ADD,)
_ORDER = (ReductionOp.MIN, ReductionOp.MAX)

TENSOR_PAIRS: Pairs = frozenset(
    (kind, op)
    for kind, ops in {
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
    }.items()
    for op in ops
)
"""Of tensor reductions (silicon; documents omit f64 and promise more bitwise ones)."""

BULK_PAIRS: Pairs = frozenset(
    (kind, op)
    for kind, ops in {
        DataType.UINT32: _ARITHMETIC + _COUNTING + _BITWISE,
        DataType.INT32: _ARITHMETIC + _BITWISE,
        DataType.UINT64: _ARITHMETIC + _BITWISE,
        DataType.INT64: _ORDER + _BITWISE,
        DataType.FLOAT16: _ARITHMETIC,
        DataType.BFLOAT16: _ARITHMETIC,
        DataType.FLOAT32: _ADD,
        DataType.FLOAT64: _ADD,
    }.items()
    for op in ops
)
"""Of bulk reductions to global memory (silicon); bitwise ones are of b32 and b64."""

DSMEM_PAIRS: Pairs = frozenset(
    (kind, op)
    for kind, ops in {
        DataType.UINT32: _ARITHMETIC + _COUNTING + _BITWISE,
        DataType.INT32: _ARITHMETIC[1:] + _ADD + _BITWISE,
        DataType.UINT64: _ADD,
    }.items()
    for op in ops
)
"""Of bulk reductions to another CTA's shared memory (PTX ISA)."""

NAN_HALF = 0x7FFF
NAN_SINGLE = 0x7FFFFFFF
NAN_DOUBLE = 0xFFF8000000000000
"""Results that are no number (silicon)."""

_INFINITY = {DataType.FLOAT16: 0x7C00, DataType.BFLOAT16: 0x7F80}


def _flushed(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Subnormals become zero of the same sign."""
    tiny = words & np.uint32(0x7F800000) == 0
    return np.where(tiny, words & np.uint32(0x80000000), words).astype(np.uint32, copy=False)


def _add_single(m: Words, s: Words, flush: bool) -> Words:
    if flush:
        m, s = _flushed(m), _flushed(s)
    total = m.view(np.float32) + s.view(np.float32)
    words = total.view(np.uint32)
    if flush:
        words = _flushed(words)
    words[np.isnan(total)] = NAN_SINGLE
    return words


def _add_half(m: Words, s: Words, kind: DataType) -> Words:
    # Both libraries add in binary32, so wide that rounding twice is rounding once.
    words: Words = (m.view(kind.dtype) + s.view(kind.dtype)).view(np.uint16)
    words[words & np.uint16(0x7FFF) > _INFINITY[kind]] = NAN_HALF
    return words


def _add_double(m: Words, s: Words) -> Words:
    a, b = m.view(np.float64), s.view(np.float64)
    total = a + b
    words: Words = total.view(np.uint64)
    nan = np.isnan(total)
    if nan.any():
        words = np.where(nan, np.uint64(NAN_DOUBLE), words)
        words = np.where(np.isnan(a), m, words)
        words = np.where(np.isnan(b), s, words)
    return words


def _order_half(m: Words, s: Words, infinity: int, largest: bool) -> Words:
    def key(words: Words) -> NDArray[np.int32]:
        magnitude = words & np.uint16(0x7FFF)
        signed = words.astype(np.int32)
        signed = np.where(signed & 0x8000, 0x7FFF - signed, signed)  # -0 below +0
        return np.where(magnitude > infinity, -0x10000 if largest else 0x10000, signed)

    km, ks = key(m), key(s)
    words = np.where(km > ks if largest else km < ks, m, s)
    both = (m & np.uint16(0x7FFF) > infinity) & (s & np.uint16(0x7FFF) > infinity)
    return np.where(both, np.uint16(NAN_HALF), words).astype(np.uint16)


def reduced(op: ReductionOp, data_type: DataType, memory: Words, source: Words) -> Words:
    """``memory`` after the operation with ``source`` (silicon).

    Parameters
    ----------
    op, data_type
        One of the pairs above.
    memory, source : ndarray of unsigned integers
        Elements as words of the type's size, in one shape.

    Returns
    -------
    ndarray
        Words like ``memory``; neither operand is changed.
    """
    m, s = memory, source
    result: Words
    match op:
        case ReductionOp.AND:
            result = m & s
        case ReductionOp.OR:
            result = m | s
        case ReductionOp.XOR:
            result = m ^ s
        case ReductionOp.INC:
            result = np.where(m >= s, m.dtype.type(0), m + m.dtype.type(1))
        case ReductionOp.DEC:
            result = np.where((m == 0) | (m > s), s, m - m.dtype.type(1))
        case _ if data_type.is_float:
            result = _float_reduced(op, data_type, m, s)
        case ReductionOp.ADD:
            result = m + s
        case _:
            a, b = m.view(data_type.dtype), s.view(data_type.dtype)
            extreme = np.maximum(a, b) if op is ReductionOp.MAX else np.minimum(a, b)
            result = extreme.view(m.dtype)
    return result


def _float_reduced(op: ReductionOp, data_type: DataType, m: Words, s: Words) -> Words:
    if data_type in _INFINITY and op is not ReductionOp.ADD:
        return _order_half(m, s, _INFINITY[data_type], op is ReductionOp.MAX)
    with np.errstate(all="ignore"):
        if data_type in _INFINITY:
            return _add_half(m, s, data_type)
        if data_type is DataType.FLOAT64:
            return _add_double(m, s)
        return _add_single(m, s, data_type.flushes)
