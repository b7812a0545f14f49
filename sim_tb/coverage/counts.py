"""Counts of the branches of the unit and of the edges of its registers, by Python line."""

import re
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim_tb.coverage.branches import ROOT, Ways
from sim_tb.coverage.registers import Register, registers

ITEMS = re.compile("\x01([^\x02]*)\x02([^\x01]*)")
"""Key and value of each item in a line of ``coverage.dat``."""

EDGE = re.compile(r"(.*?)(?:\[(\d+)\])?:([01]->[01])$")
"""Verilator's name of an edge: register, bit and direction."""
EDGES = {"0->1": "rise", "1->0": "fall"}

ENCODED = re.compile("__0([0-9a-fA-F]{2})")
"""A character that Verilator replaces in names."""

BIT = re.compile(r"\[(\d+)\]$")


class Place(NamedTuple):
    """A coverage point of Verilator: its place in the Verilog, and its kind."""

    module: str
    line: int
    kind: str


def place(items: str, file: str) -> Place | None:
    """Return the point that a line of ``coverage.dat`` counts; None if not in a Verilog file."""
    fields = dict(ITEMS.findall(items))
    if Path(fields["f"]).name != file:
        return None
    return Place(fields["page"].partition("/")[2], int(fields["l"]), fields["o"])


@dataclass(frozen=True, order=True)
class Point:
    """A branch, or an edge of a bit of a register, that simulations should reach.

    Parameters
    ----------
    module : str
        Path of the instance in the Verilog.
    source : str
        Python file and line, such as ``hw/lib/queue.py:40``; for the port of a memory, those of
        the memory.
    way : "then", "else" or "case"; "rise" or "fall"
        Side of the branch, or direction of the edge.
    condition : str
        Condition in Verilog. It tells the iterations of a loop apart, which have one Python line.
        Of an edge: name of the bit, such as ``job.address[3]``.
    """

    module: str
    source: str
    way: str
    condition: str

    def __str__(self) -> str:
        return f"{self.source}: {self.text} [{self.way}], {self.module}: {self.condition}"

    @property
    def block(self) -> str:
        """Name of the block that the module belongs to."""
        return self.module.split(".")[1] if "." in self.module else self.module

    @property
    def file(self) -> str:
        """Python file."""
        return self.source.rpartition(":")[0]

    @property
    def line(self) -> int:
        """Line in the Python file."""
        return int(self.source.rpartition(":")[2])

    @property
    def text(self) -> str:
        """Statement in Python; the condition if the source is not in ``hw``."""
        if not self.file.startswith("hw/"):
            return self.condition
        return statement(ROOT / self.file, self.line)

    @property
    def bit(self) -> int:
        """Number of the bit; -1 if the point is no edge."""
        match = BIT.search(self.condition)
        return int(match[1]) if match and self.way in EDGES.values() else -1


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@cache
def statement(path: Path, line: int) -> str:
    """Return the statement that begins in a line of a Python file, without line breaks."""
    text = ""
    for part in _lines(path)[line - 1 : line + 11]:
        text += part.strip()
        if all(text.count(left) <= text.count(right) for left, right in ("()", "[]", "{}")):
            break
    return text


@dataclass
class Counts:
    """Counts of each branch or edge, and the number of excluded points by reason."""

    taken: Counter[Point] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)

    @property
    def missed(self) -> list[Point]:
        """Branches that were never taken, or edges that never occurred."""
        return sorted(point for point, count in self.taken.items() if not count)


class Coverage(NamedTuple):
    """Counts of the branches, and of the edges of registers."""

    branches: Counts
    toggles: Counts


def read(directory: Path, constants: Set[str] = frozenset()) -> Coverage:
    """Merge the counts of all builds below a directory.

    Each build has a folder with its ``tma.v`` and a ``.dat`` file for each simulation. Edges of the
    bits named by ``constants`` are excluded, unless they occurred at the first load of a register.
    """
    coverage = Coverage(Counts(), Counts())
    for design in sorted(directory.glob("*/tma.v")):
        text = design.read_text()
        ways, known = Ways.of(text), registers(text)
        for items, count in _total(design.parent.glob("*.dat")).items():
            if found := place(items, design.name):
                if edge := EDGE.match(found.kind):
                    _add_edge(coverage.toggles, found, edge, known, count)
                else:
                    _add_branch(coverage.branches, found, ways, count)
    for point in coverage.toggles.missed:
        if f"{point.module}.{point.condition}" in constants:
            del coverage.toggles.taken[point]
            coverage.toggles.excluded["no edge: Yosys finds the bit to be constant"] += 1
    return coverage


def branches_taken(file: Path, design: str) -> list[bool]:
    """Return for each branch of a Verilog file, in the order of a ``.dat`` file, if it was taken.

    Parameters
    ----------
    file : Path
        Counts of one simulation.
    design : str
        Name of the Verilog file.
    """
    counts = _total([file]).items()
    points = ((place(items, design), count) for items, count in counts)
    return [count > 0 for found, count in points if found and not EDGE.match(found.kind)]


def _total(files: Iterable[Path]) -> Counter[str]:
    """Return the sum of the counts in files of one build, by the items of each line."""
    total: Counter[str] = Counter()
    for file in files:
        for line in file.read_text().splitlines():
            if line.startswith("C '"):
                items, _, count = line[3:].rpartition("' ")
                total[items] += int(count)
    return total


def _add_branch(counts: Counts, found: Place, ways: Ways, count: int) -> None:
    if found.kind == "block":
        counts.excluded["no branch: every simulation executes it"] += 1
    elif found.line in ways.excluded:
        counts.excluded[ways.excluded[found.line]] += 1
    else:
        source, way, condition = ways.found[found.line, found.kind]
        counts.taken[Point(found.module, source, way, condition)] += count


def _add_edge(
    counts: Counts,
    found: Place,
    edge: "re.Match[str]",
    known: dict[tuple[str, str], Register],
    count: int,
) -> None:
    name = ENCODED.sub(lambda code: chr(int(code[1], 16)), edge[1])
    register = known[found.module, name]
    bit = register.bits[int(edge[2] or 0)]
    counts.taken[Point(found.module, register.source, EDGES[edge[3]], bit)] += count
