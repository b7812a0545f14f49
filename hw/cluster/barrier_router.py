"""Barrier router: sends each barrier operation to the SM that holds the barrier."""

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
    """Sends each barrier operation of this SM to the CTA that holds the barrier.

    Completions pass the transaction coalescer first. An operation on a barrier of this SM goes to
    ``update``, where it takes turns with the operations of other CTAs; an operation on a barrier of
    another CTA goes to ``to_cluster``.

    Latency: none, the block is combinational; completions have the latency of `TxCoalescer`.
    Throughput: one operation per clock in each direction. Back-pressure: an operation that waits
    for its output holds up the commands behind it, and with ``cta_group_2`` the completions, but
    not ``from_cluster``, so SMs cannot wait for each other in a circle. Errors: an operation for a
    CTA that does not run is
    dropped, with an error record (DST_CTA). An operation that was offered at ``to_cluster`` or
    ``error`` stays there until it is taken, even if ``running`` changes.

    Parameters
    ----------
    params : TmaParams
        ``ctas`` must be above 1.

    Members
    -------
    cta_rank : In(params.cta_bits)
        Rank of this SM's CTA.
    running : In(params.ctas)
        One bit per CTA: 1 if the CTA runs.
    completion : In(stream.Signature(barrier_completion_layout(params)))
        Completions of this SM's requests, and of packets that this SM received.
    command : In(stream.Signature(barrier_message_layout(params)))
        Operations of the SM's threads.
    from_cluster : In(stream.Signature(barrier_update_layout(params)))
        Operations of other CTAs.
    to_cluster : Out(stream.Signature(barrier_message_layout(params)))
        Operations on barriers of other CTAs.
    update : Out(stream.Signature(barrier_update_layout(params)))
        Operations on barriers of this SM.
    error : Out(stream.Signature(error_layout(params)))
        Operations for CTAs that do not run.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "cta_rank": In(params.cta_bits),
                "running": In(params.ctas),
                "completion": In(stream.Signature(barrier_completion_layout(params))),
                "command": In(stream.Signature(barrier_message_layout(params))),
                "from_cluster": In(stream.Signature(barrier_update_layout(params))),
                "to_cluster": Out(stream.Signature(barrier_message_layout(params))),
                "update": Out(stream.Signature(barrier_update_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.tx_coalescer = coalescer = TxCoalescer(p)
        # Completions are for barriers of this SM, or with pairs also for those of another SM.
        message_sources, update_sources = (2, 2) if p.cta_group_2 else (1, 3)
        m.submodules.messages = messages = Arbiter(barrier_message_layout(p), message_sources)
        m.submodules.updates = updates = Arbiter(barrier_update_layout(p), update_sources)
        connect(m, flipped(self.completion), coalescer.i)
        connect(m, flipped(self.command), messages.i[0])
        connect(m, flipped(self.from_cluster), updates.i[1])
        connect(m, updates.o, flipped(self.update))
        if p.cta_group_2:
            completion = messages.i[1]
            completed = completion.p.update
            m.d.comb += completion.p.holder.eq(coalescer.o.p.holder)
        else:
            completion = updates.i[2]
            completed = completion.p
        m.d.comb += [
            completion.valid.eq(coalescer.o.valid),
            coalescer.o.ready.eq(completion.ready),
            *assign_complete_tx(completed, coalescer.o.p),
        ]

        # An operation that was offered keeps its output when its receiver stops or starts to run.
        message = messages.o
        is_local = Signal()
        message_pending = Signal()
        m.d.comb += [
            is_local.eq(message.p.holder == self.cta_rank),
            updates.i[0].payload.eq(message.p.update),
            self.to_cluster.payload.eq(message.payload),
            self.error.p.request_id.eq(message.p.update.request_id),
            self.error.p.code.eq(ErrorCode.DST_CTA),
            self.error.p.value.eq(message.p.holder),
        ]
        error_pending = Signal()
        m.d.sync += [
            message_pending.eq(self.to_cluster.valid & ~self.to_cluster.ready),
            error_pending.eq(self.error.valid & ~self.error.ready),
        ]
        with m.If(is_local):
            m.d.comb += [
                updates.i[0].valid.eq(message.valid),
                message.ready.eq(updates.i[0].ready),
            ]
        with m.Elif(
            message_pending | (~error_pending & self.running.bit_select(message.p.holder, 1))
        ):
            m.d.comb += [
                self.to_cluster.valid.eq(message.valid),
                message.ready.eq(self.to_cluster.ready),
            ]
        with m.Else():
            m.d.comb += [self.error.valid.eq(message.valid), message.ready.eq(self.error.ready)]
        return m
