"""Kinds of loads agree with the golden model; counts of branches; explanations of branches."""

import contextlib
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

from golden import AccessMode, Arch, BulkLoad, Load, TensorMap, TmaError, check
from golden.arch import EVERY_FEATURE
from golden.enums import DataType
from sim_tb.coverage import branches
from sim_tb.coverage.branches import Branch, Explanation
from sim_tb.coverage.command import EXPLANATIONS
from sim_tb.coverage.kinds_report import KindsReport
from sim_tb.coverage.load_kinds import (
    SAMPLES,
    Alignment,
    Fill,
    Interleaving,
    Mode,
    Rank,
    Sample,
    Side,
    Size,
    Swizzling,
    classify,
    impossible,
    record,
    recorded,
)
from tests.golden.random_requests import MODES, random_case

TYPES = (
    *(DataType.UINT8, DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64),
    *(DataType.PACKED_16U4_ALIGN8B, DataType.PACKED_16U4_ALIGN16B, DataType.PACKED_16U6_ALIGN16B),
)
"""An element type of each size, floating-point if there is one."""

BASES = {Alignment.LINE: 0, Alignment.B32: 32, Alignment.B16: 16}


def load_like(sample: Sample, arch: Arch) -> Load | None:
    """Return a load of this kind, inside of its tensor; None if the golden model refuses it."""
    with contextlib.suppress(TmaError):
        request = _load_like(sample, arch)
        check(request, arch=arch)
        return request
    return None


def _load_like(sample: Sample, arch: Arch) -> Load:
    rank, kind = int(sample.rank), TYPES[list(Size).index(sample.size)]
    mode = AccessMode[sample.mode.name]
    wide = mode in (AccessMode.IM2COL_W, AccessMode.IM2COL_W_128)
    unit = 128 if kind > DataType.PACKED_16U4_ALIGN8B else 128 // kind.smem_bits
    tensor = {
        "data_type": kind,
        "global_address": 4096 + BASES[sample.alignment],
        "global_dim": [unit] + [200] * (rank - 1),
        "global_strides": [4096] * (rank - 1),
        "interleave": list(Interleaving).index(sample.interleave),
        "swizzle": list(Swizzling).index(sample.swizzle),
        "oob_fill": list(Fill).index(sample.fill),
        "arch": arch,
    }
    coords = (0,) * (5 if mode is AccessMode.TILE_GATHER4 else rank)
    if mode in (AccessMode.TILE, AccessMode.TILE_GATHER4):
        tensor_map = TensorMap.tiled(box_dim=[unit] + [1] * (rank - 1), **tensor)
    else:
        corner = [0] * (1 if wide else max(rank - 2, 0))
        tensor_map = TensorMap.im2col(
            lower_corner=corner,
            upper_corner=corner,
            channels_per_pixel=unit,
            pixels_per_column=2,
            wide=wide,
            **tensor,
        )
    return Load(tensor_map, coords, mode)


@pytest.mark.parametrize("arch", [Arch.SM_90A, Arch.SM_100A, Arch.SM_103A])
@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.BULK])
def test_possible_is_what_the_golden_model_accepts(mode, arch):
    """Try every eleventh combination of bins, with boxes inside of their tensors."""
    verdicts = Counter()
    bins = itertools.product(Rank, Size, Swizzling, Interleaving, Fill, Alignment)
    for combination in itertools.islice(bins, 0, None, 11):
        sample = Sample(mode, *combination, Side.INSIDE)
        request = load_like(sample, arch)
        verdicts[request is not None] += 1
        assert (request is None) is bool(impossible(sample, arch)), (sample, impossible(sample))
        assert request is None or classify(request) == sample
    assert verdicts[False]
    assert bool(verdicts[True]) is (arch is not Arch.SM_90A or mode in (Mode.TILE, Mode.IM2COL))


@pytest.mark.parametrize("mode", MODES)
def test_random_legal_loads_are_possible(mode):
    rng = np.random.default_rng(7)
    for _ in range(25):
        case = random_case(rng, mode)
        if isinstance(case.request, Load | BulkLoad):
            sample = classify(case.request)
            assert not impossible(sample, case.arch), (sample, case.request)
            assert Sample.parse(str(sample)) == sample


