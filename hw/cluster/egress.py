"""Egress: sends packets to the shared memory of other SMs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.cluster.crossbar import addressed_layout
from hw.layouts.cluster import packet_layout, remote_store_layout
from hw.layouts.isa import PIECE_WORDS, Reduction, data_style_layout
from hw.layouts.jobs import delivery_layout, opened_layout
from hw.layouts.lines import (
    absent_receiver_layout,
    fill_beat_layout,
    performed_layout,
    rotated_line_layout,
    write_line_layout,
    written_layout,
)
from hw.layouts.ports import lanes_layout, reports_field
from hw.lib.arbiter import Arbiter
from hw.lib.memory import RowMemory
from hw.lib.piece_format import fill_piece, packed_pieces, packed_words
from hw.lib.queue import Queue
from hw.params import SMEM_OFFSET_BITS, TmaParams

PACKET_FIELDS = "tx_words", "style", "beat", "boundary", "valid", "words", "data", "reports"
"""Fields that a packet takes from its item."""


class Source(enum.Enum, shape=2):
    """Source of a packet."""

    LINE = 0
    """Line of a load that writes to other CTAs."""
    FILL = 1
    """Fill of a load that writes to other CTAs."""
    DSMEM = 2
    """Line of a DSMEM request."""
    THREAD = 3
    """``st.async`` or ``red.async``."""


class Egress(wiring.Component):
    """Makes packets for other CTAs, and reports to the trackers what was sent.

    The slot of an item selects the receivers of its packet and the barrier that counts it; a remote
    store carries them. An item without valid pieces (a line that could not be read, or the empty
    end of a fill) makes no packet, but is reported.

    Order: the packets of one source stay in order; the sources take turns. Latency: one clock.
    Throughput: one packet per clock. Back-pressure: a packet waits for ``packet`` and for the
    report of its item, and holds up all items behind it. Errors: a receiver that does not run gets
    no packet; the other receivers get theirs. The absent receiver of lowest rank is reported before
    the request can end: on ``receiver_absent``, or in ``performed`` of a DSMEM request.

    Parameters
    ----------
    params : TmaParams
        ``ctas`` must be above 1.

    Members
    -------
    cta_rank : In(params.cta_bits)
        Rank of this SM's CTA.
    running : In(params.ctas)
        One bit per CTA: 1 if the CTA runs.
    load_opened : In(opened_layout(params))
        Slot that the completion tracker gives to a load.
    store_opened : In(opened_layout(params))
        Slot that the store tracker gives to a store; present with ``stores``.
    line : In(stream.Signature(rotated_line_layout(params)))
        Lines of loads that write to other CTAs.
    fill : In(stream.Signature(fill_beat_layout(params)))
        Fill of loads that write to other CTAs.
    dsmem : In(stream.Signature(write_line_layout(params)))
        Lines of DSMEM requests; present with ``stores``.
    thread : In(stream.Signature(remote_store_layout(params)))
        Remote stores of the SM's threads.
    packet : Out(stream.Signature(addressed_layout(packet_layout(params), params.ctas)))
        Packets with their receivers.
    written : Out(stream.Signature(written_layout(params)))
        Pieces of loads that were sent; the fill of a request is reported once, at its end.
    receiver_absent : Out(stream.Signature(absent_receiver_layout(params)))
        Receivers of loads that do not run.
    performed : Out(stream.Signature(performed_layout(params)))
        Ends and failures of DSMEM requests; present with ``stores``.
    """

    def __init__(self, params: TmaParams) -> None:
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

        # Items become packets. The table row of the slot has the other fields of the packet; a
        # remote store has ``request_id``, ``mbarrier``, ``dst_cta`` in its item.
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
                **reports_field(params),
            }
        )
        self._address = data.StructLayout(
            {
                "request_id": params.request_id_bits,
                "mbarrier": SMEM_OFFSET_BITS,
                "delivery": delivery_layout(params),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.items = items = Arbiter(self._item, 4 if p.stores else 3)
        self._take_line(m, items.i[0])
        self._take_fill(m, items.i[1])
        self._take_thread(m, items.i[2])
        if p.stores:
            self._take_dsmem(m, items.i[3])

        # Register one item, its table row, and the CTAs that run when it is accepted.
        item_valid = Signal()
        absence_reported = Signal()
        item = Signal(self._item, reset_less=True)
        running = Signal(p.ctas, reset_less=True)
        packet_fire = Signal()
        load_address = self._lookup(m, "loads", self.load_opened, items.o)
        address = Signal(self._address)
        m.d.comb += [items.o.ready.eq(~item_valid | packet_fire), address.eq(load_address)]
        if p.stores:
            store_address = self._lookup(m, "stores", self.store_opened, items.o)
            with m.If(item.source == Source.DSMEM):
                m.d.comb += address.eq(store_address)
        with m.If(items.o.ready):
            m.d.sync += [
                item_valid.eq(items.o.valid),
                absence_reported.eq(0),
                item.eq(items.o.p),
                running.eq(self.running),
            ]

        is_thread = item.source == Source.THREAD
        delivery = address.delivery
        absent_receivers = Signal(p.ctas)
        first_absent = Signal(p.cta_bits)
        m.d.comb += absent_receivers.eq(Mux(is_thread, 0, delivery.mask & ~running))
        for cta in reversed(range(p.ctas)):
            with m.If(absent_receivers[cta]):
                m.d.comb += first_absent.eq(cta)

        out, packet = self.packet.p, self.packet.p.payload
        mask = Mux(is_thread, 1 << item.dst_cta, delivery.mask & running)
        m.d.comb += [
            out.mask.eq(Mux(item.valid.any(), mask, 0)),
            packet.cta.eq(self.cta_rank),
            packet.request_id.eq(Mux(is_thread, item.request_id, address.request_id)),
            packet.mbarrier.eq(Mux(is_thread, item.mbarrier, address.mbarrier)),
            *(
                packet[name].eq(item[name])
                for name in packet.shape().members
                if name in PACKET_FIELDS
            ),
        ]
        if p.cta_group_2:
            m.d.comb += [
                packet.pair.enabled.eq(delivery.pair.enabled & ~is_thread),
                packet.pair.parity.eq(delivery.pair.parity),
            ]
        if p.reductions:
            m.d.comb += packet.reduction.eq(item.reduction)

        status = item_valid, absence_reported, absent_receivers, first_absent, packet_fire
        self._report(m, item, *status)
        return m

    def _lookup(self, m: Module, name: str, opened, items) -> data.View:
        """Return the table row of the item that is accepted, one clock later."""
        p = self.params
        memory = RowMemory(self._address, p.requests_in_flight)
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
        """Make items of lines."""
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
            *(item.p[name].eq(line[name]) for name in reports_field(self.params)),
            item.p.data.eq(line.data),
        ]

    def _take_fill(self, m: Module, item) -> None:
        """Make items of fill."""
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
        """Make items of remote stores."""
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
        """Make items of the lines of DSMEM requests."""
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

    def _report(
        self,
        m: Module,
        item: data.View,
        item_valid: Signal,
        absence_reported: Signal,
        absent_receivers: Signal,
        first_absent: Signal,
        packet_fire: Signal,
    ) -> None:
        """Send the packet when its absent receivers are reported and its report has a place."""
        p = self.params
        m.submodules.written_queue = written = Queue(written_layout(p), 2)
        connect(m, written.o, flipped(self.written))
        is_fill = item.source == Source.FILL
        is_load = (item.source == Source.LINE) | is_fill
        has_absent_receiver = is_load & absent_receivers.any()
        # A stream sends the fill of one request after another: one count per stream is enough.
        fill_pieces = Signal(data.ArrayLayout(p.box_piece_bits, p.streams))
        stream_pieces = fill_pieces[item.stream]
        total = Signal(p.box_piece_bits)
        can_send = Signal()
        m.d.comb += [
            self.receiver_absent.valid.eq(item_valid & has_absent_receiver & ~absence_reported),
            self.receiver_absent.p.slot.eq(item.slot),
            self.receiver_absent.p.receiver.eq(first_absent),
            can_send.eq(item_valid & (~has_absent_receiver | absence_reported) & written.i.ready),
            total.eq(item.pieces + Mux(is_fill, stream_pieces, 0)),
            written.i.valid.eq(packet_fire & is_load & (~is_fill | item.last)),
            written.i.p.slot.eq(item.slot),
            written.i.p.pieces.eq(total),
        ]
        with m.If(self.receiver_absent.valid & self.receiver_absent.ready):
            m.d.sync += absence_reported.eq(1)
        with m.If(packet_fire & is_fill):
            m.d.sync += stream_pieces.eq(Mux(item.last, 0, total))
        if p.stores:
            m.submodules.performed_queue = performed = Queue(performed_layout(p), 2)
            connect(m, performed.o, flipped(self.performed))
            is_dsmem = item.source == Source.DSMEM
            fails = absent_receivers.any()
            m.d.comb += [
                self.packet.valid.eq(can_send & performed.i.ready),
                performed.i.valid.eq(packet_fire & is_dsmem & (item.last | fails)),
                performed.i.p.slot.eq(item.slot),
                performed.i.p.failed.eq(fails),
                performed.i.p.receiver_absent.eq(fails),
                performed.i.p.line.eq(first_absent),
                performed.i.p.total_valid.eq(item.last),
            ]
        else:
            m.d.comb += self.packet.valid.eq(can_send)
        m.d.comb += packet_fire.eq(self.packet.valid & self.packet.ready)
