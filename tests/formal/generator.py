"""Generator: the runs of a walk and their lines have the walk's addresses, of any width.

``tests.formal.walk`` and ``tests.formal.cutter`` prove more of the same blocks, with short
addresses: fields, fill, order and clocks. The proofs here follow the addresses alone, in units of
the default parameters: four loops of up to 256 steps, addresses of 60 bits in pieces.
"""

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
from hw.generate.run_walker import RunWalker, WalkState
from hw.layouts.jobs import prepared_walk_layout
from hw.layouts.lines import run_layout
from hw.params import DIMS, TmaParams
from tests.formal.cutter import rows_fit
from tests.formal.inside import Inside, inside
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer

LOOPS = DIMS - 1


class WalkerSpec(Elaboratable):
    """The runs of a walk are at the sums of its steps, and each combination of steps is in one run.

    The solver chooses the walks. A counter for each loop has the number of its step; two sums have
    the steps that the loop has taken since it began anew, in global and in shared memory.

    - The run that is offered is at the start of the walk and the sums of all loops, in both
      memories. Rows behind it that it gathers are steps that the innermost loop has.
    - The next run takes one step of the innermost loop that has one left, or as many as rows are
      gathered; loops below it begin anew. The walk ends when no loop has a step left.
    """

    def __init__(self, *, store: bool) -> None:
        self.params = TmaParams(requests_in_flight=2, reductions=False)
        self.store = store

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.dut = dut = RunWalker(p, store=self.store)
        layout = prepared_walk_layout(p)
        here = inside(dut)
        offer(m, dut.i)
        hold(m, dut.i, "i", Assume)
        m.d.comb += [dut.run.ready.eq(AnySeq(1)), Assume(~ResetSignal())]
        if not self.store:
            m.d.comb += dut.fill.ready.eq(AnySeq(1))
        taken = dut.i.valid & dut.i.ready
        runs, fire = here.runs.i, here.fire
        job = here.view("job", layout)
        walk, loops = job.walk, job.walk.loops
        has_walk = here.state != WalkState.IDLE.value
        m.d.comb += [
            Assume(self._contract(dut.i.p)),
            Assert(~has_walk | self._contract(job)),
        ]

        # Numbers of the steps, and the sums of the steps taken.
        numbers = [Signal(8, name=f"number_{n}") for n in range(LOOPS)]
        sums = [
            (
                Signal(p.piece_address_bits, name=f"global_{n}"),
                Signal(p.smem_piece_bits, name=f"smem_sum_{n}"),
            )
            for n in range(LOOPS)
        ]
        is_row = list(job.rows.loop)
        extra = runs.p.gather.extra_rows
        remains = [
            number + Mux(rows, extra, 0) != loop.last
            for number, rows, loop in zip(numbers, is_row, loops, strict=True)
        ]
        has_next = walk.has_data & Cat(remains).any()
        m.d.comb += [
            Assert(~has_walk | (dut.i.ready == (fire & ~has_next))),
            Assert(has_walk | dut.i.ready),
            Assert((runs.valid & runs.ready) == (fire & (self.store | walk.has_data))),
        ]
        inner = Const(1, 1)
        for level, loop in enumerate(loops):
            steps = Mux(is_row[level], extra + 1, 1)
            with m.If(taken):
                m.d.sync += [numbers[level].eq(0), *(total.eq(0) for total in sums[level])]
            with m.Elif(fire & inner & remains[level]):
                leaps = [
                    Mux(is_row[level], (extra + 1) * step, leap)
                    for step, leap in (
                        (job.rows.row_step, loop.global_step),
                        (job.rows.smem_step, loop.smem_step),
                    )
                ]
                m.d.sync += [
                    numbers[level].eq(numbers[level] + steps),
                    *(
                        total.eq(total + leap)
                        for total, leap in zip(sums[level], leaps, strict=True)
                    ),
                ]
            with m.Elif(fire & inner):
                m.d.sync += [numbers[level].eq(0), *(total.eq(0) for total in sums[level])]
            inner = inner & ~remains[level]
        self._follow_the_place(m, here, walk, sums, has_walk)
        with m.If(has_walk):
            m.d.comb += Assert((here.state == WalkState.RUNS.value) == walk.has_data)
            for level, loop in enumerate(loops):
                self._follow_the_count(m, here, level, (numbers[level], loop.last, is_row[level]))
        with m.If(fire & walk.has_data):
            m.d.comb += [
                Assert(runs.p.start == here.start_0),
                Assert(runs.p.smem == here.smem_0),
                Assert(runs.p.pieces == walk.run),
            ]
            for number, rows, loop in zip(numbers, is_row, loops, strict=True):
                m.d.comb += Assert(~rows | (number + extra <= loop.last))
            m.d.comb += Assert(Cat(is_row).any() | (extra == 0))
        is_far = (numbers[2] == 1) & (numbers[1] == 1) & ~taken
        m.d.comb += Cover(fire & is_far & (walk.start == 5) & (loops[0].global_step != 0))
        return m

    def _follow_the_place(self, m: Module, here: Inside, walk, sums, has_walk) -> None:
        """Assert that each loop began its step at the start of the loop above, plus its sum."""
        for level in range(LOOPS):
            above = walk.start, walk.smem_start
            if level + 1 < LOOPS:
                above = (here.signal(f"start_{level + 1}"), here.signal(f"smem_{level + 1}"))
            places = here.signal(f"start_{level}"), here.signal(f"smem_{level}")
            for place, begin, total in zip(places, above, sums[level], strict=True):
                m.d.comb += Assert(~has_walk | (place == (begin + total)[: len(place)]))

    def _follow_the_count(self, m: Module, here: Inside, level: int, loop) -> None:
        """Assert the steps that are left of a loop."""
        number, last, is_row = loop
        left = (last - number)[:8]
        m.d.comb += Assert(number <= last)
        with m.If(~is_row):
            m.d.comb += [
                Assert(here.signal(f"steps_left_{level}") == left),
                Assert(here.signal(f"has_steps_{level}") == (left != 0)),
            ]
        with m.Else():
            for name, count in (("rows_left", left), ("rows_last", last)):
                row_count = here.signal(name)
                bits = self.params.lane_bits
                m.d.comb += [
                    Assert(row_count[:8] == count),
                    Assert(row_count[8] == (count[bits:] != 0)),
                ]

    def _contract(self, job) -> Value:
        """Return what setup and the row preparation leave of walks."""
        walk = job.walk
        holds = ~walk.has_data | (walk.run != 0)
        if self.store:  # its run lies in shared memory
            holds = holds & (walk.run >> self.params.box_piece_bits == 0)
        # The loop of the rows is the innermost one that has several steps.
        rows, is_inner = job.rows, Const(1, 1)
        for level, loop in enumerate(walk.loops):
            steps = (loop.global_step == rows.row_step) & (loop.smem_step == rows.smem_step)
            holds = holds & (~rows.loop[level] | (is_inner & (loop.last != 0) & steps))
            is_inner = is_inner & (loop.last == 0)
        return holds


