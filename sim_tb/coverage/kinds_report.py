"""The report of the kinds that simulations had: hits, pairs of dimensions, holes."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.table import Table

from golden.arch import EVERY_FEATURE, Arch
from sim_tb.coverage.kinds import Kind

MAX_PRINTED_HOLES = 20
"""Most holes of the full cross that are printed."""


@dataclass(frozen=True)
class Cross:
    """Two dimensions: the legal pairs of their bins, and how often each pair was hit."""

    first: str
    second: str
    hits: dict[tuple[StrEnum, StrEnum], int]

    @property
    def name(self) -> str:
        """Name in the report, such as ``mode x rank``."""
        return f"{self.first} x {self.second}"

    @property
    def hit(self) -> int:
        """Number of pairs that were hit."""
        return sum(count > 0 for count in self.hits.values())

    @property
    def holes(self) -> list[tuple[StrEnum, StrEnum]]:
        """Pairs that were not hit."""
        return [pair for pair, count in self.hits.items() if not count]


class KindsReport:
    """Recorded samples beside the legal ones.

    Parameters
    ----------
    cross : type of Kind
        All kinds.
    samples : Counter of Kind
        How often each kind was recorded.
    arch : Arch, optional
        Architecture of the unit. None: the first one that accepts all samples.
    """

    def __init__(self, cross: type[Kind], samples: Counter[Kind], arch: Arch | None = None) -> None:
        self.cross = cross
        self.samples = samples
        later = any(kind.impossible(Arch.SM_90A) for kind in samples)
        self.arch = arch or (EVERY_FEATURE if later else Arch.SM_90A)
        self.possible = cross.every(self.arch)

    @cached_property
    def wrong(self) -> list[str]:
        """Recorded samples that are not possible: the rules or a testbench are wrong."""
        verdicts = ((sample, sample.impossible(self.arch)) for sample in self.samples)
        return [f"{sample}: {reason}" for sample, reason in verdicts if reason]

    @cached_property
    def holes(self) -> list[Kind]:
        """Legal samples that were not recorded."""
        return [sample for sample in self.possible if sample not in self.samples]

    @cached_property
    def bins(self) -> dict[str, dict[StrEnum, int]]:
        """Hits of each bin, by dimension."""
        return {name: self._counts(name) for name in self.cross.dimensions}

    def _counts(self, name: str) -> dict[StrEnum, int]:
        counts = dict.fromkeys(self.cross.dimensions[name], 0)
        possible = {getattr(sample, name) for sample in self.possible}
        for sample, count in self.samples.items():
            if getattr(sample, name) is not None:
                counts[getattr(sample, name)] += count
        return {bin_: count for bin_, count in counts.items() if bin_ in possible}

    @cached_property
    def crosses(self) -> list[Cross]:
        """Crosses of all pairs of dimensions."""
        return [self._cross(*names) for names in itertools.combinations(self.cross.dimensions, 2)]

    def _cross(self, first: str, second: str) -> Cross:
        hits: Counter[tuple[Any, Any]] = Counter()
        for sample in self.possible:
            hits[getattr(sample, first), getattr(sample, second)] += 0
        for sample, count in self.samples.items():
            hits[getattr(sample, first), getattr(sample, second)] += count
        return Cross(first, second, {pair: hits[pair] for pair in hits if None not in pair})

    def show(self, console: Console) -> None:
        """Print the hits of each dimension and pair of dimensions, and the holes."""
        total = self.samples.total()
        table = Table(title=f"{total} {self.cross.noun}, by dimension", title_justify="left")
        table.add_column("dimension")
        table.add_column("bins and hits")
        for name, counts in self.bins.items():
            cells = (
                f"{bin_} {count}" if count else f"[red]{bin_} 0[/red]"
                for bin_, count in counts.items()
            )
            table.add_row(name, "   ".join(cells))
        console.print(table)
        title = f"pairs of bins of {self.cross.noun}, {self.arch.name}"
        table = Table("pair of dimensions", title=title, title_justify="left")
        for heading in "hit", "possible", "holes":
            table.add_column(heading, justify="right")
        for cross in self.crosses:
            holes = len(cross.holes)
            mark = f"[red]{holes}" if holes else ""
            table.add_row(cross.name, str(cross.hit), str(len(cross.hits)), mark)
        hit = sum(cross.hit for cross in self.crosses)
        pairs = sum(len(cross.hits) for cross in self.crosses)
        table.add_section()
        table.add_row("all", str(hit), str(pairs), str(pairs - hit))
        console.print(table)
        for line in self.hole_lines():
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        for sample in self.holes[:MAX_PRINTED_HOLES]:
            console.print(f"hole: {sample}", markup=False, highlight=False)
        rest = len(self.holes) - MAX_PRINTED_HOLES
        if rest > 0:
            console.print(f"{rest} more holes are in kinds.json", highlight=False)
        hit = len(self.possible) - len(self.holes)
        console.print(
            f"full cross of {self.cross.noun}: "
            f"{hit} of {len(self.possible)} legal combinations were hit",
            highlight=False,
        )
        for line in self.wrong:
            console.print(f"recorded, but not legal: {line}", markup=False, highlight=False)

    def hole_lines(self) -> Iterator[str]:
        """Yield the holes as text; a bin that was never hit has one line, not one for each pair."""
        never = {
            (name, bin_)
            for name, counts in self.bins.items()
            for bin_ in counts
            if not counts[bin_]
        }
        for name, bin_ in sorted(never):
            yield f"hole: {name} {bin_}, in any pair"
        for cross in self.crosses:
            rows: dict[StrEnum, list[StrEnum]] = {}
            for one, other in cross.holes:
                if (cross.first, one) not in never and (cross.second, other) not in never:
                    rows.setdefault(one, []).append(other)
            for one, others in rows.items():
                yield f"hole: {cross.first} {one} with {cross.second} {', '.join(others)}"

    def summary(self) -> dict[str, Any]:
        """Return all counts and holes, for ``kinds.json``."""
        return {
            "arch": self.arch.name,
            "samples": self.samples.total(),
            "bins": self.bins,
            "pairs": {
                cross.name: {
                    "hit": cross.hit,
                    "possible": len(cross.hits),
                    "holes": cross.holes,
                }
                for cross in self.crosses
            },
            "full": {
                "possible": len(self.possible),
                "holes": [str(sample) for sample in self.holes],
            },
        }
