"""Map guard: lets a context read tensor maps in its own global memory only."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.contexts import address_range_layout, granule_of_map, is_in_range
from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.ports import descriptor_fill_layout
from hw.lib.queue import Queue
from hw.lib.register_slice import DoubleBuffer
from hw.params import TmaParams


class MapGuard(wiring.Component):
    """Passes reads of tensor maps inside a range of addresses, and answers all others.

    A read outside does not get to memory. Its answer has an error, and comes in the order of the
    reads, as all answers do.

    Latency: one clock for a read, none for an answer; an answer passes at the earliest one clock
    after its read. Throughput: one read and one answer a clock. Back-pressure: reads wait for
    memory, and while ``outstanding`` reads are unanswered; ``o_answer`` waits while ``answer`` is
    not taken, or takes the answer to a read outside.

    Parameters
    ----------
    params : TmaParams
    outstanding : int
        Largest number of unanswered reads.

    Members
    -------
    i : In(stream of 64 bits)
        Addresses that the context reads, multiples of 64.
    answer : Out(stream of ``descriptor_fill_layout``)
        Answers for the context.
    o : Out(stream of 64 bits)
        Addresses that are read in memory.
    o_answer : In(stream of ``descriptor_fill_layout``)
        Answers of memory, in order.
    allowed : In(address_range_layout(params))
        Range of the context. It may change while no read is under way.
    """

    def __init__(self, params: TmaParams, outstanding: int) -> None:
        self.params = params
        self.outstanding = outstanding
        fill = stream.Signature(descriptor_fill_layout(params))
        super().__init__(
            {
                "i": In(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "answer": Out(fill),
                "o": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "o_answer": In(fill),
                "allowed": In(address_range_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.reads = reads = DoubleBuffer(GLOBAL_ADDRESS_BITS)
        m.submodules.order = order = Queue(1, self.outstanding)  # 1: of memory, 0: refused
        connect(m, flipped(self.i), reads.i)
        is_inside = Signal()
        m.d.comb += [
            is_inside.eq(is_in_range(self.allowed, granule_of_map(self.params, reads.o.payload))),
            self.o.valid.eq(reads.o.valid & is_inside & order.i.ready),
            self.o.payload.eq(reads.o.payload),
            reads.o.ready.eq(order.i.ready & (self.o.ready | ~is_inside)),
            order.i.valid.eq(reads.o.valid & reads.o.ready),
            order.i.payload.eq(is_inside),
            order.o.ready.eq(self.answer.valid & self.answer.ready),
        ]
        with m.If(order.o.valid & order.o.payload):
            m.d.comb += [
                self.answer.valid.eq(self.o_answer.valid),
                self.answer.p.eq(self.o_answer.p),
                self.o_answer.ready.eq(self.answer.ready),
            ]
        with m.Elif(order.o.valid):
            m.d.comb += [self.answer.valid.eq(1), self.answer.p.error.eq(1)]
        return m
