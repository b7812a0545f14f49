"""Units of random parameters against the golden model, in simulation."""

from functools import partial

import pytest

from sim_tb.simulator import runner
from tests.top.drawn_units import (
    ALL,
    CLUSTERS,
    QUICK_SEEDS,
    build_cluster,
    build_unit,
    cluster,
    options,
    unit,
)
from tests.top.unit_modes import load_modes, store_modes

pytestmark = [pytest.mark.spread]


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=[
                pytest.mark.simulators.with_args(partial(build_unit, seed)),
                *([] if seed in QUICK_SEEDS else [pytest.mark.regress]),
            ],
        )
        for seed in range(ALL)
    ],
)
def test_drawn_unit(seed: int) -> None:
    """A drawn unit runs all requests that it has, against the golden model; every stream inside it
    is checked.
    """
    params = unit(seed)
    common = {"params": params, "seed": seed + 1, **options(params)}
    loads = {"LOADS_MODELS": "rough", "LOADS_COUNT": "40", "LOADS_MODES": load_modes(params)}
    runner.run("tests.top.tb_loads", "in_flight", env=loads, **common)
    if params.stores:
        stores = {"STORES_MODELS": "rough", "STORES_COUNT": "30"}
        stores["STORES_MODES"] = store_modes(params)
        runner.run("tests.top.tb_stores", "random_stores", env=stores, **common)


@pytest.mark.regress
@pytest.mark.parametrize(
    ("seed", "ctas"),
    [
        pytest.param(
            seed, ctas, marks=pytest.mark.simulators.with_args(partial(build_cluster, seed, ctas))
        )
        for seed, ctas in CLUSTERS
    ],
)
def test_drawn_cluster(seed: int, ctas: int) -> None:
    """A drawn cluster runs requests between its CTAs, against the golden model."""
    params = cluster(seed, ctas)
    runner.run(
        "tests.top.tb_clusters",
        "random_requests",
        params=params,
        seed=seed + 1,
        env={"CLUSTER_MODELS": "rough", "CLUSTER_COUNT": "6"},
        **options(params),
    )
