"""Invariants of an arbiter whose inputs keep the law of streams."""

from amaranth.hdl import Assert, Module

from hw.lib.arbiter import Arbiter
from tests.formal.inside import Inside, inside


def keep_the_choice(m: Module, arbiter: Arbiter) -> Inside:
    """Assert that an input that was offered and not taken is still there.

    Return access to the inside of the arbiter.
    """
    state = inside(arbiter)
    m.d.comb += Assert(state.last_way < arbiter.ways)
    for way, port in enumerate(arbiter.i):
        is_locked = state.locked & (state.last_way == way)
        m.d.comb += Assert(~is_locked | port.valid)
    return state
