"""Random loads and stores of a unit whose global memory is behind a port of another kind."""

from hw.params import TmaParams
from sim_tb.simulator import runner

MODELS = "fixed", "rough", "choked"
"""Models of memory that each of these units meets."""


def modes_of(params: TmaParams) -> str:
    """Return the modes of loads that a unit has: all, or those of ``TINY``."""
    return "" if params.im2col and params.bulk else "tile,interleaved"


def run_loads(params: TmaParams, models: str) -> None:
    """Simulate random loads, many in flight."""
    env = {"LOADS_MODELS": models, "LOADS_COUNT": "100", "LOADS_MODES": modes_of(params)}
    runner.run("tests.top.tb_loads", "in_flight", params=params, env=env)


def run_stores(params: TmaParams, models: str) -> None:
    """Simulate random stores and reductions."""
    env = {"STORES_MODELS": models, "STORES_COUNT": "150", "STORES_MODES": ""}
    runner.run("tests.top.tb_stores", "random_stores", params=params, env=env)
