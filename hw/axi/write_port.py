"""Write port: writes lines, and the completion records of a host, by AXI4."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.axi import (
    ATOMIC_STORE,
    WORD_BYTES,
    Burst,
    Response,
    atomic_op,
    aw_layout,
    axi_write_layout,
    axi_write_names,
    b_layout,
    beats_of,
    is_error,
    is_wide,
    place_of,
    w_layout,
)
from hw.layouts.host import COMPLETION_BYTES, CompletionAnswer, completion_write_layout
from hw.layouts.isa import ReductionOp
from hw.layouts.ports import gnic_ack_layout, gnic_write_layout
from hw.lib.arbiter import Arbiter
from hw.lib.one_hot import index_of, lowest_one
from hw.lib.register_slice import DoubleBuffer, PipelineRegister
from hw.params import TmaParams


def completion_ports(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the members for the completion records of a host; none without one."""
    if not params.host:
        return {}
    return {
        "completion_write": In(stream.Signature(completion_write_layout(params))),
        "completion_ack": Out(stream.Signature(CompletionAnswer)),
    }


class WritePort(wiring.Component):
    """Writes each line with its tag as its id, and all completion records with one id above them.

    A line is a burst of as many beats as it needs, or one beat of a part of the port's width; its
    strobes say which bytes are written. It is aligned to its size, so that no burst leaves its
    4 KiB. Writes may be answered in any order. A completion record is a line of which its bytes
    are written. With ``axi_atomics``, the reduction of an element is an AtomicStore of one beat.

    Latency: two clocks from a line to ``aw`` and to its first beat, and two from ``b`` to its
    answer. ``aw`` and ``w`` do not wait for each other within a line. Throughput: a beat, and an
    answer, a clock. Back-pressure: a line is taken when the line before is on its way. ``aw``,
    ``w`` and ``b.ready`` come from registers.

    Errors: SLVERR and DECERR mark the answer.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits`` and ``stores``.

    Members
    -------
    gnic_write : In(stream) of ``gnic_write_layout``
    gnic_ack : Out(stream) of ``gnic_ack_layout``
    aw : Out(stream) of ``aw_layout``
    w : Out(stream) of ``w_layout``
    b : In(stream) of ``b_layout``
    completion_write : In(stream) of ``completion_write_layout``
        Completion records. This port and the following exist with ``host``.
    completion_ack : Out(stream) of ``CompletionAnswer``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        ports = {
            "gnic_write": In(stream.Signature(gnic_write_layout(params))),
            "gnic_ack": Out(stream.Signature(gnic_ack_layout(params))),
            "aw": Out(stream.Signature(aw_layout(params))),
            "w": Out(stream.Signature(w_layout(params))),
            "b": In(stream.Signature(b_layout(params))),
        }
        super().__init__(ports | completion_ports(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.writes = writes = Arbiter(axi_write_layout(p), 1 + p.host)
        m.submodules.line = line = PipelineRegister(axi_write_layout(p))
        m.submodules.aw_slice = aw_slice = DoubleBuffer(aw_layout(p))
        m.submodules.w_slice = w_slice = DoubleBuffer(w_layout(p))
        m.submodules.b_slice = b_slice = DoubleBuffer(b_layout(p))
        connect(m, writes.o, line.i)
        connect(m, aw_slice.o, flipped(self.aw))
        connect(m, w_slice.o, flipped(self.w))
        connect(m, flipped(self.b), b_slice.i)
        lines, *completions = writes.i
        self._take_line(m, lines)
        for completion in completions:
            self._take_completion(m, completion)
        self._write(m, line.o, aw_slice.i, w_slice.i)
        self._answer(m, b_slice.o)
        return m

    def _take_line(self, m: Module, lines) -> None:
        """Take a line, whose tag is its id."""
        write = self.gnic_write.p
        m.d.comb += [
            lines.valid.eq(self.gnic_write.valid),
            self.gnic_write.ready.eq(lines.ready),
            lines.p.id.eq(write.tag),
            *(lines.p[name].eq(write[name]) for name in axi_write_names(self.params)),
        ]

    def _take_completion(self, m: Module, completions) -> None:
        """Take a completion record, as a line with the bytes of the record in each piece."""
        p = self.params
        write = self.completion_write.p
        place = write.address[: p.lane_bits]
        strobe = completions.p.strobe.word_select(place, COMPLETION_BYTES)
        m.d.comb += [
            completions.valid.eq(self.completion_write.valid),
            self.completion_write.ready.eq(completions.ready),
            completions.p.id.eq(1 << p.tag_bits),
            completions.p.line.eq(write.address >> p.lane_bits),
            completions.p.data.eq(write.record.as_value().replicate(p.lanes)),
            strobe.eq(2**COMPLETION_BYTES - 1),
        ]

    def _write(self, m: Module, lines, aw, w) -> None:
        """Give each line as an address and its beats."""
        p = self.params
        line = lines.p
        length, size = beats_of(p, p.line_bytes)
        # Of the line: whether its parts are sent, before and with this clock.
        was_addressed = Signal()
        had_beats = Signal()
        is_addressed = Signal()
        has_beats = Signal()
        number = Signal(range(length + 1))  # of the beat
        m.d.comb += [
            is_addressed.eq(was_addressed | aw.ready),
            has_beats.eq(had_beats | (w.ready & w.p.last)),
            aw.valid.eq(lines.valid & ~was_addressed),
            aw.p.id.eq(line.id),
            aw.p.addr.eq(Cat(Const(0, p.lane_bits + 4), line.line)),
            aw.p.len.eq(length),
            aw.p.size.eq(size),
            aw.p.burst.eq(Burst.INCR),
            aw.p.cache.eq(p.axi_cache),
            aw.p.prot.eq(p.axi_prot),
            aw.p.user.eq(line.attributes),
            w.valid.eq(lines.valid & ~had_beats),
            w.p.last.eq(number == length),
        ]
        beat, bytes_ = number, line.data
        if p.axi_atomics:
            beat, bytes_ = self._combine(m, line, aw, w, number)
        if p.axi_bytes > p.line_bytes:
            places = p.axi_bytes // p.line_bytes
            place = place_of(p, aw.p.addr, p.line_bytes)
            m.d.comb += [
                w.p.data.eq(bytes_.replicate(places)),
                w.p.strb.word_select(place, p.line_bytes).eq(line.strobe),
            ]
        else:
            m.d.comb += [
                w.p.data.eq(bytes_.word_select(beat, p.axi_data_bits)),
                w.p.strb.eq(line.strobe.word_select(beat, p.axi_bytes)),
            ]
        is_done = is_addressed & has_beats
        m.d.comb += lines.ready.eq(is_done)
        with m.If(lines.valid):
            m.d.sync += [
                was_addressed.eq(is_addressed & ~has_beats),
                had_beats.eq(has_beats & ~is_addressed),
            ]
            with m.If(w.valid & w.ready):
                m.d.sync += number.eq(Mux(w.p.last, 0, number + 1))

    def _combine(self, m: Module, line, aw, w, number: Value) -> tuple[Value, Value]:
        """Make the reduction of an element an AtomicStore.

        Return the number of the beat in its line, and the bytes of the line.
        """
        reduction = line.reduction
        word = index_of(lowest_one(line.strobe[::WORD_BYTES]))
        offset = Cat(Const(0, (WORD_BYTES - 1).bit_length()), word)  # in the line
        with m.If(reduction.enabled):
            m.d.comb += [
                aw.p.addr.eq(Cat(offset, line.line)),
                aw.p.len.eq(0),
                aw.p.size.eq(Mux(is_wide(reduction), 3, 2)),
                aw.p.atop.eq(ATOMIC_STORE | atomic_op(reduction)),
                w.p.last.eq(1),
            ]
        clears = reduction.enabled & (reduction.op == ReductionOp.AND)
        beat = Mux(reduction.enabled, offset >> (self.params.axi_bytes - 1).bit_length(), number)
        return beat, Mux(clears, ~line.data, line.data)

    def _answer(self, m: Module, answers) -> None:
        """Give the answers of writes."""
        ack = self.gnic_ack
        is_completion = answers.p.id[-1] if self.params.host else Const(0)
        m.d.comb += [
            ack.valid.eq(answers.valid & ~is_completion),
            answers.ready.eq(ack.ready),
            ack.p.tag.eq(answers.p.id),
            ack.p.error.eq(is_error(answers.p.resp)),
            ack.p.decode.eq(answers.p.resp == Response.DECERR),
        ]
        if self.params.host:
            m.d.comb += [
                self.completion_ack.valid.eq(answers.valid & is_completion),
                self.completion_ack.p.error.eq(is_error(answers.p.resp)),
            ]
            with m.If(is_completion):
                m.d.comb += answers.ready.eq(self.completion_ack.ready)
