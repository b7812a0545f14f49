"""Shared-memory window: the part of shared memory that a context has."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.barrier.mbarrier_unit import BarrierMemory
from hw.layouts.barriers import BARRIER_BYTES
from hw.layouts.ports import assign_lanes, smem_read_layout, smem_write_layout
from hw.params import TmaParams


class SmemWindow(wiring.Component):
    """Moves the accesses of a context to shared memory into the window of the context.

    The window of context n begins at byte ``n * smem_bytes``. What is not in the window of the
    context is not accessed: a lane does not write, and reads nothing; the word of a barrier is 0.

    Latency: none. Throughput: that of the ports.

    Parameters
    ----------
    params : TmaParams
    context : int
        Number of the context.

    Members
    -------
    i_write, o_write : In and Out(stream) of ``smem_write_layout``
        Writes of the context, and in its window.
    i_read, o_read : In and Out(stream) of ``smem_read_layout``
        Reads of the context, and in its window; present with ``stores``.
        ``o_write`` and ``o_read`` have the beats of all contexts.
    i_barrier, o_barrier : In and Out(BarrierMemory)
        Words of barriers of the context, and in its window.
    """

    def __init__(self, params: TmaParams, context: int) -> None:
        self.params = params
        self.context = context
        (i_write, i_read), (o_write, o_read) = (
            [stream.Signature(layout(each)) for layout in (smem_write_layout, smem_read_layout)]
            for each in (params, params.of_all_contexts)
        )
        super().__init__(
            {
                "i_write": In(i_write),
                "o_write": Out(o_write),
                **({"i_read": In(i_read), "o_read": Out(o_read)} if params.stores else {}),
                "i_barrier": In(BarrierMemory()),
                "o_barrier": Out(BarrierMemory()),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        ports = [(self.i_write, self.o_write)]
        if p.stores:
            ports.append((self.i_read, self.o_read))
        beats = p.smem_bytes // p.line_bytes
        for inner, outer in ports:
            m.d.comb += [
                outer.valid.eq(inner.valid),
                inner.ready.eq(outer.ready),
                *assign_lanes(outer.p, inner.p),
            ]
            for own, lane in zip(inner.p, outer.p, strict=True):
                m.d.comb += [
                    lane.valid.eq(own.valid & (own.beat < beats)),
                    lane.beat.eq(own.beat + self.context * beats),
                ]
        words = p.smem_bytes // BARRIER_BYTES
        own, port = self.i_barrier, self.o_barrier
        was_inside = Signal()
        m.d.comb += [
            port.read_en.eq(own.read_en & (own.read_address < words)),
            port.read_address.eq(own.read_address + self.context * words),
            own.read_data.eq(Mux(was_inside, port.read_data, 0)),
            port.write_en.eq(own.write_en & (own.write_address < words)),
            port.write_address.eq(own.write_address + self.context * words),
            port.write_data.eq(own.write_data),
        ]
        with m.If(own.read_en):
            m.d.sync += was_inside.eq(port.read_en)
        return m
