"""Shifts, bit fields, counts of bits and permutations of bytes."""

import numpy as np

from sim_tb.ptx.machine import LANES, Lanes
from sim_tb.ptx.operands import DTYPES, Compute, Execute, Operands, apply, instruction


@instruction("shl", "shr")
def shift(ins: Operands) -> Execute:
    """Shifts; a distance of the width or more gives 0, or the sign."""
    kind = ins.parts[-1]
    ins.require_sources(2)
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
    """``shf.l`` and ``shf.r`` of two words, clamped or wrapped."""
    ins.require_parts(("l", "r", "wrap", "clamp", "b32"))
    left, wraps = ins.has("l"), ins.has("wrap")

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        distance = (c & 31 if wraps else np.minimum(c, 32)).astype(np.uint64)
        both = b.astype(np.uint64) << np.uint64(32) | a
        moved = both << distance >> np.uint64(32) if left else both >> distance
        return moved.astype(np.uint32)

    return apply(ins.write(0), function, [ins.read(index, "u32") for index in (1, 2, 3)])


def _ones(count: Lanes) -> Lanes:
    """Return as many ones as ``count`` says, at most 64."""
    most = np.minimum(count, 63).astype(np.uint64)
    below: Lanes = (np.uint64(1) << most) - np.uint64(1)
    return np.where(count >= 64, ~np.uint64(0), below)


@instruction("bfe")
def extract(ins: Operands) -> Execute:
    """``bfe.u32`` and ``bfe.s32``, ``.u64`` and ``.s64``."""
    kind = ins.parts[-1]
    width = 8 * DTYPES[kind].itemsize
    word = np.dtype(f"u{width // 8}")

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        start, count = b & np.uint32(0xFF), c & np.uint32(0xFF)
        inside = start < width
        moved = a.astype(np.uint64) >> np.where(inside, start, 0).astype(np.uint64)
        result = np.where(inside, moved, np.uint64(0)) & _ones(count)
        if kind[0] == "s":
            last = np.minimum(start + count - (count > 0), width - 1).astype(np.uint64)
            negative = (a.astype(np.uint64) >> last & np.uint64(1) == 1) & (count > 0)
            present = np.minimum(count, np.maximum(width - start.astype(np.int64), 0))
            result = np.where(negative, result & _ones(present) | ~_ones(present), result)
        return result.astype(word)

    sources = [ins.read(1, f"u{width}"), ins.read(2, "u32"), ins.read(3, "u32")]
    return apply(ins.write(0), function, sources)


@instruction("bfi")
def insert(ins: Operands) -> Execute:
    """``bfi``: bits of the first source at a place of the second."""
    kind = ins.parts[-1]
    width = 8 * DTYPES[kind].itemsize

    def function(a: Lanes, b: Lanes, c: Lanes, d: Lanes) -> Lanes:
        start, count = c & np.uint32(0xFF), d & np.uint32(0xFF)
        inside = start < width
        place = np.where(inside, start, 0).astype(np.uint64)
        field = np.where(inside, _ones(count) << place, np.uint64(0))
        moved = a.astype(np.uint64) << place
        return (b.astype(np.uint64) & ~field | moved & field).astype(a.dtype)

    sources = [ins.read(1, kind), ins.read(2, kind), ins.read(3, "u32"), ins.read(4, "u32")]
    return apply(ins.write(0), function, sources)


@instruction("bmsk")
def mask_of_bits(ins: Operands) -> Execute:
    """``bmsk``: ones from a place on, so many as the second source says."""
    ins.require_parts(("clamp", "wrap", "b32"))
    wraps = ins.has("wrap")

    def function(a: Lanes, b: Lanes) -> Lanes:
        start, count = (a & 31, b & 31) if wraps else (np.minimum(a, 32), np.minimum(b, 32))
        return (_ones(count) << start.astype(np.uint64)).astype(np.uint32)

    return apply(ins.write(0), function, [ins.read(1, "u32"), ins.read(2, "u32")])


