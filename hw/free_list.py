"""Free list: hands out numbers and takes them back."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

DEEPEST_LUT_RAM = 16


class FreeList(wiring.Component):
    """Hands out the numbers 0 to ``count - 1``, each to one holder at a time.

    One number out and one back per clock. A number that came back is handed out again after all
    that were free before it. Holds no ``ready`` chain: both sides are registered.

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

        # The first round comes from a counter, later ones from what was given back.
        fresh = Signal(range(self.count + 1))
        first_round = Signal()
        m.d.comb += [
            first_round.eq(fresh != self.count),
            self.taken.valid.eq(first_round | numbers.r_rdy),
            self.taken.payload.eq(Mux(first_round, fresh, numbers.r_data)),
            numbers.r_en.eq(~first_round & self.taken.ready),
            numbers.w_data.eq(self.returned.payload),
            numbers.w_en.eq(self.returned.valid),
            self.returned.ready.eq(1),
        ]
        with m.If(first_round & self.taken.ready):
            m.d.sync += fresh.eq(fresh + 1)
        return m
