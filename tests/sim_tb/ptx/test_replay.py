"""Recorded launches give the GPU's bytes, and the messages of those that cannot run."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim_tb.__main__ import main
from sim_tb.ptx.replay import Case, replay_on_golden, replay_on_unit
from sim_tb.sm.record import Setting
from tests.top.units import CLUSTER

CASES = Path(__file__).parents[2] / "silicon/ptx"

ALONE = (
    *("a01_tile_copy_edge", "a02_ring_edge", "a03_gemm_ws_small", "a05_im2col_conv"),
    *("a06_splitk", "a07_bulk", "a09_transpose", "a11_grouped", "a12_mma_sync_random"),
    *("a13_walk", "a14_pingpong_fp8", "a15_math", "a16_wgmma_f16acc", "a16_wgmma_s8"),
    *("a16_wgmma_tf32", "t06_row_softmax"),
)
"""Launches without clusters that run in ``make test``."""

CLUSTERED = ("a04_gemm_multicast", "a08_dsmem_ring")
"""Launches with clusters of two and of four blocks."""

LONG = sorted({path.stem for path in CASES.glob("*.npz")} - {*ALONE, *CLUSTERED})


def cases(names):
    return [Case.read(CASES / name) for name in names]


@pytest.fixture(scope="module")
def outcomes():
    """Outcome of each launch of ``ALONE``, from one simulation, by its name."""
    made = replay_on_unit(cases(ALONE), Setting())
    return {outcome.line.partition(":")[0]: outcome for outcome in made}


@pytest.mark.simulators
@pytest.mark.parametrize("name", ALONE)
def test_launch_leaves_the_bytes_of_the_gpu(outcomes, name):
    assert outcomes[name].passed, outcomes[name].line
    assert "equal" in outcomes[name].line


@pytest.mark.simulators(CLUSTER)
def test_launches_with_clusters():
    """Clusters of two blocks run two at a time."""
    made = list(replay_on_unit(cases(CLUSTERED), Setting(), sms=4, params=CLUSTER))
    assert len(made) == len(CLUSTERED)
    assert all(outcome.passed for outcome in made), made


@pytest.mark.simulators
@pytest.mark.regress
def test_other_launches():
    made = list(replay_on_unit(cases(LONG), Setting()))
    assert len(made) == len(LONG)
    assert all(outcome.passed for outcome in made), made


@pytest.mark.simulators
@pytest.mark.regress
@pytest.mark.parametrize("schedule", [1, 2, 3])
def test_launches_in_random_schedules(schedule):
    """Latencies and stalls at random: the bytes stay."""
    made = list(replay_on_unit(cases(ALONE), Setting(schedule=schedule)))
    assert all(outcome.passed for outcome in made), made


@pytest.mark.parametrize(
    "name",
    [
        *("a03_gemm_ws_small", "a08_dsmem_ring", "a10_flash_edge", "a13_walk", "a15_math"),
        *("t05_attention", "t06_row_softmax"),
    ],
)
def test_golden_model_as_engine(name):
    outcome = replay_on_golden(Case.read(CASES / name))
    assert outcome.passed, outcome.line


def test_other_byte_is_found():
    case = Case.read(CASES / "a07_bulk")
    address, before, after = case.allocations[1]
    after = after.copy()
    after[5] ^= 1
    wrong = replace(case, allocations=[case.allocations[0], (address, before, after)])
    outcome = replay_on_golden(wrong)
    assert not outcome.passed
    assert "y: 1 bytes in 1 elements differ" in outcome.line
    assert f"first at {address + 4:#x}" in outcome.line


def test_unsupported_instructions_are_listed_by_line(capsys, tmp_path):
    with np.load(CASES / "a07_bulk.npz") as recorded:
        arrays = dict(recorded)
    text = arrays["ptx"].tobytes().decode()
    line = text[: text.index("ret;")].count("\n") + 1
    broken = text.replace("ret;", "tcgen05.wait; foo.f32 %f1, %f1; ret;", 1)
    arrays["ptx"] = np.frombuffer(broken.encode(), np.uint8)
    np.savez(tmp_path / "case.npz", **arrays)
    shutil.copy(CASES / "a07_bulk.json", tmp_path / "case.json")
    assert main(["ptx", "--only-check", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert f"line {line}: tcgen05.wait is not supported\n  line {line}: foo.f32 is" in printed
    assert printed.endswith("0 passed, 1 failed\n")


def test_command_counts_cases(capsys):
    assert main(["ptx", str(CASES), "--limit", "2", "--engine", "golden"]) == 0
    assert capsys.readouterr().out.endswith("2 passed, 0 failed\n")
    assert main(["ptx", str(CASES / "missing")]) == 1
    assert "no recorded launch" in capsys.readouterr().out


def test_case_without_a_field_is_refused(capsys, tmp_path):
    shutil.copy(CASES / "a07_bulk.npz", tmp_path / "case.npz")
    (tmp_path / "case.json").write_text('{"kernel": "bulk"}')
    assert main(["ptx", str(tmp_path)]) == 1
    assert "no allocations, block, cluster, dynamic_smem" in capsys.readouterr().out


def test_recorded_parameters_of_another_size_are_refused():
    case = Case.read(CASES / "a07_bulk")
    launch = {**case.launch, "param_layout": [[0, 8]]}
    outcome = replay_on_golden(replace(case, launch=launch, parameters=np.zeros(8, np.uint8)))
    assert not outcome.passed
    assert "parameters of [8] bytes: must be" in outcome.line


def test_too_few_sms_are_refused():
    outcome = replay_on_golden(Case.read(CASES / "a08_dsmem_ring"), sms=17)
    assert outcome.line.endswith("sms = 17: must be from 4, the blocks of a cluster, to 16")


@pytest.mark.simulators
def test_report_of_a_case(tmp_path, capsys):
    """The report has each warp's waits and the tensor cores' time."""
    name = "a03_gemm_ws_small"
    assert main(["ptx", str(CASES / name), "--report", str(tmp_path)]) == 0
    assert "1 passed" in capsys.readouterr().out
    folder = tmp_path / name
    assert {path.name for path in folder.iterdir()} == {
        "report.html", "timeline.json", "timeline.png"
    }  # fmt: skip
    text = (folder / "timeline.json").read_text()
    for part in ("warp 11", "wait line 833", "mma line 450", "issue from line"):
        assert part in text, part
