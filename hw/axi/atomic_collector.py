"""Atomic collector: turns the AtomicStores of the elements of a piece into one reduction."""

from functools import cache

from amaranth.hdl import Array, Assert, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.axi import WORD_BYTES, AtomicOp
from hw.layouts.isa import ElementType, MemoryAttributes, ReductionOp
from hw.layouts.ports import gnic_ack_layout, gnic_write_layout
from hw.params import PIECE_BYTES, TmaParams

WORDS = PIECE_BYTES // WORD_BYTES
"""Words of a piece."""

REDUCTION_OPS = {
    AtomicOp.ADD: ReductionOp.ADD,
    AtomicOp.CLR: ReductionOp.AND,
    AtomicOp.EOR: ReductionOp.XOR,
    AtomicOp.SET: ReductionOp.OR,
    AtomicOp.SMAX: ReductionOp.MAX,
    AtomicOp.SMIN: ReductionOp.MIN,
    AtomicOp.UMAX: ReductionOp.MAX,
    AtomicOp.UMIN: ReductionOp.MIN,
}
"""Reductions that are the operations of AtomicStores; AND has the inverted bytes."""


@cache
def atomic_store_layout(params: TmaParams) -> data.StructLayout:
    """AtomicStore of an element.

    Members
    -------
    id : AWID
    op : operation
    wide : the element has 8 bytes, not 4
    word : number of the element's first word in its line
    line : global address divided by ``line_bytes``
    attributes : cache hints
    data : bytes of the piece of the element
    """
    return data.StructLayout(
        {
            "id": params.axi_write_id_bits,
            "op": AtomicOp,
            "wide": 1,
            "word": range(params.line_bytes // WORD_BYTES),
            "line": params.line_address_bits,
            "attributes": MemoryAttributes,
            "data": PIECE_BYTES * 8,
        }
    )


class AtomicCollector(wiring.Component):
    """Reduces a piece when the last of its elements has come; answers each of them then.

    The elements of a piece come one after the other, in the order of their addresses, and all of
    them: ``AtomicSplitter`` sends them so. It is a part of ``MemoryAdapter``, whose memory reduces
    pieces. Latency: one clock from the last element to ``o``, and from ``ack`` to ``b``.
    Throughput and back-pressure: a piece is taken when the one before it is answered. Errors:
    those of ``ack`` are those of all elements.

    Parameters
    ----------
    params : TmaParams
        With ``axi_atomics``.

    Members
    -------
    i : In(stream) of ``atomic_store_layout``
    o : Out(stream) of ``gnic_write_layout``
    ack : In(stream) of ``gnic_ack_layout``; answers to ``o``
    b : Out(stream) of ``gnic_ack_layout``; the answer of each element
    tag : Out; tag of the piece that is reduced
    waits : Out(1); a piece is reduced, or its elements are answered
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        ack = stream.Signature(gnic_ack_layout(params))
        super().__init__(
            {
                "i": In(stream.Signature(atomic_store_layout(params))),
                "o": Out(stream.Signature(gnic_write_layout(params))),
                "ack": In(ack),
                "b": Out(ack),
                "tag": Out(params.tag_bits),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        store = Signal(atomic_store_layout(p), reset_less=True)
        words = Signal(data.ArrayLayout(WORD_BYTES * 8, WORDS), reset_less=True)
        has_piece = Signal()  # that is to be reduced
        answers = Signal(range(WORDS + 1))  # that are to be given
        answer = Signal(gnic_ack_layout(p), reset_less=True)
        place = self.i.p.word[: (WORDS - 1).bit_length()]
        takes = self.i.valid & self.i.ready
        is_last = place == Mux(self.i.p.wide, WORDS - 2, WORDS - 1)
        expected = Signal(range(WORDS))
        came = data.View(words.shape(), self.i.p.data)
        for number in range(WORDS):
            is_word = (place == number) | (self.i.p.wide & ((place | 1) == number))
            with m.If(takes & is_word):
                m.d.sync += words[number].eq(came[number])
        with m.If(takes):
            m.d.sync += [
                store.eq(self.i.p),
                expected.eq(expected + Mux(self.i.p.wide, 2, 1)),
                self.waits.eq(is_last),
                has_piece.eq(is_last),
            ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += has_piece.eq(0)
        with m.If(self.ack.valid & self.ack.ready):
            m.d.sync += [answer.eq(self.ack.p), answers.eq(Mux(store.wide, WORDS // 2, WORDS))]
        with m.If(self.b.valid & self.b.ready):
            m.d.sync += [answers.eq(answers - 1), self.waits.eq(answers != 1)]

        signed = (store.op == AtomicOp.SMAX) | (store.op == AtomicOp.SMIN)
        wide_type = Mux(signed, ElementType.S64, ElementType.U64)
        narrow_type = Mux(signed, ElementType.S32, ElementType.U32)
        bytes_ = Mux(store.op == AtomicOp.CLR, ~words.as_value(), words.as_value())
        piece = store.word >> (WORDS - 1).bit_length()
        write = self.o.p
        ops = Array(Const(REDUCTION_OPS[op].value, 3) for op in AtomicOp)
        m.d.comb += [
            self.i.ready.eq(~self.waits),
            self.tag.eq(store.id),
            self.o.valid.eq(has_piece),
            write.tag.eq(store.id),
            write.line.eq(store.line),
            write.attributes.eq(store.attributes),
            write.reduction.enabled.eq(1),
            write.reduction.op.eq(ops[store.op.as_value()]),
            write.reduction.element_type.eq(Mux(store.wide, wide_type, narrow_type)),
            write.strobe.word_select(piece, PIECE_BYTES).eq(2**PIECE_BYTES - 1),
            write.data.eq(bytes_.replicate(p.lanes)),
            self.ack.ready.eq(1),
            self.b.valid.eq(answers != 0),
            self.b.p.eq(answer),
        ]
        m.d.sync += Assert(
            ~takes | (place == expected), "atomic_collector: an element of a piece is missing\n"
        )
        return m
