"""Atomic splitter: turns the reduction of a line into one of each element, for AtomicStores."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.axi import WORD_BYTES, is_wide
from hw.layouts.ports import gnic_ack_layout, gnic_write_layout
from hw.lib.one_hot import lowest_one
from hw.params import PIECE_BYTES, TmaParams


class AtomicSplitter(wiring.Component):
    """Passes writes of lines on, and turns each reduction into reductions of single elements.

    The elements of a reduction have its tag, and go in the order of their addresses. The reduction
    is answered when all of them are.

    Latency: none for a write, one clock for a reduction; none for an answer. Throughput: a write,
    or an element of a reduction, a clock; a reduction takes one clock more. Back-pressure: a
    reduction waits while as many as ``params.axi_reductions`` are in flight, and holds up all
    behind it.

    Errors: a reduction is answered with the first error of its elements. Its other elements may
    have been combined.

    Parameters
    ----------
    params : TmaParams
        With ``axi_atomics``.

    Members
    -------
    i : In(stream) of ``gnic_write_layout``; writes, and reductions that ``is_atomic`` selects
    o : Out(stream) of ``gnic_write_layout``; writes, and reductions of one element
    ack : In(stream) of ``gnic_ack_layout``; answers to ``o``
    answered : Out(stream) of ``gnic_ack_layout``; answers to ``i``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        write = stream.Signature(gnic_write_layout(params))
        ack = stream.Signature(gnic_ack_layout(params))
        super().__init__({"i": In(write), "o": Out(write), "ack": In(ack), "answered": Out(ack)})

    def elaborate(self, platform) -> Module:
        m = Module()
        i, o = self.i, self.o
        reduces = i.p.reduction.enabled
        is_split = Signal()  # a reduction waits at ``i``, and ``left`` is of it
        left = Signal(self.params.line_bytes // WORD_BYTES)  # words that were not sent
        lowest = lowest_one(left)
        element, rest = Signal.like(left), Signal.like(left)
        begins = Signal()
        may_begin = self._count(m, begins)
        m.d.comb += [
            begins.eq(i.valid & reduces & ~is_split & may_begin),
            element.eq(lowest | Mux(is_wide(i.p.reduction), lowest << 1, 0)),
            rest.eq(left & ~element),
            o.p.eq(i.p),
            o.valid.eq(i.valid & (~reduces | is_split)),
            i.ready.eq(o.ready & (~reduces | (is_split & (rest == 0)))),
        ]
        with m.If(reduces):
            m.d.comb += o.p.strobe.eq(Cat(word.replicate(WORD_BYTES) for word in element))
        with m.If(begins):
            m.d.sync += [is_split.eq(1), left.eq(i.p.strobe[::WORD_BYTES])]
        with m.Elif(is_split & o.ready):
            m.d.sync += [is_split.eq(rest != 0), left.eq(rest)]
        return m

    def _count(self, m: Module, begins: Value) -> Value:
        """Answer each reduction with the last answer of its elements; pass on those of writes.

        Return whether a reduction may begin.
        """
        p = self.params
        ack, answered = self.ack, self.answered
        layout = data.StructLayout(
            {
                "tag": p.tag_bits,
                "waiting": range(p.line_bytes // WORD_BYTES + 1),  # elements without an answer
                "answer": gnic_ack_layout(p),  # the first one with an error
            }
        )
        entries = [Signal(layout, name=f"entry_{n}") for n in range(p.axi_reductions)]
        free = lowest_one(Cat(entry.waiting == 0 for entry in entries))
        pieces = sum(self.i.p.strobe[::PIECE_BYTES], start=0)
        words = PIECE_BYTES // WORD_BYTES
        elements = Mux(is_wide(self.i.p.reduction), pieces * (words // 2), pieces * words)
        m.d.comb += [
            answered.p.eq(ack.p),
            answered.valid.eq(ack.valid),
            ack.ready.eq(answered.ready),
        ]
        for entry, is_free in zip(entries, free, strict=True):
            is_answer = ack.valid & (entry.waiting != 0) & (entry.tag == ack.p.tag)
            with m.If(is_answer):
                with m.If(entry.answer.error):
                    m.d.comb += answered.p.eq(entry.answer)
                with m.If(entry.waiting != 1):
                    m.d.comb += [answered.valid.eq(0), ack.ready.eq(1)]
                with m.If(ack.ready):
                    m.d.sync += [
                        entry.waiting.eq(entry.waiting - 1),
                        entry.answer.eq(Mux(entry.answer.error, entry.answer, ack.p)),
                    ]
            with m.If(begins & is_free):
                m.d.sync += [
                    entry.tag.eq(self.i.p.tag),
                    entry.waiting.eq(elements),
                    entry.answer.error.eq(0),
                ]
        return free.any()
