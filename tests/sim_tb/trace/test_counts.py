"""Figures of counts: means, and the causes of stalls."""

from hw.layouts.monitor import Counter
from sim_tb.trace.counts import mean, stall_text, stalls

NOTHING = {counter.name: 0 for counter in Counter}


def test_stalls_are_shares_of_the_clocks() -> None:
    counts = NOTHING | {"CYCLES": 200, "READ_TAG_STALLS": 50, "MAP_STALLS": 100, "LANE_STALLS": 1}
    counts |= {"SETUP_STALLS": 3, "FILL_STALLS": 4}
    assert stall_text(counts) == "map 50%, read tag 25%, fill 2%"
    assert list(stalls(counts).items())[:2] == [("map", 0.5), ("read tag", 0.25)]
    assert len(stalls(counts)) == sum(name.endswith("_STALLS") for name in counts)


def test_nothing_was_counted() -> None:
    assert stall_text(NOTHING) == "none"
    assert mean(NOTHING, "READS_IN_FLIGHT") == 0
    assert mean(NOTHING | {"CYCLES": 4, "READS_IN_FLIGHT": 10}, "READS_IN_FLIGHT") == 2.5
