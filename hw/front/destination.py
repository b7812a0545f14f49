"""Destination: finds the CTAs that a request writes, and the CTA whose barrier counts the bytes."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import CTA_FIELD_BITS, Operation, is_dsmem, is_load
from hw.layouts.jobs import SignalTo, directed_request_layout, holder_of
from hw.layouts.ports import request_layout
from hw.params import TmaParams


class Destination(wiring.Component):
    """Resolves the CTA operands of a request, and checks them.

    A load goes to its issuer, to another CTA, or with ``multicast`` to all CTAs of a mask. The CTA
    that holds the barrier is the receiver; with ``.cta_group::2`` it is either CTA of the
    receiver's pair. A DSMEM request goes to another CTA, which also holds the barrier. The CTA
    operands of other requests have no meaning.

    Latency: none; the block is combinational. Throughput: a request a clock. Back-pressure:
    ``i.ready`` is ``o.ready``. Errors: ``o.p.misdirected`` marks illegal operands (MASK, DST_CTA);
    setup refuses the request.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    cta_rank : In(params.cta_bits)
        Rank of this SM's CTA in its cluster. Present if ``ctas`` > 1.
    i : In(stream.Signature(request_layout(params)))
    o : Out(stream.Signature(directed_request_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        ports = {
            "i": In(stream.Signature(request_layout(params))),
            "o": Out(stream.Signature(directed_request_layout(params))),
        }
        if params.ctas > 1:
            ports["cta_rank"] = In(params.cta_bits)
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        rank = self.cta_rank if p.ctas > 1 else Const(0, 1)
        request, out = self.i.p, self.o.p
        copied = (name for name in request_layout(p).members if name in out.shape().members)
        m.d.comb += [
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
            *(out[name].eq(request[name]) for name in copied),
        ]

        loads = is_load(request.operation)
        dsmem = is_dsmem(request.operation)
        multicast = loads & request.multicast
        paired = (request.operation == Operation.TENSOR_LOAD) & request.cta_group_2
        dst, holder = request.dst_cta, request.mbarrier_cta

        # The receiver holds the barrier; with a pair, either CTA of the pair.
        receiver = Signal(CTA_FIELD_BITS)
        rank_difference = Signal(CTA_FIELD_BITS)
        bad_mask = Signal()
        bad_dst = Signal()
        bad_holder = Signal()
        m.d.comb += [
            receiver.eq(Mux(multicast, rank, dst)),
            rank_difference.eq(holder ^ receiver),
            bad_mask.eq(multicast & ((request.cta_mask == 0) | (request.cta_mask >> p.ctas).any())),
            bad_dst.eq(
                (loads & ~multicast & (dst >= p.ctas)) | (dsmem & ((dst >= p.ctas) | (dst == rank)))
            ),
        ]
        if p.ctas % 2:
            # The last CTA has no peer that could hold its barrier.
            no_peer = multicast & paired & request.cta_mask[p.ctas - 1] & holder[0]
        else:
            no_peer = Const(0, 1)
        m.d.comb += bad_holder.eq(
            (loads | dsmem)
            & (
                Mux(paired, ~multicast & rank_difference[1:].any(), rank_difference.any())
                | (holder >= p.ctas)
                | no_peer
            )
        )
        misdirected = out.misdirected
        m.d.comb += [
            misdirected.mask.eq(bad_mask),
            misdirected.cta.eq(bad_dst | bad_holder),
            misdirected.value.eq(Mux(bad_mask, request.cta_mask, Mux(bad_dst, dst, holder))),
        ]
        if p.ctas > 1:
            self._deliver(m, loads, dsmem, multicast, paired)
        return m

    def _deliver(
        self, m: Module, loads: Value, dsmem: Value, multicast: Value, paired: Value
    ) -> None:
        """Assign the delivery. A load to the issuer's own CTA only is not ``remote``, and the CTA
        that holds its barrier is resolved here.
        """
        p = self.params
        request, delivery = self.i.p, self.o.p.delivery
        mask = Signal(p.ctas)
        own = Signal(p.ctas)
        signal = Signal(SignalTo)
        remote = Signal()
        m.d.comb += [
            own.eq(1 << self.cta_rank),
            mask.eq(Mux(multicast, request.cta_mask, 1 << request.dst_cta[: p.cta_bits])),
            remote.eq((loads & (mask != own)) | dsmem),
        ]
        with m.If(~multicast):
            m.d.comb += signal.eq(SignalTo.CTA)
        with m.Elif(paired):
            m.d.comb += signal.eq(SignalTo.PAIR)
        holder = request.mbarrier_cta[: p.cta_bits]
        m.d.comb += [delivery.remote.eq(remote), delivery.mask.eq(mask)]
        with m.If(remote):
            m.d.comb += [delivery.signal.eq(signal), delivery.signal_cta.eq(holder)]
        with m.Else():
            m.d.comb += [
                delivery.signal.eq(SignalTo.CTA),
                delivery.signal_cta.eq(holder_of(signal, holder, self.cta_rank)),
            ]
