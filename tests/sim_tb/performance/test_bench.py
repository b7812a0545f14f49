"""``make bench`` on a few boxes; quantiles, classes and bounds of given results."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golden import check
from golden.vectors import read
from sim_tb.performance import bench
from sim_tb.performance.bounds import (
    RANDOM_BOUNDS,
    WORKLOAD_BOUNDS,
    BoxResult,
    quantiles_by_class,
    violations,
)
from sim_tb.performance.boxes import MODES, mode_of, random_loads
from sim_tb.performance.series import SILICON, series_of
from sim_tb.performance.tb_timing import MixedCycles

NAMES = ["W01:interior", "W03:edge", "W05:outside", "W16:interior", "W40:interior"]


def write_few(path: Path, names: list[str], silicon: float = 1.0) -> str:
    """Write a timing file with the named boxes of published kernels; return its path.

    ``silicon`` scales the cycles of the silicon.
    """
    cases, _ = read(SILICON / "timing_workloads.npz")
    few = cases[np.isin(cases["name"], names)]
    few["silicon_cycles"] *= silicon
    np.savez(path, cases=few)
    return str(path)


@pytest.mark.simulators
def test_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded and random boxes meet their bounds."""
    out = tmp_path / "bench.json"
    sources = [write_few(tmp_path / "timing_workloads.npz", NAMES), "random:3:2"]
    assert bench.main([*sources, "--out", str(out)]) == 0
    boxes = json.loads(out.read_text())["boxes"]
    recorded = [box for box in boxes if box["file"] == "timing_workloads.npz"]
    assert [box["name"] for box in recorded] == NAMES
    for box in recorded:
        assert box["requests"] == box["lines"]
        floor = max(box["lines"], box["beats"])
        assert 0.97 * floor < box["cycles"] < box["silicon_cycles"]
    assert [box["silicon_cycles"] for box in boxes if box["file"] == "random:3:2"] == [None] * 2
    assert "0 slower than silicon" in capsys.readouterr().out


@pytest.mark.simulators
def test_an_exceeded_bound_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The silicon of this file is faster than any unit."""
    source = write_few(tmp_path / "timing_workloads.npz", NAMES[:1], silicon=0.01)
    assert bench.main([source, "--out", str(tmp_path / "bench.json")]) == 1
    printed = capsys.readouterr().out
    assert "timing_workloads.npz: W01:interior: " in printed
    assert "cycles are above silicon's" in printed
    assert "1 slower than silicon" in printed


@pytest.mark.simulators
@pytest.mark.parametrize("way", ["store", "both"])
def test_stores_and_mixes(way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stores take the floor; in a mix, loads and stores are as fast as alone."""
    chosen = ["W01:interior", "W01:outside", "W08:edge", "W16:interior"]
    source, out = write_few(tmp_path / "few.npz", chosen), tmp_path / "bench.json"
    assert bench.main([source, "--way", way, "--out", str(out)]) == 0
    assert "1 boxes are left out: their store would be illegal" in capsys.readouterr().out
    for box in json.loads(out.read_text())["boxes"]:
        assert box["silicon_cycles"] is None
        if way == "store":
            assert box["cycles"] < 1.03 * max(box["lines"], box["beats"]), box
        else:
            assert min(box["share"].values()) >= 0.97, box


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("other.npz", "not a timing file"),
        ("random:1", "must be random:SEED:COUNT"),
        ("random:1:0", "must be random:SEED:COUNT"),
    ],
)
def test_a_wrong_source_is_refused(
    source: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "other.npz", cases=np.zeros(3))
    path = str(tmp_path / source) if source.endswith("npz") else source
    with pytest.raises(SystemExit) as caught:
        bench.main([path, "--out", str(tmp_path / "out.json")])
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_random_boxes() -> None:
    """Random loads are legal, of every mode and rank, and the same again for a seed."""
    loads = random_loads(5, 200)
    for load in loads:
        check(load)
    assert {mode_of(load) for load in loads} == set(MODES)
    assert {len(load.coords) for load in loads} == set(range(1, 6))
    assert loads == random_loads(5, 200)
    assert loads != random_loads(6, 200)
    assert len(series_of("random:5:7").loads) == 7


BOXES = [BoxResult(f"box {i}", "tile", 10, 4, cycles=10.0) for i in range(20)]
SLOW = replace(BOXES[0], cycles=23.0)
SLOWER = replace(BOXES[0], silicon_cycles=9.5)
FAILED = BoxResult("failed", "im2col", 1, 1, error="refused")


@pytest.mark.parametrize(
    ("boxes", "way", "messages"),
    [
        (BOXES, "load", []),
        ([*BOXES, FAILED], "load", ["failed: refused"]),
        ([*BOXES, SLOWER], "load", ["10.00 cycles are above silicon's 9.50"]),
        ([*BOXES, SLOW], "load", ["23.00 cycles are above 2 x floor + 2, floor 10"]),
        ([*BOXES, SLOW, SLOW], "load", ["p95 2.235", "23.00 cycles", "23.00 cycles"]),
        ([SLOW], "load", ["median 2.300", "p95 2.300", "23.00 cycles"]),
        ([*BOXES, replace(SLOW, mode="im2col")], "store", []),
        ([*BOXES, SLOW], "store", ["23.00 cycles"]),
        ([replace(SLOW, mixed=MixedCycles(10, 10, 10, 10.5))], "both", ["stores 0.952"]),
        ([replace(SLOW, mixed=MixedCycles(1, 2, 1.5, 3))], "both", []),
    ],
)
def test_bounds(boxes: list[BoxResult], way: str, messages: list[str]) -> None:
    """Each exceeded bound has a message.

    In the last case the request port limits the mix: three requests take three clocks.
    """
    found = violations(boxes, RANDOM_BOUNDS, way)
    assert len(found) == len(messages)
    assert all(message in text for message, text in zip(messages, found, strict=True)), found


def test_bounds_of_kernels_are_narrower() -> None:
    box = replace(BOXES[0], cycles=16.5)
    assert WORKLOAD_BOUNDS.is_exceeded_by(box)
    assert not RANDOM_BOUNDS.is_exceeded_by(box)
    assert not violations([box], None, "load")


def test_classes() -> None:
    boxes = [*BOXES, replace(SLOW, mode="im2col", lines=1), FAILED]
    found = quantiles_by_class(boxes)
    assert set(found) == {"floor 2 to 4", "floor 5 to 10", "im2col", "tile", "all"}
    assert found["all"].boxes == 21
    assert found["im2col"].worst == 23.0 / 4
