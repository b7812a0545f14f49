"""Error table: complete, and the generated page is current."""

from pathlib import Path

import pytest

from golden.errors import RULES, ErrorCode, TmaError, errors_table

ROOT = Path(__file__).parents[2]


def test_every_code_has_a_rule():
    assert set(RULES) == set(ErrorCode) - {ErrorCode.NONE}


def test_the_page_is_current():
    page = ROOT / "docs" / "errors.md"
    assert page.read_text() == errors_table(), "stale, run: python -m golden errors docs/errors.md"


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_the_message_names_parameter_value_limit_and_origin(code):
    error = TmaError(code, "box_dim[3]", 7, "must be 8", dim=3)
    assert str(error) == f"box_dim[3] = 7: must be 8 [{code.name}, {RULES[code].origin.value}]"
    assert (error.code, error.detail, error.dim, error.value) == (code, code, 3, 7)
