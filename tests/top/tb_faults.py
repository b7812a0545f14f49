"""Simulated tests of faults around the unit: none stops it or harms another request.

The environment variable ``FAULTS_CLOCKS`` says by how many clocks a late answer is late.
"""

import os
from typing import Any

import cocotb
import numpy as np
import pytest

from golden.mbarrier import Barrier
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import WaitTimeoutError
from sim_tb.testbench.models import Models, Timing

SOURCE, TARGET, OTHER = 0x10_0000, 0x20_0000, 0x30_0000
"""Addresses of the bytes that are loaded, and of those that are stored."""

BYTES = 4096
FIRST, SECOND = 0, 8
"""Barriers of two loads."""

PLACES = 1024, 8192
"""Their destinations."""


async def start(dut: Any) -> Environment:
    models = Models(Timing.random(20, 200), Timing.fixed(20), stores=Timing.random(20, 200))
    env = await Environment.start(dut, models, background="fault")
    env.source = env.rng("source").integers(0, 256, BYTES, dtype=np.uint8)
    env.gmem.place(SOURCE, env.source)
    env.smem[:] = 0xCD
    return env


async def load(env: Environment, barrier: int) -> int:
    """Load all bytes behind a barrier that expects them."""
    await env.barriers.command("INIT", barrier, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", barrier, BYTES)
    return env.requests.bulk_load(SOURCE, PLACES[barrier // 8], BYTES, barrier)


def there(env: Environment, barrier: int) -> bool:
    place = PLACES[barrier // 8]
    return np.array_equal(env.smem[place : place + BYTES], env.source)


async def others_go_on(env: Environment) -> None:
    """Load and store more often than there are slots and tags."""
    stored = np.zeros(BYTES, np.uint8)
    env.gmem.place(OTHER, stored)
    for _ in range(12):
        await load(env, SECOND)
        await env.barriers.wait(SECOND, 0)
        assert there(env, SECOND)
        env.requests.bulk_store(OTHER, PLACES[1], BYTES, thread=1)
        env.requests.commit_group(1)
        await env.requests.wait_group(thread=1)
    assert np.array_equal(stored, env.source)
    env.gmem.remove(OTHER)
    env.smem[PLACES[1] : PLACES[1] + BYTES] = 0xCD


@cocotb.test()
async def an_answer_that_comes_late(dut: Any) -> None:
    """The request ends when it has come; all others end before."""
    clocks = int(os.environ["FAULTS_CLOCKS"])
    env = await start(dut)
    env.delay_answer(SOURCE + BYTES // 2, clocks)
    await load(env, FIRST)
    await env.cycles(2000)
    await others_go_on(env)
    assert env.barriers.read(FIRST).phase == 0
    await env.barriers.wait(FIRST, 0, timeout=clocks + 10_000)
    assert env.cycle > clocks
    assert there(env, FIRST)

    stored = np.zeros(BYTES, np.uint8)
    env.gmem.place(TARGET, stored)
    env.delay_answer(TARGET + BYTES // 2, clocks)
    begin = env.cycle
    env.requests.bulk_store(TARGET, PLACES[0], BYTES)
    env.requests.commit_group()
    await others_go_on(env)
    await env.requests.wait_group(timeout=clocks + 10_000)
    assert env.cycle > begin + clocks
    assert np.array_equal(stored, env.source)
    await env.idle()
    assert not env.errors


@cocotb.test()
async def an_answer_that_is_lost(dut: Any) -> None:
    """The request never ends, and the unit is not idle; all others end. A reset frees the tag."""
    env = await start(dut)
    env.delay_answer(SOURCE + BYTES // 2, None)
    await load(env, FIRST)
    await env.cycles(2000)
    env.gmem.place(TARGET, np.zeros(BYTES, np.uint8))
    env.delay_answer(TARGET + BYTES // 2, None)
    env.requests.bulk_store(TARGET, PLACES[0], BYTES)
    env.requests.commit_group()
    await others_go_on(env)
    for wait in env.barriers.wait(FIRST, 0, timeout=5000), env.requests.wait_group(timeout=5000):
        with pytest.raises(WaitTimeoutError, match="1 unanswered"):
            await wait
    assert not dut.idle.value
    assert not env.errors
    await env.reset(Models())
    env.gmem.place(SOURCE, env.source)
    await load(env, FIRST)
    await env.barriers.wait(FIRST, 0)
    assert there(env, FIRST)
    await env.idle()


@cocotb.test()
async def a_barrier_that_is_changed_under_a_load(dut: Any) -> None:
    """All bytes are written and counted in the word that is there; no other barrier is changed."""
    env = await start(dut)
    for operation in "INIT", "INVAL":
        env.smem[1024:] = 0xCD
        await load(env, FIRST)
        await load(env, SECOND)
        await env.cycles(60)
        assert not there(env, FIRST)
        await env.barriers.command(operation, FIRST, 1)
        await env.barriers.wait(SECOND, 0)
        await env.idle()
        assert there(env, FIRST)
        assert there(env, SECOND)
        word = env.barriers.read(FIRST)
        if operation == "INVAL":
            assert word == Barrier(phase=1, pending=1, expected=1)
        else:
            assert word.phase == 0
            assert -BYTES <= word.tx_count < 0
    assert not env.errors
