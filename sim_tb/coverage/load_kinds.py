"""Kinds of loads: dimensions and bins, the legal kinds, and the record of a simulation."""

import itertools
import os
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from golden.arch import EVERY_FEATURE, Arch, Feature
from golden.enums import DataType
from golden.geometry import Geometry, Operands
from golden.model import operands_of
from golden.request import BulkLoad, Load, Request

SAMPLES = "COVERAGE_SAMPLES"
"""Environment variable: directory in which testbenches record their loads."""

ABSENT = "-"
"""Text of a dimension that bulk loads do not have."""


class Mode(StrEnum):
    """Mode of the load: members of ``golden.AccessMode``, and bulk loads, which have no tensor."""

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


@dataclass(frozen=True)
class Sample:
    """The kind of a load: one bin of each dimension. Bulk loads have only mode and alignment."""

    mode: Mode
    rank: Rank | None
    size: Size | None
    swizzle: Swizzling | None
    interleave: Interleaving | None
    fill: Fill | None
    alignment: Alignment
    side: Side | None

    @property
    def bins(self) -> tuple[StrEnum | None, ...]:
        """Fields in the order of ``DIMENSIONS``."""
        return tuple(getattr(self, name) for name in DIMENSIONS)

    def __str__(self) -> str:
        return " ".join(item or ABSENT for item in self.bins)

    @classmethod
    def parse(cls, text: str) -> "Sample":
        """Return the sample that ``str`` wrote as ``text``."""
        words = zip(DIMENSIONS.values(), text.split(), strict=True)
        bins: list[Any] = [None if word == ABSENT else bins(word) for bins, word in words]
        return cls(*bins)


DIMENSIONS: dict[str, Any] = {
    "mode": Mode,
    "rank": Rank,
    "size": Size,
    "swizzle": Swizzling,
    "interleave": Interleaving,
    "fill": Fill,
    "alignment": Alignment,
    "side": Side,
}
"""Fields of a ``Sample``, and the enumeration of their bins."""

PACKED = (Size.U4_8B, Size.U4_16B, Size.U6_16B)
WIDE_PACKED = (Size.U4_16B, Size.U6_16B)
HOPPER_SWIZZLES = (Swizzling.NONE, Swizzling.B32, Swizzling.B64, Swizzling.B128)
ROWS_OF_128 = (Swizzling.NONE, Swizzling.B128, Swizzling.ATOM_32B, Swizzling.ATOM_64B)


def classify(request: Load | BulkLoad) -> Sample:
    """Return the sample of a load that the golden model accepts."""
    if isinstance(request, BulkLoad):
        align = _alignment(request.gmem_address)
        return Sample(Mode.BULK, None, None, None, None, None, align, None)
    plan = Geometry(request.tensor_map, request.mode, arch=EVERY_FEATURE)
    tensor_map, dtype = plan.descriptor, plan.data_type
    operands = operands_of(request)
    start = int(plan.spread(0, operands).gmem[0, 0])
    packed = DataType.PACKED_16U4_ALIGN8B
    return Sample(
        Mode[plan.mode.name],
        list(Rank)[tensor_map.rank - 1],
        PACKED[dtype - packed] if dtype.is_sub_byte else Size(f"{dtype.itemsize}B"),
        list(Swizzling)[plan.swizzle],
        list(Interleaving)[tensor_map.interleave or 0],
        list(Fill)[tensor_map.oob_fill],
        _alignment(start),
        _side(plan, operands),
    )


def _alignment(address: int) -> Alignment:
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


