"""One-hot selection: exhaustively, for masks of one to six bits."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hw.lib.one_hot import index_of, lowest_one, select

VALUES = [11, 5, 8, 1, 14, 7]


@pytest.mark.parametrize("width", range(1, 7))
def test_every_mask(width):
    m = Module()
    mask = Signal(width)
    lowest, index, selected = Signal(width), Signal(3), Signal(4)
    values = [Signal(4, init=value, name=f"value_{n}") for n, value in enumerate(VALUES[:width])]
    m.d.comb += [
        lowest.eq(lowest_one(mask)),
        index.eq(index_of(lowest)),
        selected.eq(select(lowest, values)),
    ]
    sim = Simulator(m)

    @sim.add_testbench
    async def bench(ctx):
        for number in range(1 << width):
            ctx.set(mask, number)
            await ctx.delay(1e-9)
            first = (number & -number).bit_length() - 1
            expected = (1 << first, first, VALUES[first]) if number else (0, 0, 0)
            assert (ctx.get(lowest), ctx.get(index), ctx.get(selected)) == expected

    sim.run()
