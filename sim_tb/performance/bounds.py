"""What was measured of boxes, and what is to be reached."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim_tb.performance.tb_timing import Together

RATE = 0.97
"""Of a line a clock, or of the rate of a direction alone."""

FLOORS = (1, 2, 5, 17, 65)
"""Where a class of floors begins, in a summary."""


@dataclass(frozen=True)
class Measured:
    """A box and what the unit took for it.

    Parameters
    ----------
    name, mode : str
    lines, beats : int
        Distinct lines of global and of shared memory that it touches.
    text : str
        What it is.
    cycles : float, optional
        None if it failed.
    requests : float, optional
        Lines that the unit asked for.
    silicon_cycles : float, optional
        None where that was not recorded.
    both : Together, optional
        Where it is loaded and stored at once; ``cycles`` are those of the slower direction.
    error : str
        Why there is no number.
    """

    name: str
    mode: str
    lines: int
    beats: int
    text: str = ""
    cycles: float | None = None
    requests: float | None = None
    silicon_cycles: float | None = None
    both: Together | None = None
    error: str = ""

    @property
    def floor(self) -> int:
        """Clocks that one line and one write a clock would take."""
        return max(self.lines, self.beats, 1)

    @property
    def ratio(self) -> float:
        """Cycles over the floor."""
        return (self.cycles or 0.0) / self.floor

    @property
    def is_slower(self) -> bool:
        """Than the silicon."""
        if self.cycles is None or self.silicon_cycles is None:
            return False
        return self.cycles > self.silicon_cycles


@dataclass(frozen=True)
class Quantiles:
    """Of cycles over the floor."""

    boxes: int
    median: float
    p95: float
    worst: float

    @classmethod
    def of(cls, measured: Sequence[Measured]) -> "Quantiles | None":
        """None if there are no boxes."""
        ratios = [item.ratio for item in measured if item.cycles is not None]
        if not ratios:
            return None
        median, p95 = np.percentile(ratios, (50, 95))
        return cls(len(ratios), float(median), float(p95), max(ratios))

    @property
    def cells(self) -> list[str]:
        """For a table."""
        figures = self.median, self.p95, self.worst
        return [str(self.boxes), *(f"{figure:.3f}" for figure in figures)]


def classes(measured: Sequence[Measured]) -> dict[str, Quantiles]:
    """The quantiles by floor, by mode, and of all."""
    parts: dict[str, list[Measured]] = {}
    for first, last in zip(FLOORS, [*FLOORS[1:], 1 << 32], strict=True):
        inside = [item for item in measured if first <= item.floor < last]
        highest = max((item.floor for item in inside), default=first)
        name = f"floor {first} to {highest}" if highest > first else f"floor {first}"
        parts[name] = inside
    for mode in sorted({item.mode for item in measured}):
        parts[mode] = [item for item in measured if item.mode == mode]
    parts["all"] = list(measured)
    found = {name: Quantiles.of(part) for name, part in parts.items()}
    return {name: quantiles for name, quantiles in found.items() if quantiles is not None}


@dataclass(frozen=True)
class Bounds:
    """Of cycles over the floor: the median and the 95th percentile at most; and no box takes more
    than ``times`` its floor and ``more``, or more than the silicon.
    """

    median: float
    p95: float
    times: float
    more: int

    @property
    def worst(self) -> str:
        """The bound of a single box."""
        return f"{self.times:g} x floor + {self.more}"

    def over(self, box: Measured) -> bool:
        """Whether a box takes too long."""
        return box.cycles is not None and box.cycles > self.times * box.floor + self.more

    def broken(self, boxes: Sequence[Measured]) -> list[str]:
        """What is wrong, in words; nothing, if all is well."""
        found = []
        quantiles = Quantiles.of(boxes)
        if quantiles is not None:
            if quantiles.median > self.median:
                found.append(f"median {quantiles.median:.3f} is above {self.median:g}")
            if quantiles.p95 > self.p95:
                found.append(f"p95 {quantiles.p95:.3f} is above {self.p95:g}")
        for box in boxes:
            taken = f"{box.name}: {box.cycles or 0:.2f} cycles are above"
            if self.over(box):
                found.append(f"{taken} {self.worst}, floor {box.floor}: {box.text}")
            if box.is_slower:
                found.append(f"{taken} silicon's {box.silicon_cycles:.2f}: {box.text}")
        return found


WORKLOADS = Bounds(1.05, 1.05, 1.5, 1)
"""Boxes of published kernels."""

RANDOM = Bounds(1.05, 1.25, 2, 2)
"""Random boxes."""


def broken(measured: Sequence[Measured], bounds: Bounds | None, way: str) -> list[str]:
    """What is wrong: boxes that failed; and by the bounds, if there are any, all boxes that are
    loaded, and tiled ones that are stored; and of both ways, a direction that has less than
    ``RATE`` of its rate alone, as far as one request a clock allows.
    """
    failed = [f"{item.name}: {item.error}" for item in measured if item.cycles is None]
    if bounds is None:
        return failed
    if way == "both":
        return failed + [
            f"{item.name}: loads have {item.both.load_share:.3f} of their rate alone, "
            f"stores {item.both.store_share:.3f}: {item.text}"
            for item in measured
            if item.both is not None and item.both.attained < RATE
        ]
    bound = [item for item in measured if way == "load" or item.mode.startswith("tile")]
    return failed + bounds.broken(bound)
