"""Registers in the generated Verilog: their Python lines, and the fields that their bits are in.

Verilator counts the edges of each bit of every variable. Only those of registers say something
about the tests: a net repeats the edges of the registers that it comes from, under each of its
names.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Forms of the lines that Yosys writes; it writes one statement per line.
MODULE = re.compile(r"^module (\S+) .*?^endmodule$", re.MULTILINE | re.DOTALL)
DECLARATION = re.compile(r"^  (?:input|output|reg|wire) +(?:\[(\d+):0\] +)?([^\s;]+)( +\[)?")
ATTRIBUTE = re.compile(r'^  \(\* (?:src = "(.*)")?')
CLOCKED = "  always @(posedge "
ASSIGNED = re.compile(r"^ +(\\\S+|[^\s\[]+) *(?:\[.*\] *)?<= ")
ALIAS = re.compile(r"^  assign (\S+)  = (\S+?) *\[(\d+)(?::(\d+))?\];$")

OFF, ON = "/* verilator coverage_off */", "/* verilator coverage_on */"


@dataclass(frozen=True)
class Register:
    """A register: the place of its declaration in Python, and the name of each bit.

    A bit in a field of a structure has the name of that field, such as ``job.address[3]``.
    """

    source: str
    bits: tuple[str, ...]


def muted(text: str) -> str:
    """Return Verilog that keeps Verilator from counting edges of anything but registers."""
    return MODULE.sub(lambda match: "\n".join(_muted(match[0].splitlines())), text)


def _muted(lines: list[str]) -> Iterator[str]:
    names, is_off = _clocked(lines), False
    for line in lines:
        declared = DECLARATION.match(line)
        turns_off = declared is not None and not _is_register(declared, names)
        if turns_off and not is_off:
            yield OFF
        elif is_off and not turns_off and not ATTRIBUTE.match(line):
            yield ON
        if not ATTRIBUTE.match(line):
            is_off = turns_off
        yield line


def _clocked(lines: list[str]) -> set[str]:
    """Return the names that are assigned at an edge of the clock."""
    names, is_clocked = set(), False
    for line in lines:
        if line.startswith("  always "):
            is_clocked = line.startswith(CLOCKED)
        elif is_clocked and (match := ASSIGNED.match(line)):
            names.add(match[1])
    return names


def _is_register(declared: "re.Match[str]", names: set[str]) -> bool:
    return declared[2] in names and not declared[3]  # memories are arrays


def registers(text: str) -> dict[tuple[str, str], Register]:
    """Return all registers in the text of a Verilog file, by module and name."""
    found = {}
    for match in MODULE.finditer(text):
        lines = match[0].splitlines()
        names, source = _clocked(lines), ""
        sources: dict[str, str] = {}
        bits: dict[str, list[str]] = {}
        for line in lines:
            if attribute := ATTRIBUTE.match(line):
                source = attribute[1] or source
            elif (declared := DECLARATION.match(line)) and _is_register(declared, names):
                name, width = declared[2], int(declared[1] or 0) + 1
                sources[name] = source
                bits[name] = [f"{plain(name)}[{bit}]" for bit in range(width)]
            elif (alias := ALIAS.match(line)) and _is_field(alias[1], alias[2], bits):
                high, low = int(alias[3]), int(alias[4] or alias[3])
                # Amaranth writes the fields of a field after it.
                for bit in range(low, high + 1):
                    bits[alias[2]][bit] = f"{plain(alias[1])}[{bit - low}]"
        for name, place in sources.items():
            found[plain(match[1]), plain(name)] = Register(place, tuple(bits[name]))
    return found


def _is_field(field: str, name: str, bits: dict[str, list[str]]) -> bool:
    return name in bits and plain(field).startswith((f"{plain(name)}.", f"{plain(name)}["))


def plain(name: str) -> str:
    """Return a name without the backslash that lets it have any character in Verilog."""
    return name.removeprefix("\\")
