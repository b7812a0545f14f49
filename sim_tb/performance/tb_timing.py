"""cocotb module: cycles per box of the saturated unit. ``sim_tb.bench`` starts it.

``TIMING_MODELS`` is a preset of ``sim_tb.testbench.models``.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cocotb
import numpy as np

from golden import BulkLoad, BulkStore, Load, Store, TensorMap
from hw.params import WARP
from sim_tb.simulator import jobs
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.models import PRESETS, Timing

CLOCKS = 4096
"""What a measurement should take at the floor, within limits for the number of boxes."""

FEWEST, MOST = 16, 512

PHASE_BYTES = (1 << 20) - 1
"""Bytes that a barrier can expect in one phase."""

BARRIERS = 4
WORD_BYTES = 8
LOGS = (LogKind.ACCEPT, LogKind.WORD, LogKind.LINE, LogKind.STORE)

Timed = Load | BulkLoad | Store | BulkStore


@dataclass(frozen=True)
class Box:
    """A request that is issued again and again.

    ``bytes`` is what a barrier counts of a load, and ``floor`` the clocks that it takes at least.
    ``misses``: each time by a tensor map of its own, never used before. ``latency``: clocks of the
    memory of lines, where they are not those of the models.
    """

    request: Timed
    footprint: int
    bytes: int
    floor: float
    misses: bool = False
    latency: int | None = None

    @property
    def is_load(self) -> bool:
        """Or else a store."""
        return isinstance(self.request, Load | BulkLoad)


@dataclass(frozen=True)
class Pair:
    """A box that is loaded and one that is stored, each alone and both at once."""

    load: Box
    store: Box


@dataclass(frozen=True)
class Taken:
    """Of a box in the steady state: cycles, and lines of global memory that were asked for."""

    cycles: float
    lines: float


@dataclass(frozen=True)
class Together:
    """Cycles per box of the loads and of the stores, alone and when both go on."""

    load_alone: float
    store_alone: float
    load: float
    store: float

    @property
    def load_share(self) -> float:
        """Of the rate of loads alone, what is left of it."""
        return self.load_alone / self.load

    @property
    def store_share(self) -> float:
        """The same of stores."""
        return self.store_alone / self.store

    @property
    def attained(self) -> float:
        """The lesser share, of what there can be: requests of both come through one port, one a
        clock.
        """
        port = 1 / (1 / self.load_alone + 1 / self.store_alone)
        return min(self.load_share, self.store_share) / min(1, port)


@dataclass(frozen=True)
class Row:
    """A row of boxes: clocks from its first request to the last phase, and to the end of a wait
    for all stores; lines that were read, and written.
    """

    loaded: int
    stored: int
    read: int
    written: int


def barriers(boxes: Sequence[Box], count: int, smem_bytes: int) -> list[int]:
    """Offsets of ``count`` barriers that no box writes."""
    size = count * WORD_BYTES
    start = min(box.request.smem_address for box in boxes)
    if all(box.request.smem_address + box.footprint + size <= smem_bytes for box in boxes):
        return list(range(smem_bytes - size, smem_bytes, WORD_BYTES))
    if size <= start:
        return list(range(0, size, WORD_BYTES))
    raise CheckError(f"no room for {count} barriers beside {max(b.footprint for b in boxes)} bytes")


class Maps:
    """The tensor maps of boxes in global memory. A context manager: they are gone afterwards."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._kept: dict[Box, int] = {}
        self._made: list[int] = []

    def __enter__(self) -> "Maps":
        return self

    def __exit__(self, *_: object) -> None:
        for address in self._made:
            self._env.gmem.remove(address)

    async def of(self, box: Box) -> int:
        """Where the map for the next request of ``box`` is; in the descriptor cache, but for one
        that is to be missed.
        """
        if isinstance(box.request, BulkLoad | BulkStore):
            return 0
        if box in self._kept:
            return self._kept[box]
        assert isinstance(box.request.tensor_map, TensorMap)
        address = self._env.descriptors.place(box.request.tensor_map)
        self._made.append(address)
        if not box.misses:
            self._kept[box] = address
            await self._env.descriptors.prefetch(address)
            await self._env.idle()
        return address


