"""``make bench`` on a few boxes; quantiles, classes and bounds of given results."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golden import BulkLoad, Load, Plan, Store, TensorMap, check
from golden.archive import VectorError
from golden.vectors import read_timings
from hw.params import PRESETS
from sim_tb.performance import bench
from sim_tb.performance.bounds import (
    MIN_FLOOR_RATIO,
    RANDOM_BOUNDS,
    WORKLOAD_BOUNDS,
    BoxResult,
    Quantiles,
    Work,
    classes_of,
    violations,
)
from sim_tb.performance.boxes import MODES, mode_of, random_loads
from sim_tb.performance.series import RECORDED, SILICON, jobs_of, series_of, work_of
from sim_tb.performance.tb_timing import MixedCycles

COUNTED = {preset: replace(PRESETS[preset], counters=True) for preset in ("tiny", "fpga")}
NAMES = ["W01:interior", "W03:edge", "W05:outside", "W16:interior", "W40:interior"]


def write_few(path: Path, names: list[str], silicon: float = 1.0) -> str:
    """Write a timing file with the named boxes of published kernels; return its path.

    ``silicon`` scales the cycles of the silicon.
    """
    cases = read_timings(SILICON / "timing_workloads.npz")
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
        assert box["floor"] == max(box["lines"], box["lane_pieces"])
        assert MIN_FLOOR_RATIO * box["floor"] <= box["cycles"] < box["silicon_cycles"]
    assert [box["silicon_cycles"] for box in boxes if box["file"] == "random:3:2"] == [None] * 2
    assert "0 slower than silicon" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("way", "preset", "names"),
    [
        pytest.param(
            "load", "tiny", ["W03:edge"], marks=pytest.mark.simulators(COUNTED["tiny"])
        ),  # a box of few lines: the others take minutes with lines of 16 bytes
        *(
            pytest.param(
                way,
                "fpga",
                ["W01:interior", "W03:edge"],
                marks=(pytest.mark.simulators(COUNTED["fpga"]), pytest.mark.regress),
            )
            for way in ("load", "store")
        ),
    ],
)
def test_counters(
    way: str, preset: str, names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts of requests, maps and lines are those of the boxes; nothing else is in them.

    The silicon of the file is slower than any unit.
    """
    out = tmp_path / "bench.json"
    source = write_few(tmp_path / "few.npz", names, silicon=100.0)
    words = [source, "--way", way, "--preset", preset, "--counters", "--out", str(out)]
    assert bench.main(words) == 0
    printed = capsys.readouterr().out
    assert "counters, per burst" in printed
    for box in json.loads(out.read_text())["boxes"]:
        counts = box["counters"]
        requests = counts["TENSOR_LOADS" if way == "load" else "TENSOR_STORES"]
        assert requests == counts["MAP_HITS"] > 0 == counts["MAP_MISSES"]
        lines = counts["LINES_READ" if way == "load" else "LINES_WRITTEN"]
        assert lines == requests * box["requests"]
        assert counts["BUSY"] <= counts["CYCLES"]
        assert str(lines) in printed


def test_counters_are_of_one_direction(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["random:1:1", "--counters", "--way", "both"])
    assert "--counters: not with --way both" in capsys.readouterr().err


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
            assert MIN_FLOOR_RATIO * box["floor"] <= box["cycles"] < 1.03 * box["floor"], box
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


def test_a_timing_of_an_illegal_load_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "few.npz"
    cases = read_timings(SILICON / "timing_workloads.npz")[:2]
    for field, value in (("smem_address", 1), ("rank", 9), ("swizzle", 99)):
        wrong = cases.copy()
        wrong[field][1] = value
        np.savez(path, cases=wrong)
        with pytest.raises(VectorError, match=rf"few.npz: W01:edge: .*{field} = {value}: "):
            series_of(str(path))


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