@instruction("szext")
def extend(ins: Operands) -> Execute:
    """``szext``: the low bits of a source, extended with their sign or with zeros."""
    kind = ins.parts[-1]
    ins.require_parts(("clamp", "wrap", "u32", "s32"))
    wraps = ins.has("wrap")

    def function(a: Lanes, b: Lanes) -> Lanes:
        count = b & 31 if wraps else np.minimum(b, 32)
        low = a & _ones(count).astype(np.uint32)
        sign = a >> (np.maximum(count, 1) - 1).astype(np.uint32) & 1
        negative = (kind == "s32") & (sign == 1) & (count > 0)
        return np.where(negative, low | ~_ones(count).astype(np.uint32), low).astype(np.uint32)

    return apply(ins.write(0), function, [ins.read(1, "u32"), ins.read(2, "u32")])


def _bit_length(a: Lanes) -> Lanes:
    """Return the number of bits of unsigned integers, without zeros in front."""
    high = (a.astype(np.uint64) >> np.uint64(32)).astype(np.float64)
    low = (a.astype(np.uint64) & np.uint64(0xFFFFFFFF)).astype(np.float64)
    lengths = [np.where(part > 0, np.frexp(part)[1], 0) for part in (high, low)]
    return np.where(high > 0, lengths[0] + 32, lengths[1])


@instruction("popc", "clz", "brev", "bfind")
def count_bits(ins: Operands) -> Execute:
    """Number of ones, number of zeros in front, reversal, place of the first one."""
    kind, name = ins.parts[-1], ins.parts[0]
    ins.require_parts(("shiftamt", kind))
    ins.require_sources(1)
    width = 8 * DTYPES[kind].itemsize
    distance, signed = ins.has("shiftamt"), kind[0] == "s"

    def find(a: Lanes) -> Lanes:
        length = _bit_length(a)
        place = width - length if distance else length - 1
        return np.where(length == 0, 0xFFFFFFFF, place)

    def reverse(a: Lanes) -> Lanes:
        ones = np.unpackbits(np.ascontiguousarray(a).view(np.uint8).reshape(LANES, -1), axis=1)
        backwards = np.packbits(ones[:, ::-1], axis=1)
        return np.ascontiguousarray(backwards[:, ::1]).view(a.dtype).reshape(LANES)

    functions: dict[str, Compute] = {
        "popc": np.bitwise_count,
        "clz": lambda a: width - _bit_length(a),
        "brev": reverse,
        "bfind": find,
    }

    def function(a: Lanes) -> Lanes:
        if signed:
            a = np.where(a < 0, ~a, a)
        bits = a.view(f"u{width // 8}")
        return functions[name](bits).astype(bits.dtype if name == "brev" else np.uint32)

    return apply(ins.write(0), function, [ins.read(1, kind)])


_MODES = {
    "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
    "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
    "rc8": [[0] * 4, [1] * 4, [2] * 4, [3] * 4],
    "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
    "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
    "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
}
"""Bytes that ``prmt`` chooses in its modes, from the lowest on, by the low bits of the selector."""


@instruction("prmt")
def permute(ins: Operands) -> Execute:
    """``prmt.b32`` in all its modes."""
    ins.require_parts(("b32", *_MODES))
    modes = [np.array(_MODES[part]) for part in ins.parts if part in _MODES]

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        source = np.stack([a, b], axis=1).view(np.uint8)
        if modes:
            selectors = modes[0][c & 3]
        else:
            selectors = c[:, None] >> np.arange(0, 16, 4, dtype=np.uint32) & 15
        result = np.take_along_axis(source, (selectors & 7).astype(np.int64), 1)
        signs = np.where(result & 0x80, 0xFF, 0)
        chosen = np.where(selectors & 8, signs, result).astype(np.uint8)
        return np.ascontiguousarray(chosen).view(np.uint32).reshape(LANES)

    return apply(ins.write(0), function, [ins.read(index, "u32") for index in (1, 2, 3)])


@instruction("lop3")
def logic_of_three(ins: Operands) -> Execute:
    """``lop3.b32``: any function of three bits, as a table."""
    ins.require_parts(("b32",))

    def function(a: Lanes, b: Lanes, c: Lanes, table: Lanes) -> Lanes:
        result = np.zeros(LANES, np.uint32)
        for index in range(8):
            term = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
            result |= np.where(table >> index & 1, term, 0).astype(np.uint32)
        return result

    return apply(ins.write(0), function, [ins.read(index, "u32") for index in (1, 2, 3, 4)])
