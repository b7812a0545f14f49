"""The unit takes exactly the clocks that ``cycles.json`` says."""

import pytest

from sim_tb.simulator import runner

pytestmark = [pytest.mark.simulators()]


def test_bursts_take_their_clocks() -> None:
    """A change that is deliberate: ``python -m tests.top.cycles`` writes the file anew."""
    runner.run("tests.top.tb_cycles")
