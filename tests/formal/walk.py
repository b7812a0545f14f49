"""Walk: every step of a walk is in one run, at its addresses, and rows share lines if they fit."""

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
from amaranth.lib import data

from hw.generate.row_preparation import RowPreparation
from hw.generate.run_walker import STEP_BITS, RunWalker, WalkState
from hw.layouts.jobs import prepared_walk_layout
from hw.params import TmaParams
from tests.formal.inside import Inside, inside
from tests.formal.proof import Bug, Proof
from tests.formal.queue import follow_the_level
from tests.formal.streams import hold, offer


class NarrowParams(TmaParams):
    """Parameters with few addresses, on which the proofs do not depend but their time."""

    piece_address_bits = 8
    smem_piece_bits = 7
    box_piece_bits = 6
    run_bits = 6


def narrow(**changes) -> TmaParams:
    """Return parameters of lines of four pieces."""
    return NarrowParams(line_bytes=64, requests_in_flight=2, reductions=False, **changes)


class PreparationSpec(Elaboratable):
    """The row preparation finds all rows that may share a line, for any lane and any piece.

    - The rows are the steps of the innermost loop that has several, if they are whole runs, less
      than 8 pieces apart in both memories; otherwise there are none. Rows of a store that overlap
      are none, either; two of them fit if each is in a beat.
    - ``rows_in_line`` is the number of rows that end in the line behind a row that begins in a
      lane: not one more fits. So is ``rows_in_beat``: from the row's first piece on, or if there is
      fill between rows, in the beat.
    - ``fill`` has the pieces between rows, if some of them are fill.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = narrow()
        lanes = p.lanes
        m.submodules.dut = dut = RowPreparation(p)
        m.d.comb += [
            dut.i.valid.eq(AnySeq(1)),
            dut.i.payload.eq(AnySeq(len(Value.cast(dut.i.payload)))),
            Assume(~ResetSignal()),
        ]
        valid, job = Signal(), Signal(dut.i.payload.shape())
        m.d.sync += [valid.eq(dut.i.valid), job.eq(dut.i.payload)]
        walk, rows = job.walk, dut.o.p.rows
        m.d.comb += Assert(dut.o.valid == valid)

        is_run, several = walk.run == walk.row_pieces, Const(0, 1)
        expected = Signal(len(walk.loops))
        steps = Signal(3), Signal(3)
        for level, loop in enumerate(walk.loops):
            is_short = (loop.global_step < 8) & (loop.smem_step < 8)
            is_short = is_short & (~walk.store | (loop.global_step >= walk.row_pieces))
            is_rows = is_run & ~several & (loop.last != 0) & is_short
            with m.If(is_rows):
                m.d.comb += [
                    expected[level].eq(1),
                    steps[0].eq(loop.global_step),
                    steps[1].eq(loop.smem_step),
                ]
            several = several | (loop.last != 0)
        with m.If(valid):
            m.d.comb += [
                *(Assert(dut.o.p[name] == job[name]) for name in job.shape().members),
                Assert(rows.loop == expected),
            ]
        lane, piece = AnyConst(p.lane_bits), AnyConst(p.lane_bits)
        has_fill, is_between = Signal(), Signal(lanes)
        for number in range(lanes):
            m.d.comb += is_between[number].eq((number % steps[1]) >= walk.row_pieces)
        m.d.comb += has_fill.eq((is_between & walk.row_mask[:lanes]).any() & (steps[1] != 0))
        with m.If(valid & expected.any() & (walk.row_pieces != 0)):
            m.d.comb += [Assert(rows.row_step == steps[0]), Assert(rows.smem_step == steps[1])]
            for name, step, first, counts in (
                ("rows_in_line", steps[0], lane, Const(1, 1)),
                ("rows_in_beat", steps[1], Mux(has_fill, lane, 0), ~walk.store),
            ):
                count = rows[name][lane]
                end = first + count * step + walk.row_pieces
                m.d.comb += Assert(~counts | (count == 0) | (end <= lanes))
                with m.If(counts & (step != 0)):
                    m.d.comb += Assert(end + step > lanes)
            in_beats = [
                begin[: p.lane_bits] + walk.row_pieces <= lanes for begin in (lane, lane + steps[1])
            ]
            with m.If(walk.store):
                is_pair = (steps[1] != 0) & Cat(in_beats).all()
                m.d.comb += Assert(rows.rows_in_beat[lane] == is_pair)
            m.d.comb += Assert(
                rows.fill.bit_select(piece, 1) == (has_fill & is_between.bit_select(piece, 1))
            )

        # The assumptions can be met: two rows with fill between them lie in a beat.
        m.d.comb += Cover(valid & rows.loop[1] & (rows.rows_in_beat[0] == 1) & rows.fill.any())
        return m


LAST = 3
"""Most steps of a loop behind its first one."""

LAST_OF_ROWS = 9
"""The same of gathered rows: more than twice the rows that may share a line."""


def row_count_layout(params: TmaParams) -> data.StructLayout:
    """Return the layout of the walker's counts of rows."""
    bits = params.lane_bits
    return data.StructLayout({"low": bits, "high": STEP_BITS - bits, "exceeds": 1})


