"""Remote stores: ``st.async`` and ``red.async`` of the SM's threads."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.cluster import remote_store_layout
from hw.layouts.isa import DSMEM_REDUCTIONS, ErrorCode, is_reducible
from hw.layouts.ports import error_layout
from hw.params import PIECE_BYTES, TmaParams


class RemoteStore(wiring.Component):
    """Passes what threads store to other CTAs, or refuses it with an error record.

    Latency one clock; one a clock. Waits for the output that it needs.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    running : In, a bit for each CTA that runs
    i : In(stream) of ``remote_store_layout``
    o : Out(stream) of ``remote_store_layout``
    error : Out(stream) of ``error_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        store = stream.Signature(remote_store_layout(params))
        super().__init__(
            {
                "running": In(params.ctas),
                "i": In(store),
                "o": Out(store),
                "error": Out(stream.Signature(error_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        store = self.i.p
        dst, reduces = store.dst_cta, store.reduction.enabled
        if p.reductions:
            pair = store.reduction.element_type, store.reduction.op
            reduces = reduces & ~is_reducible(DSMEM_REDUCTIONS, *pair)
        rules = (
            (store.address % PIECE_BYTES, ErrorCode.SMEM_ALIGN, store.address),
            (store.address > p.smem_bytes - PIECE_BYTES, ErrorCode.SMEM_RANGE, store.address),
            (store.mbarrier > p.smem_bytes - 8, ErrorCode.SMEM_RANGE, store.mbarrier),
            (reduces, ErrorCode.RED_TYPE, store.reduction.op),
            (~self.running.bit_select(dst, 1), ErrorCode.DST_CTA, dst),
            (store.mbarrier[:3], ErrorCode.MBAR_ALIGN, store.mbarrier),
        )
        held = Signal()
        refused = Signal(reset_less=True)
        kept = Signal(remote_store_layout(p), reset_less=True)
        error = Signal(error_layout(p), reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~held | Mux(refused, self.error.ready, self.o.ready)),
            self.o.p.eq(kept),
            self.o.valid.eq(held & ~refused),
            self.error.p.eq(error),
            self.error.valid.eq(held & refused),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                held.eq(self.i.valid),
                refused.eq(Cat(broken.any() for broken, _, _ in rules).any()),
                kept.eq(store),
                error.request_id.eq(store.request_id),
            ]
            for broken, code, value in reversed(rules):
                with m.If(broken.any()):
                    m.d.sync += [error.code.eq(code), error.value.eq(value)]
        return m
