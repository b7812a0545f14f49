"""Design: an elaborated component, the blocks and the memories in it, and its modules.

A block is an instance of a component class of ``hw``. Amaranth writes a module for each.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amaranth.back import rtlil, verilog
from amaranth.hdl import Fragment, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

PACKAGE = __name__.partition("flow.")[0]
"""Start of the names of the Python modules whose components are blocks."""


@dataclass(frozen=True)
class Block:
    """An instance of a component.

    Parameters
    ----------
    kind : str
        Name of the class.
    module : str
        Name of the module in RTLIL: the names of the instances from the top down to the block.
    inputs, outputs : dict
        Wires of each port in the module, by the name of the port as in ``i[n].payload``. Elements
        of an array of ports are one port, and have a wire each.
    """

    kind: str
    module: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]


def port_name(path: tuple[str | int, ...]) -> str:
    """Return the name of a port, without the indices of arrays of ports.

    >>> port_name(("i", 3, "payload"))
    'i[n].payload'
    """
    return "".join("[n]" if isinstance(part, int) else f".{part}" for part in path)[1:]


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep the garbage collector from walking through a design while it grows, which takes half of
    the time and frees little.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _members(component: wiring.Component) -> Iterator[tuple[tuple, Any, Signal]]:
    """Yield path, direction and signal of each port that is not constant."""
    for path, member, value in component.signature.flatten(component):
        if isinstance(signal := Value.cast(value), Signal):
            yield path, member.flow, signal


class Design:
    """An elaborated component.

    Parameters
    ----------
    component : wiring.Component
        The component, which is elaborated here; it cannot be elaborated again.
    name : str
        Name of its module.
    platform : object, optional
        Platform of Amaranth, whose ``get_memory`` returns what stands in place of a memory.
    """

    def __init__(self, component: wiring.Component, name: str, platform: Any = None) -> None:
        ports = [
            ("__".join(map(str, path)), signal, None) for path, _, signal in _members(component)
        ]
        self.name = name
        with _without_collection():
            fragment = Fragment.get(component, platform)
            self._prepared = fragment.prepare(ports=ports, hierarchy=(name,))

    def rtlil(self, *, emit_src: bool = False) -> str:
        """Return all modules as RTLIL; ``emit_src``: with the lines of Python that made them."""
        with _without_collection():
            return rtlil.convert_fragment(self._prepared, name=self.name, emit_src=emit_src)[0]

    def verilog(self) -> str:
        """Return all modules as the Verilog that Yosys writes; see ``hw.flow.plain``."""
        with _without_collection():
            return verilog.convert_fragment(self._prepared, name=self.name, emit_src=False)[0]

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks, each behind the block that it is in."""
        for component, fragment in self._prepared.elaboratables.items():
            if not isinstance(component, wiring.Component):
                continue  # a queue of Amaranth
            if not type(component).__module__.startswith(PACKAGE):
                continue
            info = self._prepared.fragments[fragment]
            block = Block(type(component).__name__, ".".join(info.name), {}, {})
            for path, flow, signal in _members(component):
                ports = block.inputs if flow is In else block.outputs
                wires = ports.setdefault(port_name(path), [])
                if signal in info.signal_names:
                    wires.append(info.signal_names[signal])
            yield block

    def memories(self) -> Iterator[dict[str, Any]]:
        """Yield the memories, with the contents that ``tma.json`` has for each.

        ``name`` is the names of the instances from the top, which is left out, down to the memory.
        ``depth`` counts rows, and ``width`` bits of a row. ``reads`` has an entry for each read
        port: ``clocked`` if the data comes from a register, else ``same clock``. ``writes`` has the
        bits of a row that each write port writes together.
        """
        for memory, fragment in self._prepared.elaboratables.items():
            if not isinstance(memory, Memory):
                continue
            width = Shape.cast(memory.shape).width
            yield {
                "name": ".".join(self._prepared.fragments[fragment].name[1:]),
                "depth": memory.depth,
                "width": width,
                "reads": [
                    "same clock" if port.domain == "comb" else "clocked"
                    for port in memory.read_ports
                ],
                "writes": [width // len(port.en) for port in memory.write_ports],
            }
