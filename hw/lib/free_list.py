"""Free list: hands out numbers and takes them back."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.lib.queue import Queue


class FreeList(wiring.Component):
    """Hands out the numbers 0 to ``count - 1``, each to one holder at a time.

    Latency: a returned number can be handed out in the next clock, but if others are free then, and
    there are more than ``SMALL`` numbers, up to two clocks after that; the first number is offered
    in the clock after reset. Throughput: one number out and one number back a clock. Back-pressure:
    an offered number stays until it is taken; ``returned`` is always ready. No input drives an
    output in the same clock.

    Parameters
    ----------
    count : int
        How many numbers there are; a power of two.
    mark_bits : int
        Width of a mark that is returned with each number, in the bits above it, and is handed out
        with the number again. The first mark of each number is 0.

    Members
    -------
    taken : Out(stream.Signature((count - 1).bit_length() + mark_bits))
        A free number. While ``taken.valid`` is low, no number can be handed out.
    returned : In(stream.Signature((count - 1).bit_length() + mark_bits))
        A number that its holder gives back.
    """

    def __init__(self, count: int, *, mark_bits: int = 0) -> None:
        self.count = count
        self.mark_bits = mark_bits
        width = (count - 1).bit_length() + mark_bits
        super().__init__(
            {"taken": Out(stream.Signature(width)), "returned": In(stream.Signature(width))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        width = (self.count - 1).bit_length() + self.mark_bits
        m.submodules.numbers = numbers = Queue(width, self.count)

        # A queue of two offered numbers: no path leads from ``taken.ready`` to ``numbers``.
        m.submodules.offered = offered = Queue(width, 2)
        connect(m, offered.o, flipped(self.taken))

        # In the first round a counter makes the numbers. Later, returned numbers are used. A
        # returned number bypasses ``numbers`` if that has none to offer, because a deep one takes
        # two clocks.
        next_number = Signal(range(self.count + 1))
        is_first_round = Signal()
        bypass = Signal()
        free_number = Mux(numbers.o.valid, numbers.o.payload, self.returned.payload)
        m.d.comb += [
            is_first_round.eq(~next_number[-1]),
            bypass.eq(offered.i.ready & ~is_first_round & ~numbers.o.valid),
            offered.i.valid.eq(is_first_round | numbers.o.valid | self.returned.valid),
            offered.i.payload.eq(Mux(is_first_round, next_number, free_number)),
            numbers.o.ready.eq(offered.i.ready & ~is_first_round),
            numbers.i.payload.eq(self.returned.payload),
            numbers.i.valid.eq(self.returned.valid & ~bypass),
            self.returned.ready.eq(1),
        ]
        with m.If(offered.i.ready):
            m.d.sync += next_number.eq(next_number + is_first_round)
        return m
