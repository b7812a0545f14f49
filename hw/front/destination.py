"""Destination: finds the CTAs that a request writes, and the CTA whose barrier counts the bytes."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import CTA_FIELD_BITS, Operation, is_dsmem, is_load
from hw.layouts.jobs import directed_request_layout
from hw.layouts.ports import request_layout
from hw.params import TmaParams


class Destination(wiring.Component):
    """Resolves the CTA operands of a request, and checks them.

    A load goes to its issuer, to another CTA, or with ``multicast`` to all CTAs of a mask. The CTA
    that holds the barrier is the receiver; with ``.cta_group::2`` it is either CTA of the
    receiver's pair. A DSMEM request goes to another CTA or to the issuer itself, which also holds
    the barrier. The CTA operands of other requests have no meaning. A multicast load with a mask of
    0 has no receiver, which is no error.

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
        dst = request.dst_cta
        bad_mask = Signal()
        bad_dst = Signal()
        bad_holder, holder = self._check_pair(m, multicast) if p.cta_group_2 else (0, 0)
        # Without a cluster, there is no DSMEM.
        uses_dst = (loads & ~multicast) | dsmem
        beyond_cluster = dst >= p.ctas
        m.d.comb += [
            bad_mask.eq(multicast & (request.cta_mask >> p.ctas).any()),
            bad_dst.eq(uses_dst & (beyond_cluster | (dsmem if p.ctas == 1 else 0))),
            out.no_receiver.eq(multicast & (request.cta_mask == 0)),
        ]
        misdirected = out.misdirected
        m.d.comb += [
            misdirected.mask.eq(bad_mask),
            misdirected.cta.eq(bad_dst | bad_holder),
            misdirected.value.eq(Mux(bad_mask, request.cta_mask, Mux(bad_dst, dst, holder))),
        ]
        if p.ctas > 1:
            self._deliver(m, loads, dsmem, multicast)
        return m

    @property
    def _is_paired(self) -> Value:
        """1 if the barrier may be in either CTA of a pair."""
        return (self.i.p.operation == Operation.TENSOR_LOAD) & self.i.p.cta_group_2

    def _check_pair(self, m: Module, multicast: Value) -> tuple[Signal, Value]:
        """Return whether the barrier of a pair is in a wrong CTA, and the rank of that CTA."""
        p = self.params
        request = self.i.p
        holder = request.mbarrier_cta
        bad_holder = Signal()
        rank_difference = Signal(CTA_FIELD_BITS)
        if p.ctas % 2:
            # The last CTA has no peer that could hold its barrier.
            no_peer = multicast & request.cta_mask[p.ctas - 1] & holder[0]
        else:
            no_peer = Const(0, 1)
        m.d.comb += [
            rank_difference.eq(holder ^ request.dst_cta),
            bad_holder.eq(
                self._is_paired
                & ((~multicast & rank_difference[1:].any()) | (holder >= p.ctas) | no_peer)
            ),
        ]
        return bad_holder, holder

    def _deliver(self, m: Module, loads: Value, dsmem: Value, multicast: Value) -> None:
        """Assign the delivery. A load to the issuer's own CTA only is not ``remote``."""
        p = self.params
        request, delivery = self.i.p, self.o.p.delivery
        mask = Signal(p.ctas)
        m.d.comb += [
            mask.eq(Mux(multicast, request.cta_mask, 1 << request.dst_cta[: p.cta_bits])),
            delivery.mask.eq(mask),
            delivery.remote.eq((loads & (mask != 1 << self.cta_rank)) | dsmem),
        ]
        if p.cta_group_2:
            m.d.comb += [
                delivery.pair.enabled.eq(self._is_paired),
                delivery.pair.parity.eq(request.mbarrier_cta[0]),
            ]
