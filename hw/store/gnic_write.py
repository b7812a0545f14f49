"""GNIC write port: tags writes and reductions of lines, and takes their answers in any order."""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.lines import performed_layout, write_line_layout
from hw.layouts.ports import clear_layout, gnic_write_layout
from hw.layouts.translation import cause_field, translated_ack_layout
from hw.lib.memory import ReadPort, RowMemory
from hw.lib.queue import Queue
from hw.lib.tags import Tags
from hw.params import PIECE_BYTES, TmaParams


class GnicWrite(wiring.Component):
    """Gives each line of a store a tag, and reports for each answer which store it belongs to.

    A line without valid pieces is not written: it ends its request at once. The number of lines of
    a request is known with its last line. It is reported with the answer to that line, or with the
    line that is not written.

    Latency: none from ``i`` to ``request``, the line waits at ``i`` until it is taken there; two
    clocks from ``ack`` to ``performed``. Throughput: one write and one answer a clock.
    Back-pressure: a line waits while all tags are in flight; for when a tag is
    free again see ``Tags``. ``ack`` waits while ``performed`` is not taken.

    Errors: an answer with ``error`` is reported as ``failed``, with the line. An answer whose tag
    is not in flight is dropped, and its tag is reported on ``wrong_tag``; later answers wait while
    the report before it is not taken. Only the last line of a request may have no valid pieces.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``write_line_layout``
    request : Out(stream) of ``gnic_write_layout``
    ack : In(stream) of ``translated_ack_layout``
    performed : Out(stream) of ``performed_layout``
    wrong_tag : Out(stream) of the tag of an answer that was dropped
    clear : In of ``clear_layout``; the state of all tags is to be cleared after a reset
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(write_line_layout(params))),
                "request": Out(stream.Signature(gnic_write_layout(params))),
                "ack": In(stream.Signature(translated_ack_layout(params))),
                "performed": Out(stream.Signature(performed_layout(params))),
                "wrong_tag": Out(stream.Signature(params.tag_bits)),
                "clear": In(clear_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.tags = tags = Tags(p)
        m.submodules.performed = performed = Queue(performed_layout(p), 2)
        connect(m, performed.o, flipped(self.performed))
        entry = data.StructLayout(
            {
                "slot": p.slot_bits,
                "line": p.line_address_bits,
                "last": 1,
                "lines": p.box_piece_bits,
            }
        )
        m.submodules.table = table = RowMemory(entry, p.tags)

        # Requests: count the lines of each store.
        line, out = self.i.p, self.request.p
        write = table.write_port()
        lines_q = Signal(p.box_piece_bits)
        lines_d = Signal(p.box_piece_bits)
        has_pieces = line.has_pieces
        may_write = tags.taken.valid & self.request.ready
        write_fire = Signal()
        answer_valid = Signal()
        m.d.comb += [
            lines_d.eq(lines_q + has_pieces),
            self.request.valid.eq(self.i.valid & has_pieces & tags.taken.valid),
            write_fire.eq(self.request.valid & self.request.ready),
            tags.taken.ready.eq(write_fire),
            out.tag.eq(tags.taken.payload),
            out.line.eq(line.line),
            out.attributes.eq(line.attributes),
            out.data.eq(line.data),
            write.en.eq(write_fire),
            write.addr.eq(tags.taken.payload),
            write.data.slot.eq(line.slot),
            write.data.line.eq(line.line),
            write.data.last.eq(line.last),
            write.data.lines.eq(lines_d),
        ]
        mask = line.write_mode.byte_mask if p.cp_mask else ~Const(0, PIECE_BYTES)
        m.d.comb += out.strobe.eq(Cat(mask & valid.replicate(PIECE_BYTES) for valid in line.valid))
        if p.reductions:
            m.d.comb += out.reduction.eq(line.write_mode.reduction)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += lines_q.eq(Mux(line.last, 0, lines_d))

        # Answers: report the line that the tag stands for, or a request that ends without a write.
        read = table.read_port()
        # A line that is not written waits for a clock without any answer, right or wrong, so that
        # the check of a tag is in no path to ``i.ready``.
        ends_unwritten = Signal()
        ack_valid = Signal()
        answer = self._take_answers(m, tags, read, (ack_valid, answer_valid), performed.i.ready)
        m.d.comb += [
            ends_unwritten.eq(self.i.valid & ~has_pieces & ~ack_valid),
            self.i.ready.eq(Mux(has_pieces, may_write, ~ack_valid & performed.i.ready)),
            performed.i.valid.eq(answer_valid | ends_unwritten),
            performed.i.p.slot.eq(Mux(answer_valid, read.data.slot, line.slot)),
            performed.i.p.answered.eq(answer_valid),
            performed.i.p.failed.eq(answer_valid & answer.error),
            *(performed.i.p[name].eq(answer[name]) for name in cause_field(p)),
            performed.i.p.line.eq(read.data.line),
            performed.i.p.total_valid.eq(~answer_valid | read.data.last),
            performed.i.p.total_lines.eq(Mux(answer_valid, read.data.lines, lines_d)),
        ]
        m.d.sync += Assert(
            ~self.i.valid | has_pieces | line.last, "gnic_write: a line has no pieces\n"
        )
        return m

    def _take_answers(
        self,
        m: Module,
        tags: Tags,
        read: ReadPort,
        valid: tuple[Signal, Signal],
        is_taken: Value,
    ) -> data.View:
        """Look up the tag of each answer, and drop the answer if the tag is wrong.

        Drive the two signals ``valid``: there is an answer, and its tag is right. ``read`` has its
        line. It leaves if it ``is_taken``, and no wrong tag waits to be reported. Return the
        answer.
        """
        p = self.params
        m.submodules.wrong_tags = wrong_tags = Queue(p.tag_bits, 2)
        connect(m, wrong_tags.o, flipped(self.wrong_tag))
        ack_fire = Signal()
        ack_valid, answer_valid = valid
        is_new = Signal()  # the answer came in the clock before
        ack = Signal(translated_ack_layout(p), reset_less=True)
        m.d.comb += [
            tags.clear.eq(self.clear),
            answer_valid.eq(ack_valid & ~tags.wrong),
            wrong_tags.i.valid.eq(is_new & tags.wrong),
            wrong_tags.i.payload.eq(ack.tag),
            # The check of a tag is not in this path: there is room for two wrong ones.
            self.ack.ready.eq(is_taken & (wrong_tags.level == 0)),
            ack_fire.eq(self.ack.valid & self.ack.ready),
            tags.answer.valid.eq(ack_fire),
            tags.answer.payload.eq(self.ack.p.tag),
            read.en.eq(ack_fire),
            read.addr.eq(self.ack.p.tag),
        ]
        m.d.sync += [
            is_new.eq(ack_fire),
            Assert(
                ~wrong_tags.i.valid | wrong_tags.i.ready, "gnic_write: a wrong tag is not taken\n"
            ),
        ]
        with m.If(ack_fire):
            m.d.sync += [ack_valid.eq(1), ack.eq(self.ack.p)]
        with m.Elif(is_taken):
            m.d.sync += ack_valid.eq(0)
        return ack
