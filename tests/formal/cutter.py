"""Line cutter: every piece of a run is in one line, at its place, and no clock is lost."""

from functools import partial

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)

from hw.generate.line_cutter import LineCutter
from hw.layouts.lines import line_request_layout, run_layout, store_line_layout
from hw.params import TmaParams
from tests.formal.inside import Inside, inside
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer

ALL_ROWS = 4 * 3 * 5 * 7
"""A multiple of the length of each short row, modulo which no number is negative."""


class NarrowParams(TmaParams):
    """Parameters with few addresses, on which the proofs do not depend but their time."""

    piece_address_bits = 7
    smem_piece_bits = 6
    box_piece_bits = 5
    run_bits = 5


def rows_fit(params: TmaParams, run, *, store: bool) -> Value:
    """Return whether the rows that a run gathers share a line, as the row preparation leaves it."""
    gather = run.gather
    in_line = run.start[: params.lane_bits] + gather.extra_rows * gather.row_step + run.pieces
    in_smem = gather.extra_rows * gather.smem_step + run.pieces
    if store:
        fits = [gather.extra_rows == 1, gather.row_step >= run.pieces]
    else:
        fits = [
            run.row_pieces == run.pieces,
            gather.smem_step >= run.pieces,
            in_smem <= params.lanes,
        ]
    return (gather.extra_rows == 0) | Cat(in_line <= params.lanes, *fits).all()


