"""The unit takes exactly the clocks that ``cycles.json`` says."""

import pytest

from sim_tb.simulator import runner
from tests.top.cycles import slower

pytestmark = [pytest.mark.simulators()]


def test_bursts_take_their_clocks() -> None:
    """A change that is deliberate: ``python -m tests.top.cycles`` writes the file anew."""
    runner.run("tests.top.tb_cycles")


def test_slower_bursts_are_named() -> None:
    """A burst is slower if any of its figures is larger; new and former bursts are not."""
    before = {"a": [10, 0, 4, 0], "b": [10, 9, 4, 4], "c": [10, 0, 4, 0], "old": [1, 0, 1, 0]}
    after = {"a": [9, 0, 4, 0], "b": [9, 10, 4, 4], "c": [10, 0, 5, 0], "new": [1, 0, 1, 0]}
    assert slower(before, after) == [
        "b: [9, 10, 4, 4], was [10, 9, 4, 4]",
        "c: [10, 0, 5, 0], was [10, 0, 4, 0]",
    ]
