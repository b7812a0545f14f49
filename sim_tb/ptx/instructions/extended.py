"""Products of integers, and sums with a carry: arithmetic of numbers wider than a register."""

import numpy as np

from sim_tb.ptx.machine import Lanes, Mask, Warp
from sim_tb.ptx.operands import DTYPES, Compute, Execute, Operands, instruction


def _wide(kind: str) -> "np.dtype[np.generic]":
    return DTYPES[f"{kind[0]}{2 * int(kind[1:])}"]


def _high64(a: Lanes, b: Lanes, dtype: "np.dtype[np.generic]") -> Lanes:
    """Return bits 127:64 of products."""
    product = a.astype(object) * b.astype(object) >> 64
    return np.array([int(value) & ((1 << 64) - 1) for value in product], np.uint64).view(dtype)


def product_part(ins: Operands, kind: str) -> Compute:
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


@instruction("addc", "subc", "madc")
def carry_arithmetic(ins: Operands) -> Execute:
    """``add``, ``sub`` and ``mad`` that set the carry (``.cc``), or add it."""
    name, kind = ins.parts[0], ins.parts[-1]
    ins.require_parts(("cc", "lo", "hi", kind))
    takes, sets = name.endswith("c"), ins.has("cc")
    name = name.removesuffix("c") if takes else name
    if name not in ("add", "sub", "mad") or kind[0] not in "us":
        raise ins.refuse()
    unsigned = f"u{kind[1:]}"
    multiplies = name == "mad"
    product = product_part(ins, kind) if multiplies else None
    ins.require_sources(3 if multiplies else 2)
    write, a, b = ins.write(0), ins.read(1, kind), ins.read(2, kind)
    c = ins.read(3, unsigned) if multiplies else None

    def execute(warp: Warp, mask: Mask) -> None:
        first, second = a(warp), b(warp)
        if product is not None and c is not None:
            first, second = product(first, second), c(warp)
        first, second = first.view(DTYPES[unsigned]), second.view(DTYPES[unsigned])
        carry = (warp.carry & takes).astype(first.dtype)
        if name == "sub":
            partial = first - second
            result = partial - carry
            out = (first < second) | (partial < carry)
        else:
            partial = first + second
            result = partial + carry
            out = (partial < first) | (result < partial)
        if sets:
            warp.carry = np.where(mask, out, warp.carry)
        write(warp, result, mask)

    return execute
