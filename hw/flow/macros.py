"""Verilog macros of a module's ports: widths, fields as part-selects, enumerations, parameters.

They let plain Verilog name the fields of payloads, whose places depend on the parameters::

    reg [`TMA_REQUEST_BITS-1:0] request;
    request[`TMA_REQUEST_OPERATION] = `TMA_OPERATION_TENSOR_LOAD;
    request[`TMA_REQUEST_COORDS(1)] = -32'd4;
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

INDICES = "ijk"
"""Parameters of the macros of array elements, outermost first."""

Description = Mapping[str, Any]
"""Description of the bits of a port or field; see ``hw.flow.verilog.describe``."""


def constant(name: str) -> str:
    """Return the name of a macro, in upper case with underscores.

    >>> constant("L2Promotion")
    'L2_PROMOTION'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def macros(interface: Mapping[str, Any]) -> str:
    """Return the macros of the module that ``interface``, the contents of its JSON, describes."""
    prefix = constant(interface["module"])
    lines = [f"`ifndef {prefix}_VH", f"`define {prefix}_VH"]
    lines += ["", "// Parameters, and what follows from them. One that is False has no macro."]
    for name, value in (interface["parameters"] | interface["derived"]).items():
        if value is not False:
            lines.append(f"`define {prefix}_{constant(name)} {value:d}")
    lines += ["", "// Ports: widths, and fields of payloads as part-selects"]
    members: dict[str, str] = {}
    for port in interface["ports"]:
        stem = port["name"].removesuffix("__payload").replace("__", "_")
        if port["width"] > 1 or stem != port["name"].replace("__", "_"):
            lines.append(f"`define {prefix}_{constant(stem)}_BITS {port['width']}")
        for name, select in _fields(constant(stem), port, "0", ""):
            lines.append(f"`define {prefix}_{name} {select}")
        members |= _members(port)
    lines += ["", "// Enumerations"]
    lines += [f"`define {prefix}_{name} {value}" for name, value in members.items()]
    return "\n".join([*lines, "", "`endif", ""])


def _fields(name: str, item: Description, offset: str, indices: str) -> Iterator[tuple[str, str]]:
    """Yield macro and part-select of each field and element in ``item``, which is at ``offset``."""
    if "element" in item:
        element, index = item["element"], INDICES[len(indices)]
        place = f"{offset} + {element['width']} * ({index})"
        yield from _select(name, element, place, indices + index)
    for field in item.get("fields", ()):
        place = f"{offset} + {field['offset']}"
        yield from _select(f"{name}_{constant(field['name'])}", field, place, indices)


def _select(name: str, item: Description, place: str, indices: str) -> Iterator[tuple[str, str]]:
    if not item["width"]:
        return
    if "element" not in item:
        parameters = f"({', '.join(indices)})" if indices else ""
        yield name + parameters, f"{place.removeprefix('0 + ')} +: {item['width']}"
    yield from _fields(name, item, place, indices)


def _members(item: Description) -> dict[str, str]:
    """Return the members of all enumerations in ``item``: macro to value."""
    found = {
        f"{constant(item['enum'])}_{name}": f"{item['width']}'d{value}"
        for name, value in item.get("members", {}).items()
    }
    for inner in [*item.get("fields", ()), *([item["element"]] if "element" in item else ())]:
        found |= _members(inner)
    return found
