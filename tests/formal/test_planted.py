"""Planted bugs of ``make formal``: each one changes the design that its proof looks at."""

import re
from functools import cache
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal

from tests.formal.inside import Inside
from tests.formal.proof import AREAS, Run, runs

ADDRESSES = Path(__file__).parents[2] / "docs" / "addresses.md"

PLANTED = [run for area in AREAS for run in runs(area) if run.bug is not None]


@cache
def netlist_without_bug(area: str, number: int) -> str:
    return next(run for run in runs(area) if run.number == number and run.bug is None).netlist()


@pytest.mark.parametrize("run", PLANTED, ids=lambda run: run.name.replace(" ", "_"))
def test_the_design_is_changed(run: Run) -> None:
    assert run.netlist() != netlist_without_bug(run.area, run.number)


def test_the_page_about_addresses_names_proofs() -> None:
    areas = "lemmas", "items", "clip", "products", "generator", "columns"
    proofs = {run.name for area in areas for run in runs(area) if run.bug is None}
    odometer = {run.name for run in runs("odometer") if run.bug is None}
    rows = "".join(line for line in ADDRESSES.read_text().splitlines() if line.startswith("| "))
    quoted = {name for name in re.findall("`([^`]*)`", rows) if ": " in name}
    assert quoted - odometer == proofs
    assert quoted & odometer


def test_the_change_ends_with_its_run() -> None:
    run = PLANTED[0]
    without = Run(run.area, run.number, run.name, run.mode, run.depth)
    assert run.netlist() != without.netlist() == netlist_without_bug(run.area, run.number)


def test_a_missing_name_is_an_error() -> None:
    m = Module()
    m._MustUse__silence = True  # it is never elaborated
    level = Signal(3)
    m.d.comb += level.eq(1)
    block = Inside("Example", m)
    assert block.level is level
    with pytest.raises(AttributeError, match="Example has 0 signals with the name 'depth'"):
        block.signal("depth")


def test_an_ambiguous_name_is_an_error() -> None:
    m = Module()
    m._MustUse__silence = True  # it is never elaborated
    m.d.comb += [Signal(name="twice").eq(0), Signal(name="twice").eq(1)]
    with pytest.raises(AttributeError, match="Example has 2 signals with the name 'twice'"):
        Inside("Example", m).signal("twice")
