"""Routes: the critical path of a placed unit, and an estimate for a unit that is not placed.

The signals of a path have their names of the Amaranth sources.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

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


class NoPathError(Exception):
    """A netlist or report has no path between registers."""


@dataclass(frozen=True)
class Route:
    """The critical path of a unit.

    Parameters
    ----------
    mhz : float
        Highest clock frequency.
    start, end : str
        Registers or memories at the ends of the path.
    blocks : tuple of str
        Blocks that the path goes through.
    logic_ns, routing_ns : float
        The two parts of the delay.
    """

    mhz: float
    start: str
    end: str
    blocks: tuple[str, ...]
    logic_ns: float
    routing_ns: float

    @classmethod
    def through(cls, mhz: float, cells: list[str], logic_ns: float, routing_ns: float) -> "Route":
        """Return the route that goes through the mapped ``cells`` in order."""
        signals = [signal_of(cell) for cell in cells]
        blocks = dict.fromkeys(block_of(signal) for signal in signals if signal)
        return cls(mhz, signals[0], signals[-1], tuple(blocks), logic_ns, routing_ns)

    @property
    def path(self) -> str:
        """The path as text: start, blocks between, end."""
        inside = [block for block in self.blocks if block not in map(block_of, self._ends)]
        return " -> ".join((self.start, *inside, self.end))

    @property
    def _ends(self) -> tuple[str, str]:
        return self.start, self.end


def signal_of(cell: str) -> str:
    """Return the Amaranth signal or memory that a mapped cell is named after.

    >>> signal_of("setup_block.job_TRELLIS_FF_Q_12_DI_LUT4_Z_C")
    'setup_block.job'
    """
    name = re.split(r"_(?:TRELLIS_FF|LUT4|CCU2C|MULT18X18D|DP16KD)(?:_|$)", cell)[0]
    name = re.sub(r"\$.*$|\[\d+\]$|_(?:DO|DI|RAD|WAD|WRE)(?:_\d+)?$", "", name)
    return re.sub(r"(?:\.\d+)+$", "", name)


def block_of(signal: str) -> str:
    """Return the block of a signal; for a port of the unit, the name of the port.

    >>> block_of("setup_block.item_sequencer.item")
    'setup_block.item_sequencer'
    """
    return signal.rpartition(".")[0] or signal.partition("__")[0]


def read_route(report: dict[str, Any]) -> Route:
    """Return the longest path between registers of a report of nextpnr.

    Raises
    ------
    NoPathError
        If there is none.
    """
    (clock,) = report["fmax"].values()
    paths = [
        path["path"]
        for path in report["critical_paths"]
        if path["from"] == path["to"] and path["from"].startswith("posedge")
    ]
    if not paths:
        raise NoPathError("nextpnr's report has no path between registers")
    path = max(paths, key=lambda steps: sum(step["delay"] for step in steps))
    cells = [path[0]["from"]["cell"], *(step["to"]["cell"] for step in path)]
    delay = dict.fromkeys(("logic", "routing"), 0.0)
    for step in path:
        delay["routing" if step["type"] == "routing" else "logic"] += step["delay"]
    return Route.through(clock["achieved"], cells, delay["logic"], delay["routing"])


@dataclass(frozen=True)
class Arc:
    """A path through a cell and the net in front of it.

    Parameters
    ----------
    cell : str
        Name of the cell.
    source : int, optional
        Net in front of the cell; None if the path starts at the clock.
    logic_ns, routing_ns : float
        Delays of the cell and of the net.
    """

    cell: str
    source: int | None
    logic_ns: float
    routing_ns: float


def _port_delays(cell: dict[str, Any]) -> Iterator[tuple[str | None, str, float]]:
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
        yield "RAD", "DO", READ_NS
    elif kind == "CCU2C":
        for port in inputs:
            through = CARRY_NS if port == "CIN" else SUM_NS
            yield from ((port, out, through if out == "COUT" else SUM_NS) for out in outputs)
    else:
        through = PRODUCT_NS if kind.startswith("MULT") else LUT_NS
        yield from ((port, out, through) for port in inputs for out in outputs)


def estimated(netlist: dict[str, Any], top: str) -> Route:
    """Return the longest path of a netlist that Yosys mapped to an ECP5, by typical delays.

    Raises
    ------
    NoPathError
        If the netlist has no path between registers.
    """
    cells = netlist["modules"][top]["cells"]
    fanout = Counter(
        bit
        for cell in cells.values()
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == "input"
        for bit in bits
    )
    arcs: dict[int, list[Arc]] = {}
    ends: list[Arc] = []
    for name, cell in cells.items():
        nets = {
            port: [bit for bit in bits if isinstance(bit, int)]
            for port, bits in cell["connections"].items()
        }
        for port, out, logic in _port_delays(cell):
            for source in [None] if port is None else nets.get(port, []):
                direct = source is None or port == "CIN"
                routing = 0.0 if direct else NET_NS + FANOUT_NS * math.log2(fanout[source])
                arc = Arc(name, source, logic, routing)
                ends += [arc] * (not out)
                for net in nets.get(out, []):
                    arcs.setdefault(net, []).append(arc)

    # Time at which a net settles, and its last arc. Inputs of the unit settle at the clock.
    settles: dict[int | None, tuple[float, Arc | None]] = {None: (0.0, None)}

    def end_of(arc: Arc) -> float:
        """Return the time at which the output of an arc settles."""
        return settles.get(arc.source, (0.0, None))[0] + arc.logic_ns + arc.routing_ns

    graph = {net: {arc.source for arc in into} - {None} for net, into in arcs.items()}
    for net in TopologicalSorter(graph).static_order():
        last = max(arcs.get(net, ()), key=end_of, default=None)
        settles[net] = (end_of(last) if last else 0.0, last)
    path: list[Arc] = []
    step = max(ends, key=end_of, default=None)
    if step is None:
        raise NoPathError("the netlist has no path between registers")
    delay = end_of(step)
    while step is not None:
        path.insert(0, step)
        step = settles.get(step.source, (0.0, None))[1]
    return Route.through(
        1000 / delay,
        [arc.cell for arc in path],
        sum(arc.logic_ns for arc in path),
        sum(arc.routing_ns for arc in path),
    )
