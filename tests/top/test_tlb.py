"""Units with a TLB between permuted pages, against the golden model."""

from dataclasses import replace

import pytest

from hw.params import PRESETS, TmaParams
from sim_tb.simulator import runner
from tests.quick import quick
from tests.top.behind_ports import MODELS, run_loads, run_stores
from tests.top.units import FPGA, LATER, SMALL, TINY

FEW = replace(SMALL, tlb_entries=4)
"""Far fewer entries than pages in use."""

BY_AXI = replace(SMALL, tlb_entries=16, tlb_page_bits=14, axi_data_bits=64, axi_prefetch=True)

UNITS = [
    *(pytest.param(params, marks=pytest.mark.simulators(params)) for params in (FEW, BY_AXI)),
    *(
        pytest.param(params, marks=(pytest.mark.simulators(params), pytest.mark.regress))
        for params in (
            replace(TINY, tlb_entries=2),
            replace(FPGA, tlb_entries=16, tlb_page_bits=21),
            replace(LATER, tlb_entries=32),
            replace(PRESETS["default"], tlb_entries=16, axi_data_bits=512),
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


@pytest.mark.parametrize("params", UNITS[:2])
@pytest.mark.parametrize(
    "testcase",
    [
        "loads_of_an_absent_page",
        "a_prefetch_of_an_absent_page_is_ignored",
        "tensor_maps_of_an_absent_page",
        "stores_to_absent_and_read_only_pages",
    ],
)
def test_page_faults(testcase: str, params: TmaParams) -> None:
    runner.run("tests.top.tb_tlb", testcase, params=params)


@pytest.mark.parametrize("params", UNITS[:2])
@pytest.mark.parametrize(
    ("module", "testcase"),
    [
        ("loads", "unreadable_lines_are_an_error"),
        ("loads", "an_unreadable_map_is_an_error"),
        ("loads", "prefetches_ask_for_lines_and_nothing_else"),
        ("loads", "hints_go_with_every_line"),
        ("stores", "a_load_behind_a_store"),
        ("stores", "reductions_to_one_address"),
    ],
)
def test_rules(module: str, testcase: str, params: TmaParams) -> None:
    runner.run(f"tests.top.tb_{module}", testcase, params=params)


@pytest.mark.parametrize("params", UNITS[:1])
@pytest.mark.parametrize("testcase", ["drain", "idle_waits_for_all", "reset_at_any_clock"])
def test_idle_and_reset(testcase: str, params: TmaParams) -> None:
    """Answers with wrong tags are left out: the memory does not know the accesses in the TLB."""
    env = {"RESET_MODELS": "rough", "RESET_COUNT": "200"}
    runner.run("tests.top.tb_reset", testcase, params=params, env=env)
