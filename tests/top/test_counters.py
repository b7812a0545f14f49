"""Counters and events of a unit against the golden model's plans, in simulation."""

from dataclasses import replace

import pytest

from sim_tb.simulator import runner
from tests.top.units import SMALL

UNIT = replace(SMALL, counters=True)

pytestmark = [pytest.mark.simulators(UNIT), pytest.mark.spread]


@pytest.mark.parametrize(
    "testcase",
    [
        "counts_of_loads",
        "counts_of_stores",
        "hits_and_misses",
        "stalls_have_their_cause",
        "lines_in_flight",
        "a_slow_reader_of_events",
    ],
)
def test_counters(testcase: str) -> None:
    runner.run("tests.top.tb_counters", testcase, params=UNIT)
