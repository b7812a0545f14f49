"""Options that would have no effect are refused."""

import pytest

from sim_tb.conformance.command import main as conformance
from sim_tb.coverage.command import main as coverage
from sim_tb.simulator.runner import ROOT

WORKLOADS = str(ROOT / "tests" / "silicon" / "workloads.npz")


@pytest.mark.parametrize(
    ("main", "arguments", "message"),
    [
        (
            conformance,
            [WORKLOADS, "--models", "rough"],
            "--models rough has no effect with",
        ),
        (coverage, ["--report", "--seeds", "3"], "--seeds 3 has no effect with --report"),
        (coverage, ["--report", "--count", "400"], "--count 400 has no effect with --report"),
        (coverage, ["--seeds", "0"], "--seeds 0: must be at least 1"),
    ],
)
def test_refused(main, arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
