"""Floating-point arithmetic and comparisons of f32, f64, f16, bf16 and packed pairs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim_tb.arithmetic import formats
from sim_tb.arithmetic.approximations import flushed
from sim_tb.arithmetic.rounding import FORMATS, Doubles, odd_sum, operate
from sim_tb.ptx.machine import LANES, Lanes, Mask, Warp
from sim_tb.ptx.operands import DTYPES, Execute, Operands, instruction

FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
"""PTX types of floating-point values."""

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
"""PTX types of 16-bit values, alone and packed in pairs."""

DIRECTIONS = ("rn", "rz", "rm", "rp")

_Single = NDArray[np.float32]
_NAN = np.uint32(0x7FFFFFFF)


def canonical(values: _Single) -> _Single:
    """Return values with each NaN as the one that the unit makes, 0x7fffffff (silicon)."""
    nan = np.isnan(values)
    if not nan.any():
        return values
    return np.where(nan, _NAN, values.view(np.uint32)).view(np.float32)


def _saturated(values: Lanes) -> Lanes:
    """Return values between 0 and 1; NaN gives 0."""
    one = values.dtype.type(1)
    return np.asarray(np.where(values > 0, np.minimum(values, one), values.dtype.type(0)))


def minimum(a: Lanes, b: Lanes) -> Lanes:
    """Return the minimum; -0 is below +0, and a number goes before NaN."""
    result = np.fmin(a, b)
    both = (a == 0) & (b == 0)
    return np.where(both & (np.signbit(a) | np.signbit(b)), np.copysign(result, -1), result)


def maximum(a: Lanes, b: Lanes) -> Lanes:
    """Return the maximum, as `minimum`."""
    result = np.fmax(a, b)
    both = (a == 0) & (b == 0)
    return np.where(both & ~(np.signbit(a) & np.signbit(b)), np.abs(result), result)


def _selection(ins: Operands) -> Callable[[Lanes, Lanes], Lanes]:
    """Return ``min`` or ``max`` with ``.NaN`` and ``.xorsign.abs``."""
    choose = minimum if ins.parts[0] == "min" else maximum
    nan, signs = ins.has("NaN"), ins.has("xorsign")

    def function(a: Lanes, b: Lanes) -> Lanes:
        result = choose(np.abs(a), np.abs(b)) if signs else choose(a, b)
        if signs:
            negative = np.signbit(a) != np.signbit(b)
            result = np.copysign(result, np.where(negative, -1, 1).astype(result.dtype))
        if nan:
            result = np.where(np.isnan(a) | np.isnan(b), result.dtype.type(np.nan), result)
        return result

    return function


_SOURCES = {"fma": 3, "mad": 3, "neg": 1, "abs": 1, "rcp": 1, "sqrt": 1}
"""Sources of instructions that have not two."""

_REQUIRED = ("div", "rcp", "sqrt", "fma")
"""Instructions that must have a rounding; ``div``, ``rcp`` and ``sqrt`` without one approximate."""

_NAMES = {"sub": "add", "mad": "fma", "rcp": "div"}
"""Operations that are another one of other operands."""


def _function(ins: Operands, direction: str) -> Callable[..., Lanes]:
    """Return the function of f32 or f64 sources."""
    name = ins.parts[0]
    if name in ("min", "max"):
        return _selection(ins)
    if name in ("neg", "abs"):
        return {"neg": np.negative, "abs": np.abs}[name]
    operation = _NAMES.get(name, name)
    if direction == "rn" and name in ("add", "sub", "mul"):
        return {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
    if name == "sub":
        return lambda a, b: operate("add", [a, -b], direction)
    if name == "rcp":
        return lambda a: operate("div", [np.ones_like(a), a], direction)
    return lambda *sources: operate(operation, list(sources), direction)


@instruction("fma")
def float_arithmetic(ins: Operands) -> Execute:
    """Arithmetic with all roundings, ``.ftz``, ``.NaN``, ``.xorsign.abs``, ``.sat``, ``.relu``."""
    kind = ins.parts[-1]
    ins.require_sources(_SOURCES.get(ins.parts[0], 2))
    if kind in HALVES:
        return _half_arithmetic(ins, kind)
    if kind not in ("f32", "f64"):
        raise ins.refuse(f".{kind}")
    ins.require_parts((*DIRECTIONS, "ftz", "NaN", "sat", "xorsign", "abs", kind))
    directions = [part for part in ins.parts if part in DIRECTIONS]
    if ins.parts[0] in _REQUIRED and not directions:
        raise ins.refuse("its rounding")
    function = _function(ins, directions[0] if directions else "rn")
    write = ins.write(0)
    sources = [ins.read(index, kind) for index in range(1, len(ins))]
    single, ftz, sat = kind == "f32", ins.has("ftz"), ins.has("sat")

    def execute(warp: Warp, mask: Mask) -> None:
        values = [read(warp) for read in sources]
        if ftz:
            values = [flushed(value) for value in values]
        result = function(*values)
        if sat:
            result = _saturated(result)
        if ftz:
            result = flushed(result)
        write(warp, canonical(result) if single else result, mask)

    return execute


_HALF_FUNCTIONS: dict[str, Callable[..., Doubles]] = {
    "add": odd_sum,
    "sub": lambda a, b: odd_sum(a, -b),
    "mul": np.multiply,
    "fma": lambda a, b, c: odd_sum(a * b, c),
}
"""Exact results, or rounded to odd, of 16-bit operands in float64."""

_HALF_SIGNS: dict[str, Callable[[Lanes], Lanes]] = {
    "neg": lambda bits: bits ^ np.uint16(0x8000),
    "abs": lambda bits: bits & np.uint16(0x7FFF),
}


def half_function(
    ins: Operands, element: str, function: Callable[..., Doubles], direction: str = "rn"
) -> Callable[..., Lanes]:
    """Return a function of bits of 16-bit values from one of numbers, with the modifiers."""
    ftz, sat, relu = ins.has("ftz"), ins.has("sat"), ins.has("relu")

    def apply(*sources: Lanes) -> Lanes:
        if ftz:
            sources = tuple(formats.flushed(bits, element) for bits in sources)
        result = function(*(formats.numbers(bits, element) for bits in sources))
        if sat:
            result = _saturated(result)
        bits = formats.bits_of(result, element, direction, relu=relu)
        return formats.flushed(bits, element) if ftz else bits

    return apply


def half_execution(ins: Operands, kind: str, function: Callable[..., Lanes]) -> Execute:
    """Return the execution of a function of the bits of 16-bit values, alone or packed."""
    write = ins.write(0)
    word = "b32" if kind.endswith("x2") else "b16"
    sources = [ins.read(index, word) for index in range(1, len(ins))]

    def execute(warp: Warp, mask: Mask) -> None:
        halves = [np.ascontiguousarray(read(warp)).view(np.uint16) for read in sources]
        write(warp, np.ascontiguousarray(function(*halves)).view(DTYPES[word]), mask)

    return execute


def _half_arithmetic(ins: Operands, kind: str) -> Execute:
    ins.require_parts(("rn", "ftz", "sat", "relu", "NaN", "xorsign", "abs", kind))
    name, element = ins.parts[0], kind.removesuffix("x2")
    if name in _HALF_SIGNS:
        return half_execution(ins, kind, _HALF_SIGNS[name])
    if name in ("min", "max"):
        return half_execution(ins, kind, half_function(ins, element, _selection(ins)))
    if name not in _HALF_FUNCTIONS:
        raise ins.refuse(f".{kind}")
    return half_execution(ins, kind, half_function(ins, element, _HALF_FUNCTIONS[name]))


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
    """Return the comparison of operands of a floating-point type, or of packed halves' bits."""
    kind = ins.parts[-1]
    if operation not in _COMPARE:
        raise ins.refuse(f".{operation}")
    compare, ftz = _COMPARE[operation], ins.has("ftz")
    if kind not in HALVES:
        return (lambda a, b: compare(flushed(a), flushed(b))) if ftz else compare
    element = kind.removesuffix("x2")

    def halves(*sources: Lanes) -> Any:
        bits = [np.ascontiguousarray(source).view(np.uint16) for source in sources]
        if ftz:
            bits = [formats.flushed(each, element) for each in bits]
        return compare(*(formats.numbers(each, element) for each in bits))

    return halves


