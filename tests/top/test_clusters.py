"""Clusters: multicast, shared memory and barriers of other SMs, against the golden model."""

import pytest

from hw.params import TmaParams
from sim_tb.simulator import runner
from tests.top.units import CLUSTER, WIDE_CLUSTER

pytestmark = [pytest.mark.simulators(CLUSTER), pytest.mark.spread]

MODULE = "tests.top.tb_clusters"
RULES = [
    "memory_is_read_once",
    "a_beat_a_clock_at_every_receiver",
    "a_slow_receiver_stalls_only_its_own",
    "an_absent_receiver_is_reported",
    "dsmem_rates",
    "barriers_of_other_ctas",
    "pairs_signal_one_barrier",
    "waiting_signals_are_combined",
    "a_bad_request_leaves_nothing",
    "what_is_ignored_as_on_silicon",
    "an_unreadable_line_signals_less",
]


def clusters(
    testcase: str, models: str, seed: int = 1, *, count: int = 25, params: TmaParams = CLUSTER
) -> None:
    env = {"CLUSTER_MODELS": models, "CLUSTER_COUNT": str(count)}
    runner.run(MODULE, testcase, params=params, seed=seed, env=env)


@pytest.mark.parametrize("models", ["fixed", "rough", "choked"])
def test_random_requests(models: str) -> None:
    clusters("random_requests", models)


@pytest.mark.parametrize("testcase", RULES)
def test_rules(testcase: str) -> None:
    clusters(testcase, "fixed")


@pytest.mark.simulators(WIDE_CLUSTER)
@pytest.mark.regress
@pytest.mark.parametrize("testcase", ["random_requests", "memory_is_read_once"])
def test_more_ctas_than_a_mask_of_16_bits_has(testcase: str) -> None:
    clusters(testcase, "rough", params=WIDE_CLUSTER)


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("models", ["near", "random", "shuffled", "rough", "choked"])
def test_many(models: str, seed: int) -> None:
    clusters("random_requests", models, seed, count=150)
