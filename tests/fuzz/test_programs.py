"""Random programs on clusters: a seed has the same ones, and their records are golden."""

from pathlib import Path

import numpy as np
import pytest

from sim_tb.conformance import golden_clusters, rtl
from sim_tb.conformance.clusters import ClusterProgram, Outcome
from sim_tb.conformance.command import main as conform
from sim_tb.distribution import workers
from tests.fuzz import __main__ as command
from tests.fuzz import programs
from tests.fuzz.rounds import ClusterRound
from tests.sim_tb.distribution.serial import Serial


def test_a_seed_has_the_same_programs() -> None:
    round_ = ClusterRound(seed=1, number=2, size=20)
    for one, other in zip(round_.cases(), round_.cases(), strict=True):
        assert np.array_equal(one.program.file.step_rows, other.program.file.step_rows)
        assert programs.difference(one.golden, golden_clusters.outcome(other.program)) is None


def test_files_have_the_golden_outcome(tmp_path: Path) -> None:
    path = tmp_path / "program.npz"
    for case in ClusterRound(seed=1, number=3, size=10).cases():
        programs.write(path, case)
        assert conform([str(path)]) == 0


@pytest.mark.simulators(rtl.CLUSTER)
def test_no_program_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--clusters", "--count", "50", "--workers", "1", "--folder", str(tmp_path)]
    assert command.main(arguments) == 0
    assert "50 programs" in capsys.readouterr().out


def wrong(program: ClusterProgram) -> Outcome:
    """Return the golden model's outcome, with a wrong byte behind copies between CTAs."""
    found = golden_clusters.outcome(program)
    last = found.results[-1].error
    if last is None and any(step.name == "DCOPY" for step in program.steps):
        found.smem[0][0] ^= 1
    return found


class Wrong:
    outcome = staticmethod(wrong)


@pytest.mark.regress
@pytest.mark.simulators(rtl.CLUSTER)
def test_a_program_that_differs_becomes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "golden_clusters", Wrong)
    monkeypatch.setattr(workers, "of", Serial.of)  # other processes would not have the change
    monkeypatch.setattr(command, "MOST_FAILURES", 1)
    arguments = ["--clusters", "--count", "60", "--folder", str(tmp_path)]
    assert command.main(arguments) == 1
    monkeypatch.undo()
    files = sorted(tmp_path.glob("*.npz"))
    assert files
    assert f"make conformance VECTORS={files[0]}" in capsys.readouterr().out.replace("\n", "")
    for path in files:
        assert len(np.load(path)["steps"]) == 1
        for target in "golden", "rtl":
            assert conform([str(path), "--target", target]) == 1
            assert "shared memory of CTA 0" in capsys.readouterr().out
