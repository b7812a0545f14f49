"""Recorded launches give the GPU's bytes, and the messages of those that cannot run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim_tb.__main__ import main
from sim_tb.ptx.replay import Case, replay

CASES = Path(__file__).parents[2] / "silicon/ptx"

SUPPORTED = (
    "a01_tile_copy",
    "a01_tile_copy_edge",
    "a02_ring",
    "a02_ring_edge",
    "a07_bulk",
    "a08_dsmem_ring",
    "a09_transpose",
    "a11_grouped",
    "a13_walk",
)
"""Cases whose instructions are all supported; the others of the folder need tensor cores."""


@pytest.mark.parametrize("name", SUPPORTED)
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
    assert main(["ptx", "--only-check", str(CASES / "a03_gemm_ws_small.npz")]) == 1
    text = capsys.readouterr().out
    assert "line 281: wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 is not supp" in text
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
