"""A unit that shares its SM with the units of hostile neighbours, against the golden model.

The neighbours send random requests, most of them malformed, into the ports that they share with the
unit (``hw.contexts_loop``). They must not be seen at the unit: not in its data, its barriers, its
bulk groups and its error records, and not as accesses that none of its requests has asked for.
"""

from dataclasses import replace

import pytest

from hw.params import PRESETS, TmaParams
from tests.quick import quick
from tests.top.behind_ports import MODELS, run_loads, run_stores
from tests.top.units import FPGA, LATER, SMALL, TINY

PAIR = replace(SMALL, contexts=2)

UNITS = [
    pytest.param(PAIR, marks=pytest.mark.simulators(PAIR)),
    *(
        pytest.param(params, marks=(pytest.mark.simulators(params), pytest.mark.regress))
        for params in (
            replace(TINY, contexts=4),
            replace(FPGA, contexts=2),
            replace(LATER, contexts=2, smem_bytes=LATER.smem_bytes - 128),
            replace(PRESETS["default"], contexts=2),
        )
    ),
]


@pytest.mark.parametrize("models", quick(MODELS, 1))
@pytest.mark.parametrize("params", UNITS)
def test_loads(params: TmaParams, models: str) -> None:
    run_loads(params, models)


@pytest.mark.parametrize("models", quick(MODELS, 1))
@pytest.mark.parametrize("params", [unit for unit in UNITS if unit.values[0].stores])
def test_stores_and_reductions(params: TmaParams, models: str) -> None:
    run_stores(params, models)
