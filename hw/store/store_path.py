"""Store path: reads the pieces of lines from shared memory and puts them in order.

It is the mirror image of the lane network. Lane ``i`` of shared memory holds piece ``i`` of every
beat and reads one piece a clock, at an address of its own. The pieces of a line lie in at most two
beats, which are neighbours or those of two rows; the pieces of one beat are a *part* of the line.
The two parts are permuted differently and may need the same lane. So each part has a queue in front
of each lane and another one behind it; over a few lines every lane gets its equal share.
"""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import MemoryAttributes, Packing
from hw.layouts.jobs import write_mode_layout
from hw.layouts.lines import store_line_layout, write_line_layout
from hw.layouts.ports import lanes_layout, smem_read_layout
from hw.lib.memory import MOST_ROWS_UNCLOCKED
from hw.lib.oldest_first import second_goes_first
from hw.lib.permute import exchange, gather, rotate
from hw.lib.queue import Queue
from hw.lib.swizzle import swizzle_bits
from hw.params import PIECE_BYTES, TmaParams

PARTS = 2
"""Parts of a line: the pieces of one beat, and those of another one."""

COMPLETE_LINES = 4
"""Lines that can wait for ``o``. That there is room is found a clock before a line is complete."""

SIX_BITS = 6
"""Bits of each byte that count in a type of six bits."""


