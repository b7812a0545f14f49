"""Engines of Amaranth's simulator: one simulates a netlist, and one notes what tests look at."""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from amaranth.hdl import Fragment, MemoryData, Signal, Value
from amaranth.hdl._ir import Design, PortDirection
from amaranth.lib import wiring
from amaranth.sim._base import BaseProcess
from amaranth.sim.pysim import PySimEngine

from sim_tb.mutation.blocks.netlist import TOP, Compiled, Port

Path = tuple[str, ...]
"""Names of the instances from the top, which is left out, down to a signal, and its name."""


class MutantError(AssertionError):
    """A netlist with a mutant asserts, never settles, or takes too many clocks."""


def kind(prepared: Any) -> str:
    """Return the name of the class that a design of Amaranth is an instance of, or ``""``."""
    for component, fragment in prepared.elaboratables.items():
        if fragment is prepared.fragment:
            return f"{type(component).__module__}.{type(component).__qualname__}"
    return ""


def signal_paths(prepared: Any) -> Iterator[tuple[Signal, Path]]:
    """Yield the signals of a design, and the path of each where it is in the outermost module."""
    for signal, fragment in prepared.signal_lca.items():
        info = prepared.fragments[fragment]
        if signal in info.signal_names:
            yield signal, (*info.name[1:], info.signal_names[signal])


def _driven(prepared: Any) -> set[int]:
    """Return the identities of the signals that a design drives."""
    driven: set[int] = set()
    for fragment in prepared.fragments:
        for statements in fragment.statements.values():
            driven.update(id(signal) for signal in statements._lhs_signals())
        for port in getattr(fragment, "_read_ports", ()):
            driven.update(id(signal) for signal in port._data._lhs_signals())
    return driven


def _members(prepared: Any) -> Iterator[Signal]:
    """Yield the ports of the component at the top, if there is one."""
    for component, fragment in prepared.elaboratables.items():
        if fragment is prepared.fragment and isinstance(component, wiring.Component):
            for _, _, value in component.signature.flatten(component):
                if isinstance(signal := Value.cast(value), Signal):
                    yield signal


def compiled(prepared: Any, read: set[Path], build: Callable[..., Compiled]) -> Compiled:
    """Compile a design; its ports, and the signals that tests read, are ports of the netlist.

    Parameters
    ----------
    prepared : Design of Amaranth
        The block that a test simulates.
    read : set of Path
        Signals that tests read.
    build : callable
        Returns the netlist of a design, its inputs and its outputs.
    """
    driven = _driven(prepared)
    named = {id(signal): path for signal, path in signal_paths(prepared)}
    members = {id(signal) for signal in _members(prepared)}
    inputs, outputs = [], []
    for signal in prepared.signal_lca:
        if id(signal) not in driven:
            inputs.append(signal)
        elif id(signal) in members or named.get(id(signal)) in read:
            outputs.append(signal)
    ports = [(f"i{n}", signal, PortDirection.Input) for n, signal in enumerate(inputs)]
    ports += [(f"o{n}", signal, PortDirection.Output) for n, signal in enumerate(outputs)]
    return build(Design(prepared.fragment, ports, hierarchy=(TOP,)), inputs, outputs)


