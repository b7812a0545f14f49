"""Request generator: walks boxes and asks for one line a clock, loads and stores each their own."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.fill import FillCollector, FillCutter
from hw.layouts import (
    fill_beat_layout,
    fill_stretch_layout,
    generator_job_layout,
    line_request_layout,
    run_layout,
    store_line_layout,
)
from hw.line_cutter import LineCutter
from hw.params import TmaParams
from hw.queue import Queue
from hw.run_walker import RunWalker
from hw.skid_buffer import SkidBuffer

STRETCHES = 8
"""Stretches of fill that wait while a long one is filled and the walk goes on."""


class RequestGenerator(wiring.Component):
    """Turns each job into the lines to read and the beats to fill.

    In steady state one line and one beat of fill a clock, with no clock lost between rows, runs
    or jobs; two clocks from a job to its first line. The two outputs are independent: fill may
    overtake lines. Back-pressure stops the walk, that on fill once ``STRETCHES`` wait.

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
        m.submodules.runs = runs = SkidBuffer(run_layout(self.params))
        m.submodules.fill_collector = collector = FillCollector(self.params)
        m.submodules.stretches = stretches = Queue(fill_stretch_layout(self.params), STRETCHES)
        m.submodules.fill_cutter = fills = FillCutter(self.params)
        connect(m, flipped(self.i), walker.i)
        connect(m, walker.run, runs.i)
        connect(m, runs.o, lines.i)
        connect(m, walker.fill, collector.i)
        connect(m, collector.o, stretches.i)
        connect(m, stretches.o, fills.i)
        connect(m, lines.o, flipped(self.line))
        connect(m, fills.o, flipped(self.fill))
        return m


class StoreGenerator(wiring.Component):
    """Turns each job of a store into the lines to write.

    In steady state one line a clock, with no clock lost between rows, runs or jobs; two clocks
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
        m.submodules.runs = runs = SkidBuffer(run_layout(self.params, store=True))
        connect(m, flipped(self.i), walker.i)
        connect(m, walker.run, runs.i)
        connect(m, runs.o, lines.i)
        connect(m, lines.o, flipped(self.o))
        return m
