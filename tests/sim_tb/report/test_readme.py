"""Every table of README.md is that of its source, and documents agree with each other."""

import json
import re

import pytest

from hw.flow.tables import markers, read_table
from sim_tb.report import readme
from sim_tb.simulator import runner
from sim_tb.sm import launch

README = runner.ROOT / "README.md"


def test_readme_is_up_to_date() -> None:
    text = README.read_text()
    assert text == readme.refreshed(text), "run: make readme"


def test_every_table_has_a_source() -> None:
    """No table of README.md is outside of markers."""
    text = README.read_text()
    for name in readme.TABLES:
        start, end = markers(name)
        text = re.sub(f"{re.escape(start)}.*?{re.escape(end)}", "", text, flags=re.DOTALL)
    assert not [line for line in text.splitlines() if line.startswith(("|", "│"))]


def test_sources_change_the_tables(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """A new figure in docs/performance.md makes README.md stale."""
    page = tmp_path / "performance.md"
    head, rows = read_table(readme.PERFORMANCE.read_text(), "files")
    worst = rows[0][head.index("worst")]
    start, end = markers("files")
    before, table, after = re.split(
        f"({re.escape(start)}.*?{re.escape(end)})", readme.PERFORMANCE.read_text(), flags=re.DOTALL
    )
    page.write_text(before + table.replace(worst, "1.500") + after)
    monkeypatch.setattr(readme, "PERFORMANCE", page)
    assert "1.500" in readme.performance()
    assert README.read_text() != readme.refreshed(README.read_text())


def test_every_target_of_the_makefile_is_a_command() -> None:
    makefile = (runner.ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    rows = [line for line in readme.commands().splitlines() if line.startswith("| `make ")]
    assert {row.split("`")[1].split()[1] for row in rows} == targets


def test_documents_agree_on_the_gemm() -> None:
    """docs/sim.json and the table of kernels in docs/performance.md have the same figures."""
    head, rows = read_table(readme.PERFORMANCE.read_text(), "kernels")
    gemm = dict(zip(head, next(row for row in rows if row[0] == "`gemm`"), strict=True))
    figures = json.loads(readme.SIM.read_text())["sim"]["figures"]
    assert gemm["cycles"] == figures["cycles"]
    assert gemm["tensor cores busy"] == figures["tensor cores busy"]
    assert gemm["tensor cores starve"] == figures["tensor cores starve"]
    assert gemm["lines read per clock"] == figures["lines read per cycle"]


@pytest.mark.simulators
@pytest.mark.parametrize("name", ["sim", pytest.param("cluster_sim", marks=pytest.mark.regress)])
def test_figures_of_make_sim(name: str) -> None:
    """A run has the figures of docs/sim.json, which README.md shows."""
    (record,) = launch.run([readme.job(name)])
    assert readme.figures(record) == json.loads(readme.SIM.read_text())[name], (
        "run: make readme MEASURE=1"
    )
