"""The unit's rates and latencies, within the bounds that docs/performance.md names."""

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from rich.console import Console

from golden import Load, TensorMap
from hw.params import TmaParams
from sim_tb import bench_points
from sim_tb.bench_bounds import RATE, broken
from sim_tb.bench_kinds import every_load, every_store
from sim_tb.bench_points import FIRST_LINE, LAST_PHASE, TINY, attainable, box_of, missed, timed
from sim_tb.bench_rows import OFFSETS, WIDTHS, Rows
from sim_tb.bench_series import RECORDED, SILICON, boxed, jobs_of, measure, series_of
from tests.sim_tb.units import SMALL

pytestmark = [pytest.mark.simulators(), pytest.mark.spread]

APART = 6
"""Of recorded boxes, one in so many is measured by ``make test``."""

QUIET = Console(quiet=True)
OUTSIDE = {
    "of wide rows": TensorMap.tiled("u8", 0, (128, 64), (128,), (128, 32)),
    "of narrow rows": TensorMap.tiled("u8", 0, (64, 64), (64,), (16, 64)),
    "of rank 5": TensorMap.tiled(
        "u8", 0, (64, 8, 8, 8, 8), (64, 512, 4096, 32768), (64, 4, 4, 2, 2)
    ),
}
"""Boxes that will be read far from their tensors."""


def outside(name: str) -> Load:
    tensor_map = OUTSIDE[name]
    return Load(tensor_map, (*[0] * (tensor_map.rank - 1), -1000))


def some_rows() -> list[Rows]:
    """Every width dense, and strided at offsets that go through all."""
    dense = [Rows(width, OFFSETS[i % 8], True) for i, width in enumerate(WIDTHS)]
    return dense + [Rows(width, OFFSETS[3 * i % 8], False) for i, width in enumerate(WIDTHS)]


def test_points() -> None:
    """In one simulation: tiny boxes of every kind, loaded and stored; rows, which cost no more than
    their distinct lines; boxes that are outside, which cost their beats and read nothing; maps that
    are fetched while the box before is loaded; and memory that answers late.
    """
    items: dict[Any, Any] = {}
    items |= {("load", name): box_of(load) for name, load in every_load(16, 1).items()}
    items |= {("store", name): box_of(store) for name, store in every_store(16, 1).items()}
    items |= {("rows", rows): box_of(rows.load) for rows in some_rows()}
    items |= {("outside", name): box_of(outside(name)) for name in OUTSIDE}
    items |= {("miss", miss): replace(missed(512), misses=miss) for miss in (False, True)}
    items |= {("late", latency): bench_points.late(latency) for latency in (500, 1000)}
    found = timed(items)
    wrong = []
    for (what, which), taken in found.items():
        box = items[what, which]
        match what:
            case "load" | "store":
                well = taken.cycles <= TINY
            case "rows":
                well = taken.cycles <= box.floor / RATE
                well &= taken.lines == boxed(which.load)[1]
            case "outside":
                well = taken.cycles <= box.floor / RATE and taken.lines == 0
            case "miss":
                well = taken.cycles <= found["miss", False].cycles / RATE
            case "late":
                rate = taken.lines / taken.cycles
                well = rate >= RATE * attainable(bench_points.DEFAULT, which)
        if not well:
            wrong.append(f"{what}, {which}: {taken} for a floor of {box.floor}")
    assert not wrong, "\n".join(wrong)


def test_latencies() -> None:
    """Of every mode and rank, and of bytes."""
    wrong = [
        f"{name}: {taken}"
        for name, taken in bench_points.latencies().items()
        if taken.first_line > FIRST_LINE or taken.last_phase > LAST_PHASE
    ]
    assert not wrong, "\n".join(wrong)


def test_some_recorded_boxes() -> None:
    """Some of each file, in one simulation: loaded, and fewer stored, and both at once."""
    parts = []
    for name in RECORDED:
        series = series_of(str(SILICON / f"{name}.npz"))
        parts.append((series, "load", jobs_of(series, "load")[::APART]))
        for way in ("store", "both"):
            parts.append((series, way, jobs_of(series, way)[:: 6 * APART]))
    measured = iter(measure([job for *_, jobs in parts for job in jobs], QUIET))
    wrong = []
    for series, way, jobs in parts:
        wrong += broken(list(islice(measured, len(jobs))), series.bounds, way)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("params", "latencies"),
    [
        (SMALL, (64, 200)),
        *(
            pytest.param(
                TmaParams(tags=tags, stores=False, reductions=False, im2col=False),
                bench_points.LATENCIES,
                marks=pytest.mark.regress,
            )
            for tags in bench_points.TAGS
        ),
    ],
)
def test_bandwidth_of_so_many_tags(params: TmaParams, latencies: tuple[int, ...]) -> None:
    found = bench_points.bandwidth(params, latencies)
    for latency, rate in found.items():
        assert rate >= RATE * attainable(params, latency), (latency, rate)


@pytest.mark.regress
@pytest.mark.parametrize("way", ["load", "store", "both"])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_boxes(name: str, way: str) -> None:
    series = series_of(str(SILICON / f"{name}.npz"))
    wrong = broken(measure(jobs_of(series, way), QUIET), series.bounds, way)
    assert not wrong, "\n".join(wrong)


@pytest.mark.regress
@pytest.mark.parametrize("seed", [1, 2])
def test_random_boxes_of_any_seed(seed: int) -> None:
    series = series_of(f"random:{seed}:200")
    wrong = broken(measure(jobs_of(series, "load"), QUIET), series.bounds, "load")
    assert not wrong, "\n".join(wrong)
