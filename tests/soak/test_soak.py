"""Soak runs: a short one has no error, and the probe notices a place that is lost."""

from dataclasses import replace

import pytest

from hw.params import PRESETS, TmaParams
from sim_tb.simulator import runner
from tests.sim_tb.distribution.serial import Serial
from tests.soak import __main__ as command
from tests.soak.tasks import CLOCKS, DESIGNS, Ended, Failed, Task, simulate
from tests.top.units import CLUSTER, SMALL

UNIT = replace(SMALL, counters=True)

pytestmark = pytest.mark.spread


@pytest.mark.parametrize(
    ("design", "params", "clocks"),
    [
        pytest.param("unit", UNIT, 100_000, marks=pytest.mark.simulators(UNIT)),
        pytest.param("cluster", CLUSTER, 10_000, marks=pytest.mark.simulators(CLUSTER)),
    ],
)
def test_nothing_is_lost(design: str, params: TmaParams, clocks: int) -> None:
    """Longer runs: ``make soak``."""
    ended = simulate(Task(design, params, 1, clocks, ("rough", "stray")))
    assert isinstance(ended, Ended), ended
    assert ended.requests > 50
    assert clocks < ended.clocks


@pytest.mark.simulators(UNIT)
@pytest.mark.simulators(PRESETS["default"])
@pytest.mark.parametrize("params", [UNIT, PRESETS["default"]])
def test_the_probe_notices_a_place_that_is_lost(params: TmaParams) -> None:
    runner.run("tests.soak.tb_soak", "a_place_that_is_lost", params=params)


def test_a_failure_does_not_end_the_others(monkeypatch, capsys, tmp_path) -> None:
    def play(task: Task) -> Ended | Failed:
        if task.seed == 2:
            return Failed(task, "a request is stuck")
        return Ended(task.design, task.seed, task.clocks, 7, 1, 100)

    monkeypatch.setattr(command, "simulate", play)
    monkeypatch.setattr(command.workers, "of", Serial.of)
    monkeypatch.setattr(command.runner, "build", lambda _params: None)
    arguments = ["--design", "unit", "--clocks", str(3 * CLOCKS)]
    assert command.main([*arguments, "--results", str(tmp_path / "results.sqlite")]) == 1
    printed = capsys.readouterr().out
    assert "a request is stuck" in printed
    assert f"-m tests.soak --design unit --seed 2 --clocks {CLOCKS}" in printed
    assert f"{2 * CLOCKS:,}" in printed


@pytest.mark.regress
@pytest.mark.simulators(*DESIGNS.values())
def test_command(tmp_path, capsys) -> None:
    arguments = ["--clocks", "400000", "--results", str(tmp_path / "results.sqlite")]
    assert command.main(arguments) == 0
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "cluster" in printed
    assert "2 results are of an earlier run" in printed


def test_the_count_is_positive(capsys) -> None:
    with pytest.raises(SystemExit):
        command.main(["--clocks", "0"])
    assert "--clocks 0: must be at least 1" in capsys.readouterr().err
