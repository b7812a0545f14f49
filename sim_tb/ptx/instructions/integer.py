"""Integers, predicates, comparisons and moves.

`arithmetic` leaves floating-point types to ``sim_tb.ptx.instructions.floats``.
"""

from collections.abc import Callable

import numpy as np

from sim_tb.ptx.instructions.approximate import approximate
from sim_tb.ptx.instructions.extended import carry_arithmetic, product_part
from sim_tb.ptx.instructions.floats import (
    FLOATS,
    HALVES,
    float_arithmetic,
    float_compare,
    set_bits,
)
from sim_tb.ptx.machine import (
    LANES,
    LOCAL_WINDOW,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
    Lanes,
    Mask,
    Warp,
)
from sim_tb.ptx.operands import DTYPES, Compute, Execute, Operands, apply, instruction
from sim_tb.ptx.syntax import Vector

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
"""PTX types of integers in arithmetic."""


def _signed_divide(a: Lanes, b: Lanes) -> Lanes:
    """Return quotients rounded toward zero; all bits set where the divisor is 0 (silicon)."""
    whole = np.where(b == 0, 1, b).astype(a.dtype)
    quotient = np.asarray(a // whole)
    inexact = (a - quotient * whole != 0) & ((a < 0) != (whole < 0))
    return np.where(b == 0, -1, quotient + inexact).astype(a.dtype)


def _divide(a: Lanes, b: Lanes) -> Lanes:
    if a.dtype.kind == "i":
        return _signed_divide(a, b)
    whole = np.where(b == 0, 1, b).astype(a.dtype)
    return np.where(b == 0, np.iinfo(a.dtype).max, a // whole).astype(a.dtype)


def _remainder(a: Lanes, b: Lanes) -> Lanes:
    return np.asarray(a - _divide(a, b) * b).astype(a.dtype)


_ARITHMETIC: dict[str, Compute] = {
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "div": _divide,
    "rem": _remainder,
    "neg": np.negative,
    "abs": np.abs,
}


@instruction(*_ARITHMETIC)
def arithmetic(ins: Operands) -> Execute:
    """Arithmetic with one or two sources."""
    kind = ins.parts[-1]
    if ins.has("cc"):
        return carry_arithmetic(ins)
    if kind in FLOATS:
        approximates = ins.has("approx") or ins.has("full")
        return approximate(ins) if approximates else float_arithmetic(ins)
    if kind not in INTEGERS:
        raise ins.refuse(f".{kind}")
    ins.require_parts((kind,))
    ins.require_sources(1 if ins.parts[0] in ("neg", "abs") else 2)
    sources = [ins.read(index, kind) for index in range(1, len(ins))]
    return apply(ins.write(0), _ARITHMETIC[ins.parts[0]], sources)


@instruction("mul", "mad")
def multiply(ins: Operands) -> Execute:
    """``mul`` and ``mad``; ``mul`` of floats too."""
    kind = ins.parts[-1]
    if ins.has("cc"):
        return carry_arithmetic(ins)
    if kind in FLOATS:
        return float_arithmetic(ins)
    if kind not in INTEGERS:
        raise ins.refuse(f".{kind}")
    ins.require_parts(("lo", "hi", "wide", kind))
    product = product_part(ins, kind)
    sources = [ins.read(1, kind), ins.read(2, kind)]
    if ins.parts[0] == "mul":
        return apply(ins.write(0), product, sources)
    wide = f"{kind[0]}{2 * int(kind[1:])}" if ins.has("wide") else kind
    return apply(ins.write(0), lambda a, b, c: product(a, b) + c, [*sources, ins.read(3, wide)])


@instruction("mul24", "mad24")
def multiply24(ins: Operands) -> Execute:
    """Product of the low 24 bits: its low 32 bits, or bits 47:16."""
    kind = ins.parts[-1]
    ins.require_parts(("lo", "hi", "u32", "s32"))
    wide, up = DTYPES[f"{kind[0]}64"], 16 if ins.has("hi") else 0

    def function(a: Lanes, b: Lanes, c: Lanes | int = 0) -> Lanes:
        low = [(each.astype(wide) << wide.type(40)) >> wide.type(40) for each in (a, b)]
        product: Lanes = low[0] * low[1]
        return np.asarray((product >> wide.type(up)).astype(DTYPES[kind]) + c)

    ins.require_sources(3 if ins.parts[0] == "mad24" else 2)
    return apply(ins.write(0), function, [ins.read(at, kind) for at in range(1, len(ins))])


@instruction("sad")
def difference(ins: Operands) -> Execute:
    """Sum of a source and the absolute difference of two."""
    kind = ins.parts[-1]
    ins.require_parts((kind,))

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        return np.where(a < b, b - a, a - b) + c

    return apply(ins.write(0), function, [ins.read(at, kind) for at in (1, 2, 3)])


@instruction("dp4a", "dp2a")
def dot_product(ins: Operands) -> Execute:
    """Sum of products of bytes, or of 16-bit values and bytes, and a source."""
    kinds = [part for part in ins.parts if part in ("u32", "s32")]
    ins.require_parts(("lo", "hi", "u32", "s32"))
    four = ins.parts[0] == "dp4a"
    signed = ["i" if kind == "s32" else "u" for kind in kinds]
    total = DTYPES["s32" if "s32" in kinds else "u32"]
    left = np.dtype(f"{signed[0]}{1 if four else 2}")
    right = np.dtype(f"{signed[1]}1")
    half = slice(None) if four else slice(2, 4) if ins.has("hi") else slice(0, 2)

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        first = np.ascontiguousarray(a).view(left).reshape(LANES, -1).astype(np.int64)
        second = np.ascontiguousarray(b).view(right).reshape(LANES, -1)[:, half].astype(np.int64)
        return np.asarray(((first * second).sum(axis=1) + c).astype(total))

    return apply(ins.write(0), function, [ins.read(at, "u32") for at in (1, 2, 3)])


@instruction("and", "or", "xor", "not", "cnot")
def logic(ins: Operands) -> Execute:
    """Bitwise logic, of predicates too."""
    kind = ins.parts[-1]
    ins.require_parts((kind,))
    ins.require_sources(1 if ins.parts[0] in ("not", "cnot") else 2)
    functions: dict[str, Compute] = {
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "not": np.invert,
        "cnot": lambda a: (a == 0).astype(a.dtype),
    }
    sources = [ins.read(index, kind) for index in range(1, len(ins))]
    return apply(ins.write(0), functions[ins.parts[0]], sources)


_COMPARE: dict[str, Compute] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}

_COMBINE: dict[str, Compute] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def _comparison(ins: Operands, kind: str) -> Callable[[Warp], Lanes]:
    """Return the comparison of sources 1 and 2, combined with the predicate of source 3."""
    operation = ins.parts[1]
    if kind in FLOATS:
        function = float_compare(ins, operation)
    elif operation in _COMPARE:
        function = _COMPARE[operation]
    else:
        raise ins.refuse(f".{operation}")
    bits = f"b{8 * DTYPES[kind].itemsize}" if kind in HALVES else kind
    a, b = ins.read(1, bits), ins.read(2, bits)
    return lambda warp: function(a(warp), b(warp))


@instruction("setp")
def compare(ins: Operands) -> Execute:
    """Comparison, possibly combined with a predicate, into one or two predicates.

    Of packed halves, the first predicate is that of the low ones.
    """
    kind = ins.parts[-1]
    result_of = _comparison(ins, kind)
    packed = kind.endswith("x2")
    first, second = ins.pair(0)
    with_predicate = ins.parts[2] in _COMBINE
    combine = _COMBINE.get(ins.parts[2], np.logical_and)
    third = ins.read(3, "pred") if with_predicate else None

    def execute(warp: Warp, mask: Mask) -> None:
        result = result_of(warp)
        other = result[1::2] if packed else ~result
        result = result[::2] if packed else result
        if third is not None:
            result, other = combine(result, third(warp)), combine(other, third(warp))
        first(warp, result, mask)
        if second is not None:
            second(warp, other, mask)

    return execute


@instruction("set")
def compare_to_value(ins: Operands) -> Execute:
    """Comparison, possibly combined with a predicate, into all bits or 1.0."""
    target, kind = ins.parts[-2:]
    if target not in ("u16", "s16", "u32", "s32", *FLOATS) or target == "f64":
        raise ins.refuse(f".{target}")
    if kind.endswith("x2") != target.endswith("x2"):
        raise ins.refuse(f".{target}.{kind}")
    result_of, write = _comparison(ins, kind), ins.write(0)
    combine = _COMBINE.get(ins.parts[2])
    third = ins.read(3, "pred") if combine else None

    def execute(warp: Warp, mask: Mask) -> None:
        result = result_of(warp)
        if third is not None and combine is not None:
            predicate = third(warp)
            result = combine(result, np.repeat(predicate, result.size // LANES))
        write(warp, set_bits(result, target), mask)

    return execute


@instruction("selp")
def select(ins: Operands) -> Execute:
    """First or second source by a predicate."""
    kind = ins.parts[-1]
    write = ins.write(0)
    a, b, chosen = ins.read(1, kind), ins.read(2, kind), ins.read(3, "pred")
    return lambda warp, mask: write(warp, np.where(chosen(warp), a(warp), b(warp)), mask)


@instruction("slct")
def select_by_sign(ins: Operands) -> Execute:
    """First source where the third is not negative, otherwise the second."""
    kind, third = ins.parts[-2:]
    if third not in ("s32", "f32"):
        raise ins.refuse(f".{third}")
    write, a, b, c = ins.write(0), ins.read(1, kind), ins.read(2, kind), ins.read(3, third)
    return lambda warp, mask: write(warp, np.where(c(warp) >= 0, a(warp), b(warp)), mask)


@instruction("isspacep")
def is_in_space(ins: Operands) -> Execute:
    """``isspacep``: test whether a generic address is in a state space."""
    space = ins.parts[1].split("::")[0]
    write, read = ins.write(0), ins.read(1, "s64")
    windows = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}

    def function(a: Lanes) -> Lanes:
        window = a >> 40 << 40
        if space in windows:
            return np.asarray(window == windows[space])
        return np.asarray(~np.isin(window, list(windows.values())) & (space == "global"))

    return lambda warp, mask: write(warp, function(read(warp)), mask)


@instruction("mov")
def move(ins: Operands) -> Execute:
    """Copy, pack ``{a, b}`` or unpack into ``{a, b}``."""
    kind = ins.parts[-1]
    if isinstance(ins.operands[1], Vector):
        return _pack(ins, kind)
    if isinstance(ins.operands[0], Vector):
        return _unpack(ins, kind)
    write, read = ins.write(0), ins.read(1, kind)
    return lambda warp, mask: write(warp, read(warp), mask)


def _pack(ins: Operands, kind: str) -> Execute:
    write, count = ins.write(0), len(ins.items(1))
    if count not in (2, 4):
        raise ins.refuse(f"{count} values")
    part = f"b{int(kind[1:]) // count}"
    sources = ins.reads(1, part)
    dtype = DTYPES[kind]

    def execute(warp: Warp, mask: Mask) -> None:
        parts = np.stack([read(warp) for read in sources], axis=1)
        write(warp, np.ascontiguousarray(parts).view(dtype).reshape(LANES), mask)

    return execute


def _unpack(ins: Operands, kind: str) -> Execute:
    writes = ins.writes(0)
    if len(writes) not in (2, 4):
        raise ins.refuse(f"{len(writes)} values")
    read = ins.read(1, kind)
    dtype = np.dtype(f"u{DTYPES[kind].itemsize // len(writes)}")

    def execute(warp: Warp, mask: Mask) -> None:
        parts = np.ascontiguousarray(read(warp)).view(dtype).reshape(LANES, -1)
        for index, write in enumerate(writes):
            write(warp, np.ascontiguousarray(parts[:, index]), mask)

    return execute


@instruction("cvta", "mapa")
def addresses(ins: Operands) -> Execute:
    """Addresses: generic from a state space and back, and of another block of the cluster."""
    windows = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
    kind = ins.parts[-1]
    spaces = [part.split("::")[0] for part in ins.parts]
    window = sum(windows.get(space, 0) for space in spaces)
    if ins.parts[0] == "cvta":
        sign = -1 if ins.has("to") else 1
        return apply(ins.write(0), lambda a: a + sign * window, [ins.read(1, "s64")])
    bits = np.int64(0xFF << RANK_SHIFT)

    def mapped(a: Lanes, rank: Lanes) -> Lanes:
        place = a.astype(np.int64) & ~bits | rank.astype(np.int64) << RANK_SHIFT
        return place.astype(DTYPES[kind])

    return apply(ins.write(0), mapped, [ins.read(1, kind), ins.read(2, "u32")])
