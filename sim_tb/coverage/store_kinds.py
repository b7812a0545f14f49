"""Kinds of stores and of reductions, in what Hopper has of them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from golden.arch import EVERY_FEATURE, Arch
from golden.geometry import Geometry
from golden.model import operands_of
from golden.reduction import BULK_PAIRS, TENSOR_PAIRS
from golden.request import BulkReduce, BulkStore, Reduce, Request, Store
from sim_tb.coverage.boxes import (
    Alignment,
    BoxKind,
    Fill,
    Interleaving,
    Mode,
    Operation,
    Rank,
    Side,
    Size,
    Swizzling,
    Type,
    alignment,
    box_bins,
    reduction_misfit,
)
from sim_tb.coverage.load_kinds import HOPPER_SWIZZLES, LoadKind

MODES = (Mode.TILE, Mode.IM2COL, Mode.BULK)
SIZES = (Size.ONE, Size.TWO, Size.FOUR, Size.EIGHT)
"""Bins that Hopper has."""


def _bins(request: Store, arch: Arch) -> dict[str, Any] | None:
    """Return the bins of a store that Hopper has, and its type; None if it is later."""
    plan = Geometry(request.tensor_map, request.mode, store=True, arch=arch)
    bins = box_bins(plan, operands_of(request))
    dimensions = {"mode": MODES, "size": SIZES, "swizzle": HOPPER_SWIZZLES}
    is_hopper = all(bins[name] in known for name, known in dimensions.items())
    return bins | {"type": list(Type)[plan.data_type]} if is_hopper else None


def _beyond(side: Side | None) -> str:
    """Return why a store cannot leave the tensor at that side; "" if it can."""
    is_low = side in (Side.LOW, Side.BOTH)
    return "coordinates and lower corners of a store are not negative" if is_low else ""


@dataclass(frozen=True)
class StoreKind(BoxKind):
    """The kind of a store of Hopper. Bulk stores have only mode and alignment."""

    rank: Rank | None
    size: Size | None
    swizzle: Swizzling | None
    interleave: Interleaving | None
    alignment: Alignment
    side: Side | None

    noun: ClassVar[str] = "stores"
    bulk_dimensions: ClassVar[tuple[str, ...]] = ("alignment",)
    dimensions: ClassVar[dict[str, Any]] = {
        "mode": MODES,
        "rank": Rank,
        "size": SIZES,
        "swizzle": HOPPER_SWIZZLES,
        "interleave": Interleaving,
        "alignment": Alignment,
        "side": Side,
    }

    @classmethod
    def of(cls, request: Request, arch: Arch = EVERY_FEATURE) -> Self | None:
        """Return the kind of a store that a unit of ``arch`` accepts; None for another one."""
        if isinstance(request, BulkStore):
            align = alignment(request.gmem_address)
            return cls(Mode.BULK, None, None, None, None, align, None)
        if not isinstance(request, Store) or isinstance(request, Reduce):
            return None
        bins = _bins(request, arch)
        return None if bins is None else cls(**{name: bins[name] for name in cls.dimensions})

    def impossible(self, arch: Arch = EVERY_FEATURE, /) -> str:
        """Return why a unit accepts no store of this kind; "" if it accepts some.

        The rules for the map are those of a load whose map fills with zeros.
        """
        if self.misfit or self.mode is Mode.BULK:
            return self.misfit
        load: dict[str, Any] = dict(zip(self.dimensions, self.bins, strict=True))
        return LoadKind(fill=Fill.ZERO, **load).impossible(arch) or _beyond(self.side)


@dataclass(frozen=True)
class ReductionKind(BoxKind):
    """The kind of a reduction of Hopper to global memory. Bulk reductions have no side."""

    operation: Operation
    type: Type
    alignment: Alignment
    side: Side | None

    noun: ClassVar[str] = "reductions"
    bulk_dimensions: ClassVar[tuple[str, ...]] = ("operation", "type", "alignment")
    dimensions: ClassVar[dict[str, Any]] = {
        "mode": MODES,
        "operation": Operation,
        "type": Type,
        "alignment": Alignment,
        "side": Side,
    }

    @classmethod
    def of(cls, request: Request, arch: Arch = EVERY_FEATURE) -> Self | None:
        """Return the kind of a reduction that a unit of ``arch`` accepts; None for another one."""
        if isinstance(request, BulkReduce):
            bins: dict[str, Any] = {
                "mode": Mode.BULK,
                "type": list(Type)[request.data_type],
                "side": None,
            }
            bins |= {"alignment": alignment(request.gmem_address)}
        elif isinstance(request, Reduce) and (found := _bins(request, arch)):
            bins = found
        else:
            return None
        bins["operation"] = list(Operation)[request.op]
        return cls(**{name: bins[name] for name in cls.dimensions})

    def impossible(self, _arch: Arch = EVERY_FEATURE, /) -> str:
        """Return why a unit accepts no reduction of this kind; "" if it accepts some."""
        if self.misfit:
            return self.misfit
        pairs = BULK_PAIRS if self.mode is Mode.BULK else TENSOR_PAIRS
        return reduction_misfit(self.operation, self.type, pairs) or _beyond(self.side)
