"""A probe of an idle unit: how long bursts take that need each tag, slot and group.

Each burst has twice as many lines, requests or groups as the unit has places for, and each answer
takes longer than all of them take to be sent. So the second half waits for the answers to the first
half. A single place that is lost makes one of them wait for a third round.
"""

import numpy as np

from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import Models, Timing

SOURCE = 1 << 50
"""Address of the bytes that bursts load. Nothing is placed there."""

TARGET = 1 << 51
"""Address of the bytes that bursts store."""

BYTES = 4096
"""Most bytes of a request of a burst."""

TINY = 16


def latency(env: Environment) -> int:
    """Return the clocks of each answer: more than a burst needs to be sent."""
    parameters = env.interface.parameters
    return 4 * max(parameters["tags"], parameters["requests_in_flight"]) + 500


def tolerance(env: Environment) -> int:
    """Return the clocks by which two probes of a unit that lost nothing may differ."""
    return latency(env) // 4


def models(env: Environment) -> Models:
    """Return the models of a probe."""
    timing = Timing.fixed(latency(env))
    return Models(lines=timing, descriptors=Timing.fixed(8), smem=Timing.fixed(8), stores=timing)


async def loads(env: Environment, count: int, size: int, barrier: int, window: range) -> int:
    """Load ``count`` pieces of ``size`` bytes; return the clocks from request to phase."""
    await env.barriers.command("INIT", barrier, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", barrier, count * size)
    begin = env.cycle
    places = len(window) // size
    for number in range(count):
        place = window.start + number % places * size
        env.requests.bulk_load(SOURCE + number * BYTES, place, size, barrier)
    return await env.barriers.wait(barrier, 0, timeout=10 * latency(env)) - begin


async def stores(env: Environment, count: int, size: int, window: range, *, groups: bool) -> int:
    """Store ``count`` pieces of ``size`` bytes, in a group each or in one; return the clocks."""
    begin = env.cycle
    places = len(window) // size
    for number in range(count):
        place = window.start + number % places * size
        env.requests.bulk_store(TARGET + number * BYTES, place, size)
        if groups:
            env.requests.commit_group()
    env.requests.commit_group()
    return await env.requests.wait_group(0, timeout=10 * latency(env)) - begin


async def load_bursts(env: Environment, barrier: int, window: range) -> dict[str, int]:
    """Return the clocks of each burst of loads, behind the barrier at offset ``barrier``.

    ``window`` is the shared memory that they change, a multiple of ``BYTES`` bytes.
    """
    env.use(models(env))
    size, lines = lines_of(env)
    slots = 2 * env.interface.parameters["requests_in_flight"]
    return {
        "tags of reads": await loads(env, lines, size, barrier, window),
        "slots of loads": await loads(env, slots, TINY, barrier, window),
    }


async def store_bursts(env: Environment, window: range) -> dict[str, int]:
    """Return the clocks of each burst of stores from ``window``, as in ``load_bursts``."""
    env.use(models(env))
    size, lines = lines_of(env)
    slots = 2 * env.interface.parameters["requests_in_flight"]
    groups = 2 * env.interface.parameters["bulk_groups"]
    env.gmem.place(TARGET, np.zeros(BYTES * max(lines, slots, groups), np.uint8))
    clocks = {
        "tags of writes": await stores(env, lines, size, window, groups=False),
        "slots of stores": await stores(env, slots, TINY, window, groups=False),
        "groups": await stores(env, groups, TINY, window, groups=True),
    }
    await env.idle()
    env.gmem.remove(TARGET)
    return clocks


async def probe(env: Environment, barrier: int, window: range) -> dict[str, int]:
    """Return the clocks of all bursts on an idle unit. Its models are those of the probe then."""
    bursts = await load_bursts(env, barrier, window)
    return bursts | await store_bursts(env, window)


def lines_of(env: Environment) -> tuple[int, int]:
    """Return size and number of the requests that have twice as many lines as the unit has tags."""
    line, tags = env.interface.parameters["line_bytes"], env.interface.parameters["tags"]
    size = min(BYTES, line * tags)
    return size, 2 * tags * line // size


def lost(env: Environment, first: dict[str, int], last: dict[str, int]) -> list[str]:
    """Return a sentence for each burst that takes longer than it did at the begin."""
    return [
        f"{name}: {last[name]} clocks, at the begin {clocks}: a place is lost"
        for name, clocks in first.items()
        if abs(last[name] - clocks) > tolerance(env)
    ]
