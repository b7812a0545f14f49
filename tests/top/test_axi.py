"""Units whose global memory is behind an AXI4 port, against the golden model."""

from dataclasses import replace

import pytest

from hw.params import PRESETS, TmaParams
from sim_tb.simulator import runner
from tests.quick import quick
from tests.top.behind_ports import MODELS, run_loads, run_stores
from tests.top.units import FPGA, SMALL, TINY

NARROW = replace(SMALL, axi_data_bits=64, axi_prefetch=True, axi_atomics=True)
"""A line is four beats, and a tensor map eight. Memory performs reductions of integers."""

WIDE = replace(TINY, axi_data_bits=1024)
"""A beat has eight lines, and two tensor maps."""

UNITS = [
    pytest.param(NARROW, marks=pytest.mark.simulators(NARROW)),
    *(
        pytest.param(params, marks=(pytest.mark.simulators(params), pytest.mark.regress))
        for params in (
            WIDE,
            replace(FPGA, axi_data_bits=128),
            replace(FPGA, axi_data_bits=512),
            replace(PRESETS["default"], axi_data_bits=1024, axi_prefetch=True),
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


@pytest.mark.parametrize("params", UNITS[:1])
@pytest.mark.parametrize(
    ("module", "testcase"),
    [
        ("loads", "unreadable_lines_are_an_error"),
        ("loads", "an_unreadable_map_is_an_error"),
        ("stores", "unwritable_lines_are_an_error"),
        ("stores", "a_load_behind_a_store"),
        ("stores", "reductions_to_one_address"),
    ],
)
def test_rules(module: str, testcase: str, params: TmaParams) -> None:
    runner.run(f"tests.top.tb_{module}", testcase, params=params)
