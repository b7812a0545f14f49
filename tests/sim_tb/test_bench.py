"""``make bench`` on a few boxes, and what it makes of numbers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golden import check
from golden.vectors import read
from sim_tb import bench
from sim_tb.bench_bounds import RANDOM, WORKLOADS, Measured, broken, classes
from sim_tb.bench_boxes import MODES, mode_of, random_loads
from sim_tb.bench_series import SILICON, series_of
from sim_tb.bench_timing import Together

NAMES = ["W01:interior", "W03:edge", "W05:outside", "W16:interior", "W40:interior"]


def few(path: Path, names: list[str]) -> str:
    """A timing file of some boxes of published kernels."""
    rows, _ = read(SILICON / "timing_workloads.npz")
    np.savez(path, cases=rows[np.isin(rows["name"], names)])
    return str(path)


@pytest.mark.simulators
def test_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded boxes and random ones."""
    out = tmp_path / "bench.json"
    sources = [few(tmp_path / "few.npz", NAMES), "random:3:2"]
    assert bench.main([*sources, "--out", str(out)]) in (0, 1)
    boxes = json.loads(out.read_text())["boxes"]
    recorded = [box for box in boxes if box["file"] == "few.npz"]
    assert [box["name"] for box in recorded] == NAMES
    for box in recorded:
        assert box["requests"] == box["lines"]
        floor = max(box["lines"], box["beats"])
        assert 0.97 * floor < box["cycles"] < box["silicon_cycles"]
    assert [box["silicon_cycles"] for box in boxes if box["file"] == "random:3:2"] == [None] * 2
    assert "0 slower than silicon" in capsys.readouterr().out


@pytest.mark.simulators
@pytest.mark.parametrize("way", ["store", "both"])
def test_the_other_way(way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the floor, also where loads take half of the clocks that there are; and each way as fast
    as alone.
    """
    chosen = ["W01:interior", "W01:outside", "W08:edge", "W16:interior"]
    source, out = few(tmp_path / "few.npz", chosen), tmp_path / "bench.json"
    assert bench.main([source, "--way", way, "--out", str(out)]) == 0
    assert "1 boxes start where no store may" in capsys.readouterr().out
    for box in json.loads(out.read_text())["boxes"]:
        assert box["silicon_cycles"] is None
        if way == "store":
            assert box["cycles"] < 1.03 * max(box["lines"], box["beats"]), box
        else:
            assert min(box["share"].values()) >= 0.97, box


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("other.npz", "no timing file"),
        ("random:1", "must be random:SEED:COUNT"),
        ("random:1:0", "must be random:SEED:COUNT"),
    ],
)
def test_what_is_no_source(
    source: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "other.npz", cases=np.zeros(3))
    path = str(tmp_path / source) if source.endswith("npz") else source
    with pytest.raises(SystemExit) as caught:
        bench.main([path, "--out", str(tmp_path / "out.json")])
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_random_boxes() -> None:
    """Of every mode and rank, legal, and the same again."""
    loads = random_loads(5, 200)
    for load in loads:
        check(load)
    assert {mode_of(load) for load in loads} == set(MODES)
    assert {len(load.coords) for load in loads} == set(range(1, 6))
    assert loads == random_loads(5, 200)
    assert loads != random_loads(6, 200)
    assert len(series_of("random:5:7").loads) == 7


BOXES = [Measured(f"box {i}", "tile", 10, 4, cycles=10.0) for i in range(20)]
SLOW = replace(BOXES[0], cycles=23.0)
SLOWER = replace(BOXES[0], silicon_cycles=9.5)
FAILED = Measured("failed", "im2col", 1, 1, error="refused")


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
        ([replace(SLOW, both=Together(10, 10, 10, 10.5))], "both", ["stores 0.952"]),
        ([replace(SLOW, both=Together(1, 2, 1.5, 3))], "both", []),
    ],
)
def test_bounds(boxes: list[Measured], way: str, messages: list[str]) -> None:
    """The last of them: three requests of both ways take three clocks at the port."""
    found = broken(boxes, RANDOM, way)
    assert len(found) == len(messages)
    assert all(message in text for message, text in zip(messages, found, strict=True)), found


def test_bounds_of_kernels_are_narrower() -> None:
    box = replace(BOXES[0], cycles=16.5)
    assert WORKLOADS.over(box)
    assert not RANDOM.over(box)
    assert not broken([box], None, "load")


def test_classes() -> None:
    boxes = [*BOXES, replace(SLOW, mode="im2col", lines=1), FAILED]
    found = classes(boxes)
    assert set(found) == {"floor 2 to 4", "floor 5 to 10", "im2col", "tile", "all"}
    assert found["all"].boxes == 21
    assert found["im2col"].worst == 23.0 / 4
