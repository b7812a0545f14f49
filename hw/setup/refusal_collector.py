"""Refusal collector: joins the refusals of tensor requests and of bulk requests."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import refusal_layout
from hw.layouts.ports import error_layout
from hw.lib.arbiter import Arbiter
from hw.params import TmaParams


class RefusalCollector(wiring.Component):
    """Joins two streams of refusals, and says which channel of the request queue gets room by it.

    Latency: none; refusals wait in front of the block. Throughput: one refusal a clock.
    Back-pressure: inputs take turns; an input is ready when its refusal is taken.

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
        for port, merged in zip((self.tensor, self.bulk), refusals.i, strict=True):
            connect(m, flipped(port), merged)
        m.d.comb += [
            self.o.valid.eq(refusals.o.valid),
            refusals.o.ready.eq(self.o.ready),
            *(self.o.p[name].eq(refusals.o.p[name]) for name in self.o.p.shape().members),
        ]
        m.d.sync += self.refused.eq((self.o.valid & self.o.ready) << refusals.o.p.channel)
        return m
