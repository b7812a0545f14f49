"""Remote store: checks the ``st.async`` and ``red.async`` of the SM's threads."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.cluster import remote_store_layout
from hw.layouts.isa import ASYNC_REDUCTIONS, ErrorCode, is_reducible
from hw.layouts.ports import error_layout
from hw.params import PIECE_BYTES, TmaParams

ALIGNED_WORDS = 0b0001, 0b0010, 0b0100, 0b1000, 0b0011, 0b1100, 0b1111
"""Words of a piece that a store may write: 4, 8 or 16 bytes at a multiple of their number."""


class RemoteStore(wiring.Component):
    """Passes the remote stores of threads on, or refuses them with an error record.

    Latency: one clock. Throughput: one store per clock. Back-pressure: a store waits for the output
    that it needs, and holds up those behind it. Errors, the first that applies: SMEM_ALIGN (also
    for ``words`` that are not aligned), SMEM_RANGE, RED_TYPE (also for any reduction in a unit
    without ``reductions``), DST_CTA for a CTA that does not run, MBAR_ALIGN.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    running : In(params.ctas)
        One bit per CTA: 1 if the CTA runs.
    i : In(stream.Signature(remote_store_layout(params)))
        Stores of threads.
    o : Out(stream.Signature(remote_store_layout(params)))
        Legal stores, unchanged and in order.
    error : Out(stream.Signature(error_layout(params)))
        Errors of the refused stores, in order.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "running": In(params.ctas),
                "i": In(stream.Signature(remote_store_layout(params))),
                "o": Out(stream.Signature(remote_store_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        store = self.i.p
        dst, illegal_reduction = store.dst_cta, store.reduction.enabled
        if p.reductions:
            pair = store.reduction.element_type, store.reduction.op
            illegal_reduction = illegal_reduction & ~is_reducible(ASYNC_REDUCTIONS, *pair)
        aligned_words = Cat(store.words == words for words in ALIGNED_WORDS).any()
        rules = (
            (store.address % PIECE_BYTES, ErrorCode.SMEM_ALIGN, store.address),
            (~aligned_words, ErrorCode.SMEM_ALIGN, store.address),
            (store.address > p.smem_bytes - PIECE_BYTES, ErrorCode.SMEM_RANGE, store.address),
            (store.mbarrier > p.smem_bytes - 8, ErrorCode.SMEM_RANGE, store.mbarrier),
            (illegal_reduction, ErrorCode.RED_TYPE, store.reduction.op),
            (~self.running.bit_select(dst, 1), ErrorCode.DST_CTA, dst),
            (store.mbarrier[:3], ErrorCode.MBAR_ALIGN, store.mbarrier),
        )
        store_valid = Signal()
        is_refused = Signal(reset_less=True)
        checked_store = Signal(remote_store_layout(p), reset_less=True)
        error = Signal(error_layout(p), reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~store_valid | Mux(is_refused, self.error.ready, self.o.ready)),
            self.o.p.eq(checked_store),
            self.o.valid.eq(store_valid & ~is_refused),
            self.error.p.eq(error),
            self.error.valid.eq(store_valid & is_refused),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                store_valid.eq(self.i.valid),
                is_refused.eq(Cat(violated.any() for violated, _, _ in rules).any()),
                checked_store.eq(store),
                error.request_id.eq(store.request_id),
                error.dim.eq(0),
            ]
            for violated, code, value in reversed(rules):
                with m.If(violated.any()):
                    m.d.sync += [error.code.eq(code), error.value.eq(value)]
        return m
