"""All tests on worker processes: units, their outcomes, and a run that goes on."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hw.flow.cache import ROOT
from sim_tb.distribution import workers
from tests.regress import __main__ as command
from tests.regress.units import Ended, Unit, run
from tests.sim_tb.distribution.serial import Serial
from tests.top.drawn_units import ALL, CLUSTERS, QUICK

COLLECT = """
import sys
from tests.regress.units import collected
for unit in collected(sys.argv[1:]):
    print(len(unit.tests), unit.name)
"""

TESTS = """
import pytest
def test_right():
    pass
@pytest.mark.parametrize("number", [1, 2])
def test_wrong(number):
    assert number == 1
def test_skipped():
    pytest.skip("no reason")
"""


def test_long_tests_are_units_of_their_own() -> None:
    file = "tests/golden/test_hypothesis.py"
    printed = subprocess.run(
        [sys.executable, "-c", COLLECT, file], cwd=ROOT, capture_output=True, text=True, check=True
    )
    units = ["2 {}", "1 {}::test_many_tiles", "1 {}::test_many_im2col"]
    assert printed.stdout.splitlines() == [unit.format(file) for unit in units]


def test_parameters_of_a_spread_test_are_units_of_their_own() -> None:
    file = "tests/top/test_drawn_units.py"
    printed = subprocess.run(
        [sys.executable, "-c", COLLECT, file], cwd=ROOT, capture_output=True, text=True, check=True
    )
    units = [line.split(maxsplit=1) for line in printed.stdout.splitlines()]
    assert sum(int(tests) for tests, _ in units) == ALL + len(CLUSTERS)
    assert len(units) == 1 + ALL - QUICK + len(CLUSTERS)


def test_the_outcome_of_a_unit(tmp_path: Path) -> None:
    path = tmp_path / "test_of_a_unit.py"
    path.write_text(TESTS)
    ended = run(Unit("a unit", (str(path),)))
    assert (ended.name, ended.passed, ended.skipped, ended.failed) == ("a unit", 2, 1, 1)
    assert "assert 2 == 1" in ended.output
    right = run(Unit("right", (f"{path}::test_right",)))
    assert (right.passed, right.failed, right.output) == (1, 0, "")
    missing = run(Unit("missing", (f"{path}::test_none",)))
    assert missing.failed == 1
    assert "not found" in missing.output


def test_what_failed_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def fails_once(unit: Unit) -> Ended:
        tried.append(unit.name)
        failed = int(tried.count(unit.name) == 1 and unit.name == "b")
        return Ended(unit.name, 1 - failed, 0, failed, 1.0, "the output" * failed)

    def collected(arguments: Sequence[str]) -> list[Unit]:
        del arguments
        return [Unit(name, (name,)) for name in "abc"]

    monkeypatch.setattr(workers, "of", Serial.of)
    monkeypatch.setattr(command, "run", fails_once)
    monkeypatch.setattr(command, "collected", collected)
    arguments = ["--results", str(tmp_path / "results.sqlite")]
    assert command.main(arguments) == 1
    printed = capsys.readouterr().out
    assert "the output" in printed
    assert "failed: b\n2 passed, 0 skipped, 1 failed" in printed
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "3 passed, 0 skipped, 0 failed" in printed
    assert "2 results are of an earlier run" in printed
    assert tried == ["a", "b", "c", "b"]


def test_a_file_that_cannot_be_imported_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "test_broken.py"
    path.write_text("import nothing_of_this_name\n")
    command_line = [sys.executable, "-m", "tests.regress", str(path)]
    assert subprocess.run(command_line, cwd=ROOT, check=False).returncode == 1
    assert "nothing_of_this_name" in capfd.readouterr().err
