"""Recorded launches give the GPU's bytes, and the messages of those that cannot run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim_tb.__main__ import main
from sim_tb.ptx.replay import Case, replay

CASES = Path(__file__).parents[2] / "silicon/ptx"

QUICK = (
    *("a01_tile_copy_edge", "a02_ring_edge", "a03_gemm_ws_small", "a04_gemm_multicast"),
    *("a05_im2col_conv", "a06_splitk", "a07_bulk", "a08_dsmem_ring", "a09_transpose"),
    *("a11_grouped", "a12_mma_sync_random", "a13_walk", "a14_pingpong_fp8"),
    *("a16_wgmma_f16acc", "a16_wgmma_s8", "a16_wgmma_tf32"),
)
UNSUPPORTED = "a15_math"
LONG = sorted({path.stem for path in CASES.glob("*.npz")} - {*QUICK, UNSUPPORTED})


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.regress) for name in LONG)]
)
def test_launch_leaves_the_bytes_of_the_gpu(name):
    outcome = replay(Case.read(CASES / name))
    assert outcome.passed, outcome.line
    assert "equal" in outcome.line


def test_other_byte_is_found():
    case = Case.read(CASES / "a07_bulk")
    address, before, after = case.allocations[1]
    after = after.copy()
    after[5] ^= 1
    wrong = replace(case, allocations=[case.allocations[0], (address, before, after)])
    outcome = replay(wrong)
    assert not outcome.passed
    assert "y: 1 bytes in 1 elements differ" in outcome.line
    assert f"first at {address + 4:#x}" in outcome.line


def test_unsupported_instructions_are_listed_by_line(capsys):
    assert main(["ptx", "--only-check", str(CASES / f"{UNSUPPORTED}.npz")]) == 1
    text = capsys.readouterr().out
    assert "line 89: ex2.approx.f32 is not supported" in text
    assert text.endswith("0 passed, 1 failed\n")


def test_command_counts_cases(capsys):
    assert main(["ptx", str(CASES), "--limit", "2"]) == 0
    assert capsys.readouterr().out.endswith("2 passed, 0 failed\n")
    assert main(["ptx", str(CASES / "missing")]) == 1
    assert "no recorded launch" in capsys.readouterr().out


def test_recorded_parameters_of_another_size_are_refused():
    case = Case.read(CASES / "a07_bulk")
    launch = {**case.launch, "param_layout": [[0, 8]]}
    outcome = replay(replace(case, launch=launch, parameters=np.zeros(8, np.uint8)))
    assert not outcome.passed
    assert "parameters of [8] bytes: must be" in outcome.line
