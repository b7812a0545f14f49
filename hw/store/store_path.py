"""Store path: fetches the pieces of lines from shared memory and puts them into order.

The mirror of the lane network. Lane ``i`` of shared memory holds piece ``i`` of every beat and
reads one piece a clock, at an address of its own. The pieces of a line lie in two neighbouring
beats at most. With a swizzle the two parts are permuted differently and may want the same lane, so
each part has a queue in front of each lane, and another one behind it; over a few lines every lane
gets its equal share.
"""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import MemoryAttributes, Packing
from hw.layouts.jobs import write_mode_layout
from hw.layouts.lines import store_line_layout, write_line_layout
from hw.layouts.ports import lanes_layout, smem_read_layout
from hw.lib.oldest_first import second_goes_first
from hw.lib.permute import exchange, rotate
from hw.lib.queue import Queue
from hw.lib.swizzle import swizzle_bits
from hw.params import PIECE_BYTES, TmaParams

PARTS = 2
SIX_BITS = 6


def pack_sixes(lanes: list) -> list:
    """Return the pieces that a row of bytes becomes, of each of which six bits count."""
    row = Cat(lanes)
    packed = Cat(row.word_select(byte, 8)[:SIX_BITS] for byte in range(len(row) // 8))
    width = PIECE_BYTES * 8
    return [packed[at : at + width] for at in range(0, len(packed), width)]


class StorePath(wiring.Component):
    """Gives each line of a store its bytes, in the order of the lines.

    A line a clock, as long as no lane of shared memory is asked for more than one piece a clock on
    average. ``smem_reads`` lines wait for their bytes at most; ``i`` waits while they do. Shared
    memory answers in order, a clock after it was asked at the earliest. Five clocks from ``i`` to
    ``o`` where it does that, seven if ``smem_reads`` is more than 16.

    ``source_read`` gives the slot of a request whose last byte has been read; its last line waits
    until it is taken.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``store_line_layout``
    o : Out(stream) of ``write_line_layout``
    smem_read : Out(stream) of ``smem_read_layout``
    smem_data : In(stream) of ``lanes_layout``, of which lanes that were not read do not count
    source_read : Out(stream) of slots
    """

    def __init__(self, params: TmaParams):
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

        # A line that waits for its bytes: those ``wanted`` from each lane, by part, and how to put
        # them into order.
        self._line = data.StructLayout(
            {
                "last": 1,
                "write_mode": write_mode_layout(params),
                "attributes": MemoryAttributes,
                "slot": params.slot_bits,
                "line": params.line_address_bits,
                "valid": params.lanes,
                "boundary": params.lane_bits,
                "swizzle": data.ArrayLayout(params.lane_bits, PARTS),
                "wanted": data.ArrayLayout(params.lanes, PARTS),
                **({"packs": 1} if params.sub_byte else {}),
            }
        )
        self._request = data.StructLayout(
            {"ticket": range(params.smem_reads), "beat": params.smem_beat_bits}
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.lines = lines = Queue(self._line, p.smem_reads)
        oldest = Signal(range(p.smem_reads))
        requests = self._ask(m, lines)
        answers = self._read(m, oldest, requests)
        self._assemble(m, lines, oldest, answers)
        return m

    def _queues(self, m: Module, name: str, shape) -> list[list[Queue]]:
        """Queues for each lane, by part; each has room for all lines that are under way."""
        parts = []
        for part in range(PARTS):
            queues = [Queue(shape, self.params.smem_reads) for _ in range(self.params.lanes)]
            for lane, queue in enumerate(queues):
                m.submodules[f"{name}_{lane}_part_{part}"] = queue
                m.d.sync += Assert(
                    ~queue.i.valid | queue.i.ready, "StorePath: a piece has no place\n"
                )
            parts.append(queues)
        return parts

    def _ask(self, m: Module, lines: Queue) -> list[list[Queue]]:
        """Queue a line, and what it wants from each lane; return the queues of that."""
        p = self.params
        requests = self._queues(m, "request", self._request)
        line, entry = self.i.p, lines.i.p
        ticket = Signal(range(p.smem_reads))
        push = Signal()
        boundary = line.origin[: p.lane_bits]
        beat = line.origin[p.lane_bits :]
        pieces = rotate(m, list(line.valid), boundary, "piece")
        m.d.comb += [
            push.eq(self.i.valid & lines.i.ready),
            self.i.ready.eq(lines.i.ready),
            lines.i.valid.eq(self.i.valid),
            *(
                entry[name].eq(line[name])
                for name in ("last", "write_mode", "attributes", "slot", "line", "valid")
            ),
            entry.boundary.eq(boundary),
        ]
        packs = Signal()
        in_next = Signal()
        if p.sub_byte:
            # A row of sixes is read as a whole; what the line has of it is one side of the boundary
            crossed = [piece & (lane < boundary) for lane, piece in enumerate(pieces)]
            m.d.comb += [
                packs.eq(line.style.packing == Packing.BYTES_12),
                in_next.eq(packs & Cat(crossed).any()),
                entry.packs.eq(packs),
            ]
        for part in range(PARTS):
            part_beat = Signal(p.smem_beat_bits, name=f"beat_{part}")
            m.d.comb += part_beat.eq(beat + (in_next if part == 0 else 1))
            bits = swizzle_bits(m, p, line.style, part_beat, f"swizzle_{part}")
            mine = [piece & ((lane < boundary) == part) for lane, piece in enumerate(pieces)]
            if p.sub_byte:
                whole = line.valid.any() if part == 0 else 0
                mine = [Mux(packs, whole, piece) for piece in mine]
            wanted = exchange(m, mine, bits[: p.lane_bits], f"wanted_{part}")
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

    def _read(self, m: Module, oldest, requests) -> list[list[Queue]]:
        """Read what lanes are asked for, of older lines first; return queues of the answers."""
        p = self.params
        answers = self._queues(m, "answer", PIECE_BYTES * 8)
        # Of each clock's reads: which lanes, and for which part.
        read = data.StructLayout({"lanes": p.lanes, "part": p.lanes})
        m.submodules.reads = reads = Queue(read, PARTS * p.smem_reads)
        # It has room: a clock of reads takes a piece from each lane that is asked for most, and a
        # line asks a lane for as many pieces as there are parts.
        m.d.sync += Assert(~reads.i.valid | reads.i.ready, "StorePath: a read has no place\n")
        pop = Signal()
        reading = Signal()
        beats = Signal(smem_read_layout(p), reset_less=True)
        m.d.comb += [
            pop.eq(~reading | self.smem_read.ready),
            reads.i.valid.eq(pop & reads.i.p.lanes.any()),
            self.smem_read.valid.eq(reading),
            self.smem_read.p.eq(beats),
            self.smem_data.ready.eq(reads.o.valid),
            reads.o.ready.eq(self.smem_data.valid),
        ]
        with m.If(pop):
            m.d.sync += reading.eq(reads.i.valid)
        for lane in range(p.lanes):
            first, second = (queues[lane] for queues in requests)
            heads = first.o, second.o
            takes_second = Signal(name=f"takes_second_{lane}")
            m.d.comb += [
                takes_second.eq(
                    second_goes_first(
                        [head.valid for head in heads],
                        [head.p.ticket for head in heads],
                        oldest,
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
            came = self.smem_data.valid & reads.o.valid & reads.o.p.lanes[lane]
            for part, queues in enumerate(answers):
                m.d.comb += [
                    queues[lane].i.valid.eq(came & (reads.o.p.part[lane] == part)),
                    queues[lane].i.payload.eq(self.smem_data.p[lane]),
                ]
        return answers

    def _assemble(self, m: Module, lines: Queue, oldest, answers) -> None:
        """Offer the oldest line once all of its pieces are there."""
        p = self.params
        waiting = lines.o.p
        held = Signal()
        line = Signal(write_line_layout(p), reset_less=True)
        free = Signal()
        complete = Signal()
        take = Signal()
        missing = [
            waiting.wanted[part][lane] & ~queue.o.valid
            for part, queues in enumerate(answers)
            for lane, queue in enumerate(queues)
        ]
        m.d.comb += [
            free.eq(~held | self.o.ready),
            complete.eq(lines.o.valid & ~Cat(missing).any() & free),
            self.source_read.valid.eq(complete & waiting.last),
            self.source_read.payload.eq(waiting.slot),
            take.eq(complete & (~waiting.last | self.source_read.ready)),
            lines.o.ready.eq(take),
            self.o.valid.eq(held),
            self.o.p.eq(line),
            *(
                queue.o.ready.eq(take & waiting.wanted[part][lane])
                for part, queues in enumerate(answers)
                for lane, queue in enumerate(queues)
            ),
        ]

        parts = [
            exchange(
                m, [queue.o.payload for queue in queues], waiting.swizzle[part], f"part_{part}"
            )
            for part, queues in enumerate(answers)
        ]
        boundary = waiting.boundary
        pieces = [Mux(lane < boundary, parts[1][lane], parts[0][lane]) for lane in range(p.lanes)]
        if p.sub_byte:
            for lane, packed in enumerate(pack_sixes(parts[0])):
                pieces[lane] = Mux(waiting.packs, packed, pieces[lane])
        back = Signal(p.lane_bits)
        m.d.comb += back.eq(-boundary)
        # Loaded whether or not the line is complete: it does not count until it is.
        with m.If(free):
            m.d.sync += [
                held.eq(take),
                *(
                    line[name].eq(waiting[name])
                    for name in ("last", "write_mode", "attributes", "slot", "line", "valid")
                ),
                *(
                    line.data[lane].eq(piece)
                    for lane, piece in enumerate(rotate(m, pieces, back, "in_order"))
                ),
            ]
        with m.If(take):
            m.d.sync += oldest.eq(oldest + 1)
