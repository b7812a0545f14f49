"""Read translation: brings reads of lines and of tensor maps to their physical addresses."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.ports import (
    decode_field,
    descriptor_fill_layout,
    gnic_request_layout,
    gnic_response_layout,
)
from hw.layouts.translation import (
    PageFault,
    page_read_layout,
    paged_read_layout,
    translated_fill_layout,
    translated_response_layout,
    translation_layout,
    waiting_read_layout,
    walk_response_layout,
)
from hw.lib.arbiter import Arbiter
from hw.lib.memory import Copies, RowMemory
from hw.lib.queue import Queue
from hw.lib.register_slice import PipelineRegister
from hw.params import TmaParams


def read_ports(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the ports of a translation to the reads of a unit, and to memory."""
    request = stream.Signature(gnic_request_layout(params))
    address = stream.Signature(GLOBAL_ADDRESS_BITS)
    return {
        "gnic_request": In(request),
        "gnic_response": Out(stream.Signature(translated_response_layout(params))),
        "descriptor_request": In(address),
        "descriptor_fill": Out(stream.Signature(translated_fill_layout(params))),
        "memory_request": Out(request),
        "memory_response": In(stream.Signature(gnic_response_layout(params))),
        "memory_descriptor_request": Out(address),
        "memory_descriptor_fill": In(stream.Signature(descriptor_fill_layout(params))),
    }


