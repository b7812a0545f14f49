"""docs/kernels.md lists all operations, and its example is a kernel that runs."""

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import golden
from sim_tb.__main__ import main
from sim_tb.kernels import kernels
from sim_tb.kernels.copy import Copy
from sim_tb.simulator.runner import ROOT
from sim_tb.sm import global_memory, launch, pipeline, sanitizer
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.record import Setting
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import Warpgroup

MOST_LINES = 60
"""Most lines of a kernel's prologue and roles, without docstrings and blank lines."""

DOCS = (Path(__file__).parents[3] / "docs" / "kernels.md").read_text()


OPERATIONS = DOCS.partition("## Operations")[2].partition("A method returns at once")[0]


def test_the_table_has_every_operation():
    operations = {
        name
        for name, member in inspect.getmembers(Warpgroup, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert set(re.findall(r"`(\w+)\(", OPERATIONS)) == operations


@pytest.mark.parametrize("operation", re.findall(r"`(\w+\([^`.]*\))`", OPERATIONS))
def test_operations_have_these_operands(operation):
    name, operands = re.fullmatch(r"(\w+)\((.*)\)", operation).groups()
    parameters = inspect.signature(getattr(Warpgroup, name)).parameters
    assert {operand.strip("= ") for operand in operands.split(",") if operand} <= set(parameters)


def test_what_others_call_something_else_is_here():
    """The last column of the table for those who come from CUDA has names that exist."""
    rows = DOCS.partition("## From CUDA")[2].partition("\n## ")[0].splitlines()
    last = [row.split("|")[-2] for row in rows if row.startswith("| ") and "here |" not in row]
    words = {word for cell in last for code in re.findall("`(.+?)`", cell)
             for word in re.findall(r"(?<![\w\"])[a-z_A-Z]\w*", code)}  # fmt: skip
    places = Warpgroup, Kernel, Device, SmemLayout
    known = {name for place in places for name in dir(place)}
    known |= {name for module in (pipeline, global_memory, sanitizer) for name in vars(module)}
    known |= {*golden.Swizzle.__members__, "Swizzle", "Kernel", "warps", "GPU", "RELEASE"}
    known |= {"wg", "device", "smem"}
    operands = {"name", "shape", "dtype", "order", "scope", "n", "id", "read", "True"}
    operands |= {"where", "threads", "cache_policy", "mbarrier_", "cp_async_bulk_prefetch"}
    assert len(last) >= 25
    assert words - known - operands == set()


def test_the_example_is_the_kernel():
    source = Path(inspect.getfile(Copy)).read_text()
    assert source[source.index("@kernel") :] in DOCS


@pytest.mark.simulators
def test_the_example_runs():
    (record,) = launch.run([(Copy(rows=77), Setting())])
    assert not record.error
    assert record.check.endswith(f"bit for bit: {77 * 32} elements")


def first_kernel(folder):
    """Save the first kernel of the page as a file; return its path, and what it prints."""
    source = re.search(r"<!-- first -->\n```python\n(.*?)```\n", DOCS, re.DOTALL)[1]
    printed = re.search(r"`python double.py` prints `(.*)`\.", DOCS)[1]
    (folder / "double.py").write_text(source)
    return folder / "double.py", printed


@pytest.mark.simulators
def test_the_first_kernel_runs_as_a_script(tmp_path):
    path, printed = first_kernel(tmp_path)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, path], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == (f"{printed}\n", "")


@pytest.mark.simulators
def test_the_first_kernel_runs_by_its_path(tmp_path, capsys):
    path, _ = first_kernel(tmp_path)
    assert main(["run", f"{path}:Double", "--report", str(tmp_path)]) == 0
    assert "the kernel does not check its result" in capsys.readouterr().out


def test_the_first_kernel_is_short(tmp_path):
    path, _ = first_kernel(tmp_path)
    body = path.read_text().partition("class")[2].partition("if __name__")[0]
    assert sum(bool(line.strip()) for line in body.splitlines()) <= 30


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
