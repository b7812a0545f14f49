"""Lists the combinational paths of each block of a unit: ``make paths``.

Blocks are the component classes of ``hw``, and are named after them. For each block the command
prints how deep and how slow its longest path between registers is, in the ECP5 netlist of the
block, and each path from an input to an output in the same clock, ``ready`` included, by the names
of the ports. The blocks inside a block belong to it. Elements of an array of ports are one port.

A path from an input to an output, and a path between registers of more than ``LEVELS`` levels, must
be listed with a reason in ``paths.toml``. The command fails if one is not listed. It also fails if
``default`` has the block of a listed path, but no such path.

The design is ``tma``, or with ``axi_data_bits`` ``tma_axi``, or with ``host`` ``tma_host``.
"""

import argparse
import json
import re
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from amaranth.lib import wiring
from rich.console import Console

from hw.axi_top import AxiTma
from hw.flow.cache import cached, digest, sources
from hw.flow.design import Block, Design
from hw.flow.modules import TOP, Modules
from hw.flow.reach import LoopError, Reach
from hw.flow.route import signal_of
from hw.flow.timing import Path as LongPath
from hw.flow.timing import Timing, flattened
from hw.flow.yosys import ToolError
from hw.host_top import HostTma
from hw.params import PRESETS, TmaParams
from hw.top import Tma

LISTED = Path(__file__).with_name("paths.toml")
LEVELS = 12
"""Largest depth, in levels of logic, of a path between registers that need not be listed."""

ELSEWHERE = "Not in default"
"""Beginning of the reason of a path that other units have than ``default``."""

UNITS = {unit.__name__ for unit in (Tma, AxiTma, HostTma)}
"""Names of the classes of units."""

REGISTERS = "registers -> registers"
"""Name in the list for a path between registers of more than ``LEVELS`` levels."""


class ListError(Exception):
    """The list of paths has a mistake."""


@dataclass(frozen=True)
class Depth:
    """Longest paths between registers of a block.

    Parameters
    ----------
    levels : int
        Levels of logic of the deepest path.
    start, end : str
        Registers or memories at the ends of the deepest path, without the name of the block.
    ns : float
        Estimated delay of the slowest path.
    """

    levels: int
    start: str
    end: str
    ns: float

    @classmethod
    def through(cls, deepest: LongPath, slowest: LongPath) -> "Depth":
        """Return the figures of the deepest and the slowest path of a block."""
        start, end = (signal_of(deepest.cells[place]) for place in (0, -1))
        return cls(deepest.levels, start, end, slowest.ns)


