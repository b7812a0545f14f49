"""Bits of a toy on which its outputs depend, across modules, registers and memories."""

import json
from functools import cache
from pathlib import Path

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.flow import yosys
from hw.flow.cache import cached, digest
from hw.flow.design import Design
from hw.flow.observed import Netlist

SCRIPT = "read_rtlil design.il; hierarchy -auto-top; proc; opt_clean; memory_collect; write_json it"


class Inner(wiring.Component):
    """A register, of which one bit is gated, and a memory."""

    i: In(3)
    enable: In(1)
    o: Out(6)

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=3, depth=4, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        q = Signal(3)
        m.d.sync += q.eq(self.i ^ q)
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(self.i),
            write.data.eq(q + self.i),
            read.addr.eq(self.i),
            self.o.eq(Cat(q[0], q[1] & self.enable, q[2], read.data)),
        ]
        return m


class Outer(wiring.Component):
    """It never enables the gate, and does not read bit 2 of the register and the memory."""

    i: In(3)
    o: Out(4)

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.inner = inner = Inner()
        never = Signal()
        m.d.sync += never.eq(never & self.i[0])
        m.d.comb += [
            inner.i.eq(self.i),
            inner.enable.eq(never),
            self.o.eq(Cat(inner.o[:2], inner.o[3:5])),
        ]
        return m


@cache
def netlist() -> tuple[Netlist, dict]:
    """Return the toy, and its modules as Yosys writes them."""
    design = Design(Outer(), "outer").rtlil()

    def make(directory: Path) -> None:
        (directory / "design.il").write_text(design)
        yosys.run(SCRIPT, directory)

    directory = cached("observed_toy", digest([design, SCRIPT]), make)
    modules = json.loads((directory / "it").read_text())["modules"]
    return Netlist(modules, "outer"), modules


def pins(kind: str, port: str, module: str = "outer.inner") -> list:
    """Return the bits of a port of the only cell of a type in a module."""
    cells = netlist()[1][module]["cells"]
    (name,) = (name for name, cell in cells.items() if cell["type"] == kind)
    bits = range(len(cells[name]["connections"][port]))
    return [((module, name), port, bit) for bit in bits]


@pytest.mark.parametrize(
    ("kind", "port", "observed"),
    [
        ("$xor", "A", [True, True, False]),  # the memory has the sums of the lower bits
        ("$dff", "Q", [True, True, False]),
        ("$add", "A", [True, True, False]),
        ("$mem_v2", "WR_DATA", [True, True, False]),
        ("$mem_v2", "WR_ADDR", [True, True]),
        ("$and", "A", [False]),  # it is never enabled
        ("$and", "B", [True]),  # but what enables it would be noticed
    ],
)
def test_what_the_outputs_depend_on(kind: str, port: str, observed: list[bool]) -> None:
    assert [netlist()[0].is_observed(pin) for pin in pins(kind, port)] == observed


def test_constants() -> None:
    """A register keeps its first contents if it can have no others."""
    unit = netlist()[0]
    assert [unit.constant(pin) for pin in pins("$dff", "Q", "outer")] == ["0"]
    assert [unit.constant(pin) for pin in pins("$and", "Y")] == ["0"]
    assert [unit.constant(pin) for pin in pins("$dff", "Q")] == [None] * 3


def test_modules_are_no_cells() -> None:
    assert ("outer", "inner") not in netlist()[0]
    with pytest.raises(KeyError):
        netlist()[0].is_observed((("outer", "inner"), "i", 0))


def test_a_module_is_in_the_unit_once() -> None:
    cell = {"type": "part", "connections": {}}
    part = {"cells": {}, "ports": {}, "netnames": {}}
    modules = {"unit": part | {"cells": {"one": cell, "other": cell}}, "part": part}
    with pytest.raises(ValueError, match="module part: is in the unit 2 times, not once"):
        Netlist(modules, "unit")
