"""Parameters of a test of which ``make test`` runs a few, and ``make regress`` all."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick(values: Iterable[Any], count: int) -> list[Any]:
    """Return ``values`` for ``pytest.mark.parametrize``; all but the first ``count`` are long runs.

    Further seeds of a random test find what the first ones miss, at the same price each.
    """
    return [value if number < count else _long(value) for number, value in enumerate(values)]


def _long(value: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.regress)