@instruction("testp", "copysign")
def sign_and_class(ins: Operands) -> Execute:
    """``testp`` of a class of numbers, and ``copysign``: the sign of the first source."""
    kind = ins.parts[-1]
    if kind not in ("f32", "f64"):
        raise ins.refuse(f".{kind}")
    write, read = ins.write(0), ins.read(1, kind)
    if ins.parts[0] == "copysign":
        magnitude = ins.read(2, kind)
        return lambda warp, mask: write(warp, np.copysign(magnitude(warp), read(warp)), mask)
    least = 2.0 ** FORMATS[kind].least
    tests: dict[str, Callable[[Lanes], Lanes]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= least),
        "subnormal": lambda a: (np.abs(a) < least) & (a != 0),
    }
    test = tests[ins.parts[1]]
    return lambda warp, mask: write(warp, test(read(warp)), mask)


_TRUE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
"""Bits of 1.0, by type of the result of ``set``."""


def set_bits(result: Lanes, kind: str) -> Lanes:
    """Return truth values as ``set`` gives them: 1.0, or all bits of an integer."""
    element = kind.removesuffix("x2")
    word = np.dtype(f"u{DTYPES[element].itemsize}")
    true = _TRUE.get(element, (1 << 8 * word.itemsize) - 1)
    bits: Lanes = np.where(result, word.type(true), word.type(0))
    return bits.view(np.uint32) if bits.size != LANES else bits
