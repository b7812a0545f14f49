"""Golden model of the Tensor Memory Accelerator, in NumPy.

What the unit does, to be read, run and compared with: tensor maps as CUDA's driver encodes them,
tiled loads, mbarriers. Nothing here knows the RTL.
"""

from golden.errors import Cause, Refusal, TensorMapError
from golden.load import check, lines_touched, load
from golden.memory import ArrayMemory, HashedMemory, LayeredMemory, Memory
from golden.tensor_map import (
    DataType,
    Descriptor,
    Interleave,
    L2Promotion,
    OobFill,
    Swizzle,
    TensorMap,
)

__all__ = [
    "ArrayMemory",
    "Cause",
    "DataType",
    "Descriptor",
    "HashedMemory",
    "Interleave",
    "L2Promotion",
    "LayeredMemory",
    "Memory",
    "OobFill",
    "Refusal",
    "Swizzle",
    "TensorMap",
    "TensorMapError",
    "check",
    "lines_touched",
    "load",
]
