"""cocotb module: streams of requests that share the unit.

``sim_tb.performance.streams`` starts it.
"""

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any

import cocotb
import numpy as np

from golden import BulkLoad, Load, TensorMap
from golden.mbarrier import Barrier
from hw.params import WARP
from sim_tb.simulator import jobs
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import Environment

LOGS = (LogKind.ACCEPT, LogKind.LINE)
BARRIER_BYTES = 4096
"""Bytes at the end of shared memory that are reserved for barriers."""

STREAM_BITS = 25
"""Width of a line number within a stream: stream n reads lines from n * 2**25 on, which are the
addresses from n * 2**32 on.
"""

WARM_UP_CLOCKS = 6000
"""Clocks before the lines of each stream are counted."""

COUNTED_CLOCKS = 10_000
PROBE_COUNT = 24
PAUSE_CLOCKS = 400, 900
"""Range of the random pause, in clocks, from the end of a probe to the next probe."""


@dataclass(frozen=True)
class Stream:
    """A load that is issued repeatedly with a fixed number of requests outstanding.

    Parameters
    ----------
    number : int
        Stream of the unit (``TmaParams.streams``).
    load : Load or BulkLoad
    bytes : int
        Bytes that the barrier of one load counts.
    outstanding : int
        Requests that are always outstanding.
    maps : int
        Equal tensor maps at different addresses that the requests use in turn.
    """

    number: int
    load: Load | BulkLoad
    bytes: int
    outstanding: int
    maps: int = 1


@dataclass(frozen=True)
class Mix:
    """Streams that run at the same time."""

    streams: tuple[Stream, ...]


@dataclass(frozen=True)
class Probe:
    """A load that is issued ``PROBE_COUNT`` times with pauses while other streams run."""

    stream: Stream
    others: tuple[Stream, ...]


class Issuer:
    """Keeps the requests of a stream outstanding until it is stopped."""

    def __init__(self, env: Environment, stream: Stream, barriers: list[int]) -> None:
        self._env, self._stream, self._barriers = env, stream, barriers
        self._running = True
        self.tensor_maps = [map_address(env, stream.load) for _ in range(stream.maps)]
        self._next_map = cycle(self.tensor_maps)

    async def start(self) -> None:
        """Issue the first request of each barrier."""
        if self.tensor_maps[0]:
            await self._env.descriptors.prefetch(self.tensor_maps[0])
        for barrier in self._barriers:
            await self._env.barriers.command("INIT", barrier, 1)
            self._env.barriers.watch(barrier, partial(self._issue, barrier))
        for barrier in self._barriers:
            self._issue(barrier)

    def stop(self) -> None:
        """Issue no further request; outstanding requests complete."""
        self._running = False

    def _issue(self, barrier: int, *_: object) -> None:
        if not self._running:
            return
        stream, env = self._stream, self._env
        env.barriers.post("ARRIVE_EXPECT_TX", barrier, stream.bytes, self._fault)
        load = replace(stream.load, mbarrier=barrier)
        env.requests.submit(load, next(self._next_map), thread=WARP * stream.number)

    def _fault(self, fault: str) -> None:
        raise AssertionError(f"stream {self._stream.number}: {fault}")


def map_address(env: Environment, load: Load | BulkLoad) -> int:
    """Write the tensor map of ``load`` to global memory; return its address, 0 for bulk loads."""
    if isinstance(load, BulkLoad):
        return 0
    assert isinstance(load.tensor_map, TensorMap)
    return env.descriptors.place(load.tensor_map)


def issuers(env: Environment, streams: tuple[Stream, ...]) -> list[Issuer]:
    """Return an issuer for each stream, each with its own barriers."""
    first = env.smem.size - BARRIER_BYTES
    made = []
    for stream in streams:
        end = first + 8 * stream.outstanding
        made.append(Issuer(env, stream, list(range(first, end, 8))))
        first = end
    return made


async def drain(env: Environment, running: list[Issuer]) -> None:
    """Stop the issuers, wait until the unit is idle, and remove their tensor maps."""
    for issuer in running:
        issuer.stop()
    await env.idle()
    for issuer in running:
        for tensor_map in issuer.tensor_maps:
            env.gmem.remove(tensor_map)
    assert not env.errors, env.errors.take_all()


async def line_rates(env: Environment, mix: Mix) -> dict[int, float]:
    """Return the lines that each stream reads per clock, by stream number."""
    running = issuers(env, mix.streams)
    for issuer in running:
        await issuer.start()
    await env.cycles(WARM_UP_CLOCKS)
    first_cycle = env.cycle
    env.clear_log(LogKind.LINE)
    await env.cycles(COUNTED_CLOCKS)
    lines = env.log(LogKind.LINE)
    clocks = env.cycle - first_cycle
    await drain(env, running)
    counts = np.bincount((lines["key"] >> np.uint64(STREAM_BITS)).astype(np.int64), minlength=16)
    return {stream.number: int(counts[stream.number]) / clocks for stream in mix.streams}


async def probe_latencies(env: Environment, probe: Probe) -> list[int]:
    """Return the clocks of each probe from its acceptance to the next phase of its barrier."""
    running = issuers(env, probe.others)
    for issuer in running:
        await issuer.start()
    load, barrier = probe.stream.load, env.smem.size - 8
    tensor_map = map_address(env, load)
    if tensor_map:
        await env.descriptors.prefetch(tensor_map)
    await env.barriers.command("INIT", barrier, 1)
    phase_cycles: deque[int] = deque()

    def note(cycle: int, _: Barrier) -> None:
        phase_cycles.append(cycle)

    env.barriers.watch(barrier, note)
    pauses = env.rng("probes").integers(*PAUSE_CLOCKS, PROBE_COUNT)
    latencies = []
    for index, pause in enumerate(pauses):
        await env.cycles(int(pause))
        await env.barriers.command("ARRIVE_EXPECT_TX", barrier, probe.stream.bytes)
        thread = WARP * probe.stream.number
        request_id = env.requests.submit(replace(load, mbarrier=barrier), tensor_map, thread=thread)
        await env.barriers.wait(barrier, index & 1)
        accepted = env.log(LogKind.ACCEPT)
        accept_cycle = int(accepted["cycle"][accepted["key"] == request_id][-1])
        latencies.append(phase_cycles.popleft() - accept_cycle)
        env.clear_log(LogKind.ACCEPT)
    await drain(env, running)
    env.gmem.remove(tensor_map)
    return latencies


@cocotb.test()
async def fairness(dut: Any) -> None:
    """Measure the line rates of each ``Mix`` and the latencies of each ``Probe``, in order."""
    env = await Environment.start(dut, background="void", logs=LOGS)
    cocotb.log.info("seed %d", env.seed)
    with jobs.Results() as results:
        for job in jobs.given():
            await env.reset(background="void", logs=LOGS)
            if isinstance(job, Mix):
                results.put(await line_rates(env, job))
            else:
                results.put(await probe_latencies(env, job))