class LinesSpec(Elaboratable):
    """The lines of a run have its pieces, each once, at their lanes and their places.

    The solver chooses the runs: of up to 65,535 pieces, of stores as many as shared
    memory has, anywhere. What is not cut of a run begins
    at a piece of global memory and one of shared memory, and has a number of pieces. The next line
    has as many of these as lie in the line of the first one.

    - The line that is offered has the address of these pieces, and is valid at their lanes and
      nowhere else. Its ``origin`` is where its lane 0 goes.
    - A line of gathered rows is that of the first row. Each piece of each of its rows is at its
      place behind the first one, and belongs to its own lane of this line. Of a store they are two,
      and ``second_origin`` is where lane 0 of the second one is.
    """

    def __init__(self, *, store: bool) -> None:
        self.params = TmaParams(requests_in_flight=2, reductions=False)
        self.store = store

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        lanes, bits = p.lanes, p.lane_bits
        layout = run_layout(p, self.store)
        m.submodules.dut = dut = LineCutter(p, store=self.store)
        here = inside(dut)
        offer(m, dut.i)
        hold(m, dut.i, "i", Assume)
        m.d.comb += [dut.o.ready.eq(AnySeq(1)), Assume(~ResetSignal())]
        taken = dut.i.valid & dut.i.ready
        i = dut.i.p
        m.d.comb += Assume(self._contract(i))

        # What is not cut of the run, and the line that is offered.
        has_run, has_line = Signal(), Signal()
        run, line_run = Signal(layout), Signal(layout)
        start, smem = Signal(p.piece_address_bits), Signal(p.smem_piece_bits)
        left, count = Signal(p.run_bits), Signal(bits + 1)
        line_start, line_smem = Signal.like(start), Signal.like(smem)
        line_count = Signal.like(count)
        lane, line_lane = start[:bits], line_start[:bits]
        is_last = Signal()
        m.d.comb += [
            is_last.eq(left <= lanes - lane),
            count.eq(Mux(is_last, left, lanes - lane)),
        ]
        moves = ~has_line | dut.o.ready
        with m.If(moves):
            m.d.sync += [
                has_line.eq(has_run),
                line_run.eq(run),
                line_start.eq(start),
                line_smem.eq(smem),
                line_count.eq(count),
            ]
        with m.If(taken):
            m.d.sync += [
                has_run.eq(1),
                run.eq(i),
                start.eq(i.start),
                smem.eq(i.smem),
                left.eq(i.pieces),
            ]
        with m.Elif(moves & has_run):
            m.d.sync += [
                has_run.eq(~is_last),
                start.eq(start + count),
                smem.eq(smem + count),
                left.eq(left - count),
            ]

        stored = here.view("run", layout)
        gathers = run.gather.extra_rows != 0
        begins = smem - (lane if self.store else Mux(gathers, 0, lane))
        m.d.comb += [
            Assert(here.busy == has_run),
            Assert(dut.o.valid == has_line),
            Assert(dut.i.ready == (~has_run | (moves & is_last))),
        ]
        with m.If(has_run):
            m.d.comb += [
                *(Assert(stored[name] == run[name]) for name in sorted(layout.members)),
                Assert(self._contract(run)),
                Assert(here.first_lane == lane),
                Assert(here.number == start[bits:]),
                Assert(here.origin == begins[: p.smem_piece_bits]),
                Assert(here.end_piece == lane + left),
                Assert(here.last_line == is_last),
                Assert(~gathers | ((start == run.start) & (smem == run.smem))),
                Assert(~gathers | (left == run.pieces)),
                Assert(~gathers | is_last),
            ]
        self._follow_the_line(
            m, dut.o.p, has_line, (line_run, line_start, line_lane, line_smem, line_count)
        )
        m.d.comb += Cover(has_line & (line_lane == 0) & (line_start != line_run.start))
        return m

    def _follow_the_line(self, m: Module, line, has_line: Signal, expected) -> None:
        """Assert the line that is offered, and what it uses."""
        p = self.params
        run, start, lane, smem, count = expected
        use = line if self.store else line.use
        gathers = run.gather.extra_rows != 0
        with m.If(has_line):
            m.d.comb += [Assert(line.line == start[p.lane_bits :]), Assert(self._contract(run))]
            with m.If(~gathers):
                m.d.comb += Assert(use.origin == (smem - lane)[: p.smem_piece_bits])
                for at in range(p.lanes):
                    has_piece = (at >= lane) & (at < lane + count)
                    m.d.comb += Assert(use.valid[at] == has_piece)
                    if self.store:
                        m.d.comb += Assert(use.second[at] == 0)
        row, piece = AnyConst(p.lane_bits), AnyConst(p.lane_bits)
        place = Signal(2 * p.lane_bits + 1)
        m.d.comb += place.eq(row * run.gather.smem_step + piece)
        source = lane + row * run.gather.row_step + piece
        is_piece = (row <= run.gather.extra_rows) & (piece < run.pieces)
        with m.If(has_line & gathers):
            m.d.comb += [
                Assert(start == run.start),
                Assert(sum(use.valid) == (run.gather.extra_rows + 1) * run.pieces),
            ]
            if self.store:
                at = source[: p.lane_bits]
                origins = [
                    (origin + at)[: p.smem_piece_bits] for origin in (use.origin, use.second_origin)
                ]
                with m.If(is_piece):
                    m.d.comb += [
                        Assert(source < p.lanes),
                        Assert(use.valid.bit_select(at, 1)),
                        Assert(use.second.bit_select(at, 1) == (row == 1)),
                        Assert(
                            Mux(row == 1, origins[1], origins[0])
                            == (run.smem + place)[: p.smem_piece_bits]
                        ),
                    ]
                return
            m.d.comb += Assert(use.origin == run.smem)
            at = place[: p.lane_bits]
            with m.If(is_piece):
                m.d.comb += [
                    Assert(use.valid.bit_select(at, 1)),
                    Assert(place < p.lanes),
                    Assert(source < p.lanes),
                    Assert(use.source.as_value().word_select(at, p.lane_bits) == source),
                ]

    def _contract(self, run) -> Value:
        """Return what the run walker and the row preparation leave of runs."""
        has_pieces = run.pieces != 0
        fits = rows_fit(self.params, run, store=self.store)
        return fits | ~has_pieces if self.store else fits & has_pieces


