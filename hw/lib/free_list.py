"""Free list: hands out numbers and takes them back."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.lib.queue import SMALL, Queue


class FreeList(wiring.Component):
    """Hands out the numbers 0 to ``count - 1``, each to one holder at a time.

    One number out and one back per clock. A number that came back can be handed out in the next
    clock. What is offered stays until it is taken. No input drives an output in the same clock. The
    first number is offered a clock after reset.

    Parameters
    ----------
    count : int
        A power of two.

    Members
    -------
    taken : Out(stream), a free number; none is free while it is not valid
    returned : In(stream), a number that its holder gives back; always ready
    """

    def __init__(self, count: int):
        self.count = count
        width = (count - 1).bit_length()
        super().__init__(
            {"taken": Out(stream.Signature(width)), "returned": In(stream.Signature(width))}
        )

    def elaborate(self, platform):
        m = Module()
        width = (self.count - 1).bit_length()
        kind = SyncFIFO if self.count <= SMALL else SyncFIFOBuffered
        m.submodules.numbers = numbers = kind(width=width, depth=self.count)

        # Offered are two, so that no path leads from what is taken to the queue of the others.
        m.submodules.offered = offered = Queue(width, 2)
        connect(m, offered.o, flipped(self.taken))

        # The first round comes from a counter, later ones from what was given back: past the queue
        # if nothing is offered from there, as a deep one takes two clocks.
        fresh = Signal(range(self.count + 1))
        first_round = Signal()
        past = Signal()
        number = Mux(numbers.r_rdy, numbers.r_data, self.returned.payload)
        m.d.comb += [
            first_round.eq(~fresh[-1]),
            past.eq(offered.i.ready & ~first_round & ~numbers.r_rdy),
            offered.i.valid.eq(first_round | numbers.r_rdy | self.returned.valid),
            offered.i.payload.eq(Mux(first_round, fresh, number)),
            numbers.r_en.eq(offered.i.ready & ~first_round),
            numbers.w_data.eq(self.returned.payload),
            numbers.w_en.eq(self.returned.valid & ~past),
            self.returned.ready.eq(1),
        ]
        with m.If(offered.i.ready):
            m.d.sync += fresh.eq(fresh + first_round)
        return m
