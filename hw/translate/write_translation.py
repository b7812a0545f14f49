"""Write translation: brings writes of lines to their physical addresses."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.ports import decode_field, gnic_ack_layout, gnic_write_layout
from hw.layouts.translation import (
    PageFault,
    translated_ack_layout,
    translation_layout,
    walk_response_layout,
)
from hw.lib.arbiter import Arbiter
from hw.lib.memory import RowMemory
from hw.params import TmaParams


def write_ports(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the ports of a translation to the writes of a unit, and to memory."""
    write = stream.Signature(gnic_write_layout(params))
    return {
        "gnic_write": In(write),
        "gnic_ack": Out(stream.Signature(translated_ack_layout(params))),
        "memory_write": Out(write),
        "memory_ack": In(stream.Signature(gnic_ack_layout(params))),
    }


class WriteTranslation(wiring.Component):
    """Gives each write or reduction the page of its entry in the TLB, and answers those whose page
    is absent or read-only.

    Writes keep their order: one whose page is walked holds up those behind it. A write that may not
    be done does not get to memory. Its answer has an error and the ``PageFault``.

    Latency: one clock for a write whose page has an entry, none for an answer. Throughput: one
    write and one answer a clock. Back-pressure: a write waits for the TLB, for its walk and for
    memory; ``memory_ack`` waits while ``gnic_ack`` is not taken, or takes the answer to a write
    that was not done.

    Parameters
    ----------
    params : TmaParams
        With ``tlb_entries`` and ``stores``.

    Members
    -------
    gnic_write : In(stream) of ``gnic_write_layout``; virtual addresses
    gnic_ack : Out(stream) of ``translated_ack_layout``
    memory_write : Out(stream) of ``gnic_write_layout``; physical addresses
    memory_ack : In(stream) of ``gnic_ack_layout``
    lookup, found, walked, filled :
        See ``Tlb``.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            write_ports(params)
            | {
                "lookup": Out(stream.Signature(params.page_number_bits)),
                "found": In(stream.Signature(params.tlb_entry_bits)),
                "walked": In(params.tlb_entries),
                "filled": In(stream.Signature(walk_response_layout(params), always_ready=True)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.translations = translations = RowMemory(translation_layout(p), p.tlb_entries)
        m.submodules.acks = acks = Arbiter(translated_ack_layout(p), 2)
        connect(m, acks.o, flipped(self.gnic_ack))
        fill, read = translations.write_port(), translations.read_port(clocked=False)
        write = Signal(gnic_write_layout(p), reset_less=True)
        with m.If(self.gnic_write.valid & self.gnic_write.ready):
            m.d.sync += write.eq(self.gnic_write.p)

        translation = read.data
        goes = self.found.valid & self.walked.bit_select(self.found.payload, 1)
        may_write = Signal()
        answer, refusal = acks.i
        m.d.comb += [
            self.lookup.valid.eq(self.gnic_write.valid),
            self.lookup.payload.eq(self.gnic_write.p.line[p.page_line_bits :]),
            self.gnic_write.ready.eq(self.lookup.ready),
            fill.en.eq(self.filled.valid),
            fill.addr.eq(self.filled.p.id),
            fill.data.eq(self.filled.p.translation),
            read.addr.eq(self.found.payload),
            may_write.eq(translation.present & translation.writable),
            self.memory_write.valid.eq(goes & may_write),
            self.memory_write.p.eq(write),
            self.memory_write.p.line.eq(Cat(write.line[: p.page_line_bits], translation.page)),
            refusal.valid.eq(goes & ~may_write),
            refusal.p.tag.eq(write.tag),
            refusal.p.error.eq(1),
            refusal.p.page.eq(Mux(translation.present, PageFault.READ_ONLY, PageFault.ABSENT)),
            self.found.ready.eq(goes & Mux(may_write, self.memory_write.ready, refusal.ready)),
            answer.valid.eq(self.memory_ack.valid),
            *(
                answer.p[name].eq(self.memory_ack.p[name])
                for name in ("tag", "error", *decode_field(p))
            ),
            self.memory_ack.ready.eq(answer.ready),
        ]
        return m
