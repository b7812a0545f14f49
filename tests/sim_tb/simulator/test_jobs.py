"""Results of a simulation that is interrupted."""

import pickle
import subprocess
import time
from pathlib import Path
from threading import Event

import pytest

from hw.flow import cache
from sim_tb.simulator import jobs, runner


@pytest.mark.parametrize("first", [False, True])
def test_an_interrupt_ends_the_simulator(first, monkeypatch, tmp_path):
    """The interrupt comes at once, or after the first result."""
    started, armed, may_write = [], [not first], Event()
    if first:
        may_write.set()

    def run(*_, env, **__):
        with subprocess.Popen(["sleep", "60"]) as simulator:
            started.append(simulator)
            may_write.wait()
            with Path(env[jobs.RESULTS]).open("wb") as file:
                pickle.dump(simulator.pid, file)
                pickle.dump("first", file)
        return tmp_path

    def interrupted(seconds):
        if armed[0]:
            armed[0] = False
            may_write.set()
            raise KeyboardInterrupt
        sleep(seconds)

    sleep = time.sleep
    monkeypatch.setattr(runner, "build_as_asked", lambda _: None)
    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(cache, "run_folder", lambda: tmp_path)
    monkeypatch.setattr(time, "sleep", interrupted)
    results = jobs.results("no.module", [1, 2], env={})
    if first:
        assert next(results) == "first"
        armed[0] = True
    with pytest.raises(KeyboardInterrupt):
        next(results)
    assert started[0].returncode == -15


@pytest.mark.parametrize("fails", [False, True])
def test_files_stay_behind_a_failure_only(
    fails: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fuzzer makes gigabytes of them."""

    def run(*_: object, env: dict[str, str], **__: object) -> Path:
        with Path(env[jobs.RESULTS]).open("wb") as file:
            for each in (1, "first"):
                pickle.dump(each, file)
        if fails:
            raise runner.SimulationError("planted")
        return tmp_path

    monkeypatch.setattr(runner, "build_as_asked", lambda _: None)
    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(cache, "run_folder", lambda: tmp_path)
    results = jobs.results("no.module", ["job"], env={})
    assert next(results) == "first"
    with pytest.raises(runner.SimulationError if fails else StopIteration):
        next(results)
    sizes = [path.stat().st_size > 0 for path in tmp_path.glob("jobs/*/*")]
    assert sizes == [fails, fails]
