"""Bins of the requests that move a box or plain bytes, and how a request is sorted into them."""

import itertools
from collections.abc import Iterator, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

import numpy as np

from golden.enums import DataType, ReductionOp
from golden.geometry import Geometry, Operands
from sim_tb.coverage.kinds import RequestKind


class Mode(StrEnum):
    """Mode: members of ``golden.AccessMode``, and bulk requests, which have no tensor."""

    TILE = "tile"
    IM2COL = "im2col"
    TILE_GATHER4 = "gather4"
    IM2COL_W = "im2col_w"
    IM2COL_W_128 = "im2col_w_128"
    BULK = "bulk"


class Rank(StrEnum):
    """Number of dimensions of the tensor."""

    ONE = "1"
    TWO = "2"
    THREE = "3"
    FOUR = "4"
    FIVE = "5"


class Size(StrEnum):
    """Bytes of an element, or the name of the packed type."""

    ONE = "1B"
    TWO = "2B"
    FOUR = "4B"
    EIGHT = "8B"
    U4_8B = "16U4_ALIGN8B"
    U4_16B = "16U4_ALIGN16B"
    U6_16B = "16U6_ALIGN16B"


class Swizzling(StrEnum):
    """Swizzle of shared memory, in the order of ``golden.Swizzle``."""

    NONE = "none"
    B32 = "32B"
    B64 = "64B"
    B128 = "128B"
    ATOM_32B = "128B_ATOM_32B"
    ATOM_32B_FLIP_8B = "128B_ATOM_32B_FLIP_8B"
    ATOM_64B = "128B_ATOM_64B"
    B96 = "96B"


class Interleaving(StrEnum):
    """Interleave of channels, in the order of ``golden.Interleave``."""

    NONE = "none"
    B16 = "16B"
    B32 = "32B"


class Fill(StrEnum):
    """Fill of elements outside of the tensor, in the order of ``golden.OobFill``."""

    ZERO = "zero"
    NAN = "nan"


class Alignment(StrEnum):
    """Alignment of the first byte of the box in global memory, inside of the tensor or not."""

    LINE = "128B"
    B32 = "32B"
    B16 = "16B"


class Side(StrEnum):
    """Sides at which the box leaves the tensor, over all dimensions.

    With im2col these are the sides at which the pixels leave it. ``OUTSIDE``: no element of the
    box is in the tensor.
    """

    INSIDE = "inside"
    LOW = "low"
    HIGH = "high"
    BOTH = "both"
    OUTSIDE = "outside"


class Operation(StrEnum):
    """Operation of a reduction, in the order of ``golden.ReductionOp``."""

    ADD = "add"
    MIN = "min"
    MAX = "max"
    INC = "inc"
    DEC = "dec"
    AND = "and"
    OR = "or"
    XOR = "xor"


class Type(StrEnum):
    """Element type of a reduction, in the order of ``golden.DataType``."""

    UINT8 = "u8"
    UINT16 = "u16"
    UINT32 = "u32"
    INT32 = "s32"
    UINT64 = "u64"
    INT64 = "s64"
    FLOAT16 = "f16"
    FLOAT32 = "f32"
    FLOAT64 = "f64"
    BFLOAT16 = "bf16"
    FLOAT32_FTZ = "f32_ftz"
    TFLOAT32 = "tf32"
    TFLOAT32_FTZ = "tf32_ftz"


PACKED = (Size.U4_8B, Size.U4_16B, Size.U6_16B)
WIDE_PACKED = (Size.U4_16B, Size.U6_16B)


def reduction_misfit(
    operation: Operation, type_: Type, pairs: Set[tuple[DataType, ReductionOp]]
) -> str:
    """Return why none of ``pairs`` has these bins; "" if one has."""
    pair = DataType[type_.name], ReductionOp[operation.name]
    return "" if pair in pairs else "the type does not have the operation"


@dataclass(frozen=True)
class BoxKind(RequestKind):
    """The kind of a request that moves a box. A bulk request has bins in few dimensions."""

    mode: Mode

    bulk_dimensions: ClassVar[tuple[str, ...]]
    """Dimensions of bulk requests."""

    @classmethod
    def candidates(cls) -> Iterator[Self]:
        """Yield all combinations of bins of requests with a tensor map, and of bulk requests."""
        dimensions = cls.dimensions
        bulk = {
            name: dimensions[name] if name in cls.bulk_dimensions else [None] for name in dimensions
        }
        for choice in bulk | {"mode": [Mode.BULK]}, dimensions:
            yield from (cls(*bins) for bins in itertools.product(*choice.values()))

    @property
    def misfit(self) -> str:
        """Reason why the dimensions that have a bin are not those of the mode; "" if they are."""
        if None not in self.bins:
            return "a bulk request has no tensor map" if self.mode is Mode.BULK else ""
        have = {name for name, bin_ in zip(self.dimensions, self.bins, strict=True) if bin_}
        is_bulk = self.mode is Mode.BULK and have == {"mode", *self.bulk_dimensions}
        return "" if is_bulk else "the dimensions are not those of the mode"


def box_bins(plan: Geometry, operands: Operands) -> dict[str, Any]:
    """Return the bins of a request with a tensor map that do not depend on its direction."""
    tensor_map, dtype = plan.descriptor, plan.data_type
    packed = DataType.PACKED_16U4_ALIGN8B
    return {
        "mode": Mode.__members__.get(plan.mode.name),
        "rank": list(Rank)[tensor_map.rank - 1],
        "size": PACKED[dtype - packed] if dtype.is_sub_byte else Size(f"{dtype.itemsize}B"),
        "swizzle": list(Swizzling)[plan.swizzle],
        "interleave": list(Interleaving)[tensor_map.interleave or 0],
        "alignment": alignment(int(plan.spread(0, operands).gmem[0, 0])),
        "side": _side(plan, operands),
    }


def alignment(address: int) -> Alignment:
    """Return the bin of the first byte in global memory."""
    if address % 128 == 0:
        return Alignment.LINE
    return Alignment.B32 if address % 32 == 0 else Alignment.B16


def _side(plan: Geometry, operands: Operands) -> Side:
    if not plan.spread(0, operands).inside.any():
        return Side.OUTSIDE
    bounded = list(plan.bounded)
    positions = plan.positions(operands)[bounded]
    low = bool((positions < 0).any())
    high = bool((positions >= np.array(plan.limits)[bounded, None]).any())
    if not plan.interleaved:
        low |= operands.coords[0] < 0
        high |= operands.coords[0] + plan.row_elements > plan.limits[0]
    return (Side.INSIDE, Side.LOW, Side.HIGH, Side.BOTH)[low + 2 * high]
