"""The same commit gives the same Verilog, byte for byte."""

import sys
from pathlib import Path

import pytest

from hw.flow.cache import ROOT
from hw.params import PRESETS
from tests.hw.flow import reproduce


def test_hashes_of_strings_do_not_matter():
    first, second = (reproduce.digests(sys.executable, "tiny", seed) for seed in (1, 2))
    assert "tma.v" in first
    assert second == first


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment of another Python, of another minor version if any.

    Its packages are loaded from their index, so this needs a network.
    """
    pythons = reproduce.other_pythons()
    if not pythons:
        pytest.skip(reproduce.MISSING)
    return reproduce.environment(next(iter(pythons.values())), tmp_path_factory.mktemp("other"))


@pytest.mark.regress
@pytest.mark.parametrize("preset", PRESETS)
def test_two_pythons_write_the_same(preset, other):
    assert reproduce.digests(other, preset, 1) == reproduce.digests(sys.executable, preset)


def test_signals_of_dataclasses_have_names():
    """Amaranth finds the name of an attribute in the byte code, which no two Pythons share."""
    sources = {path: path.read_text() for path in (ROOT / "hw").rglob("*.py")}
    assert [path for path, text in sources.items() if "default_factory=Signal" in text] == []


def test_a_difference_is_reported(monkeypatch, capsys):

    def digests(python, _preset, _seed=0):
        return {"tma.v": "1", "tma.vh": "2" if python == Path("there") else "3"}

    monkeypatch.setattr(reproduce, "other_pythons", lambda: {"3.99.0": Path("there")})
    monkeypatch.setattr(reproduce, "environment", lambda python, _directory: python)
    monkeypatch.setattr(reproduce, "digests", digests)
    assert reproduce.main(["tiny"]) == 1
    assert "tiny: Python 3.99.0 differs: tma.vh\n" in capsys.readouterr().out


def test_a_missing_python_is_reported(monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "other_pythons", dict)
    with pytest.raises(SystemExit, match="2"):
        reproduce.main(["tiny"])
    assert "there is no second Python to compare with" in capsys.readouterr().err
