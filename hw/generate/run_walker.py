"""Run walker: steps through the runs of a walk."""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.generate.short_row import rows_layout, rows_of
from hw.layouts.jobs import remote_field, slot_walk_layout
from hw.layouts.lines import fill_step_layout, run_layout
from hw.params import TmaParams


class WalkState(enum.Enum, shape=2):
    """Where a walk is."""

    IDLE = 0
    RUNS = 1
    BARE = 2
    """At the only step of a walk of no runs."""


class RunWalker(wiring.Component):
    """Steps through the runs of a walk: additions and comparisons only.

    Each step gives a run, and the fill collector what it has to know of it. One step a clock, the
    first in the clock after the job is taken; the next job is taken with the last step, in a
    ``compact`` unit a clock later. A walk of no runs takes a clock. A step waits until both outputs
    have room.

    Short rows of a load that lie apart, but several in a line, are one run if the unit
    ``gathers_rows``: as many as are in the line of the first one, and find room in as many pieces
    of shared memory; in the same beat, where there is fill between them.

    A store has no fill. Its last run is marked; where its last walk has none, a run of no pieces
    is.

    Parameters
    ----------
    params : TmaParams
    store : bool
        For stores; else for loads and prefetches.

    Members
    -------
    i : In(stream) of ``slot_walk_layout``
    run : Out(stream) of ``run_layout``
    fill : Out(stream) of ``fill_step_layout``; of loads only
    """

    def __init__(self, params: TmaParams, *, store: bool = False):
        self.params = params
        self.store = store
        ports = {
            "i": In(stream.Signature(slot_walk_layout(params))),
            "run": Out(stream.Signature(run_layout(params, store))),
        }
        if not store:
            ports["fill"] = Out(stream.Signature(fill_step_layout(params)))
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        p = self.params
        state = Signal(WalkState)
        on_runs = Signal()
        m.d.comb += on_runs.eq(state == WalkState.RUNS)
        job = Signal(slot_walk_layout(p), reset_less=True)
        walk = job.walk

        # Level n: steps left in loop n, and the addresses where its current step began.
        left = [Signal(8, name=f"left_{n}", reset_less=True) for n in range(len(walk.loops))]
        starts = [
            Signal(p.piece_address_bits, name=f"start_{n}", reset_less=True)
            for n in range(len(left))
        ]
        smems = [
            Signal(p.smem_piece_bits, name=f"smem_{n}", reset_less=True) for n in range(len(left))
        ]

        rows = Signal(rows_layout(p), reset_less=True)
        most = Signal(p.lane_bits)  # rows behind this one that may share its line, and ...
        gathered = Signal(p.lane_bits)  # ... those of them that are there
        found = []
        if not self.store and p.gathers_rows:
            found = rows_of(m, p, self.i.p.walk, rows)
            self._gather(m, walk, rows, left, starts[0], smems[0], most, gathered)

        # The innermost loop with steps left takes one, or as many as rows are gathered; the loops
        # below it begin anew.
        more = Signal()
        step_level = Signal(range(len(left)))
        next_start = Signal(p.piece_address_bits)
        next_smem = Signal(p.smem_piece_bits)
        taken = Signal(p.lane_bits + 1)  # steps of that loop
        m.d.comb += taken.eq(1)
        for level, steps in reversed(list(enumerate(left))):
            with m.If(steps > Mux(rows.loop[level], most, 0)):
                m.d.comb += [more.eq(1), step_level.eq(level)]
        with m.Switch(step_level):
            for level, loop in enumerate(walk.loops):
                with m.Case(level):
                    m.d.comb += [
                        next_start.eq(starts[level] + loop.global_step),
                        next_smem.eq(smems[level] + loop.smem_step),
                    ]
                    with m.If(rows.loop[level]):
                        m.d.comb += [
                            taken.eq(gathered + 1),
                            next_start.eq(starts[level] + rows.row_step * taken),
                            next_smem.eq(smems[level] + rows.smem_step * taken),
                        ]

        step = Signal()
        last_step = Signal()
        follows = Const(not p.compact)  # the next job, at once
        run, fresh = self.run.p, self.i.p.walk
        m.d.comb += [
            last_step.eq(~on_runs | ~more),
            self.i.ready.eq((state == WalkState.IDLE) | (step & last_step & follows)),
            run.attributes.eq(walk.attributes),
            run.slot.eq(job.slot),
            run.style.eq(walk.style),
            run.start.eq(starts[0]),
            run.smem.eq(smems[0]),
        ]
        if self.store:
            m.d.comb += [
                step.eq((state != WalkState.IDLE) & self.run.ready),
                self.run.valid.eq(state != WalkState.IDLE),
                run.pieces.eq(Mux(on_runs, walk.run, 0)),
                run.last.eq(last_step & job.last),
                run.write_mode.eq(walk.write_mode),
            ]
        else:
            self._fill(m, state, job, step, last_step, smems[0], gathered * rows.smem_step)
            if p.gathers_rows:
                gather = run.gather
                of_rows = Cat(piece < gathered * rows.smem_step for piece in range(p.lanes))
                m.d.comb += [
                    self.fill.p.inner_fill.eq(rows.fill & of_rows),
                    gather.extra_rows.eq(gathered),
                    gather.row_step.eq(rows.row_step),
                    gather.smem_step.eq(rows.smem_step),
                ]
            m.d.comb += [
                self.run.valid.eq(step & on_runs),
                run.prefetch.eq(walk.prefetch),
                run.pieces.eq(walk.run),
                run.tail_bytes.eq(walk.tail_bytes),
                run.row_pieces.eq(walk.row_pieces),
                *(run[name].eq(walk[name]) for name in remote_field(p)),
            ]
        m.d.sync += Assert(~(step & on_runs & (walk.run == 0)), "RunWalker: a run without pieces\n")

        with m.If(self.i.ready):
            with m.If(self.i.valid & fresh.has_data):
                m.d.sync += state.eq(WalkState.RUNS)
            with m.Elif(self.i.valid & (self.i.p.last if self.store else 1)):
                m.d.sync += state.eq(WalkState.BARE)
            with m.Else():
                m.d.sync += state.eq(WalkState.IDLE)
            m.d.sync += [
                job.eq(self.i.p),
                *found,
                *(start.eq(fresh.start) for start in starts),
                *(smem.eq(fresh.smem_start) for smem in smems),
                *(steps.eq(loop.last) for steps, loop in zip(left, fresh.loops, strict=True)),
            ]
        with m.Elif(step):
            with m.If(last_step):
                m.d.sync += state.eq(WalkState.IDLE)
            for level in range(len(left)):
                with m.If(level <= step_level):
                    m.d.sync += [starts[level].eq(next_start), smems[level].eq(next_smem)]
                with m.If(level < step_level):
                    m.d.sync += left[level].eq(walk.loops[level].last)
                with m.Elif(level == step_level):
                    m.d.sync += left[level].eq(left[level] - taken)
        return m

    def _gather(self, m: Module, walk, rows, left, start, smem, most, gathered) -> None:
        """Find how many rows there is room for behind this one, and how many there are."""
        lane_bits = self.params.lane_bits
        in_line, in_beat = rows.rows_in_line[start[:lane_bits]], rows.rows_in_beat[smem[:lane_bits]]
        with m.If(walk.run == walk.row_pieces):
            m.d.comb += most.eq(Mux(in_line < in_beat, in_line, in_beat))
        rest = Signal.like(left[0])
        for steps, is_gathered in zip(left, rows.loop, strict=True):
            with m.If(is_gathered):
                m.d.comb += rest.eq(steps)
        m.d.comb += gathered.eq(Mux(rest < most, rest, most))

    def _fill(self, m: Module, state, job, step, last_step, smem, gathered) -> None:
        """Tell the fill collector of each step; it takes part in whether there is one. A run and
        what is ``gathered`` behind it is one.
        """
        p = self.params
        walk, told = job.walk, self.fill.p
        begins = Signal()  # the walk
        active = Signal()
        m.d.comb += [
            active.eq((state != WalkState.IDLE) & self.run.ready),
            step.eq(active & (walk.prefetch | self.fill.ready)),
            self.fill.valid.eq(active & ~walk.prefetch),
            told.slot.eq(job.slot),
            told.style.eq(walk.style),
            told.row_mask.eq(walk.row_mask),
            told.first_of_chain.eq(begins & walk.first),
            told.chain_begin.eq(walk.smem_begin),
            told.has_run.eq(state == WalkState.RUNS),
            told.start.eq(smem),
            told.extent.eq(walk.smem_extent + gathered),
            told.last_of_chain.eq(last_step & walk.last),
            told.chain_end.eq(walk.smem_end),
            told.last_of_request.eq(last_step & job.last),
            *(told[name].eq(walk[name]) for name in remote_field(p)),
        ]
        with m.If(self.i.ready):
            m.d.sync += begins.eq(1)
        with m.Elif(step):
            m.d.sync += begins.eq(0)
