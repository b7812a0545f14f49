"""Reach: the inputs of a module that an output follows from in the same clock.

The netlists are those of Yosys before it maps them to a technology. Registers and write ports of
memories end a path, and so do read ports with a register; a read port without one passes it from
the address to the data.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hw.flow.modules import Module

CLOCK = "clk"

REGISTERED = ("$dff", "$sdff", "$adff", "$aldff", "$memwr", "$meminit", "$print", "$check")
"""Starts of the types of cells without a combinational path."""

BITWISE = {"$and", "$or", "$xor", "$xnor", "$not", "$pos", "$mux", "$bwmux", "$pmux"}
"""Cells whose outputs follow from the bits of the operands at the same place, and from ``S``."""

Node = int | tuple[str, int]
"""A net, or what several outputs of a cell follow from: name of the cell, and a number."""


class LoopError(Exception):
    """A module has a combinational loop."""


class Reach:
    """Combinational paths of modules, found once for each module.

    Parameters
    ----------
    modules : Mapping
        Netlist of each module, by name.
    """

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self._modules = modules
        self._masks: dict[str, dict[Node, int]] = {}

    def inputs(self, name: str) -> list[int]:
        """Return the nets of a module's inputs, without the clock."""
        return [
            bit
            for port, item in self._modules[name]["ports"].items()
            if item["direction"] == "input" and port != CLOCK
            for bit in item["bits"]
        ]

    def masks(self, name: str) -> dict[Node, int]:
        """Return the inputs that each net of a module follows from.

        Bit i of a number stands for ``inputs(name)[i]``. Nets without a number follow from none.

        Raises
        ------
        LoopError
            If the module has a combinational loop.
        """
        if name not in self._masks:
            sources: dict[Node, list[Node]] = {}
            for cell, item in self._modules[name]["cells"].items():
                for target, nodes in self._arcs(cell, item):
                    sources.setdefault(target, []).extend(nodes)
            masks: dict[Node, int] = {bit: 1 << i for i, bit in enumerate(self.inputs(name))}
            _propagate(name, sources, masks)
            self._masks[name] = masks
        return self._masks[name]

    def ports(
        self, name: str, inputs: Mapping[str, Iterable[str]], outputs: Mapping[str, Iterable[str]]
    ) -> Iterator[tuple[str, str]]:
        """Yield the combinational paths between the ports of a block.

        Parameters
        ----------
        name : str
            The module of the block.
        inputs, outputs : Mapping
            Wires of each port, by the name of the port. What the module has as input beside them
            goes by the name of its wire.
        """
        module, masks = self._modules[name], self.masks(name)
        place = {bit: i for i, bit in enumerate(self.inputs(name))}
        by_port: dict[str, int] = {}
        for port, wires in inputs.items():
            by_port[port] = _union(1 << place[bit] for bit in _bits(module, wires) if bit in place)
        named = _union(by_port.values())
        for port, item in module["ports"].items():
            if item["direction"] == "input" and port != CLOCK:
                others = _union(1 << place[bit] for bit in item["bits"]) & ~named
                by_port[port] = by_port.get(port, 0) | others
        for out, wires in outputs.items():
            mask = _union(masks.get(bit, 0) for bit in _bits(module, wires))
            yield from ((port, out) for port, bits in by_port.items() if bits & mask)

    def _arcs(self, cell: str, item: Mapping[str, Any]) -> Iterator[tuple[Node, list[Node]]]:
        """Yield outputs of a cell, and what they follow from."""
        kind, nets = item["type"], item["connections"]
        if kind in self._modules:
            yield from self._instance_arcs(cell, kind, nets)
        elif kind.startswith("$memrd"):
            if int(item["parameters"]["CLK_ENABLE"], 2) == 0:
                yield from _all_to_all(cell, nets["ADDR"], nets["DATA"])
        elif kind in BITWISE:
            width = len(nets["Y"])
            shared = (cell, 0)
            yield shared, _nets(nets.get("S", ()))
            for place, out in enumerate(nets["Y"]):
                operands = [nets["A"][min(place, len(nets["A"]) - 1)]]
                if "B" in nets:
                    operands += nets["B"][min(place, len(nets["B"]) - 1) :: width]
                yield out, [shared, *_nets(operands)]
        elif not kind.startswith(REGISTERED):
            directions = item["port_directions"]
            ins = [
                bit for port, bits in nets.items() if directions[port] == "input" for bit in bits
            ]
            outs = [
                bit for port, bits in nets.items() if directions[port] == "output" for bit in bits
            ]
            yield from _all_to_all(cell, ins, outs)

    def _instance_arcs(
        self, cell: str, kind: str, nets: Mapping[str, Sequence[int | str]]
    ) -> Iterator[tuple[Node, list[Node]]]:
        """Yield the arcs through an instance of another module."""
        ports, masks = self._modules[kind]["ports"], self.masks(kind)
        outer = dict(
            pair
            for port, item in ports.items()
            if port in nets and item["direction"] == "input"
            for pair in zip(item["bits"], nets[port], strict=True)
        )
        feeds = [outer.get(bit) for bit in self.inputs(kind)]
        numbers: dict[int, int] = {}
        for port, item in ports.items():
            if item["direction"] != "output" or port not in nets:
                continue
            for inner, out in zip(item["bits"], nets[port], strict=True):
                if mask := masks.get(inner, 0):
                    if mask not in numbers:
                        numbers[mask] = len(numbers)
                        used = [bit for i, bit in enumerate(feeds) if mask >> i & 1]
                        yield (cell, numbers[mask]), _nets(used)
                    yield out, [(cell, numbers[mask])]


def _nets(bits: Iterable[int | str | None]) -> list[Node]:
    """Return the nets among bits, of which some are constants."""
    return [bit for bit in bits if isinstance(bit, int)]


def _all_to_all(
    cell: str, ins: Iterable[int | str], outs: Iterable[int]
) -> Iterator[tuple[Node, list[Node]]]:
    """Yield the arcs of a cell whose outputs follow from all of its inputs."""
    yield (cell, 0), _nets(ins)
    yield from ((out, [(cell, 0)]) for out in outs)


def _bits(module: Module, wires: Iterable[str]) -> Iterator[int]:
    """Yield the nets of wires; Yosys leaves out a wire that nothing uses."""
    names = module["netnames"]
    return (bit for wire in wires if wire in names for bit in names[wire]["bits"])


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _propagate(name: str, sources: Mapping[Node, list[Node]], masks: dict[Node, int]) -> None:
    """Add the masks of all nodes to those of the inputs, each behind those that it follows from."""
    entered: set[Node] = set()
    for root in sources:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in masks:
                stack.pop()
                continue
            waiting = [item for item in sources[node] if item in sources and item not in masks]
            if not waiting:
                masks[node] = _union(masks.get(item, 0) for item in sources[node])
                stack.pop()
            elif node in entered:
                raise LoopError(f"module {name}: combinational loop through {node}")
            else:
                entered.add(node)
                stack += waiting
