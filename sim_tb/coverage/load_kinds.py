"""Kinds of loads: their dimensions, and the legal kinds."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from golden.arch import EVERY_FEATURE, Arch, Feature
from golden.geometry import Geometry
from golden.model import operands_of
from golden.request import BulkLoad, Load, Request
from sim_tb.coverage.boxes import (
    PACKED,
    WIDE_PACKED,
    Alignment,
    BoxKind,
    Fill,
    Interleaving,
    Mode,
    Rank,
    Side,
    Size,
    Swizzling,
    alignment,
    box_bins,
)

HOPPER_SWIZZLES = (Swizzling.NONE, Swizzling.B32, Swizzling.B64, Swizzling.B128)
ROWS_OF_128 = (Swizzling.NONE, Swizzling.B128, Swizzling.ATOM_32B, Swizzling.ATOM_64B)


@dataclass(frozen=True)
class LoadKind(BoxKind):
    """The kind of a load. Bulk loads have only mode and alignment."""

    rank: Rank | None
    size: Size | None
    swizzle: Swizzling | None
    interleave: Interleaving | None
    fill: Fill | None
    alignment: Alignment
    side: Side | None

    noun: ClassVar[str] = "loads"
    bulk_dimensions: ClassVar[tuple[str, ...]] = ("alignment",)
    dimensions: ClassVar[dict[str, Any]] = {
        "mode": Mode,
        "rank": Rank,
        "size": Size,
        "swizzle": Swizzling,
        "interleave": Interleaving,
        "fill": Fill,
        "alignment": Alignment,
        "side": Side,
    }

    @classmethod
    def of(cls, request: Request, arch: Arch = EVERY_FEATURE) -> Self | None:
        """Return the kind of a load that a unit of ``arch`` accepts; None for another request."""
        if isinstance(request, BulkLoad):
            align = alignment(request.gmem_address)
            return cls(Mode.BULK, None, None, None, None, None, align, None)
        if not isinstance(request, Load):
            return None
        plan = Geometry(request.tensor_map, request.mode, arch=arch)
        fill = list(Fill)[plan.descriptor.oob_fill]
        return cls(fill=fill, **box_bins(plan, operands_of(request)))

    def impossible(self, arch: Arch = EVERY_FEATURE, /) -> str:
        """Return why a unit of ``arch`` accepts no load of this kind; "" if it accepts some.

        The rules are those of ``golden.map_rules`` and ``golden.geometry``.
        """
        if self.misfit or self.mode is Mode.BULK:
            return self.misfit
        interleaved = self.interleave is not Interleaving.NONE
        later_mode = self.mode not in (Mode.TILE, Mode.IM2COL)
        later_swizzle = self.swizzle not in HOPPER_SWIZZLES
        wide = self.mode in (Mode.IM2COL_W, Mode.IM2COL_W_128)
        im2col = wide or self.mode is Mode.IM2COL
        low_rank = self.rank in (Rank.ONE, Rank.TWO)
        flip = self.swizzle is Swizzling.ATOM_32B_FLIP_8B
        rules = (
            (arch is Arch.SM_90A and later_mode, "the mode is later than Hopper"),
            (arch is Arch.SM_90A and later_swizzle, "the swizzle is later than Hopper"),
            (
                self.swizzle is Swizzling.B96 and not arch.has(Feature.SWIZZLE_96B),
                "the architecture does not have 96B",
            ),
            (arch is Arch.SM_90A and self.size in PACKED, "packed types are later than Hopper"),
            (low_rank and im2col, "im2col tensors have at least 3 dimensions"),
            (low_rank and interleaved, "interleaved tensors have at least 3 dimensions"),
            (
                self.mode is Mode.TILE_GATHER4 and self.rank is not Rank.TWO,
                "gather4 needs 2 dimensions",
            ),
            (
                self.mode is Mode.TILE_GATHER4 and interleaved,
                "gather4 does not work with interleave",
            ),
            (wide and interleaved, "im2col::w does not work with interleave"),
            (wide and self.swizzle is Swizzling.NONE, "im2col::w needs a swizzle"),
            (wide and flip, "im2col::w does not work with 128B_ATOM_32B_FLIP_8B"),
            (
                self.swizzle is Swizzling.B96 and self.mode is Mode.IM2COL_W_128,
                "96B does not work with im2col::w::128",
            ),
            (
                self.swizzle is Swizzling.B96 and interleaved,
                "96B does not work with interleave",
            ),
            (
                self.fill is Fill.NAN and self.size is Size.ONE,
                "no floating-point type has one byte",
            ),
            (
                self.fill is Fill.NAN and self.size in PACKED,
                "packed types are integers, without NaN",
            ),
            (self.size in PACKED and interleaved, "packed types do not work with interleave"),
            (
                self.size in WIDE_PACKED
                and self.swizzle not in ROWS_OF_128
                and not (flip and self.size is Size.U4_16B),
                "the rows of this packed type have 128 bytes, which the swizzle does not allow",
            ),
            (
                self.size is Size.U6_16B and self.swizzle is Swizzling.ATOM_64B,
                "this swizzle and type are for stores only",
            ),
            (
                self.alignment is Alignment.B16
                and (self.interleave is Interleaving.B32 or self.size in WIDE_PACKED),
                "base address, strides and row starts are multiples of 32 bytes",
            ),
            (
                self.rank is Rank.ONE
                and self.size in WIDE_PACKED
                and self.side not in (Side.INSIDE, Side.OUTSIDE),
                "box, coordinates and tensor size are multiples of 128 elements",
            ),
        )
        return next((reason for broken, reason in rules if broken), "")
