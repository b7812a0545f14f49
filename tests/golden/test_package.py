"""The package as it is installed."""

import tomllib
from pathlib import Path

import golden

ROOT = Path(__file__).parents[2]


def test_type_checkers_of_users_read_the_annotations():
    assert (ROOT / "golden" / "py.typed").is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["golden"]


def test_every_public_name_exists():
    assert sorted(golden.__all__) == golden.__all__
    assert [name for name in golden.__all__ if not hasattr(golden, name)] == []
