"""Shared-memory window: accesses move into the window of their context, or are not done."""

import pytest
from amaranth.sim import Simulator

from hw.context.smem_window import SmemWindow
from hw.params import TmaParams

PARAMS = TmaParams(line_bytes=32, smem_bytes=4096, contexts=4)
BEATS, WORDS = 4096 // 32, 4096 // 8
END = 1 << PARAMS.smem_beat_bits


@pytest.mark.parametrize("context", range(PARAMS.contexts))
def test_window(context: int) -> None:
    window = SmemWindow(PARAMS, context)
    checked = 0

    async def testbench(ctx):
        nonlocal checked
        for beat in (0, 1, BEATS - 1, BEATS, BEATS + 1, END // 2, END - 1):
            for inner, outer in (
                (window.i_write, window.o_write),
                (window.i_read, window.o_read),
            ):
                ctx.set(inner.valid, 1)
                ctx.set(inner.p[0].valid, 1)
                ctx.set(inner.p[0].beat, beat)
                ctx.set(outer.ready, beat & 1)
                assert ctx.get(outer.valid)
                assert ctx.get(inner.ready) == beat & 1
                assert ctx.get(outer.p[0].valid) == (beat < BEATS)
                assert ctx.get(outer.p[1].valid) == 0
                if beat < BEATS:
                    assert ctx.get(outer.p[0].beat) == context * BEATS + beat
                checked += 1

    async def barriers(ctx):
        own, port = window.i_barrier, window.o_barrier
        ctx.set(port.read_data, 0x1234)
        for word in (0, WORDS - 1, WORDS, 1 << 20):
            is_inside = word < WORDS
            for enabled, address, out, out_address in (
                (own.read_en, own.read_address, port.read_en, port.read_address),
                (own.write_en, own.write_address, port.write_en, port.write_address),
            ):
                ctx.set(enabled, 1)
                ctx.set(address, word)
                assert ctx.get(out) == is_inside
                if is_inside:
                    assert ctx.get(out_address) == context * WORDS + word
            await ctx.tick()
            assert ctx.get(own.read_data) == (0x1234 if is_inside else 0)

    simulator = Simulator(window)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.add_testbench(barriers)
    simulator.run_until(1e-4)
    assert checked == 14
