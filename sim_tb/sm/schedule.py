"""Random schedules: delays of warps, and memories and ports around the unit, from one seed."""

from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np

from sim_tb.testbench.models import Models, Timing

MOST_LATENCY = 1000
"""Clocks: the longest latency of a memory in a random schedule."""

STALLS = 0.3
"""Share of the clocks in which ports are closed, in half of the schedules."""

RARE, LONG_DELAY = 0.02, 2000
"""Share of instructions that are delayed for long, and up to how many clocks."""

FREQUENT, SHORT_DELAY = 0.25, 64
"""Share of instructions that are delayed a little, and up to how many clocks."""


class Delays:
    """Clocks by which a random schedule delays the instructions of one role.

    Parameters
    ----------
    schedule : int, optional
        Seed. None: nothing is delayed.
    cta : int
    role : str
    """

    def __init__(self, schedule: int | None, cta: int, role: str) -> None:
        self._rng = None
        if schedule is not None:
            self._rng = np.random.default_rng([schedule, cta, crc32(role.encode())])

    def draw(self) -> int:
        """Return the delay of the next instruction."""
        if self._rng is None:
            return 0
        chance = self._rng.random()
        if chance < RARE:
            return int(self._rng.integers(LONG_DELAY))
        return int(self._rng.integers(SHORT_DELAY)) if chance < RARE + FREQUENT else 0


def scheduled(models: Models, schedule: int | None) -> Models:
    """Return models in which a random schedule draws the latencies, and stalls some ports."""
    if schedule is None:
        return models
    rng = np.random.default_rng([schedule])

    def drawn(timing: Timing) -> Timing:
        low, high = sorted(int(each) for each in rng.integers(1, MOST_LATENCY, 2))
        return replace(timing, low=low, high=high)

    kinds = "lines", "descriptors", "stores"
    timings: dict[str, Any] = {name: drawn(getattr(models, name)) for name in kinds}
    drawn_models = replace(models, **timings)
    return drawn_models.stalling(STALLS) if rng.random() < 0.5 else drawn_models
