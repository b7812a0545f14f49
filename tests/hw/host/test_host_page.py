"""The tables of docs/host.md are those of ``hw.layouts.host``."""

import pytest
from amaranth.hdl import Shape
from amaranth.lib import data

from hw.flow.cache import ROOT
from hw.flow.tables import read_table
from hw.layouts.barriers import BarrierFault, BarrierOp
from hw.layouts.host import (
    BARRIER_OPERATIONS,
    Completion,
    CompletionKind,
    HostError,
    MapOperation,
    RecordFlags,
    record_layout,
)
from hw.layouts.isa import AccessMode, Operation, ReductionOp
from hw.params import PRESETS

PAGE = (ROOT / "docs" / "host.md").read_text()
PARAMS = PRESETS["host"]


def rows(name: str) -> list[list[str]]:
    """Return the rows of a table, without marks of code."""
    return [[cell.strip("`") for cell in row] for row in read_table(PAGE, name)[1]]


def number(text: str) -> int:
    """Return a number, or the value of the parameter with this name."""
    return int(text, 0) if text[0].isdigit() else getattr(PARAMS, text)


def fields(layout: data.Layout) -> dict[str, tuple[int, int]]:
    """Return first bit and width of each field; those of the flags of a record one by one."""
    places = {}
    for name, field in layout:
        if field.shape is RecordFlags:
            for flag, (first, width) in fields(data.Layout.cast(RecordFlags)).items():
                places[f"{name}.{flag}"] = field.offset + first, width
        else:
            places[name] = field.offset, Shape.cast(field.shape).width
    return places


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("request_record", record_layout(PARAMS)),
        ("completion_record", data.Layout.cast(Completion)),
    ],
)
def test_fields_of_records(name, layout):
    described = {row[0]: (number(row[1]), number(row[2])) for row in rows(name)}
    assert described == fields(layout)
    assert [*described.values()] == sorted(described.values())


def test_operations():
    requests = [op for op in Operation if op.value <= Operation.WAIT_GROUP_READ.value]
    operations = {op.name: op.value for op in (*requests, *MapOperation)}
    operations |= {op.name: BARRIER_OPERATIONS + op.value for op in BarrierOp}
    assert {row[1]: number(row[0]) for row in rows("operations")} == operations


@pytest.mark.parametrize(
    ("name", "kinds"), [("completion_kinds", CompletionKind), ("errors", HostError)]
)
def test_enumerations(name, kinds):
    assert {row[1]: number(row[0]) for row in rows(name)} == {
        kind.name: kind.value for kind in kinds
    }


@pytest.mark.parametrize(
    ("field", "kinds"),
    [("mode", AccessMode), ("reduction_op", ReductionOp)],
)
def test_numbers_in_the_text(field, kinds):
    text = next(row[3] for row in rows("request_record") if row[0] == field).split(": ", 1)[1]
    described = [item.strip(" .").split(" ", 1) for item in text.split(",")]
    names = {int(value): name.replace("::", "_").upper() for value, name in described}
    assert names == {kind.value: kind.name.removeprefix("TILE_") for kind in kinds}


def test_faults_in_the_text():
    text = PAGE.split("Faults of barrier operations are ")[1].split(". ")[0]
    described = [item.split(" ") for item in text.replace(" and", ",").split(", ")]
    assert {name: int(value) for value, name in described} == {
        fault.name: fault.value for fault in BarrierFault if fault is not BarrierFault.NONE
    }


def test_sizes_in_the_text():
    widths = PARAMS.request_id_bits, PARAMS.thread_bits
    assert (
        "the preset `host` has {} bits of `request_id` and {} of `thread`".format(*widths) in PAGE
    )
