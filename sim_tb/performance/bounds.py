"""Results of timed boxes, and the bounds that they must meet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim_tb.performance.tb_timing import MixedCycles

MIN_RATE = 0.97
"""Least rate, as a share of one line a clock or of a direction's rate alone."""

MIN_FLOOR_RATIO = 0.99
"""Least measured cycles over the floor; the rest is the error of the measurement."""

CLASS_FLOORS = (1, 2, 5, 17, 65)
"""Lowest floor of each class in a summary, in clocks."""


@dataclass(frozen=True)
class Work:
    """Accesses of a box to both memories, which limit its rate.

    Parameters
    ----------
    lines, beats : int
        Distinct 128-byte lines of global memory and of shared memory that the box touches.
    lane_pieces : int
        Most pieces of the box in one lane of shared memory. A piece has 16 bytes; its lane is its
        place in the 128-byte line of shared memory.
    fill_beats : int
        Those of ``beats`` that a load fills, at least in part.
    """

    lines: int
    beats: int
    lane_pieces: int
    fill_beats: int = 0

    @property
    def floor(self) -> int:
        """Fewest clocks, at one line and one piece in each lane a clock."""
        return max(self.lines, self.lane_pieces, 1)

    @property
    def beat_floor(self) -> int:
        """Fewest clocks if all lanes had to access the same beat in a clock.

        It differs from the floor only if rows have gaps between them in shared memory.
        """
        return max(self.lines, self.beats, 1)


@dataclass(frozen=True)
class BoxResult:
    """A box and its measured cycles.

    Parameters
    ----------
    name, mode : str
    work : Work
        Accesses of the box to both memories.
    description : str
        Parameters of the box, in one line.
    cycles : float, optional
        Cycles per box in steady state; of mixed loads and stores, those of the slower direction.
        None if the box was not measured or failed.
    requested_lines : float, optional
        Lines that the unit requested per box.
    silicon_cycles : float, optional
        Cycles per box of the silicon. None if they were not recorded.
    mixed : MixedCycles, optional
        Cycles of both directions, if the box is loaded and stored at once.
    error : str
        Reason of a failure.
    counts : mapping, optional
        Counts of the unit by name, if it has counters, from the begin of a burst to its end.
    """

    name: str
    mode: str
    work: Work
    description: str = ""
    cycles: float | None = None
    requested_lines: float | None = None
    silicon_cycles: float | None = None
    mixed: MixedCycles | None = None
    error: str = ""
    counts: Mapping[str, int] | None = None

    @property
    def floor(self) -> int:
        """Fewest clocks that the box can take."""
        return self.work.floor

    @property
    def ratio(self) -> float:
        """Cycles over the floor."""
        return (self.cycles or 0.0) / self.work.floor

    @property
    def beat_ratio(self) -> float:
        """Cycles over the beat floor."""
        return (self.cycles or 0.0) / self.work.beat_floor

    @property
    def is_slower(self) -> bool:
        """True if the unit is slower than the silicon."""
        if self.cycles is None or self.silicon_cycles is None:
            return False
        return self.cycles > self.silicon_cycles


@dataclass(frozen=True)
class Quantiles:
    """Number of boxes, and quantiles of their cycles over a floor."""

    boxes: int
    median: float
    p95: float
    worst: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> "Quantiles":
        """Return the quantiles of the cycles over a floor of at least one box."""
        median, p95 = np.percentile(ratios, (50, 95))
        return cls(len(ratios), float(median), float(p95), max(ratios))

    @property
    def cells(self) -> list[str]:
        """Cells of a table row: number of boxes, median, 95th percentile, worst."""
        figures = self.median, self.p95, self.worst
        return [str(self.boxes), *(f"{figure:.3f}" for figure in figures)]


def classes_of(results: Sequence[BoxResult]) -> dict[str, list[BoxResult]]:
    """Return the measured boxes of each class of floors, of each mode, and all of them.

    Classes without boxes are left out.
    """
    measured = [result for result in results if result.cycles is not None]
    classes: dict[str, list[BoxResult]] = {}
    for first, end in zip(CLASS_FLOORS, [*CLASS_FLOORS[1:], 1 << 32], strict=True):
        members = [result for result in measured if first <= result.floor < end]
        highest = max((result.floor for result in members), default=first)
        name = f"floor {first} to {highest}" if highest > first else f"floor {first}"
        classes[name] = members
    for mode in sorted({result.mode for result in measured}):
        classes[mode] = [result for result in measured if result.mode == mode]
    classes["all"] = measured
    return {name: members for name, members in classes.items() if members}


