"""Completion port: turns the completions of loads into updates of barriers."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.barrier.tx_coalescer import TxCoalescer
from hw.layouts.barriers import (
    assign_complete_tx,
    barrier_completion_layout,
    barrier_update_layout,
)
from hw.params import TmaParams


class CompletionPort(wiring.Component):
    """Adds up completions for the same barrier, and gives each sum as a COMPLETE_TX.

    A unit of a cluster has a barrier router instead. Latency, throughput and back-pressure: those
    of ``TxCoalescer``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``barrier_completion_layout``
    o : Out(stream) of ``barrier_update_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(barrier_completion_layout(params))),
                "o": Out(stream.Signature(barrier_update_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.tx_coalescer = tx_coalescer = TxCoalescer(self.params)
        connect(m, flipped(self.i), tx_coalescer.i)
        m.d.comb += [
            self.o.valid.eq(tx_coalescer.o.valid),
            tx_coalescer.o.ready.eq(self.o.ready),
            *assign_complete_tx(self.o.p, tx_coalescer.o.p),
        ]
        return m
