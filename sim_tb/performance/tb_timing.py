"""cocotb module: cycles per box of the saturated unit. ``sim_tb.performance.series`` starts it.

The environment variable ``TIMING_MODELS`` names a preset of ``sim_tb.testbench.models``.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cocotb
import numpy as np

from golden import BulkLoad, BulkStore, Load, TensorMap
from hw.params import WARP
from sim_tb.performance.kinds import CopyRequest
from sim_tb.simulator import jobs
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.models import PRESETS, Timing

TARGET_CLOCKS = 4096
"""Length of a measurement at the floor, in clocks; ``MIN_BOXES`` and ``MAX_BOXES`` limit it."""

MIN_BOXES, MAX_BOXES = 16, 512

MAX_MIXED_BOXES = 2 * MAX_BOXES
"""Most boxes of the quicker direction in a burst of loads and stores. Until its queues are full,
the slower direction has more than its share of the request port; the shorter of the two bursts that
are compared must be longer than that."""

PHASE_BYTES = (1 << 20) - 1
"""Most bytes that a barrier can expect in one phase."""

MIN_BARRIERS = 4
WORD_BYTES = 8
LOGS = (LogKind.ACCEPT, LogKind.WORD, LogKind.LINE, LogKind.STORE)


@dataclass(frozen=True)
class Box:
    """A request that is issued repeatedly.

    Parameters
    ----------
    request : CopyRequest
    footprint : int
        Bytes of shared memory from the first byte to the last.
    bytes : int
        Bytes that the barrier of a load counts.
    floor : float
        Fewest clocks that the box can take.
    misses : bool
        If true, each issue has a tensor map of its own, which is not in the descriptor cache.
    latency : int, optional
        Latency of reads and writes of lines, in clocks. None: that of the memory models.
    """

    request: CopyRequest
    footprint: int
    bytes: int
    floor: float
    misses: bool = False
    latency: int | None = None

    @property
    def is_load(self) -> bool:
        """True for a load, false for a store."""
        return isinstance(self.request, Load | BulkLoad)


@dataclass(frozen=True)
class LoadStorePair:
    """A load and a store that are timed alone and then together."""

    load: Box
    store: Box


@dataclass(frozen=True)
class SteadyState:
    """Cycles per box, and lines of global memory requested per box, in steady state.

    ``counts`` are those of the burst of 2 n boxes, if the unit has counters.
    """

    cycles: float
    lines: float
    counts: dict[str, int] | None = None


@dataclass(frozen=True)
class MixedCycles:
    """Cycles per box of loads and of stores: each direction alone, and both directions mixed."""

    load_alone: float
    store_alone: float
    load_mixed: float
    store_mixed: float

    @property
    def load_share(self) -> float:
        """Rate of the loads in the mix, over their rate alone."""
        return self.load_alone / self.load_mixed

    @property
    def store_share(self) -> float:
        """Rate of the stores in the mix, over their rate alone."""
        return self.store_alone / self.store_mixed

    @property
    def port_share(self) -> float:
        """The lesser of the two shares, over the largest share that the request port allows.

        Loads and stores enter through one port, one request a clock.
        """
        port = 1 / (1 / self.load_alone + 1 / self.store_alone)
        return min(self.load_share, self.store_share) / min(1, port)


@dataclass(frozen=True)
class BurstTimes:
    """Times of a burst, a sequence of boxes that is issued back to back.

    Parameters
    ----------
    load_clocks : int
        Clocks from the first request to the last phase of a barrier.
    store_clocks : int
        Clocks from the first request to the end of the wait for all stores.
    lines_read, lines_written : int
    """

    load_clocks: int
    store_clocks: int
    lines_read: int
    lines_written: int


def barriers(boxes: Sequence[Box], count: int, smem_bytes: int) -> list[int]:
    """Return the offsets of ``count`` barriers in shared memory that no box overwrites.

    Raises
    ------
    CheckError
        If there is no room beside the boxes.
    """
    size = count * WORD_BYTES
    start = min(box.request.smem_address for box in boxes)
    if all(box.request.smem_address + box.footprint + size <= smem_bytes for box in boxes):
        return list(range(smem_bytes - size, smem_bytes, WORD_BYTES))
    if size <= start:
        return list(range(0, size, WORD_BYTES))
    raise CheckError(f"no room for {count} barriers beside {max(b.footprint for b in boxes)} bytes")


class TensorMaps:
    """Tensor maps of the boxes in global memory; a context manager, which removes them."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._cached: dict[Box, int] = {}
        self._addresses: list[int] = []

    def __enter__(self) -> "TensorMaps":
        return self

    def __exit__(self, *_: object) -> None:
        for address in self._addresses:
            self._env.gmem.remove(address)

    async def address(self, box: Box) -> int:
        """Return the address of the tensor map for the next issue of ``box``; 0 for bulk requests.

        The map is prefetched into the descriptor cache, unless ``box.misses``.
        """
        if isinstance(box.request, BulkLoad | BulkStore):
            return 0
        if box in self._cached:
            return self._cached[box]
        assert isinstance(box.request.tensor_map, TensorMap)
        address = self._env.descriptors.place(box.request.tensor_map)
        self._addresses.append(address)
        if not box.misses:
            self._cached[box] = address
            await self._env.descriptors.prefetch(address)
            await self._env.idle()
        return address


