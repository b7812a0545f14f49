"""Kinds of loads agree with the golden model; counts of branches; explanations of branches."""

import contextlib
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import Component, In, Out

from golden import (
    AccessMode,
    Arch,
    BulkLoad,
    BulkReduce,
    Load,
    Reduce,
    ReductionOp,
    Store,
    TensorMap,
    TmaError,
    check,
)
from golden.arch import EVERY_FEATURE
from golden.enums import DataType
from golden.mbarrier import MAX_COUNT, MAX_TX_COUNT, Barrier, Op
from golden.request import Request
from hw.params import PRESETS
from sim_tb.coverage import branches, constants, counts, evidence, registers
from sim_tb.coverage.barrier_kinds import BarrierKind
from sim_tb.coverage.boxes import (
    Alignment,
    Fill,
    Interleaving,
    Mode,
    Operation,
    Rank,
    Side,
    Size,
    Swizzling,
    Type,
)
from sim_tb.coverage.code_report import CodeReport, described, lcov
from sim_tb.coverage.command import EXPLANATIONS
from sim_tb.coverage.counts import Counts, Point
from sim_tb.coverage.crosses import REQUESTS, record
from sim_tb.coverage.explanations import Explanation, explanations, judge
from sim_tb.coverage.kinds import SAMPLES, recorded
from sim_tb.coverage.kinds_report import KindsReport
from sim_tb.coverage.load_kinds import LoadKind
from sim_tb.coverage.store_kinds import ReductionKind, StoreKind
from tests.golden.random_requests import MODES, random_case

TYPES = (
    *(DataType.UINT8, DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64),
    *(DataType.PACKED_16U4_ALIGN8B, DataType.PACKED_16U4_ALIGN16B, DataType.PACKED_16U6_ALIGN16B),
)
"""An element type of each size, floating-point if there is one."""

BASES = {Alignment.LINE: 0, Alignment.B32: 32, Alignment.B16: 16}


def load_like(sample: LoadKind, arch: Arch) -> Load | None:
    """Return a load of this kind, inside of its tensor; None if the golden model refuses it."""
    with contextlib.suppress(TmaError):
        request = _load_like(sample, arch)
        check(request, arch=arch)
        return request
    return None


def _load_like(sample: LoadKind, arch: Arch) -> Load:
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
        sample = LoadKind(mode, *combination, Side.INSIDE)
        request = load_like(sample, arch)
        verdicts[request is not None] += 1
        assert (request is None) is bool(sample.impossible(arch)), (sample, sample.impossible())
        assert request is None or LoadKind.of(request) == sample
    assert verdicts[False]
    assert bool(verdicts[True]) is (arch is not Arch.SM_90A or mode in (Mode.TILE, Mode.IM2COL))


def accepted(request: Request) -> bool:
    """Return whether a Hopper unit accepts a request."""
    with contextlib.suppress(TmaError):
        check(request, arch=Arch.SM_90A)
        return True
    return False


def test_possible_stores_are_what_the_golden_model_accepts():
    """Try every seventh combination of bins, with boxes inside of their tensors."""
    verdicts = Counter()
    inside = [
        kind
        for kind in StoreKind.candidates()
        if kind.side is Side.INSIDE and kind.mode is not Mode.BULK
    ]
    for kind in inside[::7]:
        bins = dict(zip(kind.dimensions, kind.bins, strict=True))
        load = load_like(LoadKind(fill=Fill.ZERO, **bins), Arch.SM_90A)
        request = load and Store(load.tensor_map, load.coords, load.mode)
        is_accepted = request is not None and accepted(request)
        verdicts[is_accepted] += 1
        assert is_accepted is not bool(kind.impossible(Arch.SM_90A)), kind
        assert not is_accepted or StoreKind.of(request) == kind
    assert verdicts[True]
    assert verdicts[False]


def test_possible_reductions_are_what_the_golden_model_accepts():
    verdicts = Counter()
    bins = {"alignment": Alignment.LINE}
    for mode, operation, kind in itertools.product(Mode, Operation, Type):
        data_type, op = DataType[kind.name], ReductionOp[operation.name]
        if mode is Mode.BULK:
            request, bins["side"] = BulkReduce(0, 0, 64, data_type, op), None
        elif mode is Mode.TILE:
            size = data_type.itemsize
            tensor_map = TensorMap.tiled(data_type, 0, [16, 4], [16 * size], [16, 2])
            request, bins["side"] = Reduce(tensor_map, (0, 0), op=op), Side.INSIDE
        else:
            continue
        sample = ReductionKind(mode=mode, operation=operation, type=kind, **bins)
        verdicts[accepted(request)] += 1
        assert accepted(request) is not bool(sample.impossible(Arch.SM_90A)), sample
        assert not accepted(request) or ReductionKind.of(request) == sample
    assert verdicts[True]
    assert verdicts[False]


