"""Refusal collector: joins the refusals of tensor requests and of bulk requests."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import refusal_layout
from hw.layouts.ports import error_layout
from hw.lib.arbiter import Arbiter
from hw.lib.one_hot import one_hot
from hw.lib.register_slice import SingleBuffer
from hw.params import TmaParams


class RefusalCollector(wiring.Component):
    """Joins two streams of refusals, and says which channel of the request queue gets room by it.

    Latency: one clock. Throughput: one refusal every two clocks, inputs in turn. Back-pressure: a
    refusal is taken while none waits; others wait in the queues of the two setups.

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
        m.submodules.register = register = SingleBuffer(refusal)
        for i, merged in zip((self.tensor, self.bulk), refusals.i, strict=True):
            connect(m, flipped(i), merged)
        connect(m, refusals.o, register.i)
        m.d.comb += [
            self.o.valid.eq(register.o.valid),
            register.o.ready.eq(self.o.ready),
            *(self.o.p[name].eq(register.o.p[name]) for name in self.o.p.shape().members),
        ]
        leaves = self.o.valid & self.o.ready
        refused = one_hot(register.o.p.channel, leaves, self.params.channels)
        m.d.sync += self.refused.eq(refused)
        return m
