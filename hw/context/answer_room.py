"""Answer room: a context whose answers wait holds up nobody else."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.ports import is_unanswered
from hw.lib.queue import Queue


class AnswerRoom(wiring.Component):
    """Passes an access only while there is room for its answer, and lets answers wait there.

    ``o_answer.ready`` is high whenever an access is unanswered, even if the context takes no
    answer. Memory must answer no access twice, or a place is lost until answers are taken.

    Latency: none for an access; that of a ``Queue`` for an answer. Throughput: one access and one
    answer a clock. Back-pressure: an access waits while ``room`` accesses have answers that were
    not taken.

    Parameters
    ----------
    shape, answer_shape : ShapeLike
        Payloads of accesses and of answers. An access with a field ``prefetch`` that is 1 has no
        answer.
    room : int
        Answers that can wait.

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
    """

    def __init__(self, shape: ShapeLike, answer_shape: ShapeLike, room: int) -> None:
        self.room = room
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "answer": Out(stream.Signature(answer_shape)),
                "o": Out(stream.Signature(shape)),
                "o_answer": In(stream.Signature(answer_shape)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        shape = self.i.p.shape()
        m.submodules.answers = answers = Queue(self.answer.p.shape(), self.room)
        connect(m, flipped(self.o_answer), answers.i)
        connect(m, answers.o, flipped(self.answer))
        free = Signal(range(self.room + 1), init=self.room)
        starts, ends = (Signal(name=name) for name in ("starts", "ends"))
        is_struct = isinstance(shape, data.StructLayout)
        has_answer = ~is_unanswered(self.i.p) if is_struct else 1
        m.d.comb += [
            self.o.valid.eq(self.i.valid & (free != 0)),
            self.o.payload.eq(self.i.payload),
            self.i.ready.eq(self.o.ready & (free != 0)),
            starts.eq(self.i.valid & self.i.ready & has_answer),
            ends.eq(self.answer.valid & self.answer.ready & (free != self.room)),
        ]
        with m.If(starts != ends):
            m.d.sync += free.eq(Mux(starts, free - 1, free + 1))
        return m
