"""A design's ports and parameters, as the JSON beside its Verilog describes them."""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

UNIT = "tma"
CLUSTER = "cluster"
"""Modules: the unit of one SM, and SMs whose units are joined."""

Description = Mapping[str, Any]
"""What the bits of a port or field mean; see ``hw.flow.verilog.describe``."""


class Interface:
    """One generated module, seen from outside.

    Parameters
    ----------
    path : Path
        The JSON file.

    Members
    -------
    module : str
    parameters, derived : mappings of name to number
    ports : by Verilog name
    sms : int
        SMs that have a unit in it.
    """

    def __init__(self, path: Path) -> None:
        contents = json.loads(path.read_text())
        self.path = path
        self.module: str = contents["module"]
        self.parameters: dict[str, int] = contents["parameters"]
        self.derived: dict[str, int] = contents["derived"]
        self.ports: dict[str, Description] = {port["name"]: port for port in contents["ports"]}
        self.sms = self.parameters["ctas"] if self.module == CLUSTER else 1

    def prefix(self, sm: int) -> str:
        """What the names of the ports of this SM's unit begin with."""
        return f"sm_{sm}__" if self.module == CLUSTER else ""

    @cached_property
    def unit_ports(self) -> dict[str, Description]:
        """The ports of one SM's unit, by name; clock and reset left out."""
        prefix = self.prefix(0)
        return {
            name.removeprefix(prefix): port
            for name, port in self.ports.items()
            if "__" in name and name.startswith(prefix)
        }

    @cached_property
    def enums(self) -> dict[str, dict[str, int]]:
        """Every enumeration of a port, by name: member name to value."""
        return dict(_enums(list(self.ports.values())))

    @cached_property
    def types(self) -> str:
        """SystemVerilog: ``<stream>_t`` for every payload, ``<stream>_element_t`` of an array.

        Of another module than the unit, with the module's name in front.
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
        """SystemVerilog: the interface ``unit_ports``, the ports of one SM's unit by name."""
        rows = []
        for name, port in self.unit_ports.items():
            stream, _, part = name.rpartition("__")
            kind = f"{stream}_t" if part == "payload" else f"logic [{port['width'] - 1}:0]"
            rows.append(f"  {kind} {name};\n")
        return f"interface unit_ports;\n{''.join(rows)}endinterface\n"

    @cached_property
    def instance(self) -> str:
        """SystemVerilog: the design as ``dut``, joined to the ``units`` of all SMs."""
        joined = [name for name in self.ports if "__" not in name]
        rows = [f".{name}" for name in joined]
        for sm in range(self.sms):
            prefix = self.prefix(sm)
            rows += [f".{prefix}{name}(units[{sm}].{name})" for name in self.unit_ports]
        connections = ",\n".join(f"    {row}" for row in rows)
        return f"{self.module} dut (\n{connections}\n);\n"


def _enums(items: list[Description]) -> Iterator[tuple[str, dict[str, int]]]:
    for item in items:
        if "enum" in item:
            yield item["enum"], item["members"]
        yield from _enums(item.get("fields", []))
        yield from _enums([item["element"]] if "element" in item else [])


def _typedef(name: str, item: Description) -> str:
    if "element" in item:
        inner = _typedef(f"{name}_element", item["element"])
        return f"{inner}\ntypedef {name}_element_t [{item['length'] - 1}:0] {name}_t;"
    return f"typedef {_type(item)} {name}_t;"


def _type(item: Description) -> str:
    if "fields" not in item:
        return f"logic {_dimensions(item)}"
    members = "".join(f"  {_type(field)} {field['name']};\n" for field in reversed(item["fields"]))
    return f"struct packed {{\n{members}}}"


def _dimensions(item: Description) -> str:
    if "element" in item:
        return f"[{item['length'] - 1}:0]{_dimensions(item['element'])}"
    return f"[{item['width'] - 1}:0]"
