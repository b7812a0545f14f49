"""Benches around the stand-in: the environment's promises, and its checks when the unit errs."""

import re
from typing import Any

import cocotb
import numpy as np
import pytest

from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import BenchError, BenchTimeoutError, Environment
from sim_tb.testbench.models import Memory, Models, Stall

BARRIER, DATA = 0x40, 0x1000
SOURCE = 0x10_0000


async def start(dut: Any, models: Models | None = None, lines: int = 16) -> Environment:
    env = await Environment.start(dut, models or Models(Memory.fixed(10), Memory.fixed(10)))
    size = lines * env.interface.parameters["line_bytes"]
    env.source = env.rng("source").integers(0, 256, size, dtype=np.uint8)
    env.gmem.place(SOURCE, env.source)
    words = np.zeros(32, np.uint32)
    words[0] = SOURCE
    env.map = env.descriptor(words)
    await env.barrier("INIT", BARRIER, 1)
    await env.barrier("ARRIVE_EXPECT_TX", BARRIER, size)
    return env


def submit(env: Environment, fault: int = 0, lines: int = 16) -> int:
    return env.submit(env.map, [lines, fault], DATA, BARRIER)


def copied(env: Environment) -> bool:
    return np.array_equal(env.smem[DATA : DATA + env.source.size], env.source)


@cocotb.test()
@cocotb.parametrize(
    models=[
        Models(Memory.fixed(1), Memory.fixed(1)),
        Models(Memory.random(1, 50)).stalling(0.4),
        Models(Memory.bursty(20, 64)).stalling(0.6, mean=12),
        Models(Memory.shuffled(20, 8)),
        Models(Memory(5, 5, in_flight=1, bandwidth=0.1)),
    ]
)
async def copies(dut, models):
    env = await start(dut, models)
    flips = []
    env.watch(BARRIER, lambda cycle, word: flips.append((cycle, word.phase)))
    submit(env)
    seen = await env.wait(BARRIER, 0)
    assert copied(env)
    word = env.word(BARRIER)
    assert (word.phase, word.pending, word.expected, word.tx, word.lock) == (1, 1, 1, 0, 0)
    assert [phase for _, phase in flips] == [1]
    assert flips[0][0] < seen
    lines = env.log(LogKind.LINE)
    first = SOURCE // env.interface.parameters["line_bytes"]
    assert lines["key"].tolist() == list(range(first, first + 16))
    await env.idle()
    assert env.errors == ()


@cocotb.test()
async def latency_is_exact(dut):
    for latency in 1, 2, 37:
        env = await Environment.start(
            dut, Models(Memory.fixed(latency)), logs=[LogKind.LINE, LogKind.RESPONSE]
        )
        words = np.zeros(32, np.uint32)
        await env.barrier("INIT", BARRIER, 1)
        env.submit(env.descriptor(words), [3, 0], DATA, BARRIER)
        await env.idle()
        taken, answered = (env.log(kind)["cycle"] for kind in (LogKind.LINE, LogKind.RESPONSE))
        assert (answered - taken == latency).all()


def message(pattern):
    return pytest.raises(BenchError, match=re.compile(pattern, re.DOTALL))


@cocotb.test()
@cocotb.parametrize(
    (
        ("fault", "text"),
        [
            (1, "gnic_request: valid fell"),
            (2, "gnic_request: the payload changed"),
            (3, "gnic_request: tag 0 is in flight since cycle"),
            (4, "smem_write: offset 0x.* is beyond shared memory"),
            (5, "waited 5000 clocks for phase 0 of the barrier at 0x40.*tx=2048.*0 unanswered"),
            (6, "barrier_wake: tag 3 does not wait"),
            (7, "waited 5000 clocks for phase 0 of the barrier.*tx=16"),
        ],
    )
)
async def notices(dut, fault, text):
    stalls = {"gnic_request": Stall(0.9)}
    env = await start(dut, Models(Memory.fixed(9), Memory.fixed(9), stalls=stalls))
    submit(env, fault)
    with message(text):
        await env.wait(BARRIER, 0, timeout=5000)


@cocotb.test()
@cocotb.parametrize(
    (
        ("fault", "text"),
        [(6, "barrier_result: tag 3, expected 2"), (10, "barrier_result: tag 2 waits, but cannot")],
    )
)
async def notices_wrong_results(dut, fault, text):
    env = await start(dut)
    submit(env, fault)
    await env.idle()
    with message(text):
        await env.barrier("EXPECT_TX", BARRIER, 0)


@cocotb.test()
async def waits_end(dut):
    env = await start(dut)
    assert (await env.try_wait(BARRIER, 1))[:3] == (True, False, None)
    assert (await env.try_wait(BARRIER, 0, time_limit=0))[:3] == (False, False, None)
    began = env.cycle
    over = await env.try_wait(BARRIER, 0, time_limit=50)
    assert over[:3] == (False, True, None)
    assert 50 <= over.cycle - began < 70
    assert env.cycle == over.cycle
    with pytest.raises(ValueError, match="for a parity or for a state"):
        await env.try_wait(BARRIER)


@cocotb.test()
async def more_threads_wait_than_have_a_place(dut):
    """And ask again when their time is over."""
    env = await start(dut, Models(Memory.fixed(100), Memory.fixed(100)))
    waits = [cocotb.start_soon(env.wait(BARRIER, 0, time_limit=70)) for _ in range(4)]
    submit(env)
    ends = [await wait for wait in waits]
    assert copied(env)
    assert max(ends) - min(ends) < 200
    assert sum(row["key"] == BARRIER for row in env.log(LogKind.WORD)) == 3


@cocotb.test()
async def errors_arrive(dut):
    env = await start(dut)
    number = submit(env, 8)
    error = await env.next_error()
    assert error.request_id == number
    assert error.code == 1
    assert error.cta == 0


@cocotb.test()
async def nothing_comes(dut):
    env = await start(dut)
    with message("waited 100 clocks for an error record"):
        await env.next_error(timeout=100)
    with pytest.raises(BenchTimeoutError):
        await env.accepted(77, timeout=100)


@cocotb.test()
async def reset_recovers(dut):
    env = await start(dut)
    submit(env, 3)
    with message("in flight"):
        await env.wait(BARRIER, 0)
    env = await start(dut)
    submit(env)
    await env.wait(BARRIER, 0)
    assert copied(env)


@cocotb.test()
async def a_wrong_byte_is_a_wrong_byte(dut):
    env = await start(dut)
    submit(env, 9)
    await env.wait(BARRIER, 0)
    assert not copied(env)


@cocotb.test(expect_error=BenchError)
async def fails_a_test_that_does_not_wait(dut):
    from cocotb.triggers import Timer

    env = await start(dut)
    submit(env, 4)
    await Timer(10, "us")
