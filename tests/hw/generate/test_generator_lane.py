"""Generator lane: its lines and its fill cover each box once, its queue takes jobs ahead."""

import random

import pytest

from hw.generate.generator_lane import GeneratorLane
from hw.layouts.isa import Operation
from hw.params import TmaParams
from tests.hw.boxes import random_box, stored_box
from tests.hw.generate.test_request_generator import covered, flat, jobs_of
from tests.hw.generate.test_store_generator import check_lines
from tests.hw.simulate import run_streams, simulation
from tests.quick import quick


@pytest.mark.parametrize("pipelines", [1, 4])
@pytest.mark.parametrize("seed", quick(range(2), 1))
def test_covers_each_box_once(seed: int, pipelines: int) -> None:
    """In order: all lines of a box, then those of the next; fill likewise."""
    params = TmaParams(line_bytes=64, setup_pipelines=pipelines)
    rng = random.Random(seed)
    boxes = [random_box(rng) for _ in range(20)]
    jobs = jobs_of(boxes, params)
    run = run_streams(simulation(GeneratorLane, params), {"i": jobs}, ["line", "fill"], seed=seed)
    assert covered(run, params) == {slot: box.pieces() for slot, box in enumerate(boxes)}
    for slots in (
        [line.use.slot for line in run.payloads["line"]],
        [beat.slot for beat in run.payloads["fill"]],
    ):
        assert slots == sorted(slots)


@pytest.mark.parametrize("seed", quick(range(2), 1))
def test_covers_each_stored_box_once(seed: int) -> None:
    params = TmaParams(line_bytes=64)
    rng = random.Random(seed)
    boxes = [stored_box(rng) for _ in range(20)]
    jobs = jobs_of(boxes, params, operation=Operation.TENSOR_STORE)
    run = run_streams(
        simulation(GeneratorLane, params, store=True), {"i": jobs}, ["line"], seed=seed
    )
    run.payloads["o"] = run.payloads["line"]
    check_lines(run, [box.stored() for box in boxes], params)


@pytest.mark.parametrize("waiting", [1, 4])
def test_takes_jobs_while_lines_wait(waiting: int) -> None:
    """The lane accepts the jobs that its queue holds, and some on the way to the waiting line."""
    params = TmaParams(jobs_waiting=waiting)
    jobs = jobs_of([flat(128, 1, 128)] * 40, params)
    run = run_streams(
        simulation(GeneratorLane, params),
        {"i": jobs},
        ["line", "fill"],
        stalls={"i": 0, "line": 1, "fill": 0},
        until=lambda run: bool(run.offered["line"]) and run.offered["line"][0] + 100 < _clock(run),
        feed=_count_clocks,
    )
    assert not run.payloads["line"]
    # Line cutter; run walker, row preparation and odometer, each with a queue of two
    ahead = 1 + 3 + 3 + 5
    assert waiting < len(run.taken["i"]) <= waiting + ahead


def _count_clocks(run, clock: int) -> dict:
    run.clock = clock
    return {}


def _clock(run) -> int:
    return run.clock
