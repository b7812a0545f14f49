"""Which branches of the unit a simulation took, by the Python line where they are written.

Verilator counts them by line of the generated Verilog, beside which Amaranth does not say where a
branch comes from: ``verilog`` writes it with that as attributes, and ``read`` finds it again.
"""

import itertools
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]

SWITCH, CASE = "branch_", "branch"
"""Attributes with sources: ``branch_0`` and so on of an ``if`` with its ``else``s, ``branch`` of
an item of a ``case``."""

# What Yosys writes, a statement a line.
ATTRIBUTE = re.compile(rf'^\s*\(\* {SWITCH}(\d+) = "(.*)" \*\)$')
COMMENT = re.compile(rf'^\s*/\* {CASE} = "(.*)" \*/$')
NET = re.compile(r"\\\$\d+(?= |$)")
"""A net that Yosys has named."""
ASSIGN = re.compile(rf"^  assign ({NET.pattern}) += (.*);$")
INLINE = re.compile(r" ?\(\* src = .*? \*\)")
SOURCE = re.compile(r'^  \(\* src = "(.*)" \*\)$')
MEMORY = re.compile(r"^  reg (?:\[\d+:0\] )?\S+ +\[\d+:0\];$")
IF = re.compile(r"^( *)(end else )?if \((.*?) ?\)(?: begin)?(?: end)?$")
CASEZ = re.compile(r"^ *casez \((.*?) ?\)$")
MUX = re.compile(r'= (.*?) *\? \(\* src = "(.*?)" \*\)')

LONGEST = 160
"""Letters of a condition that is told in other nets."""

ITEMS = re.compile("\x01([^\x02]*)\x02([^\x01]*)")
"""Names and values in a line of ``coverage.dat``."""


# Verilog with sources


@dataclass
class _Marked:
    """A switch or case of RTLIL with attributes, which Amaranth's own have not."""

    item: Any
    attributes: dict[str, str]

    def emit(self, line: Any) -> None:
        for name, text in self.attributes.items():
            line(f'attribute \\{name} "{text}"')
        self.item.emit(line)


def verilog(unit: Any, name: str) -> str:
    """The Verilog of a component, each branch with its source."""
    from amaranth.back import rtlil  # here: who only reads counts needs no backend
    from amaranth.back import verilog as backend

    plain = rtlil.ModuleEmitter.emit_assignment_list

    def emit(emitter: Any, index: int, cell: Any) -> None:
        plain(emitter, index, cell)
        process = next(reversed(emitter.builder.contents.values()))
        default = None  # the assignment in front of all branches
        conditions = itertools.chain([default], (item.cond for item in cell.assignments))
        _mark(process.contents, conditions, emitter.netlist.cells)

    # There is no other way in; Amaranth is pinned, and a test looks at what comes out.
    with mock.patch.object(rtlil.ModuleEmitter, "emit_assignment_list", emit):
        return str(backend.convert(unit, name=name, emit_src=True))


def _mark(contents: list[Any], conditions: Iterator[Any], cells: Any) -> Any:
    """Mark all switches in ``contents``; return the condition under which they are reached.

    ``conditions`` has one for each assignment, in their order.
    """
    reached = None
    for place, item in enumerate(contents):
        if not hasattr(item, "cases"):
            reached = next(conditions)
            continue
        inner = [_mark(case.contents, conditions, cells) for case in item.cases]
        match = cells[next(condition.cell for condition in inner if condition is not None)]
        sources = [_source(match, net, cells) for net in match.inputs if _selects(net, cells)]
        item.cases = [
            _Marked(case, {CASE: source}) for case, source in zip(item.cases, sources, strict=True)
        ]
        numbered = {f"{SWITCH}{number}": source for number, source in enumerate(sources)}
        contents[place] = _Marked(item, numbered)
        reached = match.en
    return reached


def _selects(net: Any, cells: Any) -> bool:
    """Whether there is a case for ``net``: RTLIL has none without patterns."""
    return net.is_const or bool(cells[net.cell].patterns)


