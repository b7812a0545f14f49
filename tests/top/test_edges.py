"""Corner cases that random loads do not reach, at the ports of the unit."""

import pytest

from sim_tb.simulator import runner

pytestmark = [pytest.mark.simulators(), pytest.mark.spread]


@pytest.mark.parametrize("seed", range(1, 4))
def test_edges(seed: int) -> None:
    runner.run("tests.top.tb_edges", seed=seed)
