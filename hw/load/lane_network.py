"""Lane network: swizzles pieces to the lanes of shared memory and writes them.

Lane ``i`` of shared memory holds piece ``i`` of every beat and takes one piece a clock, at an
address of its own. The pieces of a line belong to at most two neighbouring beats; the pieces of one
beat are a *part* of the line. With a swizzle the two parts are permuted differently and may need
the same lane. So each part has a queue in front of each lane; over a few lines every lane gets its
equal share. Fill has a third queue in front of each lane, without data.
"""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import PIECE_WORDS, Fill
from hw.layouts.lines import fill_beat_layout, rotated_line_layout, written_layout
from hw.layouts.ports import smem_write_layout
from hw.lib.oldest_first import second_goes_first
from hw.lib.permute import exchange
from hw.lib.piece_format import fill_piece, packed_pieces, packed_words
from hw.lib.queue import Queue
from hw.lib.swizzle import flipped_halves, swizzle_bits
from hw.load.ticket_list import TicketList
from hw.params import PIECE_BYTES, TmaParams

FILL_LEAD = 64
"""Clocks for which fill may go first."""


class LaneNetwork(wiring.Component):
    """Writes lines and fill to shared memory, and reports how much of each request is written.

    Latency: three clocks from ``line`` to ``smem_write``. ``written`` and ``filled`` come at least
    one clock after the write that they report. Lines are reported one by one. Fill is reported once
    for each request, when its last beat is written.

    Throughput: one line and one beat of fill a clock, as long as no lane gets more than one piece a
    clock on average. If a line and fill both need a lane, they take turns; fill goes first while
    its queue is half full, so that a box of which much is outside takes no longer than its fill.
    They take turns again when the clocks in which fill went first exceed those in which no lane was
    needed by both by ``FILL_LEAD``. Back-pressure: a line or a beat of fill waits while a queue
    that it may need is full.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    line : In(stream) of ``rotated_line_layout``
    fill : In(stream) of ``fill_beat_layout``
    smem_write : Out(stream) of ``smem_write_layout``
    written : Out(stream) of ``written_layout``; pieces of lines
    filled : Out(stream) of ``written_layout``; pieces of fill
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "line": In(stream.Signature(rotated_line_layout(params))),
                "fill": In(stream.Signature(fill_beat_layout(params))),
                "smem_write": Out(stream.Signature(smem_write_layout(params))),
                "written": Out(stream.Signature(written_layout(params))),
                "filled": Out(stream.Signature(written_layout(params))),
            }
        )

        depth = 2 * params.lane_depth
        self._fill_count = data.StructLayout(
            {"count": written_layout(params), "last": 1, "stream": params.stream_bits}
        )
        self._lines = TicketList(written_layout(params), depth)
        self._fills = TicketList(self._fill_count, depth)
        position = {"ticket": self._lines.ticket.shape(), "beat": params.smem_beat_bits}
        masks = {"words": PIECE_WORDS}
        line_masks = masks if params.word_masks else {}
        fill_masks = masks if params.sub_byte else {}
        self._line_piece = data.StructLayout({**position, **line_masks, "data": PIECE_BYTES * 8})
        self._fill_piece = data.StructLayout({**position, **fill_masks, "fill": Fill})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.lines = self._lines
        m.submodules.fills = self._fills
        pop = Signal()
        line_queues = self._queue_lines(m)
        fill_queues = self._queue_fill(m)
        in_output = self._write(m, pop, line_queues, fill_queues)
        self._report(m, pop, line_queues, fill_queues)

        all_parts = [queue for queues in line_queues for queue in queues]
        waiting = in_output.valid & ~self.smem_write.ready
        for name, tickets, queues, lanes in (
            ("line", self._lines, all_parts, in_output.lanes & ~in_output.fills),
            ("fill", self._fills, fill_queues, in_output.lanes & in_output.fills),
        ):
            self._assert_written(m, name, tickets, queues, in_output, waiting & lanes)
        return m

    def _assert_written(self, m: Module, name, tickets, queues, in_output, lanes) -> None:
        """Assert, in the clock after an entry was reported, that all of its pieces are written.

        No queue may have its ticket at the head, and none of ``lanes`` of the output register.
        """
        counted = Signal(name=f"{name}_counted")
        ticket = Signal.like(tickets.oldest, name=f"{name}_counted_ticket", reset_less=True)
        remains = Cat(
            *(queue.o.valid & (queue.o.p.ticket == ticket) for queue in queues),
            *(lanes[lane] & (in_output.tickets[lane] == ticket) for lane in range(len(lanes))),
        ).any()
        m.d.sync += [
            counted.eq(tickets.o.valid & tickets.o.ready),
            ticket.eq(tickets.oldest),
            Assert(
                ~counted | ~remains, f"lane_network: a {name} is reported before it is written\n"
            ),
        ]

    def _lane(self, piece: data.StructLayout) -> Queue:
        """Return a queue of pieces in front of a lane. The tickets decide which part is next."""
        parts = [piece["ticket"].width] if self.params.lanes > 1 else []
        return Queue(piece, self.params.lane_depth, latency=1, parts=parts)

    def _has_room(self, m: Module, name: str, tickets: TicketList, queues: list[Queue]) -> Signal:
        """Return, from a register, whether all queues have room for what comes in this clock; there
        is then room for what comes in the next clock, too.
        """
        has_room = Signal(name=f"{name}_has_room")
        m.d.sync += has_room.eq(
            Cat(queue.level < queue.depth - 1 for queue in (*queues, tickets.queue)).all()
        )
        return has_room

    def _queue_lines(self, m: Module) -> list[list[Queue]]:
        """Swizzle both parts of a line and queue their pieces. A line of one piece has one part.

        Return, for each part, the queues of all lanes.
        """
        p = self.params
        line = self.line.p
        tickets = self._lines
        push = Signal()
        parts = []
        for part in range(min(2, p.lanes)):
            beat = line.next_beat if part else line.beat
            bits = swizzle_bits(m, p, line.style, beat, f"swizzle_{part}")
            wanted = [
                Cat(
                    flipped_halves(p, line.style, beat, line.data[lane]),
                    flipped_halves(p, line.style, beat, line.words[lane])
                    if p.word_masks
                    else Const(0, 0),
                    line.valid[lane] & ((lane < line.boundary) == part),
                )
                for lane in range(p.lanes)
            ]
            swizzled = exchange(m, wanted, bits[: p.lane_bits], f"part_{part}")
            parts.append([])
            for lane, wide in enumerate(swizzled):
                queue = self._lane(self._line_piece)
                m.submodules[f"lane_{lane}_part_{part}"] = queue
                entry = Signal(self._line_piece, name=f"entry_{lane}_{part}")
                m.d.comb += [
                    entry.ticket.eq(tickets.ticket),
                    entry.beat.eq(beat ^ bits[p.lane_bits :]),
                    entry.data.eq(wide[: PIECE_BYTES * 8]),
                    queue.i.payload.eq(entry),
                    queue.i.valid.eq(push & wide[-1]),
                ]
                if p.word_masks:
                    m.d.comb += entry.words.eq(wide[PIECE_BYTES * 8 : -1])
                parts[part].append(queue)
        all_parts = [queue for queues in parts for queue in queues]
        m.d.comb += [
            self.line.ready.eq(self._has_room(m, "line", tickets, all_parts)),
            push.eq(self.line.valid & self.line.ready),
            tickets.i.valid.eq(push),
            tickets.i.p.slot.eq(line.slot),
            tickets.i.p.pieces.eq(line.pieces),
            *([tickets.i.p.receipt.eq(line.receipt)] if p.ctas > 1 else ()),
        ]
        return parts

    def _queue_fill(self, m: Module) -> list[Queue]:
        """Swizzle the mask of a beat of fill and queue it; return a queue for each lane."""
        p = self.params
        fill = self.fill.p
        tickets = self._fills
        push = Signal()
        bits = swizzle_bits(m, p, fill.style, fill.beat, "swizzle_fill")
        swizzled = exchange(m, list(fill.valid), bits[: p.lane_bits], "fill")
        queues = []
        for lane, wanted in enumerate(swizzled):
            queue = self._lane(self._fill_piece)
            m.submodules[f"lane_{lane}_fill"] = queue
            entry = Signal(self._fill_piece, name=f"entry_{lane}_fill")
            m.d.comb += [
                entry.ticket.eq(tickets.ticket),
                entry.beat.eq(fill.beat ^ bits[p.lane_bits :]),
                entry.fill.eq(fill.style.fill),
                queue.i.payload.eq(entry),
                queue.i.valid.eq(push & wanted),
            ]
            if p.sub_byte:
                words = packed_words(fill.style)
                m.d.comb += entry.words.eq(flipped_halves(p, fill.style, fill.beat, words))
            queues.append(queue)
        m.d.comb += [
            self.fill.ready.eq(self._has_room(m, "fill", tickets, queues)),
            push.eq(self.fill.valid & self.fill.ready),
            tickets.i.valid.eq(push),
            tickets.i.p.count.slot.eq(fill.slot),
            tickets.i.p.count.pieces.eq(packed_pieces(p, fill.style, sum(fill.valid))),
            tickets.i.p.last.eq(fill.last),
            tickets.i.p.stream.eq(fill.stream),
        ]
        return queues

    def _write(self, m: Module, pop, line_queues, fill_queues) -> Signal:
        """Move a piece of each lane to the output register in each clock with ``pop``.

        Return what is in the output register: the lanes that it writes, those that it fills, and
        the ticket of each.
        """
        p = self.params
        output_valid = Signal()
        beat = Signal(smem_write_layout(p), reset_less=True)
        writes = Signal(p.lanes)
        tickets = data.ArrayLayout(len(self._lines.oldest), p.lanes)
        in_output = Signal(
            data.StructLayout({"valid": 1, "lanes": p.lanes, "fills": p.lanes, "tickets": tickets})
        )
        m.d.comb += [
            in_output.valid.eq(output_valid),
            in_output.lanes.eq(Cat(beat[lane].valid for lane in range(p.lanes))),
            pop.eq(~output_valid | self.smem_write.ready),
            self.smem_write.valid.eq(output_valid),
            self.smem_write.p.eq(beat),
        ]
        contends = Signal(p.lanes)  # lanes that both a line and fill need
        held_up = Signal(p.lanes)  # those of them in which fill goes
        with m.If(pop):
            m.d.sync += output_valid.eq(writes.any())
            takes_turns = self._limit_lead(m, contends, held_up)
        for lane in range(p.lanes):
            parts = [queues[lane] for queues in line_queues]
            heads = [queue.o.p for queue in parts]
            fill_queue = fill_queues[lane]
            fill_head = fill_queue.o.p

            # Of the two parts, the one of the older line goes first.
            second = Signal(name=f"second_{lane}")
            fills = Signal(name=f"fills_{lane}")
            filled_last = Signal(name=f"filled_last_{lane}")
            may_repeat = Signal(name=f"may_repeat_{lane}")  # fill may go twice in a row
            ticket = Signal.like(self._lines.oldest, name=f"ticket_{lane}", reset_less=True)
            m.d.comb += [in_output.fills[lane].eq(filled_last), in_output.tickets[lane].eq(ticket)]
            has_line = Cat(queue.o.valid for queue in parts).any()
            m.d.comb += [
                second.eq(
                    second_goes_first(
                        [queue.o.valid for queue in parts],
                        [head.ticket for head in heads],
                    )
                    if len(parts) > 1
                    else 0
                ),
                may_repeat.eq((fill_queue.level >= p.lane_depth // 2) & ~takes_turns),
                fills.eq(fill_queue.o.valid & ~(has_line & filled_last & ~may_repeat)),
                contends[lane].eq(has_line & fill_queue.o.valid),
                held_up[lane].eq(has_line & fills),
                *(
                    queue.o.ready.eq(pop & ~fills & (second == part))
                    for part, queue in enumerate(parts)
                ),
                fill_queue.o.ready.eq(pop & fills),
                writes[lane].eq(fill_queue.o.valid | has_line),
            ]
            with m.If(pop):
                m.d.sync += [beat[lane].valid.eq(writes[lane]), filled_last.eq(fills)]
                self._take_piece(m, beat[lane], ticket, heads, fill_head, (fills, second))
        return in_output

    def _take_piece(self, m: Module, out, ticket: Signal, heads: list, fill_head, choice) -> None:
        """Assign the piece that a lane writes, and its ticket.

        ``choice``: whether it is fill, and whether it is of the second part of a line.
        """
        p = self.params
        fills, second = choice
        m.d.sync += out.words.eq(~0)
        with m.If(fills):
            m.d.sync += [ticket.eq(fill_head.ticket), out.beat.eq(fill_head.beat)]
            if p.sub_byte:
                m.d.sync += out.words.eq(fill_head.words)
        with m.Else():
            m.d.sync += [
                ticket.eq(Mux(second, heads[-1].ticket, heads[0].ticket)),
                out.beat.eq(Mux(second, heads[-1].beat, heads[0].beat)),
            ]
            if p.word_masks:
                m.d.sync += out.words.eq(Mux(second, heads[-1].words, heads[0].words))
        # Two bits select the data: ``fills``, and the part or the kind of fill.
        selects_second = Mux(fills, fill_head.fill == Fill.NAN, second)
        m.d.sync += out.data.eq(
            Mux(
                fills,
                fill_piece(Mux(selects_second, Fill.NAN, Fill.ZERO)),
                Mux(selects_second, heads[-1].data, heads[0].data),
            )
        )

    def _limit_lead(self, m: Module, contends: Signal, held_up: Signal) -> Signal:
        """Return whether fill has gone first for long enough, so that it takes turns with lines."""
        lead = Signal(range(FILL_LEAD))
        takes_turns = Signal()
        m.d.sync += takes_turns.eq(lead == FILL_LEAD - 1)
        with m.If(held_up.any() & (lead != FILL_LEAD - 1)):
            m.d.sync += lead.eq(lead + 1)
        with m.Elif(~contends.any() & (lead != 0)):
            m.d.sync += lead.eq(lead - 1)
        return takes_turns

    def _report(self, m: Module, pop, line_queues, fill_queues) -> None:
        """Report what is written: the queues have no piece of it, and ``pop`` empties the output
        register.
        """
        p = self.params

        def has_left(name: str, tickets: TicketList, queues: list[Queue]) -> Value:
            # The heads of the queues are compared a clock ahead with the two tickets that may be
            # the oldest one by then. A piece of the oldest ticket is at the head of its queue.
            is_queued = Signal(2, name=f"{name}_queued")
            fired = Signal(name=f"{name}_fired")
            m.d.sync += [
                fired.eq(tickets.o.valid & tickets.o.ready),
                *(
                    is_queued[ahead].eq(
                        Cat(queue.o.valid & (queue.o.p.ticket == ticket) for queue in queues).any()
                    )
                    for ahead, ticket in enumerate((tickets.oldest, tickets.second))
                ),
            ]
            return pop & tickets.o.valid & ~Mux(fired, is_queued[1], is_queued[0])

        # Pieces of fill so far, of the one request that each stream fills at a time.
        fill_pieces = Signal(data.ArrayLayout(p.box_piece_bits, p.streams))
        total = Signal(p.box_piece_bits)
        report_valid = Signal()
        fill_report = Signal(written_layout(p), reset_less=True)
        report_fire = Signal()
        count_fire = Signal()
        fills = self._fills.o
        stream_pieces = fill_pieces[fills.p.stream]
        m.d.comb += [
            count_fire.eq(
                has_left("fill", self._fills, fill_queues) & (~report_valid | report_fire)
            ),
            fills.ready.eq(count_fire),
            total.eq(stream_pieces + fills.p.count.pieces),
        ]
        with m.If(count_fire):
            m.d.sync += [
                stream_pieces.eq(Mux(fills.p.last, 0, total)),
                fill_report.slot.eq(fills.p.count.slot),
                fill_report.pieces.eq(total),
            ]
        with m.If(count_fire | report_fire):
            m.d.sync += report_valid.eq(count_fire & fills.p.last)

        m.d.comb += [
            self.filled.valid.eq(report_valid),
            self.filled.p.eq(fill_report),
            report_fire.eq(report_valid & self.filled.ready),
        ]

        m.submodules.reports = reports = Queue(written_layout(p), 2)
        connect(m, reports.o, flipped(self.written))
        all_parts = [queue for queues in line_queues for queue in queues]
        m.d.comb += [
            reports.i.valid.eq(has_left("line", self._lines, all_parts)),
            reports.i.payload.eq(self._lines.o.p),
            self._lines.o.ready.eq(reports.i.valid & reports.i.ready),
        ]
