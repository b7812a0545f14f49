"""Line reducer: turns the reduction of a line into a read of the line and a write of the result."""

from amaranth.hdl import Array, Assert, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.axi import is_atomic, reduced_line_layout, reduction_read_layout
from hw.layouts.ports import SECTOR_BYTES, gnic_ack_layout, gnic_write_layout
from hw.lib.arbiter import Arbiter
from hw.lib.memory import RowMemory
from hw.lib.one_hot import index_of, lowest_one
from hw.lib.queue import Queue
from hw.lib.register_slice import DoubleBuffer
from hw.params import TmaParams
from hw.reduce.reduction_unit import ALU_LATENCY, SectorAlu

BUCKET_BITS = 4
"""Lowest bits of a line's number, by which the writes in flight are counted."""

RESULTS = 4
"""Lines whose sectors are combined, or whose results wait to be written."""


class LineReducer(wiring.Component):
    """Passes writes of lines on, and reads, combines and writes the lines of reductions.

    A reduction is in flight from its acceptance until its write is answered. While it is, this unit
    neither reduces nor writes its line: for this unit, each update is atomic. Memory knows nothing
    of reductions: another master must not write their elements before they are complete. Only the
    bytes that a reduction selects are written. With ``axi_atomics``, memory performs those that
    ``is_atomic`` selects: they pass as writes do.

    Latency: none for a write; for a reduction that of a read and a write, and ``ALU_LATENCY + 4``
    clocks and one for each sector of a line. Throughput: a write a clock; a sector of a reduction a
    clock. Back-pressure: what comes waits while a reduction of its line is in flight, and holds up
    all behind it. A reduction also waits while as many as ``params.axi_reductions`` are in flight,
    or a write whose line has the same ``BUCKET_BITS``.

    Errors: a line that cannot be read is not written; its reduction is answered with an error.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits`` and ``reductions``.

    Members
    -------
    i : In(stream) of ``gnic_write_layout``; writes and reductions
    o : Out(stream) of ``gnic_write_layout``; writes, also of results
    ack : In(stream) of ``gnic_ack_layout``; answers to ``o``
    answered : Out(stream) of ``gnic_ack_layout``; answers to ``i``
    read : Out(stream) of ``reduction_read_layout``
    line : In(stream) of ``reduced_line_layout``; the lines that were read, in any order
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        write = stream.Signature(gnic_write_layout(params))
        ack = stream.Signature(gnic_ack_layout(params))
        super().__init__(
            {
                "i": In(write),
                "o": Out(write),
                "ack": In(ack),
                "answered": Out(ack),
                "read": Out(stream.Signature(reduction_read_layout(params))),
                "line": In(stream.Signature(reduced_line_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.writes = writes = Arbiter(gnic_write_layout(p), 2)
        m.submodules.acks = acks = Arbiter(gnic_ack_layout(p), 2)
        connect(m, writes.o, flipped(self.o))
        connect(m, acks.o, flipped(self.answered))
        connect(m, flipped(self.ack), acks.i[0])
        entries = self._accept(m, writes.i[0], acks)
        self._combine(m, entries, writes.i[1], acks.i[1])
        return m

    def _reduces(self, reduction: data.View) -> Value:
        """Return whether this unit performs a reduction, and not memory."""
        if self.params.axi_atomics:
            return reduction.enabled & ~is_atomic(reduction)
        return reduction.enabled

    def _accept(self, m: Module, writes: stream.Interface, acks: Arbiter) -> RowMemory:
        """Pass writes on, and ask for the lines of reductions.

        Return the memory of the reductions in flight, which a row stands for each.
        """
        p = self.params
        count = p.axi_reductions
        m.submodules.entries = entries = RowMemory(gnic_write_layout(p), count)
        write = entries.write_port()
        line = self.i.p
        busy = Signal(count)
        tags = [Signal(p.tag_bits, name=f"tag_{n}", reset_less=True) for n in range(count)]
        lines = [
            Signal(p.line_address_bits, name=f"line_{n}", reset_less=True) for n in range(count)
        ]
        is_same = Cat(busy[n] & (lines[n] == line.line) for n in range(count)).any()
        is_written = self._count_writes(m, writes)
        free = lowest_one(~busy)
        m.submodules.reads = reads = DoubleBuffer(reduction_read_layout(p))
        connect(m, reads.o, flipped(self.read))
        may_start = reads.i.ready & ~is_same & ~is_written & ~busy.all()
        reduces = self._reduces(line.reduction)
        number = index_of(free)
        starts = self.i.valid & reduces & may_start
        m.d.comb += [
            writes.valid.eq(self.i.valid & ~reduces & ~is_same),
            writes.p.eq(line),
            reads.i.valid.eq(starts),
            reads.i.p.number.eq(number),
            reads.i.p.line.eq(line.line),
            reads.i.p.attributes.eq(line.attributes),
            self.i.ready.eq(Mux(reduces, may_start, writes.ready & ~is_same)),
            write.en.eq(starts),
            write.addr.eq(number),
            write.data.eq(line),
        ]
        answer = acks.o
        for n in range(count):
            # A tag has one access in flight: the answer to it is that of its reduction.
            with m.If(answer.valid & answer.ready & (answer.p.tag == tags[n])):
                m.d.sync += busy[n].eq(0)
            with m.If(starts & free[n]):
                m.d.sync += [busy[n].eq(1), tags[n].eq(line.tag), lines[n].eq(line.line)]
        return entries

    def _count_writes(self, m: Module, writes: stream.Interface) -> Value:
        """Count the writes in flight; return whether one may have the line at ``i``."""
        p = self.params
        layout = data.StructLayout({"is_write": 1, "bucket": BUCKET_BITS})
        m.submodules.buckets = buckets = RowMemory(layout, p.tags)
        write, read = buckets.write_port(), buckets.read_port()
        bucket = self.i.p.line[:BUCKET_BITS]
        was_answered = Signal()
        passes = writes.valid & writes.ready
        m.d.comb += [
            write.en.eq(self.i.valid & self.i.ready),
            write.addr.eq(self.i.p.tag),
            write.data.is_write.eq(~self._reduces(self.i.p.reduction)),
            write.data.bucket.eq(bucket),
            read.addr.eq(self.answered.p.tag),
        ]
        m.d.sync += was_answered.eq(self.answered.valid & self.answered.ready)
        in_flight = []
        for number in range(1 << BUCKET_BITS):
            count = Signal(range(p.tags + 1), name=f"in_flight_{number}")
            ends = was_answered & read.data.is_write & (read.data.bucket == number)
            m.d.sync += count.eq(count + (passes & (bucket == number)) - ends)
            in_flight.append(count != 0)
        return Array(in_flight)[bucket]

    def _combine(
        self, m: Module, entries: RowMemory, writes: stream.Interface, failures: stream.Interface
    ) -> None:
        """Combine the sectors of each line that was read with those of its reduction."""
        p = self.params
        sectors = max(p.line_bytes // SECTOR_BYTES, 1)
        sector_bits = SECTOR_BYTES * 8
        m.submodules.alu = alu = SectorAlu()
        m.submodules.under_way = under_way = Queue(gnic_write_layout(p), RESULTS)
        m.submodules.results = results = Queue(p.line_bytes * 8, RESULTS)
        read = entries.read_port()

        # A line that was read, from the clock in which its reduction comes from the memory.
        valid = Signal()
        line = Signal(reduced_line_layout(p), reset_less=True)
        sector = Signal(range(sectors))
        lines_used = Signal(range(RESULTS + 1))
        may_begin = (lines_used != RESULTS) | (sector != 0)
        feeds = valid & ~line.error & may_begin
        ends = feeds & (sector == sectors - 1)
        leaves = ends | (valid & line.error & failures.ready)
        m.d.comb += [
            self.line.ready.eq(~valid | leaves),
            read.en.eq(self.line.ready),
            read.addr.eq(self.line.p.number),
            failures.valid.eq(valid & line.error),
            failures.p.tag.eq(read.data.tag),
            failures.p.error.eq(1),
            failures.p.decode.eq(line.decode),
            alu.op.eq(read.data.reduction.op),
            alu.element_type.eq(read.data.reduction.element_type),
            alu.memory.eq(line.data.word_select(sector, sector_bits)),
            alu.source.eq(read.data.data.word_select(sector, sector_bits)),
            under_way.i.valid.eq(ends),
            under_way.i.p.eq(read.data),
        ]
        with m.If(self.line.ready):
            m.d.sync += [valid.eq(self.line.valid), line.eq(self.line.p), sector.eq(0)]
        with m.Elif(feeds):
            m.d.sync += sector.eq(sector + 1)

        # Results, ``ALU_LATENCY`` clocks later, sector by sector.
        last, comes = ends, feeds
        for clock in range(ALU_LATENCY):
            next_last, next_comes = Signal(name=f"last_{clock}"), Signal(name=f"comes_{clock}")
            m.d.sync += [next_last.eq(last), next_comes.eq(comes)]
            last, comes = next_last, next_comes
        collected = Signal(sectors * sector_bits, reset_less=True)
        all_sectors = Cat(collected, alu.result)[-len(collected) :]
        with m.If(comes):
            m.d.sync += collected.eq(all_sectors)
        m.d.comb += [
            results.i.valid.eq(last),
            results.i.payload.eq(all_sectors),
            writes.valid.eq(results.o.valid),
            results.o.ready.eq(writes.ready),
            under_way.o.ready.eq(results.o.valid & writes.ready),
            writes.p.eq(under_way.o.p),
            writes.p.reduction.enabled.eq(0),
            writes.p.data.eq(results.o.payload),
        ]
        begins = feeds & (sector == 0)
        m.d.sync += [
            lines_used.eq(lines_used + begins - (writes.valid & writes.ready)),
            Assert(~last | results.i.ready, "line_reducer: a result is lost\n"),
            Assert(~ends | under_way.i.ready, "line_reducer: a reduction is lost\n"),
            Assert(~results.o.valid | under_way.o.valid, "line_reducer: a result of nothing\n"),
        ]
