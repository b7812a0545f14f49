"""Routes: the critical path of a unit, with the names of its signals in the Amaranth sources."""

import re
from dataclasses import dataclass
from typing import Any


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
    """Return the Amaranth signal or memory that a mapped cell is named after; its block, if the
    signal has no name.

    >>> signal_of("setup_block.job_TRELLIS_FF_Q_12_DI_LUT4_Z_C")
    'setup_block.job'
    """
    name = re.split(r"_(?:TRELLIS_FF|LUT4|CCU2C|MULT18X18D|DP16KD)(?:_|$)", cell)[0]
    name = re.sub(r"\.?\$.*$|\[\d+\]$|_(?:DO|DI|RAD|WAD|WRE)(?:_\d+)?$", "", name)
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
