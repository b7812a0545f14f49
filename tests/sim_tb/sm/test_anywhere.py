"""Kernels of scripts, of notebooks and of any file; arrays as inputs and outputs."""

import linecache
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import sim_tb
from sim_tb.__main__ import main
from sim_tb.kernels import kernel_of_file
from sim_tb.kernels.copy import Copy
from sim_tb.simulator.by_value import SendError, dumps, loads
from sim_tb.simulator.runner import ROOT
from sim_tb.sm import launch
from sim_tb.sm.errors import KernelError
from tests.sim_tb.sm import scale
from tests.sim_tb.sm.scale import Scale, Way

SCRIPT = Path(scale.__file__)
X = np.random.default_rng(1).standard_normal((2, 32)).astype(np.float32)


@pytest.mark.simulators
def test_a_kernel_in_main_runs():
    """Classes, functions and globals, an enumeration and a local class are sent by value."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, SCRIPT]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    right, *error = ran.stdout.splitlines()
    assert right == "True dict_keys(['x', 'y'])"
    assert re.match(r"scaler \(warps \d to \d\), cycle \d+: AttributeError: .*such_an", error[0])
    assert error[1] == f'  File "{SCRIPT}", line {_line("such_an_instruction")}, in scaler'
    assert error[2] == "    await wg.such_an_instruction()"


def _line(text):
    return next(n for n, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)


@pytest.mark.simulators
def test_a_kernel_of_a_notebook_runs():
    """The code of a cell is in no file: its lines go along, for the error."""
    cell = "<ipython-input-1>"
    source = SCRIPT.read_text().replace("F32.type(FACTOR", "FACTORS[1] * F32.type(FACTOR")
    lines = source.partition("if __name__")[0].splitlines(keepends=True)
    linecache.cache[cell] = len(source), None, lines, cell
    names = {"__name__": "__main__"}
    exec(compile("".join(lines), cell, "exec"), names)
    kernel = names["Scale"]()
    with pytest.raises(KernelError) as caught:
        sim_tb.run(kernel, {"x": X})
    first, *rest = str(caught.value).splitlines()
    assert re.fullmatch(r"scaler \(.*: NameError: name 'FACTORS' is not defined", first)
    assert f'  File "{cell}", line {_line("F32.type(FACTOR")}, in factor_of' in rest
    assert "    return FACTORS[1] * F32.type(FACTOR * way.value)" in rest
    names["FACTORS"] = (0, 2)
    out = sim_tb.run(kernel, {"x": X})
    assert np.array_equal(out["y"], 6 * X)


@pytest.mark.simulators
def test_arrays_in_and_out():
    given = np.arange(96, dtype=np.float32).reshape(3, 32)
    assert np.array_equal(sim_tb.run(Copy(rows=3), {"x": given})["y"], given)
    assert sim_tb.run(Copy(rows=3)).keys() == {"x", "y"}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"^device\.tensor\('x'\): there is no input of this name: give it to sim_tb\.run"),
        ({"x": X, "z": X}, r"^input 'z': the kernel has no tensor of this name; it has x, y$"),
        ({"x": [1.0]}, r"^tensor x: \[1\.0\] \(list\): must be an array of at least one dim"),
    ],
)
def test_wrong_inputs_are_named(inputs, message, monkeypatch):
    monkeypatch.setattr(launch, "simulate", None)  # no simulation may start
    with pytest.raises(KernelError, match=message):
        sim_tb.run(Scale(), inputs)


@pytest.mark.simulators
def test_run_takes_a_path(tmp_path, capsys):
    """The file may import its neighbours. Its options are those of the command line."""
    (tmp_path / "near.py").write_text("ROWS = 5\n")
    (tmp_path / "copy.py").write_text("raise AssertionError\n")  # not Python's own module
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nimport near\nfrom sim_tb.kernels.copy import Copy\n"
        "from sim_tb.sm.kernel import kernel\nfrom sim_tb.sm.options import option\n"
        "@kernel('copy')\n@dataclass\nclass Mine(Copy):\n    '''A copy.'''\n"
        "    rows: int = option(near.ROWS, 'rows')\n"
        "    async def prologue(self, wg):\n        assert near.ROWS == 5\n"
        "        await super().prologue(wg)\n"
    )
    arguments = ["run", f"{tmp_path}/mine.py", "--report", str(tmp_path)]
    assert main([*arguments, "--rows", "70"]) == 0
    assert "bit for bit: 2240 elements" in capsys.readouterr().out
    assert main(["list"]) == 0


@pytest.mark.parametrize(
    ("place", "source", "message"),
    [
        ("none.py", "", r"none\.py: no such file: must be a Python file with a kernel"),
        ("a.py", "x = 1", r"a\.py: there is no kernel: a kernel is a class of the file that "),
        ("a.py", "{kernel}", r"a\.py: there is no kernel: .*; A has no host and no roles$"),
        ("a.py:C", "{two}", r"a\.py: there is no kernel 'C': the file has One, Two$"),
        ("a.py:Oen", "{two}", r"the file has One, Two; did you mean One\?"),
        ("a.py", "{two}", r"a\.py has 2 kernels: One, Two; name one, such as .*a\.py:Two$"),
        ("a.py", "1 / 0", r"a\.py: cannot be imported: ZeroDivisionError: division by zero\n  F"),
    ],
)
def test_wrong_files_are_named(place, source, message, tmp_path, capsys):
    one = "from sim_tb.sm.kernel import Kernel\nclass A(Kernel): pass\n"
    two = "from sim_tb.kernels.copy import Copy\nclass One(Copy): pass\nclass Two(Copy): pass\n"
    (tmp_path / "a.py").write_text(source.format(kernel=one, two=two))
    with pytest.raises(KernelError, match=message):
        kernel_of_file(f"{tmp_path}/{place}")
    assert main(["run", f"{tmp_path}/{place}"]) == 2
    assert re.search(message.rstrip("$"), capsys.readouterr().err)


def test_what_cannot_be_sent_is_named():
    with Path(SCRIPT).open() as file:

        @dataclass
        class Open(Scale):
            log = file

        with pytest.raises(SendError, match=r"^.*Open\.log cannot be sent to the simulator, whi"):
            dumps([Open()])


def test_objects_are_pickled_as_always_where_that_is_possible():
    value = [Scale(extra=3), Way.UP, np.arange(3), len]
    again = loads(dumps(value))
    assert type(again[0]) is Scale
    assert again[0].extra == 3
    assert again[1] is Way.UP
    assert again[3] is len