class WalkSpec(Elaboratable):
    """The steps of each walk leave in the order of its loops, each in one run, at its addresses.

    The solver chooses the walks, of two loops of few steps, and the rows that the row preparation
    may find. Between the outputs of two steps any time may pass:

    - The runs of a walk begin at its first step and end at its last one. Each run is at the sums of
      the steps taken in each loop, in both memories. The next one takes a step of the innermost
      loop that has one left; loops below it begin anew.
    - A run of several rows has rows that the walk has, that fit in the line and in the beat of the
      first one, and as many of them as there are.
    - The fill collector gets a step for each run, and one for each walk without runs: its extent
      reaches the last row, and ``first_of_chain``, ``last_of_chain`` and ``last_of_request`` are
      those of the walk, each in one step. A prefetch gives none.
    - A store's request ends with a run marked ``last``.
    - No clock is lost between steps or walks.
    """

    def __init__(self, *, store: bool = False, gathers: bool = False) -> None:
        self.params = narrow(short_rows=gathers)
        self.store = store
        self.gathers = gathers
        self.last = LAST_OF_ROWS if gathers else LAST

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.dut = dut = RunWalker(p, store=self.store)
        layout = prepared_walk_layout(p)
        here = inside(dut)
        # Steps are followed where they enter the queues of the outputs, which have their own proof.
        runs = here.runs.i
        steps = None if self.store else here.steps.i
        offer(m, dut.i)
        hold(m, dut.i, "i", Assume)
        m.d.comb += [dut.run.ready.eq(AnySeq(1)), Assume(~ResetSignal())]
        if not self.store:
            m.d.comb += dut.fill.ready.eq(AnySeq(1))
        taken = dut.i.valid & dut.i.ready

        # The walk, and the number of its step in each loop.
        has_walk, job = Signal(), Signal(layout)
        walk, loops = job.walk, job.walk.loops
        numbers = [Signal(range(self.last + 1), name=f"number_{n}") for n in range(len(loops))]
        left = [loop.last - number for loop, number in zip(loops, numbers, strict=True)]
        start, smem = Signal(p.piece_address_bits), Signal(p.smem_piece_bits)

        def distance(kind: str, level: int) -> Value:
            """Return the sum of the steps that the loops from ``level`` on have taken."""
            taken = list(zip(numbers, loops, strict=True))[level:]
            return sum(number * loop[kind] for number, loop in taken)

        m.d.comb += [
            Assume(self._contract(dut.i.p)),
            Assert(~has_walk | self._contract(job)),
            start.eq(
                sum((n * x.global_step for n, x in zip(numbers, loops, strict=True)), walk.start)
            ),
            smem.eq(
                sum((n * x.smem_step for n, x in zip(numbers, loops, strict=True)), walk.smem_start)
            ),
        ]
        # Rows that leave with the step.
        extra = Signal(p.lane_bits)
        if self.gathers:
            rows = job.rows
            in_line = rows.rows_in_line[start[: p.lane_bits]]
            in_beat = rows.rows_in_beat[smem[: p.lane_bits]]
            room_behind = Mux(in_line < in_beat, in_line, in_beat)
            for level in range(len(loops)):
                with m.If(rows.loop[level]):
                    m.d.comb += extra.eq(Mux(left[level] < room_behind, left[level], room_behind))
        is_rows = [
            job.rows.loop[level] if self.gathers else Const(0, 1) for level in range(len(loops))
        ]
        remains = [
            number + Mux(is_row, extra, 0) != loop.last
            for number, is_row, loop in zip(numbers, is_rows, loops, strict=True)
        ]
        has_next = walk.has_data & Cat(remains).any()

        # A step leaves when both queues take it.
        room = runs.ready if self.store else runs.ready & (walk.prefetch | steps.ready)
        fire = has_walk & room
        m.d.comb += Assert(dut.i.ready == (~has_walk | (fire & ~has_next)))
        first_step = Signal()
        with m.If(fire):
            m.d.sync += first_step.eq(0)
            is_inner = Const(1, 1)
            for number, is_row, remain in zip(numbers, is_rows, remains, strict=True):
                with m.If(is_inner):
                    m.d.sync += number.eq(Mux(remain, number + Mux(is_row, extra, 0) + 1, 0))
                is_inner = is_inner & ~remain
            with m.If(~has_next):
                m.d.sync += has_walk.eq(0)
        with m.If(taken):
            skips = ~dut.i.p.walk.has_data & ~dut.i.p.last if self.store else Const(0, 1)
            m.d.sync += [
                has_walk.eq(~skips),
                job.eq(dut.i.payload),
                first_step.eq(1),
                *(number.eq(0) for number in numbers),
            ]
        self._check_the_run(m, runs, job, (fire, has_next, start, smem, extra))
        if not self.store:
            self._check_the_step(m, steps, job, (fire, first_step, has_next, smem, extra))

        # The registers of the walker.
        stored = here.view("job", layout)
        state = here.signal("state")
        m.d.comb += [
            Assert((state != WalkState.IDLE.value) == has_walk),
            Assert(~has_walk | ((state == WalkState.RUNS.value) == walk.has_data)),
        ]
        with m.If(has_walk):
            m.d.comb += Assert(stored == job)
            if not self.store:
                m.d.comb += Assert(here.first_step == first_step)
            if self.gathers:
                m.d.comb += Assert(here.room == room_behind)
                self._check_the_count(m, here, is_rows, loops, left)
        for level in range(len(loops)):
            steps_left = here.signal(f"steps_left_{level}")
            counts = ~is_rows[level]  # those of rows are elsewhere
            at_start = walk.start + distance("global_step", level)
            at_smem = walk.smem_start + distance("smem_step", level)
            with m.If(has_walk):
                m.d.comb += [
                    Assert(numbers[level] <= loops[level].last),
                    Assert(~counts | (steps_left == left[level])),
                    Assert(~counts | (here.signal(f"has_steps_{level}") == (left[level] != 0))),
                    Assert(here.signal(f"start_{level}") == at_start[: p.piece_address_bits]),
                    Assert(here.signal(f"smem_{level}") == at_smem[: p.smem_piece_bits]),
                ]
        follow_the_level(m, here.runs)
        if not self.store:
            follow_the_level(m, here.steps)

        # The assumptions can be met: the second step of the second loop, a walk behind another one.
        second = Signal()
        with m.If(taken):
            m.d.sync += second.eq(has_walk)
        m.d.comb += Cover(
            second & fire & (numbers[1] == 1) & (extra == 1 if self.gathers else numbers[0] == 1)
        )
        return m

    def _check_the_count(self, m: Module, here: Inside, is_rows, loops, left) -> None:
        """Assert the counts of rows: those that are left, and those behind the first one."""
        layout = row_count_layout(self.params)
        for name, numbers in (("rows_left", left), ("rows_last", [loop.last for loop in loops])):
            count = here.view(name, layout)
            for is_row, number in zip(is_rows, numbers, strict=True):
                with m.If(is_row):
                    m.d.comb += Assert(Cat(count.low, count.high) == number)
            with m.If(Cat(is_rows).any()):
                m.d.comb += Assert(count.exceeds == (count.high != 0))

    def _contract(self, job) -> Value:
        """Return what holds for each walk."""
        walk = job.walk
        small = Cat(loop.last <= self.last for loop in walk.loops).all()
        flat = Cat(loop.last == 0 for loop in list(walk.loops)[2:]).all()
        holds = small & flat & (~walk.has_data | (walk.run != 0))
        if not self.gathers:
            return holds
        # The loop of the rows is the innermost one that has several steps.
        rows, inner = job.rows, Const(1, 1)
        for level, loop in enumerate(walk.loops):
            steps = (loop.global_step == rows.row_step) & (loop.smem_step == rows.smem_step)
            holds = holds & (~rows.loop[level] | (inner & (loop.last != 0) & steps))
            inner = inner & (loop.last == 0)
        return holds

    def _check_the_run(self, m: Module, runs, job, step) -> None:
        """Assert which run is emitted with the step."""
        walk, run = job.walk, runs.p
        fire, has_next, start, smem, extra = step
        emits = fire if self.store else fire & walk.has_data
        m.d.comb += Assert((runs.valid & runs.ready) == emits)
        with m.If(emits):
            m.d.comb += [
                Assert(run.slot == job.slot),
                Assert(run.style == walk.style),
                Assert(run.attributes == walk.attributes),
                Assert(~walk.has_data | ((run.start == start) & (run.smem == smem))),
            ]
            if self.store:
                m.d.comb += [
                    Assert(run.pieces == Mux(walk.has_data, walk.run, 0)),
                    Assert(run.last == (job.last & ~has_next)),
                ]
            else:
                m.d.comb += [
                    Assert(run.pieces == walk.run),
                    Assert(run.row_pieces == walk.row_pieces),
                    Assert(run.tail_bytes == walk.tail_bytes),
                    Assert(run.prefetch == walk.prefetch),
                ]
            if self.gathers:
                m.d.comb += [
                    Assert(run.gather.extra_rows == extra),
                    Assert(run.gather.row_step == job.rows.row_step),
                    Assert(run.gather.smem_step == job.rows.smem_step),
                ]

    def _check_the_step(self, m: Module, steps, job, step) -> None:
        """Assert what the fill collector gets with the step."""
        p, walk, fill = self.params, job.walk, steps.p
        fire, first_step, has_next, smem, extra = step
        m.d.comb += Assert((steps.valid & steps.ready) == (fire & ~walk.prefetch))
        with m.If(steps.valid):
            rows_behind = extra * job.rows.smem_step if self.gathers else Const(0)
            m.d.comb += [
                Assert(fill.slot == job.slot),
                Assert(fill.has_run == walk.has_data),
                Assert(fill.first_of_chain == (walk.first & first_step)),
                Assert(fill.last_of_chain == (walk.last & ~has_next)),
                Assert(fill.last_of_request == (job.last & ~has_next)),
                Assert(fill.chain_begin == walk.smem_begin),
                Assert(fill.chain_end == walk.smem_end),
                Assert(~walk.has_data | (fill.start == smem)),
                Assert(
                    ~walk.has_data
                    | (fill.extent == (walk.smem_extent + rows_behind)[: p.box_piece_bits])
                ),
            ]
            if self.gathers:
                is_before_end = Cat(piece < rows_behind for piece in range(p.lanes))
                m.d.comb += Assert(
                    ~walk.has_data | (fill.inner_fill == (job.rows.fill & is_before_end))
                )


