"""Illegal parameters of memory models and stalls are refused."""

from typing import Any

import pytest

from sim_tb.testbench.models import PORTS, Models, Stall, Timing


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (Timing, {"low": 0, "high": 4}, "latency from 0 to 4"),
        (Timing, {"low": 5, "high": 4}, "latency from 5 to 4"),
        (Timing, {"low": 1, "high": 1, "period": 0}, "period"),
        (Timing, {"low": 1, "high": 1, "in_flight": -1}, "in_flight"),
        (Timing, {"low": 1, "high": 1, "bandwidth": 1.5}, "bandwidth 1.5"),
        (Stall, {"share": 1.0}, "share"),
        (Stall, {"share": 0.5, "mean": 0.5}, "mean"),
        (Models, {"stalls": {"gnic": Stall(0.1)}}, "stalls of gnic: must be of ports"),
    ],
)
def test_refused(kind: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        kind(**arguments)


def test_stalling_reaches_every_port() -> None:
    assert set(Models().stalling(0.25).stalls) == set(PORTS)