@pytest.mark.parametrize(
    ("coords", "side"),
    [
        ((0, 0), Side.INSIDE),
        ((-4, 1), Side.LOW),
        ((4, 0), Side.HIGH),
        ((-4, 2), Side.BOTH),
        ((0, -2), Side.OUTSIDE),
        ((-8, 3), Side.OUTSIDE),
    ],
)
def test_sides_of_a_tile(coords, side):
    tensor_map = TensorMap.tiled("f32", 0, [8, 3], [32], [8, 2])
    assert classify(Load(tensor_map, coords)).side is side


@pytest.mark.parametrize(
    ("coords", "offsets", "side"),
    [
        ((0, -1, 0), (), Side.LOW),
        ((0, 1, 0), (0,), Side.INSIDE),
        (
            (0, 3, 0),
            (0,),
            Side.BOTH,
        ),  # wraps from the end of W to the lower corner
        ((0, 1, 0), (1,), Side.HIGH),
        ((0, 1, 0), (9,), Side.OUTSIDE),
        ((4, 1, 0), (0,), Side.OUTSIDE),
        ((-4, 1, 1), (0,), Side.OUTSIDE),
    ],
)
def test_sides_of_im2col(coords, offsets, side):
    tensor_map = TensorMap.im2col("f32", 0, [4, 4, 2], [16, 64], [-1], [1], 4, 3)
    assert classify(Load(tensor_map, coords, im2col_offsets=offsets)).side is side


def test_rows_of_128_packed_elements_are_not_cut():
    """A tensor of rank 1 has no box that is partly outside, as ``impossible`` says."""
    seen = set()
    for dim, start in itertools.product((128, 256), range(-256, 512, 128)):
        args = {"global_dim": [dim], "global_strides": [], "box_dim": [128]}
        tensor_map = TensorMap.tiled(
            "packed_16u6_align16b", global_address=0, arch=Arch.SM_100A, **args
        )
        seen.add(classify(Load(tensor_map, (start,))).side)
    assert seen == {Side.INSIDE, Side.OUTSIDE}


@pytest.mark.parametrize(
    ("address", "alignment"), [(256, Alignment.LINE), (96, Alignment.B32), (80, Alignment.B16)]
)
def test_bulk_loads_have_an_alignment_alone(address, alignment):
    sample = classify(BulkLoad(address, 0, 16))
    assert str(sample) == f"bulk - - - - - {alignment} -"
    assert not impossible(sample)
    assert impossible(Sample.parse(f"bulk 1 - - - - {alignment} -"))


def test_alignment_is_that_of_the_first_byte():
    tensor_map = TensorMap.tiled("f32", 96, [64, 4], [256], [8, 2])
    found = [classify(Load(tensor_map, (x, 1))).alignment for x in (0, 4, 8)]
    assert found == [Alignment.B32, Alignment.B16, Alignment.LINE]


def test_samples_are_recorded_where_they_are_asked_for(tmp_path, monkeypatch):
    request = BulkLoad(32, 0, 16)
    monkeypatch.delenv(SAMPLES, raising=False)
    record(request)
    monkeypatch.setenv(SAMPLES, str(tmp_path))
    record(request)
    record(request)
    assert recorded(tmp_path) == Counter({classify(request): 2})


def test_holes_are_the_possible_pairs_that_were_not_hit():
    words = "tile 2 4B 128B none zero 128B inside", "tile 3 4B none 16B zero 16B low"
    kinds = KindsReport(Counter(Sample.parse(text) for text in words))
    assert kinds.arch is Arch.SM_90A
    cross = {item.name: item for item in kinds.crosses}["rank x interleave"]
    hit = {(Rank.TWO, Interleaving.NONE), (Rank.THREE, Interleaving.B16)}
    assert (cross.hit, len(cross.hits), len(cross.holes)) == (2, 11, 9)
    assert (Rank.TWO, Interleaving.B16) not in cross.hits
    assert not hit & set(cross.holes)
    assert len(kinds.holes) == len(kinds.possible) - 2
    assert not set(words) & {str(sample) for sample in kinds.holes}
    lines = list(kinds.hole_lines())
    assert "hole: mode im2col, in any pair" in lines
    assert "hole: rank 3 with interleave none" in lines
    assert not any("rank 2 with interleave" in line for line in lines)