@pytest.mark.parametrize("side", [Side.LOW, Side.BOTH])
def test_no_store_leaves_the_tensor_at_a_low_side(side):
    kind = StoreKind.parse(f"im2col 3 4B none none 128B {side}")
    assert "not negative" in kind.impossible()
    tensor_map = TensorMap.im2col("f32", 0, [4, 4, 2], [16, 64], [-1], [0], 4, 3)
    assert not accepted(Store(tensor_map, (0, 0, 0)))
    assert not accepted(Store(TensorMap.tiled("f32", 0, [8, 3], [32], [8, 2]), (0, -1)))


def test_possible_operations_on_barriers_are_what_the_golden_model_does():
    """Operations with small and large operands are of all possible kinds, and of no other."""
    words = itertools.product((0, 1), (0, 1, 2), (0, 1, -1, MAX_TX_COUNT, 1 - MAX_TX_COUNT), (0, 1))
    found = set()
    for phase, pending, tx_count, lock in words:
        word = Barrier(phase, pending, 3, tx_count, lock).encode()
        operands = itertools.product(Op, (0, 1, 2, 3, MAX_COUNT + 1), (1, 2, 3))
        for operand, port in itertools.product(operands, ("command", "update")):
            found.add(BarrierKind.of(word, *operand, port))
    assert found == set(BarrierKind.every(Arch.SM_90A))


def test_later_stores_are_in_no_kind():
    tensor_map = TensorMap.tiled(
        "packed_16u4_align8b", 0, [128, 3], [64], [128, 1], arch=Arch.SM_100A
    )
    assert StoreKind.of(Store(tensor_map, (0, 0))) is None


@pytest.mark.parametrize("mode", MODES)
def test_random_legal_requests_are_possible(mode):
    rng = np.random.default_rng(7)
    for _ in range(25):
        case = random_case(rng, mode)
        for cross in REQUESTS:
            if (kind := cross.of(case.request, case.arch)) is not None:
                assert not kind.impossible(case.arch), (kind, case.request)
                assert cross.parse(str(kind)) == kind


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
    assert LoadKind.of(Load(tensor_map, coords)).side is side


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
    assert LoadKind.of(Load(tensor_map, coords, im2col_offsets=offsets)).side is side


def test_rows_of_128_packed_elements_are_not_cut():
    """A tensor of rank 1 has no box that is partly outside, as ``impossible`` says."""
    seen = set()
    for dim, start in itertools.product((128, 256), range(-256, 512, 128)):
        args = {"global_dim": [dim], "global_strides": [], "box_dim": [128]}
        tensor_map = TensorMap.tiled(
            "packed_16u6_align16b", global_address=0, arch=Arch.SM_100A, **args
        )
        seen.add(LoadKind.of(Load(tensor_map, (start,))).side)
    assert seen == {Side.INSIDE, Side.OUTSIDE}


@pytest.mark.parametrize(
    ("address", "alignment"), [(256, Alignment.LINE), (96, Alignment.B32), (80, Alignment.B16)]
)
def test_bulk_loads_have_an_alignment_alone(address, alignment):
    sample = LoadKind.of(BulkLoad(address, 0, 16))
    assert str(sample) == f"bulk - - - - - {alignment} -"
    assert not sample.impossible()
    assert LoadKind.parse(f"bulk 1 - - - - {alignment} -").impossible()


def test_alignment_is_that_of_the_first_byte():
    tensor_map = TensorMap.tiled("f32", 96, [64, 4], [256], [8, 2])
    found = [LoadKind.of(Load(tensor_map, (x, 1))).alignment for x in (0, 4, 8)]
    assert found == [Alignment.B32, Alignment.B16, Alignment.LINE]


def test_samples_are_recorded_where_they_are_asked_for(tmp_path, monkeypatch):
    request = BulkLoad(32, 0, 16)
    monkeypatch.delenv(SAMPLES, raising=False)
    record(request, Arch.SM_90A)
    monkeypatch.setenv(SAMPLES, str(tmp_path))
    record(request, Arch.SM_90A)
    record(request, Arch.SM_90A)
    assert recorded(LoadKind, tmp_path) == Counter({LoadKind.of(request): 2})


