"""Figures that follow from the counts of a unit: hits, means of what is in flight, stalls."""

from collections.abc import Mapping

from hw.layouts.monitor import STALLS

Counts = Mapping[str, int]
"""Counts by the names of ``hw.layouts.monitor.Counter``."""

SHOWN = 3
"""Causes of stalls that are shown, those of most clocks."""

LEAST_SHARE = 0.01
"""Least share of the clocks of a stall that is shown."""


def mean(counts: Counts, name: str) -> float:
    """Return the mean over all clocks of what is in flight."""
    return counts[name] / max(1, counts["CYCLES"])


def label(name: str) -> str:
    """Return the name of a counter as words, without its kind.

    >>> label("READ_TAG_STALLS")
    'read tag'
    """
    return name.lower().removesuffix("_stalls").replace("_", " ")


def stalls(counts: Counts) -> dict[str, float]:
    """Return the share of the clocks of each cause of stalls, the largest first."""
    clocks = max(1, counts["CYCLES"])
    shares = {label(stall.name): counts[stall.name] / clocks for stall in STALLS}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def stall_text(counts: Counts) -> str:
    """Return the causes of stalls of most clocks with their shares, in one line."""
    chosen = [(name, share) for name, share in stalls(counts).items() if share >= LEAST_SHARE]
    return ", ".join(f"{name} {share:.0%}" for name, share in chosen[:SHOWN]) or "none"
