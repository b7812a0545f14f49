r"""Plain Verilog: turns what Yosys writes into Verilog-2005 that simulators and Yosys itself read.

Four forms of Yosys' text are changed:

* Names of anonymous nets, such as ``\$12``, begin with an underscore. Readers of VCD files would
  take ``$12`` for a keyword. Verilator does not trace names that begin with an underscore.
* The first evaluation of combinational blocks. In SystemVerilog, variables have their initial
  values before any ``always @*`` waits for a change, so that a block whose inputs never change is
  never evaluated. Every block depends on ``_start``, which gets its value after all blocks wait.
* Assertions. ``assert`` is SystemVerilog. A test takes its place, which writes the message of the
  assertion and stops the simulation. It is off during reset, and synthesis leaves it out.
* Wires without bits are left out. Yosys declares them as ``[-1:0]``, which is two bits.
"""

import re

_ANONYMOUS = re.compile(r"\\\$(\S+) ")
_TRIGGER = r"_auto_verilog_backend_cc_\d+_dump_module_\d+"
_DECLARATION = re.compile(rf"^  reg {_TRIGGER} = 0;$", re.MULTILINE)
_USE = re.compile(rf"^    if \({_TRIGGER}\) begin end$", re.MULTILINE)
_LONE_ASSIGNMENT = re.compile(r"^  always @\*\n(    .+;\n)", re.MULTILINE)
_ASSERTION = re.compile(
    r"    if \((.+?) ?\) begin\n"
    r"      if \(!(.+?) ?\)\n"
    r"        (\$write\(.*\);)\n"
    r"      assert \(.+\);\n"
    r"    end\n"
)
_ASSERTIONS = re.compile(
    rf"^  always @\(posedge clk\) begin\n(?:{_ASSERTION.pattern})+  end\n", re.MULTILINE
)
_NO_BITS = re.compile(r"^(?:  \(\* .* \*\)\n)*  wire \[-1:0\] .*;\n", re.MULTILINE)


def plain(text: str) -> str:
    """Return the Verilog that Yosys wrote as plain Verilog; see the module.

    Raises
    ------
    ValueError
        If an assertion has another form than ``m.d.sync += Assert(condition, message)``.
    """
    text = _ANONYMOUS.sub(lambda net: "_" + re.sub(r"\W", "_", net[1]), text)
    text = _DECLARATION.sub("  reg _start;\n  initial _start <= 1'h0;", text)
    text = _USE.sub("    if (_start) begin end", text)
    text = _LONE_ASSIGNMENT.sub(r"  always @* begin\n    if (_start) begin end\n\1  end\n", text)
    text = _ASSERTIONS.sub(_tests, text)
    text = _NO_BITS.sub("", text)
    if other := re.search(r"^ *assert\b", text, re.MULTILINE):
        module = re.findall(r"^module (\S+?) ?\(", text[: other.start()], re.MULTILINE)[-1]
        raise ValueError(f"module {module}: an assertion must be clocked and have a message")
    return text


def _tests(assertions: re.Match[str]) -> str:
    """Return a block of tests in place of a block of assertions."""

    def test(assertion: re.Match[str]) -> str:
        enable, holds, message = assertion.groups()
        active = "!rst" if enable == "1'h1" else f"!rst && {enable}"
        condition = f"{active} && {holds} !== 1'h1"
        return f"    if ({condition}) begin\n      {message}\n      $stop;\n    end\n"

    return f"`ifndef SYNTHESIS\n{_ASSERTION.sub(test, assertions[0])}`endif\n"
