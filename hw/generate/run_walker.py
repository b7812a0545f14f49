"""Run walker: steps through the runs of a walk."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.short_row import lookup
from hw.layouts.jobs import SHORT_ROW_BITS, prepared_walk_layout, remote_field
from hw.layouts.lines import fill_step_layout, run_layout
from hw.layouts.monitor import marks_field
from hw.lib.one_hot import any_of
from hw.lib.queue import Queue
from hw.params import TmaParams

STEP_BITS = 8
"""Width of a count of steps of a loop."""

LEAP_BITS = 2 * SHORT_ROW_BITS
"""Width of the distance from a short row to the first one behind those that share its line."""


class WalkState(enum.Enum, shape=2):
    """State of the walker."""

    IDLE = 0
    RUNS = 1
    """At a run."""
    BARE = 2
    """At the only step of a walk without runs."""


@dataclass(frozen=True)
class LoopRegisters:
    """Registers of one loop of a walk."""

    steps_left: Signal
    """Steps behind the current one; has no meaning if the steps are rows that may be gathered."""
    has_steps: Signal
    """``steps_left`` is not 0."""
    start: Signal
    """Global piece address at which the loop's current step began."""
    smem: Signal
    """Shared-memory piece address at which the loop's current step began."""


@dataclass(frozen=True)
class Gathered:
    """Short rows that are emitted with the current one."""

    room: Signal
    """Further rows that fit in the line and in the beat of the current one: a register."""
    extra_rows: Signal
    """Those of them that the walk has."""
    has_more: Signal
    """The walk has more rows than ``room``."""
    left: Signal
    """Steps left of the loop whose steps are rows: a register, of ``row_count``."""
    last: Signal
    """Steps of that loop behind its first one: a register, of ``row_count``."""


