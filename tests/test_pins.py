"""Pinned packages: versions, hashes, and what ``make setup`` does with them."""

import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from hw.flow.cache import ROOT
from tests.pins import FILES, Pin, pinned, pins

COPIED = "Makefile", "README.md", "LICENSE", "pyproject.toml", ".ci"
"""Files and folders that ``make pins`` and ``make setup`` need."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a copy of the files that ``make pins`` and ``make setup`` need."""
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_every_package_has_hashes(name):
    found = list(pins(ROOT / ".ci" / name))
    assert len(found) == len(re.findall(r"^\S+==", (ROOT / ".ci" / name).read_text(), re.MULTILINE))
    assert [pin.name for pin in found if not pin.hashes] == []


def test_the_environment_has_the_pinned_versions():
    expected = {name: pin.version for name, pin in pinned().items() if pin.here}
    assert {name: version(name) for name in expected} == expected


def test_a_pin_is_read(tmp_path):
    file = tmp_path / "pins.txt"
    digest = "0123456789abcdef" * 4
    file.write_text(
        "# made by hand\n"
        f"A_b==1.0.post1 \\\n    --hash=sha256:{digest}\n    # via c\n"
        f"d==2 ; python_version < '3' \\\n    --hash=sha256:{digest}\n"
        "e==3\n"
    )
    one = {digest}
    assert list(pins(file)) == [
        Pin("a-b", "1.0.post1", one, True),
        Pin("d", "2", one, False),
        Pin("e", "3", set(), True),
    ]


@pytest.mark.regress
def test_the_pins_are_those_that_the_command_writes(clone):
    """The command asks the index of packages. Releases may have more files by now."""
    (clone / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run(["make", "pins"], cwd=clone, check=True)
    for name in FILES:
        old, new = ({pin.name: pin for pin in pins(at / ".ci" / name)} for at in (ROOT, clone))
        assert {pin[:2] for pin in new.values()} == {pin[:2] for pin in old.values()}
        assert [pin.name for pin in old.values() if not pin.hashes <= new[pin.name].hashes] == []


@pytest.mark.regress
@pytest.mark.parametrize("change", [(r"sha256:\w{8}", "sha256:00000000"), (r" \\\n +--hash.*", "")])
def test_the_set_up_refuses_files_without_a_pinned_hash(clone, change):
    """A file is loaded from the index of packages, and refused."""
    file = clone / ".ci" / FILES[0]
    file.write_text(re.sub(*change, file.read_text()))
    setup = subprocess.run(
        ["make", "setup"], cwd=clone, capture_output=True, text=True, check=False
    )
    assert setup.returncode == 2
    assert "hash" in setup.stderr.lower()
    assert "set-up: packages are missing or do not fit, see above" in setup.stderr
    assert not (clone / ".venv" / ".ready").exists()
