"""The testbench's global memory, accessed by several SMs."""

import pytest

from sim_tb.simulator import runner
from tests.top.units import CLUSTER

pytestmark = [pytest.mark.simulators(CLUSTER), pytest.mark.spread]


@pytest.mark.parametrize("models", ["near", "fixed", "rough"])
def test_one_memory(models: str) -> None:
    env = {"MEMORY_MODELS": models}
    runner.run("tests.top.tb_one_memory", params=CLUSTER, env=env)
