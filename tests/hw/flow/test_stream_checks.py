"""Checks of streams: they find a stream that breaks the law, and only that."""

import pytest
from amaranth.hdl import Fragment, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hw.flow.stream_checks import checked_streams, stream_ports
from hw.lib.arbiter import Arbiter


class Source(wiring.Component):
    """Offers ``payload`` while ``offers``, as it is told, on the second of two streams."""

    payload: In(8)
    offers: In(1)
    o: Out(stream.Signature(8)).array(2)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [self.o[1].valid.eq(self.offers), self.o[1].payload.eq(self.payload)]
        return m


class Wrapper(wiring.Component):
    """The source, inside another block."""

    payload: In(8)
    offers: In(1)

    def __init__(self) -> None:
        super().__init__()
        self.source = Source()
        self.takes = Signal()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.source = self.source
        m.d.comb += [
            self.source.payload.eq(self.payload),
            self.source.offers.eq(self.offers),
            self.source.o[1].ready.eq(self.takes),
        ]
        return m


def run(steps: list[tuple[int, int, int]]) -> None:
    """Simulate a clock for each step: offers, payload, takes."""
    dut = Wrapper()
    with checked_streams():
        sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        for offers, payload, takes in steps:
            ctx.set(dut.offers, offers)
            ctx.set(dut.payload, payload)
            ctx.set(dut.takes, takes)
            await ctx.tick()

    sim.run()


def test_the_law():
    run([(1, 5, 0), (1, 5, 0), (1, 5, 1), (0, 6, 0), (0, 7, 0), (1, 8, 1), (1, 9, 1)])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([(1, 5, 0), (0, 5, 0)], "valid fell before the transfer"),
        ([(1, 5, 0), (1, 6, 1)], "the payload changed before the transfer"),
    ],
)
def test_a_stream_that_breaks_the_law(steps, message):
    with pytest.raises(AssertionError, match=rf"Source\.o\[1\]: {message}"):
        run([*steps, (0, 0, 1)])


@pytest.mark.parametrize(
    ("block", "names"),
    [
        (lambda: Arbiter(data.StructLayout({"a": 1}), 2), ["o"]),
        (Source, ["o[0]", "o[1]"]),
    ],
)
def test_ports(block, names):
    """Ports are streams that leave, also in arrays."""
    made = block()
    Fragment.get(made, None)
    assert [name for name, _ in stream_ports(made)] == names
