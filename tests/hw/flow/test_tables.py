"""The tables of README.md that follow from the sources of ``hw``, and the functions for tables."""

from pathlib import Path

import pytest

from hw.flow import tables
from hw.flow.tables import filled, read_table, refreshed, summary, table

README = Path(__file__).parents[3] / "README.md"
TABLE = table(("a", "b"), [("1", "2"), ("", "3")])


def test_readme_is_up_to_date():
    text = README.read_text()
    assert text == refreshed(text), "run: python -m hw.tables README.md"


def test_a_table_is_written_and_read():
    text = filled("head\n<!-- x -->\nold\n<!-- /x -->\nend\n", {"x": TABLE})
    assert text == f"head\n<!-- x -->\n{TABLE}\n<!-- /x -->\nend\n"
    assert read_table(text, "x") == (["a", "b"], [["1", "2"], ["", "3"]])


@pytest.mark.parametrize("text", ["", "<!-- x -->", "<!-- x --><!-- /x --><!-- x --><!-- /x -->"])
def test_markers_are_there_once(text):
    with pytest.raises(ValueError, match="expected one <!-- x --> and one <!-- /x -->"):
        filled(text, {"x": TABLE})


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("Free list: hands out numbers. And more.", "Hands out numbers."),
        ("Free lists: ``n`` numbers.\n\nMore.", "`n` numbers."),
        ("Other name: hands out\nnumbers.", "Other name: hands out numbers."),
        ("A free list.", "A free list."),
    ],
)
def test_the_summary_of_a_block(docstring, sentence, tmp_path):
    path = tmp_path / "free_list.py"
    path.write_text(f'"""{docstring}"""\n')
    assert summary(path) == sentence


def test_ports_of_clusters_are_marked():
    rows = {
        row[0]: row[2:4]
        for row in (line.strip("| ").split(" | ") for line in tables.ports().splitlines())
    }
    assert rows["`packet_in`"][1] == "`ctas` > 1"
    assert rows["`packet_in`"][0].endswith(" (`cluster`)")
    assert rows["`smem_read`"][1] == "`stores`"
    assert rows["`trace`"] == ["128", "`counters`"]
    assert rows["`counters`"] == ["", "`counters`"]
    assert rows["`request`"][0] == str(tables.port_widths(tables.PRESETS["default"])["request"])


def test_a_new_package_must_be_listed(monkeypatch):
    monkeypatch.setattr(tables, "STAGES", tables.STAGES[:-1])
    with pytest.raises(ValueError, match="unknown packages lib"):
        tables.blocks()