BOXES = [BoxResult(f"box {i}", "tile", Work(10, 5, 4), cycles=10.0) for i in range(20)]
SLOW = replace(BOXES[0], cycles=23.0)
SLOWER = replace(BOXES[0], silicon_cycles=9.5)
FAILED = BoxResult("failed", "im2col", Work(1, 1, 1), error="refused")


@pytest.mark.parametrize(
    ("boxes", "way", "messages"),
    [
        (BOXES, "load", []),
        ([*BOXES, FAILED], "load", ["failed: refused"]),
        ([*BOXES, SLOWER], "load", ["10.00 cycles are above silicon's 9.50"]),
        ([*BOXES, SLOW], "load", ["23.00 cycles are above 2 x beat floor + 2, beat floor 10"]),
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
    boxes = [*BOXES, replace(SLOW, mode="im2col", work=Work(1, 5, 4)), FAILED]
    found = classes_of(boxes)
    assert set(found) == {"floor 2 to 4", "floor 5 to 10", "im2col", "tile", "all"}
    assert len(found["all"]) == 21
    assert [box.ratio for box in found["im2col"]] == [23.0 / 4]
    assert Quantiles.of([box.beat_ratio for box in found["im2col"]]).cells[1:] == ["4.600"] * 3


def lane_pieces(*, inner: int, rows: int, swizzle: str, start: int = 0) -> Work:
    """Return the work of a load of ``rows`` rows of ``inner`` bytes, each in lines of its own."""
    tensor_map = TensorMap.tiled("u8", 0, (256, 64), (256,), (inner, rows), swizzle=swizzle)
    return work_of(Load(tensor_map, (start, 0)))


def test_the_floor_counts_pieces_by_lane() -> None:
    """Rows of 16 bytes with gaps lie in other lanes each; rows without gaps fill all lanes."""
    assert lane_pieces(inner=16, rows=24, swizzle="128B") == Work(24, 24, 3)
    assert lane_pieces(inner=48, rows=16, swizzle="128B") == Work(16, 16, 6)
    assert lane_pieces(inner=16, rows=24, swizzle="64B") == Work(24, 12, 3)
    assert lane_pieces(inner=128, rows=16, swizzle="128B") == Work(16, 16, 16)
    assert lane_pieces(inner=16, rows=24, swizzle="none") == Work(24, 3, 3)
    outside = lane_pieces(inner=16, rows=24, swizzle="128B", start=256)
    assert outside == Work(0, 24, 3, fill_beats=24)
    assert (outside.floor, outside.beat_floor) == (3, 24)


def test_the_floor_of_a_store_counts_what_it_reads() -> None:
    """Half of each row is outside; its pieces stay in shared memory."""
    tensor_map = TensorMap.tiled("u8", 0, (64, 16), (64,), (128, 16), swizzle="128B")
    assert work_of(Load(tensor_map, (0, 0))) == Work(8, 16, 16, fill_beats=16)
    assert work_of(Store(tensor_map, (0, 0))) == Work(8, 16, 8)
    assert work_of(BulkLoad(64, 16, 256)) == Work(3, 3, 2)


def test_the_recorded_floors_differ_only_in_boxes_with_gaps() -> None:
    differing = 0
    for name in RECORDED:
        for job in jobs_of(series_of(str(SILICON / f"{name}.npz")), "load"):
            plan = Plan(job.target.request.tensor_map)
            if job.result.work.floor != job.result.work.beat_floor:
                assert plan.pitch > plan.row_bytes
                differing += 1
    assert differing == 41


def test_a_box_below_its_floor_is_an_error() -> None:
    """Either the floor or the measurement is wrong."""
    (message,) = violations([replace(BOXES[0], cycles=9.0)], RANDOM_BOUNDS, "load")
    assert message == "box 0: 9.00 cycles are below the floor, 10: "
    assert violations([replace(BOXES[0], cycles=9.95)], RANDOM_BOUNDS, "load") == []
