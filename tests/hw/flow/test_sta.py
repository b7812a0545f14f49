"""Standard cells: what is read from Yosys and OpenSTA, what is missing, and a small component."""

import json
import re
import shutil

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.flow import sta
from hw.flow.sta import Area, Macro, StaError

LIBERTY = """
library (small) {
  cell (NAND2X1) { area : 24; pin(A) { direction : input; } }
  cell ("NAND2X2") { area : 3.2e1; }
  cell(DFFX1) {
    area : 96.5; ff (q, qn) { clocked_on : "CLK"; }
  }
}
"""

STATISTICS = r"""
{
   "modules": {
      "\\top": {
         "num_cells_by_type": { "NAND2X1": 2, "top.part": 3 }
      },
      "\\top.part": {
         "num_cells_by_type": { "DFFX1": 4, "memory_8x3_ra_w1": 1 }
      }
   },
}
"""
"""With the comma behind the last entry that Yosys 0.23 writes."""

REPORT = """
Startpoint: tags.level[1]$_SDFFE_PP0P_
            (rising edge-triggered flip-flop clocked by clk)
Endpoint: table.macro (rising edge-triggered flip-flop clocked by clk)
Path Group: clk
Path Type: max

    Delay      Time   Description
-------------------------------------------------------------
   0.0000    0.0000   clock clk (rise edge)
   0.0000    0.0000   clock network delay (ideal)
   0.0000    0.0000 ^ tags.level[1]$_SDFFE_PP0P_/CLK (DFFPOSX1)
   0.1738    0.1738 v tags.level[1]$_SDFFE_PP0P_/Q (DFFPOSX1)
   2.0000    2.1738 v requests.fifo.storage.macro/r0_data[0] (memory_2x127_ra_w1)
   0.0627    2.2366 ^ gate_12/Y (INVX1)
   0.0000    2.8157 ^ table.macro/w0_data[3] (memory_8x60_rc_w1)
             2.8157   data arrival time

 100.0000  100.0000   clock clk (rise edge)
  -0.3000   99.7000   library setup time
-------------------------------------------------------------
            99.7000   data required time
            -2.8157   data arrival time
-------------------------------------------------------------
            96.8843   slack (MET)


Startpoint: tags.level[0]$_SDFFE_PP0P_
            (rising edge-triggered flip-flop clocked by clk)
Endpoint: table.macro (rising edge-triggered flip-flop clocked by clk)

   0.1738    0.1738 v tags.level[0]$_SDFFE_PP0P_/Q (DFFPOSX1)
             1.8157   data arrival time
            98.0000   slack (MET)


Startpoint: last$_DFF_P_ (rising edge-triggered flip-flop clocked by clk)
Endpoint: i__payload$17[3]$_DFFE_PP_
          (rising edge-triggered flip-flop clocked by clk)

   0.1738    0.1738 v last$_DFF_P_/Q (DFFPOSX1)
             4.0000   data arrival time
            95.0000   slack (MET)
"""


def test_areas():
    cells = sta.read_cells(LIBERTY)
    assert {name: (cell.um2, cell.is_flip_flop) for name, cell in cells.items()} == {
        "NAND2X1": (24, False),
        "NAND2X2": (32, False),
        "DFFX1": (96.5, True),
    }
    assert sta.smallest(cells, "nand2") == "NAND2X1"
    areas = sta.read_areas(STATISTICS, cells, {"memory_8x3_ra_w1": 24})
    assert areas == {"top": Area(48 + 3 * 386, 12, 72), "top.part": Area(386, 4, 24)}


