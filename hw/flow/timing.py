"""Timing: the longest paths between registers of a netlist that Yosys mapped to an ECP5.

The netlist is not placed. Depth is counted in levels of logic, and delay is estimated from typical
delays.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hw.flow.route import NoPathError, Route

LUT_NS, CARRY_NS, SUM_NS, READ_NS, PRODUCT_NS = 0.24, 0.07, 0.45, 0.24, 2.5
"""Delays in ns: through a LUT or multiplexer, through a carry cell, from an operand to its sum,
through distributed RAM, and through a multiplier."""

CLOCKED_NS = {"TRELLIS_FF": 0.5, "DP16KD": 3.0}
"""Delay from the clock to the outputs, in ns, of cells without a combinational path."""

NET_NS, FANOUT_NS = 0.5, 0.13
"""Delay in ns of a net with one sink, and for each doubling of the number of sinks.

All delays are typical of an ECP5 of speed grade 8. Small units are faster by a quarter when they
are placed and routed; larger ones are not.
"""

Cells = Mapping[str, Mapping[str, Any]]
"""Cells of a flat netlist by name, as in the JSON of Yosys."""


@dataclass(frozen=True)
class Arc:
    """A path through a net and the cell behind it.

    Parameters
    ----------
    source : int, optional
        The net; None if the path starts at the clock of the cell.
    levels : int
        1 for a LUT, multiplexer, multiplier, read of distributed RAM, or start of a carry chain;
        0 along a carry chain and at a register.
    logic_ns, routing_ns : float
        Delays of the cell and of the net.
    """

    source: int | None
    levels: int
    logic_ns: float
    routing_ns: float

    @property
    def ns(self) -> float:
        """Delay of cell and net."""
        return self.logic_ns + self.routing_ns


@dataclass(frozen=True)
class Path:
    """A path between registers.

    Parameters
    ----------
    cells : list of str
        Names of the cells in order, registers included.
    levels : int
        Levels of logic; see ``Arc``.
    logic_ns, routing_ns : float
        The two parts of the delay.
    """

    cells: list[str]
    levels: int
    logic_ns: float
    routing_ns: float

    @property
    def ns(self) -> float:
        """Delay of the path."""
        return self.logic_ns + self.routing_ns


def _port_delays(cell: Mapping[str, Any]) -> Iterator[tuple[str | None, str, float]]:
    """Yield the paths through a mapped cell: input port, output port, delay in ns.

    The input port is None if the path starts at the clock; the output port is "" if it ends there.
    """
    kind = cell["type"]
    ports = cell["port_directions"].items()
    inputs = [port for port, direction in ports if direction == "input" and "CLK" not in port]
    outputs = [port for port, direction in ports if direction == "output"]
    if kind in CLOCKED_NS:
        yield from ((None, port, CLOCKED_NS[kind]) for port in outputs)
        yield from ((port, "", 0.0) for port in inputs)
    elif kind == "TRELLIS_DPR16X4":
        yield from ((port, "", 0.0) for port in ("DI", "WAD", "WRE"))
        yield None, "DO", READ_NS
        yield "RAD", "DO", READ_NS
    elif kind == "CCU2C":
        for port in inputs:
            through = CARRY_NS if port == "CIN" else SUM_NS
            yield from ((port, out, through if out == "COUT" else SUM_NS) for out in outputs)
    else:
        through = PRODUCT_NS if kind.startswith("MULT") else LUT_NS
        yield from ((port, out, through) for port in inputs for out in outputs)


class Timing:
    """Arcs of a flat netlist.

    Parameters
    ----------
    cells : Cells
        The cells. Paths from nets that no cell drives, such as inputs, are left out.
    """

    def __init__(self, cells: Cells) -> None:
        self._fanout = Counter(
            bit
            for cell in cells.values()
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "input"
            for bit in bits
        )
        self._drivers: dict[int, tuple[str, list[Arc]]] = {}
        self._ends: list[tuple[str, list[Arc]]] = []
        for name, cell in cells.items():
            self._add(name, cell)
        self._order = list(self._sorted())

    def _add(self, name: str, cell: Mapping[str, Any]) -> None:
        """Add the arcs of a cell. All bits of an output port share their arcs."""
        nets = {
            port: [bit for bit in bits if isinstance(bit, int)]
            for port, bits in cell["connections"].items()
        }
        into: dict[str, list[Arc]] = {}
        for port, out, logic in _port_delays(cell):
            levels = int(bool(port and out) and port != "CIN")
            for source in [None] if port is None else nets.get(port, []):
                direct = source is None or port == "CIN"
                routing = 0.0 if direct else NET_NS + FANOUT_NS * math.log2(self._fanout[source])
                into.setdefault(out, []).append(Arc(source, levels, logic, routing))
        for out, arcs in into.items():
            if not out:
                self._ends.append((name, arcs))
            for net in nets.get(out, ()):
                self._drivers[net] = name, arcs

    def _sorted(self) -> Iterator[int]:
        """Yield the driven nets, each behind the nets that its value follows from."""
        done: set[int] = set()
        for root in self._drivers:
            stack = [root]
            while stack:
                net = stack[-1]
                if net in done or net not in self._drivers:
                    stack.pop()
                    continue
                sources = {arc.source for arc in self._drivers[net][1]} - {None} - done
                waiting = [source for source in sources if source in self._drivers]
                if waiting:
                    stack += waiting
                else:
                    stack.pop()
                    done.add(net)
                    yield net

    def longest(self, measure: str) -> Path | None:
        """Return the longest path between registers by ``measure``, an attribute of ``Arc``.

        None if there is no path between registers.
        """
        settles: dict[int | None, tuple[float, str, Arc | None]] = {None: (0.0, "", None)}

        def last(arcs: list[Arc]) -> tuple[float, Arc | None]:
            """Return when the output of a cell settles, and the arc that settles last."""
            best, which = -1.0, None
            for arc in arcs:
                if (before := settles.get(arc.source)) is not None:
                    length = before[0] + getattr(arc, measure)
                    if length > best:
                        best, which = length, arc
            return best, which

        for net in self._order:
            name, arcs = self._drivers[net]
            length, arc = last(arcs)
            if arc is not None:
                settles[net] = length, name, arc
        ends = ((*last(arcs), name) for name, arcs in self._ends)
        _, arc, name = max(ends, key=lambda end: end[0], default=(0.0, None, ""))
        if arc is None:
            return None
        cells, path = [name], [arc]
        while path[-1].source is not None:
            _, name, arc = settles[path[-1].source]
            cells.append(name)
            path.append(arc)
        logic, routing = (
            sum(getattr(arc, part) for arc in path) for part in ("logic_ns", "routing_ns")
        )
        return Path(cells[::-1], sum(arc.levels for arc in path), logic, routing)


class _Flat:
    """Cells of a module and of the modules in it, with the names of the instances down to each."""

    def __init__(self, modules: Mapping[str, Mapping[str, Any]], name: str) -> None:
        self._modules = modules
        self._nets = 0
        self._same: dict[int, int | str] = {}
        self.cells: dict[str, dict[str, Any]] = {}
        self._add(name, "", {})
        for cell in self.cells.values():
            for port, bits in cell["connections"].items():
                cell["connections"][port] = [self._resolved(bit) for bit in bits]

    def _add(self, name: str, prefix: str, outer: dict[int | str, int | str]) -> None:
        """Add the cells of a module, whose nets have the names ``outer`` if they have one."""

        def net(bit: int | str) -> int | str:
            if isinstance(bit, int) and bit not in outer:
                self._nets += 1
                outer[bit] = self._nets
            return outer.get(bit, bit)

        for cell, item in self._modules[name]["cells"].items():
            nets = {port: [net(bit) for bit in bits] for port, bits in item["connections"].items()}
            if item["type"] not in self._modules:
                self.cells[prefix + cell] = {**item, "connections": nets}
                continue
            ports = self._modules[item["type"]]["ports"]
            inner: dict[int | str, int | str] = {}
            for port in sorted(nets, key=lambda port: ports[port]["direction"]):  # inputs first
                for bit, joined in zip(ports[port]["bits"], nets[port], strict=True):
                    if isinstance(bit, int) and bit not in inner:
                        inner[bit] = joined
                    elif isinstance(joined, int):
                        self._same[joined] = inner.get(bit, bit)
            self._add(item["type"], f"{prefix}{cell}.", inner)

    def _resolved(self, bit: int | str) -> int | str:
        """Return the net or constant that a module in between passes on as ``bit``."""
        while bit in self._same:
            bit = self._same[bit]
        return bit


def flattened(modules: Mapping[str, Mapping[str, Any]], name: str) -> Cells:
    """Return the cells of a module and of all modules in it, as one flat netlist."""
    return _Flat(modules, name).cells


def estimated(netlist: Mapping[str, Any], top: str) -> Route:
    """Return the longest path between registers of a flat netlist, by typical delays.

    Raises
    ------
    NoPathError
        If the netlist has no path between registers.
    """
    path = Timing(netlist["modules"][top]["cells"]).longest("ns")
    if path is None:
        raise NoPathError("the netlist has no path between registers")
    return Route.through(1000 / path.ns, path.cells, path.logic_ns, path.routing_ns)
