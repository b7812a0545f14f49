"""Request generator: walks boxes and asks for one line a clock, loads and stores each their own."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.fill import FillCollector, FillCutter
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
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.lib.register_slice import register_slice
from hw.params import TmaParams

STRETCHES = 64
"""Stretches of fill that wait while a long one is filled and the walk goes on."""


class Lane(wiring.Component):
    """Turns each job into lines and, of loads, into the beats to fill.

    In steady state one line and one beat of fill a clock, with no clock lost between rows, runs
    or jobs; two clocks from a walk to its first line. The two outputs are independent: fill may
    overtake lines. Back-pressure stops the walk, that on fill once ``STRETCHES`` wait.

    ``jobs_waiting`` jobs wait here; ``i`` takes them while there is room, whatever the outputs do.
    A job that finds none waiting is walked at once, in a ``compact`` unit two clocks later.

    Parameters
    ----------
    params : TmaParams
    store : bool
        For stores; else for loads and prefetches.

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    line : Out(stream) of ``line_request_layout``, for stores of ``store_line_layout``
    fill : Out(stream) of ``fill_beat_layout``; of loads only
    freed : Out(1)
        The last job of a request leaves the queue.
    """

    def __init__(self, params: TmaParams, *, store: bool = False):
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

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.run_walker = walker = RunWalker(p, store=self.store)
        m.submodules.runs = runs = register_slice(p, run_layout(p, self.store))
        m.submodules.line_cutter = lines = LineCutter(p, store=self.store)
        layout = generator_job_layout(p)
        latency = 2 if p.compact else 0
        m.submodules.job_queue = queue = Queue(layout, p.jobs_waiting, latency=latency)
        connect(m, flipped(self.i), queue.i)
        jobs = queue.o
        m.d.comb += self.freed.eq(jobs.valid & jobs.ready & jobs.p.last)
        if p.im2col:
            m.submodules.im2col_walker = columns = Im2colWalker(p)
            connect(m, jobs, columns.i)
            connect(m, columns.o, walker.i)
        else:
            m.d.comb += [
                walker.i.valid.eq(jobs.valid),
                jobs.ready.eq(walker.i.ready),
                *(walker.i.p[name].eq(jobs.p[name]) for name in slot_walk_layout(p).members),
            ]
        connect(m, walker.run, runs.i)
        connect(m, runs.o, lines.i)
        connect(m, lines.o, flipped(self.line))
        if not self.store:
            m.submodules.steps = steps = register_slice(p, fill_step_layout(p))
            m.submodules.fill_collector = collector = FillCollector(p)
            m.submodules.stretches = stretches = Queue(fill_stretch_layout(p), STRETCHES)
            m.submodules.fill_cutter = beats = FillCutter(p)
            connect(m, walker.fill, steps.i)
            connect(m, steps.o, collector.i)
            connect(m, collector.o, stretches.i)
            connect(m, stretches.o, beats.i)
            connect(m, beats.o, flipped(self.fill))
        return m


class RequestGenerator(wiring.Component):
    """Turns each job into the lines to read and the beats to fill; a ``Lane`` for each stream.

    The lanes' lines take turns, and so do their beats of fill: one of each a clock, and none waits
    for more than one of each of the other lanes. A job waits at ``i`` while the queue of its lane
    is full, and all behind it.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    line : Out(stream) of ``line_request_layout``
    fill : Out(stream) of ``fill_beat_layout``
    freed : Out(streams)
        The last job of a request leaves the queue of this stream.
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
        p = self.params
        lanes = [Lane(p) for _ in range(p.streams)]
        for number, lane in enumerate(lanes):
            m.submodules[f"lane_{number}"] = lane
            m.d.comb += [
                self.freed[number].eq(lane.freed),
                lane.i.payload.eq(self.i.payload),
            ]
            with m.If(self.i.p.stream == number):
                m.d.comb += [lane.i.valid.eq(self.i.valid), self.i.ready.eq(lane.i.ready)]
        if p.streams == 1:
            connect(m, lanes[0].line, flipped(self.line))
            connect(m, lanes[0].fill, flipped(self.fill))
            return m
        m.submodules.lines = lines = Arbiter(line_request_layout(p), p.streams)
        m.submodules.fills = fills = Arbiter(fill_beat_layout(p), p.streams)
        connect(m, lines.o, flipped(self.line))
        connect(m, fills.o, flipped(self.fill))
        for number, lane in enumerate(lanes):
            fill, way = lane.fill, fills.i[number]
            connect(m, lane.line, lines.i[number])
            m.d.comb += [
                way.valid.eq(fill.valid),
                fill.ready.eq(way.ready),
                way.p.eq(fill.p),
                way.p.stream.eq(number),
            ]
        return m


class StoreGenerator(wiring.Component):
    """Turns each job of a store into the lines to write, in a ``Lane``.

    The last line of a request is marked, and is one without pieces where the end of the walk is
    outside the tensor.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    o : Out(stream) of ``store_line_layout``
    freed : Out(1)
        The last job of a request leaves the queue.
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
        m.submodules.lane_0 = lane = Lane(self.params, store=True)
        connect(m, flipped(self.i), lane.i)
        connect(m, lane.line, flipped(self.o))
        m.d.comb += self.freed.eq(lane.freed)
        return m
