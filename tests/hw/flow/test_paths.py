"""Combinational paths and depths of small components; the list of paths that are allowed."""

from argparse import Namespace

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.flow import design, paths
from hw.flow.paths import Exceptions, ListError, Paths

BITS = 4
OPTIONS = Namespace(ports=True, preset="default", block=None)


class Inner(wiring.Component):
    """A block with a registered output, two combinational ones, and a memory read at once."""

    def __init__(self):
        super().__init__(
            {
                "i": In(BITS).array(2),
                "other": In(BITS),
                "address": In(2),
                "registered": Out(BITS),
                "chosen": Out(BITS),
                "row": Out(BITS),
                "constant": Out(1),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        m.submodules.rows = rows = Memory(shape=BITS, depth=4, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        m.d.comb += [
            self.chosen[:2].eq(self.i[0][:2] & self.i[1][:2]),
            self.chosen[2:].eq(self.registered[2:]),
            read.addr.eq(self.address),
            self.row.eq(read.data),
            write.data.eq(self.other),
            write.en.eq(1),
            self.constant.eq(1),
        ]
        m.d.sync += self.registered.eq(self.other ^ self.registered)
        return m


class Outer(wiring.Component):
    """A block that registers what its ``Inner`` computes, but for the row."""

    def __init__(self):
        super().__init__(
            {"a": In(BITS), "address": In(2), "sum": Out(BITS), "row": Out(BITS), "passed": Out(1)}
        )

    def elaborate(self, _platform):
        m = Module()
        m.submodules.inner = inner = Inner()
        first = Signal(BITS)
        m.d.sync += [first.eq(self.a), self.sum.eq(inner.chosen)]
        m.d.comb += [
            inner.i[0].eq(first),
            inner.i[1].eq(self.a),
            inner.other.eq(self.sum),
            inner.address.eq(self.address),
            self.row.eq(inner.row),
            self.passed.eq(self.a[0]),
        ]
        return m


FOUND = {
    "Outer": {"a -> passed", "address -> row"},
    "Inner": {"i[n] -> chosen", "address -> row"},
}
LISTED = """
[Inner]
"i[n] -> *" = "a choice"
"address -> row" = "a small memory"

[Outer]
"address -> row" = "as of Inner"
"a -> passed" = "a wire"
"""


class Chain(wiring.Component):
    """Registers, with a function of 16 bits between two of them: two levels of LUTs."""

    def __init__(self):
        super().__init__({"i": In(16), "o": Out(1)})

    def elaborate(self, _platform):
        m = Module()
        m.submodules.taken = taken = Module()
        kept = Signal(16)
        taken.d.sync += kept.eq(self.i)
        m.d.sync += self.o.eq(kept.xor())
        return m


class Twice(wiring.Component):
    """Two chains, whose modules are equal."""

    def __init__(self):
        super().__init__({"i": In(16), "j": In(16), "o": Out(1)})

    def elaborate(self, _platform):
        m = Module()
        m.submodules.a = a = Chain()
        m.submodules.b = b = Chain()
        m.d.comb += [a.i.eq(self.i), b.i.eq(self.j)]
        m.d.sync += self.o.eq(a.o ^ b.o)
        return m


def paths_of(component, folder, *kinds):
    """Find paths of a component of this file, with nothing kept from an earlier run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(design, "PACKAGE", __name__)
        patch.setenv("OPEN_TMA_CACHE", str(folder))
        found = Paths.of(component)
        assert all(getattr(found, kind) for kind in kinds)
    return found


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return paths_of(Outer(), tmp_path_factory.mktemp("small"), "ports")


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    return paths_of(Twice(), tmp_path_factory.mktemp("twice"), "ports", "depths")


def test_paths_from_inputs_to_outputs(small):
    """Registered and constant outputs have none; a memory without a register passes addresses."""
    assert small.ports == FOUND


def test_what_is_listed_passes(small, capsys):
    assert paths.report(small, Exceptions(LISTED), OPTIONS) == 0
    assert capsys.readouterr().out == ""


def test_a_path_that_is_not_listed_fails(small, capsys):
    listed = Exceptions(LISTED.replace('"a -> passed" = "a wire"', ""))
    assert paths.report(small, listed, OPTIONS) == 1
    assert '[Outer]\n"a -> passed" = ""\n' in capsys.readouterr().out


def test_a_stale_entry_fails_in_the_default_unit(small, capsys):
    """An entry of a block that the unit does not have is not stale."""
    text = LISTED + '"a -> sum" = "gone"\n[Absent]\n"a -> b" = "of another preset"\n'
    assert paths.report(small, Exceptions(text), OPTIONS) == 1
    assert "[Outer] 'a -> sum': no such path" in (out := capsys.readouterr().out)
    assert "Absent" not in out
    tiny = Namespace(**{**vars(OPTIONS), "preset": "tiny"})
    assert paths.report(small, Exceptions(text), tiny) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[A]\n"a -> b" = " "', "needs a reason"),
        ('[A]\n"a to b" = "x"', "must be 'input -> output'"),
        ('a = "x"', "must be a table of paths"),
        ("[A", "paths.toml: "),
    ],
)
def test_mistakes_of_the_list_are_named(text, message):
    with pytest.raises(ListError, match=message):
        Exceptions(text)


def test_depth(twice):
    """Sixteen bits go through two levels of LUTs. Equal modules are mapped once."""
    assert list(twice.modules.texts) == ["top.b.taken", "top.b", "top"]
    assert twice.ports == {"Twice": set(), "Chain": set()}
    outer, inner = (variants.values() for variants in twice.depths.values())
    ((whole,), (chain,)) = outer, inner
    assert (chain.levels, chain.start, chain.end) == (2, "taken.kept", "o")
    assert (whole.levels, whole.start[1:], whole.end[1:]) == (2, ".taken.kept", ".o")
    assert whole.ns == chain.ns < 10
    assert twice.found(depths=True) == {"Twice": set(), "Chain": set()}


def test_a_deep_path_must_be_listed(twice, monkeypatch, capsys):
    monkeypatch.setattr(paths, "LEVELS", 1)
    options = Namespace(**{**vars(OPTIONS), "ports": False})
    listed = '[Twice]\n"registers -> registers" = "two parities"\n'
    assert paths.report(twice, Exceptions(listed), options) == 1
    printed = capsys.readouterr().out
    assert '\n[Chain]\n"registers -> registers" = ""\n' in printed
    assert "\n[Twice]" not in printed
    listed += '[Chain]\n"registers -> registers" = "a parity"'
    assert paths.report(twice, Exceptions(listed), options) == 0


def test_memories_are_described():
    """Ports of each memory, as in ``tma.json``."""
    ((memory,),) = [list(design.Design(Inner(), "top").memories())]
    assert memory == {
        "name": "rows",
        "depth": 4,
        "width": BITS,
        "reads": ["same clock"],
        "writes": [BITS],
    }


def test_a_block_is_chosen_by_its_name(small):
    blocks = [
        block
        for variants in small.variants.values()
        for same in variants.values()
        for block in same
    ]
    assert {block.kind for block in paths.chosen(blocks, "inner")} == {"Inner"}
    with pytest.raises(ListError, match=r"BLOCK = walker: .* it has Inner, Outer"):
        paths.chosen(blocks, "walker")


def test_a_preset_must_exist(capsys):
    with pytest.raises(SystemExit):
        paths.main(["--preset", "huge"])
    assert "no preset 'huge': must be one of default, " in capsys.readouterr().err
