"""A design's ports and parameters, read from the JSON that is generated beside its Verilog."""

import json
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

UNIT = "tma"
CLUSTER = "cluster"
"""Names of the modules: the unit of one SM, and a cluster of SMs with connected units."""

Layout = Mapping[str, Any]
"""Layout of the bits of a port or field; see ``hw.flow.verilog.describe``."""


class Interface:
    """Parameters and ports of one generated module.

    Parameters
    ----------
    path : Path
        The JSON file.

    Members
    -------
    module : str
    parameters, derived : mappings of name to number
    ports : mapping of Verilog name to layout
    sms : int
        Number of units in the module.
    """

    def __init__(self, path: Path) -> None:
        contents = json.loads(path.read_text())
        self.path = path
        self.module: str = contents["module"]
        self.parameters: dict[str, int] = contents["parameters"]
        self.derived: dict[str, int] = contents["derived"]
        self.ports: dict[str, Layout] = {port["name"]: port for port in contents["ports"]}
        self.sms = self.parameters["ctas"] if self.module == CLUSTER else 1

    def prefix(self, sm: int) -> str:
        """Return the prefix of the Verilog names of this SM's ports."""
        return f"sm_{sm}__" if self.module == CLUSTER else ""

    @cached_property
    def unit_ports(self) -> dict[str, Layout]:
        """The ports of one SM's unit, by name, without clock and reset."""
        prefix = self.prefix(0)
        return {
            name.removeprefix(prefix): port
            for name, port in self.ports.items()
            if "__" in name and name.startswith(prefix)
        }

    @cached_property
    def enums(self) -> dict[str, dict[str, int]]:
        """All enumerations of ports: name to member name to value."""
        return dict(_enums(list(self.ports.values())))

    @cached_property
    def types(self) -> str:
        """SystemVerilog types: ``<stream>_t`` of each payload.

        If the payload is an array, ``<stream>_element_t`` is the type of its elements.

        The names of another module than the unit begin with the module's name.
        """
        text = [f"// Payloads of {self.module}, from {self.path.name}.", ""]
        prefix = "" if self.module in (UNIT, CLUSTER) else f"{self.module}_"
        for name, port in self.unit_ports.items():
            stream, _, part = name.rpartition("__")
            if part == "payload":
                text += [_typedef(prefix + stream, port), ""]
        return "\n".join(text)

    @cached_property
    def wires(self) -> str:
        """SystemVerilog interface ``unit_ports`` with the ports of one SM's unit."""
        rows = []
        for name, port in self.unit_ports.items():
            stream, _, part = name.rpartition("__")
            kind = f"{stream}_t" if part == "payload" else f"logic [{port['width'] - 1}:0]"
            rows.append(f"  {kind} {name};\n")
        return f"interface unit_ports;\n{''.join(rows)}endinterface\n"

    @cached_property
    def instance(self) -> str:
        """SystemVerilog instance ``dut`` of the design, connected to the ``units`` of all SMs."""
        rows = [f".{name}" for name in self.ports if "__" not in name]
        for sm in range(self.sms):
            prefix = self.prefix(sm)
            rows += [f".{prefix}{name}(units[{sm}].{name})" for name in self.unit_ports]
        connections = ",\n".join(f"    {row}" for row in rows)
        return f"{self.module} dut (\n{connections}\n);\n"


def simulated_interface() -> Interface:
    """Return the interface of the design that is simulated: the runner names its JSON file."""
    return Interface(Path(os.environ["TMA_INTERFACE"]))


def _enums(items: list[Layout]) -> Iterator[tuple[str, dict[str, int]]]:
    for item in items:
        if "enum" in item:
            yield item["enum"], item["members"]
        yield from _enums(item.get("fields", []))
        yield from _enums([item["element"]] if "element" in item else [])


def _typedef(name: str, item: Layout) -> str:
    if "element" in item:
        inner = _typedef(f"{name}_element", item["element"])
        return f"{inner}\ntypedef {name}_element_t [{item['length'] - 1}:0] {name}_t;"
    return f"typedef {_type(item)} {name}_t;"


def _type(item: Layout) -> str:
    if "fields" not in item:
        return f"logic {_dimensions(item)}"
    members = "".join(f"  {_type(field)} {field['name']};\n" for field in reversed(item["fields"]))
    return f"struct packed {{\n{members}}}"


def _dimensions(item: Layout) -> str:
    if "element" in item:
        return f"[{item['length'] - 1}:0]{_dimensions(item['element'])}"
    return f"[{item['width'] - 1}:0]"
