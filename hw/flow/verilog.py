"""Writes the unit, and the reduction unit, as Verilog, with JSON files that say what ports mean.

``python -m hw.verilog`` makes them and prints the port tables.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Shape
from amaranth.lib import data, enum, wiring
from rich.console import Console
from rich.table import Table

from hw.params import PRESETS, TmaParams

MODULE = "tma"
"""Name of the unit's module, and of its two files."""

REDUCTION_MODULE = "reduction_unit"
"""The same of what stands in front of memory."""

CLUSTER_MODULE = "cluster"
"""The same of several SMs' units and the network between them."""

CLOCK_AND_RESET = ("clk", "rst")


def describe(shape: Any) -> dict[str, Any]:
    """What the bits of ``shape`` mean.

    Returns
    -------
    ``width`` and, as they apply: ``signed``; ``enum`` (its name) and ``members`` (name to value);
    ``fields`` (a list, bit 0 first, each a description with ``name`` and ``offset``); ``length``
    and ``element`` (a description) of an array.
    """
    about: dict[str, Any] = {"width": Shape.cast(shape).width}
    if isinstance(shape, data.ArrayLayout):
        about |= {"length": shape.length, "element": describe(shape.elem_shape)}
    elif isinstance(shape, data.Layout) or (
        isinstance(shape, type) and issubclass(shape, (data.Struct, data.Union))
    ):
        about["fields"] = [
            {"name": str(name), "offset": field.offset, **describe(field.shape)}
            for name, field in data.Layout.cast(shape)
        ]
    elif isinstance(shape, enum.EnumType):
        about |= {"enum": shape.__name__, "members": {item.name: item.value for item in shape}}
    else:
        about["signed"] = Shape.cast(shape).signed
    return about


def ports(unit: wiring.Component) -> Iterator[dict[str, Any]]:
    """The ports of ``unit`` as Verilog names them, clock and reset first."""
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
    """The widths and counts that follow from ``params``."""
    cached = (name for name, item in vars(TmaParams).items() if isinstance(item, cached_property))
    return {name: getattr(params, name) for name in cached}


class Written(wiring.Component):
    """The unit as an instance of the module that is written beside the cluster's: so each tool
    sees one module many times, and not many modules.
    """

    def __init__(self, params: TmaParams):
        from hw.top import tma_ports

        super().__init__(tma_ports(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        ports = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        for path, member, value in self.signature.flatten(self):
            direction = "i" if member.flow is wiring.In else "o"
            ports[f"{direction}_{'__'.join(map(str, path))}"] = value
        m.submodules.unit = Instance(MODULE, **ports)
        return m


def generate(params: TmaParams, directory: Path, unit: wiring.Component | None = None) -> Path:
    """Write ``tma.v`` and ``tma.json`` into ``directory``; return the path of the first.

    With ``reductions``, ``reduction_unit.v`` and ``.json`` beside them; with ``ctas`` above 1,
    ``cluster.v`` and ``.json``, which has ``ctas`` instances of the unit. The text depends on
    nothing but ``params`` and the sources: it may be compared and hashed.

    Parameters
    ----------
    params : TmaParams
        What to build.
    directory : Path
        Made if it is not there.
    unit : Component
        Written in place of ``hw.top.Tma(params)``; it has the same ports.
    """
    if unit is None:
        from hw.top import Tma  # here, so that a stand-in needs no complete design

        unit = Tma(params)
    if params.reductions:
        from hw.reduce.reduction_unit import ReductionUnit

        _write(ReductionUnit(params), REDUCTION_MODULE, params, directory)
    if params.ctas > 1:
        from hw.cluster_top import Cluster

        _write(Cluster(params, Written), CLUSTER_MODULE, params, directory)
    return _write(unit, MODULE, params, directory)


def _write(unit: wiring.Component, module: str, params: TmaParams, directory: Path) -> Path:
    interface = {
        "module": module,
        "parameters": dataclasses.asdict(params),
        "derived": derived(params),
        "ports": list(ports(unit)),
    }
    text = verilog.convert(unit, name=module, emit_src=False)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{module}.v"
    path.write_text(text)
    path.with_suffix(".json").write_text(json.dumps(interface, indent=1) + "\n")
    return path


def parameters(preset: str, settings: Sequence[str]) -> TmaParams:
    """``preset`` with ``name=value`` settings applied.

    Raises
    ------
    ValueError
        For an unknown preset or parameter, and for a value that the parameter does not take.
    """
    if preset not in PRESETS:
        raise ValueError(f"no preset {preset!r}: there are {', '.join(PRESETS)}")
    known = {field.name for field in dataclasses.fields(TmaParams)}
    changes = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name not in known or not equals:
            raise ValueError(f"{setting!r}: expected name=value of {', '.join(sorted(known))}")
        changes[name] = type(getattr(PRESETS[preset], name))(int(value, 0))
    return dataclasses.replace(PRESETS[preset], **changes)


def _meaning(port: dict[str, Any]) -> str:
    if "element" in port:
        return f"{port['length']} x {{{_meaning(port['element'])}}}"
    if "fields" in port:
        return ", ".join(f"{field['name']}:{field['width']}" for field in port["fields"])
    return ""


def port_table(interface: dict[str, Any]) -> Table:
    """The ports as a table; a stream is one row."""
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
                table.add_row(stem, arrow, str(port["width"]), _meaning(port))
        else:
            table.add_row(port["name"], port["direction"], str(port["width"]), _meaning(port))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m hw.verilog", description=__doc__)
    parser.add_argument("--preset", default="default", help=f"one of {', '.join(PRESETS)}")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change one parameter of the preset; may be repeated",
    )
    parser.add_argument("--out", type=Path, default=Path("build/rtl"), metavar="DIRECTORY")
    options = parser.parse_args(arguments)
    try:
        params = parameters(options.preset, options.set)
    except ValueError as error:
        parser.error(str(error))
    generate(params, options.out)
    console = Console()
    written = [MODULE]
    written += [REDUCTION_MODULE] if params.reductions else []
    written += [CLUSTER_MODULE] if params.ctas > 1 else []
    for module in written:
        path = options.out / f"{module}.v"
        console.print(port_table(json.loads(path.with_suffix(".json").read_text())))
        lines = path.read_text().count("\n")
        console.print(f"{path}: {lines} lines; {path.with_suffix('.json')}: the ports' meaning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
