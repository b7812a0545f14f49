"""Streams of requests share the unit line by line."""

import pytest

from sim_tb.performance import streams
from sim_tb.performance.streams import MORE

pytestmark = pytest.mark.regress


def test_each_stream_has_its_share() -> None:
    """Boxes of 16 bytes to nearly all of shared memory: each stream has a quarter of the lines, or
    what it takes alone.
    """
    wrong = [
        f"{name}, {size} bytes: {rate:.3f} lines a clock, due {found.due(size):.3f}"
        for name, found in streams.mixes().items()
        for size, rate in found.together.items()
        if rate < found.due(size)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_small_box_does_not_wait_for_large_ones() -> None:
    wrong = [
        f"{name}: {max(among)} clocks, alone {max(alone)}"
        for name, (alone, among) in streams.waits().items()
        if max(among) > max(alone) + MORE
    ]
    assert not wrong, "\n".join(wrong)