class ReadTranslation(wiring.Component):
    """Gives each read the page of its entry in the TLB, and answers those whose page is absent.

    A read whose page is walked goes to a queue of ``tlb_reads_waiting``, from where it leaves when
    the walk has ended; reads behind it pass meanwhile. Of tensor maps, one at a time is translated,
    since their answers have no tag: memory and page faults give them in order.

    A read of an absent page does not get to memory. Its response, which comes between those of
    memory, has an error and the ``PageFault``, and so has the fill of a tensor map. A prefetch has
    no effect.

    Latency: two clocks for a read whose page has an entry, one for an answer. Throughput: one read
    and one answer a clock. Back-pressure: a read waits while the queue is full and its page
    is walked, too, or for the TLB. ``gnic_response`` and ``descriptor_fill`` wait as their
    receivers do.

    Parameters
    ----------
    params : TmaParams
        With ``tlb_entries``.

    Members
    -------
    gnic_request : In(stream) of ``gnic_request_layout``; virtual addresses
    gnic_response : Out(stream) of ``translated_response_layout``
    descriptor_request : In(stream) of 64 bits; virtual addresses
    descriptor_fill : Out(stream) of ``translated_fill_layout``
    memory_request : Out(stream) of ``gnic_request_layout``; physical addresses
    memory_response : In(stream) of ``gnic_response_layout``
    memory_descriptor_request : Out(stream) of 64 bits; physical addresses
    memory_descriptor_fill : In(stream) of ``descriptor_fill_layout``
    lookup, found, walked, filled, waited_for :
        See ``Tlb``.
    busy : Out; a read is under way here
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            read_ports(params)
            | {
                "lookup": Out(stream.Signature(params.page_number_bits)),
                "found": In(stream.Signature(params.tlb_entry_bits)),
                "walked": In(params.tlb_entries),
                "filled": In(stream.Signature(walk_response_layout(params), always_ready=True)),
                "waited_for": Out(params.tlb_entries),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.reads = reads = Arbiter(paged_read_layout(p), 2)
        m.submodules.waiting = waiting = Queue(
            waiting_read_layout(p), p.tlb_reads_waiting, latency=1
        )
        m.submodules.translated = translated = Queue(paged_read_layout(p), 2)
        m.submodules.absent_tags = absent_tags = Queue(p.tag_bits, 2)
        lines, maps = reads.i
        self._take_lines(m, lines)
        read = self._look_up(m, reads.o)

        # The read that waited longest goes first.
        entry = self.found.payload
        walked_waits = Signal()
        is_walked = Signal()
        has_room = Signal()
        goes = Signal()
        m.d.comb += [
            walked_waits.eq(waiting.o.valid & self.walked.bit_select(waiting.o.p.entry, 1)),
            is_walked.eq(self.walked.bit_select(entry, 1)),
            has_room.eq(translated.i.ready & absent_tags.i.ready),
            waiting.o.ready.eq(walked_waits & has_room),
            self.found.ready.eq(Mux(is_walked, ~walked_waits & has_room, waiting.i.ready)),
            goes.eq(has_room & (walked_waits | (self.found.valid & is_walked))),
            # What is offered to the queue is taken at once: its walk may end in the next clock.
            waiting.i.valid.eq(self.found.valid & ~is_walked & waiting.i.ready),
            waiting.i.p.entry.eq(entry),
            *(waiting.i.p[name].eq(read[name]) for name in page_read_layout(p).members),
        ]
        self._mark_entries(m, waiting)

        out, translation = self._translate(m, walked_waits, waiting.o.p, read)
        self._send(m, goes, out, translation, translated, absent_tags.i)
        map_busy = self._translate_maps(m, maps, goes & out.is_map, translation)
        self._answer(m, absent_tags.o)
        m.d.comb += self.busy.eq(
            waiting.o.valid | translated.o.valid | absent_tags.o.valid | map_busy
        )
        return m

    def _take_lines(self, m: Module, lines: stream.Interface) -> None:
        """Take the reads of lines."""
        request = self.gnic_request.p
        m.d.comb += [
            lines.valid.eq(self.gnic_request.valid),
            self.gnic_request.ready.eq(lines.ready),
            *(lines.p[name].eq(request[name]) for name in ("tag", "prefetch", "attributes")),
            Cat(lines.p.line, lines.p.page).eq(request.line),
        ]

    def _look_up(self, m: Module, reads: stream.Interface) -> data.View:
        """Have the page of each read looked up; return the read whose entry is at ``found``."""
        m.d.comb += [
            self.lookup.valid.eq(reads.valid),
            self.lookup.payload.eq(reads.p.page),
            reads.ready.eq(self.lookup.ready),
        ]
        layout = page_read_layout(self.params)
        read = Signal(layout, reset_less=True)
        with m.If(self.lookup.valid & self.lookup.ready):
            m.d.sync += [read[name].eq(reads.p[name]) for name in layout.members]
        return read

    def _translate(
        self, m: Module, walked_waits: Signal, waiting: data.View, read: data.View
    ) -> tuple[data.View, data.View]:
        """Return the read that goes, and the translation of its page."""
        p = self.params
        translations = Copies(m, "translations", translation_layout(p), p.tlb_entries, 2)
        waiting_read, found_read = (
            memory.read_port(clocked=False) for memory in translations.memories
        )
        out = Signal(page_read_layout(p))
        translation = Signal(translation_layout(p))
        m.d.comb += [
            translations.write.en.eq(self.filled.valid),
            translations.write.addr.eq(self.filled.p.id),
            translations.write.data.eq(self.filled.p.translation),
            waiting_read.addr.eq(waiting.entry),
            found_read.addr.eq(self.found.payload),
            translation.eq(Mux(walked_waits, waiting_read.data, found_read.data)),
            *(
                out[name].eq(Mux(walked_waits, waiting[name], read[name]))
                for name in page_read_layout(p).members
            ),
        ]
        return out, translation

    def _send(
        self,
        m: Module,
        goes: Signal,
        out: data.View,
        translation: data.View,
        translated: Queue,
        absent_tags: stream.Interface,
    ) -> None:
        """Send the line that ``goes`` to memory, or its tag to those of absent pages."""
        members = page_read_layout(self.params).members
        sent = translated.o.p
        m.d.comb += [
            translated.i.valid.eq(goes & translation.present & ~out.is_map),
            *(translated.i.p[name].eq(out[name]) for name in members),
            translated.i.p.page.eq(translation.page),
            absent_tags.valid.eq(goes & ~translation.present & ~out.is_map & ~out.prefetch),
            absent_tags.payload.eq(out.tag),
            self.memory_request.valid.eq(translated.o.valid),
            translated.o.ready.eq(self.memory_request.ready),
            *(
                self.memory_request.p[name].eq(sent[name])
                for name in ("tag", "prefetch", "attributes")
            ),
            self.memory_request.p.line.eq(Cat(sent.line, sent.page)),
        ]

    def _mark_entries(self, m: Module, waiting: Queue) -> None:
        """Mark the entries for which a read waits.

        For each entry, the place of the last read that waits for it is known: with that one, none
        is left.
        """
        p = self.params
        m.submodules.last_places = last_places = RowMemory(range(waiting.depth), p.tlb_entries)
        write, read = last_places.write_port(), last_places.read_port(clocked=False)
        produce, consume = (
            Signal(range(waiting.depth), name=name) for name in ("produce", "consume")
        )
        comes = waiting.i.valid & waiting.i.ready
        leaves = waiting.o.valid & waiting.o.ready
        m.d.comb += [
            write.en.eq(comes),
            write.addr.eq(waiting.i.p.entry),
            write.data.eq(produce),
            read.addr.eq(waiting.o.p.entry),
        ]
        m.d.sync += [produce.eq(produce + comes), consume.eq(consume + leaves)]
        with m.If(leaves & (read.data == consume)):
            m.d.sync += self.waited_for.bit_select(waiting.o.p.entry, 1).eq(0)
        with m.If(comes):
            m.d.sync += self.waited_for.bit_select(waiting.i.p.entry, 1).eq(1)

    def _translate_maps(self, m: Module, maps, goes: Signal, translation) -> Signal:
        """Ask for a tensor map at a time, and give the answers of memory and page faults in order.

        The map ``goes`` with its ``translation``. Return whether one is under way.
        """
        p = self.params
        m.submodules.map_faults = faults = Queue(1, p.descriptor_cache_entries)
        offset = Signal(p.tlb_page_bits, reset_less=True)
        page = Signal(p.page_number_bits, name="map_page", reset_less=True)
        translates = Signal()
        valid = Signal(name="map_valid")
        address = self.descriptor_request.payload
        may_begin = ~translates & ~valid & faults.i.ready
        m.d.comb += [
            maps.valid.eq(self.descriptor_request.valid & may_begin),
            self.descriptor_request.ready.eq(maps.ready & may_begin),
            maps.p.is_map.eq(1),
            maps.p.page.eq(address[p.tlb_page_bits :]),
            self.memory_descriptor_request.valid.eq(valid),
            self.memory_descriptor_request.payload.eq(Cat(offset, page)),
            faults.i.valid.eq(goes),
            faults.i.payload.eq(~translation.present),
        ]
        with m.If(maps.valid & maps.ready):
            m.d.sync += [translates.eq(1), offset.eq(address)]
        with m.If(goes):
            m.d.sync += [translates.eq(0), valid.eq(translation.present), page.eq(translation.page)]
        with m.If(valid & self.memory_descriptor_request.ready):
            m.d.sync += valid.eq(0)

        # An answer of memory without a read passes, since the descriptor cache drops it.
        m.submodules.fill_register = fill_register = PipelineRegister(translated_fill_layout(p))
        connect(m, fill_register.o, flipped(self.descriptor_fill))
        fill, memory_fill = fill_register.i, self.memory_descriptor_fill
        is_fault = faults.o.valid & faults.o.payload
        m.d.comb += [
            fill.valid.eq(memory_fill.valid | is_fault),
            *(fill.p[name].eq(memory_fill.p[name]) for name in descriptor_fill_layout(p).members),
            memory_fill.ready.eq(fill.ready & ~is_fault),
            faults.o.ready.eq(fill.valid & fill.ready),
        ]
        with m.If(is_fault):
            m.d.comb += [fill.p.error.eq(1), fill.p.page.eq(PageFault.ABSENT)]
        return translates | valid

    def _answer(self, m: Module, absent: stream.Interface) -> None:
        """Answer reads of absent pages between the responses of memory, whose data passes.

        A register keeps what is offered: the data beside a page fault is any.
        """
        m.submodules.response_register = register = PipelineRegister(self.gnic_response.p.shape())
        connect(m, register.o, flipped(self.gnic_response))
        response, memory = register.i, self.memory_response
        m.d.comb += [
            response.valid.eq(memory.valid | absent.valid),
            response.p.tag.eq(Mux(absent.valid, absent.payload, memory.p.tag)),
            response.p.error.eq(memory.p.error | absent.valid),
            response.p.page.eq(Mux(absent.valid, PageFault.ABSENT, PageFault.NONE)),
            response.p.data.eq(memory.p.data),
            memory.ready.eq(response.ready & ~absent.valid),
            absent.ready.eq(response.ready),
            *(response.p[name].eq(memory.p[name]) for name in decode_field(self.params)),
        ]
