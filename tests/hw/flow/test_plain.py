"""Plain Verilog: the forms of its text, and what Icarus does with a small component."""

import re

import pytest
from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.flow.verilog import convert
from tests.hw.flow import icarus

MESSAGE = "the input is 3, which is 100% wrong; (really)"


class Checked(wiring.Component):
    """A register with an assertion, and outputs that never change."""

    def __init__(self) -> None:
        empty = data.StructLayout({"a": 1, "none": 0})
        ports = {"i": In(2), "wide": In(empty), "o": Out(2), "constant": Out(3), "first": Out(3)}
        super().__init__(ports)

    def elaborate(self, _platform) -> Module:
        m = Module()
        kept = Signal(3, init=5)
        m.d.sync += [self.o.eq(self.i), kept.eq(kept), Assert(self.i != 3, f"{MESSAGE}\n")]
        with m.If(self.o == 2):
            m.d.sync += Assert(self.wide.a, "the field must be 1\n")
        m.d.comb += self.constant.eq(1)
        m.d.comb += self.constant[1:].eq(2)
        with m.Switch(kept), m.Case(5):
            m.d.comb += self.first.eq(6)
        return m


@pytest.fixture(scope="module")
def text() -> str:
    return convert(Checked(), "checked")


def test_the_text_is_plain(text) -> None:
    assert not re.search(r"\bassert\b|\\\$|\[-1:0\]", text)
    assert text.count("`ifndef SYNTHESIS\n") == text.count("`endif\n") == 1
    assert text.count("reg _start;\n  initial _start <= 1'h0;\n") == 1


BENCH = """
module bench;
  reg clk = 0, rst = 1;
  reg [1:0] i = 3;
  reg wide = 0;
  wire [1:0] o;
  wire [2:0] constant, first;
  checked dut(
      .clk(clk), .rst(rst), .i(i), .wide(wide), .o(o), .constant(constant), .first(first));
  always #1 clk = !clk;
  initial begin
    #4 i = 1; rst = 0;
    #4 $display("%0d %0d %0d", o, constant, first);
    #4 {wide, i} = 3'bNEXT;
    #4 $display("no assertion failed");
    $finish;
  end
endmodule
"""


@icarus.installed
@pytest.mark.parametrize("way", icarus.WAYS)
@pytest.mark.parametrize(
    ("following", "last", "status"),
    [
        ("110", "no assertion failed", 0),
        ("111", MESSAGE, 1),
        ("1x1", MESSAGE, 1),
        ("010", "the field must be 1", 1),
    ],
)
def test_icarus(text, way, following, last, status, tmp_path) -> None:
    """Constant blocks have their values; the assertion fails, but not during reset."""
    path = tmp_path / "bench.v"
    path.write_text(text + BENCH.replace("NEXT", following))
    ran = icarus.run([way, path], tmp_path)
    lines = [line for line in ran.stdout.splitlines() if "$finish" not in line]
    assert (lines[:2], ran.returncode) == (["1 5 6", last], status)


class Asserted(wiring.Component):
    """A block with an assertion."""

    def __init__(self, domain: str, message: str | None) -> None:
        self.domain, self.message = domain, message
        super().__init__({"i": In(1), "o": Out(1)})

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.d.sync += self.o.eq(self.i)
        m.d[self.domain] += Assert(self.i, self.message)
        return m


@pytest.mark.parametrize(("domain", "message"), [("comb", "no\n"), ("sync", None)])
def test_other_assertions_are_refused(domain, message) -> None:
    with pytest.raises(ValueError, match="module asserted: an assertion must be clocked and have"):
        convert(Asserted(domain, message), "asserted")
