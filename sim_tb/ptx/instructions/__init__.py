"""Instructions by family; a module registers its builders when it is imported."""

from sim_tb.ptx.instructions import (
    barriers,
    control,
    copies,
    floats,
    integer,
    memory,
    tensor_cores,
    warp_level,
)
from sim_tb.ptx.operands import BUILDERS

__all__ = [
    "BUILDERS",
    "barriers",
    "control",
    "copies",
    "floats",
    "integer",
    "memory",
    "tensor_cores",
    "warp_level",
]
