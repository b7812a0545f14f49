"""Mutants of a toy: a simulation with a mutant that is proved equivalent shows no difference."""

import os
import subprocess
from functools import cache, partial
from pathlib import Path

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.flow.cache import cached, digest
from hw.flow.design import Design
from hw.flow.lint import VERILATOR
from hw.flow.mutate import LIMIT, Mutant, Mutants, acting, planted, shares
from sim_tb.simulator.runner import MAKEFLAGS, make_flags, tools

BENCH = Path(__file__).with_name("mutant_bench.cpp")
ARGUMENTS = (
    *("--cc", "--exe", "--build", "--assert", "--top-module", "toy", "--Mdir", "obj"),
    *("-Wno-WIDTHTRUNC", "-Wno-WIDTHEXPAND", "-CFLAGS", "-std=gnu++20", "toy.v", "bench.cpp"),
)


class Part(wiring.Component):
    """A gate with a redundant term."""

    i: In(3)
    o: Out(1)

    def elaborate(self, _platform) -> Module:
        m = Module()
        both, redundant = Signal(), Signal()
        m.d.comb += [
            both.eq(self.i[0] & self.i[1]),
            redundant.eq(both & self.i[2]),
            self.o.eq(both | redundant),
        ]
        return m


class Toy(wiring.Component):
    """A part, a register and a memory."""

    i: In(4)
    o: Out(8)

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.part = part = Part()
        m.submodules.memory = memory = Memory(shape=3, depth=4, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        q = Signal(4)
        m.d.comb += [
            part.i.eq(self.i),
            write.en.eq(self.i[3]),
            write.addr.eq(self.i[:2]),
            write.data.eq(q),
            read.addr.eq(self.i[1:]),
            self.o.eq(Cat(part.o, q, read.data)),
        ]
        m.d.sync += q.eq(q + self.i)
        return m


class Registers(wiring.Component):
    """Registers of which some bits have one value, or are not read."""

    i: In(2)
    o: Out(9)

    def elaborate(self, _platform) -> Module:
        m = Module()
        constant = Signal(3, init=0b100)
        unread = Signal(2)
        kept = Signal(2)
        table = Signal(4)
        m.d.sync += [constant.eq(self.i[0]), unread.eq(self.i)]
        with m.If(self.i[1]):
            m.d.sync += kept.eq(self.i)
        with m.Switch(Cat(constant, kept[0])):  # Yosys makes a memory of it
            for value in range(16):
                with m.Case(value):
                    m.d.comb += table.eq(value * value % 11)
        m.d.comb += self.o.eq(Cat(constant, unread[0] | (unread[0] & unread[1]), kept[0], table))
        return m


@cache
def mutants() -> Mutants:
    return planted(lambda: Design(Toy(), "toy"), [Path(__file__).read_text()], 20)


@cache
def program() -> Path:
    files = {"toy.v": mutants().verilog, "bench.cpp": BENCH.read_text()}
    key = digest([*files.values(), *ARGUMENTS, *tools()])
    return cached("mutant_toy", key, partial(build, files)) / "obj" / "Vtoy"


def build(files: dict[str, str], directory: Path) -> None:
    for name, text in files.items():
        (directory / name).write_text(text)
    flags = make_flags((*MAKEFLAGS, "OPT_FAST=-O0", "OPT_GLOBAL=-O0"))
    env = {**os.environ, "MAKEFLAGS": flags}
    env.pop("MAKELEVEL", None)
    subprocess.run([VERILATOR, *ARGUMENTS], cwd=directory, env=env, check=True, text=True)


def simulate(*plusargs: str) -> str:
    return subprocess.run([program(), *plusargs], capture_output=True, text=True).stdout


def is_killed(mutant: Mutant) -> bool:
    return simulate(f"+mutant={mutant.number}") != simulate()


def test_each_mutant_is_killed_or_proved_equivalent():
    fates = {"killed": 0, "proved": 0}
    for mutant in mutants().planted:
        if is_killed(mutant):
            assert not mutants().is_equivalent(mutant), mutant
            fates["killed"] += 1
        else:
            assert mutants().is_equivalent(mutant), mutant
            fates["proved"] += 1
    assert fates["killed"] > fates["proved"] > 0


def test_a_module_takes_part_in_the_proof_of_a_mutant_at_its_port():
    for bit, equivalent in (0, False), (1, False), (2, True):
        options = f"-mode const0 -module toy -cell part -port i -portbit {bit}"
        assert mutants().is_equivalent(Mutant(0, "toy", options)) is equivalent


@pytest.mark.parametrize(
    ("register", "options", "equivalent"),
    [
        ("constant", "-mode const0 -portbit 1", True),
        ("constant", "-mode const0 -portbit 2", False),  # it is 1 until the first clock
        ("constant", "-mode cnot1 -portbit 0 -ctrlbit 1", True),
        ("constant", "-mode cnot1 -portbit 0 -ctrlbit 2", False),
        ("unread", "-mode inv -portbit 1", True),
        ("unread", "-mode inv -portbit 0", False),
        ("kept", "-mode inv -portbit 1", True),
    ],
)
def test_a_mutant_at_the_output_of_a_register(register, options, equivalent):
    """It changes nothing if the bit has one value, also at power-up, or nothing else reads it."""
    key = [Path(__file__).read_text(), "registers"]
    made = planted(lambda: Design(Registers(), "registers"), key, 2)
    text = (made.directory / "netlist.il").read_text()
    cell = text[: text.index(f"connect \\Q \\{register}\n")].rpartition("$dff ")[2].split()[0]
    options = f"{options} -module registers -cell {cell} -port Q"
    assert made.is_equivalent(Mutant(0, "registers", options)) is equivalent


@pytest.mark.parametrize(("bit", "equivalent"), [(0, False), (1, True)])
def test_a_mutant_of_contents_that_nothing_reads(bit, equivalent):
    """It is in front of the register, whose bit 1 only keeps itself."""
    key = [Path(__file__).read_text(), "registers"]
    made = planted(lambda: Design(Registers(), "registers"), key, 2)
    text = (made.directory / "netlist.il").read_text()
    cell = text[: text.index("connect \\A \\kept\n")].rpartition("$mux ")[2].split()[0]
    options = f"-mode inv -portbit {bit} -module registers -cell {cell} -port A"
    assert made.is_equivalent(Mutant(0, "registers", options)) is equivalent


def test_only_a_mutant_that_acts_is_killed():
    found = acting(simulate(f"+mutant={mutants().observe}"))
    numbers = {mutant.number for mutant in mutants().planted}
    in_part = {mutant.number for mutant in mutants().planted if mutant.module != "toy"}
    assert mutants().unobserved == in_part  # it has no clock
    assert found
    assert found <= numbers - in_part
    killed = {mutant.number for mutant in mutants().planted if is_killed(mutant)}
    assert killed <= found | in_part
    assert not acting(simulate())


def test_clocks_are_limited():
    assert LIMIT not in simulate("+clocks=501")
    assert LIMIT in simulate("+clocks=100")


def test_a_proof_that_takes_too_long_is_none():
    assert not mutants().is_equivalent(mutants().planted[0], seconds=0)


@pytest.mark.parametrize("count", [1, 5, 10, 1000])
def test_shares_are_those_of_the_sizes(count):
    sizes = {"large": 600, "small": 397, "tiny": 3}
    given = shares(sizes, count)
    assert min(given.values()) >= 1
    assert sum(given.values()) == max(count, len(sizes))
    assert all(abs(given[name] - count * size / 1000) <= 1 for name, size in sizes.items())
