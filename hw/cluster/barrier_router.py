"""Barrier router: brings each operation on a barrier to the SM that holds it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.barrier.tx_coalescer import TxCoalescer
from hw.layouts.barriers import (
    assign_complete_tx,
    barrier_completion_layout,
    barrier_message_layout,
    barrier_update_layout,
)
from hw.layouts.isa import ErrorCode
from hw.layouts.ports import error_layout
from hw.lib.arbiter import Arbiter
from hw.params import TmaParams


class BarrierRouter(wiring.Component):
    """Parts the signals of this SM by who holds the barrier, and joins those that come from others.

    Completions are coalesced first. Combinational but for that; one operation a clock each way.
    An operation whose ``out`` waits holds up those behind it, not those that come ``in``: so SMs
    cannot wait for each other in a circle. One for a CTA that does not run is dropped with an error
    record (DST_CTA).

    Parameters
    ----------
    params : TmaParams
        With ``ctas`` above 1.

    Members
    -------
    cta_rank : In, of this SM's CTA
    running : In, a bit for each CTA that runs
    completion : In(stream) of ``barrier_completion_layout``
    command : In(stream) of ``barrier_message_layout``, of the SM's threads
    arriving : In(stream) of ``barrier_update_layout``, from other CTAs
    leaving : Out(stream) of ``barrier_message_layout``, to other CTAs
    update : Out(stream) of ``barrier_update_layout``, for barriers of this SM
    error : Out(stream) of ``error_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        message = stream.Signature(barrier_message_layout(params))
        update = stream.Signature(barrier_update_layout(params))
        super().__init__(
            {
                "cta_rank": In(params.cta_bits),
                "running": In(params.ctas),
                "completion": In(stream.Signature(barrier_completion_layout(params))),
                "command": In(message),
                "arriving": In(update),
                "leaving": Out(message),
                "update": Out(update),
                "error": Out(stream.Signature(error_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.tx_coalescer = coalescer = TxCoalescer(p)
        m.submodules.messages = messages = Arbiter(barrier_message_layout(p), 2)
        m.submodules.updates = updates = Arbiter(barrier_update_layout(p), 2)
        connect(m, flipped(self.completion), coalescer.i)
        connect(m, flipped(self.command), messages.i[1])
        connect(m, flipped(self.arriving), updates.i[1])
        connect(m, updates.o, flipped(self.update))
        signal = messages.i[0]
        m.d.comb += [
            signal.valid.eq(coalescer.o.valid),
            coalescer.o.ready.eq(signal.ready),
            signal.p.holder.eq(coalescer.o.p.holder),
            *assign_complete_tx(signal.p.update, coalescer.o.p),
        ]

        # What is offered stays offered when its receiver stops, or starts.
        message = messages.o
        is_own = Signal()
        waited = Signal()
        m.d.comb += [
            is_own.eq(message.p.holder == self.cta_rank),
            updates.i[0].payload.eq(message.p.update),
            self.leaving.payload.eq(message.payload),
            self.error.p.request_id.eq(message.p.update.request_id),
            self.error.p.code.eq(ErrorCode.DST_CTA),
            self.error.p.value.eq(message.p.holder),
        ]
        refused = Signal()
        m.d.sync += [
            waited.eq(self.leaving.valid & ~self.leaving.ready),
            refused.eq(self.error.valid & ~self.error.ready),
        ]
        with m.If(is_own):
            m.d.comb += [
                updates.i[0].valid.eq(message.valid),
                message.ready.eq(updates.i[0].ready),
            ]
        with m.Elif(waited | (~refused & self.running.bit_select(message.p.holder, 1))):
            m.d.comb += [
                self.leaving.valid.eq(message.valid),
                message.ready.eq(self.leaving.ready),
            ]
        with m.Else():
            m.d.comb += [self.error.valid.eq(message.valid), message.ready.eq(self.error.ready)]
        return m
