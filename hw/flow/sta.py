"""Area and clock of presets in standard cells, before layout: ``make sta``.

Yosys maps the unit to the cells of a Liberty file, block by block, and OpenSTA times it. Both are
Debian's, and so is the library that is taken unless another is named: OSU 0.18 um, at typical
conditions. Wires have neither area nor delay, and the clock reaches all registers at once, so a
unit that is placed and routed is larger and slower.

Memories are macros: they are counted in bits, and have no area. Each has one timing, which is
assumed, whatever its size: data arrives ``MEMORY_NS`` behind the clock, or behind the address where
the read port has no register, and inputs are stable ``SETUP_NS`` before the clock. All figures are
in ``build/sta.json``.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, Shape, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from rich.console import Console
from rich.table import Table

from hw.flow.cache import cached, digest
from hw.flow.design import Design
from hw.flow.modules import TOP, Modules
from hw.flow.route import Route, block_of
from hw.params import PRESETS
from hw.top import Tma

BUILD = Path("build")
LIBRARY = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
CHOSEN = "tiny", "fpga", "default"
PACKAGES = {"yosys": "yosys", "sta": "opensta"}
"""Debian's package of each program."""

MEMORY_NS, SETUP_NS = 2.0, 0.3
THRESHOLDS = {
    "input": 50,
    "output": 50,
    "slew_lower": 20,
    "slew_upper": 80,
}
PATHS, ENDS = 10, 500
"""Longest paths that are reported, and the bits of registers among whose paths they are."""

ABC = "+strash; ifraig; scorr; dch,-f; map,-B,0.9,{D}; topo; buffer,-c; upsize,{D}; dnsize,{D}"
"""Commands of ABC. Those of Yosys also have ``dc2``, which makes chains of the parallel prefixes of
adders: a path through sums of 60 bits takes 1.7 times as long.
"""

MAP = f"""
read_rtlil design.il
read_liberty -lib memories.lib
hierarchy -top top
proc
setattr -unset init w:*
synth -top top -noabc
rename -wire t:$_*FF*
dfflibmap -liberty library.lib
abc -liberty library.lib -constr drive.constr -D 1 -script "{ABC}"
opt_clean -purge
setattr -mod -unset top top
tee -q -o area.json stat -json
hierarchy -top top
rename -enumerate -pattern gate_%
flatten
splitnets
opt_clean -purge
write_verilog -noattr -noexpr netlist.v
"""
TIME = """
read_liberty {mapped}/library.lib
read_liberty memories.lib
read_verilog {mapped}/netlist.v
link_design top
set_cmd_units -time ns
create_clock -name clk -period {period} [get_ports clk]
report_checks -path_delay max -format full -digits 4 -group_count {ends}
exit
"""
"""Commands of Yosys and of OpenSTA. ``-D 1`` asks for the fastest logic."""

_JOINED_PORTS = re.compile(r"^  assign \{.*\n", re.MULTILINE)
"""Ports that are constant or joined. OpenSTA cannot read them, and no register is behind them."""

PERIOD_NS = 100.0
"""Clock for OpenSTA; the longest path does not depend on it."""


class StaError(Exception):
    """A tool or a file is missing, or a tool failed."""


# Memories


