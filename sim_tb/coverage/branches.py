"""Branches in the generated Verilog, and the Python line of each.

Verilator counts branches by the line of the generated Verilog. Amaranth does not write the Python
line of a branch there. ``verilog`` writes it as attributes and comments, which ``Ways.of`` reads.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from sim_tb.coverage import registers

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

ABSOLUTE = re.compile(r'(?<=\(\* src = ")/[^"]*')

CONSTANT = re.compile(r"always @\*(\n +\S+ (?:\[\d+(?::\d+)?\] )?= \d+'h[0-9a-f]+;)")
"""A process that assigns a constant. With ``@*`` no simulator would ever execute it."""

MAX_CONDITION = 160
"""Most characters of a condition after nets named by Yosys are substituted."""


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
    """Return the Verilog of a component in which each branch has its Python line.

    Of its variables, Verilator counts only the edges of registers.
    """
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
    text = ABSOLUTE.sub(lambda path: _short(path[0]), CONSTANT.sub(r"always_comb\1", text))
    return registers.muted(text)


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
            self._source = match[1]
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
            source, condition = match[2], _named(match[1], self.nets)
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
