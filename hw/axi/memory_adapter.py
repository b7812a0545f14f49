"""Memory adapter: an AXI4 slave in front of a memory that has the ports of the GNIC."""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import connect, flipped

from hw.axi.atomic_collector import AtomicCollector
from hw.axi.burst_sender import BurstSender, response_of
from hw.axi.map_reader import MAP_BYTES
from hw.axi.port import channels, streams_of
from hw.layouts.axi import (
    WORD_BYTES,
    aw_layout,
    beats_of,
    map_id,
    place_bits,
    place_of,
    prefetch_id,
    r_layout,
    w_layout,
)
from hw.layouts.ports import gnic_ack_layout, gnic_response_layout, gnic_write_layout
from hw.lib.arbiter import Arbiter
from hw.lib.free_list import FreeList
from hw.lib.memory import RowMemory
from hw.lib.queue import Queue
from hw.lib.register_slice import PipelineRegister
from hw.params import PIECE_BYTES, TmaParams

WIDE = 3
"""AWSIZE of an element of 8 bytes."""

LINES = 2
"""Lines whose beats are sent in turn."""

MAPS = 16
"""Reads of tensor maps in flight."""

PREFETCHES = 255
"""Prefetches that wait for their answer."""


class MemoryAdapter(wiring.Component):
    """Answers ``ReadPort`` and ``WritePort`` with a memory that has the ports of the GNIC.

    It takes the accesses that these two make, and no others: it is the other end of their AXI4
    port in simulations, whose memory models have the ports of the GNIC. The memory gets
    tags of its own, as many as the unit has. The beats of ``LINES``
    lines, of a tensor map and of a prefetch are sent in turn.

    Latency: two to five clocks each way. Throughput: a beat a clock. Back-pressure: a channel waits
    for the port of the memory behind it.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits``.

    Members
    -------
    ar, r, aw, w, b :
        The channels, with the layouts of ``hw.layouts.axi``; the last three with ``stores``.
    gnic_request, gnic_response, descriptor_request, descriptor_fill, gnic_write, gnic_ack :
        As at ``Tma``; the last two with ``stores``.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        outside = {
            name: flow.flip()(stream.Signature(layout))
            for name, (flow, layout) in channels(params).items()
        }
        memory = {name: member.flip() for name, member in streams_of(params).items()}
        super().__init__(outside | memory)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.beats = beats = Arbiter(r_layout(p), LINES + 2)
        m.submodules.prefetches = prefetches = BurstSender(p, p.line_bytes)
        m.submodules.maps = maps = BurstSender(p, MAP_BYTES)
        lines = [BurstSender(p, p.line_bytes) for _ in range(LINES)]
        for number, sender in enumerate(lines):
            m.submodules[f"line_{number}"] = sender
        for sender, port in zip((prefetches, maps, *lines), beats.i, strict=True):
            connect(m, sender.o, port)
        connect(m, beats.o, flipped(self.r))
        ar = self.ar.p
        is_line = ~ar.id[-1]
        is_map = ~is_line & ~ar.id[0]
        is_prefetch = ~is_line & ar.id[0]
        map_ready = self._read_maps(m, is_map, maps.i)
        prefetch_ready = self._count_prefetches(m, is_prefetch, prefetches.i)
        tag_ready = self._send_lines(m, is_line, lines)
        may_ask = Mux(is_line, tag_ready, prefetch_ready)
        m.d.comb += [
            self.ar.ready.eq(Mux(is_map, map_ready, self.gnic_request.ready & may_ask)),
            self.gnic_request.valid.eq(self.ar.valid & ~is_map & may_ask),
            self.gnic_request.p.line.eq(ar.addr >> (p.lane_bits + 4)),
            self.gnic_request.p.prefetch.eq(is_prefetch),
            self.gnic_request.p.attributes.eq(ar.user),
        ]
        size = Mux(is_map, MAP_BYTES, p.line_bytes)
        m.d.sync += Assert(
            ~self.ar.valid | (((ar.len + 1) << ar.size) == size),
            "memory_adapter: a read of another size\n",
        )
        if p.stores:
            self._write(m)
        return m

    def _read_maps(self, m: Module, asks: Value, sender: stream.Interface) -> Value:
        """Ask for tensor maps, and send them; return whether one can be asked for."""
        p = self.params
        m.submodules.map_places = places = Queue(max(place_bits(p, MAP_BYTES), 1), MAPS)
        is_ready = self.descriptor_request.ready & places.i.ready
        m.d.comb += [
            self.descriptor_request.valid.eq(self.ar.valid & asks & places.i.ready),
            self.descriptor_request.payload.eq(self.ar.p.addr),
            places.i.valid.eq(self.descriptor_request.valid & self.descriptor_request.ready),
            places.i.payload.eq(place_of(p, self.ar.p.addr, MAP_BYTES)),
            sender.valid.eq(self.descriptor_fill.valid),
            self.descriptor_fill.ready.eq(sender.ready),
            places.o.ready.eq(sender.valid & sender.ready),
            sender.p.id.eq(map_id(p)),
            sender.p.error.eq(self.descriptor_fill.p.error),
            sender.p.decode.eq(self.descriptor_fill.p.decode),
            sender.p.data.eq(self.descriptor_fill.p.words),
            sender.p.place.eq(places.o.payload),
        ]
        return is_ready

    def _count_prefetches(self, m: Module, asks: Value, sender: stream.Interface) -> Value:
        """Answer each prefetch with any bytes; return whether one more can wait for that."""
        waiting = Signal(range(PREFETCHES + 1))
        m.d.comb += [
            sender.valid.eq(waiting != 0),
            sender.p.id.eq(prefetch_id(self.params)),
        ]
        asked = self.ar.valid & self.ar.ready & asks
        m.d.sync += waiting.eq(waiting + asked - (sender.valid & sender.ready))
        return waiting != PREFETCHES

    def _send_lines(self, m: Module, asks: Value, senders: list[BurstSender]) -> Value:
        """Send each line that the memory gives, from the first sender that is free.

        Return whether there is a tag to ask for a line.
        """
        p = self.params
        read_layout = data.StructLayout(
            {"id": p.axi_line_bits, "place": place_bits(p, p.line_bytes)}
        )
        m.submodules.tags = tags = FreeList(p.tags)
        m.submodules.reads = reads = RowMemory(read_layout, p.tags)
        write, read = reads.write_port(), reads.read_port()
        m.submodules.line_read = line = PipelineRegister(gnic_response_layout(p))
        connect(m, flipped(self.gnic_response), line.i)
        m.d.comb += [
            self.gnic_request.p.tag.eq(tags.taken.payload),
            tags.taken.ready.eq(self.ar.valid & self.ar.ready & asks),
            tags.returned.valid.eq(self.gnic_response.valid & self.gnic_response.ready),
            tags.returned.payload.eq(self.gnic_response.p.tag),
            write.en.eq(tags.taken.ready),
            write.addr.eq(tags.taken.payload),
            write.data.id.eq(self.ar.p.id),
            write.data.place.eq(place_of(p, self.ar.p.addr, p.line_bytes)),
            read.en.eq(line.i.ready),
            read.addr.eq(line.i.p.tag),
            line.o.ready.eq(Cat(sender.i.ready for sender in senders).any()),
        ]
        free = Const(1)
        for sender in senders:
            m.d.comb += [
                sender.i.valid.eq(line.o.valid & free),
                sender.i.p.id.eq(read.data.id),
                sender.i.p.error.eq(line.o.p.error),
                sender.i.p.decode.eq(line.o.p.decode),
                sender.i.p.data.eq(line.o.p.data),
                sender.i.p.place.eq(read.data.place),
            ]
            free = free & ~sender.i.ready
        return tags.taken.valid

    def _write(self, m: Module) -> None:
        """Put the beats of each write together; write the line, and pass its answer on."""
        p = self.params
        last, _ = beats_of(p, p.line_bytes)
        # Beats take as long as their address, which is sent with the first one.
        m.submodules.addresses = addresses = Queue(aw_layout(p), 4)
        m.submodules.written_beats = beats = Queue(w_layout(p), 4)
        m.submodules.line_written = line = PipelineRegister(gnic_write_layout(p))
        connect(m, flipped(self.aw), addresses.i)
        connect(m, flipped(self.w), beats.i)
        aw, w, write = addresses.o.p, beats.o.p, line.i.p
        bytes_ = Signal(p.line_bytes * 8, reset_less=True)
        strobe = Signal(p.line_bytes, reset_less=True)
        if last:
            all_bytes = Cat(bytes_, w.data)[-p.line_bytes * 8 :]
            all_strobes = Cat(strobe, w.strb)[-p.line_bytes :]
        else:
            place = place_of(p, aw.addr, p.line_bytes)
            all_bytes = w.data.word_select(place, p.line_bytes * 8)
            all_strobes = w.strb.word_select(place, p.line_bytes)
        m.d.comb += [
            line.i.valid.eq(beats.o.valid & w.last & addresses.o.valid),
            beats.o.ready.eq(addresses.o.valid & (line.i.ready | ~w.last)),
            addresses.o.ready.eq(beats.o.valid & beats.o.ready & w.last),
            write.tag.eq(aw.id),
            write.line.eq(aw.addr >> (p.lane_bits + 4)),
            write.attributes.eq(aw.user),
            write.strobe.eq(all_strobes),
            write.data.eq(all_bytes),
        ]
        is_element = aw.atop != 0 if p.axi_atomics else Const(0)
        with m.If(beats.o.valid & beats.o.ready):
            m.d.sync += [bytes_.eq(all_bytes), strobe.eq(all_strobes)]
        m.d.sync += Assert(
            ~addresses.o.valid | is_element | (((aw.len + 1) << aw.size) == p.line_bytes),
            "memory_adapter: a write of another size\n",
        )
        if p.axi_atomics:
            acks = self._combine(m, line, addresses, beats.o)
        else:
            acks = self.gnic_ack
            connect(m, line.o, flipped(self.gnic_write))
        m.d.comb += [
            self.b.valid.eq(acks.valid),
            self.b.p.id.eq(acks.p.tag),
            self.b.p.resp.eq(response_of(acks.p.error, acks.p.decode)),
            acks.ready.eq(self.b.ready),
        ]

    def _combine(
        self, m: Module, line: PipelineRegister, addresses: Queue, beats: stream.Interface
    ) -> stream.Interface:
        """Perform AtomicStores, beside the writes of lines; return all answers."""
        p = self.params
        m.submodules.atomics = atomics = AtomicCollector(p)
        m.submodules.writes = writes = Arbiter(gnic_write_layout(p), 2)
        m.submodules.acks = acks = Arbiter(gnic_ack_layout(p), 2)
        connect(m, line.o, writes.i[0])
        connect(m, atomics.o, writes.i[1])
        connect(m, writes.o, flipped(self.gnic_write))
        connect(m, atomics.b, acks.i[0])
        aw, store = addresses.o.p, atomics.i.p
        is_atomic = aw.atop != 0
        # The piece of the element is in a beat, or fills beats: its element has its place there.
        place = place_of(p, aw.addr, PIECE_BYTES)
        pieces = beats.p.data.replicate(max(PIECE_BYTES // p.axi_bytes, 1))
        m.d.comb += [
            atomics.i.valid.eq(beats.valid & addresses.o.valid & is_atomic),
            store.id.eq(aw.id),
            store.op.eq(aw.atop),
            store.wide.eq(aw.size == WIDE),
            store.word.eq(aw.addr >> (WORD_BYTES - 1).bit_length()),
            store.line.eq(line.i.p.line),
            store.attributes.eq(aw.user),
            store.data.eq(pieces.word_select(place, PIECE_BYTES * 8)),
        ]
        with m.If(is_atomic):
            m.d.comb += [
                line.i.valid.eq(0),
                beats.ready.eq(addresses.o.valid & atomics.i.ready),
            ]
        is_of_atomic = atomics.waits & (self.gnic_ack.p.tag == atomics.tag)
        for port, is_port in (atomics.ack, is_of_atomic), (acks.i[1], ~is_of_atomic):
            m.d.comb += [port.valid.eq(self.gnic_ack.valid & is_port), port.p.eq(self.gnic_ack.p)]
            with m.If(is_port):
                m.d.comb += self.gnic_ack.ready.eq(port.ready)
        return acks.o
