"""Integers, predicates, bits and moves.

`arithmetic` leaves floating-point types to ``sim_tb.ptx.instructions.floats``.
"""

from collections.abc import Callable

import numpy as np

from sim_tb.ptx.instructions.approximate import approximate
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
from sim_tb.ptx.operands import DTYPES, Execute, Operands, Read, Write, instruction
from sim_tb.ptx.parser import Vector

Function = Callable[..., Lanes]


def apply(write: Write, function: Function, sources: list[Read]) -> Execute:
    """Return the execution of a function of all lanes."""
    if len(sources) == 2:
        a, b = sources
        return lambda warp, mask: write(warp, function(a(warp), b(warp)), mask)
    return lambda warp, mask: write(warp, function(*(read(warp) for read in sources)), mask)


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


_ARITHMETIC: dict[str, Function] = {
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
    if kind in FLOATS:
        approximates = ins.has("approx") or ins.has("full")
        return approximate(ins) if approximates else float_arithmetic(ins)
    ins.require_parts((kind,))
    sources = [ins.read(index, kind) for index in range(1, len(ins))]
    return apply(ins.write(0), _ARITHMETIC[ins.parts[0]], sources)


def _wide(kind: str) -> "np.dtype[np.generic]":
    return DTYPES[f"{kind[0]}{2 * int(kind[1:])}"]


def _high64(a: Lanes, b: Lanes, dtype: "np.dtype[np.generic]") -> Lanes:
    """Return bits 127:64 of products."""
    product = a.astype(object) * b.astype(object) >> 64
    return np.array([int(value) & ((1 << 64) - 1) for value in product], np.uint64).view(dtype)


def _product(ins: Operands, kind: str) -> Function:
    """Return the multiplication of ``.lo``, ``.hi`` or ``.wide``."""
    dtype = DTYPES[kind]
    if ins.has("lo"):
        return np.multiply
    if ins.has("hi") and dtype.itemsize == 8:
        return lambda a, b: _high64(a, b, dtype)
    wide = _wide(kind)
    if ins.has("wide"):
        return lambda a, b: a.astype(wide) * b.astype(wide)
    if ins.has("hi"):
        shift = 8 * dtype.itemsize
        return lambda a, b: (a.astype(wide) * b.astype(wide) >> wide.type(shift)).astype(dtype)
    raise ins.refuse("its part of the product")


@instruction("mul", "mad")
def multiply(ins: Operands) -> Execute:
    """``mul`` and ``mad``; ``mul`` of floats too."""
    kind = ins.parts[-1]
    if kind in FLOATS:
        return float_arithmetic(ins)
    ins.require_parts(("lo", "hi", "wide", kind))
    product = _product(ins, kind)
    sources = [ins.read(1, kind), ins.read(2, kind)]
    if ins.parts[0] == "mul":
        return apply(ins.write(0), product, sources)
    wide = f"{kind[0]}{2 * int(kind[1:])}" if ins.has("wide") else kind
    return apply(ins.write(0), lambda a, b, c: product(a, b) + c, [*sources, ins.read(3, wide)])


@instruction("and", "or", "xor", "not", "cnot")
def logic(ins: Operands) -> Execute:
    """Bitwise logic, of predicates too."""
    kind = ins.parts[-1]
    ins.require_parts((kind,))
    functions: dict[str, Function] = {
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "not": np.invert,
        "cnot": lambda a: (a == 0).astype(a.dtype),
    }
    sources = [ins.read(index, kind) for index in range(1, len(ins))]
    return apply(ins.write(0), functions[ins.parts[0]], sources)


@instruction("shl", "shr")
def shift(ins: Operands) -> Execute:
    """Shifts; a distance of the width or more gives 0, or the sign."""
    kind = ins.parts[-1]
    bits = 8 * DTYPES[kind].itemsize
    left = ins.parts[0] == "shl"

    def function(a: Lanes, distance: Lanes) -> Lanes:
        most = np.minimum(distance, bits - 1).astype(a.dtype)
        result: Lanes = np.left_shift(a, most) if left else np.right_shift(a, most)
        if kind[0] == "s" and not left:
            return result
        return np.where(distance >= bits, 0, result).astype(a.dtype)

    return apply(ins.write(0), function, [ins.read(1, kind), ins.read(2, "u32")])


@instruction("shf")
def funnel_shift(ins: Operands) -> Execute:
    """``shf.l`` and ``shf.r`` with ``.clamp`` or ``.wrap``."""
    ins.require_parts(("l", "r", "wrap", "clamp", "b32"))
    left, wraps = ins.has("l"), ins.has("wrap")

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        distance = (c & 31 if wraps else np.minimum(c, 32)).astype(np.uint64)
        both = b.astype(np.uint64) << np.uint64(32) | a
        moved = both << distance >> np.uint64(32) if left else both >> distance
        return moved.astype(np.uint32)

    return apply(ins.write(0), function, [ins.read(index, "u32") for index in (1, 2, 3)])


@instruction("bfe")
def extract(ins: Operands) -> Execute:
    """``bfe.u32`` and ``bfe.s32``, ``.u64`` and ``.s64``."""
    kind = ins.parts[-1]
    width = 8 * DTYPES[kind].itemsize

    def one(value: int, start: int, count: int) -> int:
        start, count = start & 0xFF, count & 0xFF
        field = value >> start & ((1 << count) - 1) if start < width else 0
        if kind[0] == "s" and count:
            sign = value >> min(start + count - 1, width - 1) & 1
            present = max(min(count, width - start), 0)
            field = field & ((1 << present) - 1) if present else 0
            field |= -sign << present
        return field & ((1 << width) - 1)

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        triples = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        return np.array([one(*triple) for triple in triples], f"u{width // 8}")

    unsigned = f"u{width}"
    return apply(
        ins.write(0), function, [ins.read(1, unsigned), ins.read(2, "u32"), ins.read(3, "u32")]
    )


@instruction("bfi")
def insert(ins: Operands) -> Execute:
    """``bfi``: bits of the first source at a place of the second."""
    kind = ins.parts[-1]
    width = 8 * DTYPES[kind].itemsize

    def one(a: int, b: int, start: int, count: int) -> int:
        start, count = start & 0xFF, count & 0xFF
        field = ((1 << count) - 1) << start & ((1 << width) - 1)
        return b & ~field | a << start & field

    def function(a: Lanes, b: Lanes, c: Lanes, d: Lanes) -> Lanes:
        lanes = zip(a.tolist(), b.tolist(), c.tolist(), d.tolist(), strict=True)
        return np.array([one(*lane) for lane in lanes], a.dtype)

    sources = [ins.read(1, kind), ins.read(2, kind), ins.read(3, "u32"), ins.read(4, "u32")]
    return apply(ins.write(0), function, sources)


@instruction("popc", "clz", "brev", "bfind")
def count_bits(ins: Operands) -> Execute:
    """Number of ones, number of zeros in front, reversal, place of the first one."""
    kind, name = ins.parts[-1], ins.parts[0]
    if kind[0] == "s":
        raise ins.refuse("signed")
    ins.require_parts(("shiftamt", kind))
    width = 8 * DTYPES[kind].itemsize
    distance = ins.has("shiftamt")

    def one(value: int) -> int:
        if name == "popc":
            return value.bit_count()
        if name == "clz":
            return width - value.bit_length()
        if name == "brev":
            return int(f"{value:0{width}b}"[::-1], 2)
        if not value:
            return 0xFFFFFFFF
        return width - value.bit_length() if distance else value.bit_length() - 1

    dtype = DTYPES[kind] if name == "brev" else DTYPES["u32"]
    return apply(
        ins.write(0),
        lambda a: np.array([one(value) for value in a.tolist()], dtype),
        [ins.read(1, kind)],
    )


@instruction("prmt")
def permute(ins: Operands) -> Execute:
    """``prmt.b32`` in its default mode."""
    ins.require_parts(("b32",))

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        source = np.stack([a, b], axis=1).view(np.uint8)
        selectors = c[:, None] >> np.arange(0, 16, 4, dtype=np.uint32) & 15
        result = np.take_along_axis(source, (selectors & 7).astype(np.int64), 1)
        signs = np.where(result & 0x80, 0xFF, 0)
        chosen = np.where(selectors & 8, signs, result).astype(np.uint8)
        return np.ascontiguousarray(chosen).view(np.uint32).reshape(LANES)

    return apply(ins.write(0), function, [ins.read(index, "u32") for index in (1, 2, 3)])


_COMPARE: dict[str, Function] = {
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

_COMBINE: dict[str, Function] = {
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
    part = f"b{int(kind[1:]) // count}"
    sources = ins.reads(1, part)
    dtype = DTYPES[kind]

    def execute(warp: Warp, mask: Mask) -> None:
        parts = np.stack([read(warp) for read in sources], axis=1)
        write(warp, np.ascontiguousarray(parts).view(dtype).reshape(LANES), mask)

    return execute


def _unpack(ins: Operands, kind: str) -> Execute:
    writes = ins.writes(0)
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