def test_paths():
    """The longest path of each pair of registers, the slowest first."""
    first, second = sta.read_paths(REPORT, 100.0)
    assert (first.start, first.end, first.logic_ns) == ("last", "i__payload", 5)
    assert first.mhz == pytest.approx(200)
    assert second.path == "tags.level -> requests.fifo -> table"
    assert second.logic_ns == pytest.approx(3.1157)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: sta.read_paths("no paths found", 1.0), "has no path between registers"),
        (lambda: sta.read_paths("Startpoint: a", 1.0), "no endpoint or no slack"),
        (lambda: sta.read_cells("library (x) { }"), "no cell with an area"),
        (lambda: sta.smallest(sta.read_cells(LIBERTY), "buf"), "no cell with buf in its name"),
        (lambda: sta.read_areas(STATISTICS, {}, {}), "left a cell NAND2X1, which the library"),
    ],
)
def test_what_is_not_in_an_output_is_named(read, message):
    with pytest.raises(StaError, match=message):
        read()


def test_a_missing_tool_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sta.shutil, "which", lambda program: program == "yosys")
    monkeypatch.setattr(sta, "LIBRARY", tmp_path / "absent.lib")
    assert sta.main(["--preset", "tiny", "--liberty", str(sta.LIBRARY)]) == 2
    assert capsys.readouterr().err == (
        "make sta: opensta, qflow-tech-osu018: not installed; on Debian: "
        "apt-get install --no-install-recommends opensta qflow-tech-osu018\n"
    )


def test_mistakes_of_the_command_are_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sta.shutil, "which", lambda _program: True)
    assert sta.main(["--liberty", str(tmp_path / "my.lib")]) == 2
    assert re.search(r"LIBERTY=\S+my.lib: there is no such file", capsys.readouterr().err)
    with pytest.raises(SystemExit):
        sta.main(["--preset", "tiny,huge"])
    assert "no preset 'huge': must be one of default, " in capsys.readouterr().err


def test_memories_become_macros():
    """Names and pins tell depth, width, registers of reads and enables of writes."""
    macro = Macro(5, 8, (True, False), (2,))
    assert (macro.name, macro.bits) == ("memory_5x8_rca_w2", 40)
    assert [name for name, _, _ in macro.pins()] == [
        *("r0_address", "r0_enable", "r0_data", "r1_address", "r1_data"),
        *("w0_address", "w0_enable", "w0_data"),
    ]


class Small(wiring.Component):
    """A sum behind a memory, whose address is a register."""

    def __init__(self):
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, _platform):
        m = Module()
        m.submodules.part = part = Module()
        part.submodules.rows = rows = Memory(shape=8, depth=16, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        place = Signal(4)
        part.d.sync += place.eq(place + 1)
        part.d.comb += [
            *(write.en.eq(1), write.addr.eq(place), write.data.eq(self.i)),
            read.addr.eq(place),
        ]
        m.d.sync += self.o.eq(self.o + read.data)
        return m


@pytest.mark.skipif(
    not (sta.LIBRARY.exists() and all(map(shutil.which, sta.PACKAGES))),
    reason="Debian's yosys, opensta and qflow-tech-osu018 are not all installed",
)
def test_a_small_component(monkeypatch, tmp_path):
    """Twelve flip-flops, 128 bits of memory, and a path from the address to the sum."""
    monkeypatch.setenv("OPEN_TMA_CACHE", str(tmp_path))
    result = sta.measure(Small(), sta.LIBRARY, sta.MEMORY_NS)
    unit, part = result.blocks[""], result.blocks["part"]
    assert (unit.flip_flops, unit.memory_bits) == (12, 128)
    assert (part.flip_flops, part.memory_bits) == (4, 128)
    assert unit.um2 > 8 * 96 + part.um2 > part.um2 > 4 * 96
    assert result.nand2_um2 == 24
    assert (result.paths[0].start, result.paths[0].end) == ("part.place", "o")
    assert sta.MEMORY_NS < result.paths[0].logic_ns < sta.MEMORY_NS + 5
    assert sta.measure(Small(), sta.LIBRARY, 4.0).mhz < result.mhz
    json.dumps(sta.contents(sta.LIBRARY, sta.MEMORY_NS, {"small": result}))
