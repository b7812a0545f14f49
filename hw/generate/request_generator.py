"""Request generator: turns the jobs of loads into the lines to read and the beats to fill."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.column_preparation import prepare_columns
from hw.generate.generator_lane import GeneratorLane
from hw.layouts.jobs import generator_job_layout
from hw.layouts.lines import fill_beat_layout, line_request_layout
from hw.lib.arbiter import Arbiter
from hw.params import TmaParams


class RequestGenerator(wiring.Component):
    """Turns each job of a load into lines and beats of fill, in a ``GeneratorLane`` per stream.

    Latency: that of a lane and, with ``im2col``, of the column preparation, which all lanes share.
    Throughput: one line and one beat of fill a clock. The lines of the lanes take turns, and so do
    their beats of fill: none waits for more than one of each other lane. Back-pressure: a job waits
    at ``i`` while the queue of its lane is full, and all jobs behind it wait, too.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    line : Out(stream) of ``line_request_layout``
    fill : Out(stream) of ``fill_beat_layout``
    freed : Out(streams)
        A bit for each stream: the last job of a request leaves the queue in this clock.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(generator_job_layout(params))),
                "line": Out(stream.Signature(line_request_layout(params))),
                "fill": Out(stream.Signature(fill_beat_layout(params))),
                "freed": Out(params.streams),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        lanes = [GeneratorLane(p) for _ in range(p.streams)]
        jobs = prepare_columns(m, p, flipped(self.i))
        for number, lane in enumerate(lanes):
            m.submodules[f"lane_{number}"] = lane
            m.d.comb += [
                self.freed[number].eq(lane.freed),
                lane.i.payload.eq(jobs.payload),
            ]
            with m.If(jobs.p.stream == number):
                m.d.comb += [lane.i.valid.eq(jobs.valid), jobs.ready.eq(lane.i.ready)]
        if p.streams == 1:
            connect(m, lanes[0].line, flipped(self.line))
            connect(m, lanes[0].fill, flipped(self.fill))
            return m
        m.submodules.lines = lines = Arbiter(line_request_layout(p), p.streams)
        m.submodules.fills = fills = Arbiter(fill_beat_layout(p), p.streams)
        connect(m, lines.o, flipped(self.line))
        connect(m, fills.o, flipped(self.fill))
        for number, lane in enumerate(lanes):
            arbiter_input = fills.i[number]
            connect(m, lane.line, lines.i[number])
            m.d.comb += [
                arbiter_input.valid.eq(lane.fill.valid),
                lane.fill.ready.eq(arbiter_input.ready),
                arbiter_input.p.eq(lane.fill.p),
                arbiter_input.p.stream.eq(number),
            ]
        return m
