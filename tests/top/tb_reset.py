"""Simulated tests of power-up, reset and drain: each is followed by requests whose results are
compared with the golden model.

Environment variables: ``RESET_COUNT`` is the number of resets, ``RESET_MODELS`` a preset of
``sim_tb.testbench.models``.
"""

import os
from collections import Counter
from itertools import count
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles

from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import PRESETS
from tests.top.tb_loads import BARRIERS, Flips, batch, run_batch
from tests.top.tb_stores import Thread

LONGEST = 600
"""Most clocks of traffic before a reset."""

PATIENCE = 20_000
"""Clocks within which a unit that accepts no requests becomes idle."""


def control_rows(env: Environment) -> int:
    """Return the clocks in which the unit clears its memories after a reset."""
    parameters = env.interface.parameters
    threads = parameters["threads"] if parameters["stores"] else 0
    return int(max(parameters["requests_in_flight"], threads))


def models() -> Any:
    """Return the memories of the run."""
    return PRESETS[os.environ.get("RESET_MODELS", "stray")]


async def loads(env: Environment, rng: np.random.Generator, number: int) -> None:
    """Run a batch of loads, and compare memory, barriers and error records."""
    flips: Flips = {}
    for barrier in BARRIERS:
        env.barriers.watch(barrier, lambda *_, at=barrier: flips.setdefault(at, env.smem.copy()))
    await run_batch(env, rng, batch(env, rng, number), flips)


async def stores(env: Environment, number: int) -> None:
    """Store and wait as a thread does, and compare global memory."""
    thread = Thread(env, 0, count())
    await thread.run(number)
    await env.idle()
    refused = Counter((name, error.code.value) for name, error in thread.refused)
    assert Counter((e.request_id, e.code) for e in env.errors.take_all()) == refused


async def clean_run(env: Environment, rng: np.random.Generator) -> None:
    """Run loads, then stores if the unit has them."""
    await loads(env, rng, 4)
    if env.interface.parameters["stores"]:
        await stores(env, 4)


async def interrupted_run(env: Environment, rng: np.random.Generator) -> int:
    """Run loads and stores at once for a random number of clocks; return that number.

    One time in five there is a reset at the end of that, which interrupts the reset's own work.
    """
    clocks = int(rng.integers(1, LONGEST))
    tasks = [cocotb.start_soon(loads(env, rng, 16))]
    if env.interface.parameters["stores"]:
        tasks.append(cocotb.start_soon(Thread(env, 1, count(100)).run(1000)))
    await ClockCycles(env.shared.dut.clk, clocks)
    for task in tasks:
        task.cancel()
    if rng.random() < 0.2:
        env.shared.dut.reset.value = 1
        await ClockCycles(env.shared.dut.clk, 4)
        env.shared.dut.reset.value = 0
        await ClockCycles(env.shared.dut.clk, int(rng.integers(1, 1 + control_rows(env))))
    return clocks


@cocotb.test()
async def power_up(dut: Any) -> None:
    """The unit works after its first reset, whatever its registers and memories hold."""
    env = await Environment.start(dut, models())
    cocotb.log.info("seed %d", env.seed)
    rng = env.rng("power-up")
    for _ in range(4):
        await clean_run(env, rng)


@cocotb.test()
async def reset_at_any_clock(dut: Any) -> None:
    """After a reset in the middle of random traffic, the unit is as new."""
    env = await Environment.start(dut, models())
    cocotb.log.info("seed %d", env.seed)
    rng = env.rng("reset")
    for number in range(int(os.environ["RESET_COUNT"])):
        clocks = await interrupted_run(env, rng)
        cocotb.log.info("reset %d, after %d clocks", number, clocks)
        await env.reset(models())
        await clean_run(env, rng)


@cocotb.test()
async def drain(dut: Any) -> None:
    """A unit that drains accepts no request, ends those it has, becomes idle, and goes on later.

    It does not become idle while a thread waits at a barrier for a load that is not accepted.
    """
    env = await Environment.start(dut, models())
    cocotb.log.info("seed %d", env.seed)
    rng = env.rng("drain")
    clocks = ClockCycles(dut.clk, 1)
    idle = 0
    for _ in range(8):
        run = cocotb.start_soon(clean_run(env, rng))
        await ClockCycles(dut.clk, int(rng.integers(20, 1500)))
        env.shared.draining = 1
        await ClockCycles(dut.clk, 4)
        for _ in range(PATIENCE):
            if env.shared.idle:
                break
            await clocks
        idle += env.shared.idle
        assert env.shared.idle or "0 waiting" not in env.ledger()
        accepted = env.log(LogKind.ACCEPT).size
        await ClockCycles(dut.clk, 200)
        assert env.log(LogKind.ACCEPT).size == accepted
        env.shared.draining = 0
        await run
    assert idle > 4


@cocotb.test()
async def idle_waits_for_all(dut: Any) -> None:
    """While anything is outstanding, ``idle`` is low."""
    env = await Environment.start(dut, models())
    assert env.shared.idle
    barrier, source, target = 0, 0x10_0000, 0x400
    env.gmem.place(source, np.arange(4096, dtype=np.uint8))
    await env.barriers.command("INIT", barrier, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", barrier, 4096)
    env.requests.bulk_load(source, target, 4096, barrier)
    wait = cocotb.start_soon(env.barriers.wait(barrier, 0))
    await ClockCycles(dut.clk, 12)
    while not wait.done():
        assert not env.shared.idle
        await ClockCycles(dut.clk, 1)
    await ClockCycles(dut.clk, 100)
    assert env.shared.idle
