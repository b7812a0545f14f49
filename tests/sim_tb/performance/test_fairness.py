"""Streams of requests share the memory port line by line."""

import pytest

from sim_tb.performance import streams
from sim_tb.performance.streams import ADVERSARIES, MAX_EXTRA_CLOCKS

pytestmark = pytest.mark.regress


def test_each_stream_has_its_share() -> None:
    """Boxes have 16 bytes up to nearly all of shared memory. Each stream reads nearly a quarter of
    the lines, or nearly as many as it reads alone.
    """
    wrong = [
        f"{name}, {size} bytes: {rate:.3f} lines a clock, the bound is {rates.bound(size):.3f}"
        for name, rates in streams.line_rates().items()
        for size, rate in rates.shared.items()
        if rate < rates.bound(size)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_small_box_does_not_wait_for_large_ones() -> None:
    wrong = [
        f"{name}: {max(beside)} clocks, alone {max(alone)}"
        for name, (alone, beside) in streams.small_box_latencies().items()
        if max(beside) > max(alone) + MAX_EXTRA_CLOCKS
    ]
    assert not wrong, "\n".join(wrong)


def test_adversaries_delay_a_small_box_by_a_bounded_time() -> None:
    wrong = [
        f"{name}: {max(beside)} clocks, alone {max(alone)}"
        for name, (alone, beside) in streams.adverse_latencies().items()
        if max(beside) > max(alone) + ADVERSARIES[name]
    ]
    assert not wrong, "\n".join(wrong)
