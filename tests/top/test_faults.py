"""Faults around the unit, in simulation."""

import pytest

from sim_tb.simulator import runner

pytestmark = pytest.mark.simulators()


@pytest.mark.parametrize("clocks", [20_000, pytest.param(10**6, marks=pytest.mark.regress)])
def test_late_answers(clocks: int) -> None:
    runner.run(
        "tests.top.tb_faults", "an_answer_that_comes_late", env={"FAULTS_CLOCKS": str(clocks)}
    )


@pytest.mark.parametrize(
    "testcase", ["an_answer_that_is_lost", "a_barrier_that_is_changed_under_a_load"]
)
def test_faults(testcase: str) -> None:
    runner.run("tests.top.tb_faults", testcase)
