"""Branches of the unit that simulations took, by the Python line of each branch.

Verilator counts branches by the line of the generated Verilog. Amaranth does not write the Python
line of a branch there. ``verilog`` writes it as attributes and comments, which ``read`` reads.
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
"""Names of attributes that hold Python lines: ``branch_0`` and so on for an ``if`` and its ``else``
branches, ``branch`` for an item of a ``case``."""

# Forms of the lines that Yosys writes; it writes one statement per line.
ATTRIBUTE = re.compile(rf'^\s*\(\* {SWITCH}(\d+) = "(.*)" \*\)$')
COMMENT = re.compile(rf'^\s*/\* {CASE} = "(.*)" \*/$')
NET = re.compile(r"\\\$\d+(?= |$)")
"""A net with a name made by Yosys."""
ASSIGN = re.compile(rf"^  assign ({NET.pattern}) += (.*);$")
INLINE = re.compile(r" ?\(\* src = .*? \*\)")
SOURCE = re.compile(r'^  \(\* src = "(.*)" \*\)$')
MEMORY = re.compile(r"^  reg (?:\[\d+:0\] )?\S+ +\[\d+:0\];$")
IF = re.compile(r"^( *)(end else )?if \((.*?) ?\)(?: begin)?(?: end)?$")
CASEZ = re.compile(r"^ *casez \((.*?) ?\)$")
MUX = re.compile(r'= (.*?) *\? \(\* src = "(.*?)" \*\)')

CONSTANT = re.compile(r"always @\*(\n +\S+ (?:\[\d+(?::\d+)?\] )?= \d+'h[0-9a-f]+;)")
"""A process that assigns a constant. With ``@*`` no simulator would ever execute it."""

MAX_CONDITION = 160
"""Most characters of a condition after nets named by Yosys are substituted."""

ITEMS = re.compile("\x01([^\x02]*)\x02([^\x01]*)")
"""Key and value of each item in a line of ``coverage.dat``."""


# Verilog with Python lines


@dataclass
class _Marked:
    """A switch or case of RTLIL with attributes; Amaranth's own class has none."""

    item: Any
    attributes: dict[str, str]

    def emit(self, line: Any) -> None:
        for name, text in self.attributes.items():
            line(f'attribute \\{name} "{text}"')
        self.item.emit(line)


def verilog(unit: Any, name: str) -> str:
    """Return the Verilog of a component in which each branch has its Python line."""
    from amaranth.back import rtlil  # here, because readers of counts need no backend
    from amaranth.back import verilog as backend

    emit_unmarked = rtlil.ModuleEmitter.emit_assignment_list

    def emit(emitter: Any, index: int, cell: Any) -> None:
        emit_unmarked(emitter, index, cell)
        process = next(reversed(emitter.builder.contents.values()))
        default = None  # condition of the assignment in front of all branches
        conditions = itertools.chain([default], (item.cond for item in cell.assignments))
        _mark(process.contents, conditions, emitter.netlist.cells)

    # Amaranth has no hook for this. Its version is pinned, and a test checks the output.
    with mock.patch.object(rtlil.ModuleEmitter, "emit_assignment_list", emit):
        text = str(backend.convert(unit, name=name, emit_src=True))
    return CONSTANT.sub(r"always_comb\1", text)


