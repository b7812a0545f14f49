"""A unit moves lines through AXI4 as fast as its bus, or its own port to memory, allows."""

from dataclasses import replace
from typing import Any

import pytest

from hw.params import TmaParams
from sim_tb.performance import microbenchmarks as micro
from sim_tb.performance.bounds import MIN_RATE

SHORT_LINES = replace(micro.AXI_UNIT, line_bytes=16, smem_reads=4, lane_depth=4)
"""Quick to build: lines of 16 bytes, which fill the beats of a port of 128 bits."""


def case(unit: TmaParams, bits: int, *marks: pytest.MarkDecorator) -> Any:
    """Return the arguments of a test of both ports of a unit."""
    both = pytest.mark.simulators(unit, replace(unit, axi_data_bits=bits))
    return pytest.param(unit, bits, marks=(both, *marks))


@pytest.mark.parametrize(
    ("unit", "bits"),
    [
        case(SHORT_LINES, 128),
        *(case(micro.AXI_UNIT, bits, pytest.mark.regress) for bits in micro.AXI_WIDTHS),
    ],
)
def test_loads_and_stores(unit: TmaParams, bits: int) -> None:
    """The floor is the bus, a beat a clock, or the rate of the unit's own port if that is less.

    Latency and tags are the same on both sides. A bus that is narrower than a line cannot carry
    what the unit's own port does.
    """
    by_axi = replace(unit, axi_data_bits=bits)
    own, through_axi = micro.port_rates(unit), micro.port_rates(by_axi)
    assert own.keys() == through_axi.keys() == {"loads", "stores"}
    for way, rate in through_axi.items():
        floor = min(own[way], micro.bus_rate(by_axi))
        assert rate >= MIN_RATE * floor, f"{way}: {rate:.4f} lines a clock of {floor:.4f}"
