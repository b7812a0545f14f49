"""The fuzzer: a short run has no difference; one that is planted is found, simplified and kept."""

from pathlib import Path

import numpy as np
import pytest

from golden import conformance
from golden.vectors import Case, Outcome
from hw.params import PRESETS
from sim_tb.conformance.command import main as conform
from sim_tb.distribution import workers
from tests.fuzz import __main__ as command
from tests.fuzz import draw, rounds
from tests.fuzz.compare import write
from tests.fuzz.rounds import Ended, Round
from tests.sim_tb.distribution.serial import Serial

pytestmark = pytest.mark.simulators()


def test_nothing_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A longer run: ``make fuzz COUNT=1000000``."""
    arguments = ["--unguided", "--count", "100000", "--seconds", "60", "--workers", "1"]
    assert command.main([*arguments, "--folder", str(tmp_path)]) == 0
    assert "0 differ" in capsys.readouterr().out


@pytest.mark.regress
def test_rounds_are_guided_by_branches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--count", "3000", "--folder", str(tmp_path)]) == 0
    assert "points of the RTL's branches taken" in capsys.readouterr().out


@pytest.mark.regress
def test_random_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--unguided", "--units", "3", "--count", "4000", "--folder", str(tmp_path)]
    assert command.main(arguments) == 0
    assert "0 differ" in capsys.readouterr().out


def test_units_differ_in_numbers_only() -> None:
    default, *drawn = (vars(params) for params in rounds.units(1, 20))
    assert default == vars(PRESETS["default"])
    for each in drawn:
        differ = {name for name, value in each.items() if value != default[name]}
        assert differ
        assert differ <= {*rounds.NUMBERS}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--units", "-1", "--unguided"], "--units -1: must be at least 0"),
        (["--clusters", "--contexts", "2"], "--clusters: has a cluster of its own"),
        (["--clusters", "--units", "2", "--unguided"], "--clusters: has a cluster of its own"),
        (["--units", "2"], "--units 2: needs --unguided"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert message in capsys.readouterr().err


def wrong(case: Case) -> Outcome:
    """Return the golden model's outcome, with a wrong byte for boxes with three dimensions."""
    outcome = conformance.outcome(case)
    is_wrong = case.op == "load" and outcome.refused is None and case.rank == 3
    if is_wrong and case.mode == "tile" and outcome.bytes:
        assert outcome.memory is not None
        outcome.memory[case.smem_address] ^= 1
    return outcome


class Wrong:
    outcome = staticmethod(wrong)


def test_a_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of more requests takes the whole rounds of a shorter one."""
    played = []

    def play(round_: Round) -> Ended:
        played.append(round_.number)
        return rounds.play(round_)

    monkeypatch.setattr(command, "play", play)
    monkeypatch.setattr(workers, "of", Serial.of)
    monkeypatch.setattr(rounds, "ROUND", 20)
    arguments = ["--unguided", "--folder", str(tmp_path), "--count"]
    assert command.main([*arguments, "60"]) == 0
    assert command.main([*arguments, "100"]) == 0
    assert played == [0, 1, 2, 3, 4]
    assert "3 results are of an earlier run" in capsys.readouterr().out.replace("\n", " ")


def test_a_difference_becomes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(draw, "conformance", Wrong)
    monkeypatch.setattr(workers, "of", Serial.of)  # other processes would not have the change
    arguments = ["--unguided", "--count", "60", "--folder", str(tmp_path)]
    assert command.main(arguments) == 1
    monkeypatch.undo()
    files = sorted(tmp_path.glob("*.npz"))
    assert files
    assert f"make conformance VECTORS={files[0]}" in capsys.readouterr().out.replace("\n", "")
    for path in files:
        rows = np.load(path)["cases"]
        assert rows["rank"].tolist() == [3]
        assert rows["coords"].max() == 0
        for target in "golden", "rtl":
            assert conform([str(path), "--target", target]) == 1
            assert "first shared byte" in capsys.readouterr().out


def test_files_have_the_exact_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    cases = [draw.draw(rng, index, []) for index in range(60)]
    refused = [drawn for drawn in cases if drawn.golden.refused is not None]
    assert 5 < len(refused) < 55
    path = tmp_path / "cases.npz"
    write(path, cases)
    for target in "golden", "rtl":
        assert conform([str(path), "--target", target]) == 0
    refused[0].case.fields["error"][2] ^= 1
    write(path, cases)
    capsys.readouterr()
    assert conform([str(path), "--target", "golden"]) == 1
    assert "expected" in capsys.readouterr().out
