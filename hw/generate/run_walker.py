"""Run walker: steps through the runs of a walk."""

from dataclasses import dataclass

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.generate.short_row import find_rows, rows_layout
from hw.layouts.jobs import remote_field, slot_walk_layout
from hw.layouts.lines import fill_step_layout, run_layout
from hw.params import TmaParams


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
    start: Signal
    """Global piece address at which the loop's current step began."""
    smem: Signal
    """Shared-memory piece address at which the loop's current step began."""


class RunWalker(wiring.Component):
    """Steps through the runs of a walk, by addition and comparison only.

    Each step emits its run and, for a load, what the fill collector needs to know of it. A walk
    without runs takes one step, which emits no run.

    If the unit ``gathers_rows``, short rows of a load that lie in the same line are emitted as one
    run. These are the rows behind the first one that end in its line and, in shared memory, within
    as many pieces as a line has; if there is fill between them, within the beat of the first one.

    A store has no fill. Its last run is marked ``last``. If the last walk of a store has no runs,
    the walker emits one run of zero pieces, so that the store tracker still sees ``last``.

    Latency: the first step comes one clock after the walk is taken. Throughput: one step a clock;
    the next walk is taken with the last step, in a ``compact`` unit one clock later. Back-pressure:
    a step waits until all of its outputs are ready. The ``valid`` of ``run`` and that of ``fill``
    therefore depend on ``ready`` of the outputs: a register slice must follow each.

    Parameters
    ----------
    params : TmaParams
    store : bool
        True: for stores. False: for loads and prefetches.

    Members
    -------
    i : In(stream) of ``slot_walk_layout``
    run : Out(stream) of ``run_layout``
    fill : Out(stream) of ``fill_step_layout``; for loads only, and no steps of prefetches
    """

    def __init__(self, params: TmaParams, *, store: bool = False) -> None:
        self.params = params
        self.store = store
        ports = {
            "i": In(stream.Signature(slot_walk_layout(params))),
            "run": Out(stream.Signature(run_layout(params, store))),
        }
        if not store:
            ports["fill"] = Out(stream.Signature(fill_step_layout(params)))
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        state = Signal(WalkState)
        on_runs = Signal()
        m.d.comb += on_runs.eq(state == WalkState.RUNS)
        job = Signal(slot_walk_layout(p), reset_less=True)
        walk = job.walk
        loops = self._loop_registers(len(walk.loops))

        rows = Signal(rows_layout(p), reset_less=True)
        max_extra_rows = Signal(p.lane_bits)  # further rows that fit in the line and the beat
        extra_rows = Signal(p.lane_bits)  # those of them that the walk has
        row_assignments = []
        if not self.store and p.gathers_rows:
            row_assignments = find_rows(m, p, self.i.p.walk, rows)
            self._count_rows(m, walk, rows, loops, max_extra_rows, extra_rows)

        # The innermost loop with steps left takes one step, or as many steps as rows are gathered;
        # the loops below it begin anew.
        has_next = Signal()
        step_level = Signal(range(len(loops)))
        next_start = Signal(p.piece_address_bits)
        next_smem = Signal(p.smem_piece_bits)
        steps_taken = Signal(p.lane_bits + 1)
        m.d.comb += steps_taken.eq(1)
        for level, registers in reversed(list(enumerate(loops))):
            with m.If(registers.steps_left > Mux(rows.loop[level], max_extra_rows, 0)):
                m.d.comb += [has_next.eq(1), step_level.eq(level)]
        with m.Switch(step_level):
            for level, loop in enumerate(walk.loops):
                with m.Case(level):
                    m.d.comb += [
                        next_start.eq(loops[level].start + loop.global_step),
                        next_smem.eq(loops[level].smem + loop.smem_step),
                    ]
                    with m.If(rows.loop[level]):
                        m.d.comb += [
                            steps_taken.eq(extra_rows + 1),
                            next_start.eq(loops[level].start + rows.row_step * steps_taken),
                            next_smem.eq(loops[level].smem + rows.smem_step * steps_taken),
                        ]

        fire = Signal()
        last_step = Signal()
        is_back_to_back = Const(not p.compact)  # the next walk is taken with the last step
        m.d.comb += [
            last_step.eq(~on_runs | ~has_next),
            self.i.ready.eq((state == WalkState.IDLE) | (fire & last_step & is_back_to_back)),
        ]
        self._emit_run(m, state, on_runs, job, loops[0], fire, last_step, rows, extra_rows)
        m.d.sync += Assert(~(fire & on_runs & (walk.run == 0)), "run_walker: a run has no pieces\n")

        with m.If(self.i.ready):
            self._take_walk(m, state, job, loops, row_assignments)
        with m.Elif(fire):
            with m.If(last_step):
                m.d.sync += state.eq(WalkState.IDLE)
            for level, registers in enumerate(loops):
                with m.If(level <= step_level):
                    m.d.sync += [registers.start.eq(next_start), registers.smem.eq(next_smem)]
                with m.If(level < step_level):
                    m.d.sync += registers.steps_left.eq(walk.loops[level].last)
                with m.Elif(level == step_level):
                    m.d.sync += registers.steps_left.eq(registers.steps_left - steps_taken)
        return m

    def _loop_registers(self, levels: int) -> list[LoopRegisters]:
        """Return the registers of all loops, innermost first."""
        p = self.params
        return [
            LoopRegisters(
                Signal(8, name=f"steps_left_{level}", reset_less=True),
                Signal(p.piece_address_bits, name=f"start_{level}", reset_less=True),
                Signal(p.smem_piece_bits, name=f"smem_{level}", reset_less=True),
            )
            for level in range(levels)
        ]

    def _count_rows(self, m: Module, walk, rows, loops, max_extra_rows, extra_rows) -> None:
        """Count the rows behind the current one that fit in its line, and those that there are."""
        lane_bits = self.params.lane_bits
        in_line = rows.rows_in_line[loops[0].start[:lane_bits]]
        in_beat = rows.rows_in_beat[loops[0].smem[:lane_bits]]
        with m.If(walk.run == walk.row_pieces):
            m.d.comb += max_extra_rows.eq(Mux(in_line < in_beat, in_line, in_beat))
        rows_left_in_walk = Signal.like(loops[0].steps_left)
        for registers, is_gathered in zip(loops, rows.loop, strict=True):
            with m.If(is_gathered):
                m.d.comb += rows_left_in_walk.eq(registers.steps_left)
        m.d.comb += extra_rows.eq(
            Mux(rows_left_in_walk < max_extra_rows, rows_left_in_walk, max_extra_rows)
        )

    def _emit_run(
        self,
        m: Module,
        state,
        on_runs,
        job,
        place: LoopRegisters,
        fire,
        last_step,
        rows,
        extra_rows,
    ) -> None:
        """Offer the run at ``place`` and, for a load, its step to the fill collector."""
        p = self.params
        walk, run = job.walk, self.run.p
        m.d.comb += [
            run.attributes.eq(walk.attributes),
            run.slot.eq(job.slot),
            run.style.eq(walk.style),
            run.start.eq(place.start),
            run.smem.eq(place.smem),
        ]
        if self.store:
            m.d.comb += [
                fire.eq((state != WalkState.IDLE) & self.run.ready),
                self.run.valid.eq(state != WalkState.IDLE),
                run.pieces.eq(Mux(on_runs, walk.run, 0)),
                run.last.eq(last_step & job.last),
                run.write_mode.eq(walk.write_mode),
            ]
            return
        extra_pieces = extra_rows * rows.smem_step
        self._emit_fill_step(m, state, job, fire, last_step, place.smem, extra_pieces)
        if p.gathers_rows:
            gather = run.gather
            rows_mask = Cat(piece < extra_pieces for piece in range(p.lanes))
            m.d.comb += [
                self.fill.p.inner_fill.eq(rows.fill & rows_mask),
                gather.extra_rows.eq(extra_rows),
                gather.row_step.eq(rows.row_step),
                gather.smem_step.eq(rows.smem_step),
            ]
        m.d.comb += [
            self.run.valid.eq(fire & on_runs),
            run.prefetch.eq(walk.prefetch),
            run.pieces.eq(walk.run),
            run.tail_bytes.eq(walk.tail_bytes),
            run.row_pieces.eq(walk.row_pieces),
            *(run[name].eq(walk[name]) for name in remote_field(p)),
        ]

    def _emit_fill_step(self, m: Module, state, job, fire, last_step, smem, extra_pieces) -> None:
        """Offer the step of a load to the fill collector, and fire when all outputs are ready.

        The run and the rows gathered behind it, ``extra_pieces``, are one run for the collector.
        """
        p = self.params
        walk, fill_step = job.walk, self.fill.p
        first_step = Signal()  # of the walk
        active = Signal()
        m.d.comb += [
            active.eq((state != WalkState.IDLE) & self.run.ready),
            fire.eq(active & (walk.prefetch | self.fill.ready)),
            self.fill.valid.eq(active & ~walk.prefetch),
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

    def _take_walk(self, m: Module, state, job, loops, row_assignments) -> None:
        """Take the next walk, if one is offered; called in the condition that ``i`` is ready."""
        new_walk = self.i.p.walk
        with m.If(self.i.valid & new_walk.has_data):
            m.d.sync += state.eq(WalkState.RUNS)
        with m.Elif(self.i.valid & (self.i.p.last if self.store else 1)):
            m.d.sync += state.eq(WalkState.BARE)
        with m.Else():
            m.d.sync += state.eq(WalkState.IDLE)
        m.d.sync += [
            job.eq(self.i.p),
            *row_assignments,
            *(registers.start.eq(new_walk.start) for registers in loops),
            *(registers.smem.eq(new_walk.smem_start) for registers in loops),
            *(
                registers.steps_left.eq(loop.last)
                for registers, loop in zip(loops, new_walk.loops, strict=True)
            ),
        ]
