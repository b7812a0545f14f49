"""Generator lane: walks the jobs of one stream and emits their lines and their fill."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.fill_collector import FillCollector
from hw.generate.fill_cutter import FillCutter
from hw.generate.im2col_walker import Im2colWalker
from hw.generate.line_cutter import LineCutter
from hw.generate.run_walker import RunWalker
from hw.layouts.jobs import generator_job_layout, slot_walk_layout
from hw.layouts.lines import (
    fill_beat_layout,
    fill_step_layout,
    fill_stretch_layout,
    line_request_layout,
    run_layout,
    store_line_layout,
)
from hw.lib.queue import Queue
from hw.lib.register_slice import register_slice
from hw.params import TmaParams

MAX_STRETCHES = 64
"""Stretches of fill that can wait while a long one is cut into beats and the walk goes on."""


class GeneratorLane(wiring.Component):
    """Turns each job into lines and, for loads, into beats of fill.

    Latency: two clocks from a walk to its first line. A job that finds no other job waiting is
    walked at once, in a ``compact`` unit two clocks later. Throughput: one line and one beat of
    fill a clock, no clock lost between rows, runs or jobs. The two outputs are independent: fill
    may overtake lines.

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
    i : In(stream) of ``generator_job_layout``
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
            "i": In(stream.Signature(generator_job_layout(params))),
            "line": Out(stream.Signature(line)),
            "freed": Out(1),
        }
        if not store:
            ports["fill"] = Out(stream.Signature(fill_beat_layout(params)))
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.run_walker = walker = RunWalker(p, store=self.store)
        m.submodules.runs = runs = register_slice(p, run_layout(p, self.store))
        m.submodules.line_cutter = line_cutter = LineCutter(p, store=self.store)
        layout = generator_job_layout(p)
        latency = 2 if p.compact else 0
        m.submodules.job_queue = job_queue = Queue(layout, p.jobs_waiting, latency=latency)
        connect(m, flipped(self.i), job_queue.i)
        jobs = job_queue.o
        m.d.comb += self.freed.eq(jobs.valid & jobs.ready & jobs.p.last)
        if p.im2col:
            m.submodules.im2col_walker = im2col_walker = Im2colWalker(p)
            connect(m, jobs, im2col_walker.i)
            connect(m, im2col_walker.o, walker.i)
        else:
            m.d.comb += [
                walker.i.valid.eq(jobs.valid),
                jobs.ready.eq(walker.i.ready),
                *(walker.i.p[name].eq(jobs.p[name]) for name in slot_walk_layout(p).members),
            ]
        connect(m, walker.run, runs.i)
        connect(m, runs.o, line_cutter.i)
        connect(m, line_cutter.o, flipped(self.line))
        if not self.store:
            m.submodules.steps = steps = register_slice(p, fill_step_layout(p))
            m.submodules.fill_collector = collector = FillCollector(p)
            m.submodules.stretches = stretches = Queue(fill_stretch_layout(p), MAX_STRETCHES)
            m.submodules.fill_cutter = fill_cutter = FillCutter(p)
            connect(m, walker.fill, steps.i)
            connect(m, steps.o, collector.i)
            connect(m, collector.o, stretches.i)
            connect(m, stretches.o, fill_cutter.i)
            connect(m, fill_cutter.o, flipped(self.fill))
        return m