def pack_sixes(lanes: list) -> list:
    """Return the pieces that hold the low six bits of each byte of a row, packed."""
    row = Cat(lanes)
    packed = Cat(row.word_select(byte, 8)[:SIX_BITS] for byte in range(len(row) // 8))
    width = PIECE_BYTES * 8
    return [packed[at : at + width] for at in range(0, len(packed), width)]


def place_short_rows(short_rows, packed: list) -> list:
    """Return ``packed`` with its second half moved up to the row that starts in mid-beat.

    Each half are the pieces of a row of 64 elements, if ``short_rows``.
    """
    half = len(packed) // 2
    moved = [Mux(short_rows, packed[lane - 1], packed[lane]) for lane in range(half + 1, 2 * half)]
    return [*packed[: half + 1], *moved, packed[-1]]


class StorePath(wiring.Component):
    """Gives each line of a store its bytes, in the order of the lines.

    ``source_read`` reports the slot of a request whose last byte has been read; the last line of
    the request waits until the report is taken.

    Latency: five clocks from ``i`` to ``o`` if shared memory answers in the next clock, six if
    ``smem_reads`` is more than 16, seven if it is more than 32. Throughput: one line a clock, as
    long as no lane of shared memory is asked for more than one piece a clock on average.
    Back-pressure: ``i`` waits while ``smem_reads`` lines wait for their bytes. Shared memory must
    answer in order, at the earliest in the clock after it is asked.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``store_line_layout``
    o : Out(stream) of ``write_line_layout``
    smem_read : Out(stream) of ``smem_read_layout``
    smem_data : In(stream) of ``lanes_layout``; lanes that were not read do not count
    source_read : Out(stream) of slots
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(store_line_layout(params))),
                "o": Out(stream.Signature(write_line_layout(params))),
                "smem_read": Out(stream.Signature(smem_read_layout(params))),
                "smem_data": In(stream.Signature(lanes_layout(params))),
                "source_read": Out(stream.Signature(params.slot_bits)),
            }
        )

        # A line that waits for its bytes. Of each part: ``wanted`` are the lanes that hold a piece,
        # ``start`` is the lane of piece 0, ``swizzle`` says how the pieces are permuted. ``second``
        # are the pieces of the second part. ``packs``: types of six bits are packed,
        # ``short_rows``: in rows of half a beat.
        self._line = data.StructLayout(
            {
                "last": 1,
                "wanted": data.ArrayLayout(params.lanes, PARTS),
                "slot": params.slot_bits,
                "valid": params.lanes,
                "second": params.lanes,
                "start": data.ArrayLayout(params.lane_bits, PARTS),
                "swizzle": data.ArrayLayout(params.lane_bits, PARTS),
                **({"packs": 1} if params.sub_byte else {}),
                **({"short_rows": 1} if params.b6p2x16_64 else {}),
                "write_mode": write_mode_layout(params),
                "attributes": MemoryAttributes,
                "line": params.line_address_bits,
            }
        )
        # Tickets are counted as ``second_goes_first`` needs them.
        self._request = data.StructLayout(
            {"ticket": range(2 * params.smem_reads), "beat": params.smem_beat_bits}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        # The lanes that are wanted decide when the line is complete; the rest is data.
        decides = self._line["wanted"]
        parts = [decides.offset + decides.width]
        m.submodules.lines = lines = Queue(self._line, p.smem_reads, parts=parts)
        requests = self._ask(m, lines)
        answers = self._read(m, requests)
        self._assemble(m, lines, answers)
        return m

    def _queues(self, m: Module, name: str, shape, latency: int | None) -> list[list[Queue]]:
        """Return, for each part, a queue for each lane. Each has room for all lines that wait."""
        parts = []
        for part in range(PARTS):
            queues = [
                Queue(shape, self.params.smem_reads, latency=latency)
                for _ in range(self.params.lanes)
            ]
            for lane, queue in enumerate(queues):
                m.submodules[f"{name}_{lane}_part_{part}"] = queue
                m.d.sync += Assert(
                    ~queue.i.valid | queue.i.ready, "store_path: a queue has no room for a piece\n"
                )
            parts.append(queues)
        return parts

    def _ask(self, m: Module, lines: Queue) -> list[list[Queue]]:
        """Queue each line, and its requests to the lanes; return the queues of the requests."""
        p = self.params
        is_shallow = p.smem_reads <= MOST_ROWS_UNCLOCKED
        requests = self._queues(m, "request", self._request, latency=1 if is_shallow else 2)
        line, entry = self.i.p, lines.i.p
        ticket = Signal(range(2 * p.smem_reads))
        push = Signal()
        m.d.comb += [
            push.eq(self.i.valid & lines.i.ready),
            self.i.ready.eq(lines.i.ready),
            lines.i.valid.eq(self.i.valid),
            *(
                entry[name].eq(line[name])
                for name in ("last", "write_mode", "attributes", "slot", "line", "valid")
            ),
        ]
        packs = Signal()
        if p.sub_byte:
            # The beat of a row of six-bit types is read as a whole. The line has pieces of one row,
            # which are all in one beat.
            m.d.comb += [
                packs.eq(line.style.packing == Packing.BYTES_12),
                entry.packs.eq(packs),
                *([entry.short_rows.eq(line.style.short_rows)] if p.b6p2x16_64 else []),
            ]
        has_rows = Signal()  # two of them: a part each
        rows, origins = [line.valid] * PARTS, [line.origin] * PARTS
        # For each part, the pieces that lie in the beat behind that of piece 0.
        in_next = [
            Cat(start > p.lanes - 1 - piece for piece in range(p.lanes)) for start in entry.start
        ]
        second = in_next[0]
        if p.gathers_rows:
            m.d.comb += has_rows.eq(line.second.any())
            rows = [line.valid & ~line.second, Mux(has_rows, line.second, line.valid)]
            origins[1] = Mux(has_rows, line.second_origin, line.origin)
            second = Mux(has_rows, line.second, second)
        m.d.comb += entry.second.eq(second)
        # All pieces of a row are in the beat of piece 0, or all in the next.
        in_one = has_rows | packs
        for part, (start, is_next) in enumerate(zip(entry.start, in_next, strict=True)):
            beat = Signal(p.smem_beat_bits, name=f"first_beat_{part}")
            m.d.comb += Cat(start, beat).eq(origins[part])
            part_beat = Signal(p.smem_beat_bits, name=f"beat_{part}")
            m.d.comb += part_beat.eq(beat + Mux(in_one, (rows[part] & is_next).any(), part))
            bits = swizzle_bits(m, p, line.style, part_beat, f"swizzle_{part}")
            own = is_next if part else ~is_next
            own_pieces = rows[part] & (in_one.replicate(p.lanes) | own)
            part_pieces = rotate(m, list(own_pieces), start, f"piece_{part}")
            if p.sub_byte:
                whole = line.valid.any() if part == 0 else 0
                part_pieces = [Mux(packs, whole, piece) for piece in part_pieces]
            wanted = exchange(m, part_pieces, bits[: p.lane_bits], f"wanted_{part}")
            m.d.comb += [
                entry.swizzle[part].eq(bits),
                entry.wanted[part].eq(Cat(wanted)),
            ]
            for lane, queue in enumerate(requests[part]):
                m.d.comb += [
                    queue.i.valid.eq(push & wanted[lane]),
                    queue.i.p.ticket.eq(ticket),
                    queue.i.p.beat.eq(part_beat ^ bits[p.lane_bits :]),
                ]
        with m.If(push):
            m.d.sync += ticket.eq(ticket + 1)
        return requests

    def _read(self, m: Module, requests) -> list[list[Queue]]:
        """Read the requested pieces, oldest line first; return the queues of the answers."""
        p = self.params
        answers = self._queues(m, "answer", PIECE_BYTES * 8, latency=None)
        # The reads of one clock: the lanes that are read, and the part that each is read for.
        read = data.StructLayout({"lanes": p.lanes, "part": p.lanes})
        m.submodules.reads = reads = Queue(read, PARTS * p.smem_reads)
        # It never fills up: the reads of one clock include the lane with the most requests, and a
        # line requests at most one piece of each part from a lane.
        m.d.sync += Assert(
            ~reads.i.valid | reads.i.ready, "store_path: the queue of reads is full\n"
        )
        pop = Signal()
        read_valid = Signal()
        beats = Signal(smem_read_layout(p), reset_less=True)
        m.d.comb += [
            pop.eq(~read_valid | self.smem_read.ready),
            reads.i.valid.eq(pop & reads.i.p.lanes.any()),
            self.smem_read.valid.eq(read_valid),
            self.smem_read.p.eq(beats),
            self.smem_data.ready.eq(reads.o.valid),
            reads.o.ready.eq(self.smem_data.valid),
        ]
        with m.If(pop):
            m.d.sync += read_valid.eq(reads.i.valid)
        for lane in range(p.lanes):
            first, second = (queues[lane] for queues in requests)
            heads = first.o, second.o
            takes_second = Signal(name=f"takes_second_{lane}")
            m.d.comb += [
                takes_second.eq(
                    second_goes_first(
                        [head.valid for head in heads],
                        [head.p.ticket for head in heads],
                    )
                ),
                first.o.ready.eq(pop & ~takes_second),
                second.o.ready.eq(pop & takes_second),
                reads.i.p.lanes[lane].eq(first.o.valid | second.o.valid),
                reads.i.p.part[lane].eq(takes_second),
            ]
            with m.If(pop):
                m.d.sync += [
                    beats[lane].valid.eq(first.o.valid | second.o.valid),
                    beats[lane].beat.eq(Mux(takes_second, second.o.p.beat, first.o.p.beat)),
                ]
            data_valid = self.smem_data.valid & reads.o.valid & reads.o.p.lanes[lane]
            for part, queues in enumerate(answers):
                m.d.comb += [
                    queues[lane].i.valid.eq(data_valid & (reads.o.p.part[lane] == part)),
                    queues[lane].i.payload.eq(self.smem_data.p[lane]),
                ]
        return answers

    def _assemble(self, m: Module, lines: Queue, answers) -> None:
        """Offer the oldest line when all of its pieces have been read."""
        p = self.params
        waiting = lines.o.p
        layout = write_line_layout(p)
        m.submodules.complete_lines = complete_lines = Queue(
            layout, COMPLETE_LINES, parts=[layout["write_mode"].offset]
        )
        connect(m, complete_lines.o, flipped(self.o))
        has_room = Signal()
        complete = Signal()
        fire = Signal()
        m.d.sync += [
            # Two lines may come until this counts: in this clock, and in the next one. The place of
            # a line that waits for its report stays its own.
            has_room.eq((complete_lines.level <= COMPLETE_LINES - 2) | (complete & ~fire)),
            Assert(
                ~complete_lines.i.valid | complete_lines.i.ready,
                "store_path: there is no place for a line\n",
            ),
        ]
        line = complete_lines.i.p
        incomplete_parts = [
            waiting.wanted[part][lane] & ~queue.o.valid
            for part, queues in enumerate(answers)
            for lane, queue in enumerate(queues)
        ]
        m.d.comb += [
            complete.eq(lines.o.valid & ~Cat(incomplete_parts).any() & has_room),
            self.source_read.valid.eq(complete & waiting.last),
            self.source_read.payload.eq(waiting.slot),
            fire.eq(complete & (~waiting.last | self.source_read.ready)),
            lines.o.ready.eq(fire),
            complete_lines.i.valid.eq(fire),
            *(
                queue.o.ready.eq(fire & waiting.wanted[part][lane])
                for part, queues in enumerate(answers)
                for lane, queue in enumerate(queues)
            ),
        ]

        # Without swizzle, piece ``i`` of the line is in lane ``i + start`` of a beat. A row of
        # six-bit types is packed in the order of its beat, and is rotated afterwards.
        parts = [
            gather(
                m,
                [queue.o.payload for queue in queues],
                Mux(waiting.packs, 0, start) if p.sub_byte else start,
                swizzle,
                f"part_{part}",
            )
            for part, (queues, start, swizzle) in enumerate(
                zip(answers, waiting.start, waiting.swizzle, strict=True)
            )
        ]
        pieces = [Mux(waiting.second[n], parts[1][n], parts[0][n]) for n in range(p.lanes)]
        if p.sub_byte:
            packed = pack_sixes(parts[0])
            if p.b6p2x16_64:
                packed = place_short_rows(waiting.short_rows, packed)
            backwards = Signal(p.lane_bits)
            m.d.comb += backwards.eq(-waiting.start[0])
            rows = rotate(m, [*packed, *parts[0][len(packed) :]], backwards, "packed")
            pieces = [Mux(waiting.packs, *choice) for choice in zip(rows, pieces, strict=True)]
        m.d.comb += [
            *(
                line[name].eq(waiting[name])
                for name in ("last", "write_mode", "attributes", "slot", "line", "valid")
            ),
            line.has_pieces.eq(waiting.valid.any()),
            *(line.data[lane].eq(piece) for lane, piece in enumerate(pieces)),
        ]
