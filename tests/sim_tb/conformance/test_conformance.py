"""Every recorded transfer through the RTL."""

from pathlib import Path

import pytest

from golden.vectors import check, read_cases
from sim_tb.conformance.rtl import outcomes
from sim_tb.simulator import runner
from tests.top.units import CLUSTER

pytestmark = [pytest.mark.simulators(), pytest.mark.spread]

SILICON = runner.ROOT / "tests" / "silicon"
CASES = {"transfers": 1438 + 1303, "workloads": 132}
"""Loads, stores and reductions in each file, without multicasts."""


@pytest.mark.parametrize(
    "models", ["fixed", pytest.param("random", marks=pytest.mark.regress), "rough"]
)
@pytest.mark.parametrize("name", ["transfers", "workloads"])
def test_recorded_transfers(name: str, models: str) -> None:
    cases = [case for case in read_cases(Path(SILICON, f"{name}.npz")) if not case.is_multicast]
    assert len(cases) == CASES[name]
    found = outcomes(cases, models=models)
    wrong = [check(case, outcome) for case, outcome in zip(cases, found, strict=True)]
    assert [text for text in wrong if text] == []


@pytest.mark.simulators(CLUSTER)
@pytest.mark.parametrize("models", ["fixed", "rough"])
def test_recorded_multicasts(models: str) -> None:
    """Multicasts run on four SMs; with ``rough``, each receiver stalls independently."""
    cases = [case for case in read_cases(Path(SILICON, "transfers.npz")) if case.is_multicast]
    assert len(cases) == 60
    found = outcomes(cases, models=models, cluster=CLUSTER)
    wrong = [check(case, outcome) for case, outcome in zip(cases, found, strict=True)]
    assert [text for text in wrong if text] == []
