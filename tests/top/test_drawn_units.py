"""Units of random parameters against the golden model, in simulation."""

import random

import pytest

from hw.params import TmaParams
from sim_tb.simulator import runner
from tests.hw.drawn import drawn
from tests.top.random_loads import BLACKWELL, BY_PARAMETER, HOPPER
from tests.top.random_stores import HOPPER as HOPPER_STORES
from tests.top.random_stores import WINDOW

pytestmark = [pytest.mark.spread]

QUICK, ALL = 20, 300
"""Units of ``make test``, and of ``make regress``."""

NEEDS = {"im2col_w_128": "im2col_w", "interleaved": "", "tile": "", "im2col_interleaved": "im2col"}
"""Parameters that modes of loads need, where they have another name."""

STORES_NEED = {"im2col": "im2col", "reduce": "reductions", "bulk": "bulk"}
"""Parameters that modes of stores need, by a part of their name."""


def unit(seed: int) -> TmaParams:
    """Return the parameters of a unit; ``replace`` would not do, as one depends on another."""
    rng = random.Random(seed)
    while True:
        params = drawn(rng)
        if params.ctas == 1:
            return params


def load_modes(params: TmaParams) -> str:
    """Return the modes of loads that the unit has."""
    modes = [*HOPPER, *BLACKWELL, *BY_PARAMETER, "bulk"]
    return ",".join(
        mode for mode in modes if not (name := NEEDS.get(mode, mode)) or getattr(params, name)
    )


def store_modes(params: TmaParams) -> str:
    """Return Hopper's modes of stores that the unit has."""
    return ",".join(
        mode
        for mode in HOPPER_STORES
        if all(getattr(params, name) for part, name in STORES_NEED.items() if part in mode)
    )


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=[
                pytest.mark.simulators(unit(seed)),
                *([pytest.mark.regress] if seed >= QUICK else []),
            ],
        )
        for seed in range(ALL)
    ],
)
def test_drawn_unit(seed: int) -> None:
    """A drawn unit runs all requests that it has, against the golden model."""
    params = unit(seed)
    loads = {"LOADS_MODELS": "rough", "LOADS_COUNT": "40", "LOADS_MODES": load_modes(params)}
    runner.run("tests.top.tb_loads", "in_flight", params=params, seed=seed + 1, env=loads)
    if params.stores and params.smem_bytes >= WINDOW:
        stores = {
            "STORES_MODELS": "rough",
            "STORES_COUNT": "30",
            "STORES_MODES": store_modes(params),
        }
        runner.run("tests.top.tb_stores", "random_stores", params=params, seed=seed + 1, env=stores)
