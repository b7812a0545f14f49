"""Benchmark of the golden model: ``make bench-golden``."""

import pytest

from golden import bench


def rows(text):
    """Return the lines of the table's cases."""
    return [line for line in text.splitlines() if line.startswith("│")]


def test_every_case_runs(capsys):
    status = bench.main(["--repeats", "1"])
    text = capsys.readouterr().out
    slow = sum(" ! " in row for row in rows(text))
    assert len(rows(text)) == len(bench.cases(bench.Memories()))
    assert text.splitlines()[-1] == f"{slow} cases slower than the limit"
    assert status == (slow > 0)


@pytest.mark.parametrize(("measured", "slow"), [(2.0, 0), (5.0, 1), (1000.0, None)])
def test_a_case_over_its_limit_sets_the_exit_status(capsys, monkeypatch, measured, slow):
    monkeypatch.setattr(bench, "ratio", lambda *_: measured)
    limits = [case.limit for case in bench.cases(bench.Memories())]
    slow = sum(limit is not None for limit in limits) if slow is None else slow
    assert bench.main([]) == (slow > 0)
    text = capsys.readouterr().out
    assert sum(" ! " in row for row in rows(text)) == slow
    assert text.splitlines()[-1] == f"{slow} cases slower than the limit"


def test_bad_repeats(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--repeats", "0"])
    assert "--repeats 0: must be at least 1" in capsys.readouterr().err


@pytest.mark.regress
def test_limits_hold(capsys):
    assert bench.main([]) == 0, capsys.readouterr().out
