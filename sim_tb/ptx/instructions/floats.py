"""Floating-point arithmetic that is rounded to nearest even, comparisons and conversions.

Approximate functions (``ex2``, ``rcp.approx``, ``div.full`` and others) and other rounding modes
are refused.
"""

from collections.abc import Callable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from sim_tb.ptx.machine import LANES, Lanes, Mask, Warp
from sim_tb.ptx.operands import DTYPES, Execute, Operands, instruction

FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
"""PTX types of floating-point values."""

_Single = NDArray[np.float32]


def canonical(values: _Single) -> _Single:
    """Return values with each NaN as the one that the unit makes, 0x7fffffff (silicon)."""
    nan = np.uint32(0x7FFFFFFF)
    return np.where(np.isnan(values), nan, values.view(np.uint32)).view(np.float32)


def flushed(values: _Single) -> _Single:
    """Return values with subnormal numbers as zeros of their sign (``.ftz``)."""
    bits = values.view(np.uint32)
    small = bits & np.uint32(0x7F800000) == 0
    return np.where(small, bits & np.uint32(0x80000000), bits).view(np.float32)


def fused_single(a: _Single, b: _Single, c: _Single) -> _Single:
    """Return a * b + c, rounded once to f32.

    The product is exact in f64. The sum is rounded to odd in f64, so that the second rounding, to
    f32, is that of the exact sum.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    other = total - product
    error = (product - (total - other)) + (addend - other)
    bits = total.view(np.int64)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    return np.where(inexact, bits + toward, bits).view(np.float64).astype(np.float32)


def _smaller(a: Lanes, b: Lanes) -> Lanes:
    """Return the minimum; -0 is below +0, and a number goes before NaN."""
    result = np.fmin(a, b)
    both = (a == 0) & (b == 0)
    return np.where(both & (np.signbit(a) | np.signbit(b)), np.copysign(result, -1), result)


def _larger(a: Lanes, b: Lanes) -> Lanes:
    """Return the maximum, as `_smaller`."""
    result = np.fmax(a, b)
    both = (a == 0) & (b == 0)
    return np.where(both & ~(np.signbit(a) & np.signbit(b)), np.abs(result), result)


_FUNCTIONS: dict[str, Callable[..., Lanes]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": _smaller,
    "max": _larger,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rcp": lambda a: a.dtype.type(1) / a,
    "fma": fused_single,
}

_ROUNDED = ("div", "rcp", "sqrt")
"""Instructions that must have ``.rn``: without, they are approximations."""


@instruction("fma", "rcp", "sqrt")
def float_arithmetic(ins: Operands) -> Execute:
    """Arithmetic of f32 and f64 with ``.rn``, ``.ftz``, ``.NaN`` and ``.sat``; ``fma`` of f32."""
    kind, name = ins.parts[-1], ins.parts[0]
    if name == "mad":
        name = "fma"
    if kind not in ("f32", "f64") or (name == "fma" and kind != "f32"):
        raise ins.refuse(f".{kind}")
    ins.require_parts(("rn", "ftz", "NaN", "sat", kind))
    if name in _ROUNDED and not ins.has("rn"):
        raise ins.refuse("an approximation")
    function = _FUNCTIONS[name]
    write = ins.write(0)
    sources = [ins.read(index, kind) for index in range(1, len(ins))]
    single, ftz, sat, nan = kind == "f32", ins.has("ftz"), ins.has("sat"), ins.has("NaN")

    def execute(warp: Warp, mask: Mask) -> None:
        values = [read(warp) for read in sources]
        if ftz:
            values = [flushed(value) for value in values]
        result = function(*values)
        if nan:
            result = np.where(np.isnan(values[0]) | np.isnan(values[1]), np.nan, result)
            result = result.astype(values[0].dtype)
        if sat:
            result = np.fmax(np.fmin(result, result.dtype.type(1)), result.dtype.type(0))
        if ftz:
            result = flushed(result)
        write(warp, canonical(result) if single else result, mask)

    return execute


def _unordered(compare: Callable[..., Lanes]) -> Callable[[Lanes, Lanes], Lanes]:
    return lambda a, b: compare(a, b) | np.isnan(a) | np.isnan(b)


_ORDERED: dict[str, Callable[..., Lanes]] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

_COMPARE: dict[str, Callable[..., Lanes]] = {
    **_ORDERED,
    **{f"{name}u": _unordered(function) for name, function in _ORDERED.items()},
    "ne": lambda a, b: (a < b) | (a > b),
    "neu": np.not_equal,
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}


def float_compare(ins: Operands, operation: str) -> Callable[..., Lanes]:
    """Return the comparison of a ``setp`` of f16, f32 or f64."""
    kind = ins.parts[-1]
    if kind not in ("f16", "f32", "f64") or operation not in _COMPARE:
        raise ins.refuse()
    compare = _COMPARE[operation]
    if not ins.has("ftz"):
        return compare
    return lambda a, b: compare(flushed(a), flushed(b))


def _rounded_integer(mode: str) -> Callable[[Lanes], Lanes]:
    return {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]


_NARROW = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def float_convert(ins: Operands) -> Execute:
    """Conversion from or to a floating-point type, rounded to nearest even."""
    target, source = ins.parts[-2], ins.parts[-1]
    if target in ("f16x2", "bf16x2") and source == "f32":
        return _convert_pair(ins, target)
    known = ("rn", "ftz", "rni", "rzi", "rmi", "rpi", "rna", target, source)
    ins.require_parts(known)
    write = ins.write(0)
    integer = target[0] in "us"
    read = ins.read(1, source)
    if target == "tf32":
        return _convert_tf32(ins)
    if source not in ("f16", "bf16", "f32", "f64") and source[0] not in "us":
        raise ins.refuse()
    modes = [part for part in ins.parts if part in ("rni", "rzi", "rmi", "rpi")]
    if integer != bool(modes) or (ins.has("rna") and target != "tf32"):
        raise ins.refuse()
    ftz = ins.has("ftz")

    def execute(warp: Warp, mask: Mask) -> None:
        values = read(warp)
        if source == "bf16":
            values = values.view(_NARROW["bf16"]).astype(np.float32)
        if ftz and source == "f32":
            values = flushed(values)
        if integer:
            limits = np.iinfo(DTYPES[target].name)
            whole = _rounded_integer(modes[0])(values.astype(np.float64))
            clipped = [
                0 if value != value else int(min(max(value, limits.min), limits.max))
                for value in whole.tolist()
            ]
            write(warp, np.array(clipped, DTYPES[target]), mask)
            return
        write(warp, narrowed(values, target), mask)

    return execute


def narrowed(values: Lanes, target: str) -> Lanes:
    """Return the bits of values in a floating-point type, with the NaN that the unit makes."""
    nan = np.isnan(values)
    if target in _NARROW:
        bits = values.astype(_NARROW[target]).view(np.uint16)
        return np.where(nan, np.uint16(0x7FFF), bits)
    result = values.astype(DTYPES[target])
    return canonical(result) if target == "f32" else result


def _convert_pair(ins: Operands, target: str) -> Execute:
    """``cvt.rn.f16x2.f32`` and ``cvt.rn.bf16x2.f32``: the first source is the high half."""
    ins.require_parts(("rn", target, "f32"))
    write, high, low = ins.write(0), ins.read(1, "f32"), ins.read(2, "f32")
    kind = target[:-2]

    def execute(warp: Warp, mask: Mask) -> None:
        halves = [narrowed(read(warp), kind) for read in (low, high)]
        packed = np.ascontiguousarray(np.stack(halves, axis=1)).view(np.uint32)
        write(warp, packed.reshape(LANES), mask)

    return execute


def _convert_tf32(ins: Operands) -> Execute:
    """``cvt.rna.tf32.f32``: nearest, ties away from zero; 13 low bits are zero."""
    ins.require_parts(("rna", "tf32", "f32"))
    write, read = ins.write(0), ins.read(1, "b32")

    def execute(warp: Warp, mask: Mask) -> None:
        bits = read(warp)
        magnitude = bits & np.uint32(0x7FFFFFFF)
        rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        result = np.where(magnitude >= 0x7F800000, bits, rounded)
        result = np.where(magnitude > 0x7F800000, np.uint32(0x7FFFFFFF), result)
        write(warp, result, mask)

    return execute
