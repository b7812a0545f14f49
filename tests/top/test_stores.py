"""Stores, reductions and bulk groups of the unit against the golden model, in simulation."""

import pytest

from hw.params import PRESETS, TmaParams
from sim_tb.simulator import runner
from tests.top.random_stores import LATER as LATER_MODES
from tests.top.units import FPGA, FULL, LATER, SMALL, TINY_STORES

pytestmark = [pytest.mark.simulators(), pytest.mark.spread]

MODULE = "tests.top.tb_stores"
RULES = [
    "read_is_before_done",
    "groups_are_the_threads_own",
    "a_load_joins_until_its_map_is_read",
    "refused_stores_leave_nothing",
    "unwritable_lines_are_an_error",
    "padding_of_a_row_is_written",
    "corners_are_limited",
    "slots_and_tags_are_used_again",
    "two_stores_to_the_same_bytes",
    "a_load_behind_a_store",
    "shared_memory_is_written_again_behind_a_read_wait",
    "reductions_to_one_address",
    "a_line_a_clock_both_ways",
    "far_and_large",
    "all_threads_wait",
    "groups_are_left_in_the_same_clocks",
]


def stores(testcase: str, models: str, seed: int = 1, *, count: int = 150, modes: str = "",
           params: TmaParams = PRESETS["default"]) -> None:  # fmt: skip
    env = {"STORES_MODELS": models, "STORES_COUNT": str(count), "STORES_MODES": modes}
    runner.run(MODULE, testcase, params=params, seed=seed, env=env)


@pytest.mark.parametrize("seed", range(1, 3))
@pytest.mark.parametrize("models", ["fixed", "rough"])
def test_random_stores(models: str, seed: int) -> None:
    stores("random_stores", models, seed)


@pytest.mark.parametrize("models", ["near", "bursty", "shuffled", "choked"])
def test_other_memories(models: str) -> None:
    stores("random_stores", models)


@pytest.mark.parametrize(
    "unit", [SMALL, *(pytest.param(unit, marks=pytest.mark.regress) for unit in (FPGA, FULL))]
)
@pytest.mark.parametrize("models", ["fixed", "choked"])
def test_small_unit(models: str, unit: TmaParams) -> None:
    stores("random_stores", models, params=unit)


@pytest.mark.simulators(TINY_STORES)
@pytest.mark.regress
def test_tiny_unit() -> None:
    modes = "store_tile,store_tile_interleaved,bulk_store"
    stores("random_stores", "rough", modes=modes, params=TINY_STORES)


@pytest.mark.parametrize(
    ("models", "apart"), [("rough", 16), pytest.param("rough", 1, marks=pytest.mark.regress)]
)
def test_every_kind_of_store(models: str, apart: int) -> None:
    """A store and a reduction of each kind that coverage distinguishes, or of every 16th kind."""
    env = {"STORES_MODELS": models, "STORES_EVERY": str(apart)}
    runner.run(MODULE, "every_kind", env=env)


@pytest.mark.parametrize("models", ["fixed", "rough"])
def test_copies(models: str) -> None:
    """Loads and stores of matrices through shared memory."""
    stores("copies", models)


@pytest.mark.simulators(LATER)
@pytest.mark.parametrize("mode", [*LATER_MODES, "bulk_store"])
def test_later_mode(mode: str) -> None:
    stores("random_stores", "rough", modes=mode, params=LATER)


@pytest.mark.simulators(LATER)
def test_later_modes_with_all_others() -> None:
    stores("random_stores", "fixed", params=LATER)


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("models", ["fixed", "rough"])
@pytest.mark.parametrize("params", [PRESETS["default"], LATER], ids=["default", "sm_107a"])
def test_many(params: TmaParams, models: str, seed: int) -> None:
    stores("random_stores", models, seed, count=2000, params=params)


@pytest.mark.parametrize("testcase", RULES)
def test_rules(testcase: str) -> None:
    runner.run(MODULE, testcase)
