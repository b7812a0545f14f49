"""Short rows: how many fit in a line and in a beat, and what lies between them."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hw.generate.short_row import find_rows, rows_layout
from hw.layouts.jobs import walk_layout
from hw.params import TmaParams
from tests.hw.generate.walks import random_walk, rows_of


def ref(walk: dict, params: TmaParams) -> tuple:
    """The members of ``rows_layout`` that count."""
    rows = rows_of(walk, params)
    if rows is None:
        return (0,)
    lanes = range(params.lanes)
    if not rows.row:
        fits = [0] * params.lanes, [0] * params.lanes
    else:
        in_line = [rows.fit(params.lanes, lane) for lane in lanes]
        fits = in_line, [rows.fit_in_smem(params.lanes, lane) for lane in lanes]
    return 1 << rows.loop, rows.row_step, rows.smem_step, rows.fill, *fits


def rtl(walks: list[dict], params: TmaParams) -> list[tuple]:
    """The same, as the tables give it."""
    m = Module()
    walk = Signal(walk_layout(params))
    rows = Signal(rows_layout(params))
    m.d.comb += find_rows(m, params, walk, rows)
    sim = Simulator(m)
    results = []

    @sim.add_testbench
    async def drive(ctx):
        for number in walks:
            ctx.set(walk, number)
            got = ctx.get(rows)
            if not got.loop:
                results.append((0,))
                continue
            fits = list(got.rows_in_line), list(got.rows_in_beat)
            results.append((got.loop, got.row_step, got.smem_step, got.fill, *fits))

    sim.run()
    return results


@pytest.mark.parametrize("line_bytes", [32, 64, 128])
def test_finds_rows_of_a_walk(line_bytes: int) -> None:
    params = TmaParams(line_bytes=line_bytes)
    rng = random.Random(line_bytes)
    walks = [random_walk(rng, params) for _ in range(400)]
    assert rtl(walks, params) == [ref(walk, params) for walk in walks]
