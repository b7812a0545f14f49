"""Save files for GTKWave: the unit's signals in groups, enumerations by name, for VCD and FST."""

import math
import re
import struct
import subprocess
import sys

import pytest

from hw.params import PRESETS
from sim_tb.simulator import runner
from sim_tb.simulator.waves import (
    FRAME,
    GROUPS,
    PIXELS,
    last_time,
    leaf_nets,
    nets,
    select,
    write_save_file,
)
from tests.sim_tb.simulator.gtkwave import unread

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
  wire _12;
  wire [3:0] \\i__payload$3 ;
endmodule
""".replace("\\\\", "\\")


def test_fields_in_place_of_their_struct():
    known = nets(VERILOG, "tma")
    names = [net.name for net in leaf_nets(known, "i")]
    assert names == ["i__valid", "i__ready", "i__payload.op", "i__payload.tag"]
    assert known["i__payload.op"].members == {"00": "LOAD", "01": "STORE"}
    assert known["i__payload.tag"].width == 4


@pytest.fixture(scope="module")
def verilog():
    return runner.generate(PRESETS["default"]) / "tma.v"


@pytest.mark.parametrize("module", ["tma", "reduction_unit"])
def test_gtkwave_reads_every_name(verilog, module):
    """Also the names of the reduction unit, which is in no trace of the short tests."""
    text = verilog.with_name(f"{module}.v").read_text()
    names = set(re.findall(r"^  (?:wire|reg) (?:\[\d+:0\] )?\\?(\S+?)[ ;]", text, re.MULTILINE))
    assert len(names) > 300
    assert list(unread("\n".join(f"$var wire 1 # {name} $end" for name in names))) == []


REFUSED = """\
$scope module a b $end
$var wire 1 # a.cc:1 $end
$var wire 2 # a[x] $end"""
READ = r"""
$scope module $rootio $end
$var wire 1 # a $end
$var wire 1 # \a.cc:1 $end
$var wire 4 # a$3.b [3:0] $end
$var wire 1 # a[0] $end
$var wire 2 # a[0].b[3] [1:0] $end"""


def test_names_that_gtkwave_does_not_read():
    assert list(unread(REFUSED + READ)) == REFUSED.splitlines()


VCD = "$timescale 1ps $end\n$var wire 1 # clk $end\n$enddefinitions $end\n#0\n0#\n#64000\n1#\n"


@pytest.mark.parametrize(("trace", "last"), [(VCD, 64000), (VCD.partition("#0")[0], 0)])
def test_last_time_of_a_vcd(tmp_path, trace, last):
    path = tmp_path / "x.vcd"
    path.write_text(trace)
    assert last_time(path) == last


@pytest.fixture
def trace(tmp_path, request):
    """A trace of 64 ns, as far as the save file needs one."""
    path = tmp_path / f"x.{request.param}"
    path.write_text(VCD)
    if request.param == "fst":
        path.write_bytes(struct.pack(">BQQQ", 0, 329, 0, 64000))
    return path


@pytest.mark.parametrize(("trace", "escape"), [("vcd", "\\"), ("fst", "")], indirect=["trace"])
def test_save_file(tmp_path, verilog, trace, escape):
    text = write_save_file(trace, verilog).read_text()
    zoom = -math.log2(64000 / PIXELS * FRAME)
    assert f"\n*{zoom:.6f} -1 " in text
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
