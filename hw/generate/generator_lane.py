"""Generator lane: emits the lines and the fill of the walks of one channel."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.fill_collector import FillCollector
from hw.generate.fill_cutter import FillCutter
from hw.generate.line_cutter import LineCutter
from hw.generate.run_walker import RunWalker
from hw.layouts.jobs import prepared_walk_layout
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
    """Turns each walk into lines and, for loads, into beats of fill.

    Latency: four clocks from a walk to its first line. Throughput: one line and one beat of fill a
    clock, no clock lost between rows, runs or walks. The two outputs are independent: fill may
    overtake lines.

    Back-pressure: ``line`` stops the walk at once, ``fill`` stops it when ``MAX_STRETCHES``
    stretches wait.

    Parameters
    ----------
    params : TmaParams
    store : bool
        True: for stores. False: for loads and prefetches.

    Members
    -------
    i : In(stream) of ``prepared_walk_layout``
    line : Out(stream) of ``line_request_layout``; for stores of ``store_line_layout``
    fill : Out(stream) of ``fill_beat_layout``; for loads only
    """

    def __init__(self, params: TmaParams, *, store: bool = False) -> None:
        self.params = params
        self.store = store
        line = store_line_layout(params) if store else line_request_layout(params)
        ports = {
            "i": In(stream.Signature(prepared_walk_layout(params))),
            "line": Out(stream.Signature(line)),
        }
        if not store:
            ports["fill"] = Out(stream.Signature(fill_beat_layout(params)))
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.run_walker = run_walker = RunWalker(p, store=self.store)
        m.submodules.line_cutter = line_cutter = LineCutter(p, store=self.store)
        connect(m, flipped(self.i), run_walker.i)
        connect(m, run_walker.run, line_cutter.i)
        connect(m, line_cutter.o, flipped(self.line))
        if not self.store:
            m.submodules.fill_collector = collector = FillCollector(p)
            m.submodules.stretches = stretches = Queue(fill_stretch_layout(p), MAX_STRETCHES)
            m.submodules.fill_cutter = fill_cutter = FillCutter(p)
            connect(m, run_walker.fill, collector.i)
            connect(m, collector.o, stretches.i)
            connect(m, stretches.o, fill_cutter.i)
            connect(m, fill_cutter.o, flipped(self.fill))
        return m
