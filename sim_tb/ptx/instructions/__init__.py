"""Instructions by family; a module registers its builders when it is imported."""

from sim_tb.ptx.instructions import (
    approximate,
    barriers,
    bits,
    control,
    conversions,
    copies,
    extended,
    floats,
    integer,
    memory,
    tensor_cores,
    warp_level,
)
from sim_tb.ptx.operands import BUILDERS

__all__ = [
    "BUILDERS",
    "approximate",
    "barriers",
    "bits",
    "control",
    "conversions",
    "copies",
    "extended",
    "floats",
    "integer",
    "memory",
    "tensor_cores",
    "warp_level",
]