@dataclass(frozen=True)
class Macro:
    """Shape of a memory that stands in place of an Amaranth memory.

    Parameters
    ----------
    depth, width : int
        Rows, and bits of a row.
    reads : tuple of bool
        Whether each read port has a register.
    writes : tuple of int
        Enables of each write port; each enables an equal part of the row.
    """

    depth: int
    width: int
    reads: tuple[bool, ...]
    writes: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the cell."""
        reads = "".join("c" if clocked else "a" for clocked in self.reads)
        writes = "_".join(map(str, self.writes))
        return f"memory_{self.depth}x{self.width}_r{reads}_w{writes}"

    @property
    def bits(self) -> int:
        """Bits of the memory."""
        return self.depth * self.width

    def pins(self) -> Iterator[tuple[str, str, int]]:
        """Yield name, direction and width of each pin or bus, without the clock."""
        address = max(1, (self.depth - 1).bit_length())
        for number, clocked in enumerate(self.reads):
            yield f"r{number}_address", "input", address
            if clocked:
                yield f"r{number}_enable", "input", 1
            yield f"r{number}_data", "output", self.width
        for number, enables in enumerate(self.writes):
            yield f"w{number}_address", "input", address
            yield f"w{number}_enable", "input", enables
            yield f"w{number}_data", "input", self.width


class MacroPlatform:
    """Platform of Amaranth that puts a macro in place of each memory.

    Attributes
    ----------
    macros : dict
        The macros, by name.
    """

    def __init__(self) -> None:
        self.macros: dict[str, Macro] = {}

    def get_memory(self, memory: Memory) -> Module:
        """Return a module with the macro, connected to the ports of ``memory``."""
        macro = Macro(
            memory.depth,
            Shape.cast(memory.shape).width,
            tuple(port.domain != "comb" for port in memory.read_ports),
            tuple(len(port.en) for port in memory.write_ports),
        )
        self.macros[macro.name] = macro
        pins: dict[str, Value] = {"i_clk": ClockSignal()}
        for number, port in enumerate(memory.read_ports):
            pins[f"i_r{number}_address"] = port.addr
            if macro.reads[number]:
                pins[f"i_r{number}_enable"] = port.en
            pins[f"o_r{number}_data"] = Value.cast(port.data)
        for number, port in enumerate(memory.write_ports):
            pins[f"i_w{number}_address"] = port.addr
            pins[f"i_w{number}_enable"] = port.en
            pins[f"i_w{number}_data"] = Value.cast(port.data)
        m = Module()
        m.submodules.macro = Instance(macro.name, **pins)
        return m


def memory_library(macros: Sequence[Macro], memory_ns: float) -> str:
    """Return a Liberty file with the macros."""
    widths = sorted({width for macro in macros for _, _, width in macro.pins()})
    types = "".join(
        f"  type (bus{width}) {{ base_type : array; data_type : bit; bit_width : {width}; "
        f"bit_from : {width - 1}; bit_to : 0; downto : true; }}\n"
        for width in widths
    )
    cells = "".join(_cell(macro, memory_ns) for macro in macros)
    levels = "".join(
        f"  {kind}_threshold_pct_{edge} : {percent};\n"
        for kind, percent in THRESHOLDS.items()
        for edge in ("rise", "fall")
    )
    units = (
        '  time_unit : "1ns";\n  voltage_unit : "1V";\n  current_unit : "1uA";\n'
        "  capacitive_load_unit (1,pf);\n  delay_model : table_lookup;\n"
    )
    return f"library (memories) {{\n{units}{levels}{types}{cells}}}\n"


def _cell(macro: Macro, memory_ns: float) -> str:
    """Return a macro as a cell of a Liberty file."""
    lines = [f"  cell ({macro.name}) {{", "    area : 0;", "    pin (clk) {"]
    lines += ["      direction : input; clock : true; capacitance : 0.01;", "    }"]
    for name, direction, width in macro.pins():
        lines.append(f"    bus ({name}) {{ bus_type : bus{width}; direction : {direction};")
        number = int(name[1 : name.index("_")])
        is_read = name.startswith("r")
        if direction == "output":
            edge = "rising_edge" if macro.reads[number] else "combinational"
            related = 'related_pin : "clk"'
            if not macro.reads[number]:
                related = f'related_bus_pins : "r{number}_address"'
            lines += _timing(related, edge, "cell_rise", "cell_fall", memory_ns)
        else:
            lines.append("      capacitance : 0.01;")
            if not is_read or macro.reads[number]:
                for edge, ns in (("setup_rising", SETUP_NS), ("hold_rising", 0.0)):
                    lines += _timing(
                        'related_pin : "clk"', edge, "rise_constraint", "fall_constraint", ns
                    )
        lines.append("    }")
    return "\n".join([*lines, "  }", ""])


def _timing(related: str, kind: str, rise: str, fall: str, ns: float) -> list[str]:
    """Return a group of a Liberty file with one delay or constraint."""
    values = [f'{name} (scalar) {{ values ("{ns}"); }}' for name in (rise, fall)]
    if rise == "cell_rise":
        values += [f'{n}_transition (scalar) {{ values ("0.1"); }}' for n in ("rise", "fall")]
    return [f"      timing () {{ {related}; timing_type : {kind};", *values, "}"]


# Reports


@dataclass(frozen=True)
class Cell:
    """A cell of a library.

    Parameters
    ----------
    um2 : float
        Area in um^2.
    is_flip_flop : bool
    """

    um2: float
    is_flip_flop: bool


def read_cells(liberty: str) -> dict[str, Cell]:
    """Return the cells of a Liberty file, by name.

    Raises
    ------
    StaError
        If there is no cell with an area.
    """
    parts = re.split(r'^\s*cell\s*\(\s*"?([^")]+?)"?\s*\)', liberty, flags=re.MULTILINE)[1:]
    cells = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if area := re.search(r"\barea\s*:\s*([\d.eE+-]+)", body):
            cells[name] = Cell(float(area[1]), bool(re.search(r"\bff\s*\(", body)))
    if not cells:
        raise StaError("the library has no cell with an area")
    return cells


def smallest(cells: Mapping[str, Cell], kind: str) -> str:
    """Return the smallest cell with ``kind``, as in ``nand2``, in its name.

    Raises
    ------
    StaError
        If there is none.
    """
    found = [name for name in cells if kind in name.lower()]
    if not found:
        raise StaError(f"the library has no cell with {kind} in its name")
    return min(found, key=lambda name: cells[name].um2)


@dataclass(frozen=True)
class Area:
    """Area of a block with all blocks in it.

    Parameters
    ----------
    um2 : float
        Area of the cells, in um^2.
    flip_flops : int
    memory_bits : int
        Bits of the memories, which have no area.
    """

    um2: float = 0.0
    flip_flops: int = 0
    memory_bits: int = 0

    def __add__(self, other: "Area") -> "Area":
        return Area(
            self.um2 + other.um2,
            self.flip_flops + other.flip_flops,
            self.memory_bits + other.memory_bits,
        )

    def times(self, count: int) -> "Area":
        """Return the area of ``count`` such blocks."""
        return Area(self.um2 * count, self.flip_flops * count, self.memory_bits * count)


def read_areas(
    statistics: str, cells: Mapping[str, Cell], bits: Mapping[str, int]
) -> dict[str, Area]:
    """Return the area of each module from the statistics of Yosys.

    Parameters
    ----------
    statistics : str
        Output of ``stat -json``; a comma behind the last entry is ignored, which Yosys 0.23 writes.
    cells : Mapping
        Cells of the library.
    bits : Mapping
        Bits of each macro.

    Raises
    ------
    StaError
        If a cell is neither in the library nor a macro nor a module.
    """
    modules = {
        name.removeprefix("\\"): module["num_cells_by_type"]
        for name, module in json.loads(re.sub(r",\s*}", "}", statistics))["modules"].items()
    }
    found: dict[str, Area] = {}

    def area_of(kind: str) -> Area:
        if kind in cells:
            return Area(cells[kind].um2, int(cells[kind].is_flip_flop))
        if kind in bits:
            return Area(memory_bits=bits[kind])
        if kind not in modules:
            raise StaError(f"yosys left a cell {kind}, which the library does not have")
        if kind not in found:
            found[kind] = sum(
                (area_of(part).times(count) for part, count in modules[kind].items()), Area()
            )
        return found[kind]

    for name in modules:
        area_of(name)
    return found


def read_paths(report: str, period_ns: float) -> list[Route]:
    """Return the ``PATHS`` longest paths in the output of OpenSTA, the longest first.

    Of the paths between two registers, only the longest is returned. All of their delay is logic.

    Parameters
    ----------
    report : str
        Output of ``report_checks``.
    period_ns : float
        Period of the clock.

    Raises
    ------
    StaError
        If the report has no path.
    """
    paths: dict[tuple[str, str], Route] = {}
    for part in report.split("Startpoint: ")[1:]:
        end = re.search(r"^Endpoint: (\S+)", part, re.MULTILINE)
        slack = re.search(r"(-?[\d.]+)\s+slack ", part)
        if end is None or slack is None:
            raise StaError("a path of OpenSTA's report has no endpoint or no slack")
        ns = period_ns - float(slack[1])
        pins = re.findall(r" [v^] (\S+)/[^/\s]+ \(", part.partition("data arrival time")[0])
        blocks = dict.fromkeys(block_of(signal(pin)) for pin in pins)
        blocks.pop("", None)
        ends = signal(part.split()[0]), signal(end[1])
        path = Route(1000 / ns, *ends, tuple(blocks), ns, 0.0)
        if ends not in paths or path.mhz < paths[ends].mhz:
            paths[ends] = path
    if not paths:
        raise StaError("OpenSTA's report has no path between registers")
    return sorted(paths.values(), key=lambda path: path.mhz)[:PATHS]


def signal(instance: str) -> str:
    """Return the Amaranth signal or memory that an instance is named after.

    >>> signal("tags/offered/fifo/level[1]$_SDFFE_PP0P_")
    'tags.offered.fifo.level'
    """
    name = instance.replace("\\", "").replace("/", ".").removesuffix(".macro")
    return re.sub(r"(?:\[\d+\])?(?:\$\d+)?(?:\[\d+\])?\$_\w+_(?:_\d+)?$|\bgate_\d+$", "", name)


# Runs


@dataclass(frozen=True)
class Result:
    """Figures of a component.

    Parameters
    ----------
    nand2_um2 : float
        Area of a NAND gate of two inputs.
    blocks : dict
        Area of the whole (``""``) and of each block that is directly in it.
    paths : list of Route
        The longest paths.
    """

    nand2_um2: float
    blocks: dict[str, Area]
    paths: list[Route]

    @property
    def mhz(self) -> float:
        """Highest clock frequency."""
        return self.paths[0].mhz


def check_tools(library: Path) -> None:
    """Check that the programs and the library are there.

    Raises
    ------
    StaError
        If something is missing; the message has the command that installs it.
    """
    missing = [package for program, package in PACKAGES.items() if not shutil.which(program)]
    if library == LIBRARY and not library.exists():
        missing.append("qflow-tech-osu018")
    if missing:
        raise StaError(
            f"{', '.join(missing)}: not installed; on Debian: "
            f"apt-get install --no-install-recommends {' '.join(missing)}"
        )
    if not library.is_file():
        raise StaError(f"LIBERTY={library}: there is no such file")


def tool_versions() -> list[str]:
    """Return the name and the version of each program."""
    commands = ["yosys", "-V"], ["sta", "-version"]
    runs = (subprocess.run(line, capture_output=True, text=True, check=True) for line in commands)
    yosys, sta = (run.stdout.strip() for run in runs)
    return [yosys, f"OpenSTA {sta}"]


def _call(command: Sequence[str], directory: Path, log: str) -> None:
    """Run a program in a folder, and write its output to the file ``log`` there.

    Raises
    ------
    StaError
        If it fails.
    """
    with (directory / log).open("w") as out:
        status = subprocess.run(command, cwd=directory, stdout=out, stderr=out, check=False)
    text = (directory / log).read_text()
    if status.returncode or (error := re.search(r"^Error: .*", text, re.MULTILINE)):
        last = error[0] if not status.returncode else text.strip().rpartition("\n")[2]
        raise StaError(f"{command[0]} failed: {last}")


def measure(component: wiring.Component, library: Path, memory_ns: float) -> Result:
    """Map a component and time it; the files are kept by everything that they are made from."""
    platform = MacroPlatform()
    modules = Modules(Design(component, TOP, platform).rtlil())
    cells = read_cells(liberty := library.read_text())
    macros = sorted(platform.macros.values(), key=lambda macro: macro.name)
    memories = memory_library(macros, memory_ns)
    files = {
        "design.il": modules.text,
        "library.lib": liberty,
        "drive.constr": f"set_driving_cell {smallest(cells, 'buf')}\nset_load 0.05\n",
        "map.ys": MAP,
    }
    key = digest([*files.values(), *tool_versions()])
    script = TIME.format(mapped=f"../../sta_netlist/{key}", period=PERIOD_NS, ends=ENDS)

    def map_cells(directory: Path) -> None:
        for name, text in {**files, "memories.lib": memories}.items():
            (directory / name).write_text(text)
        _call(["yosys", "-q", "-s", "map.ys"], directory, "yosys.log")
        netlist = directory / "netlist.v"
        netlist.write_text(_JOINED_PORTS.sub("", netlist.read_text()))

    def time_paths(directory: Path) -> None:
        (directory / "memories.lib").write_text(memories)
        (directory / "time.tcl").write_text(script)
        _call(["sta", "-no_splash", "-exit", "time.tcl"], directory, "sta.log")

    statistics = (cached("sta_netlist", key, map_cells) / "area.json").read_text()
    report = (cached("sta", digest([script, memories]), time_paths) / "sta.log").read_text()
    areas = read_areas(statistics, cells, {macro.name: macro.bits for macro in macros})
    blocks = {name: areas[module] for name, module in modules.parts(TOP).items()}
    nand2_um2 = cells[smallest(cells, "nand2")].um2
    return Result(nand2_um2, {"": areas[TOP], **blocks}, read_paths(report, PERIOD_NS))


# Output


def tables(preset: str, result: Result) -> Iterator[Table]:
    """Yield the tables of a preset that are printed."""
    title = f"{preset}: {result.mhz:.1f} MHz before layout"
    table = Table(title=title, title_justify="left")
    table.add_column("block")
    for name in ("um^2", "NAND2", "flip-flops", "memory bits"):
        table.add_column(name, justify="right")
    rows = sorted(result.blocks.items(), key=lambda item: -item[1].um2)
    for name, area in rows:
        figures = area.um2, area.um2 / result.nand2_um2, area.flip_flops, area.memory_bits
        table.add_row(name or "the unit", *(f"{figure:,.0f}" for figure in figures))
    yield table
    table = Table("ns", "path", title="longest paths", title_justify="left")
    for path in result.paths:
        table.add_row(f"{path.logic_ns:.2f}", path.path)
    yield table


def contents(library: Path, memory_ns: float, results: Mapping[str, Result]) -> dict[str, Any]:
    """Return the contents of ``build/sta.json``."""
    presets = {preset: {"mhz": result.mhz, **asdict(result)} for preset, result in results.items()}
    return {
        "layout": "none: wires have neither area nor delay, the clock has no skew",
        "library": library.stem,
        "memory_ns": memory_ns,
        "tools": tool_versions(),
        "presets": presets,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m hw.sta", description=__doc__)
    parser.add_argument(
        "--preset", default=",".join(CHOSEN), help="presets, as in %(default)s (the default)"
    )
    parser.add_argument("--liberty", type=Path, default=LIBRARY, help="library of standard cells")
    parser.add_argument(
        "--memory-ns", type=float, default=MEMORY_NS, help="assumed delay of memories, in ns"
    )
    options = parser.parse_args(arguments)
    presets = options.preset.split(",")
    for preset in presets:
        if preset not in PRESETS:
            parser.error(f"no preset {preset!r}: must be one of {', '.join(PRESETS)}")
    console = Console()
    results = {}
    try:
        check_tools(options.liberty)
        for preset in presets:
            start = time.monotonic()
            unit = Tma(PRESETS[preset])
            results[preset] = measure(unit, options.liberty.resolve(), options.memory_ns)
            for table in tables(preset, results[preset]):
                console.print(table)
            console.print(f"{preset}: {time.monotonic() - start:.0f} s")
    except StaError as error:
        print(f"make sta: {error}", file=sys.stderr)
        return 2
    path = BUILD / "sta.json"
    path.parent.mkdir(exist_ok=True)
    figures = contents(options.liberty, options.memory_ns, results)
    path.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"all figures: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
