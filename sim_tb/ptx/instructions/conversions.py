"""``cvt`` between integers and all floating-point formats."""

from collections.abc import Callable

import numpy as np

from sim_tb.arithmetic import formats
from sim_tb.arithmetic.approximations import flushed
from sim_tb.arithmetic.rounding import Doubles, odd_integers
from sim_tb.ptx.machine import LANES, Lanes, Mask, Warp
from sim_tb.ptx.operands import DTYPES, Execute, Operands, Read, instruction

_DIRECTIONS = ("rn", "rz", "rm", "rp", "rna")
_WHOLE: dict[str, Callable[[Doubles], Doubles]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}
_FLOATS = ("f16", "bf16", "f32", "f64")


@instruction("cvt")
def convert(ins: Operands) -> Execute:
    """Conversion with all roundings, ``.ftz``, ``.sat``, ``.satfinite`` and ``.relu``."""
    target, source = ins.parts[-2], ins.parts[-1]
    if target in _PAIRS:
        return _to_pair(ins, _PAIRS[target], source)
    known = (*_FLOATS, "tf32")
    for kind in (target, source):
        if kind not in known and not _is_integer(kind):
            raise ins.refuse(f".{kind}")
    ins.require_parts((*_DIRECTIONS, *_WHOLE, "ftz", "sat", "satfinite", "relu", target, source))
    if _is_integer(target):
        return _to_integer(ins, target, source)
    return _to_float(ins, target, source)


def _is_integer(kind: str) -> bool:
    return kind in DTYPES and kind[0] in "us"


def _direction(ins: Operands, *, needed: bool) -> str:
    """Return the rounding; refuse an instruction that needs one and has none."""
    found = [part for part in ins.parts if part in _DIRECTIONS]
    if needed and not found:
        raise ins.refuse("its rounding")
    return found[0] if found else "rn"


def _source(ins: Operands, operand: int, kind: str) -> Callable[[Warp], Doubles]:
    """Return the reader of a source as numbers, exact or rounded to odd."""
    if _is_integer(kind):
        integers = ins.read(operand, kind)
        return lambda warp: odd_integers(integers(warp))
    if kind not in _FLOATS:
        raise ins.refuse(f".{kind}")
    bits = ins.read(operand, f"b{8 * DTYPES[kind].itemsize}")
    if kind == "f32" and ins.has("ftz"):
        return lambda warp: flushed(bits(warp).view(np.float32)).astype(np.float64)
    return lambda warp: formats.numbers(bits(warp), kind)


def _to_float(ins: Operands, target: str, source: str) -> Execute:
    if target == "tf32":
        return _to_tf32(ins)
    write, read = ins.write(0), _source(ins, 1, source)
    whole = [_WHOLE[part] for part in ins.parts if part in _WHOLE]
    narrower = _is_integer(source) or DTYPES[target].itemsize < DTYPES[source].itemsize
    needed = (narrower or {target, source} == {"f16", "bf16"}) and not whole
    direction = _direction(ins, needed=needed)
    sat, finite, relu = ins.has("sat"), ins.has("satfinite"), ins.has("relu")
    ftz = ins.has("ftz") and target == "f32"

    def execute(warp: Warp, mask: Mask) -> None:
        values = read(warp)
        if whole:
            values = whole[0](values)
        if sat:
            values = np.where(values > 0, np.minimum(values, 1), 0.0)
        bits = formats.bits_of(values, target, direction, finite=finite, relu=relu)
        write(warp, formats.flushed(bits, target) if ftz else bits, mask)

    return execute


def _to_tf32(ins: Operands) -> Execute:
    """Conversion of f32 to tf32: 13 low bits are zero, those of a NaN too (silicon)."""
    direction = _direction(ins, needed=True)
    finite, relu = ins.has("satfinite"), ins.has("relu")
    write, read = ins.write(0), ins.read(1, "f32")

    def execute(warp: Warp, mask: Mask) -> None:
        values = read(warp)
        bits = formats.bits_of(
            values.astype(np.float64), "tf32", direction, finite=finite, relu=relu
        )
        nan = values.view(np.uint32) & np.uint32(0xFFFFE000)
        write(warp, np.where(np.isnan(values), nan, bits), mask)

    return execute


