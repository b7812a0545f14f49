"""Kernels of the comparison with threads: results, and what the unit saves."""

import pytest

from sim_tb.ptx import PtxError
from sim_tb.ptx.comparison import HEAD, measurements, registers_of


@pytest.mark.simulators
def test_the_unit_saves_instructions_and_registers():
    made = {each.variant.entry: each for each in measurements()}
    for kernel in ("copy", "gemm"):
        unit = made[f"{kernel}_unit"]
        for loads in ("registers", "async"):
            threads = made[f"{kernel}_{loads}"]
            assert unit.result.instructions < threads.result.instructions
            assert unit.registers < threads.registers
            assert unit.result.cycles <= threads.result.cycles * 1.01
        assert len(unit.cells) == len(HEAD)


def test_registers_must_be_counted():
    with pytest.raises(PtxError, match="no comment says how many registers k has"):
        registers_of("// j: 4 registers", "k")
