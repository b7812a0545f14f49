"""Lane network: swizzles pieces to the lanes of shared memory and writes them.

Lane ``i`` of shared memory holds piece ``i`` of every beat and takes one piece a clock, at an
address of its own. A line's pieces belong to two neighbouring beats at most. With a swizzle the
two parts are permuted differently and may want the same lane, so each part has a queue in front
of each lane; over a few lines every lane gets its equal share.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hw.layouts import (
    Swizzle,
    fill_beat_layout,
    rotated_line_layout,
    smem_write_layout,
    written_layout,
)
from hw.params import PIECE_BYTES, TmaParams
from hw.permute import exchange
from hw.queue import Queue
from hw.response_path import fill_piece


def swizzle_bits(m: Module, swizzle, beat, lane_bits: int, name: str) -> Signal:
    """Return what is XORed to the three piece bits of a shared-memory address in ``beat``."""
    line = beat[3 - lane_bits :][:3]  # number of the 128-byte line, modulo 8
    bits = Signal(3, name=name)
    with m.Switch(swizzle):
        with m.Case(Swizzle.SPAN_32B):
            m.d.comb += bits.eq(line & 1)
        with m.Case(Swizzle.SPAN_64B):
            m.d.comb += bits.eq(line & 3)
        with m.Case(Swizzle.SPAN_128B):
            m.d.comb += bits.eq(line)
    return bits


class LaneNetwork(wiring.Component):
    """Writes lines and fill to shared memory, and says how much of which request is written.

    A line and a beat of fill a clock, as long as no lane gets more than one piece a clock on
    average. Where they want the same lanes, lines go first and a beat of fill in the next clock:
    neither holds up the other for longer. Three clocks from ``line`` to ``smem_write``. A line
    waits while any lane's queue is full; each is emptied as fast as ``smem_write`` is taken.

    ``written`` follows the write that it speaks of by a clock at least.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    line : In(stream) of ``rotated_line_layout``
    fill : In(stream) of ``fill_beat_layout``
    smem_write : Out(stream) of ``smem_write_layout``
    written : Out(stream) of ``written_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "line": In(stream.Signature(rotated_line_layout(params))),
                "fill": In(stream.Signature(fill_beat_layout(params))),
                "smem_write": Out(stream.Signature(smem_write_layout(params))),
                "written": Out(stream.Signature(written_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        line = self.line.p
        queued = 2 * p.lane_depth  # lines that may have pieces in the queues
        ticket_bits = (queued - 1).bit_length()
        piece = data.StructLayout(
            {
                "ticket": ticket_bits,
                "beat": p.smem_beat_bits,
                "data": PIECE_BYTES * 8,
            }
        )

        # Every line gets a ticket, in order. A line is written when it is the oldest and no queue
        # begins with its ticket: the queues are in order, and all older lines are gone.
        m.submodules.lines = lines = Queue(written_layout(p), queued)
        newest = Signal(ticket_bits)
        oldest = Signal(ticket_bits)

        room = Signal()
        push = Signal()
        pop = Signal()
        m.d.comb += [push.eq(self.line.valid & room), self.line.ready.eq(room)]

        queues = []  # of each part, one queue a lane
        for part in range(2):
            beat = Signal(p.smem_beat_bits, name=f"beat_{part}")
            m.d.comb += beat.eq(line.beat + part)
            bits = swizzle_bits(m, line.swizzle, beat, p.lane_bits, f"swizzle_{part}")
            above = bits[p.lane_bits :]  # the part of the swizzle that moves whole beats
            wanted = [
                Cat(line.data[lane], line.valid[lane] & ((lane < line.boundary) == part))
                for lane in range(p.lanes)
            ]
            swizzled = exchange(m, wanted, bits[: p.lane_bits], f"part_{part}")
            queues.append([])
            for lane, wide in enumerate(swizzled):
                queue = SyncFIFO(width=piece.size, depth=p.lane_depth)
                m.submodules[f"lane_{lane}_part_{part}"] = queue
                entry = Signal(piece, name=f"entry_{lane}_{part}")
                m.d.comb += [
                    entry.ticket.eq(newest),
                    entry.beat.eq(beat ^ above),
                    entry.data.eq(wide[:-1]),
                    queue.w_data.eq(entry),
                    queue.w_en.eq(push & wide[-1]),
                ]
                queues[part].append(queue)

        m.d.comb += [
            room.eq(lines.i.ready & Cat(q.w_rdy for part in queues for q in part).all()),
            lines.i.valid.eq(push),
            lines.i.p.slot.eq(line.slot),
            lines.i.p.pieces.eq(line.pieces),
        ]
        with m.If(push):
            m.d.sync += newest.eq(newest + 1)

        # Fill is permuted as its pieces are: only the mask moves. Its pieces are counted up until
        # the request has no more fill.
        fill = self.fill.p
        fill_bits = swizzle_bits(m, fill.style.swizzle, fill.beat, p.lane_bits, "swizzle_fill")
        fill_lanes = exchange(m, list(fill.valid), fill_bits[: p.lane_bits], "fill")
        wants_lanes = Signal(p.lanes)  # of the queues
        fill_waited = Signal()
        take_fill = Signal()
        filled = Signal(written_layout(p))
        fill_complete = Signal()
        report_fill = Signal()
        m.d.comb += [
            self.fill.ready.eq(
                pop
                & (~fill_complete | report_fill)
                & (fill_waited | ~(Cat(fill_lanes) & wants_lanes).any())
            ),
            take_fill.eq(self.fill.valid & self.fill.ready),
        ]
        with m.If(pop):
            m.d.sync += fill_waited.eq(self.fill.valid & ~take_fill)
        with m.If(take_fill):
            m.d.sync += filled.slot.eq(fill.slot)
        with m.If(take_fill | report_fill):
            m.d.sync += [
                fill_complete.eq(take_fill & fill.last),
                filled.pieces.eq(
                    Mux(report_fill, 0, filled.pieces) + Mux(take_fill, sum(fill.valid), 0)
                ),
            ]

        # The beat on its way to shared memory. A lane's two queues: the older line goes first.
        writing = Signal()
        beat = Signal(smem_write_layout(p), reset_less=True)
        writes = Signal(p.lanes)
        waits = []  # heads of queues that belong to the oldest line
        m.d.comb += [
            pop.eq(~writing | self.smem_write.ready),
            self.smem_write.valid.eq(writing),
            self.smem_write.p.eq(beat),
        ]
        with m.If(pop):
            m.d.sync += writing.eq(writes.any())
        for lane in range(p.lanes):
            heads = []
            for part in range(2):
                queue = queues[part][lane]
                head = Signal(piece, name=f"head_{lane}_{part}")
                age = Signal(ticket_bits, name=f"age_{lane}_{part}")
                m.d.comb += [head.eq(queue.r_data), age.eq(head.ticket - oldest)]
                waits.append(queue.r_rdy & (age == 0))
                heads.append((queue, head, age))
            (queue_0, head_0, age_0), (queue_1, head_1, age_1) = heads
            second = Signal(name=f"second_{lane}")
            fills = Signal(name=f"fills_{lane}")
            m.d.comb += [
                second.eq(queue_1.r_rdy & (~queue_0.r_rdy | (age_1 < age_0))),
                fills.eq(take_fill & fill_lanes[lane]),
                queue_0.r_en.eq(pop & ~fills & ~second),
                queue_1.r_en.eq(pop & ~fills & second),
                wants_lanes[lane].eq(queue_0.r_rdy | queue_1.r_rdy),
                writes[lane].eq(fills | wants_lanes[lane]),
            ]
            with m.If(pop):
                out = beat[lane]
                m.d.sync += out.valid.eq(writes[lane])
                with m.If(fills):
                    m.d.sync += [
                        out.beat.eq(fill.beat ^ fill_bits[p.lane_bits :]),
                        out.data.eq(fill_piece(fill.style.fill)),
                    ]
                with m.Else():
                    m.d.sync += [
                        out.beat.eq(Mux(second, head_1.beat, head_0.beat)),
                        out.data.eq(Mux(second, head_1.data, head_0.data)),
                    ]

        # Pieces that left their queue are in ``beat`` or written; with ``pop`` the former are, too.
        reporting = Signal()
        report = Signal(written_layout(p), reset_less=True)
        report_line = Signal()
        m.d.comb += [
            self.written.valid.eq(reporting),
            self.written.p.eq(report),
        ]
        with m.If(~reporting | self.written.ready):
            m.d.comb += [
                report_fill.eq(pop & fill_complete),
                report_line.eq(pop & ~fill_complete & lines.o.valid & ~Cat(waits).any()),
            ]
            m.d.sync += [
                reporting.eq(report_fill | report_line),
                report.eq(Mux(fill_complete, filled, lines.o.p)),
            ]
        m.d.comb += lines.o.ready.eq(report_line)
        with m.If(report_line):
            m.d.sync += oldest.eq(oldest + 1)
        return m
