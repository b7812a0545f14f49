"""``make bench-golden``: every case runs, and the exit status follows from the limits."""

from dataclasses import replace

import pytest

from golden import bench


def test_it_runs_every_case(monkeypatch, capsys):
    """Limits are raised, because a busy machine is slower than they allow."""
    cases = bench.cases
    monkeypatch.setattr(
        bench, "cases", lambda memories: [replace(case, limit=1e9) for case in cases(memories)]
    )
    assert bench.main(["--repeats", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "0 slower than the limit"
    assert sum("│" in line for line in lines) == len(cases(bench.Memories()))


@pytest.mark.parametrize(("factor", "status"), [(0.99, 0), (1.01, 1)])
def test_the_exit_status(factor, status, monkeypatch, capsys):
    """Each case takes a little less, or a little more, than its limit; the rest has no limit."""
    monkeypatch.setattr(bench, "ratio", lambda case, *_: factor * (case.limit or 1e9))
    assert bench.main([]) == status
    limited = sum(case.limit is not None for case in bench.cases(bench.Memories()))
    slow = limited if status else 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{slow} slower than the limit"


def test_bad_repeats(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--repeats", "0"])
    assert "--repeats 0: must be at least 1" in capsys.readouterr().err


@pytest.mark.regress
def test_limits_hold(capsys):
    assert bench.main([]) == 0, capsys.readouterr().out
