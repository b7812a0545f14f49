"""SystemVerilog of a module: a package of its types, a module with typed ports, and a template.

``<module>.sv`` has the package ``<module>_pkg`` and the module ``<module>_typed``, whose ports have
the names of those of the Verilog module, and types of the package::

    request_t request;
    request = '0;
    request.operation = OPERATION_TENSOR_LOAD;

``<module>_template.sv`` declares a signal for each port, and instantiates the module.
"""

from collections.abc import Mapping
from typing import Any

from hw.flow.macros import constant

Description = Mapping[str, Any]
"""Description of the bits of a port or field; see ``hw.flow.verilog.describe``."""


def _vector(width: int) -> str:
    """Return the type of a number without a sign."""
    return "logic" if width == 1 else f"logic [{width - 1}:0]"


class Types:
    """Types of the payloads of a module.

    Parameters
    ----------
    interface : mapping
        Contents of the JSON file of the module.

    Attributes
    ----------
    lines : list of str
        The definitions, each behind those that it uses.
    ports : dict
        Type of each port.
    """

    def __init__(self, interface: Mapping[str, Any]) -> None:
        self.lines: list[str] = []
        self._known: set[str] = set()
        self.ports = {
            port["name"]: self._type(port["name"].removesuffix("__payload"), port)
            for port in interface["ports"]
            if port["width"]
        }

    def _type(self, name: str, item: Description) -> str:
        """Return the type of an item; define it, under ``name``, if it is more than a number."""
        if "enum" in item:
            return self._enum(item)
        if "fields" in item:
            return self._struct(name, item)
        if "element" in item:
            element = self._type(f"{name}_element", item["element"])
            if element.startswith("logic"):
                element = self._define(f"{name}_element", element)
            return self._define(name, f"{element} [{item['length'] - 1}:0]")
        vector = _vector(item["width"])
        return vector.replace("logic", "logic signed") if item["signed"] else vector

    def _enum(self, item: Description) -> str:
        prefix = constant(item["enum"])
        members = ", ".join(
            f"{prefix}_{name} = {item['width']}'d{value}" for name, value in item["members"].items()
        )
        return self._define(prefix.lower(), f"enum {_vector(item['width'])} {{{members}}}")

    def _struct(self, name: str, item: Description) -> str:
        fields = [
            f"  {self._type('_'.join((name, field['name'])), field)} {field['name']};"
            for field in reversed(item["fields"])  # the first one is the highest in SystemVerilog
            if field["width"]
        ]
        return self._define(name, "\n".join(["struct packed {", *fields, "}"]))

    def _define(self, name: str, text: str) -> str:
        """Define a type once, and return its name."""
        name = f"{name.replace('__', '_')}_t"
        if name not in self._known:
            self._known.add(name)
            self.lines.append(f"typedef {text} {name};")
        return name


def _instance(module: str, name: str, types: Types) -> str:
    """Return an instance whose signals have the names of the ports."""
    connections = ",\n".join(f"    .{port}({port})" for port in types.ports)
    return f"  {module} {name} (\n{connections}\n  );\n"


def typed(interface: Mapping[str, Any]) -> str:
    """Return the package of types, and the module with typed ports."""
    module, types = interface["module"], Types(interface)
    definitions = "\n".join(f"  {line}" for text in types.lines for line in text.splitlines())
    directions = {port["name"]: port["direction"] for port in interface["ports"]}
    ports = ",\n".join(
        f"    {directions[name]} {kind} {name}" for name, kind in types.ports.items()
    )
    return (
        f"package {module}_pkg;\n{definitions}\nendpackage\n\n"
        f"module {module}_typed\n  import {module}_pkg::*;\n(\n{ports}\n);\n"
        f"{_instance(module, module, types)}endmodule\n"
    )


def template(interface: Mapping[str, Any]) -> str:
    """Return a declaration of each port, and an instance of the module with typed ports."""
    module, types = interface["module"], Types(interface)
    signals = "".join(f"  {kind} {name};\n" for name, kind in types.ports.items())
    instance = _instance(f"{module}_typed", f"i_{module}", types)
    return f"  import {module}_pkg::*;\n{signals}\n{instance}"
