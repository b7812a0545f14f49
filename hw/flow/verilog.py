"""Writes the unit, and what is around it, as plain Verilog, and what describes them.

Beside the Verilog of each module, a JSON file describes the ports, the layouts of payloads, the
parameters and the memories, and a header has ports and parameters as macros. A SystemVerilog file
has types of the payloads and a module with typed ports; a template instantiates it. FuseSoC and
Bender have descriptions of the files. ``python -m hw.verilog`` writes all files and prints the
ports.
"""

import argparse
import contextlib
import dataclasses
import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Shape
from amaranth.lib import data, enum, wiring
from rich.console import Console
from rich.table import Table

from hw.flow.design import Design
from hw.flow.macros import macros
from hw.flow.packages import BENDER, CORE, WAIVERS, bender, core
from hw.flow.plain import plain
from hw.flow.system_verilog import template, typed
from hw.params import PRESETS, TmaParams, options_of, parameters, preset_of
from open_tma.installation import DISTRIBUTION, python, version

LICENSE = "Apache-2.0"

MODULE = "tma"
"""Name of the module of the unit, and of its files."""

REDUCTION_MODULE = "reduction_unit"
"""Name of the module of the reduction unit, which is in front of memory."""

CLUSTER_MODULE = "cluster"
"""Name of the module of several units and the network between them."""

AXI_MODULE = "tma_axi"
"""Name of the module of a unit with an AXI4 port."""

HOST_MODULE = "tma_host"
"""Name of the module of a unit with shared memory, and a front end for hosts."""

CONTEXTS_MODULE = "tma_contexts"
"""Name of the module of the units of several contexts at the ports of one SM."""

MODULES = (MODULE, REDUCTION_MODULE, CLUSTER_MODULE, AXI_MODULE, HOST_MODULE, CONTEXTS_MODULE)
ENDINGS = (".v", ".vh", ".json", ".sv", "_template.sv")
"""Modules that can be written, and the ends of the names of their files."""

CLOCK_AND_RESET = ("clk", "rst")


def describe(shape: Any) -> dict[str, Any]:
    """Return a description of the bits of ``shape``.

    Returns
    -------
    dict
        ``width``, and one of these groups: ``signed`` of a number; ``enum`` (its name) and
        ``members`` (values by name); ``fields`` of a struct (a list, bit 0 first, each a
        description with ``name`` and ``offset``); ``length`` and ``element`` (a description) of an
        array.
    """
    description: dict[str, Any] = {"width": Shape.cast(shape).width}
    if isinstance(shape, data.ArrayLayout):
        description |= {"length": shape.length, "element": describe(shape.elem_shape)}
    elif isinstance(shape, data.Layout) or (
        isinstance(shape, type) and issubclass(shape, (data.Struct, data.Union))
    ):
        description["fields"] = [
            {"name": str(name), "offset": field.offset, **describe(field.shape)}
            for name, field in data.Layout.cast(shape)
        ]
    elif isinstance(shape, enum.EnumType):
        description |= {
            "enum": shape.__name__,
            "members": {item.name: item.value for item in shape},
        }
    else:
        description["signed"] = Shape.cast(shape).signed
    return description


def ports(unit: Any) -> Iterator[dict[str, Any]]:
    """Yield the ports of ``unit``, a component or interface, with their names in Verilog.

    Clock and reset are first.
    """
    for name in CLOCK_AND_RESET:
        yield {"name": name, "direction": "input", "width": 1, "signed": False}
    for path, member, _ in unit.signature.flatten(unit):
        direction = "input" if member.flow is wiring.In else "output"
        yield {
            "name": "__".join(map(str, path)),
            "direction": direction,
            **describe(member.shape),
        }


def derived(params: TmaParams) -> dict[str, int]:
    """Return the widths and counts that ``TmaParams`` derives, by name."""
    cached = (name for name, item in vars(TmaParams).items() if isinstance(item, cached_property))
    return {name: getattr(params, name) for name in cached}


class UnitInstance(wiring.Component):
    """An instance of the module ``tma``, which is in a file of its own.

    What is around it can be processed without it. A cluster of them makes each tool process one
    module several times instead of several modules.
    """

    def __init__(self, params: TmaParams) -> None:
        from hw.top import tma_ports

        super().__init__(tma_ports(params))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        ports = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        for path, member, value in self.signature.flatten(self):
            direction = "i" if member.flow is wiring.In else "o"
            ports[f"{direction}_{'__'.join(map(str, path))}"] = value
        m.submodules.unit = Instance(MODULE, **ports)
        return m


def modules(params: TmaParams) -> dict[str, list[str]]:
    """Return the modules that are written: the files that each needs, by the name of the module."""
    needed = {MODULE: [MODULE]}
    if params.reductions:
        needed[REDUCTION_MODULE] = [REDUCTION_MODULE]
    if params.ctas > 1:
        needed[CLUSTER_MODULE] = [CLUSTER_MODULE, MODULE]
    if params.axi_data_bits:
        needed[AXI_MODULE] = [AXI_MODULE, MODULE]
    if params.host:
        needed[HOST_MODULE] = [HOST_MODULE, MODULE]
    if params.contexts > 1:
        needed[CONTEXTS_MODULE] = [CONTEXTS_MODULE, MODULE]
    return needed


