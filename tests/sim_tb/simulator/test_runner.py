"""The simulator's builder names what it lacks."""

import pytest

from sim_tb.simulator import runner


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    runner.tools.cache_clear()
    monkeypatch.setattr(runner.shutil, "which", lambda name: name if name == "make" else None)
    with pytest.raises(runner.SimulationError, match=r"^missing programs: g\+\+, perl;"):
        runner.tools()
