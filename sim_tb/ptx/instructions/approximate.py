"""Approximate functions: ``.approx`` and ``.full``.

Those of f32, f16 and bf16 give the bits of the GPU. ``rcp`` and ``rsqrt`` of f64, with which
compilers begin an exact division, are not recorded: they are cut to the bits that the PTX document
gives them.
"""

from collections.abc import Callable

import numpy as np

from sim_tb.arithmetic import approximations
from sim_tb.arithmetic.approximations import flushed
from sim_tb.arithmetic.rounding import FORMATS, Doubles
from sim_tb.ptx.instructions.floats import (
    HALVES,
    canonical,
    float_arithmetic,
    half_execution,
    half_function,
)
from sim_tb.ptx.machine import Mask, Warp
from sim_tb.ptx.operands import Execute, Operands, instruction

_FUNCTIONS: dict[str, Callable[..., approximations.Floats]] = {
    "ex2": approximations.ex2,
    "lg2": approximations.lg2,
    "rcp": approximations.rcp,
    "rsqrt": approximations.rsqrt,
    "sqrt": approximations.sqrt,
    "sin": approximations.sin,
    "cos": approximations.cos,
    "tanh": approximations.tanh,
    "div": approximations.quotient,
}


@instruction("ex2", "lg2", "rsqrt", "rcp", "sqrt", "sin", "cos", "tanh")
def approximate(ins: Operands) -> Execute:
    """``.approx`` and ``.full`` of f32, f16 and bf16; rounded ones are ordinary arithmetic."""
    name, kind = ins.parts[0], ins.parts[-1]
    if not ins.has("approx") and not ins.has("full"):
        return float_arithmetic(ins)
    ins.require_parts(("approx", "full", "ftz", kind))
    ins.require_sources(2 if name == "div" else 1)
    if ins.has("full") and name != "div":
        raise ins.refuse(".full")
    function = approximations.full_quotient if ins.has("full") else _FUNCTIONS[name]
    if kind in HALVES and name in ("ex2", "tanh"):
        return _halves(ins, kind, function)
    if kind == "f64" and name in ("rcp", "rsqrt") and ins.has("ftz"):
        return _double(ins, name)
    if kind != "f32":
        raise ins.refuse(f".{kind}")
    write = ins.write(0)
    sources = [ins.read(index, "f32") for index in range(1, len(ins))]
    ftz = ins.has("ftz")

    def execute(warp: Warp, mask: Mask) -> None:
        values = [read(warp) for read in sources]
        if ftz:
            values = [flushed(value) for value in values]
        result = canonical(function(*values))
        write(warp, flushed(result) if ftz else result, mask)

    return execute


def _halves(ins: Operands, kind: str, function: Callable[..., approximations.Floats]) -> Execute:
    """``ex2`` and ``tanh`` of 16-bit values: those of f32, cut; overflow is infinite (silicon)."""
    element = kind.removesuffix("x2")
    end = 2.0 ** np.ceil(np.log2(FORMATS[element].greatest))

    def wide(values: Doubles) -> Doubles:
        result = function(values.astype(np.float32)).astype(np.float64)
        return np.where(result >= end, np.inf, result)

    return half_execution(ins, kind, half_function(ins, element, wide, "rz"))


def _double(ins: Operands, name: str) -> Execute:
    """``rcp.approx.ftz.f64`` and ``rsqrt.approx.ftz.f64``: of the high word, to a high word."""
    function = approximations.rcp_high if name == "rcp" else approximations.rsqrt_high
    write, read = ins.write(0), ins.read(1, "f64")
    return lambda warp, mask: write(warp, function(read(warp)), mask)
