"""Row preparation: how many short rows fit in a line and in a beat, and what lies between them."""

import random

import pytest

from hw.generate.row_preparation import RowPreparation
from hw.layouts.isa import Packing
from hw.params import PRESETS, TmaParams
from tests.hw.generate.walks import random_walk, rows_of
from tests.hw.paced import Paced
from tests.hw.simulate import run_streams


def ref(walk: dict, params: TmaParams) -> tuple:
    """The members of ``rows_layout`` that count."""
    rows = rows_of(walk, params)
    packs = walk["style"]["packing"] == Packing.BYTES_12 if params.sub_byte else False
    if rows is None or walk["run"] != walk["row_pieces"] or (walk["store"] and packs):
        return (0,)
    lanes = range(params.lanes)
    in_line = [rows.fit(params.lanes, lane) for lane in lanes]
    in_beat = [rows.fit_in_smem(params.lanes, lane) for lane in lanes]
    return 1 << rows.loop, rows.row_step, rows.smem_step, rows.fill, in_line, in_beat


@pytest.mark.parametrize(
    "params",
    [TmaParams(line_bytes=32), TmaParams(line_bytes=64), TmaParams(), PRESETS["sm_100a"]],
    ids=["32", "64", "128", "sm_100a"],
)
def test_finds_rows_of_a_walk(params: TmaParams) -> None:
    """Walks of loads and of stores, some of them of packed types."""
    rng = random.Random(params.line_bytes)
    walks = [random_walk(rng, params) | {"store": rng.random() < 0.4} for _ in range(400)]
    if params.sub_byte:
        for walk in walks:
            walk["style"] = {"packing": rng.choice(tuple(Packing))}
    jobs = [{"slot": n, "last": n & 1, "walk": walk} for n, walk in enumerate(walks)]
    run = run_streams(
        Paced(RowPreparation(params)), {"i": jobs}, ["o"], seed=params.line_bytes, stall=0.3
    )
    results = []
    for number, job in enumerate(run.payloads["o"]):
        assert (job.slot, job.last) == (number, number & 1)
        assert job.walk.start == walks[number]["start"]
        rows = job.rows
        fits = list(rows.rows_in_line), list(rows.rows_in_beat)
        found = rows.loop, rows.row_step, rows.smem_step, rows.fill, *fits
        results.append(found if rows.loop else (0,))
    assert results == [ref(walk, params) for walk in walks]


def test_a_walk_a_clock() -> None:
    params = TmaParams()
    rng = random.Random(1)
    jobs = [{"slot": n, "walk": random_walk(rng, params)} for n in range(10)]
    run = run_streams(Paced(RowPreparation(params)), {"i": jobs}, ["o"], stall=0)
    assert run.taken["i"] == list(range(10))
    assert run.cycles["o"] == list(range(2, 12))
