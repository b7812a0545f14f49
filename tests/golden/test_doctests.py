"""Examples in docstrings and in the guide have the results that they show."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import golden

MODULES = sorted(m.name for m in pkgutil.iter_modules(golden.__path__) if m.name != "__main__")


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"golden.{name}"))
    assert result.failed == 0


@pytest.mark.parametrize(
    "name", ["tensor_map", "plan", "model", "cluster", "advice", "errors", "tensormap_replace"]
)
def test_there_are_examples(name):
    assert doctest.testmod(importlib.import_module(f"golden.{name}")).attempted > 0


def test_the_guide():
    page = Path(__file__).parents[2] / "docs" / "golden_model.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert (result.failed, result.attempted > 10) == (0, True)