def _mark(contents: list[Any], conditions: Iterator[Any], cells: Any) -> Any:
    """Mark all switches in ``contents``; return the condition under which they are reached.

    ``conditions`` yields the condition of each assignment, in order.
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
    """Return whether RTLIL has a case for ``net``; it has none for a match without patterns."""
    return net.is_const or bool(cells[net.cell].patterns)


def _source(match: Any, net: Any, cells: Any) -> str:
    """Return the source of the case that ``net`` selects; that of the switch for the default."""
    file, line = (match if net.is_const else cells[net.cell]).src_loc
    return f"{_short(file)}:{line}"


def _short(file: str) -> str:
    """Return a path relative to the project, or to the installed packages."""
    if Path(file).is_relative_to(ROOT):
        return str(Path(file).relative_to(ROOT))
    return file.rpartition("site-packages/")[2]


# Counts


@dataclass(frozen=True)
class Point:
    """A coverage point of Verilator: its place in the Verilog, and its kind."""

    module: str
    line: int
    column: int
    kind: str


def points(text: str, file: str) -> Iterator[tuple[Point, int]]:
    """Yield the points of a Verilog file in the text of a ``coverage.dat``, and their counts."""
    for line in text.splitlines():
        if not line.startswith("C '"):
            continue
        items, _, count = line[3:].rpartition("' ")
        fields = dict(ITEMS.findall(items))
        if Path(fields["f"]).name == file:
            module = fields["page"].partition("/")[2]
            point = Point(module, int(fields["l"]), int(fields["n"]), fields["o"])
            yield point, int(count)


@dataclass(frozen=True, order=True)
class Branch:
    """A branch of the design.

    Parameters
    ----------
    module : str
        Path of the instance in the Verilog.
    source : str
        Python file and line, such as ``hw/lib/queue.py:40``; for the port of a memory, those of
        the memory.
    way : "then", "else" or "case"
        Side of the branch.
    condition : str
        Condition in Verilog. It tells the iterations of a loop apart, which have one Python line.
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
    def text(self) -> str:
        """Statement in Python; the condition if the source is not in ``hw``."""
        file, _, line = self.source.rpartition(":")
        return statement(ROOT / file, int(line)) if file.startswith("hw/") else self.condition


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
class Ways:
    """The branches of a Verilog file.

    Parameters
    ----------
    found : dict
        Source, way and condition of each branch, by line and Verilator's kind of point.
    excluded : dict
        Reason why a line holds no branch of the design, by line.
    """

    found: dict[tuple[int, str], tuple[str, str, str]] = field(default_factory=dict)
    excluded: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "Ways":
        """Return the branches in the text of a Verilog file."""
        reader = _Reader()
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            if line.startswith("module "):
                reader.nets = _nets(lines[number:])
            reader.read(number, line, "".join(lines[number : number + 1]))
        return cls(reader.found, reader.excluded)


