"""Loads of the unit against the golden model, in simulation."""

import pytest

from hw.params import TmaParams
from sim_tb.simulator import runner
from tests.top.units import FPGA, FULL, LOADS_ONLY, SMALL, TINY

pytestmark = [pytest.mark.simulators(), pytest.mark.spread]

MODULE = "tests.top.tb_loads"
RANDOM = ["one_at_a_time", "in_flight"]
RULES = [
    "an_edit_is_seen_after_invalidation",
    "a_fill_in_flight_is_overtaken",
    "a_prefetched_map_is_not_fetched_again",
    "unreadable_lines_are_an_error",
    "an_unreadable_map_is_an_error",
    "prefetches_ask_for_lines_and_nothing_else",
    "memory_is_read_inside_the_tensor_only",
    "short_rows_of_all_steps",
    "rows_of_pixels",
    "fill_of_all_streams",
]
MODELS = ["fixed", "rough"]


def random_loads(
    testcase: str, models: str, seed: int, *, modes: str = "", **options: TmaParams
) -> None:
    env = {"LOADS_MODELS": models, "LOADS_COUNT": "100", "LOADS_MODES": modes}
    runner.run(MODULE, testcase, seed=seed, env=env, **options)


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.regress) for seed in range(3, 6))]
)
@pytest.mark.parametrize("models", MODELS)
@pytest.mark.parametrize("testcase", RANDOM)
def test_random_loads(testcase: str, models: str, seed: int) -> None:
    random_loads(testcase, models, seed)


@pytest.mark.parametrize("models", ["near", "bursty", "shuffled", "choked"])
def test_other_memories(models: str) -> None:
    random_loads("in_flight", models, 1)


@pytest.mark.parametrize(
    "unit",
    [
        SMALL,
        *(pytest.param(unit, marks=pytest.mark.regress) for unit in (FPGA, FULL, LOADS_ONLY)),
    ],
)
@pytest.mark.parametrize("models", ["fixed", "choked"])
def test_small_unit(models: str, unit: TmaParams) -> None:
    random_loads("in_flight", models, 1, params=unit)


@pytest.mark.simulators(TINY)
@pytest.mark.parametrize("models", ["fixed", "choked"])
def test_tiny_unit(models: str) -> None:
    """A unit with lines of 16 bytes, without im2col and bulk copies."""
    random_loads("in_flight", models, 1, modes="tile,interleaved", params=TINY)


@pytest.mark.simulators(TINY)
def test_a_unit_without_bulk_copies() -> None:
    runner.run("tests.top.tb_without_bulk", "refuses_bulk_copies", params=TINY)


@pytest.mark.parametrize("models", MODELS)
def test_mixed_sizes(models: str) -> None:
    random_loads("mixed_sizes", models, 1)


@pytest.mark.parametrize(
    ("models", "apart"),
    [("rough", 5), *(pytest.param(models, 1, marks=pytest.mark.regress) for models in MODELS)],
)
def test_every_kind(models: str, apart: int) -> None:
    """A load of each kind that coverage distinguishes, or of every fifth kind."""
    env = {"LOADS_MODELS": models, "LOADS_EVERY": str(apart)}
    runner.run(MODULE, "every_kind", env=env)


@pytest.mark.parametrize("models", MODELS)
def test_hints(models: str) -> None:
    random_loads("hints_go_with_every_line", models, 1)


def test_offsets() -> None:
    random_loads("offsets_are_limited", "fixed", 1)


@pytest.mark.parametrize("testcase", RULES)
def test_rules(testcase: str) -> None:
    runner.run(MODULE, testcase)
