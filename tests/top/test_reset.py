"""Power-up with random contents, resets at random clocks, and drain, in simulation."""

import pytest

from hw.params import PRESETS, TmaParams
from sim_tb.simulator import runner
from tests.top.power_up import build_with_random_contents, with_random_contents
from tests.top.unit_modes import load_modes
from tests.top.units import SMALL, TINY

pytestmark = [pytest.mark.spread]

MODULE = "tests.top.tb_reset"
DEFAULT = PRESETS["default"]


@pytest.mark.simulators.with_args(build_with_random_contents)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_power_up(seed: int) -> None:
    runner.run(MODULE, "power_up", params=SMALL, seed=seed, rewrite=with_random_contents)


@pytest.mark.parametrize(
    ("unit", "count", "seed"),
    [
        (SMALL, 300, 1),
        (DEFAULT, 100, 1),
        pytest.param(TINY, 200, 2, marks=pytest.mark.regress),
        pytest.param(SMALL, 3000, 2, marks=pytest.mark.regress),
        pytest.param(DEFAULT, 1000, 2, marks=pytest.mark.regress),
    ],
)
@pytest.mark.simulators
def test_reset_at_any_clock(unit: TmaParams, count: int, seed: int) -> None:
    env = {"RESET_COUNT": str(count), "LOADS_MODES": load_modes(unit)}
    runner.run(MODULE, "reset_at_any_clock", params=unit, seed=seed, env=env)


@pytest.mark.simulators(SMALL)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.regress)])
def test_wrong_tags(seed: int) -> None:
    """Answers that belong to no access do not disturb the requests among which they come."""
    loads = {"LOADS_MODELS": "stray", "LOADS_COUNT": "100"}
    runner.run("tests.top.tb_loads", "in_flight", params=SMALL, seed=seed, env=loads)
    stores = {"STORES_MODELS": "stray", "STORES_COUNT": "60"}
    runner.run("tests.top.tb_stores", "random_stores", params=SMALL, seed=seed, env=stores)


@pytest.mark.simulators(SMALL)
@pytest.mark.parametrize("testcase", ["drain", "idle_waits_for_all"])
def test_control(testcase: str) -> None:
    runner.run(MODULE, testcase, params=SMALL)
