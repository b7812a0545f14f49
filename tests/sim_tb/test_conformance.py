"""The RTL against every recorded load."""

from pathlib import Path

import pytest

from golden.vectors import check, read_cases
from sim_tb import runner
from sim_tb.rtl_conformance import outcomes, unsupported

SILICON = runner.ROOT / "tests" / "silicon"
LOADS = {"transfers": 1438, "workloads": 132}
"""In each file, multicast left out."""


@pytest.mark.parametrize("models", ["fixed", "rough"])
@pytest.mark.parametrize("name", ["transfers", "workloads"])
def test_recorded_loads(name: str, models: str) -> None:
    cases = [case for case in read_cases(Path(SILICON, f"{name}.npz")) if not unsupported(case)]
    assert len(cases) == LOADS[name]
    found = outcomes(cases, models=models)
    wrong = [check(case, outcome) for case, outcome in zip(cases, found, strict=True)]
    assert [text for text in wrong if text] == []


def test_what_is_missing_is_said() -> None:
    cases = read_cases(Path(SILICON, "transfers.npz"))
    missing = [case for case in cases if unsupported(case)][:3]
    notes = [found.note or "" for found in outcomes(missing)]
    assert len(notes) == 3
    assert all(note.startswith("not supported yet") for note in notes)
