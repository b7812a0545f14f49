"""The example of docs/integration.md, in every simulator that is there; Yosys reads the unit."""

import doctest
import re
import shutil
import subprocess

import pytest

from golden import TensorMap
from hw.flow.cache import ROOT, generated
from hw.flow.yosys import YOSYS
from hw.params import PRESETS, parameters
from sim_tb.four_state.icarus import powered_up
from tests.hw.flow import icarus
from tests.hw.flow.load_tile import EXAMPLE, build_example
from tests.quick import quick
from tests.top.units import FPGA, SMALL, TINY

PAGE = ROOT / "docs" / "integration.md"
PASSED = "0 of 256 bytes are wrong"


@pytest.mark.simulators.with_args(build_example)
def test_verilator() -> None:
    program = build_example() / "load_tile"
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert PASSED in ran.stdout


UNITS = {
    "tiny": TINY,
    "small": SMALL,
    "default": PRESETS["default"],
    "fpga": pytest.param(FPGA, marks=pytest.mark.regress),
}


@icarus.installed
@pytest.mark.parametrize("way", quick(icarus.WAYS, 1))
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_icarus(unit, way, tmp_path) -> None:
    """The unit is read as it is, and no assertion fails although idle inputs are undefined."""
    rtl = generated(unit)
    ran = icarus.run([way, f"-I{rtl}", rtl / "tma.v", EXAMPLE], tmp_path)
    assert (ran.stdout.splitlines()[0], ran.returncode) == (PASSED, 0)


@icarus.installed
def test_the_example_finds_a_wrong_byte(tmp_path) -> None:
    rtl = generated(TINY)
    wrong = tmp_path / "wrong.v"
    wrong.write_text(EXAMPLE.read_text().replace("expected = 0;", "expected = 1;"))
    ran = icarus.run([f"-I{rtl}", rtl / "tma.v", wrong], tmp_path)
    assert "192 of 256 bytes are wrong" in ran.stdout
    assert ran.returncode == 1


def test_yosys(tmp_path) -> None:
    """Yosys reads the unit as plain Verilog, and finds no mistake in it."""
    shutil.copy(generated(TINY) / "tma.v", tmp_path)
    script = "read_verilog tma.v; hierarchy -check -top tma; proc; check -assert"
    command = [YOSYS, "-q", "-p", script]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_page_has_the_example() -> None:
    page = (ROOT / "docs" / "integration.md").read_text()
    (quoted,) = re.findall(
        r"^```verilog\n(// Loads a tile.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    assert quoted == EXAMPLE.read_text()


def test_the_words_are_those_of_the_golden_model() -> None:
    """Also those that the page shows."""
    (words,) = re.findall(r"WORDS = \{(.*?)\};", EXAMPLE.read_text(), re.DOTALL)
    written = [int(word, 16) for word in re.findall(r"32'h(\w+)", words)]
    tensor_map = TensorMap.tiled("u32", 0x1000, (16, 8), (64,), (16, 4))
    assert written[::-1] == [
        int.from_bytes(tensor_map.encode()[i : i + 4], "little") for i in range(0, 64, 4)
    ]


def test_the_page() -> None:
    """The Python example gives what the page shows, and the settings of parameters are legal."""
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0
    (line,) = re.findall(r"^\S+ -m hw\.verilog (.*) --out rtl$", PAGE.read_text(), re.MULTILINE)
    assert parameters(line.split()[1], line.split()[3::2]) not in PRESETS.values()


@icarus.installed
def test_power_up(tmp_path) -> None:
    """The load is right although all registers and memories are undefined at power-up."""
    rtl = generated(TINY)
    verilog = (rtl / "tma.v").read_text()
    unit = tmp_path / "tma.v"
    unit.write_text(powered_up(verilog))
    assert unit.read_text() != verilog
    ran = icarus.run([f"-I{rtl}", unit, EXAMPLE], tmp_path)
    assert (ran.stdout.splitlines()[0], ran.returncode) == (PASSED, 0)