def test_blackwell_is_reported_where_it_was_recorded():
    kinds = KindsReport(Counter([Sample.parse("gather4 2 2B 128B none zero 128B inside")]))
    assert kinds.arch is EVERY_FEATURE
    assert not kinds.wrong


def test_an_impossible_sample_is_named():
    kinds = KindsReport(Counter([Sample.parse("tile 2 1B 128B none nan 128B inside")]))
    assert [line.rpartition(": ")[2] for line in kinds.wrong] == [
        "no floating-point type has one byte"
    ]


# Branches


class Design(Component):
    """A design with a chain of ifs, a switch, and an unrolled loop."""

    def __init__(self):
        super().__init__({"a": In(4), "b": In(2), "y": Out(4), "z": Out(2), "w": Out(4)})

    def elaborate(self, _):
        m = Module()
        state = Signal(4)
        with m.If(self.a[0]):
            m.d.sync += state.eq(1)
        with m.Elif(self.a[1]):
            m.d.comb += self.z.eq(1)
            m.d.sync += state.eq(2)
        with m.Else():
            m.d.sync += state.eq(3)
        with m.Switch(self.b):
            with m.Case(0):
                m.d.comb += self.y.eq(state)
            with m.Case(1, 2):
                m.d.comb += self.y.eq(1)
                with m.If(self.a[2]):
                    m.d.comb += self.y.eq(5)
        for bit in range(4):
            with m.If(self.a[bit]):
                m.d.comb += self.w[bit].eq(1)
        return m


def source_of(text: str) -> str:
    """Return file and line of the first line of this file that is ``text``."""
    lines = Path(__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.strip() == text)
    return f"{Path(__file__).relative_to(branches.ROOT)}:{number}"


@pytest.fixture(scope="module")
def design():
    return branches.verilog(Design(), "tma")


def test_every_branch_has_its_line(design):
    ways = branches.Ways.of(design)
    found = {way for (line, _), way in ways.found.items() if line not in ways.excluded}
    places = Counter((source, way) for source, way, _ in found)
    first, loop = "with m.If(self.a[0]):", "with m.If(self.a[bit]):"
    assert places == {
        (source_of(first), "then"): 1,
        (source_of(first), "else"): 2,  # of the whole chain: once after each of its conditions
        (source_of("with m.Elif(self.a[1]):"), "then"): 1,
        (source_of("with m.Case(0):"), "case"): 1,
        (source_of("with m.Case(1, 2):"), "case"): 1,
        (source_of("with m.If(self.a[2]):"), "then"): 1,
        (source_of("with m.If(self.a[2]):"), "else"): 1,
        (source_of(loop), "then"): 4,
        (source_of(loop), "else"): 4,
    }


VERILOG = """module \\top.block (clk);
  always @* begin
    (* branch_1 = "hw/x.py:5" *)
    (* branch_0 = "hw/x.py:3" *)
    if (a) begin
      y = 1'h1;
    end else if (\\$1 ) begin
      y = 1'h0;
    end
    /* branch = "hw/x.py:9" */
    2'h1:
        y = 1'h1;
  end
  assign b = c ? (* src = "hw/x.py:12" *) 1'h0 : d;
  always @(posedge clk) begin
    if (1'h1) begin
      if (!e)
        $write("e\\n");
    end
  end
endmodule
"""


def counted(line: int, kind: str, count: int, file: str = "tma.v") -> str:
    """Return a line of ``coverage.dat``."""
    items = {"f": file, "l": line, "n": 3, "page": "v_line/top.block", "o": kind, "S": "1,2"}
    return "C '" + "".join(f"\x01{key}\x02{text}" for key, text in items.items()) + f"' {count}\n"