def impossible(sample: Sample, arch: Arch = EVERY_FEATURE) -> str:
    """Return why a unit of ``arch`` accepts no load of this kind; "" if it accepts some.

    The rules are those of ``golden.map_rules`` and ``golden.geometry``.
    """
    s = sample
    if s.mode is Mode.BULK:
        map_bins = s.rank or s.size or s.swizzle or s.interleave or s.fill or s.side
        return "a bulk load has no tensor map" if map_bins else ""
    if None in s.bins:
        return "a load with a tensor map has a bin in each dimension"
    interleaved = s.interleave is not Interleaving.NONE
    later_mode = s.mode not in (Mode.TILE, Mode.IM2COL)
    later_swizzle = s.swizzle not in HOPPER_SWIZZLES
    wide = s.mode in (Mode.IM2COL_W, Mode.IM2COL_W_128)
    im2col = wide or s.mode is Mode.IM2COL
    low_rank = s.rank in (Rank.ONE, Rank.TWO)
    flip = s.swizzle is Swizzling.ATOM_32B_FLIP_8B
    rules = (
        (arch is Arch.SM_90A and later_mode, "the mode is later than Hopper"),
        (arch is Arch.SM_90A and later_swizzle, "the swizzle is later than Hopper"),
        (
            s.swizzle is Swizzling.B96 and not arch.has(Feature.SWIZZLE_96B),
            "the architecture does not have 96B",
        ),
        (arch is Arch.SM_90A and s.size in PACKED, "packed types are later than Hopper"),
        (low_rank and im2col, "im2col tensors have at least 3 dimensions"),
        (low_rank and interleaved, "interleaved tensors have at least 3 dimensions"),
        (
            s.mode is Mode.TILE_GATHER4 and s.rank is not Rank.TWO,
            "gather4 needs 2 dimensions",
        ),
        (s.mode is Mode.TILE_GATHER4 and interleaved, "gather4 does not work with interleave"),
        (wide and interleaved, "im2col::w does not work with interleave"),
        (wide and s.swizzle is Swizzling.NONE, "im2col::w needs a swizzle"),
        (wide and flip, "im2col::w does not work with 128B_ATOM_32B_FLIP_8B"),
        (
            s.swizzle is Swizzling.B96 and s.mode is Mode.IM2COL_W_128,
            "96B does not work with im2col::w::128",
        ),
        (
            s.swizzle is Swizzling.B96 and interleaved,
            "96B does not work with interleave",
        ),
        (s.fill is Fill.NAN and s.size is Size.ONE, "no floating-point type has one byte"),
        (
            s.fill is Fill.NAN and s.size in PACKED,
            "packed types are integers, without NaN",
        ),
        (s.size in PACKED and interleaved, "packed types do not work with interleave"),
        (
            s.size in WIDE_PACKED
            and s.swizzle not in ROWS_OF_128
            and not (flip and s.size is Size.U4_16B),
            "the rows of this packed type have 128 bytes, which the swizzle does not allow",
        ),
        (
            s.size is Size.U6_16B and s.swizzle is Swizzling.ATOM_64B,
            "this swizzle and type are for stores only",
        ),
        (
            s.alignment is Alignment.B16
            and (s.interleave is Interleaving.B32 or s.size in WIDE_PACKED),
            "base address, strides and row starts are multiples of 32 bytes",
        ),
        (
            s.rank is Rank.ONE
            and s.size in WIDE_PACKED
            and s.side not in (Side.INSIDE, Side.OUTSIDE),
            "box, coordinates and tensor size are multiples of 128 elements",
        ),
    )
    return next((reason for broken, reason in rules if broken), "")


@cache
def every(arch: Arch) -> tuple[Sample, ...]:
    """Return all samples that a unit of ``arch`` accepts."""
    bulk = (Sample(Mode.BULK, None, None, None, None, None, bin_, None) for bin_ in Alignment)
    tensor = (Sample(*bins) for bins in itertools.product(*DIMENSIONS.values()))
    return (*bulk, *(sample for sample in tensor if not impossible(sample, arch)))


def record(request: Request) -> None:
    """Record a load that the golden model accepts, if the environment names a directory.

    Requests other than loads are not recorded.
    """
    directory = os.environ.get(SAMPLES)
    if directory is not None and isinstance(request, Load | BulkLoad):
        with Path(directory, f"{os.getpid()}.txt").open("a") as file:
            print(classify(request), file=file)


def recorded(directory: Path) -> Counter[Sample]:
    """Return the samples that simulations recorded in a directory, and how often each."""
    lines: Counter[str] = Counter()
    for file in directory.glob("*.txt"):
        lines.update(file.read_text().splitlines())
    return Counter({Sample.parse(line): count for line, count in lines.items()})
