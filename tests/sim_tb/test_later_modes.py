"""What came after Hopper: the unit against the golden model, mode by mode."""

from dataclasses import replace

import pytest

from hw.params import PRESETS
from sim_tb import runner
from tests.sim_tb.random_loads import BLACKWELL

MODULE = "tests.sim_tb.bench_loads"
PARAMS = replace(PRESETS["sm_100a"], smem_bytes=512 * 1024)


def loads(testcase: str, modes: str, count: int, models: str, seed: int = 1) -> None:
    env = {"LOADS_MODELS": models, "LOADS_COUNT": str(count), "LOADS_MODES": modes}
    runner.run(MODULE, testcase, params=PARAMS, seed=seed, env=env)


@pytest.mark.parametrize("mode", BLACKWELL)
def test_mode(mode: str) -> None:
    loads("in_flight", mode, 100, "rough")


@pytest.mark.parametrize("models", ["fixed", "rough"])
def test_with_all_others(models: str) -> None:
    loads("in_flight", "", 100, models)


@pytest.mark.parametrize("models", ["fixed", "rough"])
def test_mixed_sizes(models: str) -> None:
    """Here the largest box leaves room for others in flight."""
    loads("mixed_sizes", "", 200, models)


@pytest.mark.regress
@pytest.mark.parametrize("models", ["fixed", "rough"])
@pytest.mark.parametrize("mode", BLACKWELL)
def test_mode_at_length(mode: str, models: str) -> None:
    loads("in_flight", mode, 1000, models, seed=2)
