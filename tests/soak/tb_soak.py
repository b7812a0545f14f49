"""Simulated soak runs: random requests of a unit or cluster without a reset, for many clocks.

Environment variables: ``SOAK_CLOCKS`` is the number of clocks, ``SOAK_MODELS`` a list of presets of
``sim_tb.testbench.models``, which follow each other.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import cocotb
import numpy as np

from golden import Completion, TmaError
from golden.mbarrier import Barrier
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import PRESETS
from tests.golden.random_requests import pick, random_bytes
from tests.soak.probe import load_bursts, lost, probe
from tests.top.random_clusters import Round
from tests.top.random_stores import WINDOW
from tests.top.random_stores import random_item as random_store
from tests.top.tb_loads import addressable, arch_of
from tests.top.tb_loads import modes_of as load_modes
from tests.top.tb_stores import modes_of as store_modes

STORING, LOADING = 4, 16
"""Threads that store and that load."""

POOL = 60
"""Requests of a thread, which it draws from."""

LARGEST = 4 * 1024
"""Bytes of a load's region."""

LOWEST = 1 << 43
"""Address of the first global memory of a store, above those of most loads."""

ACCEPTED = "TENSOR_LOADS", "BULK_LOADS", "TENSOR_STORES", "BULK_STORES", "REDUCTIONS"
"""Counters of accepted requests."""

TIMEOUT = 200_000
"""Clocks after which a request is stuck."""

PROBED = range(STORING * WINDOW + LOADING * LARGEST, 224 * 1024)
"""Shared memory of the probe, behind the windows of all threads."""


@dataclass
class Totals:
    """Requests of all threads during one memory.

    Parameters
    ----------
    requests, refused, empty : int
        Requests; those that are refused; loads that move nothing.
    bytes : int
        Bytes loaded.
    longest : int
        Longest wait of a thread, in clocks.
    errors : Counter
        Error records to come.
    """

    requests: int = 0
    refused: int = 0
    empty: int = 0
    bytes: int = 0
    longest: int = 0
    errors: Counter[Any] = field(default_factory=Counter)

    def refuse(self, name: int, error: TmaError) -> None:
        """Count a refusal."""
        self.refused += 1
        self.errors[name, error.code.value, error.dim, error.value & (1 << 64) - 1] += 1

    def check_errors(self, env: Environment) -> None:
        """Compare the error records with the refusals."""
        records = Counter((e.request_id, e.code, e.dim, e.value) for e in env.errors.take_all())
        assert records == self.errors, (records - self.errors, self.errors - records)

    def check_counts(self, counts: dict[str, int]) -> None:
        """Compare the counters of the unit with the requests."""
        assert sum(counts[name] for name in ACCEPTED) == self.requests
        assert counts["REFUSED"] == self.refused
        ended = counts["LOADS_ENDED"] + counts["STORES_ENDED"]
        assert ended + self.refused + self.empty == self.requests


class Loading:
    """A thread that loads into its own region, behind its own barrier, and compares the bytes."""

    def __init__(self, env: Environment, number: int) -> None:
        self.env = env
        self.rng = env.rng(f"loading {number}")
        self.barrier = env.smem.size - 8 * (number + 1)
        start = STORING * WINDOW + number * LARGEST
        self.region = slice(start, start + LARGEST)
        arch, modes = arch_of(env), load_modes(env)
        self.pool = []
        for _ in range(POOL):
            item = addressable(env, self.rng, modes, arch, start, self.barrier, LARGEST)
            memory = np.zeros_like(env.smem)
            self.pool.append((item, item.golden(memory), memory[self.region].copy()))
            item.place(env)
        self.phases = 0

    async def begin(self) -> None:
        """Make the barrier."""
        await self.env.barriers.command("INIT", self.barrier, 1)

    async def run(self, end: int, totals: Totals) -> None:
        """Load until clock ``end``."""
        env = self.env
        while env.cycle < end:
            item, answer, expected = self.pool[int(self.rng.integers(POOL))]
            env.smem[self.region] = 0
            size = answer.bytes if isinstance(answer, Completion) else 0
            await env.barriers.command("ARRIVE_EXPECT_TX", self.barrier, size)
            begin, name = env.cycle, item.issue(env)
            totals.requests += 1
            if isinstance(answer, TmaError):
                totals.refuse(name, answer)
            elif not size:
                totals.empty += 1
            done = await env.barriers.wait(self.barrier, self.phases & 1, timeout=TIMEOUT)
            self.phases += 1
            totals.longest = max(totals.longest, done - begin)
            totals.bytes += size
            assert np.array_equal(env.smem[self.region], expected), str(item)

    def check(self) -> None:
        """Check the barrier of an idle unit."""
        done = Barrier(phase=self.phases & 1, pending=1, expected=1)
        assert self.env.barriers.read(self.barrier) == done


