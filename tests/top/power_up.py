"""A unit whose registers and memories hold random bits at power-up."""

import re

from sim_tb.simulator import runner
from tests.top.units import SMALL

REGISTER = re.compile(r"^(  reg (?:\[(\d+):0\] )?\S+ ?) = \d+'h[0-9a-f]+;$", re.MULTILINE)
ROW = re.compile(r"^(    \S+\[\d+\]) = (\d+)'h[0-9a-f]+;$", re.MULTILINE)
MEMORY = re.compile(
    r"^  initial begin\n(?:    \S+\[\d+\] = \d+'h[0-9a-f]+;\n)+  end$", re.MULTILINE
)


def random_bits(width: int) -> str:
    """Return an expression of Verilog: a random number of ``width`` bits, by the run's seed."""
    return f"{{{', '.join(['$urandom'] * -(-width // 32))}}}"


def with_random_contents(verilog: str) -> str:
    """Return the Verilog of a unit whose registers and memories are random at power-up."""

    def row(found: re.Match[str]) -> str:
        return f"{found[1]} = {random_bits(int(found[2]))};"

    text, registers = REGISTER.subn(
        lambda found: f"{found[1]} = {random_bits(int(found[2] or 0) + 1)};", verilog
    )
    text, memories = MEMORY.subn(lambda found: ROW.sub(row, found[0]), text)
    assert registers > 100, registers
    assert memories > 10, memories
    return text


def build_with_random_contents() -> runner.Simulator:
    """Build the small unit for the tests of power-up."""
    return runner.build_as_asked(SMALL, rewrite=with_random_contents)