def _carries_one_loop_only(_walker: RunWalker, inner: Inside) -> None:
    with inner.module.If(inner.step_level == 2):
        inner.module.d.comb += inner.next_place.eq(inner.place_level_1)


def _steps_a_row_too_far(_walker: RunWalker, inner: Inside) -> None:
    inner.module.d.comb += inner.extra_rows.eq(inner.room)


def _loses_a_carry_of_the_line(_cutter: LineCutter, inner: Inside) -> None:
    with inner.module.If(inner.number[:20].all() & inner.busy & ~inner.last_line):
        inner.module.d.sync += inner.number[20:].eq(inner.number[20:])


def _ends_a_line_late(cutter: LineCutter, inner: Inside) -> None:
    with inner.module.If(cutter.i.ready & (cutter.i.p.pieces == 7)):
        inner.module.d.sync += inner.last_line.eq(1)


PROOFS = [
    *(
        Proof(
            f"run walker of {name}: addresses of 60 bits, 4 x 256 steps",
            partial(WalkerSpec, store=store),
            depth=1,
            cover=14,
            bugs=(bug,),
            unbounded=True,
        )
        for name, store, bug in (
            (
                "loads",
                False,
                Bug("rows of another walk", RunWalker, _steps_a_row_too_far, depth=6),
            ),
            (
                "stores",
                True,
                Bug("a loop that carries into the wrong one", RunWalker, _carries_one_loop_only, 8),
            ),
        )
    ),
    *(
        Proof(
            f"line cutter of {name}: addresses of 60 bits, runs of 16 bits",
            partial(LinesSpec, store=store),
            depth=1,
            cover=6,
            bugs=(bug,),
            unbounded=True,
        )
        for name, store, bug in (
            (
                "loads",
                False,
                Bug("a carry that is lost", LineCutter, _loses_a_carry_of_the_line, depth=5),
            ),
            ("stores", True, Bug("a run that ends early", LineCutter, _ends_a_line_late, depth=5)),
        )
    ),
]
