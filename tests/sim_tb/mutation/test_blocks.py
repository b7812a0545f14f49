"""Blocks' own tests on mutants: the mutants of a free list, judged by the tests of queues."""

import json
from functools import cache
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import pysim

from hw.flow.cache import sources
from hw.flow.design import Design
from hw.flow.mutate import Mutant, planted
from hw.lib.free_list import FreeList
from sim_tb.mutation.blocks import engine
from sim_tb.mutation.blocks.judge import BlockTests, run_pytest
from sim_tb.mutation.blocks.netlist import (
    Cell,
    Cells,
    Compiled,
    counterpart,
    transplanted,
    unit_cells,
)
from tests.hw.simulate import Simulation

KEY = [sources("hw"), Path(__file__).read_text()]


def unit() -> Design:
    return Design(FreeList(8), "unit")


@cache
def cells() -> Path:
    return unit_cells(unit, KEY)


@cache
def block_tests() -> BlockTests:
    """Return the tests of the order of short queues as judges of the mutants."""
    tests = BlockTests(planted(unit, KEY, 12).planted, cells())
    _, tests.notes = run_pytest(
        ["tests/hw/lib/test_queue.py", "-k", "test_order and 3"], {}, "notes"
    )
    return tests


def test_mutants_of_a_class_are_judged_by_its_tests():
    tests = block_tests()
    assert tests.fitness("Queue", 0)["failed"] == []
    assert tests.clocks > 400
    queues = [mutant for mutant in tests.planted if mutant.block == "Queue"]
    killed_by = tests.judge(queues)
    assert queues
    assert all("test_order" in killer for killer in killed_by.values())
    assert len(killed_by) > len(queues) // 2


def test_other_classes_have_no_judge():
    tests = block_tests()
    others = [mutant for mutant in tests.planted if mutant.block != "Queue"]
    assert others
    assert all(tests.judges(mutant) == [] for mutant in others)
    assert not tests.judge(others)


def test_tests_in_the_file_of_a_class_are_its_judges():
    """They are, whatever is beside the block; otherwise, those with the fewest blocks beside it."""
    tests = BlockTests([], cells())
    outer = {
        "tests/hw/generate/test_run_walker.py::a": ["RunWalker"],
        "tests/hw/generate/test_run_walker.py::b": ["RunWalker", "RowPreparation"],
        "tests/hw/lib/test_lib.py::c": ["RunWalker"],
        "tests/hw/lib/test_lib.py::d": ["Queue", "RowPreparation"],
    }
    tests.notes = {"tests": {name: {"outer": outer[name], "seconds": 1} for name in outer}}
    a, b, _, d = outer
    assert tests.tests("RunWalker") == [a, b]
    assert tests.tests("RowPreparation") == [b, d]
    assert tests.tests("Queue") == [d]
    assert tests.tests("Walker") == []


def cell(name: str, kind: str = "$add", source: str = "a.py:1", width: int = 8) -> Cell:
    return Cell(name, kind, source, {"A": width, "Y": width}, [])


@pytest.mark.parametrize(
    ("name", "found"),
    [("$1", "$10"), ("$2", "$11"), ("$3", "$13"), ("$4", None), ("part", "part"), ("other", None)],
)
def test_a_counterpart_is_of_the_same_line_and_type(name, found):
    here = [cell("$1"), cell("$2"), cell("$3", "$sub"), cell("$4", source="b.py:1")]
    here += [cell("part", ""), cell("other", "")]
    there = [
        cell("$10"),
        cell("$11"),
        cell("$12"),
        cell("$13", "$sub"),
        cell("$14", "$and"),
        cell("part", ""),
    ]
    wanted = next(each for each in here if each.name == name)
    counter, is_exact = counterpart(wanted, here, there)
    assert (counter.name if counter else None) == found
    assert is_exact == (name in ("$3", "part", "other"))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("-port A -portbit 6", "-port A -portbit 3"),
        ("-port Y -portbit 7 -ctrlbit 6", "-port Y -portbit 3 -ctrlbit 0"),
        ("-port B -portbit 0", None),
    ],
)
def test_bits_of_another_width(options, found):
    here = Cells({"top.one.queue": [cell("$1")]}, {"top": "Top", "top.one.queue": "Queue"})
    there = Cells(
        {"top.queue": [], "top.one.queue": [cell("$5", width=4)]},
        {"top.queue": "Queue", "top.one.queue": "Queue"},
    )
    mutant = Mutant(1, "Queue", f"-mode inv -module top.one.queue -cell $1 {options}")
    wanted = f"-mode inv -module top.one.queue -cell $5 {found}" if found else None
    place = transplanted(mutant, here, there)
    assert (place.options if place else None) == wanted
    assert place is None or not place.is_exact


class Sum(wiring.Component):
    """Signed sum of what came in, with a register that is no port."""

    i: In(70)
    total: Out(signed(80))

    def __init__(self) -> None:
        super().__init__()
        self.last = Signal(70)

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.d.sync += [self.last.eq(self.i), self.total.eq(self.total - self.i)]
        return m


def test_a_netlist_behaves_as_the_block(monkeypatch):
    """Ports of several words and signed ports are read, and signals inside if they are named."""

    def compiled(design):
        return engine.compiled(
            design, {("last",)}, lambda *parts: Compiled(*parts, mutants=[], unit=cells())
        )

    def values() -> list[tuple[int, int]]:
        dut, read = Sum(), []
        simulation = Simulation(dut)

        async def drive(ctx):
            for number in (1, 2**69, 5 << 40, 2**70 - 1):
                ctx.set(dut.i, number)
                await ctx.tick()
                read.append((ctx.get(dut.total), ctx.get(dut.last)))

        simulation.run(drive)
        simulation.run(drive)
        return read

    expected = values()
    steps = []
    monkeypatch.setattr(engine.NetlistEngine, "compile", staticmethod(compiled), raising=False)
    monkeypatch.setattr(engine.NetlistEngine, "begins", staticmethod(lambda: None), raising=False)
    monkeypatch.setattr(engine.NetlistEngine, "mutant", 0, raising=False)
    monkeypatch.setattr(
        engine.NetlistEngine, "advanced", staticmethod(lambda _: steps.append(1)), raising=False
    )
    monkeypatch.setattr(pysim, "PySimEngine", engine.NetlistEngine)
    assert values() == expected
    assert steps
    assert expected[:4] == expected[4:]


def test_cells_are_kept_as_text():
    read = Cells.from_json(cells().read_text())
    assert Cells.from_json(read.to_json()) == read
    assert json.loads(cells().read_text())["blocks"]["unit"] == "FreeList"