class NetlistProcess(BaseProcess):  # type: ignore[misc]
    """Netlist as a process of the simulator: it runs when an input changes."""

    def __init__(self, state: Any, netlist: Compiled, mutant: int) -> None:
        self._netlist = netlist
        self._mutant = mutant
        self._slots = [state.slots[state.get_signal(port.signal)] for port in netlist.outputs]
        self._inputs = [state.slots[state.get_signal(port.signal)] for port in netlist.inputs]
        last = netlist.inputs[-1]
        self._given = (ctypes.c_uint32 * (last.word + last.words))()
        self._view = memoryview(self._given).cast("B")
        ends = [port.word + port.words for port in netlist.outputs]
        self._taken = (ctypes.c_uint32 * max([1, *ends]))()
        self._handle: int | None = None
        for number, port in enumerate(netlist.inputs):
            state.add_signal_waker(port.signal, self._waker(number))
        self.reset()

    def __del__(self) -> None:
        if self._handle is not None:
            self._netlist.library.destroy(self._handle)

    def _waker(self, number: int) -> Callable[[int, int], bool]:
        def waker(curr: int, after: int) -> bool:
            del curr
            self._changed[number] = after
            self.runnable = True
            return True

        return waker

    def reset(self) -> None:
        """Begin from the initial state."""
        if self._handle is not None:
            self._netlist.library.destroy(self._handle)
        self._handle = self._netlist.library.create(self._mutant)
        self._last = b""
        self._changed = {number: slot.signal.init for number, slot in enumerate(self._inputs)}
        self.runnable = True
        self.critical = False

    def run(self) -> None:
        """Give the netlist the inputs that changed, and take its outputs."""
        self.runnable = False
        for number, value in self._changed.items():
            port = self._netlist.inputs[number]
            value &= (1 << len(port.signal)) - 1
            first, end = 4 * port.word, 4 * (port.word + port.words)
            self._view[first:end] = int(value).to_bytes(end - first, "little")
        self._changed.clear()
        status = self._netlist.library.settle(self._handle, self._given, self._taken)
        if status:
            raise MutantError("an assertion failed" if status == 1 else "a loop oscillates")
        taken = bytes(self._taken)
        if taken == self._last:
            return
        for port, slot in zip(self._netlist.outputs, self._slots, strict=True):
            first, end = 4 * port.word, 4 * (port.word + port.words)
            if (word := taken[first:end]) != self._last[first:end]:
                slot.update(_value(port, word))
        self._last = taken


def _value(port: Port, word: bytes) -> int:
    value = int.from_bytes(word, "little")
    width = len(port.signal)
    if port.signal.shape().signed and value >> (width - 1):
        value -= 1 << width
    return value


class NetlistEngine(PySimEngine):  # type: ignore[misc]
    """Simulates a block as a netlist; clocks and testbenches are those of Amaranth.

    ``compile`` returns the netlist of a design. ``begins`` is called then, and after it, ``mutant``
    is the number of the mutant in the netlist. ``advanced`` is called with the netlist for each
    step in time.
    """

    compile: Callable[[Any], Compiled]
    begins: Callable[[], None]
    mutant: int
    advanced: Callable[[Compiled], None]

    def __init__(self, design: Any) -> None:
        super().__init__(Fragment().prepare())
        self._design = design
        self._netlist = type(self).compile(design)
        type(self).begins()
        self._processes.add(NetlistProcess(self._state, self._netlist, self.mutant))

    def advance(self) -> bool:
        """Go to the next point in time."""
        type(self).advanced(self._netlist)
        going: bool = super().advance()
        return going


class NotingEngine(PySimEngine):  # type: ignore[misc]
    """Amaranth's engine; it tells what a test reads.

    ``advanced`` is called with the design for each step in time, ``reads`` with the design and the
    path of a signal, or None for a memory.
    """

    advanced: Callable[[Any], None]
    reads: Callable[[Any, Path | None], None]

    def __init__(self, design: Any) -> None:
        super().__init__(design)
        self._paths = {id(signal): path for signal, path in signal_paths(design)}

    def advance(self) -> bool:
        """Go to the next point in time."""
        type(self).advanced(self._design)
        going: bool = super().advance()
        return going

    def get_value(self, expr: Any) -> int:
        """Return the value of an expression."""
        value = Value.cast(expr)
        if isinstance(value, MemoryData._Row):
            type(self).reads(self._design, None)
        else:
            for signal in value._rhs_signals():
                if (path := self._paths.get(id(signal))) is not None:
                    type(self).reads(self._design, path)
        result: int = super().get_value(expr)
        return result
