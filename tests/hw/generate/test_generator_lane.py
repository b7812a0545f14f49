"""Generator lane of stores: every piece once, by the fewest lines, one a clock, the last marked.

The lanes of loads are tested in the request generator.
"""

import random

import numpy as np
import pytest

from hw.layouts.isa import Operation
from hw.params import PRESETS, TmaParams
from tests.hw.boxes import Pieces, stored_box
from tests.hw.generate.columns import one_stream, requests_of, setup, walk, with_slots
from tests.hw.generate.generators import Lines
from tests.hw.generate.test_request_generator import flat, jobs_of
from tests.hw.golden_requests import STORE_KINDS, arch_of, expected, random_requests
from tests.hw.simulate import Run, run_streams, simulation

LATENCY = 12 + 2 + 2
"""Walk generator, run walker, line cutter."""


def lines_of(jobs: list[dict], params: TmaParams, **options) -> Run:
    run = run_streams(simulation(Lines, params), {"i": jobs}, ["store_line"], **options)
    run.payloads["o"], run.cycles["o"] = run.payloads["store_line"], run.cycles["store_line"]
    return run


def check_lines(run: Run, wanted: list[Pieces], params: TmaParams) -> None:
    """Assert that the lines of each store have its pieces, in order, the last one marked."""
    lines = iter(run.payloads["o"])
    for slot, pieces in enumerate(wanted):
        found: Pieces = {}
        while True:
            line = next(lines)
            assert line.slot == slot
            assert line.valid or line.last, "a line without use"
            for lane in range(params.lanes):
                if line.valid >> lane & 1:
                    is_second = params.gathers_rows and line.second >> lane & 1
                    origin = line.second_origin if is_second else line.origin
                    smem = (origin + lane) % (1 << params.smem_piece_bits)
                    assert smem not in found, "covered twice"
                    found[smem] = (line.line * params.lanes + lane, 16)
            if line.last:
                break
        assert found == pieces
    assert next(lines, None) is None


@pytest.mark.parametrize("kind", ["store_im2col", "sm_100a_scatter4", "sm_100a_im2col_w_store"])
def test_covers_a_store_of_several_walks_once(kind):
    """The last walks of a store may have nothing inside."""
    params = one_stream(PRESETS[STORE_KINDS[kind]])
    stores = random_requests(np.random.default_rng(2), kind, 5)
    run = lines_of(with_slots(setup(stores, params), params), params, stall=0.3)
    requests = requests_of(walk(stores, params, stall=0))
    check_lines(run, [expected(store, arch_of(kind)) for store in stores], params)
    assert any(not jobs[-1].walk.has_data for jobs in requests)
    for line in run.payloads["o"]:
        walks = [job.walk for job in requests[line.slot]]
        assert line.write_mode == walks[0].write_mode
        assert (line.style, line.attributes) == (walks[0].style, walks[0].attributes)


@pytest.mark.parametrize("line_bytes", [16, 64, 128])
def test_covers_each_stored_box_once(line_bytes):
    params = TmaParams(line_bytes=line_bytes, streams=1)
    rng = random.Random(line_bytes)
    boxes = [stored_box(rng) for _ in range(20)]
    jobs = jobs_of(boxes, params, operation=Operation.TENSOR_STORE)
    run = lines_of(jobs, params, seed=line_bytes)
    check_lines(run, [box.stored() for box in boxes], params)


def test_one_line_a_clock_across_stores():
    """Rows of one and of several lines, and a box outside, whose line has no pieces."""
    params = TmaParams(streams=1)
    boxes = [
        flat(128, 40, 1024, swizzle=3),
        flat(64, 33, 1024),
        flat(16, 1, 256, column=256),
        flat(240, 17, 4096, column=80),
        flat(16, 1, 256),
        flat(16, 30, 256),
    ] * 2
    jobs = jobs_of(boxes, params, operation=Operation.TENSOR_STORE)
    run = lines_of(jobs, params, stall=0)
    check_lines(run, [box.stored() for box in boxes], params)
    cycles = run.cycles["o"]
    assert cycles[-1] - cycles[0] == len(cycles) - 1
    assert cycles[0] - run.taken["i"][0] == LATENCY
    assert [line.valid for line in run.payloads["o"]].count(0) == 2


@pytest.mark.parametrize(("width", "pitch"), [(16, 32), (16, 48), (32, 64), (48, 64)])
def test_two_short_rows_share_a_line(width, pitch):
    """If they end in the line in which they begin, and each lies in one beat."""
    params = TmaParams(streams=1)
    rows = 40
    box = flat(width, rows, pitch)
    run = lines_of(jobs_of([box], params, operation=Operation.TENSOR_STORE), params, stall=0)
    check_lines(run, [box.stored()], params)
    starts = {"line": pitch, "beat": width}
    left, count = list(range(rows)), 0
    while left:
        row = left.pop(0)
        count += 1 + (row * pitch % 128 + width > 128)
        begins = {name: [n * step for n in (row, row + 1)] for name, step in starts.items()}
        in_beats = all(begin % 128 + width <= 128 for begin in begins["beat"])
        ends = begins["line"][0] // 128, (begins["line"][1] + width - 1) // 128
        if left and in_beats and ends[0] == ends[1]:
            left.pop(0)
    assert len(run.payloads["o"]) == count < rows
