"""Every error that a test of the golden model raises has a listed form and agrees with itself."""

import re
from functools import cache
from pathlib import Path

import pytest

from golden import ErrorCode, TmaError

FORMS = Path(__file__).with_name("messages.txt")
"""Forms of all messages: code, name of the parameter, and limit, with # for each number."""

NUMBER = r"(-?(?:0x[0-9a-f]+|\d+))"
REFUSED_WITH = {ErrorCode.MAP_FIELD: "word w2", ErrorCode.MBAR_FAULT: "the barrier's word"}
"""Codes whose value is not that of the parameter, and what it is."""

SPATIAL = "lower_corner", "upper_corner", "im2col_offsets"
FIRST_DIMENSION = {"global_strides": {1}} | {name: {0, 1} for name in SPATIAL}
"""Dimension of the first value of a sequence, if it is not 0; with interleave, W is dimension 0."""

LIMITS = {
    rf"must be from {NUMBER} to {NUMBER}(?!\*)": lambda value, low, high: low <= value <= high,
    rf"must be a multiple of {NUMBER}": lambda value, unit: value % unit == 0,
    rf"must be at most {NUMBER}": lambda value, most: value <= most,
    rf"must be {NUMBER}(?!\*)": lambda value, only: value == only,
}
"""Limits with numbers, and whether a value keeps them."""


@cache
def forms() -> frozenset[str]:
    return frozenset(FORMS.read_text().splitlines())


@cache
def form(names: str, parameter: str, limit: str) -> str:
    """Return the form of a message."""
    return f"{names} {re.sub(NUMBER, '#', f'{parameter}: {limit}')}"


def number_in(shown: str) -> int | None:
    """Return the number that a message compares with its limit; None if it shows no number."""
    found = re.search(rf"{NUMBER} bytes$", shown) or re.match(rf"{NUMBER}( |$)", shown)
    return int(found[1], 0) if found else None


def check(error: TmaError) -> None:
    """Check an error."""
    names = re.search(r"\[([^[]*), [^,]*\]$", str(error))[1]
    name = form(names, error.parameter, error.limit)
    if name not in forms():
        pytest.fail(f"{error}: a line of {FORMS.name} is missing: {name}")
    shown = error.text.removeprefix(f"{error.parameter} = ").partition(": ")[0]
    value = number_in(shown)
    if value is not None:
        for pattern, keeps in LIMITS.items():
            if found := re.match(pattern, error.limit):
                numbers = (int(text, 0) for text in found.groups())
                assert not keeps(value, *numbers), f"{error}: the value keeps the limit"
    if error.code in REFUSED_WITH:
        return
    if value is not None and error.value:
        assert value == error.value, f"{error}: its value is {error.value}"
    if index := re.match(r"(\w+)\[(\d+)\]", error.parameter):
        first = error.dim - int(index[2])
        assert first in FIRST_DIMENSION.get(index[1], {0}), f"{error}: its dimension is {error.dim}"


@pytest.fixture(autouse=True, scope="module")
def _errors_are_checked(request):
    """Check each error as soon as it is made, but for those that tests of `TmaError` make."""
    if request.module.__name__.endswith("test_errors"):
        yield
        return
    make = TmaError.__init__

    def checked(self, *arguments, **keywords):
        make(self, *arguments, **keywords)
        check(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TmaError, "__init__", checked)
        yield