class _Reader:
    """Reads Verilog line by line, and remembers the sources that earlier lines have named."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, str], tuple[str, str, str]] = {}
        self.excluded: dict[int, str] = {}
        self.nets: dict[str, str] = {}
        self._source = ""
        self._memory = ""  # source of the memory whose ports follow
        self._ifs: dict[int, str] = {}  # sources of the next if and its elses, by number
        self._chains: dict[str, Iterator[str]] = {}  # sources of the next elses, by indentation
        self._firsts: dict[str, str] = {}  # source of the first if, by indentation
        self._selected = ""  # expression of the casez
        self._item = ""  # source of the item in the next line

    def read(self, number: int, line: str, following: str) -> None:
        """Read line ``number``; ``following`` is the text of the next line."""
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
            condition = f"{_named(self._selected, self.nets)} = {line.strip()[:-1]}"
            self.found[number, "case"] = self._item, "case", condition
            self._item = ""
        elif match := MUX.search(line):
            source, condition = _short(match[2]), _named(match[1], self.nets)
            self.found[number, "cond_then"] = source, "then", condition
            self.found[number, "cond_else"] = source, "else", condition
        elif match := IF.match(line):
            self._read_if(number, *match.groups())
            if reason := _excluded(match[3], following):
                self.excluded[number] = reason

    def _read_if(self, number: int, indent: str, chained: str | None, condition: str) -> None:
        if not chained:
            sources = [source for _, source in sorted(self._ifs.items())] or [self._memory]
            self._chains[indent], self._firsts[indent] = iter(sources), sources[0]
            self._ifs = {}
        first, condition = self._firsts[indent], _named(condition, self.nets)
        then = next(self._chains[indent], first), "then", condition
        self.found[number, "if"] = self.found[number, "elsif"] = then
        self.found[number, "else"] = first, "else", condition


def _nets(lines: Iterable[str]) -> dict[str, str]:
    """Return the expressions of nets named by Yosys, in the first module of ``lines``."""
    module = itertools.takewhile(lambda line: line != "endmodule", lines)
    found = (ASSIGN.match(line) for line in module)
    return {match[1]: INLINE.sub("", match[2]).strip() for match in found if match}


def _named(condition: str, nets: Mapping[str, str]) -> str:
    """Return the condition with nets named by Yosys replaced, as long as the result is short."""
    while True:
        longer = NET.sub(lambda net: f"({nets[net[0]]})" if net[0] in nets else net[0], condition)
        if longer == condition or len(longer) > MAX_CONDITION:
            return condition
        condition = longer


def _excluded(condition: str, following: str) -> str:
    """Return why an ``if`` is no branch of the design; "" if it is one."""
    if "dump_module" in condition:
        return "written by Yosys for other simulators"
    if condition == "rst":
        return "reset, which every simulation begins with"
    if following.lstrip().startswith("$write") or re.match(r"^ *if \(!", following):
        return "an assertion, whose failure ends the simulation"
    return ""


@dataclass
class Counts:
    """Counts of each branch, and the number of excluded points by reason."""

    taken: Counter[Branch] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)

    @property
    def missed(self) -> list[Branch]:
        """Branches that were never taken."""
        return sorted(branch for branch, count in self.taken.items() if not count)


def read(directory: Path) -> Counts:
    """Merge the counts of all builds below a directory.

    Each build has a folder with its ``tma.v`` and a ``.dat`` file for each simulation.
    """
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
            counts.excluded["no branch: every simulation executes it"] += 1
        elif point.line in ways.excluded:
            counts.excluded[ways.excluded[point.line]] += 1
        else:
            branch = Branch(point.module, *ways.found[point.line, point.kind])
            counts.taken[branch] += count


# Explanations


@dataclass(frozen=True)
class Explanation:
    """An explanation of branches that no simulation takes. An empty string fits all branches.

    Parameters
    ----------
    modules : str
        Pattern of the paths of instances, as for file names.
    source : str
        Python file.
    reason : str
        Why the branches are not taken, in one sentence.
    line : str
        Part of the Python statement.
    condition : str
        Part of the condition in Verilog.
    way : str
        "then", "else" or "case".
    branches : int
        Exact number of branches that it explains.
    preset : str
        Preset of the unit.
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
        """Return whether the explanation fits a branch."""
        return (
            fnmatchcase(branch.module, self.modules)
            and branch.source.rpartition(":")[0] == self.source
            and self.line in branch.text
            and self.condition in branch.condition
            and self.way in ("", branch.way)
        )


def explanations(path: Path, preset: str) -> list[Explanation]:
    """Return the explanations for a preset from a file of ``[[uncovered]]`` tables.

    Raises
    ------
    ValueError
        If a table has an unknown field or lacks one.
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
    """Missed branches, with and without explanation.

    Parameters
    ----------
    explained : list of (Branch, Explanation)
    unexplained : list of Branch
    stale : list of (Explanation, int)
        Explanations that fit another number of branches than they say, and that number.
    """

    explained: list[tuple[Branch, Explanation]] = field(default_factory=list)
    unexplained: list[Branch] = field(default_factory=list)
    stale: list[tuple[Explanation, int]] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """True if every missed branch is explained and no explanation is stale."""
        return not self.unexplained and not self.stale


def judge(missed: Iterable[Branch], known: Sequence[Explanation]) -> Verdict:
    """Assign each missed branch to the first explanation that fits it."""
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
    """Print the counts of each block, and every missed branch."""
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
        console.print(f"not counted, {number} points: {reason}", highlight=False)
    for branch, explanation in verdict.explained:
        _print(console, f"not taken: {branch}", f"reason: {explanation.reason}")
    for branch in verdict.unexplained:
        _print(console, f"NOT TAKEN, without explanation: {branch}")
    for item, number in verdict.stale:
        _print(console, f"STALE: explains {item.branches} branches, but fits {number}: {item}")


def _print(console: Console, *lines: str) -> None:
    for indent, line in zip(("", "    "), lines, strict=False):
        console.print(indent + line, markup=False, highlight=False, soft_wrap=True)


def summary(counts: Counts, verdict: Verdict) -> dict[str, Any]:
    """Return all branches with their counts and explanations, for ``branches.json``."""
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
