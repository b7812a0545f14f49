"""Shipped kernels in random schedules; the time that the sanitizer takes, and its state."""

import re

import pytest

from sim_tb.kernels import kernels
from sim_tb.kernels.gemm import Gemm
from sim_tb.sm import launch
from sim_tb.sm.record import Setting
from tests.sim_tb.sm.measured import Measured

pytestmark = pytest.mark.simulators

MOST_COST = 1.5
"""Greatest CPU time of a run, relative to the one without the sanitizer."""

SCHEDULES = None, 1
DEPTHS = 512, 1024


@pytest.fixture(scope="module")
def records():
    """Records of each kernel of the default unit in each schedule, and of GEMMs of two depths."""
    shipped = {name: kernel() for name, kernel in kernels().items()}
    work = {
        (name, schedule): (Measured(kernel=kernel), Setting(schedule=schedule))
        for name, kernel in shipped.items()
        for schedule in SCHEDULES
        if kernel.ctas == 1 and not kernel.unit_params
    }
    for depth in DEPTHS:
        work["depth", depth] = Measured(kernel=Gemm(m=128, n=128, k=depth)), Setting()
    return dict(zip(work, launch.run(list(work.values())), strict=True))


def test_no_schedule_has_a_mistake(records):
    assert {name for name, _ in records} >= {"gemm", "flash_attention", "conv", "depth"}
    for place, record in records.items():
        assert not record.error, place


def test_the_sanitizer_takes_a_part_of_the_time(records):
    """CPU time; the least of some runs, as other processes can only add to it."""
    for name in {name for name, _ in records}:
        costs = [cost_of(record) for (other, _), record in records.items() if other == name]
        assert min(costs) <= MOST_COST, (name, costs)


def cost_of(record):
    (cost,) = re.findall(r"cost=([\d.]+)", record.check)
    return float(cost)


def test_a_longer_run_has_no_larger_state(records):
    short, long = (sizes_of(records["depth", depth]) for depth in DEPTHS)
    assert short == long
    assert short["barriers"] == 8
    assert records["depth", DEPTHS[1]].cycles > 1.5 * records["depth", DEPTHS[0]].cycles


def sizes_of(record):
    return {name: int(size) for name, size in re.findall(r"(\w+)=(\d+) ", record.check)}
