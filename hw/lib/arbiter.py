"""Arbiter: merges several streams into one, in turn."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


def _first(ways: Value) -> Value:
    """Return only the lowest bit of ``ways`` that is set."""
    return Cat(way & ~ways[:number].any() for number, way in enumerate(ways))


def _pick(values: Sequence[Value], number: Value) -> Value:
    """Return the value of this number, by a tree of multiplexers: the fewest LUTs."""
    if len(values) == 1:
        return values[0]
    pairs = [
        Mux(number[0], values[at + 1], values[at]) if at + 1 < len(values) else values[at]
        for at in range(0, len(values), 2)
    ]
    return _pick(pairs, number[1:])


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
        ways = range(self.ways)
        valid = Cat(i.valid for i in self.i)
        locked = Signal()
        last = Signal(self.ways)  # the input that was chosen last
        behind = Signal(self.ways)  # the inputs behind it
        chosen = Signal(self.ways)
        number = Signal(ways)
        first, first_behind = _first(valid), _first(valid & behind)
        m.d.comb += [
            chosen.eq(Mux(locked, last, Mux((valid & behind).any(), first_behind, first))),
            number.eq(
                Cat(
                    Cat(chosen[way] for way in ways if way >> bit & 1).any()
                    for bit in range(len(number))
                )
            ),
            self.o.valid.eq((chosen & valid).any()),
            self.o.payload.eq(_pick([Value.cast(i.payload) for i in self.i], number)),
            *(i.ready.eq(self.o.ready & chosen[way]) for way, i in enumerate(self.i)),
        ]
        with m.If(self.o.valid):
            in_packet = ~self.o.p.last if self.packets else 0
            m.d.sync += [
                locked.eq(~self.o.ready | in_packet),
                last.eq(chosen),
                behind.eq(Cat(chosen[:way].any() for way in ways)),
            ]
        return m
