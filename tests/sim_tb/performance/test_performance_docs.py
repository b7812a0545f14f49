"""Documents have markers for each table; tables from files; the plot."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from hw.flow.route import Route
from hw.flow.tables import filled
from sim_tb.performance import docs, row_boxes
from sim_tb.simulator import runner

DOCS = runner.ROOT / "docs"
SYNTH = {
    "tiny": {
        "area": {"LUT4": 4567, "CCU2C": 10, "TRELLIS_DPR16X4": 5, "TRELLIS_FF": 2345, "DP16KD": 3},
        "too_large": [],
        "routes": {
            "seed 1": asdict(Route(91.25, "a.fast", "b.path", ("a", "b"), 1.0, 9.96)),
            "seed 2": asdict(Route(90.04, "a.slow", "c.path", ("a", "b", "c"), 1.0, 10.11)),
        },
    },
    "full": {
        "area": {
            "LUT4": 234567,
            "CCU2C": 0,
            "TRELLIS_DPR16X4": 0,
            "TRELLIS_FF": 45678,
            "DP16KD": 99,
        },
        "too_large": ["LUT4"],
        "routes": {"estimate": asdict(Route(41.7, "a.long", "b.path", ("a", "b"), 10.0, 14.0))},
    },
}
UNIT = {"um2": 48000.0, "flip_flops": 100, "memory_bits": 64}
PATHS = [asdict(Route(90.04, "a.slow", "c.path", ("a", "b", "c"), 11.1, 0.0))]
STA = {
    "tiny": {"mhz": 90.04, "nand2_um2": 24.0, "blocks": {"": UNIT}, "paths": PATHS},
    "fpga": {
        "mhz": 90.04,
        "nand2_um2": 24.0,
        "blocks": {"": UNIT, "store_path": {"um2": 24000.0, "flip_flops": 9, "memory_bits": 0}},
        "paths": PATHS,
    },
}


def test_markers_of_each_table() -> None:
    for name in docs.TABLES:
        page = DOCS / docs.PAGES.get(name, "performance.md")
        assert f"\nonly {name}\n" in filled(page.read_text(), {name: f"only {name}"})


def test_area_and_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "synth.json"
    monkeypatch.setattr(docs, "SYNTH", path)
    assert docs.synth_table() is None
    path.write_text(json.dumps({"presets": SYNTH}))
    tiny, full = (docs.synth_table() or "").splitlines()[2:]
    assert tiny == (
        "| `tiny` | 16 bytes, 8 in flight | 4,567 | 4,607 | 2,345 | 3 | 90.0 to 91.2 | "
        "a.slow -> b -> c.path |"
    )
    assert full.endswith(
        "| 234,567 | 234,567 | 45,678 | 99 | does not fit; about 42 | a.long -> b.path |"
    )


def test_bytes_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst seed counts; a preset that was not placed has no rate."""
    path = tmp_path / "synth.json"
    monkeypatch.setattr(docs, "SYNTH", path)
    assert docs.rates_table() is None
    path.write_text(json.dumps({"presets": SYNTH}))
    tiny, idma, _ = (docs.rates_table() or "").splitlines()[2:]
    assert tiny == "| `tiny` | 16 | 90.0 | 4,567 | 1,441 | 315 |"
    assert idma == "| iDMA 0.7.0, 64 bits, 8 in flight | 8 | 68.0 | 3,431 | 544 | 159 |"


def test_standard_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that a preset does not have has no figures."""
    path = tmp_path / "sta.json"
    monkeypatch.setattr(docs, "STA", path)
    assert docs.sta_table() is None
    assert docs.sta_blocks_table() is None
    path.write_text(json.dumps({"presets": STA}))
    tiny, _ = (docs.sta_table() or "").splitlines()[2:]
    assert tiny == "| `tiny` | 0.048 | 2,000 | 100 | 64 | 90.0 | a.slow -> b -> c.path |"
    assert (docs.sta_blocks_table() or "").splitlines()[2:] == [
        "| the unit | 2,000 | 64 | 2,000 | 64 |",
        "| store path | - | - | 1,000 | 0 |",
    ]


def test_the_plot_shows_all_recorded_boxes() -> None:
    """The unit's rows are lines, one for each offset; recorded boxes are points."""
    ours = dict.fromkeys(row_boxes.every_row_box(), 1.5)
    shown = 0
    for dense in (True, False):
        axes = Figure().subplots()
        docs.rows_plot(axes, dense, ours)
        assert len(axes.lines) == len(row_boxes.OFFSETS) + 1
        shown += sum(len(points.get_offsets()) for points in axes.collections)
    assert shown == len(list(row_boxes.recorded())) > 100