def _to_pair(ins: Operands, element: str, source: str) -> Execute:
    """Conversion to two values: of two sources, the first is the high one, or of a pair."""
    modifiers = ("satfinite", "relu", "ftz", "sat")
    ins.require_parts((*_DIRECTIONS, *modifiers, *_PAIRS, "f32"))
    direction = _direction(ins, needed=True)
    finite, relu, sat = ins.has("satfinite"), ins.has("relu"), ins.has("sat")
    if element in ("e4m3", "e5m2") and not finite:
        raise ins.refuse("without .satfinite")
    write = ins.write(0)
    word = np.dtype(f"u{2 * formats.DTYPES[element].itemsize}")
    read: Callable[[Warp], Doubles]
    if source == "f32":
        high, low = _source(ins, 1, "f32"), _source(ins, 2, "f32")

        def read(warp: Warp) -> Doubles:
            return np.stack([low(warp), high(warp)], axis=1)

    elif source in _PAIRS:
        read = _pair(ins.read(1, f"b{16 * formats.DTYPES[_PAIRS[source]].itemsize}"), source)
    else:
        raise ins.refuse(f".{source}")

    def execute(warp: Warp, mask: Mask) -> None:
        values = read(warp)
        if sat:
            values = np.where(values > 0, np.minimum(values, 1), 0.0)
        bits = formats.bits_of(values, element, direction, finite=finite, relu=relu)
        write(warp, np.ascontiguousarray(bits).view(word).reshape(LANES), mask)

    return execute


def _pair(read: Read, kind: str) -> Callable[[Warp], Doubles]:
    """Return the reader of a packed pair as numbers, (32, 2), the low one first."""
    part = np.dtype(f"u{formats.DTYPES[_PAIRS[kind]].itemsize}")

    def pair(warp: Warp) -> Doubles:
        words = np.ascontiguousarray(read(warp)).view(part)
        return formats.numbers(words, _PAIRS[kind]).reshape(LANES, 2)

    return pair


def _to_integer(ins: Operands, target: str, source: str) -> Execute:
    write, dtype = ins.write(0), DTYPES[target]
    limits = np.iinfo(dtype.name)
    least, most = int(limits.min), int(limits.max)
    if _is_integer(source):
        integers, saturates = ins.read(1, source), ins.has("sat")

        def wrap(warp: Warp, mask: Mask) -> None:
            values = integers(warp)
            if saturates:
                clipped = [min(max(value, least), most) for value in values.tolist()]
                values = np.array(clipped, dtype)
            write(warp, values.astype(dtype), mask)

        return wrap
    whole = [_WHOLE[part] for part in ins.parts if part in _WHOLE]
    if not whole:
        raise ins.refuse("its rounding")
    read = _source(ins, 1, source)
    wide = source == "f64" or dtype.itemsize == 8
    nan = dtype.type(1 << (8 * dtype.itemsize - 1) if dtype.kind == "u" else least)
    invalid = nan if wide else dtype.type(0)

    def execute(warp: Warp, mask: Mask) -> None:
        write(warp, _clipped(whole[0](read(warp)), dtype, invalid), mask)

    return execute


def _clipped(values: Doubles, dtype: "np.dtype[np.generic]", invalid: np.generic) -> Lanes:
    """Return whole numbers as integers; those outside give a limit, and NaN ``invalid``."""
    limits = np.iinfo(dtype.name)
    above, below = values >= float(int(limits.max) + 1), values < float(limits.min)
    inside = np.where(above | below | np.isnan(values), 0.0, values)
    result = inside.astype(np.uint64 if dtype.kind == "u" else np.int64).astype(dtype)
    result = np.where(above, dtype.type(limits.max), result)
    result = np.where(below, dtype.type(limits.min), result)
    return np.where(np.isnan(values), invalid, result)