async def row(env: Environment, maps: Maps, boxes: Sequence[Box]) -> Row:
    """Issue a row of boxes as fast as they go; another warp has the stores."""
    storer = WARP % env.interface.parameters["threads"]
    loads = [box for box in boxes if box.is_load]
    total = sum(box.bytes for box in loads)
    largest = max((box.bytes for box in loads), default=0)
    needed = max(BARRIERS, -(-total // (PHASE_BYTES - largest)))
    offsets = barriers(boxes, needed, env.smem.size) if loads else []
    for i, offset in enumerate(offsets):
        await env.barriers.command("INIT", offset, 1)
        expected = sum(box.bytes for box in loads[i::needed])
        await env.barriers.command("ARRIVE_EXPECT_TX", offset, expected)
    where = [await maps.of(box) for box in boxes]
    for kind in LOGS:
        env.clear_log(kind)
    turn = 0
    for box, tensor_map in zip(boxes, where, strict=True):
        request = box.request
        if isinstance(request, Load | BulkLoad):
            request = replace(request, mbarrier=offsets[turn % needed])
            turn += 1
        env.requests.submit(request, tensor_map, thread=0 if box.is_load else storer)
    stored = 0
    if len(loads) < len(boxes):
        env.requests.commit_group(storer)
        stored = await env.requests.wait_group(thread=storer)
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
    return Row(loaded - start, stored - start, *lines)


async def measure(env: Environment, box: Box) -> Taken:
    """What a box takes in the steady state: what a row of 2 n boxes takes longer than one of n.

    The difference has neither the latency in it nor the order in which requests complete: the unit
    may write fill of later boxes while earlier ones wait for their lines.
    """
    count = int(np.clip(CLOCKS // box.floor, FEWEST, MOST))
    with Maps(env) as maps:
        short = await row(env, maps, [box] * count)
        long = await row(env, maps, [box] * (2 * count))
    if box.is_load:
        return Taken((long.loaded - short.loaded) / count, (long.read - short.read) / count)
    return Taken((long.stored - short.stored) / count, (long.written - short.written) / count)


def in_turn(pair: Pair, loads: int, stores: int) -> Iterator[Box]:
    """So many of each, evenly mixed."""
    places = [((2 * i + 1) / loads, pair.load) for i in range(loads)]
    places += [((2 * i + 1) / stores, pair.store) for i in range(stores)]
    return (box for _, box in sorted(places, key=lambda place: place[0]))


async def measure_both(env: Environment, pair: Pair) -> Together:
    """Loads and stores in the proportion of their rates alone, so that both have work all the time;
    each direction is timed by itself, again as the difference of two rows.
    """
    load_alone = (await measure(env, pair.load)).cycles
    store_alone = (await measure(env, pair.store)).cycles
    fast, slow = sorted((load_alone, store_alone))
    clocks = max(min(CLOCKS, MOST * fast), FEWEST * slow)
    loads, stores = round(clocks / load_alone), round(clocks / store_alone)
    with Maps(env) as maps:
        short = await row(env, maps, list(in_turn(pair, loads, stores)))
        long = await row(env, maps, list(in_turn(pair, loads, stores)) * 2)
    return Together(
        load_alone,
        store_alone,
        (long.loaded - short.loaded) / loads,
        (long.stored - short.stored) / stores,
    )


@cocotb.test()
async def timing(dut: Any) -> None:
    """Every box or pair in order; a result is ``Taken``, ``Together``, or a text that says what
    went wrong.
    """
    chosen = models = PRESETS[os.environ["TIMING_MODELS"]]
    env = await Environment.start(dut, models, background="void", logs=LOGS)
    with jobs.Results() as results:
        for item in jobs.given():
            latency = item.latency if isinstance(item, Box) else None
            lines = chosen.lines if latency is None else Timing.fixed(latency)
            if lines != models.lines:
                models = replace(chosen, lines=lines)
                await env.reset(models, background="void", logs=LOGS)
            try:
                if isinstance(item, Pair):
                    results.put(await measure_both(env, item))
                else:
                    results.put(await measure(env, item))
            except CheckError as error:
                results.put(str(error))
                await env.reset(models, background="void", logs=LOGS)
