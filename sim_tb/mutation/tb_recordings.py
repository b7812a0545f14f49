"""cocotb module: runs the recordings of the silicon through the unit until a case differs.

It is what ``make conformance`` runs, in an order that mixes the kinds of cases.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import with_timeout

from golden.archive import read_arrays
from golden.vectors import check, read_cases
from hw.flow.cache import ROOT
from sim_tb.conformance.barriers import barrier_file
from sim_tb.conformance.tb_barriers import BATCH, run
from sim_tb.conformance.tb_conformance import outcome
from sim_tb.testbench.environment import Environment

SILICON = ROOT / "tests" / "silicon"


LIMIT = 400_000
"""Time of the reset, a case or a batch of programs, in nanoseconds; a clock has two."""


@cocotb.test()
async def transfers(dut: Any) -> None:
    """Run the recorded transfers and the loads of published kernels, but for multicasts."""
    files = SILICON / "transfers.npz", SILICON / "workloads.npz"
    cases = [case for file in files for case in read_cases(file) if not case.is_multicast]
    env = await with_timeout(Environment.start(dut, logs=[]), LIMIT, "ns")
    for number in np.random.default_rng(cocotb.RANDOM_SEED).permutation(len(cases)):
        difference = check(
            cases[number], await with_timeout(outcome(env, cases[number]), LIMIT, "ns")
        )
        assert difference is None, difference


@cocotb.test()
async def programs(dut: Any) -> None:
    """Run the recorded programs of mbarrier operations."""
    path = SILICON / "barriers.npz"
    file = barrier_file(path, read_arrays(path))
    env = await with_timeout(Environment.start(dut, logs=[]), LIMIT, "ns")
    for first in range(0, len(file.kinds), BATCH):
        batch = [file[number] for number in range(first, min(first + BATCH, len(file.kinds)))]
        results_of_all = await with_timeout(run(env, batch), LIMIT, "ns")
        for program, results in zip(batch, results_of_all, strict=True):
            difference = program.check(results)
            assert difference is None, difference