def _source(match: Any, net: Any, cells: Any) -> str:
    """Of the case that ``net`` selects; the switch's own where that is the default."""
    file, line = (match if net.is_const else cells[net.cell]).src_loc
    return f"{_short(file)}:{line}"


def _short(file: str) -> str:
    """A path as it is shown: in the project, or in the packages."""
    if Path(file).is_relative_to(ROOT):
        return str(Path(file).relative_to(ROOT))
    return file.rpartition("site-packages/")[2]


# Counts


@dataclass(frozen=True)
class Point:
    """Where something is counted in the Verilog, and Verilator's kind of it."""

    module: str
    line: int
    column: int
    kind: str


def points(text: str, file: str) -> Iterator[tuple[Point, int]]:
    """The points that a ``coverage.dat`` has of a file, and their counts."""
    for line in text.splitlines():
        if not line.startswith("C '"):
            continue
        items, _, count = line[3:].rpartition("' ")
        about = dict(ITEMS.findall(items))
        if Path(about["f"]).name == file:
            module = about["page"].partition("/")[2]
            point = Point(module, int(about["l"]), int(about["n"]), about["o"])
            yield point, int(count)


@dataclass(frozen=True, order=True)
class Branch:
    """A way that the design may take.

    Parameters
    ----------
    module : str
        Of the Verilog: the path of the instance.
    source : str
        File and line, ``hw/lib/queue.py:40``; of the memory, where it is one's port.
    way : "then", "else" or "case"
    condition : str
        What is tested, in Verilog: by it the iterations of a loop differ.
    """

    module: str
    source: str
    way: str
    condition: str

    def __str__(self) -> str:
        return f"{self.source}: {self.text} [{self.way}], {self.module}: {self.condition}"

    @property
    def block(self) -> str:
        """The block that the module belongs to."""
        return self.module.split(".")[1] if "." in self.module else self.module

    @property
    def text(self) -> str:
        """The line of Python; the condition where there is none."""
        file, _, line = self.source.rpartition(":")
        return statement(ROOT / file, int(line)) if file.startswith("hw/") else self.condition


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@cache
def statement(path: Path, line: int) -> str:
    """The statement that begins in a line of a file of Python, up to its colon or end."""
    text = ""
    for part in _lines(path)[line - 1 : line + 11]:
        text += part.strip()
        if all(text.count(left) <= text.count(right) for left, right in ("()", "[]", "{}")):
            break
    return text


@dataclass
class Ways:
    """The branches of a Verilog file.

    ``found``: source, way and condition, by line and Verilator's kind of point. ``excluded``: why
    it is no branch of the design, by line.
    """

    found: dict[tuple[int, str], tuple[str, str, str]] = field(default_factory=dict)
    excluded: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "Ways":
        """Find them all."""
        reader = _Reader()
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            if line.startswith("module "):
                reader.nets = _nets(lines[number:])
            reader.read(number, line, "".join(lines[number : number + 1]))
        return cls(reader.found, reader.excluded)


