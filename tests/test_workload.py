"""The plan of a test session: what is built, when, and who runs what."""

import os
import pickle
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from hw.flow.cache import ROOT, VARIABLE
from hw.params import PRESETS
from tests import workload
from tests.sim_tb.testbench import stand_in
from tests.top.units import TINY
from tests.workload import Plan, builder

CONFTEST = """
from tests.workload import Workload

def pytest_configure(config):
    config.pluginmanager.register(Workload(config))
"""

SUITE = """
import os
import pytest

def build():
    with open("log", "a") as log:
        print("build", file=log)

def build_other():
    raise AssertionError("no selected test needs it")

@pytest.mark.simulators.with_args(build)
@pytest.mark.parametrize("number", range(8))
def test_kept(number):
    with open("log", "a") as log:
        print("{name}", os.environ["PYTEST_XDIST_WORKER"], file=log)

@pytest.mark.simulators.with_args(build_other)
def test_left_out():
    pass

@pytest.mark.spread
@pytest.mark.parametrize("number", range(2))
def test_spread(number):
    pass
"""


def test_a_session(tmp_path: Path) -> None:
    """Two files of eight tests: each goes to one worker, after the one build that both need."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = simulators\n spread\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    common = tmp_path / "common.py"
    common.write_text(SUITE.partition("@pytest")[0])
    for name in "one", "two":
        tests = "from common import build, build_other\nimport os, pytest\n\n@pytest"
        tests += SUITE.partition("@pytest")[2].replace("{name}", name)
        (tmp_path / f"test_{name}.py").write_text(tests)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    environment[VARIABLE] = str(tmp_path / "cache")
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup"]
    ran = subprocess.run(
        [*command, "-k", "not left_out"], cwd=tmp_path, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "20 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "1 simulators are ready" in ran.stdout
    first, *lines = (tmp_path / "log").read_text().splitlines()
    assert first == "build"
    workers = {name: {line for line in lines if line.startswith(name)} for name in ("one", "two")}
    assert [len(found) for found in workers.values()] == [1, 1]
    assert len(lines) == 16
    assert {line.split()[1] for line in lines} == {"gw0", "gw1"}


def test_builds_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    from sim_tb.simulator import runner

    def threads(count: int, mp_context: object) -> ThreadPoolExecutor:
        del mp_context
        return ThreadPoolExecutor(count)

    monkeypatch.setattr(runner.console, "quiet", True)
    monkeypatch.setattr(workload, "ProcessPoolExecutor", threads)
    monkeypatch.setattr(workload, "LOOK", 0.01)
    said: list[str] = []
    workload.build_simulators({"unit a": pickle.dumps(partial(time.sleep, 1.1))}, said.append)
    assert re.fullmatch(r"still building after \d s: unit a", said[0])
    assert said[1] == "simulator 1 of 1, unit a: 1 s"


def test_long_units_are_first() -> None:
    """Those without a time before them, the tests that share nothing last of these."""
    groups = {"a::1": "a", "b::1": "b", "b::2": "b", "c::1": "c::1", "d::1": "d", "e::1": "e"}
    plan = Plan(groups, spread={"c::1"})
    assert plan.units({"d": 3.0, "e": 5.0}) == ["b", "a", "c::1", "e", "d"]


def test_only_what_is_selected_is_built(request: pytest.FixtureRequest) -> None:
    assert not Plan.of([request.node]).simulators


@pytest.mark.simulators(TINY)
def test_a_clone_elsewhere_takes_what_is_built(tmp_path: Path) -> None:
    """The same keys in a copy of the tree, where nothing may be built; and the simulator runs."""
    from sim_tb.simulator import runner

    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    for folder in "golden", "hw", "open_tma", "sim_tb", "tests":
        copy = tmp_path / folder
        copy.mkdir()
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".npz":
                target = tmp_path / file.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    built = runner.build(TINY).directory
    script = """
from hw.flow import cache
def cached(kind, key, make):
    directory = cache.folder() / kind / key
    assert directory.exists(), f"{kind} would be made again"
    return directory
cache.cached = cached
from sim_tb.simulator import runner
from tests.top.units import TINY
print(runner.build(TINY).directory)
runner.run("tests.top.tb_without_bulk", "refuses_bulk_copies", params=TINY)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), VARIABLE: str(built.parents[1])}
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{built}\n"
    assert (tmp_path / "build" / "runs").exists()


def test_names_of_simulators() -> None:
    assert builder(PRESETS["tiny"])[0] == "unit tiny"
    assert builder(TINY)[0].startswith("unit line_bytes=16 ")
    assert builder(stand_in.build_unit)[0] == "tests.sim_tb.testbench.stand_in.build_unit"
