"""docs/kernels.md lists all operations, and its example is a kernel that runs."""

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from sim_tb.kernels import kernels
from sim_tb.kernels.copy import Copy
from sim_tb.sm import launch
from sim_tb.sm.record import Setting
from sim_tb.sm.warps import Warpgroup

MOST_LINES = 60
"""Most lines of a kernel's prologue and roles, without docstrings and blank lines."""

DOCS = (Path(__file__).parents[3] / "docs" / "kernels.md").read_text()


def test_the_table_has_every_operation():
    operations = {
        name
        for name, member in inspect.getmembers(Warpgroup, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    table = DOCS.partition("## Operations")[2].partition("## Time")[0]
    assert set(re.findall(r"`(\w+)\(", table)) == operations


@pytest.mark.parametrize("operation", re.findall(r"`(\w+\([^`.]*\))`", DOCS))
def test_operations_have_these_operands(operation):
    name, operands = re.fullmatch(r"(\w+)\((.*)\)", operation).groups()
    parameters = inspect.signature(getattr(Warpgroup, name)).parameters
    assert {operand.strip("= ") for operand in operands.split(",") if operand} <= set(parameters)


def test_the_example_is_the_kernel():
    source = Path(inspect.getfile(Copy)).read_text()
    assert source[source.index("@kernel") :] in DOCS


@pytest.mark.simulators
def test_the_example_runs():
    (record,) = launch.run([(Copy(rows=77), Setting())])
    assert not record.error
    assert record.check.endswith(f"bit for bit: {77 * 32} elements")


def code_lines(method):
    source = inspect.getsource(method)
    (function,) = ast.parse(textwrap.dedent(source)).body
    documentation = function.body[0]
    blank = sum(not line.strip() for line in source.splitlines())
    return len(source.splitlines()) - blank - (documentation.end_lineno - documentation.lineno + 1)


@pytest.mark.parametrize("name", kernels())
def test_a_kernel_is_short(name):
    """Prologue and roles are short, and so is each coroutine of the kernel."""
    cls = kernels()[name]
    roles = [getattr(role, "func", role) for role in cls().roles().values()]
    kernel = {role.__name__: code_lines(role) for role in (cls.prologue, cls.roles, *roles)}
    assert sum(kernel.values()) < MOST_LINES
    for called in dir(cls):
        method = getattr(cls, called)
        if inspect.iscoroutinefunction(method):
            assert code_lines(method) < MOST_LINES // 2