class _Reader:
    """Goes through Verilog line by line, and knows which sources the lines before have named."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, str], tuple[str, str, str]] = {}
        self.excluded: dict[int, str] = {}
        self.nets: dict[str, str] = {}
        self._source = ""
        self._memory = ""  # source of the memory whose ports come next
        self._ifs: dict[int, str] = {}  # sources of the next if and its elses, by number
        self._chains: dict[str, Iterator[str]] = {}  # those that are left, by indentation
        self._firsts: dict[str, str] = {}
        self._selected = ""
        self._item = ""  # source of the item in the next line

    def read(self, number: int, line: str, following: str) -> None:
        """Take a line; ``following`` comes next."""
        if match := SOURCE.match(line):
            self._source = _short(match[1])
        elif MEMORY.match(line):
            self._memory = self._source
        elif match := ATTRIBUTE.match(line):
            self._ifs[int(match[1])] = match[2]
        elif match := CASEZ.match(line):
            self._selected, self._ifs = match[1], {}
        elif match := COMMENT.match(line):
            self._item = match[1]
        elif self._item:
            condition = f"{_told(self._selected, self.nets)} = {line.strip()[:-1]}"
            self.found[number, "case"] = self._item, "case", condition
            self._item = ""
        elif match := MUX.search(line):
            source, told = _short(match[2]), _told(match[1], self.nets)
            self.found[number, "cond_then"] = source, "then", told
            self.found[number, "cond_else"] = source, "else", told
        elif match := IF.match(line):
            self._read_if(number, *match.groups())
            if reason := _excluded(match[3], following):
                self.excluded[number] = reason

    def _read_if(self, number: int, indent: str, chained: str | None, condition: str) -> None:
        if not chained:
            sources = [source for _, source in sorted(self._ifs.items())] or [self._memory]
            self._chains[indent], self._firsts[indent] = iter(sources), sources[0]
            self._ifs = {}
        first, told = self._firsts[indent], _told(condition, self.nets)
        then = next(self._chains[indent], first), "then", told
        self.found[number, "if"] = self.found[number, "elsif"] = then
        self.found[number, "else"] = first, "else", told


def _nets(lines: Iterable[str]) -> dict[str, str]:
    """What the nets that Yosys has named are in a module, which ends the lines or comes first."""
    module = itertools.takewhile(lambda line: line != "endmodule", lines)
    found = (ASSIGN.match(line) for line in module)
    return {match[1]: INLINE.sub("", match[2]).strip() for match in found if match}


def _told(condition: str, nets: Mapping[str, str]) -> str:
    """The condition in nets that the design has named, as far as that is short."""
    while True:
        longer = NET.sub(lambda net: f"({nets[net[0]]})" if net[0] in nets else net[0], condition)
        if longer == condition or len(longer) > LONGEST:
            return condition
        condition = longer


def _excluded(condition: str, following: str) -> str:
    """Why an ``if`` is no branch of the design; empty if it is."""
    if "dump_module" in condition:
        return "written by Yosys for other simulators"
    if condition == "rst":
        return "reset, with which every run begins"
    if following.lstrip().startswith("$write") or re.match(r"^ *if \(!", following):
        return "an assertion, whose failure ends the run"
    return ""


@dataclass
class Counts:
    """How often each branch was taken, and how many points are excluded, by the reason."""

    taken: Counter[Branch] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)

    @property
    def missed(self) -> list[Branch]:
        """Branches that were never taken."""
        return sorted(branch for branch, count in self.taken.items() if not count)


def read(directory: Path) -> Counts:
    """Merge the runs of a directory, each build's in one of its own beside its ``tma.v``."""
    counts = Counts()
    for design in sorted(directory.glob("*/tma.v")):
        ways = Ways.of(design.read_text())
        total: Counter[Point] = Counter()
        for file in design.parent.glob("*.dat"):
            total.update(dict(points(file.read_text(), design.name)))
        _add(counts, total, ways)
    return counts


def _add(counts: Counts, total: Counter[Point], ways: Ways) -> None:
    for point, count in total.items():
        if point.kind == "block":
            counts.excluded["no branch: every simulation runs it"] += 1
        elif point.line in ways.excluded:
            counts.excluded[ways.excluded[point.line]] += 1
        else:
            branch = Branch(point.module, *ways.found[point.line, point.kind])
            counts.taken[branch] += count


# Explanations


@dataclass(frozen=True)
class Explanation:
    """Why some branches are not taken.

    Parameters
    ----------
    modules : str
        A pattern, as for file names.
    source : str
        The file.
    line : str
        Part of the statement; any if empty.
    condition : str
        Part of what is tested; any if empty.
    way : str
        Of the branches; any if empty.
    branches : int
        How many they are, no less and no more.
    preset : str
        Of the unit; any if empty.
    reason : str
        One sentence.
    """

    modules: str
    source: str
    reason: str
    line: str = ""
    condition: str = ""
    way: str = ""
    branches: int = 1
    preset: str = ""

    def fits(self, branch: Branch) -> bool:
        """Whether it is about this branch."""
        return (
            fnmatchcase(branch.module, self.modules)
            and branch.source.rpartition(":")[0] == self.source
            and self.line in branch.text
            and self.condition in branch.condition
            and self.way in ("", branch.way)
        )


