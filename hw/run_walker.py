"""Run walker: steps through the runs of a walk."""

from amaranth.hdl import Assert, Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts import fill_step_layout, remote_layout, run_layout, slot_walk_layout
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
    first in the clock after the job is taken; the next job is taken with the last step. A walk of
    no runs takes a clock. A step waits until both outputs have room.

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

        # The innermost loop with steps left takes one; the loops below it begin anew.
        more = Signal()
        step_level = Signal(range(len(left)))
        next_start = Signal(p.piece_address_bits)
        next_smem = Signal(p.smem_piece_bits)
        with m.If(left[0] != 0):
            m.d.comb += [more.eq(1), step_level.eq(0)]
        for level in range(1, len(left)):
            with m.Elif(left[level] != 0):
                m.d.comb += [more.eq(1), step_level.eq(level)]
        with m.Switch(step_level):
            for level, loop in enumerate(walk.loops):
                with m.Case(level):
                    m.d.comb += [
                        next_start.eq(starts[level] + loop.global_step),
                        next_smem.eq(smems[level] + loop.smem_step),
                    ]

        step = Signal()
        last_step = Signal()
        run, fresh = self.run.p, self.i.p.walk
        m.d.comb += [
            last_step.eq(~on_runs | ~more),
            self.i.ready.eq((state == WalkState.IDLE) | (step & last_step)),
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
                run.writing.eq(walk.writing),
            ]
        else:
            self._fill(m, state, job, step, last_step, smems[0])
            m.d.comb += [
                self.run.valid.eq(step & on_runs),
                run.prefetch.eq(walk.prefetch),
                run.pieces.eq(walk.run),
                run.tail_bytes.eq(walk.tail_bytes),
                run.row_pieces.eq(walk.row_pieces),
                *(run[name].eq(walk[name]) for name in remote_layout(p)),
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
                *(start.eq(fresh.start) for start in starts),
                *(smem.eq(fresh.smem_start) for smem in smems),
                *(steps.eq(loop.last) for steps, loop in zip(left, fresh.loops, strict=True)),
            ]
        with m.Elif(step):
            for level in range(len(left)):
                with m.If(level <= step_level):
                    m.d.sync += [starts[level].eq(next_start), smems[level].eq(next_smem)]
                with m.If(level < step_level):
                    m.d.sync += left[level].eq(walk.loops[level].last)
                with m.Elif(level == step_level):
                    m.d.sync += left[level].eq(left[level] - 1)
        return m

    def _fill(self, m: Module, state, job, step, last_step, smem) -> None:
        """Tell the fill collector of each step; it takes part in whether there is one."""
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
            told.first.eq(begins & walk.first),
            told.begin.eq(walk.smem_begin),
            told.has_run.eq(state == WalkState.RUNS),
            told.start.eq(smem),
            told.extent.eq(walk.smem_extent),
            told.ends.eq(last_step & walk.last),
            told.end.eq(walk.smem_end),
            told.last.eq(last_step & job.last),
            *(told[name].eq(walk[name]) for name in remote_layout(p)),
        ]
        with m.If(self.i.ready):
            m.d.sync += begins.eq(1)
        with m.Elif(step):
            m.d.sync += begins.eq(0)
