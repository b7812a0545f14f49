"""Bits on which the outputs of a netlist depend, and bits that are constant.

An output depends on a bit if there is a way from the bit to it, through logic, registers and
memories. No way goes through a result that is constant, or through an operand that a multiplexer
never chooses. All else counts as a way, so that a bit without one changes no output.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Net = tuple[str, int | str]
"""A module and the number of a bit in it, or "" and a constant."""

CellName = tuple[str, str]
"""A module, and a cell in it."""

Pin = tuple[CellName, str, int]
"""A cell, a port of it, and a bit of the port."""

OUTPUTS = {"Y", "Q", "RD_DATA"}
"""Output ports of cells."""

CLOCKS = {"CLK", "RD_CLK", "WR_CLK"}

VARIES = "x"
"""Value of a net that is not known to be constant. A constant net has "0" or "1"."""

Values = dict[Net, str | None]
"""Values of nets; None: nothing is known yet."""


@dataclass(frozen=True)
class Cell:
    """A cell of Yosys, its parameters as binary numbers, and the nets at its ports."""

    kind: str
    parameters: Mapping[str, str]
    ports: Mapping[str, Sequence[Net]]

    def inputs(self, bit: int) -> Iterator[tuple[str, int]]:
        """Yield the bits of the inputs on which a bit of the output depends."""
        match self.kind:
            case "$and" | "$or" | "$xor" | "$xnor" | "$not":
                yield from self.operands(bit)
            case "$mux":
                yield from (("A", bit), ("B", bit), ("S", 0))
            case "$pmux":
                width = len(self.ports["A"])
                yield "A", bit
                for number in range(len(self.ports["S"])):
                    yield from (("B", number * width + bit), ("S", number))
            case "$dff":
                yield "D", bit
            case "$add" | "$sub":
                yield from {each for at in range(bit + 1) for each in self.operands(at)}
            case "$mem_v2":
                yield from self.column(bit)
            case _:
                yield from self.all_inputs()

    def operands(self, bit: int) -> Iterator[tuple[str, int]]:
        """Yield the bits of A and B that make a bit of a bitwise result."""
        for port in "A", "B":
            width = len(self.ports.get(port, ()))
            if bit < width:
                yield port, bit
            elif width and int(self.parameters[f"{port}_SIGNED"], 2):
                yield port, width - 1

    def all_inputs(self) -> Iterator[tuple[str, int]]:
        """Yield all bits of the inputs."""
        for port, nets in self.ports.items():
            if port not in OUTPUTS | CLOCKS:
                yield from ((port, bit) for bit in range(len(nets)))

    def column(self, bit: int) -> Iterator[tuple[str, int]]:
        """Yield the inputs that make a bit which is read from a memory: no other data."""
        width = int(self.parameters["WIDTH"], 2)
        for port, at in self.all_inputs():
            if port not in {"WR_DATA", "WR_EN"} or at % width == bit % width:
                yield port, at


class Netlist:
    """The netlist of a unit; see the module.

    Parameters
    ----------
    modules : Mapping
        The modules as Yosys writes them in JSON. Each is in the unit once.
    top : str
        The module of the unit.

    Raises
    ------
    ValueError
        If a module is in the unit more than once.
    """

    def __init__(self, modules: Mapping[str, Any], top: str) -> None:
        inside = Counter(
            cell["type"] for module in modules.values() for cell in module["cells"].values()
        )
        for name in modules:
            if inside[name] > 1:
                raise ValueError(f"module {name}: is in the unit {inside[name]} times, not once")
        self._same: dict[Net, Net] = {}
        self._initial: dict[Net, str] = {}
        self._cells: dict[CellName, Cell] = {}
        for name, module in modules.items():
            for cell in module["cells"].values():
                if inner := modules.get(cell["type"]):
                    for port, bits in cell["connections"].items():
                        for pair in zip(bits, inner["ports"][port]["bits"], strict=True):
                            self._join((name, pair[0]), (cell["type"], pair[1]))
        for name, module in modules.items():
            for net in module["netnames"].values():
                initial = reversed(net["attributes"].get("init", ""))
                for bit, value in zip(net["bits"], initial, strict=False):
                    self._initial[self._net((name, bit))] = value
            for cell_name, cell in module["cells"].items():
                if cell["type"] not in modules:
                    ports = {
                        port: [self._net((name, bit)) for bit in bits]
                        for port, bits in cell["connections"].items()
                    }
                    self._cells[name, cell_name] = Cell(cell["type"], cell["parameters"], ports)
        self._drivers = {
            net: (name, port, bit)
            for name, cell in self._cells.items()
            for port in OUTPUTS & cell.ports.keys()
            for bit, net in enumerate(cell.ports[port])
        }
        self._outputs = [
            self._net((top, bit))
            for port in modules[top]["ports"].values()
            if port["direction"] == "output"
            for bit in port["bits"]
        ]
        self._values = self._find_values()
        self._observed = self._find_observed(self._values)

    def __contains__(self, cell: CellName) -> bool:
        """Return whether there is such a cell, which is no module."""
        return cell in self._cells

    def constant(self, pin: Pin) -> str | None:
        """Return "0" or "1" if a bit at a port of a cell always has this value.

        Raises
        ------
        KeyError
            If the netlist has no such cell, or the cell is a module.
        """
        value = _value(self._values, self._at(pin))
        return None if value == VARIES else value

    def is_observed(self, pin: Pin) -> bool:
        """Return whether an output would depend on a bit at a port of a cell that had any value.

        Raises
        ------
        KeyError
            If the netlist has no such cell, or the cell is a module.
        """
        if self.constant(pin) is None:
            return pin in self._observed
        return pin in self._find_observed(self._find_values(self._at(pin)))

    def _at(self, pin: Pin) -> Net:
        name, port, bit = pin
        return self._cells[name].ports[port][bit]

    def _net(self, net: Net) -> Net:
        """Return the one name of a net that goes through several modules."""
        net = ("", net[1]) if isinstance(net[1], str) else net
        while (other := self._same.get(net, net)) != net:
            net = other
        return net

    def _join(self, one: Net, other: Net) -> None:
        """Note that two nets are the same."""
        roots = sorted({self._net(one), self._net(other)}, key=lambda net: net[0] != "")
        if len(roots) == 2:
            self._same[roots[1]] = roots[0]

    def _find_values(self, varying: Net | None = None) -> Values:
        """Return the values of all nets that cells drive; ``varying`` may have any value.

        Registers keep their initial contents until something else can be written.
        """
        values: Values = dict.fromkeys(self._drivers)
        users: dict[Net, list[Net]] = {}
        for net, (name, _, bit) in self._drivers.items():
            cell = self._cells[name]
            if cell.kind not in EVALUATED or net == varying:
                values[net] = VARIES
                continue
            for port, at in cell.inputs(bit):
                users.setdefault(cell.ports[port][at], []).append(net)
        left = [net for net, value in values.items() if value is None]
        while left:
            net = left.pop()
            name, _, bit = self._drivers[net]
            value = _evaluate(self._cells[name], bit, self._initial.get(net, VARIES), values)
            if value != values[net] and values[net] != VARIES:
                values[net] = value
                left += users.get(net, [])
        return values

    def _find_observed(self, values: Values) -> set[Pin]:
        """Return the bits at ports of cells on which the outputs depend."""
        pins: set[Pin] = set()
        nets = set(self._outputs)
        left = [*nets]
        while left:
            net = left.pop()
            if net not in self._drivers:
                continue
            pins.add(driver := self._drivers[net])
            if _value(values, net) != VARIES:
                continue
            name, _, bit = driver
            cell = self._cells[name]
            for port, at in cell.inputs(bit):
                if cell.kind == "$mux" and port != "S":
                    other = "1" if port == "A" else "0"
                    if _value(values, cell.ports["S"][0]) == other:
                        continue
                pins.add((name, port, at))
                if (read := cell.ports[port][at]) not in nets:
                    nets.add(read)
                    left.append(read)
        return pins


EVALUATED = {"$and", "$or", "$not", "$mux", "$dff"}
"""Cells whose results may be known to be constant."""


def _evaluate(cell: Cell, bit: int, initial: str, values: Values) -> str | None:
    """Return the value of a bit of the output of a cell."""

    def value(port: str, at: int) -> str | None:
        return _value(values, cell.ports[port][at])

    if cell.kind == "$dff":
        return _any_of([initial, value("D", bit)])
    if cell.kind == "$mux":
        chosen = {"0": "A", "1": "B", None: ""}.get(value("S", 0), "AB")
        return _any_of([value(port, bit) for port in chosen])
    operands = [value(port, at) for port, at in cell.operands(bit)]
    if cell.kind == "$not":
        (operand,) = operands or ["0"]
        return {"0": "1", "1": "0"}.get(operand or "", operand)
    operands += ["0"] * (2 - len(operands))
    absorbing = "0" if cell.kind == "$and" else "1"
    if absorbing in operands:
        return absorbing
    return None if None in operands else _any_of(operands)


def _value(values: Values, net: Net) -> str | None:
    """Return the value of a net. Nets that no cell drives are inputs, and vary."""
    return str(net[1]) if net[0] == "" else values.get(net, VARIES)


def _any_of(values: Sequence[str | None]) -> str | None:
    """Return the value of a net that may have any of some values."""
    found = {value for value in values if value is not None}
    return found.pop() if len(found) == 1 else VARIES if found else None
