"""The modules around a unit: other tools read them, and ``make paths`` has them."""

import json
import shutil
import subprocess

import pytest

from hw.flow import paths
from hw.flow.cache import generated
from hw.flow.lint import CONTEXTS
from hw.flow.yosys import YOSYS
from hw.params import PRESETS
from tests.hw.flow import icarus
from tests.quick import quick
from tests.top.units import HOST

TOPS = {"tma_axi": HOST, "tma_host": HOST, "tma_contexts": CONTEXTS}


@icarus.installed
@pytest.mark.parametrize("way", quick(icarus.WAYS, 1))
@pytest.mark.parametrize("top", TOPS)
def test_icarus(top, way, tmp_path) -> None:
    rtl = generated(TOPS[top])
    command = ["iverilog", way, "-Wall", "-s", top, "-o", tmp_path / "program.vvp"]
    sources = [rtl / "tma.v", rtl / f"{top}.v"]
    ran = subprocess.run([*command, *sources], capture_output=True, text=True, check=False)
    assert (ran.stderr, ran.returncode) == ("", 0)


@pytest.mark.parametrize("top", TOPS)
def test_yosys(top, tmp_path) -> None:
    """Yosys reads the modules as plain Verilog, and finds no mistake in them: also no latch."""
    for name in "tma", top:
        shutil.copy(generated(TOPS[top]) / f"{name}.v", tmp_path)
    script = (
        f"read_verilog tma.v {top}.v; hierarchy -check -top {top}; proc; check -assert; "
        "select -assert-none t:$dlatch t:$adlatch"
    )
    command = [YOSYS, "-q", "-p", script]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_signals_have_the_names_of_axi() -> None:
    """All ports of ``tma_host`` are clock, reset, interrupt, and signals of the two buses."""
    ports = json.loads((generated(HOST) / "tma_host.json").read_text())["ports"]
    names = {port["name"]: port["direction"] for port in ports}
    buses = {name for name in names if name.startswith(("m_axi_", "s_axi_"))}
    assert names.keys() - buses == {"clk", "rst", "irq"}
    for name in "m_axi_awvalid", "m_axi_bready", "s_axi_rdata", "s_axi_wready", "irq":
        assert names[name] == "output"
    for name in "m_axi_wready", "m_axi_rdata", "s_axi_awaddr", "s_axi_bready", "s_axi_wstrb":
        assert names[name] == "input"


@pytest.mark.parametrize(
    ("preset", "unit"), [("tiny", "Tma"), ("axi", "AxiTma"), ("host", "HostTma")]
)
def test_paths_are_those_of_the_whole_unit(preset, unit, monkeypatch) -> None:
    for name in paths.UNITS:
        monkeypatch.setattr(paths, name, lambda _params, name=name: name)
    assert paths.unit_of(PRESETS[preset]) == unit
