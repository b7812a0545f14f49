"""The report of the branches and of the toggles of registers, as text, as JSON and as LCOV."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from sim_tb.coverage.counts import BIT, EDGES, Counts, Point
from sim_tb.coverage.explanations import Explanation, Verdict, judge


@dataclass(frozen=True)
class CodeReport:
    """Counts of one kind of points beside the explanations of those that were missed.

    Parameters
    ----------
    title : str
        What is counted.
    counts : Counts
    verdict : Verdict
    least : float
        Least share of the points without explanation that simulations must reach.
    """

    title: str
    counts: Counts
    verdict: Verdict
    least: float

    @classmethod
    def of(
        cls, title: str, counts: Counts, known: Sequence[Explanation], least: float
    ) -> "CodeReport":
        """Return the report of counts with known explanations."""
        return cls(title, counts, judge(counts.missed, known), least)

    @property
    def share(self) -> float:
        """Share of the points without explanation that simulations reached."""
        reachable = len(self.counts.taken) - len(self.verdict.explained)
        return 1 - len(self.verdict.unexplained) / reachable if reachable else 1.0

    @property
    def is_closed(self) -> bool:
        """True if the share is enough and no explanation is stale."""
        return self.share >= self.least and not self.verdict.stale

    def blocks(self) -> dict[str, tuple[int, int, int]]:
        """Return the numbers of points of each block: reached, explained, unexplained."""
        return self._numbers(lambda point: point.block)

    def _numbers(
        self, key: Callable[[Point], str], selects: Callable[[str], bool] = bool
    ) -> dict[str, tuple[int, int, int]]:
        taken = Counter(key(point) for point, count in self.counts.taken.items() if count)
        explained = Counter(key(point) for point, _ in self.verdict.explained)
        missing = Counter(key(point) for point in self.verdict.unexplained)
        names = sorted(filter(selects, {key(point) for point in self.counts.taken}))
        return {name: (taken[name], explained[name], missing[name]) for name in names}

    def files(self) -> dict[str, tuple[int, int, int]]:
        """Return the same for each Python file of the design."""
        return self._numbers(lambda point: point.file, lambda file: file.startswith("hw/"))

    def show(self, console: Console) -> None:
        """Print the counts of each block, and every missed point."""
        table = Table(title=self.title, title_justify="left")
        table.add_column("block")
        for heading in "reached", "explained", "unexplained", "all":
            table.add_column(heading, justify="right")
        blocks = self.blocks()
        for block, numbers in blocks.items():
            cells = [str(number or "") for number in numbers]
            table.add_row(block, cells[0], cells[1], f"[red]{cells[2]}", str(sum(numbers)))
        table.add_section()
        totals = [sum(column) for column in zip(*blocks.values(), strict=True)]
        table.add_row("all", *map(str, totals), str(sum(totals)))
        console.print(table)
        console.print(
            f"reached: {self.share:.2%} of the points without explanation; "
            f"at least {self.least:.0%} are needed",
            highlight=False,
        )
        for reason, number in sorted(self.counts.excluded.items()):
            console.print(f"not counted, {number} points: {reason}", highlight=False)
        by_reason: dict[Explanation, list[Point]] = defaultdict(list)
        for point, explanation in self.verdict.explained:
            by_reason[explanation].append(point)
        for explanation, points in by_reason.items():
            lines = [f"not reached: {line}" for line in described(points)]
            _print(console, *lines, f"    reason: {explanation.reason}")
        for line in described(self.verdict.unexplained):
            _print(console, f"NOT REACHED, without explanation: {line}")
        for item, number in self.verdict.stale:
            _print(console, f"STALE: explains {item.points} points, but fits {number}: {item}")

    def summary(self) -> dict[str, Any]:
        """Return all points with their counts and explanations."""
        reasons = {point: item.reason for point, item in self.verdict.explained}
        return {
            "points": [
                {
                    "module": point.module,
                    "source": point.source,
                    "way": point.way,
                    "condition": point.condition,
                    "taken": count,
                    **({"reason": reasons[point]} if point in reasons else {}),
                }
                for point, count in sorted(self.counts.taken.items())
            ],
            "left_out": dict(self.counts.excluded),
        }


def described(points: Iterable[Point]) -> Iterator[str]:
    """Yield a line for each branch, and one for all edges of a field of a register."""
    edges: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for point in points:
        if point.bit < 0:
            yield str(point)
        else:
            field = BIT.sub("", point.condition)
            edges[point.source, point.module, field, point.way].append(point.bit)
    for (source, module, field, way), bits in edges.items():
        yield f"{source}: {module}: {field}[{_ranges(bits)}] [{way}]"


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers in order, with ranges such as 3..7."""
    parts = []
    for _, group in itertools.groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}")
    return ", ".join(parts)


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def lcov(reports: Iterable[CodeReport]) -> str:
    """Return the counts by Python line in LCOV's format; explained points are left out.

    A branch is a branch of its line. The line of a register has the smallest count of the edges of
    all its bits; a line with branches has the sum of theirs.
    """
    branches: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    edges: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        explained = {point for point, _ in report.verdict.explained}
        for point, count in sorted(report.counts.taken.items()):
            if point not in explained and point.file.startswith("hw/"):
                kind = edges if point.way in EDGES.values() else branches
                kind[point.file][point.line].append(count)
    return "".join(
        line + "\n"
        for file in sorted({*branches, *edges})
        for line in _records(file, branches[file], edges[file])
    )


def _records(
    file: str, branches: dict[int, list[int]], edges: dict[int, list[int]]
) -> Iterator[str]:
    yield f"SF:{file}"
    for line, counts in sorted(branches.items()):
        reached = any(counts)
        for number, count in enumerate(counts):
            yield f"BRDA:{line},0,{number},{count if reached else '-'}"
    taken = [count for counts in branches.values() for count in counts]
    yield f"BRF:{len(taken)}"
    yield f"BRH:{sum(count > 0 for count in taken)}"
    lines = {line: sum(counts) for line, counts in branches.items()}
    for line, counts in edges.items():
        lines[line] = min(lines.get(line, min(counts)), *counts)
    for line, count in sorted(lines.items()):
        yield f"DA:{line},{count}"
    yield f"LF:{len(lines)}"
    yield f"LH:{sum(count > 0 for count in lines.values())}"
    yield "end_of_record"
