"""Writes what follows from ``hw/host/registers.rdl``: docs/registers.md, and a C header.

The header of the driver in ``examples/driver`` is written by PeakRDL.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from peakrdl_cheader.c_standards import CStandard
from peakrdl_cheader.exporter import CHeaderExporter
from systemrdl import RDLCompiler
from systemrdl.core.parameter import Parameter
from systemrdl.node import AddrmapNode, FieldNode, RegNode
from systemrdl.rdltypes import OnWriteType

from hw.flow.cache import ROOT
from hw.flow.tables import table
from hw.params import PRESETS, TmaParams

SOURCE = ROOT / "hw" / "host" / "registers.rdl"
TOP = "tma_host"
"""Name of the address map, and of the module whose port has it."""

PAGE = Path("docs", "registers.md")
HEADER = Path("examples", "driver", "tma_registers.h")
"""Files that are written, from the root of the clone."""

PRESET = "host"
"""Preset whose values at reset are written, with all registers that there can be."""

INTRODUCTION = (
    "# Registers\n\n"
    "`make registers` writes this page from [registers.rdl](../hw/host/registers.rdl); a test "
    "fails if it is stale, or if the RTL differs. [host.md](host.md) says how a host uses "
    "them.\n\n"
    "{description} The values at reset are those of the preset `{preset}` with `counters`, "
    "without which the registers from COUNTER_CONTROL on are absent; those of ID to SMEM_BYTES "
    "follow from the parameters of the unit."
)

ON_WRITE = {OnWriteType.woclr: "rw, 1 clears", OnWriteType.wclr: "rw, any value clears"}
"""Access of a field that does not keep what is written."""


def documented() -> TmaParams:
    """Return the parameters of the unit whose registers are written."""
    return replace(PRESETS[PRESET], counters=True)


def address_map(params: TmaParams) -> AddrmapNode:
    """Return the registers of a unit, with their values at reset."""
    compiler = RDLCompiler()
    compiler.compile_file(str(SOURCE))
    values = {
        parameter.name: int(getattr(params, parameter.name)) for parameter in _parameters(compiler)
    }
    return compiler.elaborate(TOP, parameters=values).top


def _parameters(compiler: RDLCompiler) -> list[Parameter]:
    return compiler.root.comp_defs[TOP].parameters


def access(field: FieldNode) -> str:
    """Return who may change a field, and how."""
    return ON_WRITE.get(field.get_property("onwrite"), field.get_property("sw").name)


def register_access(register: RegNode) -> str:
    """Return ``rw`` if a register may be written, otherwise ``r``."""
    return "rw" if register.has_sw_writable else "r"


def _text(node: AddrmapNode | RegNode | FieldNode) -> str:
    return " ".join(node.get_property("desc").split())


def _bits(field: FieldNode) -> str:
    return f"{field.high}:{field.low}" if field.width > 1 else f"{field.low}"


def _reset(field: FieldNode) -> str:
    value = field.get_property("reset")
    return "" if value is None else f"{value:#x}" if value > 9 else f"{value}"


def _sections(registers: AddrmapNode) -> Iterator[str]:
    """Yield the parts of the page."""
    yield INTRODUCTION.format(description=_text(registers), preset=PRESET)
    yield table(
        ("address", "register", "access", "function"),
        [
            [
                f"`{register.absolute_address:#04x}`",
                f"[{register.inst_name}](#{register.inst_name.lower()})",
                register_access(register),
                _text(register),
            ]
            for register in registers.registers()
        ],
    )
    for register in registers.registers():
        yield f"## {register.inst_name}"
        yield f"Address `{register.absolute_address:#04x}`. {_text(register)}"
        yield table(
            ("bits", "field", "access", "reset", "meaning"),
            [
                [_bits(field), field.inst_name, access(field), _reset(field), _text(field)]
                for field in register.fields()
            ],
        )
        for field in register.fields():
            if encoding := field.get_property("encode"):
                rows = [
                    [f"{item.value}", f"`{item.name}`", " ".join(item.rdl_desc.split())]
                    for item in encoding
                ]
                yield table((field.inst_name, "name", "meaning"), rows)


def page() -> str:
    """Return the page of the registers."""
    return "\n\n".join(_sections(address_map(documented()))) + "\n"


def header() -> str:
    """Return the C header of the registers."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, HEADER.name)
        CHeaderExporter().export(
            address_map(documented()), str(path), std=CStandard.gnu99, reuse_typedefs=False
        )
        return path.read_text()


FILES: Mapping[Path, Callable[[], str]] = {PAGE: page, HEADER: header}
"""Function that returns the contents of each file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all files into the folder that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hw.registers", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT, help="root of a clone")
    folder = parser.parse_args(arguments).folder
    for path, contents in FILES.items():
        try:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(contents())
        except OSError as error:
            parser.error(f"{folder / path}: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