def explanations(path: Path, preset: str) -> list[Explanation]:
    """Those for a unit, of a file of ``[[uncovered]]`` tables.

    Raises
    ------
    ValueError
        If a table is not as it should be.
    """
    with path.open("rb") as file:
        tables = tomllib.load(file).get("uncovered", [])
    try:
        known = [Explanation(**table) for table in tables]
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error
    return [item for item in known if item.preset in ("", preset)]


@dataclass
class Verdict:
    """What the explanations make of missed branches.

    ``explained``: branches with their explanation. ``stale``: explanations of another number of
    branches than they say, and that number.
    """

    explained: list[tuple[Branch, Explanation]] = field(default_factory=list)
    unexplained: list[Branch] = field(default_factory=list)
    stale: list[tuple[Explanation, int]] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Nothing is left to do."""
        return not self.unexplained and not self.stale


def judge(missed: Iterable[Branch], known: Sequence[Explanation]) -> Verdict:
    """Find the explanation of each branch: the first that fits."""
    verdict = Verdict()
    used = [0] * len(known)
    for branch in missed:
        number = next((n for n, item in enumerate(known) if item.fits(branch)), None)
        if number is None:
            verdict.unexplained.append(branch)
        else:
            used[number] += 1
            verdict.explained.append((branch, known[number]))
    counts = zip(known, used, strict=True)
    verdict.stale = [(item, count) for item, count in counts if count != item.branches]
    return verdict


# The report


def show(counts: Counts, verdict: Verdict, console: Console) -> None:
    """Print the branches block by block, and each that was missed."""
    table = Table(title="branches of the RTL", title_justify="left")
    table.add_column("block")
    for heading in "taken", "explained", "unexplained", "all":
        table.add_column(heading, justify="right")
    blocks = sorted({branch.block for branch in counts.taken})
    taken = Counter(branch.block for branch, count in counts.taken.items() if count)
    explained = Counter(branch.block for branch, _ in verdict.explained)
    missing = Counter(branch.block for branch in verdict.unexplained)
    for block in blocks:
        numbers = taken[block], explained[block], missing[block]
        cells = [str(number or "") for number in numbers]
        table.add_row(block, cells[0], cells[1], f"[red]{cells[2]}", str(sum(numbers)))
    table.add_section()
    totals = taken.total(), explained.total(), missing.total()
    table.add_row("all", *map(str, totals), str(sum(totals)))
    console.print(table)
    for reason, number in sorted(counts.excluded.items()):
        console.print(f"left out, {number} points: {reason}", highlight=False)
    for branch, explanation in verdict.explained:
        _say(console, f"not taken: {branch}", f"because {explanation.reason}")
    for branch in verdict.unexplained:
        _say(console, f"NOT TAKEN, and no explanation: {branch}")
    for item, number in verdict.stale:
        _say(console, f"STALE: an explanation of {item.branches} that fits {number}: {item}")


def _say(console: Console, *lines: str) -> None:
    for indent, line in zip(("", "    "), lines, strict=False):
        console.print(indent + line, markup=False, highlight=False, soft_wrap=True)


def summary(counts: Counts, verdict: Verdict) -> dict[str, Any]:
    """Every branch with its count; of those that were missed, why."""
    reasons = {branch: item.reason for branch, item in verdict.explained}
    return {
        "branches": [
            {
                "module": branch.module,
                "source": branch.source,
                "way": branch.way,
                "condition": branch.condition,
                "taken": count,
                **({"reason": reasons[branch]} if branch in reasons else {}),
            }
            for branch, count in sorted(counts.taken.items())
        ],
        "left_out": dict(counts.excluded),
    }
