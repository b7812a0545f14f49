"""Refusal collector: joins the refusals of tensor requests and of bulk requests."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import refusal_layout
from hw.layouts.ports import error_layout
from hw.lib.arbiter import Arbiter
from hw.lib.one_hot import one_hot
from hw.lib.queue import Queue
from hw.params import TmaParams

DEPTH = 2
"""Refusals of each input that can wait. The queues also separate the inputs' ``ready`` signals."""


class RefusalCollector(wiring.Component):
    """Joins two streams of refusals, and says which channel of the request queue gets room by it.

    Latency: one clock. Throughput: one refusal a clock. Back-pressure: an input accepts while fewer
    than two of its refusals wait.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    tensor : In(stream) of ``refusal_layout``
    bulk : In(stream) of ``refusal_layout``
    o : Out(stream) of ``refusal_layout``; without ``stores``, of ``error_layout``
    refused : Out(channels)
        A request of this channel was refused: its refusal was taken from ``o`` a clock before.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        refusal = refusal_layout(params)
        outcome = refusal if params.stores else error_layout(params)
        super().__init__(
            {
                "tensor": In(stream.Signature(refusal)),
                "bulk": In(stream.Signature(refusal)),
                "o": Out(stream.Signature(outcome)),
                "refused": Out(params.channels),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        refusal = refusal_layout(self.params)
        m.submodules.refusals = refusals = Arbiter(refusal, 2)
        for name, merged in zip(("tensor", "bulk"), refusals.i, strict=True):
            m.submodules[f"{name}_queue"] = queue = Queue(refusal, DEPTH)
            connect(m, flipped(getattr(self, name)), queue.i)
            connect(m, queue.o, merged)
        m.d.comb += [
            self.o.valid.eq(refusals.o.valid),
            refusals.o.ready.eq(self.o.ready),
            *(self.o.p[name].eq(refusals.o.p[name]) for name in self.o.p.shape().members),
        ]
        leaves = self.o.valid & self.o.ready
        refused = one_hot(refusals.o.p.channel, leaves, self.params.channels)
        m.d.sync += self.refused.eq(refused)
        return m