class CutterSpec(Elaboratable):
    """The lines of each run, one a clock, without a clock lost between runs.

    The solver chooses the runs. A run of n pieces is in as many lines as it touches, in order:

    - Each line has the pieces of the run that lie in it, and no others, at the lanes of their
      addresses; none is in two lines.
    - The origin of a line is the place of its lane 0 in shared memory, and ``tail`` marks the last
      piece of each row.
    - Gathered rows are one line, with the pieces of these rows and no others. A load's ``source``
      is the lane of each piece, and its place is that in shared memory behind the first row's
      start. Of a store they are two, and ``second_origin`` is the place of lane 0 of the second.
    - The line marked ``last`` is the last one of its run, if that is marked. A store's run of no
      pieces is one line of no pieces.
    """

    def __init__(self, *, store: bool, gathers: bool = False) -> None:
        self.params = NarrowParams(
            line_bytes=64, requests_in_flight=2, short_rows=gathers, reductions=False
        )
        self.store = store
        self.gathers = gathers

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        lanes, bits = p.lanes, p.lane_bits
        layout = run_layout(p, self.store)
        m.submodules.dut = dut = LineCutter(p, store=self.store)
        offer(m, dut.i)
        m.d.comb += [dut.o.ready.eq(AnySeq(1)), Assume(~ResetSignal())]
        hold(m, dut.i, "i", Assume)
        hold(m, dut.o, "o", Assert)
        taken, given = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready

        # The run that is cut, its pieces in lines before the next one, and the run and the pieces
        # of the line that is offered.
        has_run, run, done = Signal(), Signal(layout), Signal(p.run_bits + 1)
        has_line, line_run, line_done = Signal(), Signal(layout), Signal(p.run_bits + 1)
        place, first_lane, count, left, is_last = self._next_line(m, "next", run, done)
        line_place, line_lane, line_count, line_left, line_is_last = self._next_line(
            m, "line", line_run, line_done
        )
        moves = ~has_line | dut.o.ready
        with m.If(moves):
            m.d.sync += [has_line.eq(has_run), line_run.eq(run), line_done.eq(done)]
        with m.If(taken):
            m.d.sync += [has_run.eq(1), run.eq(dut.i.payload), done.eq(0)]
        with m.Elif(moves & has_run):
            m.d.sync += [has_run.eq(~is_last), done.eq(done + count)]
        line = dut.o.p
        use = line if self.store else line.use
        m.d.comb += [
            Assume(self._contract(dut.i.p)),
            Assert(~has_run | self._contract(run)),
            Assert(~has_line | self._contract(line_run)),
            Assert(dut.o.valid == has_line),
            Assert(dut.i.ready == (~has_run | (moves & is_last))),
        ]
        is_gathered = line_run.gather.extra_rows != 0 if self.gathers else Const(0, 1)
        with m.If(has_line):
            m.d.comb += [
                Assert(line.line == line_place[bits:]),
                Assert(line.attributes == line_run.attributes),
                Assert(use.slot == line_run.slot),
                Assert(use.style == line_run.style),
            ]
            if self.store:
                m.d.comb += [
                    Assert(line.last == (line_run.last & line_is_last)),
                    Assert(line.write_mode == line_run.write_mode),
                ]
            else:
                m.d.comb += [
                    Assert(line.prefetch == line_run.prefetch),
                    Assert(use.tail_bytes == line_run.tail_bytes),
                ]
            with m.If(~is_gathered):
                self._follow_one_row(
                    m, line_run, use, (line_lane, line_count, line_done, line_is_last)
                )
            if self.gathers:
                with m.Else():
                    self._follow_rows(m, line_run, use, line_lane)

        here = inside(dut)
        m.d.comb += Assert(here.busy == has_run)
        for holds, of_run, before, behind in (
            (has_run, run, done, left),
            (has_line, line_run, line_done, line_left),
        ):
            with m.If(holds):
                m.d.comb += [
                    Assert(before <= of_run.pieces),
                    Assert((behind != 0) | (before == 0)),
                ]
                if self.gathers:
                    m.d.comb += Assert((of_run.gather.extra_rows == 0) | (before == 0))

        # The run, and what is not cut of it.
        rest = here.view("run", layout)
        gathers = Const(0, 1)
        if self.gathers and not self.store:
            gathers = run.gather.extra_rows != 0
        origin = run.smem + done - Mux(gathers, 0, first_lane)
        with m.If(has_run):
            m.d.comb += [
                *(Assert(rest[name] == run[name]) for name in sorted(layout.members)),
                Assert(here.first_lane == first_lane),
                Assert(here.number == place[bits:]),
                Assert(here.origin == origin[: p.smem_piece_bits]),
                Assert(here.end_piece == first_lane + left),
                Assert(here.last_line == is_last),
            ]
            if not self.store:
                at_lane_0 = Signal(10)  # piece of the run at lane 0, and a multiple of all rows
                row_ends = Cat(
                    (at_lane_0 + lane) % run.row_pieces == run.row_pieces - 1
                    for lane in range(lanes)
                )
                m.d.comb += at_lane_0.eq(ALL_ROWS + done - first_lane)
                with m.If(run.row_pieces != 0):
                    m.d.comb += [
                        Assert(here.phase == at_lane_0 % run.row_pieces),
                        Assert(here.row_ends == row_ends),
                    ]

        # The assumptions can be met: a run of three lines follows another run at once.
        followed, lines = Signal(), Signal(2)
        begins = has_run & (done == 0)
        with m.If(moves & begins):
            m.d.sync += [followed.eq(has_line & (line_done != 0)), lines.eq(0)]
        with m.Elif(given):
            m.d.sync += lines.eq(lines + 1)
        if self.gathers:
            m.d.comb += Cover(has_line & followed & is_gathered & (use.valid == 0b0101))
        else:
            m.d.comb += Cover(given & followed & line_is_last & (lines == 2))
        return m

    def _next_line(self, m: Module, name: str, run, done: Value) -> tuple[Signal, ...]:
        """Return the line of ``run`` behind its first ``done`` pieces.

        That is the place of its first piece and its lane, its number of pieces, the pieces of the
        run from there on, and whether the line is the last one of the run.
        """
        p = self.params
        place = Signal(p.piece_address_bits, name=f"{name}_place")
        first_lane = Signal(p.lane_bits, name=f"{name}_lane")
        count = Signal(p.lane_bits + 1, name=f"{name}_count")
        left = Signal(p.run_bits + 1, name=f"{name}_left")
        is_last = Signal(name=f"{name}_is_last")
        m.d.comb += [
            left.eq(run.pieces - done),
            place.eq(run.start + done),
            first_lane.eq(place[: p.lane_bits]),
            is_last.eq(left <= p.lanes - first_lane),
            count.eq(Mux(is_last, left, p.lanes - first_lane)),
        ]
        return place, first_lane, count, left, is_last

    def _contract(self, run) -> Value:
        """Return what holds for each run."""
        p = self.params
        has_pieces = run.pieces != 0
        if not self.gathers:
            return Const(1, 1) if self.store else has_pieces
        fits = rows_fit(p, run, store=self.store)
        return fits | ~has_pieces if self.store else fits & has_pieces

    def _follow_one_row(self, m: Module, run, use, line) -> None:
        """Assert the use of a line of contiguous pieces."""
        p = self.params
        first_lane, count, done, is_last = line
        m.d.comb += Assert(use.origin == (run.smem + done - first_lane)[: p.smem_piece_bits])
        for lane in range(p.lanes):
            has_piece = (lane >= first_lane) & (lane < first_lane + count)
            m.d.comb += Assert(use.valid[lane] == has_piece)
            if self.store:
                if self.gathers:
                    m.d.comb += Assert(use.second == 0)
                continue
            piece = Signal(10, name=f"piece_{lane}")
            ends = Mux(
                run.row_pieces == 0,
                is_last & (lane == first_lane + count - 1),
                (piece % run.row_pieces) == run.row_pieces - 1,
            )
            m.d.comb += [
                piece.eq(ALL_ROWS + done + lane - first_lane),
                Assert(use.tail[lane] == (has_piece & ends)),
            ]
            if self.gathers:
                m.d.comb += Assert(use.source[lane] == lane)

    def _follow_rows(self, m: Module, run, use, first_lane) -> None:
        """Assert the use of a line of gathered rows, for any one piece of it, and their number."""
        p = self.params
        row, piece = AnyConst(p.lane_bits), AnyConst(p.lane_bits)
        place = (row * run.gather.smem_step + piece)[: p.lane_bits]
        lane = (first_lane + row * run.gather.row_step + piece)[: p.lane_bits]
        count = (run.gather.extra_rows + 1) * run.pieces
        is_piece = (row <= run.gather.extra_rows) & (piece < run.pieces)
        m.d.comb += Assert(sum(use.valid) == count)
        if self.store:
            first, second = (
                (origin + lane)[: p.smem_piece_bits] for origin in (use.origin, use.second_origin)
            )
            at = run.smem + row * run.gather.smem_step + piece
            with m.If(is_piece):
                m.d.comb += [
                    Assert(use.valid.bit_select(lane, 1)),
                    Assert(use.second.bit_select(lane, 1) == (row == 1)),
                    Assert(Mux(row == 1, second, first) == at[: p.smem_piece_bits]),
                ]
            return
        m.d.comb += [Assert((use.tail & ~use.valid) == 0), Assert(use.origin == run.smem)]
        with m.If(is_piece):
            m.d.comb += [
                Assert(use.valid.bit_select(place, 1)),
                Assert(use.tail.bit_select(place, 1) == (piece + 1 == run.pieces)),
                Assert(use.source.as_value().word_select(place, p.lane_bits) == lane),
            ]


