"""Write side of the GNIC port: tagged line writes and reductions, answered in any order."""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.lines import performed_layout, write_line_layout
from hw.layouts.ports import gnic_ack_layout, gnic_write_layout
from hw.lib.free_list import FreeList
from hw.lib.register_slice import register_slice
from hw.params import PIECE_BYTES, TmaParams


class GnicWrite(wiring.Component):
    """Gives each line of a store a tag, and tells of each answer which store it belongs to.

    One write and one answer a clock. A line waits while all tags are in flight; a tag is free again
    when its answer is taken. A line without pieces is no write: it ends its request at once. A line
    passes to ``request`` in the same clock, and waits at ``i`` meanwhile; one clock from ``ack`` to
    ``performed``. Each answer must carry a tag in flight, once.

    The number of lines of a request is known with its last one, and reported with the answer to it,
    or with the line that is no write.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``write_line_layout``
    request : Out(stream) of ``gnic_write_layout``
    ack : In(stream) of ``gnic_ack_layout``
    performed : Out(stream) of ``performed_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(write_line_layout(params))),
                "request": Out(stream.Signature(gnic_write_layout(params))),
                "ack": In(stream.Signature(gnic_ack_layout(params))),
                "performed": Out(stream.Signature(performed_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.tags = tags = FreeList(p.tags)
        m.submodules.performed = performed = register_slice(p, performed_layout(p))
        connect(m, performed.o, flipped(self.performed))
        entry = data.StructLayout(
            {
                "slot": p.slot_bits,
                "line": p.line_address_bits,
                "ends": 1,
                "lines": p.box_piece_bits,
            }
        )
        m.submodules.table = table = Memory(shape=entry, depth=p.tags, init=[])

        # Out: count the lines of each request.
        line, out = self.i.p, self.request.p
        write = table.write_port()
        lines = Signal(p.box_piece_bits)
        number = Signal(p.box_piece_bits)
        writes = Signal()
        issue = Signal()
        arrived = Signal()
        m.d.comb += [
            writes.eq(line.valid.any()),
            number.eq(lines + writes),
            self.request.valid.eq(self.i.valid & writes & tags.taken.valid),
            issue.eq(self.request.valid & self.request.ready),
            tags.taken.ready.eq(issue),
            out.tag.eq(tags.taken.payload),
            out.line.eq(line.line),
            out.attributes.eq(line.attributes),
            out.data.eq(line.data),
            write.en.eq(issue),
            write.addr.eq(tags.taken.payload),
            write.data.slot.eq(line.slot),
            write.data.line.eq(line.line),
            write.data.ends.eq(line.last),
            write.data.lines.eq(number),
        ]
        mask = line.write_mode.byte_mask if p.cp_mask else ~Const(0, PIECE_BYTES)
        m.d.comb += out.strobe.eq(Cat(mask & valid.replicate(PIECE_BYTES) for valid in line.valid))
        if p.reductions:
            m.d.comb += out.reduction.eq(line.write_mode.reduction)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += lines.eq(Mux(line.last, 0, number))

        # Back: what the tag stands for, or else what ends without a write.
        read = table.read_port()
        take = Signal()
        failed = Signal(reset_less=True)
        ends_here = Signal()
        m.d.comb += [
            self.ack.ready.eq((~arrived & ~ends_here) | performed.i.ready),
            take.eq(self.ack.valid & self.ack.ready),
            tags.returned.valid.eq(take),
            tags.returned.payload.eq(self.ack.p.tag),
            read.en.eq(take),
            read.addr.eq(self.ack.p.tag),
            ends_here.eq(self.i.valid & ~writes & ~arrived),
            self.i.ready.eq(issue | (ends_here & performed.i.ready)),
            performed.i.valid.eq(arrived | ends_here),
            performed.i.p.slot.eq(Mux(arrived, read.data.slot, line.slot)),
            performed.i.p.answered.eq(arrived),
            performed.i.p.failed.eq(arrived & failed),
            performed.i.p.line.eq(read.data.line),
            performed.i.p.total_valid.eq(~arrived | read.data.ends),
            performed.i.p.total_lines.eq(Mux(arrived, read.data.lines, number)),
        ]
        with m.If(self.ack.ready):
            m.d.sync += [arrived.eq(self.ack.valid), failed.eq(self.ack.p.error)]

        in_flight = Signal(range(p.tags + 1))
        m.d.sync += [
            in_flight.eq(in_flight + issue - take),
            Assert(~take | (in_flight != 0), "GnicWrite: an answer that nobody asked for\n"),
            Assert(~self.i.valid | writes | line.last, "GnicWrite: a line without pieces\n"),
        ]
        return m
