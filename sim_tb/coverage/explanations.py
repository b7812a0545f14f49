"""Explanations of branches that no simulation takes, and of edges that registers never have."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sim_tb.coverage.counts import Point

MAX_BIT = 1 << 16
"""Above the number of any bit of a register."""


@dataclass(frozen=True)
class Explanation:
    """An explanation of points that no simulation reaches. An empty string fits all points.

    Parameters
    ----------
    modules : str
        Pattern of the paths of instances, as for file names.
    source : str
        Python file; * stands for any text.
    reason : str
        Why the points are not reached, in one sentence.
    line : str
        Part of the Python statement.
    condition : str or tuple of str
        Part of the condition in Verilog, or of the name of the bit; of several, one must be there.
    way : str
        "then", "else" or "case"; of an edge, "rise" or "fall".
    bits : tuple of int
        First and last number of the bits of an edge; a branch fits any.
    points : int
        Exact number of points that it explains.
    preset : str
        Preset of the unit.
    """

    modules: str
    source: str
    reason: str
    line: str = ""
    condition: str | tuple[str, ...] = ""
    way: str = ""
    bits: tuple[int, int] = (-1, MAX_BIT)
    points: int = 1
    preset: str = ""

    @property
    def _conditions(self) -> tuple[str, ...]:
        return (self.condition,) if isinstance(self.condition, str) else self.condition

    def fits(self, point: Point) -> bool:
        """Return whether the explanation fits a point."""
        low, high = self.bits
        return (
            fnmatchcase(point.module, self.modules)
            and fnmatchcase(point.file, self.source)
            and any(part in point.condition for part in self._conditions)
            and self.way in ("", point.way)
            and low <= point.bit <= high
            and self.line in point.text
        )


def explanations(path: Path, preset: str) -> list[Explanation]:
    """Return the explanations for a preset from a file of tables with the name of the file.

    Raises
    ------
    ValueError
        If a table has an unknown field or lacks one.
    """
    with path.open("rb") as file:
        tables = tomllib.load(file).get(path.stem, [])
    try:
        known = [Explanation(**_hashable(table)) for table in tables]
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error
    return [item for item in known if item.preset in ("", preset)]


def _hashable(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table with tuples in place of lists."""
    return {key: tuple(item) if isinstance(item, list) else item for key, item in table.items()}


@dataclass
class Verdict:
    """Missed points, with and without explanation.

    Parameters
    ----------
    explained : list of (Point, Explanation)
    unexplained : list of Point
    stale : list of (Explanation, int)
        Explanations that fit another number of points than they say, and that number.
    """

    explained: list[tuple[Point, Explanation]] = field(default_factory=list)
    unexplained: list[Point] = field(default_factory=list)
    stale: list[tuple[Explanation, int]] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """True if every missed point is explained and no explanation is stale."""
        return not self.unexplained and not self.stale


def judge(missed: Iterable[Point], known: Sequence[Explanation]) -> Verdict:
    """Assign each missed point to the first explanation that fits it."""
    verdict = Verdict()
    used = [0] * len(known)
    for point in missed:
        number = next((n for n, item in enumerate(known) if item.fits(point)), None)
        if number is None:
            verdict.unexplained.append(point)
        else:
            used[number] += 1
            verdict.explained.append((point, known[number]))
    counts = zip(known, used, strict=True)
    verdict.stale = [(item, count) for item, count in counts if count != item.points]
    return verdict
