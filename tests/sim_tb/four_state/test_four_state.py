"""Runs from X at power-up in Icarus Verilog, and mistakes that they find."""

import re
from dataclasses import replace

import pytest

from hw.flow.cache import generated
from hw.params import PRESETS
from sim_tb.four_state import icarus
from sim_tb.four_state.__main__ import main
from sim_tb.four_state.program import gemm_program
from sim_tb.kernels.gemm import Gemm
from sim_tb.testbench.interface import Interface
from tests.hw.flow.icarus import installed
from tests.top.units import TINY

UNITS = {"tiny": TINY, "default": PRESETS["default"]}


def program_of(params):
    """Return the program of one tile with one step, and the folder of the unit."""
    rtl = generated(params)
    gemm = Gemm(m=128, n=40, k=64, stages=1)
    return gemm_program(gemm, Interface(rtl / "tma.json")), rtl


@installed
@pytest.mark.parametrize("params", UNITS.values(), ids=UNITS)
def test_a_tile(params, tmp_path):
    program, rtl = program_of(params)
    outcome = icarus.replay(program, rtl, tmp_path)
    assert outcome.lines_read == (128 + 40) * 128 // params.line_bytes
    rows = 128 * params.stores
    assert outcome.lines_written == 2 * rows  # a row of C has 160 bytes


@installed
@pytest.mark.regress
def test_the_command(capsys):
    """Two tiles of C with two steps each, in a ring of stages."""
    assert main(["--stages", "3"]) == 0
    printed = capsys.readouterr().out
    assert "8 loads, 16 stores" in printed
    assert "No output has an X after reset" in printed


def without_reset(verilog, module, register):
    """Return the Verilog with a register of a module that the reset does not set."""
    text = re.search(rf"^module \\{re.escape(module)} \(.*?^endmodule", verilog, re.M | re.S)[0]
    value = re.search(rf"^    {register} +<= (\w+);$", text, re.M)[1]
    reset = rf"    if \(rst\) begin\n      {value} = \S+;\n    end\n"
    changed, count = re.subn(reset, "", text)
    assert count == 1
    return verilog.replace(text, changed)


REGISTERS = {
    "startup": ("tma.startup", "clears"),
    "valid": ("tma.request_queue", "valid"),
    "stored": ("tma.request_queue", "stored_0"),
}


@installed
@pytest.mark.parametrize(("module", "register"), REGISTERS.values(), ids=REGISTERS)
def test_a_register_without_reset_is_found(module, register, tmp_path):
    program, rtl = program_of(TINY)
    verilog = without_reset((rtl / "tma.v").read_text(), module, register)
    with pytest.raises(icarus.IcarusError, match=r"has X|^\w+: "):
        icarus.replay(program, rtl, tmp_path, verilog)


@installed
def test_a_wrong_byte_is_found(tmp_path):
    program, rtl = program_of(TINY)
    program.data[0][5, 3] ^= 1
    with pytest.raises(icarus.IcarusError, match=r"shared memory at 50: .*\n.* 1 wrong pieces"):
        icarus.replay(program, rtl, tmp_path)


@installed
def test_wrong_global_memory_is_found(tmp_path):
    program, rtl = program_of(TINY)
    wrong = replace(program, after=program.after ^ 1)
    with pytest.raises(icarus.IcarusError, match=r"global memory at ffffff000: "):
        icarus.replay(wrong, rtl, tmp_path)


def test_nothing_has_an_initial_value():
    """Only ``_start`` has one, which starts combinational blocks."""
    text = icarus.powered_up((generated(TINY) / "tma.v").read_text())
    assert not re.search(r"^  reg .*=", text, re.M)
    assert set(re.findall(r"^  initial .*", text, re.M)) == {"  initial _start <= 1'h0;"}


def test_icarus_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(icarus.shutil, "which", lambda _name: None)
    assert main([]) == 1
    assert capsys.readouterr().err == (
        "iverilog, a program of Icarus Verilog, is not installed: "
        "apt-get install --no-install-recommends iverilog\n"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--k", "7"], "k = 7: a row has 14 bytes"),
        (["--stages", "6"], "stages must be at most 5"),
        (["--m", "x"], "argument --m: invalid int value: 'x'"),
        (["--cluster", "2x1"], "--cluster: there is no such option"),
    ],
)
def test_wrong_options(words, reason, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert reason in capsys.readouterr().err