def test_holes_are_the_possible_pairs_that_were_not_hit():
    words = "tile 2 4B 128B none zero 128B inside", "tile 3 4B none 16B zero 16B low"
    kinds = KindsReport(LoadKind, Counter(LoadKind.parse(text) for text in words))
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
    kinds = KindsReport(
        LoadKind, Counter([LoadKind.parse("gather4 2 2B 128B none zero 128B inside")])
    )
    assert kinds.arch is EVERY_FEATURE
    assert not kinds.wrong


def test_an_impossible_sample_is_named():
    kinds = KindsReport(LoadKind, Counter([LoadKind.parse("tile 2 1B 128B none nan 128B inside")]))
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


def test_branches_of_a_run_are_in_the_order_of_its_file(tmp_path: Path) -> None:
    """Points of other files, and edges, are left out."""
    edge = counted(8, "q[1]:0->1", 4)
    other = counted(5, "elsif", 7, "tb_top.sv")
    lines = [counted(7, "if", 3), other, counted(7, "else", 0), edge, counted(14, "cond_else", 2)]
    (tmp_path / "run.dat").write_text("".join(lines))
    assert counts.branches_taken(tmp_path / "run.dat", "tma.v") == [True, False, True]


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
    taken = counts.read(tmp_path).branches
    block = "top.block"
    assert taken.taken == {
        Point(block, "hw/x.py:3", "then", "a"): 0,
        Point(block, "hw/x.py:5", "then", r"\$1"): 4,
        Point(block, "hw/x.py:3", "else", r"\$1"): 0,
        Point(block, "hw/x.py:9", "case", " = 2'h1"): 1,
        Point(block, "hw/x.py:12", "else", "c"): 2,
    }
    assert [branch.way for branch in taken.missed] == ["else", "then"]
    assert len(taken.excluded) == taken.excluded.total() == 2


REGISTERS = """module \\top.block (clk, y);
  input clk;
  wire clk;
  (* src = "hw/x.py:7" *)
  output [3:0] y;
  reg [3:0] y = 4'h0;
  (* src = "hw/x.py:9" *)
  reg [7:0] \\$4 ;
  reg [7:0] cells [3:0];
  (* src = "hw/x.py:9" *)
  wire [1:0] \\y.low ;
  always @* begin
    \\$4  = 8'h00;
  end
  always @(posedge clk) begin
    cells[address] <= data;
    y[1] <= a;
  end
  assign \\y.low  = y[2:1];
endmodule
"""


def test_only_edges_of_registers_are_counted():
    kept, is_on = [], True
    for line in registers.muted(REGISTERS).splitlines():
        if line in (registers.OFF, registers.ON):
            is_on = line == registers.ON
        elif is_on:
            kept.append(line)
    assert is_on
    nets = "input", "wire", "cells [", "$4 ;"
    expected = [line for line in REGISTERS.splitlines() if not any(net in line for net in nets)]
    assert [line for line in kept if "src" not in line] == [
        line for line in expected if "src" not in line
    ]


def test_edges_have_the_names_of_fields(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "tma.v").write_text(REGISTERS)
    lines = counted(5, "y[0]:0->1", 2), counted(5, "y[2]:1->0", 0), counted(5, "y[1]:1->0", 0)
    (tmp_path / "one" / "a.dat").write_text("".join(lines))
    edges = counts.read(tmp_path).toggles
    block, source = "top.block", "hw/x.py:7"
    assert edges.taken == {
        Point(block, source, "rise", "y[0]"): 2,
        Point(block, source, "fall", "y.low[0]"): 0,
        Point(block, source, "fall", "y.low[1]"): 0,
    }
    assert list(described(edges.missed)) == [f"{source}: {block}: y.low[0..1] [fall]"]
    assert edges.missed[0].bit == 0
    constant = {f"{block}.y.low[0]", f"{block}.y[0]"}
    without = counts.read(tmp_path, constant).toggles
    assert without.taken == {
        Point(block, source, "rise", "y[0]"): 2,
        Point(block, source, "fall", "y.low[1]"): 0,
    }
    assert without.excluded.total() == 1


def test_a_point_without_a_branch_is_an_error(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "tma.v").write_text(VERILOG)
    (tmp_path / "one" / "a.dat").write_text(counted(6, "if", 1))
    with pytest.raises(KeyError):
        counts.read(tmp_path)


MISSED = [
    Point("tma.mbarrier_unit", "amaranth/lib/fifo.py:7", "then", "r_en"),
    Point("tma.mbarrier_unit.faults", "amaranth/lib/fifo.py:9", "else", "w_en"),
]


