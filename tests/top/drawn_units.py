"""Units and clusters of random parameters, and how they are built."""

import random
import re
from functools import cache
from typing import Any

from hw.flow.cache import generated
from hw.params import TmaParams
from sim_tb.simulator import runner
from tests.hw.drawn import drawn

QUICK, ALL = 20, 300
"""Units of ``make test``, which are built fastest, and of ``make regress``."""

CLUSTERS = ((0, 2), (1, 4), (2, 4), (3, 16))
"""Seed and CTAs of each cluster of ``make regress``."""

MEMORY = re.compile(r"^  initial begin\n(?:    (\S+)\[\d+\] = (\d+)'h0+;\n)+  end$", re.MULTILINE)


def cost(params: TmaParams) -> int:
    """Return a number that grows with the time of a build."""
    size = 3 * params.setup_pipelines + params.lanes + 2 * params.streams
    size += 3 * params.stores + 3 * params.reductions + 2 * params.im2col + 2 * params.override
    counts = params.requests_in_flight // 800 + params.stores * params.bulk_groups // 8
    return size + params.sub_byte + params.gather4 + counts


@cache
def unit(seed: int) -> TmaParams:
    """Return the parameters of a unit that is alone."""
    return drawn(random.Random(seed), ctas=1)


def cluster(seed: int, ctas: int) -> TmaParams:
    """Return the parameters of a cluster that has all that ``tb_clusters`` needs."""
    rng = random.Random(seed)
    while True:
        params = drawn(rng, ctas)
        has_all = params.stores and params.reductions and params.bulk
        if has_all and params.smem_bytes >= 233472 and params.address_bits >= 48:
            return params


def with_short_memories(verilog: str) -> str:
    """Return Verilog with a loop for the contents of each memory: it is compiled faster."""

    def loop(found: re.Match[str]) -> str:
        rows = found[0].count("\n") - 1
        head = f"for (int _row = 0; _row < {rows}; _row = _row + 1)"
        return f"  initial begin\n    {head} {found[1]}[_row] = {found[2]}'h0;\n  end"

    return MEMORY.sub(loop, verilog)


def options(params: TmaParams) -> dict[str, Any]:
    """Return the options of a build whose streams are all checked, and that takes little time: the
    simulation is short.
    """
    rtl = generated(params, checks_streams=True, loops=True)
    return {"rtl": rtl, "rewrite": with_short_memories, "optimisation": "-O0"}


def build_unit(seed: int) -> runner.Simulator:
    """Build a drawn unit."""
    return runner.build_as_asked(unit(seed), **options(unit(seed)))


def build_cluster(seed: int, ctas: int) -> runner.Simulator:
    """Build a drawn cluster."""
    return runner.build_as_asked(cluster(seed, ctas), **options(cluster(seed, ctas)))


QUICK_SEEDS = sorted(range(ALL), key=lambda seed: cost(unit(seed)))[:QUICK]
