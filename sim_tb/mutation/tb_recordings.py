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
from sim_tb.testbench.models import PRESETS

SILICON = ROOT / "tests" / "silicon"

NEAR = PRESETS["near"]
"""Memory whose answers come after a few clocks: most of a case is work of the unit."""

TRANSFERS = [
    case
    for file in ("transfers.npz", "workloads.npz")
    for case in read_cases(SILICON / file)
    if not case.is_multicast
]
PROGRAMS = barrier_file(SILICON / "barriers.npz", read_arrays(SILICON / "barriers.npz"))
"""Read with the module, before mutants fork off."""

LIMIT = 400_000
"""Time of the reset, a case or a batch of programs, in nanoseconds; a clock has two."""


@cocotb.test()
async def transfers(dut: Any) -> None:
    """Run the recorded transfers and the loads of published kernels, but for multicasts."""
    env = await with_timeout(Environment.start(dut, NEAR, logs=[]), LIMIT, "ns")
    for number in np.random.default_rng(cocotb.RANDOM_SEED).permutation(len(TRANSFERS)):
        case = TRANSFERS[number]
        difference = check(case, await with_timeout(outcome(env, case), LIMIT, "ns"))
        assert difference is None, difference


@cocotb.test()
async def programs(dut: Any) -> None:
    """Run the recorded programs of mbarrier operations."""
    env = await with_timeout(Environment.start(dut, NEAR, logs=[]), LIMIT, "ns")
    count = len(PROGRAMS.kinds)
    for first in range(0, count, BATCH):
        batch = [PROGRAMS[number] for number in range(first, min(first + BATCH, count))]
        results_of_all = await with_timeout(run(env, batch), LIMIT, "ns")
        for program, results in zip(batch, results_of_all, strict=True):
            difference = program.check(results)
            assert difference is None, difference
