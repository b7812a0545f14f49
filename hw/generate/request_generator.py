"""Request generator: turns the walks of loads into the lines to read and the beats to fill."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.generator_lane import GeneratorLane
from hw.layouts.jobs import prepared_walk_layout
from hw.layouts.lines import fill_beat_layout, line_request_layout
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.params import TmaParams


class RequestGenerator(wiring.Component):
    """Turns each walk of a load into lines and beats of fill, in a ``GeneratorLane`` per stream.

    Latency: that of a lane, for fill one clock more. Throughput: one line and one beat of fill a
    clock. The lines of the lanes take turns, and so do their beats of fill: none waits for more
    than one of each other lane. Back-pressure: that of a lane, for each stream apart.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    walk : In(stream).array(streams) of ``prepared_walk_layout``
    line : Out(stream) of ``line_request_layout``
    fill : Out(stream) of ``fill_beat_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "walk": In(stream.Signature(prepared_walk_layout(params))).array(params.streams),
                "line": Out(stream.Signature(line_request_layout(params))),
                "fill": Out(stream.Signature(fill_beat_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        lanes = [GeneratorLane(p) for _ in range(p.streams)]
        m.submodules.beats = beats = Queue(fill_beat_layout(p), 2)
        connect(m, beats.o, flipped(self.fill))
        for number, lane in enumerate(lanes):
            m.submodules[f"lane_{number}"] = lane
            connect(m, flipped(self.walk[number]), lane.i)
        if p.streams == 1:
            connect(m, lanes[0].line, flipped(self.line))
            connect(m, lanes[0].fill, beats.i)
            return m
        m.submodules.lines = lines = Arbiter(line_request_layout(p), p.streams)
        m.submodules.fills = fills = Arbiter(fill_beat_layout(p), p.streams)
        connect(m, lines.o, flipped(self.line))
        connect(m, fills.o, beats.i)
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
