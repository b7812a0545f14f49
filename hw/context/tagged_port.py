"""Tagged port: shares a port to memory, whose answers come in any order, between contexts."""

from amaranth.hdl import Cat, Const, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.lib.arbiter import Arbiter


class TaggedPort(wiring.Component):
    """Passes the accesses of contexts to memory, and returns each answer to its context.

    A tag at memory is that of the context, with the number of the context above it.

    Latency: none. Throughput: one access a clock for all contexts together; those that have one
    take turns. Back-pressure: accesses wait for memory. An answer that its context does not take
    blocks the answers behind it, so a context must have room for the answers to its accesses.

    Parameters
    ----------
    inner, outer : StructLayout
        Payload of an access of a context, and at memory, where ``tag`` is wider.
    inner_answer, outer_answer : StructLayout
        Payload of an answer for a context, and of memory.
    contexts : int
        A power of two.

    Members
    -------
    i : In(stream.Signature(inner)).array(contexts)
        Accesses of each context.
    answer : Out(stream.Signature(inner_answer)).array(contexts)
        Answers for each context.
    o : Out(stream.Signature(outer))
        Accesses of memory.
    o_answer : In(stream.Signature(outer_answer))
        Answers of memory.
    """

    def __init__(
        self,
        inner: data.StructLayout,
        outer: data.StructLayout,
        inner_answer: data.StructLayout,
        outer_answer: data.StructLayout,
        contexts: int,
    ) -> None:
        self.contexts = contexts
        super().__init__(
            {
                "i": In(stream.Signature(inner)).array(contexts),
                "answer": Out(stream.Signature(inner_answer)).array(contexts),
                "o": Out(stream.Signature(outer)),
                "o_answer": In(stream.Signature(outer_answer)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.accesses = accesses = Arbiter(self.o.p.shape(), self.contexts)
        connect(m, accesses.o, flipped(self.o))
        answered = self.o_answer.p.tag
        ports = zip(self.i, self.answer, accesses.i, strict=True)
        for context, (own, answer, access) in enumerate(ports):
            tag_bits = len(own.p.tag)
            number = Const(context, len(access.p.tag) - tag_bits)
            is_its = answered[tag_bits:] == context
            m.d.comb += [
                access.valid.eq(own.valid),
                own.ready.eq(access.ready),
                *_copy(own.p, access.p),
                access.p.tag.eq(Cat(own.p.tag, number)),
                answer.valid.eq(self.o_answer.valid & is_its),
                *_copy(self.o_answer.p, answer.p),
                answer.p.tag.eq(answered),
            ]
            with m.If(is_its):
                m.d.comb += self.o_answer.ready.eq(answer.ready)
        return m


def _copy(source: data.View, target: data.View) -> list:
    """Return assignments of all fields of a payload but ``tag``."""
    names = (str(name) for name, _ in target.shape() if name != "tag")
    return [target[name].eq(source[name]) for name in names]