class Storing:
    """A thread that stores from its own window, in groups, and compares the memories."""

    def __init__(self, env: Environment, number: int, numbers: "count[int]") -> None:
        self.env, self.thread = env, number
        self.rng = env.rng(f"storing {number}")
        arch, modes = arch_of(env), store_modes(env)
        draws = ((pick(self.rng, *modes), next(numbers)) for _ in range(POOL))
        self.pool = [
            random_store(self.rng, mode, arch, env.smem, each, number, LOWEST)
            for mode, each in draws
        ]
        self.before = [item.memory.copy() for item in self.pool]
        for item in self.pool:
            item.place(env)

    async def run(self, end: int, totals: Totals) -> None:
        """Store until clock ``end``."""
        env = self.env
        while env.cycle < end:
            chosen = self.rng.choice(POOL, int(self.rng.integers(1, 5)), replace=False)
            begin = env.cycle
            for place in chosen:
                item = self.pool[place]
                item.memory[:] = self.before[place]
                name = item.issue(env, self.thread)
                totals.requests += 1
                if item.refusal is not None:
                    totals.refuse(name, item.refusal)
                if self.rng.random() < 0.5:
                    env.requests.commit_group(self.thread)
            env.requests.commit_group(self.thread)
            done = await env.requests.wait_group(thread=self.thread, timeout=TIMEOUT)
            totals.longest = max(totals.longest, done - begin)
            for place in chosen:
                self.pool[place].compare()


def report(spans: list[Totals], clocks: int) -> None:
    """Write the totals of all spans to the file that the command reads."""
    found = {name: sum(getattr(each, name) for each in spans) for name in ("requests", "refused")}
    found |= {"longest": max(each.longest for each in spans), "clocks": clocks}
    Path(os.environ["SOAK_REPORT"]).write_text(json.dumps(found))


def spans() -> Iterator[tuple[str, int, Totals]]:
    """Yield the name of each memory, its clocks, and the totals of its requests."""
    names = os.environ["SOAK_MODELS"].split(",")
    for name in names:
        yield name, int(os.environ["SOAK_CLOCKS"]) // len(names), Totals()


@cocotb.test()
async def unit(dut: Any) -> None:
    """Threads load and store. Each memory follows the one before without a reset."""
    env = await Environment.start(dut, logs=[])
    cocotb.log.info("seed %d", env.seed)
    env.smem[:] = random_bytes(env.rng("smem"), env.smem.size)
    numbers, ended = count(), []
    spare = env.smem.size - 8 * (LOADING + 1)
    first = await probe(env, spare, PROBED)
    loading = [Loading(env, number) for number in range(LOADING)]
    storing = [Storing(env, number, numbers) for number in range(STORING)]
    for thread in loading:
        await thread.begin()
    for name, clocks, totals in spans():
        await env.shared.counters.clear()
        env.use(PRESETS[name])
        end = env.cycle + clocks
        for task in [cocotb.start_soon(each.run(end, totals)) for each in (*loading, *storing)]:
            await task
        await env.idle()
        (counts,) = await env.shared.counters.read()
        totals.check_counts(counts)
        totals.check_errors(env)
        for each in loading:
            each.check()
        problems = lost(env, first, await probe(env, spare, PROBED))
        assert not problems, f"after {name}: {problems}"
        ended.append(totals)
    report(ended, env.cycle)


@cocotb.test()
async def cluster(dut: Any) -> None:
    """Rounds of random requests between the CTAs follow each other without a reset."""
    both = await ClusterEnvironment.start(dut, logs=[])
    cocotb.log.info("seed %d", both.sms[0].seed)
    rng, ended = both.sms[0].rng("rounds"), []
    spare = both.sms[0].smem.size - 8 * 16
    first = [await probe(env, spare, PROBED) for env in both.sms]
    for name, clocks, totals in spans():
        for env in both.sms:
            env.use(PRESETS[name])
        end = both.sms[0].cycle + clocks
        while (begin := both.sms[0].cycle) < end:
            requests = Round(both, rng, int(rng.integers(4, 18)))
            await requests.run()
            totals.requests += len(requests.items)
            totals.longest = max(totals.longest, both.sms[0].cycle - begin)
        problems = [
            f"CTA {env.sm}: {problem}"
            for env, before in zip(both.sms, first, strict=True)
            for problem in lost(env, before, await probe(env, spare, PROBED))
        ]
        assert not problems, f"after {name}: {problems}"
        ended.append(totals)
    report(ended, both.sms[0].cycle)


@cocotb.test()
async def a_place_that_is_lost(dut: Any) -> None:
    """An answer that never comes takes a tag and a slot: the probe must notice."""
    env = await Environment.start(dut, logs=[])
    spare = env.smem.size - 8
    first = await probe(env, spare, PROBED)
    assert not lost(env, first, await probe(env, spare, PROBED))
    env.delay_answer(1 << 52, None)
    env.requests.bulk_load(1 << 52, 0, 16, spare - 8)
    await env.cycles(100)
    found = await load_bursts(env, spare, PROBED)
    problems = lost(env, {name: first[name] for name in found}, found)
    assert [problem.partition(":")[0] for problem in problems] == [*found]