class RunWalker(wiring.Component):
    """Steps through the runs of a walk, by addition and comparison only.

    Each step emits its run and, for a load, what the fill collector needs to know of it. A walk
    without runs takes one step, which emits no run.

    If the unit ``gathers_rows``, short rows that lie in the same line are emitted as one run. These
    are the rows behind the first one that end in its line and, in shared memory, within as many
    pieces as a line has; if there is fill between them, within the beat of the first one. Of a
    store it is one row at most.

    A store has no fill. Its last run is marked ``last``. If the last walk of a store has no runs,
    the walker emits one run of zero pieces, so that the store tracker still sees ``last``.

    The registers hold what the current step needs. Meanwhile the next step is found for each loop
    that may take it, and chosen by the loops that have steps left.

    Latency: the first step is offered two clocks after the walk is taken. Throughput: one step a
    clock; the next walk is taken with the last step.
    Back-pressure: a step waits while two steps wait at one of its outputs.

    Parameters
    ----------
    params : TmaParams
    store : bool
        True: for stores. False: for loads and prefetches.

    Members
    -------
    i : In(stream) of ``prepared_walk_layout``
    run : Out(stream) of ``run_layout``
    fill : Out(stream) of ``fill_step_layout``; for loads only, and no steps of prefetches
    """

    def __init__(self, params: TmaParams, *, store: bool = False) -> None:
        self.params = params
        self.store = store
        ports = {
            "i": In(stream.Signature(prepared_walk_layout(params))),
            "run": Out(stream.Signature(run_layout(params, store))),
        }
        if not store:
            ports["fill"] = Out(stream.Signature(fill_step_layout(params)))
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        # Both outputs have a queue, so that neither waits for ``ready`` of the other.
        m.submodules.runs = runs = Queue(self.run.payload.shape(), 2)
        connect(m, runs.o, flipped(self.run))
        state = Signal(WalkState)
        on_runs = Signal()
        m.d.comb += on_runs.eq(state == WalkState.RUNS)
        job = Signal(self.i.payload.shape(), reset_less=True)
        walk = job.walk
        loops = self._loop_registers(len(walk.loops))
        gathered = self._gather(m, job)

        # The innermost loop with steps left takes one step, or as many steps as rows are gathered;
        # the loops below it begin anew.
        has_next, step_level = self._choose_loop(m, job, loops, gathered)
        next_start, next_smem, next_room = self._next_place(m, job, loops, gathered, step_level)

        fire = Signal()
        last_step = Signal()
        m.d.comb += [
            last_step.eq(~on_runs | ~has_next),
            self.i.ready.eq((state == WalkState.IDLE) | (fire & last_step)),
        ]
        self._emit_run(m, runs.i, state, on_runs, job, loops[0], fire, last_step, gathered)
        m.d.sync += Assert(~(fire & on_runs & (walk.run == 0)), "run_walker: a run has no pieces\n")

        with m.If(self.i.ready):
            self._take_walk(m, state, job, loops, gathered)
        with m.Elif(fire):
            m.d.sync += gathered.room.eq(next_room)
            if self.params.gathers_rows:
                self._step_rows(m, job, step_level, gathered)
            with m.If(last_step):
                m.d.sync += state.eq(WalkState.IDLE)
            for level, registers in enumerate(loops):
                with m.If(level <= step_level):
                    m.d.sync += [registers.start.eq(next_start), registers.smem.eq(next_smem)]
                last = walk.loops[level].last
                with m.If(level < step_level):
                    m.d.sync += [registers.steps_left.eq(last), registers.has_steps.eq(last != 0)]
                with m.Elif(level == step_level):
                    m.d.sync += [
                        registers.steps_left.eq(registers.steps_left - 1),
                        registers.has_steps.eq(registers.steps_left != 1),
                    ]
        return m

    def _choose_loop(
        self, m: Module, job, loops: list[LoopRegisters], gathered: Gathered
    ) -> tuple[Signal, Signal]:
        """Return whether there is a next step, and the innermost loop that has steps left.

        Whether there are more rows is known last: the choice is made for both cases.
        """
        choices = []
        for has_more in (0, 1):
            has_next = Signal(name=f"has_next_{has_more}")
            step_level = Signal(range(len(loops)), name=f"step_level_{has_more}")
            for level, registers in reversed(list(enumerate(loops))):
                with m.If(Mux(self._is_row(job, level), has_more, registers.has_steps)):
                    m.d.comb += [has_next.eq(1), step_level.eq(level)]
            choices.append(Cat(has_next, step_level))
        has_next = Signal()
        step_level = Signal(range(len(loops)))
        m.d.comb += Cat(has_next, step_level).eq(Mux(gathered.has_more, choices[1], choices[0]))
        return has_next, step_level

    def _loop_registers(self, levels: int) -> list[LoopRegisters]:
        """Return the registers of all loops, innermost first."""
        p = self.params
        return [
            LoopRegisters(
                Signal(STEP_BITS, name=f"steps_left_{level}", reset_less=True),
                Signal(name=f"has_steps_{level}", reset_less=True),
                Signal(p.piece_address_bits, name=f"start_{level}", reset_less=True),
                Signal(p.smem_piece_bits, name=f"smem_{level}", reset_less=True),
            )
            for level in range(levels)
        ]

    def _is_row(self, job, level: int) -> Value:
        """Return whether the steps of a loop are rows that may be gathered."""
        return job.rows.loop[level] if self.params.gathers_rows else Const(0, 1)

    def _gather(self, m: Module, job) -> Gathered:
        """Find how many rows are emitted with the current one."""
        bits = self.params.lane_bits
        # ``exceeds``: more steps than ``low`` can count, as many as rows may be gathered at most.
        row_count = data.StructLayout({"low": bits, "high": STEP_BITS - bits, "exceeds": 1})
        room = Signal(bits, name="room", reset_less=True)
        gathered = Gathered(
            room,
            Signal(bits, name="extra_rows"),
            Signal(name="has_more_rows"),
            Signal(row_count, name="rows_left", reset_less=True),
            Signal(row_count, name="rows_last", reset_less=True),
        )
        if self.params.gathers_rows:
            left = gathered.left
            with m.If(job.rows.loop.any()):
                m.d.comb += [
                    gathered.has_more.eq(left.exceeds | (left.low > room)),
                    gathered.extra_rows.eq(Mux(gathered.has_more, room, left.low)),
                ]
        return gathered

    def _row_count(self, steps: Value) -> Value:
        """Return a number of steps as ``row_count``."""
        return Cat(steps[:STEP_BITS], steps[self.params.lane_bits : STEP_BITS].any())

    def _step_rows(self, m: Module, job, step_level: Signal, gathered: Gathered) -> None:
        """Count the rows that are left behind this step."""
        left = gathered.left
        left_d = Signal(left.shape(), name="rows_left_d")
        borrows = left.low <= gathered.room
        m.d.comb += [
            left_d.low.eq(left.low - gathered.room - 1),
            left_d.high.eq(left.high - borrows),
            left_d.exceeds.eq(Mux(borrows, left.high[1:].any(), left.exceeds)),
        ]
        rows = enumerate(job.rows.loop)
        with m.If(Cat(is_row & (step_level > level) for level, is_row in rows).any()):
            m.d.sync += left.eq(gathered.last)
        with m.Elif(self._steps_rows(job, step_level)):
            m.d.sync += left.eq(left_d)

    def _room(self, m: Module, name: str, rows, start: Value, smem: Value) -> Value:
        """Return how many rows fit in the line and in the beat of a row, behind it."""
        bits = self.params.lane_bits
        in_line, in_beat = (Signal(bits, name=f"{name}_in_{part}") for part in ("line", "beat"))
        m.d.comb += [
            in_line.eq(rows.rows_in_line[start[:bits]]),
            in_beat.eq(rows.rows_in_beat[smem[:bits]]),
        ]
        return Mux(in_line < in_beat, in_line, in_beat)

    def _next_place(
        self, m: Module, job, loops: list[LoopRegisters], gathered: Gathered, step_level: Signal
    ) -> tuple[Value, Value, Value]:
        """Return the next run's addresses in both memories, and the room behind it.

        The place behind a step of each loop is found, and apart from these the place behind the
        gathered rows: how many these are is known late.
        """
        places = [
            self._place(
                m, f"level_{level}", job, (registers.start, registers.smem),
                (loop.global_step, loop.smem_step),
            )
            for level, (registers, loop) in enumerate(zip(loops, job.walk.loops, strict=True))
        ]  # fmt: skip
        chosen = Signal(places[0].shape(), name="next_place")
        with m.Switch(step_level):
            for level, place in enumerate(places):
                with m.Case(level):
                    m.d.comb += chosen.eq(place)
        if self.params.gathers_rows:
            rows = job.rows
            row = (
                any_of((rows.loop[level], each.start) for level, each in enumerate(loops)),
                any_of((rows.loop[level], each.smem) for level, each in enumerate(loops)),
            )
            leaps = [
                lookup(step, gathered.room, lambda step, room: step * (room + 1), LEAP_BITS)
                for step in (rows.row_step, rows.smem_step)
            ]
            row_place = self._place(m, "row", job, row, leaps)
            with m.If(self._steps_rows(job, step_level)):
                m.d.comb += chosen.eq(row_place)
        return chosen.start, chosen.smem, chosen.room if self.params.gathers_rows else Const(0)

    def _steps_rows(self, job, step_level: Value) -> Value:
        """Return whether the loop that steps is that of the rows that may be gathered."""
        return Cat(
            is_row & (step_level == level) for level, is_row in enumerate(job.rows.loop)
        ).any()

    def _place(self, m: Module, name: str, job, start: Sequence, steps: Sequence) -> data.View:
        """Return the place behind steps from ``start`` in both memories, and the room there."""
        p = self.params
        room = {"room": p.lane_bits} if self.params.gathers_rows else {}
        layout = data.StructLayout(
            {**room, "smem": p.smem_piece_bits, "start": p.piece_address_bits}
        )
        place = Signal(layout, name=f"place_{name}")
        m.d.comb += [place.start.eq(start[0] + steps[0]), place.smem.eq(start[1] + steps[1])]
        if self.params.gathers_rows:
            room = self._room(m, f"room_{name}", job.rows, place.start, place.smem)
            m.d.comb += place.room.eq(room)
        return place

    def _emit_run(
        self,
        m: Module,
        runs,
        state,
        on_runs,
        job,
        place: LoopRegisters,
        fire,
        last_step,
        gathered: Gathered,
    ) -> None:
        """Offer the run at ``place`` and, for a load, its step to the fill collector."""
        p = self.params
        walk, run = job.walk, runs.p
        m.d.comb += [
            run.attributes.eq(walk.attributes),
            run.slot.eq(job.slot),
            run.style.eq(walk.style),
            run.start.eq(place.start),
            run.smem.eq(place.smem),
        ]
        if marks_field(p):
            self._mark(m, run.marks, job, on_runs, fire, last_step)
        if self.params.gathers_rows:
            m.d.comb += [
                run.gather.extra_rows.eq(gathered.extra_rows),
                run.gather.row_step.eq(job.rows.row_step),
                run.gather.smem_step.eq(job.rows.smem_step),
            ]
        if self.store:
            m.d.comb += [
                fire.eq((state != WalkState.IDLE) & runs.ready),
                runs.valid.eq(state != WalkState.IDLE),
                run.pieces.eq(Mux(on_runs, walk.run, 0)),
                run.last.eq(last_step & job.last),
                run.write_mode.eq(walk.write_mode),
            ]
            return
        m.submodules.steps = steps = Queue(fill_step_layout(p), 2)
        connect(m, steps.o, flipped(self.fill))
        extra_pieces = Signal(LEAP_BITS)
        can_fire = runs.ready & (walk.prefetch | steps.i.ready)
        m.d.comb += fire.eq((state != WalkState.IDLE) & can_fire)
        self._emit_fill_step(m, steps.i, state, job, fire, last_step, place.smem, extra_pieces)
        if self.params.gathers_rows:
            rows = job.rows
            rows_mask = Cat(piece < extra_pieces for piece in range(p.lanes))
            pieces = (
                lookup(rows.smem_step, number, lambda step, n: step * n, LEAP_BITS)
                for number in (gathered.room, gathered.left.low)
            )
            m.d.comb += [
                extra_pieces.eq(Mux(job.rows.loop.any(), Mux(gathered.has_more, *pieces), 0)),
                steps.i.p.inner_fill.eq(rows.fill & rows_mask),
            ]
        m.d.comb += [
            runs.valid.eq(fire & on_runs),
            run.prefetch.eq(walk.prefetch),
            run.pieces.eq(walk.run),
            run.tail_bytes.eq(walk.tail_bytes),
            run.row_pieces.eq(walk.row_pieces),
            *(run[name].eq(walk[name]) for name in remote_field(p)),
        ]

    def _mark(self, m: Module, marks, job, on_runs, fire, last_step) -> None:
        """Mark the first run of a request, and the one of its last step."""
        first_walk = Signal(init=1)  # the next walk is the first one of its request
        first_run = Signal()  # there was none yet
        m.d.comb += [marks.first.eq(first_run), marks.last.eq(last_step & job.last)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += first_walk.eq(self.i.p.last)
            with m.If(first_walk):
                m.d.sync += first_run.eq(1)
            with m.Elif(fire & on_runs):
                m.d.sync += first_run.eq(0)
        with m.Elif(fire & on_runs):
            m.d.sync += first_run.eq(0)

    def _emit_fill_step(
        self, m: Module, steps, state, job, fire, last_step, smem, extra_pieces
    ) -> None:
        """Offer the step of a load to the fill collector.

        The run and the rows gathered behind it, ``extra_pieces``, are one run for the collector.
        """
        p = self.params
        walk, fill_step = job.walk, steps.p
        first_step = Signal()  # of the walk
        m.d.comb += [
            steps.valid.eq(fire & ~walk.prefetch),
            fill_step.slot.eq(job.slot),
            fill_step.style.eq(walk.style),
            fill_step.row_mask.eq(walk.row_mask),
            fill_step.first_of_chain.eq(first_step & walk.first),
            fill_step.chain_begin.eq(walk.smem_begin),
            fill_step.has_run.eq(state == WalkState.RUNS),
            fill_step.start.eq(smem),
            fill_step.extent.eq(walk.smem_extent + extra_pieces),
            fill_step.last_of_chain.eq(last_step & walk.last),
            fill_step.chain_end.eq(walk.smem_end),
            fill_step.last_of_request.eq(last_step & job.last),
            *(fill_step[name].eq(walk[name]) for name in remote_field(p)),
        ]
        with m.If(self.i.ready):
            m.d.sync += first_step.eq(1)
        with m.Elif(fire):
            m.d.sync += first_step.eq(0)

    def _take_walk(self, m: Module, state, job, loops, gathered: Gathered) -> None:
        """Take the next walk, if one is offered; called in the condition that ``i`` is ready."""
        new_walk = self.i.p.walk
        if self.params.gathers_rows:
            place = new_walk.start, new_walk.smem_start
            rows = self.i.p.rows
            m.d.sync += gathered.room.eq(self._room(m, "first_room", rows, *place))
            for level, loop in enumerate(new_walk.loops):
                with m.If(rows.loop[level]):
                    m.d.sync += [
                        count.eq(self._row_count(loop.last))
                        for count in (gathered.left, gathered.last)
                    ]
        with m.If(self.i.valid & new_walk.has_data):
            m.d.sync += state.eq(WalkState.RUNS)
        with m.Elif(self.i.valid & (self.i.p.last if self.store else 1)):
            m.d.sync += state.eq(WalkState.BARE)
        with m.Else():
            m.d.sync += state.eq(WalkState.IDLE)
        m.d.sync += [
            job.eq(self.i.p),
            *(registers.start.eq(new_walk.start) for registers in loops),
            *(registers.smem.eq(new_walk.smem_start) for registers in loops),
            *(
                assignment
                for registers, loop in zip(loops, new_walk.loops, strict=True)
                for assignment in (
                    registers.steps_left.eq(loop.last),
                    registers.has_steps.eq(loop.last != 0),
                )
            ),
        ]