@dataclass(frozen=True)
class Bounds:
    """Upper bounds of cycles over the beat floor, which is the floor if rows have no gaps.

    The unit writes fill, and short rows of one line, one line of shared memory a clock. If such
    lines have gaps, the unit reaches the beat floor, but not the floor.

    Parameters
    ----------
    median, p95 : float
        Bounds of the median and of the 95th percentile.
    floor_factor : float
    extra_cycles : int
        No box takes more than ``floor_factor`` times its beat floor and ``extra_cycles`` cycles.
        Besides, no box is slower than the silicon, and none is faster than its floor.
    """

    median: float
    p95: float
    floor_factor: float
    extra_cycles: int

    @property
    def box_limit(self) -> str:
        """Limit of a single box, as a formula."""
        return f"{self.floor_factor:g} x beat floor + {self.extra_cycles}"

    def is_exceeded_by(self, box: BoxResult) -> bool:
        """Return whether a single box takes more cycles than its limit."""
        limit = self.floor_factor * box.work.beat_floor + self.extra_cycles
        return box.cycles is not None and box.cycles > limit

    def violations(self, boxes: Sequence[BoxResult]) -> list[str]:
        """Return a message for each bound that is exceeded."""
        messages = []
        ratios = [box.beat_ratio for box in boxes if box.cycles is not None]
        if ratios:
            quantiles = Quantiles.of(ratios)
            if quantiles.median > self.median:
                messages.append(f"median {quantiles.median:.3f} is above {self.median:g}")
            if quantiles.p95 > self.p95:
                messages.append(f"p95 {quantiles.p95:.3f} is above {self.p95:g}")
        for box in boxes:
            cycles = f"{box.name}: {box.cycles or 0:.2f} cycles are above"
            if self.is_exceeded_by(box):
                limit = f"{self.box_limit}, beat floor {box.work.beat_floor}"
                messages.append(f"{cycles} {limit}: {box.description}")
            if box.cycles is not None and box.ratio < MIN_FLOOR_RATIO:
                messages.append(
                    f"{box.name}: {box.cycles:.2f} cycles are below the floor, {box.floor}: "
                    f"{box.description}"
                )
            if box.is_slower:
                silicon = f"silicon's {box.silicon_cycles:.2f}"
                messages.append(f"{cycles} {silicon}: {box.description}")
        return messages


WORKLOAD_BOUNDS = Bounds(1.05, 1.05, 1.5, 1)
"""Bounds of the boxes of published kernels."""

RANDOM_BOUNDS = Bounds(1.05, 1.25, 2, 2)
"""Bounds of random boxes, recorded or drawn from a seed."""


def violations(results: Sequence[BoxResult], bounds: Bounds | None, way: str) -> list[str]:
    """Return a message for each failed box, and for each bound that is exceeded.

    Parameters
    ----------
    results : sequence of BoxResult
        Measured boxes of one series.
    bounds : Bounds, optional
        None: only failed boxes are reported.
    way : "load", "store" or "both"
        Bounds of loads apply to all boxes, bounds of stores to tiles. Of mixed loads and stores,
        each direction must reach ``MIN_RATE`` of its rate alone, as far as the request port, with
        one request a clock, allows it.
    """
    failures = [f"{box.name}: {box.error}" for box in results if box.cycles is None]
    if bounds is None:
        return failures
    if way == "both":
        return failures + [
            f"{box.name}: loads have {box.mixed.load_share:.3f} of their rate alone, "
            f"stores {box.mixed.store_share:.3f}: {box.description}"
            for box in results
            if box.mixed is not None and box.mixed.port_share < MIN_RATE
        ]
    bounded = [box for box in results if way == "load" or box.mode.startswith("tile")]
    return failures + bounds.violations(bounded)
