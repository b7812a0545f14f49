"""The RTL against every recorded transfer."""

from pathlib import Path

import pytest

from golden.vectors import check, read_cases
from sim_tb import runner
from sim_tb.rtl_conformance import outcomes, unsupported

SILICON = runner.ROOT / "tests" / "silicon"
CASES = {"transfers": 1438 + 1303, "workloads": 132}
"""In each file, loads and stores; multicast left out."""


@pytest.mark.parametrize("models", ["fixed", "random", "rough"])
@pytest.mark.parametrize("name", ["transfers", "workloads"])
def test_recorded_transfers(name: str, models: str) -> None:
    cases = [case for case in read_cases(Path(SILICON, f"{name}.npz")) if not unsupported(case)]
    assert len(cases) == CASES[name]
    found = outcomes(cases, models=models)
    wrong = [check(case, outcome) for case, outcome in zip(cases, found, strict=True)]
    assert [text for text in wrong if text] == []


def test_what_is_missing_is_said() -> None:
    cases = read_cases(Path(SILICON, "transfers.npz"))
    missing = [case for case in cases if unsupported(case)][:3]
    notes = [found.note or "" for found in outcomes(missing)]
    assert len(notes) == 3
    assert all(note.startswith("not supported yet") for note in notes)