def _gathers_a_row_too_much(preparation: RowPreparation, inner: Inside) -> None:
    rows = preparation.o.p.rows
    inner.module.d.comb += rows.rows_in_line[0].eq(preparation.params.lanes // rows.row_step)


def _gathers_rows_of_outer_loops(preparation: RowPreparation, inner: Inside) -> None:
    with inner.module.If(preparation.i.p.walk.loops[1].last != 0):
        inner.module.d.comb += inner.found_d[:2].eq(0b10)


def _forgets_to_begin_anew(walker: RunWalker, inner: Inside) -> None:
    with inner.module.If(inner.fire & ~walker.i.ready):
        inner.module.d.sync += [
            inner.steps_left_0.eq(inner.steps_left_0 - 1),
            inner.has_steps_0.eq(inner.steps_left_0 != 1),
        ]


def _ends_with_the_inner_loop(_walker: RunWalker, inner: Inside) -> None:
    inner.module.d.comb += inner.has_next.eq(inner.steps_left_0 != 0)


def _marks_each_step_as_first(_walker: RunWalker, inner: Inside) -> None:
    inner.module.d.sync += inner.first_step.eq(1)


def _forgets_bare_stores(walker: RunWalker, inner: Inside) -> None:
    with inner.module.If(walker.i.ready & ~walker.i.p.walk.has_data):
        inner.module.d.sync += inner.state.eq(WalkState.IDLE.value)


def _steps_over_a_row(_walker: RunWalker, inner: Inside) -> None:
    inner.module.d.comb += inner.extra_rows.eq(inner.room)


def _forgets_the_borrow(walker: RunWalker, inner: Inside) -> None:
    left, left_d = (
        inner.view(name, row_count_layout(walker.params)) for name in ("rows_left", "rows_left_d")
    )
    inner.module.d.comb += left_d.high.eq(left.high)


PROOFS = [
    Proof(
        "row preparation: the rows that fit, and not one more",
        PreparationSpec,
        depth=1,
        cover=4,
        bugs=(
            Bug("rows that end behind the line", RowPreparation, _gathers_a_row_too_much, depth=3),
            Bug("rows of an outer loop", RowPreparation, _gathers_rows_of_outer_loops, depth=3),
        ),
        unbounded=True,
    ),
    *(
        Proof(
            f"run walker, {name}: each step in one run, at its place",
            partial(WalkSpec, **changes),
            depth=1,
            cover=10,
            bugs=bugs,
            unbounded=True,
        )
        for name, changes, bugs in (
            (
                "loads",
                {},
                (
                    Bug(
                        "a walk that ends with its inner loop",
                        RunWalker,
                        _ends_with_the_inner_loop,
                        8,
                    ),
                    Bug(
                        "a chain that begins with each step",
                        RunWalker,
                        _marks_each_step_as_first,
                        6,
                    ),
                ),
            ),
            (
                "gathered rows",
                {"gathers": True},
                (
                    Bug("rows that the walk does not have", RunWalker, _steps_over_a_row, 6),
                    Bug("a count of rows without a borrow", RunWalker, _forgets_the_borrow, 6),
                ),
            ),
            (
                "gathered rows of stores",
                {"store": True, "gathers": True},
                (Bug("rows that the walk does not have", RunWalker, _steps_over_a_row, 6),),
            ),
            (
                "stores",
                {"store": True},
                (
                    Bug("a store without data that has no end", RunWalker, _forgets_bare_stores, 5),
                    Bug("a loop that does not begin anew", RunWalker, _forgets_to_begin_anew, 8),
                ),
            ),
        )
    ),
]