class Exceptions:
    """Paths that are listed, with a reason each.

    Parameters
    ----------
    text : str
        Contents of ``paths.toml``: a table for each block, in which the reason is behind the name
        of the path, as in ``"i.payload -> o.*" = "..."``. ``*`` stands for any text.

    Raises
    ------
    ListError
        If the text has another form, or a reason is empty.
    """

    def __init__(self, text: str) -> None:
        try:
            self.reasons: dict[str, dict[str, str]] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ListError(f"{LISTED.name}: {error}") from None
        for kind, paths in self.reasons.items():
            if not isinstance(paths, dict):
                raise ListError(f"{LISTED.name}: {kind}: must be a table of paths")
            for path, reason in paths.items():
                if path.count(" -> ") != 1:
                    raise ListError(f"{LISTED.name}: [{kind}] {path!r}: must be 'input -> output'")
                if not isinstance(reason, str) or not reason.strip():
                    raise ListError(f"{LISTED.name}: [{kind}] {path!r}: needs a reason")

    def matching(self, kind: str, path: str) -> list[str]:
        """Return the entries for a path of a block."""
        return [entry for entry in self.reasons.get(kind, {}) if _matches(entry, path)]

    def unlisted(self, found: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
        """Yield block and path of each path that is not listed."""
        for kind, paths in found.items():
            yield from ((kind, path) for path in sorted(paths) if not self.matching(kind, path))

    def stale(self, found: Mapping[str, Iterable[str]], depths: bool) -> Iterator[tuple[str, str]]:
        """Yield block and path of each entry that no path of that block needs.

        Entries of blocks that are not in ``found`` are left out, those of paths between registers
        unless ``depths``, and those that only other units need.
        """
        for kind, paths in found.items():
            needed = {entry for path in paths for entry in self.matching(kind, path)}
            for entry in self.reasons.get(kind, {}):
                expected = not self.reasons[kind][entry].startswith(ELSEWHERE)
                if expected and entry not in needed and (depths or entry != REGISTERS):
                    yield kind, entry


def _matches(entry: str, path: str) -> bool:
    return bool(re.fullmatch(".*".join(map(re.escape, entry.split("*"))), path))


class Paths:
    """Paths of the blocks of a design.

    Parameters
    ----------
    text : str
        The design in RTLIL.
    blocks : iterable of Block
        The blocks of the design, or some of them.
    """

    def __init__(self, text: str, blocks: Iterable[Block]) -> None:
        self.modules = Modules(text)
        self.variants: dict[str, dict[str, list[Block]]] = defaultdict(lambda: defaultdict(list))
        """Instances by the name of the class, and by the module that they share."""
        for block in blocks:
            if block.module in self.modules.same:  # Amaranth writes no module that is only wires
                self.variants[block.kind][self.modules.same[block.module]].append(block)

    @classmethod
    def of(cls, component: wiring.Component, only: str | None = None) -> "Paths":
        """Return the paths of a component, or those of the blocks that ``only`` names in it."""
        design = Design(component, TOP)
        return cls(design.rtlil(), chosen(design.blocks(), only))

    @cached_property
    def ports(self) -> dict[str, set[str]]:
        """Paths from an input to an output of each block, by the name of the class."""
        reach = Reach(self.modules.generic())
        found: dict[str, set[str]] = {}
        for kind, variants in self.variants.items():
            found[kind] = {
                f"{start} -> {end}"
                for module, blocks in variants.items()
                for start, end in reach.ports(module, blocks[0].inputs, blocks[0].outputs)
            }
        return found

    @cached_property
    def depths(self) -> dict[str, dict[str, Depth | None]]:
        """Longest paths between registers of each block, by class and by module.

        None for a block without such a path.
        """
        needed = {module for variants in self.variants.values() for module in variants}
        waiting = list(needed)
        while waiting:
            parts = set(self.modules.parts(waiting.pop()).values()) - needed
            needed |= parts
            waiting += parts
        mapped = self.modules.mapped(needed)
        found: dict[str, dict[str, Depth | None]] = {}
        for kind, variants in self.variants.items():
            found[kind] = {}
            for module in variants:
                timing = Timing(flattened(mapped, module))
                deepest, slowest = timing.longest("levels"), timing.longest("ns")
                found[kind][module] = deepest and Depth.through(deepest, slowest)
        return found

    def found(self, depths: bool) -> dict[str, set[str]]:
        """Return the paths that must be listed; those between registers only with ``depths``."""
        paths = {kind: set(found) for kind, found in self.ports.items()}
        for kind, found in self.depths.items() if depths else ():
            if any(depth and depth.levels > LEVELS for depth in found.values()):
                paths[kind].add(REGISTERS)
        return paths


def chosen(blocks: Iterable[Block], name: str | None) -> list[Block]:
    """Return the blocks of a class, whose name may be in lower case with underscores.

    Raises
    ------
    ListError
        If there is no such block.
    """
    every = list(blocks)
    if name is None:
        return every
    wanted = name.replace("_", "").lower()
    found = [block for block in every if block.kind.lower() == wanted]
    if not found:
        kinds = ", ".join(sorted({block.kind for block in every}))
        raise ListError(f"BLOCK = {name}: the unit has no such block; it has {kinds}")
    return found


def unit_of(params: TmaParams) -> wiring.Component:
    """Return the unit of ``params``, with all that is around it."""
    if params.host:
        return HostTma(params)
    return AxiTma(params) if params.axi_data_bits else Tma(params)


def paths_of(params: TmaParams, only: str | None) -> Paths:
    """Return the paths of a unit, whose modules are kept by the sources of ``hw``."""

    def make(directory: Path) -> None:
        design = Design(unit_of(params), TOP)
        (directory / "design.il").write_text(design.rtlil())
        (directory / "blocks.json").write_text(json.dumps(list(map(asdict, design.blocks()))))

    key = digest([repr(params), sources("hw"), version("amaranth")])
    directory = cached("design", key, make)
    blocks = [Block(**block) for block in json.loads((directory / "blocks.json").read_text())]
    return Paths((directory / "design.il").read_text(), chosen(blocks, only))


# Output


def depth_lines(paths: Paths, every: bool) -> Iterator[str]:
    """Yield a line for the deepest variant of each block, or for ``every`` variant."""
    width = max(map(len, paths.depths), default=0)
    for kind, found in paths.depths.items():
        deepest = sorted(found.items(), key=lambda item: -(item[1].levels if item[1] else 0))
        for module, depth in deepest if every else deepest[:1]:
            instance = paths.variants[kind][module][0].module.partition(".")[2] or "the unit"
            figures = f"{'-':>6}  {'-':>5}"
            if depth:
                figures = f"{depth.levels:6}  {depth.ns:5.1f}"
            path = f"  {depth.start} -> {depth.end}" if depth else ""
            yield f"{kind:{width}}  {figures}  {instance}:{path or ' no path'}"


def port_lines(found: Mapping[str, Iterable[str]], listed: Exceptions) -> Iterator[str]:
    """Yield the paths from inputs to outputs as lines, under the name of each block."""
    for kind, paths in found.items():
        if paths:
            yield f"{kind}:"
        for path in sorted(paths):
            reasons = [listed.reasons[kind][entry] for entry in listed.matching(kind, path)]
            yield f"  {path}" + (f"  ({reasons[0]})" if reasons else "  NOT LISTED")


def as_list(paths: Iterable[tuple[str, str]]) -> str:
    """Return paths as text for ``paths.toml``, without the reasons."""
    lines: list[str] = []
    last = None
    for kind, path in paths:
        if kind != last:
            lines += ["", f"[{kind}]"]
        lines.append(f'"{path}" = ""')
        last = kind
    return "\n".join(lines[1:])


def report(paths: Paths, listed: Exceptions, options: argparse.Namespace) -> int:
    """Print the paths of a unit; return the exit status."""
    console = Console(highlight=False, markup=False)
    chip = {kind: found for kind, found in paths.ports.items() if kind in UNITS}
    inner = {kind: found for kind, found in paths.ports.items() if kind not in chip}
    if not options.ports:
        console.print("between registers: levels of logic, estimated ns, deepest path")
        for line in depth_lines(paths, options.block is not None):
            console.print(line, soft_wrap=True)
        for title, found in (("of the unit", chip), ("of each block", inner)):
            console.print(f"\npaths from an input to an output {title}")
            for line in port_lines(found, listed):
                console.print(line, soft_wrap=True)
    found = paths.found(depths=not options.ports)
    unlisted, stale = list(listed.unlisted(found)), []
    if options.preset == "default":
        stale = list(listed.stale(found, depths=not options.ports))
    if unlisted:
        console.print(f"\nnot listed in {LISTED.name}; cut each path, or list it with a reason:")
        console.print(as_list(unlisted), soft_wrap=True)
    for kind, entry in stale:
        console.print(f"stale in {LISTED.name}: [{kind}] {entry!r}: no such path", soft_wrap=True)
    return int(bool(unlisted or stale))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m hw.paths", description=__doc__)
    parser.add_argument("--preset", default="default", help=f"one of {', '.join(PRESETS)}")
    parser.add_argument("--block", metavar="NAME", help="only this block, in all of its variants")
    parser.add_argument(
        "--ports", action="store_true", help="only check the paths from inputs to outputs"
    )
    options = parser.parse_args(arguments)
    if options.preset not in PRESETS:
        names = ", ".join(PRESETS)
        parser.error(f"no preset {options.preset!r}: must be one of {names}")
    start = time.monotonic()
    try:
        listed = Exceptions(LISTED.read_text())
        paths = paths_of(PRESETS[options.preset], options.block)
        status = report(paths, listed, options)
    except (ListError, LoopError, ToolError) as error:
        print(f"make paths: {error}", file=sys.stderr)
        return 2
    count = sum(map(len, paths.ports.values()))
    outcome = "failed" if status else "clean"
    blocks = len(paths.ports)
    print(
        f"paths, preset {options.preset}: {outcome}: {count} paths from inputs to outputs of "
        f"{blocks} blocks, {time.monotonic() - start:.0f} s"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
