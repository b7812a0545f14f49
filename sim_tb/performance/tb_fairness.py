"""cocotb module: streams of requests that share the unit. ``streams`` starts it."""

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
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
"""At the end of shared memory; no box is written there."""

STREAM_BITS = 25
"""The lines of stream n are from n * 2**25 on, so its addresses from n * 2**32 on."""

SETTLED = 6000
"""Clocks after which shares are counted."""

CLOCKS = 10_000
PROBES = 24
GAP = 400, 900
"""Clocks from the end of a probe to the next, drawn from this range."""


@dataclass(frozen=True)
class Stream:
    """The same load again and again, always so many of them outstanding; of ``bytes`` bytes. It is
    stream ``number``.
    """

    number: int
    load: Load | BulkLoad
    bytes: int
    outstanding: int


@dataclass(frozen=True)
class Mix:
    """Streams that run at once."""

    streams: tuple[Stream, ...]


@dataclass(frozen=True)
class Probe:
    """A load, ``PROBES`` times with pauses, while other streams run."""

    stream: Stream
    others: tuple[Stream, ...]


class Issuer:
    """Keeps a stream backlogged, until it is stopped."""

    def __init__(self, env: Environment, stream: Stream, barriers: list[int]) -> None:
        self._env, self._stream, self._barriers = env, stream, barriers
        self._running = True
        self.tensor_map = placed(env, stream.load)

    async def start(self) -> None:
        """Issue what is to be outstanding."""
        if self.tensor_map:
            await self._env.descriptors.prefetch(self.tensor_map)
        for barrier in self._barriers:
            await self._env.barriers.command("INIT", barrier, 1)
            self._env.barriers.watch(barrier, partial(self._issue, barrier))
        for barrier in self._barriers:
            self._issue(barrier)

    def stop(self) -> None:
        """Let it run dry."""
        self._running = False

    def _issue(self, barrier: int, *_: object) -> None:
        if not self._running:
            return
        stream, env = self._stream, self._env
        env.barriers.post("ARRIVE_EXPECT_TX", barrier, stream.bytes, self._fault)
        load = replace(stream.load, mbarrier=barrier)
        env.requests.submit(load, self.tensor_map, thread=WARP * stream.number)

    def _fault(self, fault: str) -> None:
        raise AssertionError(f"stream {self._stream.number}: {fault}")


def placed(env: Environment, load: Load | BulkLoad) -> int:
    """Where its map is, if it has one."""
    if isinstance(load, BulkLoad):
        return 0
    assert isinstance(load.tensor_map, TensorMap)
    return env.descriptors.place(load.tensor_map)


def issuers(env: Environment, streams: tuple[Stream, ...]) -> list[Issuer]:
    """One for each stream, with barriers of their own."""
    place = env.smem.size - BARRIER_BYTES
    found = []
    for stream in streams:
        end = place + 8 * stream.outstanding
        found.append(Issuer(env, stream, list(range(place, end, 8))))
        place = end
    return found


async def end(env: Environment, running: list[Issuer]) -> None:
    """Let streams run dry, and forget their maps."""
    for issuer in running:
        issuer.stop()
    await env.idle()
    for issuer in running:
        env.gmem.remove(issuer.tensor_map)
    assert not env.errors, env.errors.take_all()


async def shares(env: Environment, mix: Mix) -> dict[int, float]:
    """Lines that each stream reads in a clock, by its number."""
    running = issuers(env, mix.streams)
    for issuer in running:
        await issuer.start()
    await env.cycles(SETTLED)
    began = env.cycle
    env.clear_log(LogKind.LINE)
    await env.cycles(CLOCKS)
    lines = env.log(LogKind.LINE)
    clocks = env.cycle - began
    await end(env, running)
    counts = np.bincount((lines["key"] >> np.uint64(STREAM_BITS)).astype(np.int64), minlength=16)
    return {stream.number: int(counts[stream.number]) / clocks for stream in mix.streams}


async def delays(env: Environment, probe: Probe) -> list[int]:
    """Of each probe: clocks from its acceptance to the phase of its barrier."""
    running = issuers(env, probe.others)
    for issuer in running:
        await issuer.start()
    load, barrier = probe.stream.load, env.smem.size - 8
    tensor_map = placed(env, load)
    if tensor_map:
        await env.descriptors.prefetch(tensor_map)
    await env.barriers.command("INIT", barrier, 1)
    ends: deque[int] = deque()

    def note(cycle: int, _: Barrier) -> None:
        ends.append(cycle)

    env.barriers.watch(barrier, note)
    pauses = env.rng("probes").integers(*GAP, PROBES)
    taken = []
    for turn, pause in enumerate(pauses):
        await env.cycles(int(pause))
        await env.barriers.command("ARRIVE_EXPECT_TX", barrier, probe.stream.bytes)
        thread = WARP * probe.stream.number
        name = env.requests.submit(replace(load, mbarrier=barrier), tensor_map, thread=thread)
        await env.barriers.wait(barrier, turn & 1)
        accepted = env.log(LogKind.ACCEPT)
        began = int(accepted["cycle"][accepted["key"] == name][-1])
        taken.append(ends.popleft() - began)
        env.clear_log(LogKind.ACCEPT)
    await end(env, running)
    env.gmem.remove(tensor_map)
    return taken


@cocotb.test()
async def fairness(dut: Any) -> None:
    """Shares of a mix, or delays of a probe, in order."""
    env = await Environment.start(dut, background="void", logs=LOGS)
    cocotb.log.info("seed %d", env.seed)
    with jobs.Results() as results:
        for job in jobs.given():
            await env.reset(background="void", logs=LOGS)
            results.put(await (shares(env, job) if isinstance(job, Mix) else delays(env, job)))