def generate(params: TmaParams, directory: Path, unit: wiring.Component | None = None) -> Path:
    """Write the files of ``modules(params)``; return the path of ``tma.v``.

    The text depends only on ``params`` and the sources, so it can be compared and hashed. Files
    that an earlier call wrote for other modules are removed.

    Parameters
    ----------
    params : TmaParams
        Parameters of the unit.
    directory : Path
        Folder of the files; it is created if it does not exist.
    unit : Component, optional
        Component that is written instead of ``hw.top.Tma(params)``, with the same ports.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if unit is None:
        from hw.top import Tma  # here, so that another component does not load the whole design

        unit = Tma(params)
    for module in set(MODULES) - set(modules(params)):
        _remove(module, directory)
    if params.reductions:
        from hw.reduce.reduction_unit import ReductionUnit

        _write(ReductionUnit(params), REDUCTION_MODULE, params, directory)
    if params.ctas > 1:
        from hw.cluster_top import Cluster

        _write(Cluster(params, UnitInstance), CLUSTER_MODULE, params, directory)
    if params.axi_data_bits:
        from hw.axi_top import AxiTma

        _write(AxiTma(params, UnitInstance), AXI_MODULE, params, directory)
    if params.contexts > 1:
        from hw.contexts_top import Contexts

        _write(Contexts(params, UnitInstance), CONTEXTS_MODULE, params, directory)
    if params.host:
        from hw.host_top import HostTma

        _write(HostTma(params, UnitInstance), HOST_MODULE, params, directory)
    path = _write(unit, MODULE, params, directory)
    written = modules(params)
    (directory / CORE).write_text(core(written, version(), LICENSE))
    (directory / BENDER).write_text(bender(written))
    shutil.copy(Path(__file__).with_name(WAIVERS), directory)
    return path


def _remove(module: str, directory: Path) -> None:
    """Remove the files of ``module``, if it was written by this project."""
    path = directory / f"{module}.json"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if json.loads(path.read_text()).get("module") == module:
            for ending in ENDINGS:
                (directory / f"{module}{ending}").unlink(missing_ok=True)


def convert(unit: wiring.Component, module: str) -> str:
    """Return a component as a Verilog module that every tool reads; see ``hw.flow.plain``."""
    return plain(Design(unit, module).verilog())


def interface(unit: Any, module: str, params: TmaParams) -> dict[str, Any]:
    """Return the contents of the JSON file of ``module``, whose ports are those of ``unit``."""
    return {
        "module": module,
        "project": DISTRIBUTION,
        "version": version(),
        "license": LICENSE,
        "preset": preset_of(params),
        "parameters": dataclasses.asdict(params),
        "derived": derived(params),
        "ports": list(ports(unit)),
    }


def _write(unit: wiring.Component, module: str, params: TmaParams, directory: Path) -> Path:
    design = Design(unit, module)
    described = {**interface(unit, module, params), "memories": list(design.memories())}
    head = _head(module, params)
    path = directory / f"{module}.v"
    path.write_text(head + plain(design.verilog()))
    path.with_suffix(".vh").write_text(head + macros(described))
    path.with_suffix(".sv").write_text(head + typed(described))
    (directory / f"{module}_template.sv").write_text(head + template(described))
    path.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n")
    return path


def _head(module: str, params: TmaParams) -> str:
    """Return the comment at the head of a file: licence, version, and how to write it again."""
    lines = [
        f"SPDX-License-Identifier: {LICENSE}",
        f"Module {module} of {DISTRIBUTION} {version()}, an open Tensor Memory Accelerator.",
        f"Written by: {shlex.join(['python', '-m', 'hw.verilog', *options_of(params)])}",
        f"Preset: {preset_of(params) or 'none'}",
        "Parameters:",
        *(f"  {name} = {value}" for name, value in dataclasses.asdict(params).items()),
    ]
    return "".join(f"// {line}\n" for line in lines) + "\n"


def _fields(port: dict[str, Any]) -> str:
    """Return the fields of a payload and their widths, in one line."""
    if "element" in port:
        element = port["element"]
        inner = f"{{{_fields(element)}}}" if "fields" in element else element["width"]
        return f"{port['length']} x {inner}"
    if "fields" in port:
        return ", ".join(f"{field['name']}:{field['width']}" for field in port["fields"])
    return ""


def port_table(interface: dict[str, Any]) -> Table:
    """Return the ports as a table with one row for each stream."""
    table = Table(title=f"{interface['module']}: ports", title_justify="left")
    table.add_column("port", no_wrap=True)
    table.add_column("direction", no_wrap=True)
    table.add_column("width", justify="right")
    table.add_column("fields, bit 0 first")
    names = {port["name"] for port in interface["ports"]}
    for port in interface["ports"]:
        stem, _, part = port["name"].rpartition("__")
        if stem and {f"{stem}__valid", f"{stem}__ready"} <= names:
            if part == "payload":
                arrow = "stream in" if port["direction"] == "input" else "stream out"
                table.add_row(stem, arrow, str(port["width"]), _fields(port))
        else:
            table.add_row(port["name"], port["direction"], str(port["width"]), _fields(port))
    return table


def main(arguments: Sequence[str] | None = None, prog: str = f"{python()} -m hw.verilog") -> int:
    """Run the command line and return its exit status; see ``--help``.

    ``prog`` is the name of the command in its messages.
    """
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("--preset", default="default", help=f"one of {', '.join(PRESETS)}")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change one parameter of the preset; can be repeated",
    )
    parser.add_argument("--out", type=Path, default=Path("build/rtl"), metavar="DIRECTORY")
    options = parser.parse_args(arguments)
    try:
        params = parameters(options.preset, options.set)
    except ValueError as error:
        parser.error(str(error))
    try:
        generate(params, options.out)
    except OSError as error:
        parser.error(f"--out {options.out}: {error.filename}: {error.strerror}")
    console = Console()
    for module in modules(params):
        path = options.out / f"{module}.v"
        console.print(port_table(json.loads(path.with_suffix(".json").read_text())))
        lines = path.read_text().count("\n")
        console.print(
            f"{path}: {lines} lines; {path.with_suffix('.vh')}: macros of the ports; "
            f"{path.with_suffix('.json')}: ports and parameters"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