@pytest.mark.parametrize(
    ("changes", "unexplained", "stale"),
    [
        ([{"points": 2}], 0, 0),
        ([{}], 0, 1),
        ([{"modules": "tma.mbarrier_unit"}], 1, 0),
        ([{"way": "then"}], 1, 0),
        ([{"line": "r_en"}], 1, 0),
        ([{"condition": ("r_en", "w_en"), "points": 2}], 0, 0),
        ([{"way": "then"}, {"line": "w_en"}], 0, 0),
        ([{"way": "then"}, {"line": "w_en"}, {"line": "w_en"}], 0, 1),
        ([{"source": "hw/lib/queue.py"}], 2, 1),
        ([], 2, 0),
    ],
)
def test_missing_and_stale_explanations(changes, unexplained, stale):
    common = {"modules": "tma.mbarrier_unit*", "source": "amaranth/lib/fifo.py", "reason": "why"}
    known = [Explanation(**common | change) for change in changes]
    verdict = judge(MISSED, known)
    assert (len(verdict.unexplained), len(verdict.stale)) == (unexplained, stale)
    assert verdict.is_clean is (unexplained == stale == 0)


def test_explanations_have_their_fields(tmp_path):
    for name in "uncovered", "untoggled":
        assert all(item.reason for item in explanations(EXPLANATIONS / f"{name}.toml", "default"))
    wrong = tmp_path / "uncovered.toml"
    wrong.write_text('[[uncovered]]\nmodules = "tma"\nfile = "hw/top.py"\n')
    with pytest.raises(ValueError, match=r"uncovered\.toml: .*file"):
        explanations(wrong, "default")


def test_explanations_may_be_for_one_preset(tmp_path):
    path = tmp_path / "uncovered.toml"
    table = '[[uncovered]]\nmodules = "tma"\nsource = "hw/top.py"\nreason = "why"\n'
    path.write_text(table + 'preset = "tiny"\n' + table)
    assert len(explanations(path, "tiny")) == 2
    assert len(explanations(path, "default")) == 1


def test_a_statement_is_shown_whole(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("with m.Case(\n    A,\n    B,\n):\n    pass\n")
    assert counts.statement(path, 1) == "with m.Case(A,B,):"
    assert counts.statement(path, 5) == "pass"


def report(explained: str, least: float) -> CodeReport:
    """Return the report of three edges of a register and two branches of a line."""
    taken = {
        Point("tma.a", "hw/lib/queue.py:9", "rise", "level[0]"): 4,
        Point("tma.a", "hw/lib/queue.py:9", "rise", "level[1]"): 0,
        Point("tma.a", "hw/lib/queue.py:9", "fall", "level[1]"): 0,
        Point("tma.a", "hw/lib/queue.py:5", "then", "a"): 3,
        Point("tma.a", "hw/lib/queue.py:5", "else", "a"): 0,
    }
    known = [Explanation("tma.*", "hw/lib/*", "why", condition="level", way=explained, bits=(1, 1))]
    return CodeReport.of("all", Counts(Counter(taken)), known, least)


def test_enough_points_must_be_reached():
    half = report("fall", 0.5)
    assert half.share == 0.5
    assert half.is_closed
    assert half.blocks() == {"a": (2, 1, 2)}
    assert not report("fall", 0.51).is_closed
    assert not report("then", 0.0).is_closed  # a stale explanation


def test_hashes_of_files_do_not_count_words(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    keys = []
    for text in ("x = 1\n", '"""Text."""\n\nx = 1  # comment\n', "x = 2\n"):
        (tmp_path / "a.py").write_text(text)
        keys.append(evidence.key_of("a.py"))
    assert keys[0] == keys[1] != keys[2]


def test_lcov_has_the_counts_of_python_lines():
    assert lcov([report("fall", 1)]).splitlines() == [
        "SF:hw/lib/queue.py",
        *("BRDA:5,0,0,0", "BRDA:5,0,1,3", "BRF:2", "BRH:1"),
        *("DA:5,3", "DA:9,0", "LF:2", "LH:1"),
        "end_of_record",
    ]


class Registers(Component):
    """Registers: one that takes the input, and two that are constant, one through the other."""

    taken: In(2)
    given: Out(4)

    def elaborate(self, _: object) -> Module:
        m = Module()
        live, first = Signal(2, name="live"), Signal(3, name="first")
        second = Signal(name="second", reset_less=True)
        m.d.sync += [live.eq(self.taken), first.eq(Cat(self.taken[0], 0, 0)), second.eq(first[1])]
        m.d.comb += self.given.eq(Cat(live, first[0], second))
        return m


def test_constant_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "simulated", lambda _: Registers())
    found = constants.constant_bits(PRESETS["tiny"])
    assert {"tma.first[1]", "tma.first[2]", "tma.second[0]"} <= found
    assert not {"tma.first[0]", "tma.live[0]", "tma.live[1]"} & found