async def run_burst(
    env: Environment, maps: TensorMaps, boxes: Sequence[Box], load_threads: Sequence[int] = (0,)
) -> BurstTimes:
    """Issue the boxes back to back; ``load_threads`` issue the loads in turn, warp 1 the stores.

    Raises
    ------
    CheckError
        If a request is refused, or a barrier is incomplete at the end.
    """
    store_thread = WARP % env.interface.parameters["threads"]
    loads = [box for box in boxes if box.is_load]
    total_bytes = sum(box.bytes for box in loads)
    largest = max((box.bytes for box in loads), default=0)
    count = max(MIN_BARRIERS, -(-total_bytes // (PHASE_BYTES - largest)))
    offsets = barriers(boxes, count, env.smem.size) if loads else []
    for i, offset in enumerate(offsets):
        await env.barriers.command("INIT", offset, 1)
        expected = sum(box.bytes for box in loads[i::count])
        await env.barriers.command("ARRIVE_EXPECT_TX", offset, expected)
    addresses = [await maps.address(box) for box in boxes]
    for kind in LOGS:
        env.clear_log(kind)
    loads_issued = 0
    for box, address in zip(boxes, addresses, strict=True):
        request, thread = box.request, store_thread
        if isinstance(request, Load | BulkLoad):
            request = replace(request, mbarrier=offsets[loads_issued % count])
            thread = load_threads[loads_issued % len(load_threads)]
            loads_issued += 1
        env.requests.submit(request, address, thread=thread)
    stored = 0
    if len(loads) < len(boxes):
        env.requests.commit_group(store_thread)
        stored = await env.requests.wait_group(thread=store_thread)
    await env.idle()
    errors = env.errors.take_all()
    if errors:
        raise CheckError(f"refused: {errors[0]}")
    for offset in offsets:
        if env.barriers.read(offset).phase != 1:
            raise CheckError(f"incomplete: {env.barriers.read(offset)}\n{env.ledger()}")
    start = int(env.log(LogKind.ACCEPT)["cycle"][0])
    loaded = int(env.log(LogKind.WORD)["cycle"][-1]) if loads else start
    lines = (env.log(kind).size for kind in (LogKind.LINE, LogKind.STORE))
    return BurstTimes(loaded - start, stored - start if stored else 0, *lines)


async def measure(env: Environment, box: Box) -> SteadyState:
    """Measure a box in steady state: the time of a burst of 2 n boxes less that of n boxes.

    The difference contains neither the latency nor the order of completion: the unit may write
    the fill of later boxes while earlier boxes wait for their lines.
    """
    count = int(np.clip(TARGET_CLOCKS // box.floor, MIN_BOXES, MAX_BOXES))
    with TensorMaps(env) as maps:
        short = await run_burst(env, maps, [box] * count)
        has_counters = env.interface.parameters["counters"]
        if has_counters:
            await env.shared.counters.clear()
        long = await run_burst(env, maps, [box] * (2 * count))
        counts = (await env.shared.counters.read())[0] if has_counters else None
    if box.is_load:
        clocks = long.load_clocks - short.load_clocks
        return SteadyState(clocks / count, (long.lines_read - short.lines_read) / count, counts)
    clocks = long.store_clocks - short.store_clocks
    return SteadyState(clocks / count, (long.lines_written - short.lines_written) / count, counts)


def interleaved(pair: LoadStorePair, loads: int, stores: int) -> Iterator[Box]:
    """Yield ``loads`` loads and ``stores`` stores, evenly interleaved."""
    places = [((2 * i + 1) / loads, pair.load) for i in range(loads)]
    places += [((2 * i + 1) / stores, pair.store) for i in range(stores)]
    return (box for _, box in sorted(places, key=lambda place: place[0]))


async def measure_mixed(env: Environment, pair: LoadStorePair) -> MixedCycles:
    """Measure loads and stores alone, and then in the proportion of their rates alone.

    In that proportion both directions have work all the time. Each direction of the mix is timed
    separately, as the difference of two bursts.
    """
    load_alone = (await measure(env, pair.load)).cycles
    store_alone = (await measure(env, pair.store)).cycles
    fast, slow = sorted((load_alone, store_alone))
    clocks = max(min(TARGET_CLOCKS, MAX_MIXED_BOXES * fast), MIN_BOXES * slow)
    loads, stores = round(clocks / load_alone), round(clocks / store_alone)
    with TensorMaps(env) as maps:
        short = await run_burst(env, maps, list(interleaved(pair, loads, stores)))
        long = await run_burst(env, maps, list(interleaved(pair, loads, stores)) * 2)
    return MixedCycles(
        load_alone,
        store_alone,
        (long.load_clocks - short.load_clocks) / loads,
        (long.store_clocks - short.store_clocks) / stores,
    )


@cocotb.test()
async def timing(dut: Any) -> None:
    """Measure every ``Box`` and ``LoadStorePair`` of the job file, in order.

    The result is a ``SteadyState``, a ``MixedCycles``, or a string that says why it failed.
    """
    base_models = models = PRESETS[os.environ["TIMING_MODELS"]]
    env = await Environment.start(dut, models, background="void", logs=LOGS)
    with jobs.Results() as results:
        for target in jobs.given():
            latency = target.latency if isinstance(target, Box) else None
            wanted = base_models
            if latency is not None:
                timing = Timing.fixed(latency)
                wanted = replace(base_models, lines=timing, stores=timing)
            if wanted != models:
                models = wanted
                await env.reset(models, background="void", logs=LOGS)
            try:
                if isinstance(target, LoadStorePair):
                    results.put(await measure_mixed(env, target))
                else:
                    results.put(await measure(env, target))
            except CheckError as error:
                results.put(str(error))
                await env.reset(models, background="void", logs=LOGS)
