"""Routes: the critical path of a placed unit, and what it would be of one that is not placed.

The signals of a path are named as in the Amaranth sources.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

LUT_NS, CARRY_NS, SUM_NS, READ_NS, PRODUCT_NS = 0.24, 0.07, 0.45, 0.24, 2.5
"""Through a LUT or multiplexer, a carry cell, from an operand to its sum, distributed RAM, and a
multiplier."""

CLOCKED_NS = {"TRELLIS_FF": 0.5, "DP16KD": 3.0}
"""From the clock to the outputs of what has no other way through."""

NET_NS, FANOUT_NS = 0.5, 0.13
"""Of a net to one place, and for each doubling of the places. All are typical of an ECP5 of speed
grade 8; placed and routed, small units are faster by a quarter than these say, larger ones not."""


class NoPathError(Exception):
    """There is no path between registers."""


@dataclass(frozen=True)
class Route:
    """A unit, placed and routed.

    Parameters
    ----------
    mhz : float
        Fastest clock.
    start, end : str
        Registers, or memories, of the critical path.
    blocks : tuple of str
        Through which it leads.
    logic_ns, routing_ns : float
        What its delay consists of.
    """

    mhz: float
    start: str
    end: str
    blocks: tuple[str, ...]
    logic_ns: float
    routing_ns: float

    @classmethod
    def through(cls, mhz: float, cells: list[str], logic_ns: float, routing_ns: float) -> "Route":
        """The route from the first of the mapped ``cells`` to the last."""
        signals = [signal_of(cell) for cell in cells]
        blocks = dict.fromkeys(block_of(signal) for signal in signals if signal)
        return cls(mhz, signals[0], signals[-1], tuple(blocks), logic_ns, routing_ns)

    @property
    def path(self) -> str:
        """The path, readable."""
        inside = [block for block in self.blocks if block not in map(block_of, self._ends)]
        return " -> ".join((self.start, *inside, self.end))

    @property
    def _ends(self) -> tuple[str, str]:
        return self.start, self.end


def signal_of(cell: str) -> str:
    """The Amaranth signal or memory that a mapped cell is named after.

    >>> signal_of("setup_block.job_TRELLIS_FF_Q_12_DI_LUT4_Z_C")
    'setup_block.job'
    """
    name = re.split(r"_(?:TRELLIS_FF|LUT4|CCU2C|MULT18X18D|DP16KD)(?:_|$)", cell)[0]
    name = re.sub(r"\$.*$|\[\d+\]$|_(?:DO|DI|RAD|WAD|WRE)(?:_\d+)?$", "", name)
    return re.sub(r"(?:\.\d+)+$", "", name)


def block_of(signal: str) -> str:
    """The block that a signal is in: of one of the unit itself, its name.

    >>> block_of("setup_block.item_sequencer.item")
    'setup_block.item_sequencer'
    """
    return signal.rpartition(".")[0] or signal.partition("__")[0]


def read_route(report: dict[str, Any]) -> Route:
    """Return what nextpnr's report says of the paths between registers."""
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
    """A way through a cell, from a net to a net, with the delays of both.

    ``source`` is None where the clock is.
    """

    cell: str
    source: int | None
    logic_ns: float
    routing_ns: float


def _ways(cell: dict[str, Any]) -> Iterator[tuple[str | None, str, float]]:
    """The ways through a mapped cell: from which port, None for the clock; to which; and how long.
    Those that end at the clock are to "".
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
    """Return the longest path of a netlist that Yosys mapped to an ECP5, by typical delays."""
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
        for port, out, logic in _ways(cell):
            for source in [None] if port is None else nets.get(port, []):
                direct = source is None or port == "CIN"
                routing = 0.0 if direct else NET_NS + FANOUT_NS * math.log2(fanout[source])
                arc = Arc(name, source, logic, routing)
                ends += [arc] * (not out)
                for net in nets.get(out, []):
                    arcs.setdefault(net, []).append(arc)

    # When a net settles, and through what: nothing but the clock is in front of an input.
    settles: dict[int | None, tuple[float, Arc | None]] = {None: (0.0, None)}

    def after(arc: Arc) -> float:
        return settles.get(arc.source, (0.0, None))[0] + arc.logic_ns + arc.routing_ns

    graph = {net: {arc.source for arc in into} - {None} for net, into in arcs.items()}
    for net in TopologicalSorter(graph).static_order():
        last = max(arcs.get(net, ()), key=after, default=None)
        settles[net] = (after(last) if last else 0.0, last)
    path: list[Arc] = []
    step = max(ends, key=after, default=None)
    if step is None:
        raise NoPathError("the netlist has no path between registers")
    delay = after(step)
    while step is not None:
        path.insert(0, step)
        step = settles.get(step.source, (0.0, None))[1]
    return Route.through(
        1000 / delay,
        [arc.cell for arc in path],
        sum(arc.logic_ns for arc in path),
        sum(arc.routing_ns for arc in path),
    )
