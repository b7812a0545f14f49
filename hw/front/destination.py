"""Destination: which CTAs a request writes, and which of them signals whose barrier."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import CTA_FIELD_BITS, Operation, is_dsmem, is_load
from hw.layouts.jobs import SignalTo, directed_request_layout
from hw.layouts.ports import request_layout
from hw.params import TmaParams


def holder_of(signal, signal_cta: Value, receiver: Value) -> Value:
    """Return the CTA whose barrier counts what ``receiver`` gets; see ``SignalTo``."""
    of_pair = Cat(signal_cta[0], receiver[1:])
    to_cta = signal == SignalTo.CTA
    return Mux(to_cta, signal_cta, Mux(signal == SignalTo.PAIR, of_pair, receiver))


class Destination(wiring.Component):
    """Resolves the CTA operands of a request, and finds those that name what there is not.

    A load goes to its issuer, to another CTA, or with ``multicast`` to all of a mask; the CTA that
    holds the barrier is the receiver itself or, with ``.cta_group::2``, one of its pair. A DSMEM
    request goes to another CTA, and so does its signal. What is wrong is refused by setup, in the
    order of ``ErrorCode``. Of other requests these operands do not count.

    Combinational: ``i.ready`` is ``o.ready``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    cta_rank : In, of this SM's CTA; in a cluster
    i : In(stream) of ``request_layout``
    o : Out(stream) of ``directed_request_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        ports = {
            "i": In(stream.Signature(request_layout(params))),
            "o": Out(stream.Signature(directed_request_layout(params))),
        }
        if params.ctas > 1:
            ports["cta_rank"] = In(params.cta_bits)
        super().__init__(ports)

    def elaborate(self, platform):
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
        to_other = is_dsmem(request.operation)
        multicast = loads & request.multicast
        paired = (request.operation == Operation.TENSOR_LOAD) & request.cta_group_2
        dst, holder = request.dst_cta, request.mbarrier_cta

        # The barrier is with the receiver, or of a pair with either.
        of_receiver = Signal(CTA_FIELD_BITS)
        pair_difference = Signal(CTA_FIELD_BITS)
        mask_errs, dst_errs, holder_errs = Signal(), Signal(), Signal()
        m.d.comb += [
            of_receiver.eq(Mux(multicast, rank, dst)),
            pair_difference.eq(holder ^ of_receiver),
            mask_errs.eq(
                multicast & ((request.cta_mask == 0) | (request.cta_mask >> p.ctas).any())
            ),
            dst_errs.eq(
                (loads & ~multicast & (dst >= p.ctas))
                | (to_other & ((dst >= p.ctas) | (dst == rank)))
            ),
        ]
        if p.ctas % 2:
            # The last CTA has no peer that could be signalled.
            lonely = multicast & paired & request.cta_mask[p.ctas - 1] & holder[0]
        else:
            lonely = Const(0, 1)
        m.d.comb += holder_errs.eq(
            (loads | to_other)
            & (
                Mux(paired, ~multicast & pair_difference[1:].any(), pair_difference.any())
                | (holder >= p.ctas)
                | lonely
            )
        )
        wrong = out.misdirected
        m.d.comb += [
            wrong.mask.eq(mask_errs),
            wrong.cta.eq(dst_errs | holder_errs),
            wrong.value.eq(Mux(mask_errs, request.cta_mask, Mux(dst_errs, dst, holder))),
        ]
        if p.ctas > 1:
            self._deliver(m, loads, to_other, multicast, paired)
        return m

    def _deliver(self, m: Module, loads, to_other, multicast, paired) -> None:
        """What stays in this CTA is a plain load, whose barrier is known here."""
        p = self.params
        request, delivery = self.i.p, self.o.p.delivery
        mask = Signal(p.ctas)
        own = Signal(p.ctas)
        signal = Signal(SignalTo)
        remote = Signal()
        m.d.comb += [
            own.eq(1 << self.cta_rank),
            mask.eq(Mux(multicast, request.cta_mask, 1 << request.dst_cta[: p.cta_bits])),
            remote.eq((loads & (mask != own)) | to_other),
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
