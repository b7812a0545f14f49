"""Error table: complete, and the generated page is current."""

import re
from pathlib import Path

import pytest

from golden.errors import RULES, SILICON, ErrorCode, TmaError, errors_table
from golden.vectors import read_arrays

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests" / "silicon"


def test_every_code_has_a_rule():
    assert set(RULES) == set(ErrorCode) - {ErrorCode.NONE}


def test_the_page_is_current():
    page = ROOT / "docs" / "errors.md"
    remedy = "stale, run: .venv/bin/python -m golden errors docs/errors.md"
    assert page.read_text() == errors_table(), remedy


def test_every_code_of_a_request_has_the_answer_of_silicon():
    assert set(SILICON) == {code.name for code in ErrorCode if 0 < code < 32}


def test_the_recordings_have_the_cases_that_the_page_names():
    named = set(re.findall(r"`([^`]+)`", " ".join(SILICON.values())))
    files = {name for name in named if name.endswith(".npz")}
    odd = read_arrays(RECORDINGS / "clusters_odd.npz")["programs"]["name"].tolist()
    refused = read_arrays(RECORDINGS / "transfers.npz")["cases"]
    kinds = refused["kind"][refused["refused"]].tolist()
    assert files == {"clusters_odd.npz", "transfers.npz", "barriers.npz"}
    assert named - files <= {*odd, *kinds}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_the_message_names_parameter_value_limit_and_origin(code):
    error = TmaError(code, "box_dim[3]", 7, "must be 8", dim=3)
    assert str(error) == f"box_dim[3] = 7: must be 8 [{code.name}, {RULES[code].origin.value}]"
    assert (error.code, error.detail, error.dim, error.value) == (code, code, 3, 7)
