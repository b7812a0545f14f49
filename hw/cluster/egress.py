"""Egress: what an SM sends to the shared memory of others, packet by packet."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.cluster.crossbar import addressed_layout
from hw.layouts.cluster import packet_layout, remote_store_layout
from hw.layouts.isa import PIECE_WORDS, Reduction, data_style_layout
from hw.layouts.jobs import SignalTo, delivery_layout, opened_layout
from hw.layouts.lines import (
    absent_receiver_layout,
    fill_beat_layout,
    performed_layout,
    rotated_line_layout,
    write_line_layout,
    written_layout,
)
from hw.layouts.ports import lanes_layout
from hw.lib.arbiter import Arbiter
from hw.lib.piece_format import fill_piece, packed_pieces, packed_words
from hw.lib.queue import Queue
from hw.params import SMEM_OFFSET_BITS, TmaParams

COPIED = "tx_words", "style", "beat", "boundary", "valid", "words", "data"
"""What a packet has of its item."""


class Source(enum.Enum, shape=2):
    """What a packet comes from."""

    LINE = 0
    """Of a load that goes to other CTAs."""
    FILL = 1
    """The same, outside of the tensor."""
    DSMEM = 2
    THREAD = 3
    """``st.async`` or ``red.async``."""


class Egress(wiring.Component):
    """Addresses what goes to other CTAs, and tells the trackers when it is on its way.

    A packet a clock, one clock after it was taken; the sources take turns. Packets of a source stay
    in order. Where the packets of a request go, and which barrier counts them, is looked up by its
    slot. What has no valid piece (a line that could not be read, the empty end of a fill) goes
    nowhere, but counts.

    A receiver that does not run gets nothing: it is reported on ``receiver_absent``, or with the
    ``performed`` of a DSMEM request, before the request can end. The other receivers get theirs.

    Back-pressure: a packet waits for ``packet``, all behind it for that packet.

    Parameters
    ----------
    params : TmaParams
        With ``ctas`` above 1.

    Members
    -------
    cta_rank : In, of this SM's CTA
    running : In, a bit for each CTA that runs
    load_opened : In of ``opened_layout``, of the completion tracker
    store_opened : In of ``opened_layout``, of the store tracker
    line : In(stream) of ``rotated_line_layout``
    fill : In(stream) of ``fill_beat_layout``
    dsmem : In(stream) of ``write_line_layout``; with ``stores``, as are its slots and reports
    thread : In(stream) of ``remote_store_layout``
    packet : Out(stream) of ``addressed_layout`` of ``packet_layout``
    written : Out(stream) of ``written_layout``; pieces of loads, those of fill at its end
    receiver_absent : Out(stream) of ``absent_receiver_layout``; of loads
    performed : Out(stream) of ``performed_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        ports = {
            "cta_rank": In(params.cta_bits),
            "running": In(params.ctas),
            "load_opened": In(opened_layout(params)),
            "line": In(stream.Signature(rotated_line_layout(params))),
            "fill": In(stream.Signature(fill_beat_layout(params))),
            "thread": In(stream.Signature(remote_store_layout(params))),
            "packet": Out(stream.Signature(addressed_layout(packet_layout(params), params.ctas))),
            "written": Out(stream.Signature(written_layout(params))),
            "receiver_absent": Out(stream.Signature(absent_receiver_layout(params))),
        }
        if params.stores:
            ports |= {
                "store_opened": In(opened_layout(params)),
                "dsmem": In(stream.Signature(write_line_layout(params))),
                "performed": Out(stream.Signature(performed_layout(params))),
            }
        super().__init__(ports)

        # A packet to be: its slot says the rest, but for what a thread stores.
        self._item = data.StructLayout(
            {
                "source": Source,
                "slot": params.slot_bits,
                "last": 1,
                "pieces": params.box_piece_bits,
                "tx_words": params.lane_bits + 3,
                "request_id": params.request_id_bits,
                "mbarrier": SMEM_OFFSET_BITS,
                "dst_cta": params.cta_bits,
                **({"reduction": Reduction} if params.reductions else {}),
                "style": data_style_layout(params),
                "beat": params.smem_beat_bits,
                "boundary": params.lane_bits,
                "valid": params.lanes,
                "words": data.ArrayLayout(PIECE_WORDS, params.lanes),
                "data": lanes_layout(params),
                "stream": params.stream_bits,
            }
        )
        self._address = data.StructLayout(
            {
                "request_id": params.request_id_bits,
                "mbarrier": SMEM_OFFSET_BITS,
                "delivery": delivery_layout(params),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.items = items = Arbiter(self._item, 4 if p.stores else 3)
        self._take_line(m, items.i[0])
        self._take_fill(m, items.i[1])
        self._take_thread(m, items.i[2])
        if p.stores:
            self._take_dsmem(m, items.i[3])

        # One item, its address, and who ran as it came.
        held = Signal()
        told = Signal()  # of receivers that are gone
        item = Signal(self._item, reset_less=True)
        running = Signal(p.ctas, reset_less=True)
        send = Signal()
        of_load = self._lookup(m, "loads", self.load_opened, items.o)
        address = Signal(self._address)
        m.d.comb += [items.o.ready.eq(~held | send), address.eq(of_load)]
        if p.stores:
            of_store = self._lookup(m, "stores", self.store_opened, items.o)
            with m.If(item.source == Source.DSMEM):
                m.d.comb += address.eq(of_store)
        with m.If(items.o.ready):
            m.d.sync += [
                held.eq(items.o.valid),
                told.eq(0),
                item.eq(items.o.p),
                running.eq(self.running),
            ]

        from_thread = item.source == Source.THREAD
        delivery = address.delivery
        missing = Signal(p.ctas)
        receiver = Signal(p.cta_bits)
        m.d.comb += missing.eq(Mux(from_thread, 0, delivery.mask & ~running))
        for cta in reversed(range(p.ctas)):
            with m.If(missing[cta]):
                m.d.comb += receiver.eq(cta)

        out, packet = self.packet.p, self.packet.p.payload
        mask = Mux(from_thread, 1 << item.dst_cta, delivery.mask & running)
        m.d.comb += [
            out.mask.eq(Mux(item.valid.any(), mask, 0)),
            packet.cta.eq(self.cta_rank),
            packet.request_id.eq(Mux(from_thread, item.request_id, address.request_id)),
            packet.mbarrier.eq(Mux(from_thread, item.mbarrier, address.mbarrier)),
            packet.signal.eq(delivery.signal),
            packet.signal_cta.eq(Mux(from_thread, item.dst_cta, delivery.signal_cta)),
            *(packet[name].eq(item[name]) for name in packet.shape().members if name in COPIED),
        ]
        with m.If(from_thread):
            m.d.comb += packet.signal.eq(SignalTo.CTA)
        if p.reductions:
            m.d.comb += packet.reduction.eq(item.reduction)

        self._report(m, held, told, item, missing, receiver, send)
        return m

    def _lookup(self, m: Module, name: str, opened, items):
        """Return the address of the item that is taken, a clock later."""
        p = self.params
        memory = Memory(shape=self._address, depth=p.requests_in_flight, init=[])
        m.submodules[name] = memory
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            write.en.eq(opened.valid),
            write.addr.eq(opened.slot),
            *(write.data[field].eq(opened.transfer[field]) for field in self._address.members),
            read.en.eq(items.ready),
            read.addr.eq(items.p.slot),
        ]
        return read.data

    def _take_line(self, m: Module, item) -> None:
        line = self.line.p
        m.d.comb += [
            item.valid.eq(self.line.valid),
            self.line.ready.eq(item.ready),
            item.p.source.eq(Source.LINE),
            item.p.tx_words.eq(line.pieces * PIECE_WORDS),
            *(
                item.p[name].eq(line[name])
                for name in ("slot", "pieces", "style", "beat", "boundary", "valid", "words")
            ),
            item.p.data.eq(line.data),
        ]

    def _take_fill(self, m: Module, item) -> None:
        p = self.params
        fill = self.fill.p
        pieces = packed_pieces(p, fill.style, sum(fill.valid))
        words = packed_words(fill.style) if p.sub_byte else (1 << PIECE_WORDS) - 1
        m.d.comb += [
            item.valid.eq(self.fill.valid),
            self.fill.ready.eq(item.ready),
            item.p.source.eq(Source.FILL),
            item.p.pieces.eq(pieces),
            item.p.tx_words.eq(pieces * PIECE_WORDS),
            *(item.p[name].eq(fill[name]) for name in ("slot", "last", "style", "beat", "valid")),
            item.p.stream.eq(fill.stream),
            *(lane.eq(words) for lane in item.p.words),
            *(lane.eq(fill_piece(fill.style.fill)) for lane in item.p.data),
        ]

    def _take_thread(self, m: Module, item) -> None:
        p = self.params
        store = self.thread.p
        words = Signal(PIECE_WORDS)
        m.d.comb += [
            item.valid.eq(self.thread.valid),
            self.thread.ready.eq(item.ready),
            words.eq(store.words),
            item.p.source.eq(Source.THREAD),
            item.p.tx_words.eq(sum(words)),
            item.p.request_id.eq(store.request_id),
            item.p.mbarrier.eq(store.mbarrier),
            item.p.dst_cta.eq(store.dst_cta),
            item.p.beat.eq(store.address[4 + p.lane_bits :]),
            item.p.valid.eq(1 << store.address[4:][: p.lane_bits]),
            *(lane.eq(words) for lane in item.p.words),
            *(lane.eq(store.data) for lane in item.p.data),
        ]
        if p.reductions:
            m.d.comb += item.p.reduction.eq(store.reduction)

    def _take_dsmem(self, m: Module, item) -> None:
        line = self.dsmem.p
        m.d.comb += [
            item.valid.eq(self.dsmem.valid),
            self.dsmem.ready.eq(item.ready),
            item.p.source.eq(Source.DSMEM),
            item.p.tx_words.eq(sum(line.valid) * PIECE_WORDS),
            item.p.beat.eq(line.line),
            *(item.p[name].eq(line[name]) for name in ("slot", "last", "valid")),
            *(lane.eq(~0) for lane in item.p.words),
            item.p.data.eq(line.data),
        ]
        if self.params.reductions:
            m.d.comb += item.p.reduction.eq(line.write_mode.reduction)

    def _report(self, m: Module, held, told, item, missing, receiver, send) -> None:
        """Send the item when its receivers that are gone are told of and its report has room."""
        p = self.params
        m.submodules.written_queue = written = Queue(written_layout(p), 2)
        connect(m, written.o, flipped(self.written))
        is_fill = item.source == Source.FILL
        of_load = (item.source == Source.LINE) | is_fill
        tells = of_load & missing.any()
        filled = Signal(data.ArrayLayout(p.box_piece_bits, p.streams))  # of one request each
        of_stream = filled[item.stream]
        total = Signal(p.box_piece_bits)
        may_send = Signal()
        m.d.comb += [
            self.receiver_absent.valid.eq(held & tells & ~told),
            self.receiver_absent.p.slot.eq(item.slot),
            self.receiver_absent.p.receiver.eq(receiver),
            may_send.eq(held & (~tells | told) & written.i.ready),
            total.eq(item.pieces + Mux(is_fill, of_stream, 0)),
            written.i.valid.eq(send & of_load & (~is_fill | item.last)),
            written.i.p.slot.eq(item.slot),
            written.i.p.pieces.eq(total),
        ]
        with m.If(self.receiver_absent.valid & self.receiver_absent.ready):
            m.d.sync += told.eq(1)
        with m.If(send & is_fill):
            m.d.sync += of_stream.eq(Mux(item.last, 0, total))
        if p.stores:
            m.submodules.performed_queue = performed = Queue(performed_layout(p), 2)
            connect(m, performed.o, flipped(self.performed))
            is_dsmem = item.source == Source.DSMEM
            fails = missing.any()
            m.d.comb += [
                self.packet.valid.eq(may_send & performed.i.ready),
                performed.i.valid.eq(send & is_dsmem & (item.last | fails)),
                performed.i.p.slot.eq(item.slot),
                performed.i.p.failed.eq(fails),
                performed.i.p.receiver_absent.eq(fails),
                performed.i.p.line.eq(receiver),
                performed.i.p.total_valid.eq(item.last),
            ]
        else:
            m.d.comb += self.packet.valid.eq(may_send)
        m.d.comb += send.eq(self.packet.valid & self.packet.ready)
