"""Arbiter: merges several streams into one, in turn."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


def pick(values: Sequence[Value], number: Value) -> Value:
    """Return the value of this number, by a tree of multiplexers: the fewest LUTs."""
    if len(values) == 1:
        return values[0]
    pairs = [
        Mux(number[0], values[at + 1], values[at]) if at + 1 < len(values) else values[at]
        for at in range(0, len(values), 2)
    ]
    return pick(pairs, number[1:])


class Arbiter(wiring.Component):
    """Merges streams round robin: the next valid input after the one that was chosen last.

    Latency: none. Throughput: a payload a clock. An input that is offered at ``o`` stays there
    until its payload is taken. Back-pressure: ``o.ready`` reaches only the chosen input. An input
    waits for at most one payload of every other input; with ``packets``, for at most one packet of
    each.

    Parameters
    ----------
    shape : ShapeLike
        Payload of all streams.
    ways : int
        Number of inputs.
    packets : bool
        The payload has a field ``last``. The payloads of an input up to one with ``last`` are a
        packet, and leave without a payload of another input between them.

    Members
    -------
    i : In(stream.Signature(shape)).array(ways)
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape: ShapeLike, ways: int, *, packets: bool = False) -> None:
        self.ways = ways
        self.packets = packets
        super().__init__(
            {
                "i": In(stream.Signature(shape)).array(ways),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        next_way = Signal(range(self.ways))
        chosen = Signal(range(self.ways))
        locked = Signal()
        last_way = Signal(range(self.ways), init=self.ways - 1)
        for way in reversed(range(self.ways)):
            with m.If(self.i[way].valid):
                m.d.comb += next_way.eq(way)
        for way in reversed(range(1, self.ways)):
            with m.If(self.i[way].valid & (way > last_way)):
                m.d.comb += next_way.eq(way)
        with m.If(locked):
            m.d.comb += chosen.eq(last_way)
        with m.Else():
            m.d.comb += chosen.eq(next_way)
        valids = [i.valid for i in self.i]
        m.d.comb += [
            # Without packets, the chosen input is valid if any is.
            self.o.valid.eq(pick(valids, chosen) if self.packets else Cat(valids).any()),
            self.o.payload.eq(pick([Value.cast(i.payload) for i in self.i], chosen)),
            *(i.ready.eq(self.o.ready & (chosen == way)) for way, i in enumerate(self.i)),
        ]
        with m.If(self.o.valid):
            in_packet = ~self.o.p.last if self.packets else 0
            m.d.sync += [locked.eq(~self.o.ready | in_packet), last_way.eq(chosen)]
        return m
