"""Request generator: walks boxes and asks for one line a clock, loads and stores each their own.

RunWalker     one step a clock from run to run; what lies between two runs is fill
LineCutter    a run, cut at the lines of global memory
FillCutter    a stretch of fill, cut at the beats of shared memory
"""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts import (
    fill_beat_layout,
    fill_run_layout,
    generator_job_layout,
    line_request_layout,
    remote_layout,
    run_layout,
    store_line_layout,
)
from hw.params import TmaParams
from hw.queue import Queue


class WalkState(enum.Enum, shape=2):
    """Where a walk is."""

    IDLE = 0
    RUNS = 1
    END = 2
    """A step behind the last run."""


class RunWalker(wiring.Component):
    """Steps through the runs of a walk: additions and comparisons only.

    Each step gives a run and the fill in front of it, if there is any; at the end of a chain one
    more step gives the fill behind the last run, if there is any. One step a clock, the first in
    the clock after the job is taken; the next job is taken with the last step. A walk of no runs
    inside a chain takes a clock. A step waits until both outputs have room.

    A store has no fill. Its last run is marked; where its last walk has none, a run of no pieces
    is.

    Parameters
    ----------
    params : TmaParams
    store : bool
        For stores; else for loads and prefetches.

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    run : Out(stream) of ``run_layout``
    fill : Out(stream) of ``fill_run_layout``; of loads only
    """

    def __init__(self, params: TmaParams, *, store: bool = False):
        self.params = params
        self.store = store
        ports = {
            "i": In(stream.Signature(generator_job_layout(params))),
            "run": Out(stream.Signature(run_layout(params, store))),
        }
        if not store:
            ports["fill"] = Out(stream.Signature(fill_run_layout(params)))
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.runs = runs = Queue(run_layout(p, self.store), 2)
        connect(m, runs.o, flipped(self.run))

        state = Signal(WalkState)
        on_runs = Signal()
        m.d.comb += on_runs.eq(state == WalkState.RUNS)
        job = Signal(generator_job_layout(p), reset_less=True)
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
        room = Signal()
        m.d.comb += [
            step.eq((state != WalkState.IDLE) & room),
            self.i.ready.eq((state == WalkState.IDLE) | (step & last_step)),
            runs.i.p.attributes.eq(walk.attributes),
            runs.i.p.slot.eq(job.slot),
            runs.i.p.style.eq(walk.style),
            runs.i.p.start.eq(starts[0]),
            runs.i.p.smem.eq(smems[0]),
        ]
        fresh = self.i.p.walk
        if self.store:
            has_end = self.i.p.last
            m.d.comb += [
                room.eq(runs.i.ready),
                last_step.eq(~on_runs | ~more),
                runs.i.valid.eq(step),
                runs.i.p.pieces.eq(Mux(on_runs, walk.run, 0)),
                runs.i.p.last.eq(last_step & job.last),
                runs.i.p.writing.eq(walk.writing),
            ]
        else:
            has_end = fresh.last
            fills_end = self._fill(m, room, runs.i.ready, job, state, step, last_step, smems[0])
            m.d.comb += [
                last_step.eq(~on_runs | (~more & fills_end)),
                runs.i.valid.eq(step & on_runs),
                runs.i.p.pieces.eq(walk.run),
                runs.i.p.prefetch.eq(walk.prefetch),
                runs.i.p.tail_bytes.eq(walk.tail_bytes),
                *(runs.i.p[name].eq(walk[name]) for name in remote_layout(p)),
            ]
        m.d.sync += Assert(~(step & on_runs & (walk.run == 0)), "RunWalker: a run without pieces\n")

        with m.If(self.i.ready):
            with m.If(self.i.valid & fresh.has_data):
                m.d.sync += state.eq(WalkState.RUNS)
            with m.Elif(self.i.valid & has_end):
                m.d.sync += state.eq(WalkState.END)
            with m.Else():
                m.d.sync += state.eq(WalkState.IDLE)
            m.d.sync += [
                job.eq(self.i.p),
                *(start.eq(fresh.start) for start in starts),
                *(smem.eq(fresh.smem_start) for smem in smems),
                *(steps.eq(loop.last) for steps, loop in zip(left, fresh.loops, strict=True)),
            ]
        if not self.store:
            with m.Elif(step & ~more):
                m.d.sync += state.eq(WalkState.END)
        with m.Elif(step):
            for level in range(len(left)):
                with m.If(level <= step_level):
                    m.d.sync += [starts[level].eq(next_start), smems[level].eq(next_smem)]
                with m.If(level < step_level):
                    m.d.sync += left[level].eq(walk.loops[level].last)
                with m.Elif(level == step_level):
                    m.d.sync += left[level].eq(left[level] - 1)
        return m

    def _fill(self, m: Module, room, run_room, job, state, step, last_step, smem) -> Value:
        """Give what lies between the runs; return whether none is behind the present one."""
        p = self.params
        m.submodules.fills = fills = Queue(fill_run_layout(p), 2)
        connect(m, fills.o, flipped(self.fill))
        walk, fresh = job.walk, self.i.p.walk

        # Whoever counts fill must see its end: where the last step has none, an empty stretch.
        filled_to = Signal(p.smem_piece_bits, reset_less=True)
        fill_end = Signal(p.smem_piece_bits)
        has_fill = Signal()
        any_fill = Signal()
        run_end = Signal(p.smem_piece_bits)
        ends = Signal()  # the request
        m.d.comb += [
            room.eq(run_room & fills.i.ready),
            ends.eq(last_step & job.last),
            fill_end.eq(Mux(state == WalkState.RUNS, smem, walk.smem_end)),
            has_fill.eq(fill_end != filled_to),
            run_end.eq(smem + walk.smem_extent),
            fills.i.valid.eq(step & ~walk.prefetch & (has_fill | (ends & any_fill))),
            fills.i.p.slot.eq(job.slot),
            fills.i.p.style.eq(walk.style),
            fills.i.p.smem.eq(filled_to),
            fills.i.p.pieces.eq(fill_end - filled_to),
            fills.i.p.row_mask.eq(walk.row_mask),
            fills.i.p.last.eq(ends),
            *(fills.i.p[name].eq(walk[name]) for name in remote_layout(p)),
        ]
        with m.If(step):
            m.d.sync += [filled_to.eq(run_end), any_fill.eq(~ends & (any_fill | has_fill))]
        with m.If(self.i.ready & self.i.valid):
            with m.If(~fresh.has_data & fresh.last):
                m.d.sync += any_fill.eq(1)  # a request of no pieces ends, too
            with m.If(fresh.first):
                m.d.sync += filled_to.eq(fresh.smem_begin)
        return ~walk.last | (run_end == walk.smem_end)


