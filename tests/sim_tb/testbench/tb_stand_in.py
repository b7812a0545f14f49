"""Simulated tests of the stand-in: the environment's functions, and its checks of a faulty unit."""

import ctypes
import re
from functools import partial
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import Timer

from sim_tb.testbench import shared
from sim_tb.testbench.bridge import NUMBERS, RECORDS, LogKind, check_layouts
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError, LayoutError, WaitTimeoutError
from sim_tb.testbench.models import Models, Stall, Timing
from tests.sim_tb.testbench.stand_in import tensor_map_of

BARRIER, DATA = 0x40, 0x1000
SOURCE = 0x10_0000


async def start(dut: Any, models: Models | None = None, lines: int = 16) -> Environment:
    env = await Environment.start(dut, models or Models(Timing.fixed(10), Timing.fixed(10)))
    size = lines * env.interface.parameters["line_bytes"]
    env.source = env.rng("source").integers(0, 256, size, dtype=np.uint8)
    env.gmem.place(SOURCE, env.source)
    env.map = env.descriptors.place(tensor_map_of(SOURCE, size))
    await env.barriers.command("INIT", BARRIER, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", BARRIER, size)
    return env


def submit(env: Environment, fault: int = 0, lines: int = 16) -> int:
    return env.requests.load(env.map, [0, 0, 0, lines, fault], DATA, BARRIER)


def copied(env: Environment) -> bool:
    return np.array_equal(env.smem[DATA : DATA + env.source.size], env.source)


@cocotb.test()
@cocotb.parametrize(
    models=[
        Models(Timing.fixed(1), Timing.fixed(1)),
        Models(Timing.random(1, 50)).stalling(0.4),
        Models(Timing.bursty(20, 64)).stalling(0.6, mean=12),
        Models(Timing.shuffled(20, 8)),
        Models(Timing(5, 5, in_flight=1, bandwidth=0.1)),
    ]
)
async def copies(dut, models):
    env = await start(dut, models)
    flips = []
    env.barriers.watch(BARRIER, lambda cycle, word: flips.append((cycle, word.phase)))
    submit(env)
    seen = await env.barriers.wait(BARRIER, 0)
    assert copied(env)
    word = env.barriers.read(BARRIER)
    assert (word.phase, word.pending, word.expected, word.tx_count, word.lock) == (1, 1, 1, 0, 0)
    assert [phase for _, phase in flips] == [1]
    assert flips[0][0] < seen
    lines = env.log(LogKind.LINE)
    first = SOURCE // env.interface.parameters["line_bytes"]
    assert lines["key"].tolist() == list(range(first, first + 16))
    await env.idle()
    assert not env.errors


@cocotb.test()
async def latency_is_exact(dut):
    for latency in 1, 2, 37:
        env = await Environment.start(
            dut, Models(Timing.fixed(latency)), logs=[LogKind.LINE, LogKind.RESPONSE]
        )
        source = env.descriptors.place(tensor_map_of(0, 4096))
        await env.barriers.command("INIT", BARRIER, 1)
        env.requests.load(source, [0, 0, 0, 3, 0], DATA, BARRIER)
        await env.idle()
        taken, answered = (env.log(kind)["cycle"] for kind in (LogKind.LINE, LogKind.RESPONSE))
        assert (answered - taken == latency).all()


def failure(pattern):
    """Expect a failed check whose message contains ``pattern``."""
    return pytest.raises(CheckError, match=re.compile(pattern, re.DOTALL))


@cocotb.test()
@cocotb.parametrize(
    (
        ("fault", "text"),
        [
            (1, "gnic_request: valid fell"),
            (2, "gnic_request: the payload changed"),
            (3, "gnic_request: tag 0 is in flight since cycle"),
            (4, "smem_write: offset 0x.* is beyond shared memory"),
            (
                5,
                "waited 5000 clocks for phase 0 of the barrier at 0x40.*=2048.*0 unanswered",
            ),
            (6, "barrier_wake: tag 3 does not wait"),
            (7, "waited 5000 clocks for phase 0 of the barrier.*tx_count=16"),
            (12, "gnic_request: no request in flight has a piece of line 0x6000"),
            (13, "smem_write: offset 0x5000 is in no box of a request in flight"),
            (14, "gnic_write: no request in flight writes the piece at 0x100000"),
        ],
    )
)
async def faults_are_noticed(dut, fault, text):
    stalls = {"gnic_request": Stall(0.9)}
    env = await start(dut, Models(Timing.fixed(9), Timing.fixed(9), stalls=stalls))
    submit(env, fault)
    with failure(text):
        await env.barriers.wait(BARRIER, 0, timeout=5000)


@cocotb.test()
@cocotb.parametrize(
    (
        ("fault", "text"),
        [(6, "barrier_result: tag 3, expected 2"), (10, "barrier_result: tag 2 waits, but cannot")],
    )
)
async def wrong_results_are_noticed(dut, fault, text):
    env = await start(dut)
    submit(env, fault)
    await env.idle()
    with failure(text):
        await env.barriers.command("EXPECT_TX", BARRIER, 0)


@cocotb.test()
async def waits_end(dut):
    env = await start(dut)
    assert (await env.barriers.try_wait(BARRIER, 1))[:3] == (True, False, None)
    assert (await env.barriers.try_wait(BARRIER, 0, time_limit=0))[:3] == (False, False, None)
    began = env.cycle
    over = await env.barriers.try_wait(BARRIER, 0, time_limit=50)
    assert over[:3] == (False, True, None)
    assert 50 <= over.cycle - began < 70
    assert env.cycle == over.cycle
    with pytest.raises(ValueError, match="either a parity or a state"):
        await env.barriers.try_wait(BARRIER)


@cocotb.test()
async def threads_without_a_place_to_wait_ask_again(dut):
    """Four threads wait, and the stand-in has a place for one; their time limits pass, too."""
    env = await start(dut, Models(Timing.fixed(100), Timing.fixed(100)))
    waits = [cocotb.start_soon(env.barriers.wait(BARRIER, 0, time_limit=70)) for _ in range(4)]
    submit(env)
    ends = [await wait for wait in waits]
    assert copied(env)
    assert max(ends) - min(ends) < 200
    assert sum(row["key"] == BARRIER for row in env.log(LogKind.WORD)) == 3


@cocotb.test()
async def errors_arrive(dut):
    env = await start(dut)
    number = submit(env, 8)
    error = await env.errors.take_next()
    assert error.request_id == number
    assert error.code == 1
    assert error.cta == 0


@cocotb.test()
async def waits_time_out(dut):
    env = await start(dut)
    with failure("waited 100 clocks for an error record"):
        await env.errors.take_next(timeout=100)
    with pytest.raises(WaitTimeoutError):
        await env.requests.accepted(77, timeout=100)


@cocotb.test()
async def reset_recovers(dut):
    env = await start(dut)
    submit(env, 3)
    with failure("in flight"):
        await env.barriers.wait(BARRIER, 0)
    env = await start(dut)
    submit(env)
    await env.barriers.wait(BARRIER, 0)
    assert copied(env)


@cocotb.test()
async def a_wrong_byte_is_seen(dut):
    env = await start(dut)
    submit(env, 9)
    await env.barriers.wait(BARRIER, 0)
    assert not copied(env)


@cocotb.test(expect_error=CheckError)
async def a_failure_ends_a_test_that_does_not_wait(dut):
    env = await start(dut)
    submit(env, 4)
    await Timer(10, "us")


def reordered(record: type[ctypes.Structure]) -> type[ctypes.Structure]:
    """Return ``record`` with its first and its last but one field exchanged."""
    first, *middle, later, last = record._fields_
    fields = [later, *middle, first, last]
    return type(record.__name__, (ctypes.Structure,), {"_fields_": fields})


@cocotb.test()
@cocotb.parametrize(
    (
        ("mistake", "text"),
        [
            (
                {"records": [*RECORDS[:-1], reordered(RECORDS[-1])]},
                "offset of RemoteStoreRecord.words: 0 in Python, 28 in C++",
            ),
            ({"records": RECORDS[:-1]}, "size of RemoteStoreRecord: missing in Python, 48 in C++"),
            (
                {"numbers": NUMBERS | {"LogKind": NUMBERS["LogKind"] | {"LINE": 1}}},
                "number of LogKind.LINE: 1 in Python, 0 in C++",
            ),
        ],
    )
)
async def a_wrong_layout_stops_the_start(dut, mistake, text):
    """The simulation does not start if Python and C++ disagree about a record or a number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "check_layouts", partial(check_layouts, **mistake))
        with pytest.raises(LayoutError, match=re.escape(text)):
            await start(dut)
    await start(dut)
