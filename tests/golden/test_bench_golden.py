"""``make bench-golden``."""

import pytest

from golden import bench


def test_it_runs_every_case(capsys):
    assert bench.main(["--repeats", "1"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("slower than the limit")
    assert sum("│" in line for line in lines) == len(bench.cases(bench.Memories()))


def test_bad_repeats(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--repeats", "0"])
    assert "--repeats 0: must be at least 1" in capsys.readouterr().err


@pytest.mark.regress
def test_limits_hold(capsys):
    assert bench.main([]) == 0, capsys.readouterr().out
