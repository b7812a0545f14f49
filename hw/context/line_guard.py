"""Line guard: lets a context access lines of its own global memory only."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.contexts import address_range_layout, granule_of_line, is_in_range
from hw.layouts.ports import is_unanswered
from hw.lib.arbiter import Arbiter
from hw.lib.register_slice import DoubleBuffer
from hw.params import TmaParams


class LineGuard(wiring.Component):
    """Passes reads or writes of lines inside a range of addresses, and answers all others.

    An access outside does not get to memory. Its answer has an error; a prefetch, which has no
    answer, is dropped.

    Latency: one clock for an access, none for an answer. Throughput: one access and one answer a
    clock. Back-pressure: accesses wait for memory, and those behind one outside until its answer is
    taken; ``o_answer`` waits while ``answer`` is not taken, or takes the answer to an access
    outside.

    Parameters
    ----------
    params : TmaParams
    shape, answer_shape : StructLayout
        Payloads of accesses (with ``tag`` and ``line``) and of answers (with ``tag`` and
        ``error``).

    Members
    -------
    i : In(stream.Signature(shape))
        Accesses of the context.
    answer : Out(stream.Signature(answer_shape))
        Answers for the context.
    o : Out(stream.Signature(shape))
        Accesses of memory.
    o_answer : In(stream.Signature(answer_shape))
        Answers of memory.
    allowed : In(address_range_layout(params))
        Range of the context. It may change while no access is under way.
    """

    def __init__(
        self, params: TmaParams, shape: data.StructLayout, answer_shape: data.StructLayout
    ) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "answer": Out(stream.Signature(answer_shape)),
                "o": Out(stream.Signature(shape)),
                "o_answer": In(stream.Signature(answer_shape)),
                "allowed": In(address_range_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.accesses = accesses = DoubleBuffer(self.i.p.shape())
        m.submodules.answers = answers = Arbiter(self.answer.p.shape(), 2)
        connect(m, flipped(self.i), accesses.i)
        connect(m, answers.o, flipped(self.answer))
        refusal = answers.i[0]
        connect(m, flipped(self.o_answer), answers.i[1])
        access = accesses.o.p
        is_inside = Signal()
        is_prefetch = is_unanswered(access)
        m.d.comb += [
            is_inside.eq(is_in_range(self.allowed, granule_of_line(self.params, access.line))),
            self.o.valid.eq(accesses.o.valid & is_inside),
            self.o.p.eq(access),
            refusal.valid.eq(accesses.o.valid & ~is_inside & ~is_prefetch),
            refusal.p.tag.eq(access.tag),
            refusal.p.error.eq(1),
        ]
        with m.If(is_inside):
            m.d.comb += accesses.o.ready.eq(self.o.ready)
        with m.Else():
            m.d.comb += accesses.o.ready.eq(refusal.ready | is_prefetch)
        return m
