"""The unit's rates and latencies meet the bounds of docs/performance.md."""

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from rich.console import Console

from hw.params import TmaParams
from sim_tb.performance import microbenchmarks as micro
from sim_tb.performance.bounds import MIN_RATE, violations
from sim_tb.performance.kinds import OUTSIDE, every_load, every_store, load_outside
from sim_tb.performance.microbenchmarks import (
    MAX_FIRST_LINE,
    MAX_LAST_PHASE,
    MAX_TINY_CYCLES,
    attainable_rate,
    box_of_lines,
    measure_all,
)
from sim_tb.performance.row_boxes import some_row_boxes
from sim_tb.performance.series import (
    RECORDED,
    SILICON,
    box_of,
    jobs_of,
    measure,
    series_of,
    work_of,
)
from tests.top.units import SMALL

pytestmark = [pytest.mark.simulators(), pytest.mark.spread]

APART = 6
"""``make test`` measures one recorded box in ``APART``; ``make regress`` all of them."""

QUIET = Console(quiet=True)


def test_microbenchmarks() -> None:
    """Bounds of several kinds of boxes, measured in one simulation.

    * tiny boxes of every kind, loaded and stored: at most ``MAX_TINY_CYCLES``
    * rows: no more than their distinct lines
    * boxes outside of their tensors: their beats, and no line read
    * a new tensor map for each box: fetched while the box before is loaded
    * memories with a long latency: the rate that the tags allow
    """
    boxes: dict[Any, Any] = {}
    boxes |= {("load", name): box_of(load) for name, load in every_load(16, 1).items()}
    boxes |= {("store", name): box_of(store) for name, store in every_store(16, 1).items()}
    boxes |= {("rows", rows): box_of(rows.load) for rows in some_row_boxes()}
    boxes |= {("outside", name): box_of(load_outside(name)) for name in OUTSIDE}
    large = box_of_lines(512)
    boxes |= {("misses", misses): replace(large, misses=misses) for misses in (False, True)}
    boxes |= {("latency", clocks): micro.bandwidth_box(clocks) for clocks in (500, 1000)}
    results = measure_all(boxes)
    wrong = []
    for (kind, key), result in results.items():
        box = boxes[kind, key]
        match kind:
            case "load" | "store":
                is_met = result.cycles <= MAX_TINY_CYCLES
            case "rows":
                is_met = result.cycles <= box.floor / MIN_RATE
                is_met &= result.lines == work_of(key.load).lines
            case "outside":
                is_met = result.cycles <= box.floor / MIN_RATE and result.lines == 0
            case "misses":
                is_met = result.cycles <= results["misses", False].cycles / MIN_RATE
            case "latency":
                rate = result.lines / result.cycles
                is_met = rate >= MIN_RATE * attainable_rate(micro.DEFAULT, key)
        if not is_met:
            wrong.append(f"{kind}, {key}: {result}, and the floor is {box.floor}")
    assert not wrong, "\n".join(wrong)


def test_latencies() -> None:
    """Single loads of every mode and rank, and bulk loads."""
    wrong = [
        f"{name}: {clocks}"
        for name, clocks in micro.latencies().items()
        if clocks.first_line > MAX_FIRST_LINE or clocks.last_phase > MAX_LAST_PHASE
    ]
    assert not wrong, "\n".join(wrong)


def test_some_recorded_boxes() -> None:
    """A part of each file in one simulation: loads, and fewer stores and mixes of both."""
    parts = []
    for name in RECORDED:
        series = series_of(str(SILICON / f"{name}.npz"))
        parts.append((series, "load", jobs_of(series, "load")[::APART]))
        for way in ("store", "both"):
            parts.append((series, way, jobs_of(series, way)[:: 6 * APART]))
    measured = iter(measure([job for *_, jobs in parts for job in jobs], QUIET))
    wrong = []
    for series, way, jobs in parts:
        wrong += violations(list(islice(measured, len(jobs))), series.bounds, way)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("params", "latencies"),
    [
        (SMALL, (64, 200)),
        pytest.param(
            TmaParams(axi_data_bits=1024, stores=False, reductions=False, im2col=False),
            (100, 400),
            marks=pytest.mark.regress,
        ),
        *(
            pytest.param(
                TmaParams(tags=tags, stores=False, reductions=False, im2col=False),
                micro.LATENCIES,
                marks=pytest.mark.regress,
            )
            for tags in micro.TAGS
        ),
    ],
)
def test_bandwidth_by_tags(params: TmaParams, latencies: tuple[int, ...]) -> None:
    rates = micro.bandwidth(params, latencies)
    for latency, rate in rates.items():
        assert rate >= MIN_RATE * attainable_rate(params, latency), (latency, rate)


@pytest.mark.regress
@pytest.mark.parametrize("way", ["load", "store", "both"])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_boxes(name: str, way: str) -> None:
    series = series_of(str(SILICON / f"{name}.npz"))
    wrong = violations(measure(jobs_of(series, way), QUIET), series.bounds, way)
    assert not wrong, "\n".join(wrong)


@pytest.mark.regress
@pytest.mark.parametrize("seed", [1, 2])
def test_random_boxes_of_any_seed(seed: int) -> None:
    series = series_of(f"random:{seed}:200")
    wrong = violations(measure(jobs_of(series, "load"), QUIET), series.bounds, "load")
    assert not wrong, "\n".join(wrong)