def test_counts_of_runs_and_of_builds_are_added(tmp_path):
    for build in "one", "two":
        (tmp_path / build).mkdir()
        (tmp_path / build / "tma.v").write_text(VERILOG)
    ignored = counted(5, "elsif", 7, "tb_top.sv") + "# SystemC::Coverage-3\n"
    first = counted(5, "elsif", 0) + counted(7, "if", 3) + counted(7, "else", 0)
    second = counted(5, "elsif", 0) + counted(11, "case", 1) + counted(14, "cond_else", 2)
    third = counted(7, "if", 1) + counted(17, "if", 0) + counted(2, "block", 9)
    (tmp_path / "one" / "a.dat").write_text(ignored + first)
    (tmp_path / "one" / "b.dat").write_text(second)
    (tmp_path / "two" / "a.dat").write_text(third)
    counts = branches.read(tmp_path)
    block = "top.block"
    assert counts.taken == {
        Branch(block, "hw/x.py:3", "then", "a"): 0,
        Branch(block, "hw/x.py:5", "then", r"\$1"): 4,
        Branch(block, "hw/x.py:3", "else", r"\$1"): 0,
        Branch(block, "hw/x.py:9", "case", " = 2'h1"): 1,
        Branch(block, "hw/x.py:12", "else", "c"): 2,
    }
    assert [branch.way for branch in counts.missed] == ["else", "then"]
    assert len(counts.excluded) == counts.excluded.total() == 2


def test_a_point_without_a_branch_is_an_error(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "tma.v").write_text(VERILOG)
    (tmp_path / "one" / "a.dat").write_text(counted(6, "if", 1))
    with pytest.raises(KeyError):
        branches.read(tmp_path)


MISSED = [
    Branch("tma.mbarrier_unit", "amaranth/lib/fifo.py:7", "then", "r_en"),
    Branch("tma.mbarrier_unit.faults", "amaranth/lib/fifo.py:9", "else", "w_en"),
]


@pytest.mark.parametrize(
    ("changes", "unexplained", "stale"),
    [
        ([{"branches": 2}], 0, 0),
        ([{}], 0, 1),
        ([{"modules": "tma.mbarrier_unit"}], 1, 0),
        ([{"way": "then"}], 1, 0),
        ([{"line": "r_en"}], 1, 0),
        ([{"way": "then"}, {"line": "w_en"}], 0, 0),
        ([{"way": "then"}, {"line": "w_en"}, {"line": "w_en"}], 0, 1),
        ([{"source": "hw/lib/queue.py"}], 2, 1),
        ([], 2, 0),
    ],
)
def test_missing_and_stale_explanations(changes, unexplained, stale):
    common = {"modules": "tma.mbarrier_unit*", "source": "amaranth/lib/fifo.py", "reason": "why"}
    known = [Explanation(**common | change) for change in changes]
    verdict = branches.judge(MISSED, known)
    assert (len(verdict.unexplained), len(verdict.stale)) == (unexplained, stale)
    assert verdict.is_clean is (unexplained == stale == 0)


def test_explanations_have_their_fields(tmp_path):
    assert all(item.reason for item in branches.explanations(EXPLANATIONS, "default"))
    wrong = tmp_path / "uncovered.toml"
    wrong.write_text('[[uncovered]]\nmodules = "tma"\nfile = "hw/top.py"\n')
    with pytest.raises(ValueError, match=r"uncovered\.toml: .*file"):
        branches.explanations(wrong, "default")


def test_explanations_may_be_for_one_preset(tmp_path):
    path = tmp_path / "uncovered.toml"
    table = '[[uncovered]]\nmodules = "tma"\nsource = "hw/top.py"\nreason = "why"\n'
    path.write_text(table + 'preset = "tiny"\n' + table)
    assert len(branches.explanations(path, "tiny")) == 2
    assert len(branches.explanations(path, "default")) == 1


def test_a_statement_is_shown_whole(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("with m.Case(\n    A,\n    B,\n):\n    pass\n")
    assert branches.statement(path, 1) == "with m.Case(A,B,):"
    assert branches.statement(path, 5) == "pass"
