"""Free list: hands out numbers and takes them back."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

DEEPEST_LUT_RAM = 16


class FreeList(wiring.Component):
    """Hands out the numbers 0 to ``count - 1``, each to one holder at a time.

    One number out and one back per clock. A number that came back can be handed out in the next
    clock. What is offered stays until it is taken. No input drives an output in the same clock.

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
        kind = SyncFIFO if self.count <= DEEPEST_LUT_RAM else SyncFIFOBuffered
        m.submodules.numbers = numbers = kind(width=width, depth=self.count)

        # The first round comes from a counter, later ones from what was given back: by way of a
        # register where that offers nothing else in the next clock, as a deep queue takes two.
        fresh = Signal(range(self.count + 1))
        first_round = Signal()
        spare = Signal(width, reset_less=True)
        has_spare = Signal()
        to_spare = Signal()
        taken = Signal()
        m.d.comb += [
            first_round.eq(fresh != self.count),
            taken.eq(self.taken.valid & self.taken.ready),
            self.taken.valid.eq(first_round | has_spare | numbers.r_rdy),
            self.taken.payload.eq(Mux(first_round, fresh, Mux(has_spare, spare, numbers.r_data))),
            numbers.r_en.eq(~first_round & ~has_spare & self.taken.ready),
            numbers.w_data.eq(self.returned.payload),
            numbers.w_en.eq(self.returned.valid & ~to_spare),
            self.returned.ready.eq(1),
        ]
        if kind is SyncFIFOBuffered:
            leaves = has_spare & taken & ~first_round
            m.d.comb += to_spare.eq(Mux(has_spare, leaves, first_round | ~numbers.r_rdy | taken))
            with m.If(leaves | to_spare):
                m.d.sync += [has_spare.eq(self.returned.valid), spare.eq(self.returned.payload)]
        with m.If(first_round & taken):
            m.d.sync += fresh.eq(fresh + 1)
        return m
