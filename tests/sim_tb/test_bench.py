"""``make bench`` on a few boxes."""

import json
from pathlib import Path

import numpy as np
import pytest

from golden.vectors import read
from sim_tb import bench

NAMES = ["W01:interior", "W03:edge", "W05:outside", "W16:interior", "W40:interior"]


def test_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = read(bench.DEFAULT)
    np.savez(tmp_path / "few.npz", cases=rows[np.isin(rows["name"], NAMES)])
    out = tmp_path / "bench.json"
    arguments = [str(tmp_path / "few.npz"), "--out", str(out)]
    assert bench.main(arguments) == 0
    result = json.loads(out.read_text())
    assert [box["name"] for box in result["boxes"]] == NAMES
    for box in result["boxes"]:
        assert set(box) == {"name", "cycles", "lines", "beats", "silicon_cycles"}
        floor = max(box["lines"], box["beats"])
        assert 0.97 * floor < box["cycles"] < box["silicon_cycles"]
    assert "0 slower than silicon" in capsys.readouterr().out


@pytest.mark.parametrize("way", ["store", "both"])
def test_the_other_way(way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the floor, also where loads take half of the clocks that there are."""
    rows, _ = read(bench.DEFAULT)
    chosen = ["W01:interior", "W01:outside", "W08:edge", "W16:interior"]
    np.savez(tmp_path / "few.npz", cases=rows[np.isin(rows["name"], chosen)])
    out = tmp_path / "bench.json"
    assert bench.main([str(tmp_path / "few.npz"), "--way", way, "--out", str(out)]) == 0
    assert "1 boxes start where no store may" in capsys.readouterr().out
    for box in json.loads(out.read_text())["boxes"]:
        assert box["cycles"] < 1.03 * max(box["lines"], box["beats"]), box
        assert box["silicon_cycles"] is None


def test_another_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "other.npz", cases=np.zeros(3))
    with pytest.raises(SystemExit) as caught:
        bench.main([str(tmp_path / "other.npz"), "--out", str(tmp_path / "out.json")])
    assert caught.value.code == 2
    assert "no timing file" in capsys.readouterr().err
