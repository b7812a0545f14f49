"""The unit's ports and parameters, as ``tma.json`` beside the Verilog describes them."""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

UNIT = "tma"

Description = Mapping[str, Any]
"""What the bits of a port or field mean; see ``hw.verilog.describe``."""


class Interface:
    """One generated unit, seen from outside.

    Parameters
    ----------
    path : Path
        The JSON file.

    Members
    -------
    parameters, derived : mappings of name to number
    ports : by Verilog name
    """

    def __init__(self, path: Path) -> None:
        contents = json.loads(path.read_text())
        self.path = path
        self.module: str = contents["module"]
        self.parameters: dict[str, int] = contents["parameters"]
        self.derived: dict[str, int] = contents["derived"]
        self.ports: dict[str, Description] = {port["name"]: port for port in contents["ports"]}

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
        prefix = "" if self.module == UNIT else f"{self.module}_"
        for name, port in self.ports.items():
            stream, _, part = name.rpartition("__")
            if part == "payload":
                text += [_typedef(prefix + stream, port), ""]
        return "\n".join(text)


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
