"""A unit without counters: nothing of the monitor is in it, and no other block knows of it."""

import re
from dataclasses import replace
from functools import cache

from hw.flow.design import Design
from hw.params import PRESETS
from hw.top import Tma

MODULE = re.compile(r"^module \\(\S+)\n.*?^end\n", re.MULTILINE | re.DOTALL)
ORDER = re.compile(r"^ *parameter signed .PRIORITY .*\n", re.MULTILINE)
"""Number of an assertion in the whole design, of no meaning for the hardware."""

WATCHED = ("completion_tracker", "descriptor_cache", "request_generator", "gnic")
"""Blocks that have ports or fields for the monitor, with the blocks in them."""


@cache
def modules(*, counters: bool) -> dict[str, str]:
    """Return the modules of a unit, by the names of the instances down to them."""
    unit = Tma(replace(PRESETS["tiny"], counters=counters))
    text = ORDER.sub("", Design(unit, "tma").rtlil())
    return {found[1]: found[0] for found in MODULE.finditer(text)}


def test_nothing_of_the_monitor_is_there() -> None:
    text = "".join(modules(counters=False).values())
    names = "unit_monitor", "slot_use", "marks", "map_use", "has_missed", "trace", "counters"
    assert not [name for name in names if name in text]
    assert all(name in "".join(modules(counters=True).values()) for name in ("slot_use", "trace"))


def test_all_other_blocks_are_the_same_with_counters() -> None:
    """Byte by byte."""
    without, with_counters = modules(counters=False), modules(counters=True)
    added = with_counters.keys() - without.keys()
    assert {name.split(".")[1] for name in added} == {"unit_monitor"}
    assert not without.keys() - with_counters.keys()
    differ = {name for name in without if without[name] != with_counters[name]}
    assert {name.split(".")[1] for name in differ - {"tma"}} <= set(WATCHED)
    assert len(without) - len(differ) > 40
