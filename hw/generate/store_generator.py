"""Store generator: turns the jobs of stores into the lines to write."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.column_preparation import prepare_columns
from hw.generate.generator_lane import GeneratorLane
from hw.layouts.jobs import generator_job_layout
from hw.layouts.lines import store_line_layout
from hw.params import TmaParams


class StoreGenerator(wiring.Component):
    """Turns each job of a store into the lines to write, in one ``GeneratorLane``.

    The last line of a request is marked ``last``. It has no valid pieces if the last walk of the
    request lies outside the tensor. Latency: that of the lane and, with ``im2col``, of the column
    preparation. Throughput and back-pressure: those of the lane.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    o : Out(stream) of ``store_line_layout``
    freed : Out(1)
        The last job of a request leaves the queue in this clock.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(generator_job_layout(params))),
                "o": Out(stream.Signature(store_line_layout(params))),
                "freed": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.lane_0 = lane = GeneratorLane(self.params, store=True)
        connect(m, prepare_columns(m, self.params, flipped(self.i)), lane.i)
        connect(m, lane.line, flipped(self.o))
        m.d.comb += self.freed.eq(lane.freed)
        return m