def modulo_3(m: Module, value, name: str) -> Signal:
    """Return ``value`` modulo 3: that of the sum of its digits to base 4, again and again."""
    most = (1 << len(value)) - 1
    while most > 6:
        digits = [value[at : at + 2] for at in range(0, len(value), 2)]
        most = 3 * len(digits)
        total = Signal(range(most + 1), name=f"{name}_up_to_{most}")
        m.d.comb += total.eq(sum(digits))
        value = total
    table = sum(number % 3 << 2 * number for number in range(most + 1))
    rest = Signal(2, name=name)
    m.d.comb += rest.eq(Const(table, 2 * (most + 1)).word_select(value, 2))
    return rest


def lane_range(first, pieces, lanes: int):
    """Return which of ``lanes`` lanes are in [first, first + pieces)."""
    end = first + pieces
    return Cat((first <= lane) & (lane < end) for lane in range(lanes))


class LineCutter(wiring.Component):
    """Cuts runs into lines of global memory, one a clock and no clock lost between runs.

    Latency one clock. ``i.ready`` follows ``o.ready`` when a run's last line is offered.

    Parameters
    ----------
    params : TmaParams
    store : bool
        For stores; else for loads and prefetches.

    Members
    -------
    i : In(stream) of ``run_layout``
    o : Out(stream) of ``line_request_layout``, for stores of ``store_line_layout``
    """

    def __init__(self, params: TmaParams, *, store: bool = False):
        self.params = params
        self.store = store
        line = store_line_layout(params) if store else line_request_layout(params)
        super().__init__(
            {"i": In(stream.Signature(run_layout(params, store))), "o": Out(stream.Signature(line))}
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        busy = Signal()
        run = Signal(run_layout(p, self.store), reset_less=True)

        first = Signal(p.lane_bits)
        room = Signal(p.lane_bits + 1)
        last = Signal()
        pieces = Signal(p.lane_bits + 1)
        line = self.o.p
        use = line if self.store else line.use
        m.d.comb += [
            first.eq(run.start[: p.lane_bits]),
            room.eq(p.lanes - first),
            last.eq(run.pieces <= room),
            pieces.eq(Mux(last, run.pieces, room)),
            self.i.ready.eq(~busy | (self.o.ready & last)),
            self.o.valid.eq(busy),
            line.attributes.eq(run.attributes),
            line.line.eq(run.start[p.lane_bits :]),
            use.slot.eq(run.slot),
            use.style.eq(run.style),
            use.origin.eq(run.smem - first),
            use.valid.eq(lane_range(first, pieces, p.lanes)),
        ]
        if self.store:
            m.d.comb += [line.last.eq(last & run.last), line.writing.eq(run.writing)]
        else:
            m.d.comb += [
                line.prefetch.eq(run.prefetch),
                use.tail_bytes.eq(run.tail_bytes),
                *(use[name].eq(run[name]) for name in remote_layout(p)),
            ]
            with m.If(last):
                m.d.comb += use.tail.eq(lane_range(first + pieces - 1, 1, p.lanes))

        with m.If(self.i.ready):
            m.d.sync += [busy.eq(self.i.valid), run.eq(self.i.p)]
        with m.Elif(self.o.ready):
            m.d.sync += [
                run.start.eq(run.start + room),
                run.smem.eq(run.smem + room),
                run.pieces.eq(run.pieces - room),
            ]
        return m


class FillCutter(wiring.Component):
    """Cuts stretches of fill into beats of shared memory, one a clock.

    Latency one clock. ``i.ready`` follows ``o.ready`` when a stretch's last beat is offered.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``fill_run_layout``
    o : Out(stream) of ``fill_beat_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(fill_run_layout(params))),
                "o": Out(stream.Signature(fill_beat_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        busy = Signal()
        run = Signal(fill_run_layout(p), reset_less=True)

        first = Signal(p.lane_bits)
        room = Signal(p.lane_bits + 1)
        last = Signal()
        pieces = Signal(p.lane_bits + 1)
        row_mask = Signal(8)  # of these 128 bytes
        in_rows = Signal(p.lanes)  # of this beat
        if p.row_mask_bits == 8:
            m.d.comb += row_mask.eq(run.row_mask)
        else:
            third = modulo_3(m, run.smem[3:], "third")
            m.d.comb += row_mask.eq(run.row_mask.word_select(third, 8))
        m.d.comb += [
            first.eq(run.smem[: p.lane_bits]),
            room.eq(p.lanes - first),
            last.eq(run.pieces <= room),
            pieces.eq(Mux(last, run.pieces, room)),
            in_rows.eq(row_mask.word_select(run.smem[p.lane_bits : 3], p.lanes)),
            self.i.ready.eq(~busy | (self.o.ready & last)),
            self.o.valid.eq(busy),
            self.o.p.slot.eq(run.slot),
            self.o.p.style.eq(run.style),
            self.o.p.beat.eq(run.smem[p.lane_bits :]),
            self.o.p.valid.eq(lane_range(first, pieces, p.lanes) & in_rows),
            self.o.p.last.eq(last & run.last),
            *(self.o.p[name].eq(run[name]) for name in remote_layout(p)),
        ]
        with m.If(self.i.ready):
            m.d.sync += [busy.eq(self.i.valid), run.eq(self.i.p)]
        with m.Elif(self.o.ready):
            m.d.sync += [run.smem.eq(run.smem + room), run.pieces.eq(run.pieces - room)]
        return m


class RequestGenerator(wiring.Component):
    """Turns each job into the lines to read and the beats to fill.

    In steady state one line and one beat of fill a clock, with no clock lost between rows, runs
    or jobs; three clocks from a job to its first line. The two outputs are independent: fill may
    overtake lines. Back-pressure on one stops the walk once its queue of two runs is full.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    line : Out(stream) of ``line_request_layout``
    fill : Out(stream) of ``fill_beat_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(generator_job_layout(params))),
                "line": Out(stream.Signature(line_request_layout(params))),
                "fill": Out(stream.Signature(fill_beat_layout(params))),
                "freed": Out(params.streams),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.freed[0].eq(self.i.valid & self.i.ready & self.i.p.last)
        m.submodules.run_walker = walker = RunWalker(self.params)
        m.submodules.line_cutter = lines = LineCutter(self.params)
        m.submodules.fill_cutter = fills = FillCutter(self.params)
        connect(m, flipped(self.i), walker.i)
        connect(m, walker.run, lines.i)
        connect(m, walker.fill, fills.i)
        connect(m, lines.o, flipped(self.line))
        connect(m, fills.o, flipped(self.fill))
        return m


class StoreGenerator(wiring.Component):
    """Turns each job of a store into the lines to write.

    In steady state one line a clock, with no clock lost between rows, runs or jobs; three clocks
    from a job to its first line. The last line of a request is marked, and is one without pieces
    where the end of the walk is outside the tensor.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    o : Out(stream) of ``store_line_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(generator_job_layout(params))),
                "o": Out(stream.Signature(store_line_layout(params))),
                "freed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.freed.eq(self.i.valid & self.i.ready & self.i.p.last)
        m.submodules.run_walker = walker = RunWalker(self.params, store=True)
        m.submodules.line_cutter = lines = LineCutter(self.params, store=True)
        connect(m, flipped(self.i), walker.i)
        connect(m, walker.run, lines.i)
        connect(m, lines.o, flipped(self.o))
        return m
