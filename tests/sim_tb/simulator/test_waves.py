"""Save files for GTKWave: the unit's signals in groups, enumerations by name, for VCD and FST."""

import subprocess
import sys

import pytest

from hw.params import PRESETS
from sim_tb.simulator import runner
from sim_tb.simulator.waves import GROUPS, hide_anonymous, leaf_nets, nets, select, write_save_file

VERILOG = r"""module tma(clk);
  input clk;
  wire clk;
  wire i__valid;
  wire i__ready;
  wire [5:0] i__payload;
  (* enum_base_type = "Op" *)
  (* enum_value_00 = "LOAD" *)
  (* enum_value_01 = "STORE" *)
  wire [1:0] \\i__payload.op ;
  wire [3:0] \\i__payload.tag ;
  wire \\$12 ;
  wire [3:0] \\i__payload$3 ;
endmodule
""".replace("\\\\", "\\")


def test_fields_in_place_of_their_struct():
    known = nets(VERILOG, "tma")
    names = [net.name for net in leaf_nets(known, "i")]
    assert names == ["i__valid", "i__ready", "i__payload.op", "i__payload.tag"]
    assert known["i__payload.op"].members == {"00": "LOAD", "01": "STORE"}
    assert known["i__payload.tag"].width == 4


def test_anonymous_nets_are_hidden():
    assert "wire _12 ;" in hide_anonymous(VERILOG)


@pytest.fixture(scope="module")
def verilog():
    return runner.generate(PRESETS["default"]) / "tma.v"


@pytest.mark.parametrize(("suffix", "escape"), [("vcd", "\\"), ("fst", "")])
def test_save_file(tmp_path, verilog, suffix, escape):
    text = write_save_file(tmp_path / f"x.{suffix}", verilog).read_text()
    for title, _, _ in GROUPS:
        assert (f"\n-{title}\n" in text) == (title != "cluster port")  # the unit is alone
    assert f" tb_top.dut.{escape}setup_block__job__payload.walk.start[59:0]\n" in text
    assert " tb_top.dut.request_generator.lane_0.run_walker.state[1:0]\n" in text
    assert (tmp_path / "names" / "state.txt").read_text() == "00 IDLE\n01 RUNS\n10 BARE\n"
    assert (
        "NAN" in (tmp_path / "names" / "setup_block__job__payload.walk.style.fill.txt").read_text()
    )


def test_names_select_tests():
    assert select("test_rules[unreadable_lines_are_an_error]").endswith(
        "::test_rules[unreadable_lines_are_an_error]"
    )
    with pytest.raises(ValueError, match="TEST=nonsense: no simulated test"):
        select("nonsense")
    with pytest.raises(ValueError, match="tests match; choose one"):
        select("test_random_loads")


def test_unknown_test_is_an_error():
    command = [sys.executable, "-m", "sim_tb.waves", "nonsense"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "TEST=nonsense" in result.stderr
