"""Generator lane: walks the jobs of one stream and emits their lines and their fill."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.fill_collector import FillCollector
from hw.generate.fill_cutter import FillCutter
from hw.generate.im2col_walker import Im2colWalker
from hw.generate.line_cutter import LineCutter
from hw.generate.odometer import Odometer
from hw.generate.row_preparation import RowPreparation
from hw.generate.run_walker import RunWalker
from hw.layouts.jobs import lane_job_layout, slot_walk_layout
from hw.layouts.lines import (
    fill_beat_layout,
    fill_stretch_layout,
    line_request_layout,
    store_line_layout,
)
from hw.lib.queue import Queue
from hw.params import TmaParams

MAX_STRETCHES = 64
"""Stretches of fill that can wait while a long one is cut into beats and the walk goes on."""


class GeneratorLane(wiring.Component):
    """Turns each job into lines and, for loads, into beats of fill.

    Latency: one clock in the queue of jobs, two in a ``compact`` unit; then those of the odometer,
    with ``im2col``, of the row preparation, for loads, and three from a walk to its first line.
    Throughput: one line and one beat of fill a clock, no clock lost between rows, runs or jobs. The
    two outputs are independent: fill may overtake lines.

    Back-pressure: ``line`` stops the walk at once, ``fill`` stops it when ``MAX_STRETCHES``
    stretches wait. Up to ``jobs_waiting`` jobs wait here; ``i`` is ready while fewer do, whatever
    the outputs do.

    Parameters
    ----------
    params : TmaParams
    store : bool
        True: for stores. False: for loads and prefetches.

    Members
    -------
    i : In(stream) of ``lane_job_layout``
    line : Out(stream) of ``line_request_layout``; for stores of ``store_line_layout``
    fill : Out(stream) of ``fill_beat_layout``; for loads only
    freed : Out(1)
        The last job of a request leaves the queue in this clock.
    """

    def __init__(self, params: TmaParams, *, store: bool = False) -> None:
        self.params = params
        self.store = store
        line = store_line_layout(params) if store else line_request_layout(params)
        ports = {
            "i": In(stream.Signature(lane_job_layout(params))),
            "line": Out(stream.Signature(line)),
            "freed": Out(1),
        }
        if not store:
            ports["fill"] = Out(stream.Signature(fill_beat_layout(params)))
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.job_queue = job_queue = Queue(
            lane_job_layout(p), p.jobs_waiting, latency=2 if p.compact else 1
        )
        m.submodules.run_walker = run_walker = RunWalker(p, store=self.store)
        m.submodules.line_cutter = line_cutter = LineCutter(p, store=self.store)
        connect(m, flipped(self.i), job_queue.i)
        walks = self._walk(m, job_queue.o)
        if p.gathers_rows and not self.store:
            m.submodules.row_preparation = row_preparation = RowPreparation(p)
            connect(m, walks, row_preparation.i)
            walks = row_preparation.o
        connect(m, walks, run_walker.i)
        connect(m, run_walker.run, line_cutter.i)
        connect(m, line_cutter.o, flipped(self.line))
        m.d.comb += self.freed.eq(job_queue.o.valid & job_queue.o.ready & job_queue.o.p.last)
        if not self.store:
            m.submodules.fill_collector = collector = FillCollector(p)
            m.submodules.stretches = stretches = Queue(fill_stretch_layout(p), MAX_STRETCHES)
            m.submodules.fill_cutter = fill_cutter = FillCutter(p)
            connect(m, run_walker.fill, collector.i)
            connect(m, collector.o, stretches.i)
            connect(m, stretches.o, fill_cutter.i)
            connect(m, fill_cutter.o, flipped(self.fill))
        return m

    def _walk(self, m: Module, jobs) -> stream.Interface:
        """Return the walks of the jobs."""
        p = self.params
        if p.im2col:
            m.submodules.columns = columns = Im2colWalker(p) if p.compact else Odometer(p)
            connect(m, jobs, columns.i)
            return columns.o
        walks = stream.Signature(slot_walk_layout(p)).create(path=("walks",))
        m.d.comb += [
            walks.valid.eq(jobs.valid),
            jobs.ready.eq(walks.ready),
            *(walks.p[name].eq(jobs.p[name]) for name in slot_walk_layout(p).members),
        ]
        return walks