def _forgets_the_lane(cutter: LineCutter, inner: Inside) -> None:
    with inner.module.If(cutter.i.ready):
        inner.module.d.sync += inner.first_lane.eq(0)


def _loses_a_clock_between_runs(cutter: LineCutter, inner: Inside) -> None:
    inner.module.d.comb += cutter.i.ready.eq(~inner.busy)


def _restarts_rows_at_each_line(cutter: LineCutter, inner: Inside) -> None:
    with inner.module.If(~cutter.i.ready & inner.advance):
        inner.module.d.sync += inner.phase.eq(0)


def _gathers_contiguous_rows(cutter: LineCutter, inner: Inside) -> None:
    run = inner.view("run", run_layout(cutter.params, cutter.store))
    with inner.module.If(run.gather.extra_rows != 0):
        if cutter.store:
            line = inner.view("line", store_line_layout(cutter.params))
            inner.module.d.comb += line.second_origin.eq(line.origin)
        else:
            line = inner.view("line", line_request_layout(cutter.params))
            sources = enumerate(line.use.source)
            inner.module.d.comb += [source.eq(inner.first_lane + n) for n, source in sources]


LOSES_A_CLOCK = Bug("a clock lost between runs", LineCutter, _loses_a_clock_between_runs, depth=4)

PROOFS = [
    Proof(
        "line cutter of stores: each piece in one line",
        partial(CutterSpec, store=True),
        depth=1,
        cover=8,
        bugs=(
            Bug("runs that begin at lane 0", LineCutter, _forgets_the_lane, depth=4),
            LOSES_A_CLOCK,
        ),
        unbounded=True,
    ),
    Proof(
        "line cutter of loads: each piece in one line, rows end where they end",
        partial(CutterSpec, store=False),
        depth=1,
        cover=8,
        bugs=(
            LOSES_A_CLOCK,
            Bug(
                "short rows that begin in each line",
                LineCutter,
                _restarts_rows_at_each_line,
                depth=5,
            ),
        ),
        unbounded=True,
    ),
    *(
        Proof(
            f"line cutter of {name}: gathered rows are one line, with their pieces",
            partial(CutterSpec, store=store, gathers=True),
            depth=1,
            cover=8,
            bugs=(Bug("rows taken for contiguous", LineCutter, _gathers_contiguous_rows, depth=4),),
            unbounded=True,
        )
        for name, store in (("loads", False), ("stores", True))
    ),
]
