"""Vector files: wrong outcomes are found and explained."""

from pathlib import Path

import numpy as np
import pytest

from golden import Cause
from golden.conformance import outcomes
from golden.vectors import Outcome, VectorError, check, read_cases

TRANSFERS = Path(__file__).parents[1] / "silicon" / "transfers.npz"


@pytest.fixture(scope="module")
def case():
    return next(c for c in read_cases(TRANSFERS, ["load_tile"]) if c.rank == 2)


@pytest.fixture
def outcome(case):
    (right,) = outcomes([case])
    assert check(case, right) is None
    return right


def test_a_wrong_byte_is_named_with_its_element(case, outcome):
    written = int(np.flatnonzero(case.expect != 0xCD)[0])
    outcome.memory[written] ^= 0xFF
    text = check(case, outcome)
    assert f"first shared byte {written:#x}" in text
    assert "element (" in text


def test_a_byte_too_many_is_found(case, outcome):
    outcome.memory[case.expect.size + 5] = 0
    assert f"{case.expect.size + 5:#x} written" in check(case, outcome)


def test_a_wrong_count_is_found(case, outcome):
    wrong = Outcome(bytes=outcome.bytes + 16, memory=outcome.memory)
    assert "complete_tx" in check(case, wrong)


def test_a_wrong_verdict_is_found(case, outcome):
    assert "got refused: COORD_ALIGN" in check(case, Outcome(refused=Cause.COORD_ALIGN))
    refused = next(c for c in read_cases(TRANSFERS, ["load_mis"]) if c.refused)
    assert "silicon refused, got accepted" in check(refused, outcome)


def test_what_is_not_there_yet_fails(case):
    (later,) = outcomes(read_cases(TRANSFERS, ["store_tile"], limit=1))
    assert "has no tile store yet" in check(case, later)


@pytest.mark.parametrize(
    ("kinds", "limit", "message"),
    [(["nonsense"], None, "no kind nonsense"), ([], 0, "no case selected")],
)
def test_bad_selection(kinds, limit, message):
    with pytest.raises(VectorError, match=message):
        read_cases(TRANSFERS, kinds, limit)


def test_bad_file(tmp_path):
    path = tmp_path / "x.npz"
    path.write_text("no")
    with pytest.raises(VectorError, match="not a file of vectors"):
        read_cases(path)
    np.savez(path, cases=np.zeros(1, [("kind", "U4")]))
    with pytest.raises(VectorError, match="cases without"):
        read_cases(path)
