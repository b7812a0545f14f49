"""Simulated tests of a cluster of stand-ins: each SM has its own environment, and all share global
memory.
"""

import re
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
import pytest

from golden import DataType, Load, ReductionOp, TensorMap
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.models import Models, Timing
from tests.sim_tb.testbench.stand_in import tensor_map_of

BARRIER, DATA = 0x40, 0x1000
SOURCE = 0x10_0000
LINES = 16
NEAR = Models(Timing.fixed(10), Timing.fixed(10))
REFUSES, BEYOND_SMEM, WRITES_ELSEWHERE = 8, 4, 13


async def start(dut: Any, models: Models | list[Models] = NEAR) -> ClusterEnvironment:
    cluster = await ClusterEnvironment.start(dut, models)
    size = LINES * cluster.sms[0].interface.parameters["line_bytes"]
    source = cluster.sms[0].rng("source").integers(0, 256, size, dtype=np.uint8)
    cluster.gmem.place(SOURCE, source)
    for env in cluster.sms:
        env.source = source
        await env.barriers.command("INIT", BARRIER, 1)
        await env.barriers.command("ARRIVE_EXPECT_TX", BARRIER, size)
    return cluster


def submit(env: Environment, fault: int = 0) -> int:
    tensor_map = env.descriptors.place(tensor_map_of(SOURCE, env.source.size))
    return env.requests.load(tensor_map, [0, 0, 0, LINES, fault], DATA, BARRIER)


def copied(env: Environment) -> bool:
    return np.array_equal(env.smem[DATA : DATA + env.source.size], env.source)


@cocotb.test()
async def all_at_once(dut):
    """All SMs behave alike: their waits end in the same clock."""
    cluster = await start(dut)
    for env in cluster.sms:
        submit(env)
    waits = [cocotb.start_soon(env.barriers.wait(BARRIER, 0)) for env in cluster.sms]
    assert len({await wait for wait in waits}) == 1
    assert all(copied(env) for env in cluster.sms)


@cocotb.test()
async def each_with_its_own_models(dut):
    latencies = 5, 50, 500
    cluster = await start(dut, [replace(NEAR, lines=Timing.fixed(n)) for n in latencies])
    first, _, last = cluster.sms
    for env in (first, last):
        submit(env)
    await first.barriers.wait(BARRIER, 0)
    assert (copied(first), copied(last)) == (True, False)
    await first.idle(everywhere=False)
    assert not copied(last)
    await cluster.idle()
    assert copied(last)
    assert [len(env.log(LogKind.LINE)) for env in cluster.sms] == [LINES, 0, LINES]
    for env, latency in ((first, 5), (last, 500)):
        cycles = env.log(LogKind.LINE)["cycle"]
        assert (np.diff(cycles.astype(int)) > latency).all()


@cocotb.test()
async def stalls_of_sms_differ(dut):
    cluster = await start(dut, Models(Timing.random(1, 50)).stalling(0.4))
    for env in cluster.sms:
        submit(env)
    waits = [cocotb.start_soon(env.barriers.wait(BARRIER, 0)) for env in cluster.sms]
    assert len({await wait for wait in waits}) == len(waits)


@cocotb.test()
async def a_failure_of_one_sm_ends_all_waits(dut):
    cluster = await start(dut)
    submit(cluster.sms[2], BEYOND_SMEM)
    with pytest.raises(CheckError, match=re.compile("SM 2: smem_write: offset")):
        await cluster.sms[0].barriers.wait(BARRIER, 0)
    cluster = await start(dut)
    submit(cluster.sms[2], WRITES_ELSEWHERE)
    with pytest.raises(CheckError, match=re.compile("SM 2: smem_write: offset .* is in no box")):
        await cluster.sms[2].barriers.wait(BARRIER, 0)
    cluster = await start(dut)
    submit(cluster.sms[2])
    await cluster.sms[2].barriers.wait(BARRIER, 0)
    assert copied(cluster.sms[2])


@cocotb.test()
async def a_ledger_is_of_all(dut):
    cluster = await start(dut)
    submit(cluster.sms[1], 5)
    with pytest.raises(CheckError, match=re.compile("SM 1: .*SM 2: ", re.DOTALL)):
        await cluster.sms[1].barriers.wait(BARRIER, 0, timeout=1000)


def fields(value: int, *widths: int) -> tuple[int, ...]:
    """Return the fields of ``value``, lowest first, by their widths in bits."""
    numbers = []
    for width in widths:
        numbers.append(value & (1 << width) - 1)
        value >>= width
    return tuple(numbers)


@cocotb.test()
async def operands_for_clusters_arrive(dut):
    cluster = await start(dut)
    env = cluster.sms[1]
    tensor_map = TensorMap.from_array(np.zeros((1,) * 4 + (32,), np.uint8), box=(32,) + (1,) * 4)
    load = Load(tensor_map, (0, 0, 0, LINES, REFUSES), mbarrier=BARRIER)
    words = env.descriptors.place(np.zeros(32, np.uint32))
    for request, expected in (
        (load, (0, 0, 1, 1, 0)),
        (replace(load, dst_cta=2), (0, 0, 2, 2, 0)),
        (replace(load, dst_cta=2, mbarrier_cta=0, cta_group=2), (0, 0, 2, 0, 1)),
        (replace(load, cta_mask=0b101), (1, 0b101, 1, 1, 0)),
        (replace(load, cta_mask=0xFFFF, mbarrier_cta=2), (1, 0xFFFF, 1, 2, 0)),
    ):
        number = env.requests.submit(request, words)
        error = await env.errors.take_next()
        assert (error.request_id, error.cta) == (number, 1)
        assert fields(error.value, 1, 16, 8, 8, 1) == expected
    with pytest.raises(ValueError, match="cta_mask = 0x10000: must have 16 bits"):
        env.requests.submit(replace(load, cta_mask=1 << 16), words)


@cocotb.test()
async def remote_operations_arrive(dut):
    cluster = await start(dut)
    env = cluster.sms[2]
    number = env.remote.send_barrier(1, "ARRIVE", BARRIER, 5)
    error = await env.errors.take_next()
    assert (error.request_id, error.cta) == (number, 2)
    arrive = env.interface.enums["BarrierOp"]["ARRIVE"]
    assert fields(error.value, 8, 4, 24, 21) == (1, arrive, BARRIER, 5)

    values = np.arange(1, 3, dtype=np.uint32)
    number = env.remote.store(0, 0x2008, values, BARRIER)
    error = await env.errors.take_next()
    assert error.request_id == number
    assert fields(error.value, 8, 24, 4, 1) == (0, BARRIER, 0b1100, 0)
    add = DataType.UINT32, ReductionOp.ADD
    env.remote.store(1, 0x2000, np.full(1, 0x12345, np.uint32), BARRIER, reduction=add)
    error = await env.errors.take_next()
    assert fields(error.value, 8, 24, 4, 1, 27) == (1, BARRIER, 0b0001, 1, 0x12345)
    with pytest.raises(ValueError, match="12 bytes: must be 4, 8 or 16"):
        env.remote.store(0, 0x2000, np.zeros(3, np.uint32), BARRIER)


@cocotb.test()
async def running_ctas(dut):
    cluster = await start(dut)
    assert cluster.running == 0b111
    cluster.running = 0b101
    await cluster.sms[0].cycles(1)
    assert dut.run.value.to_unsigned() == cluster.running == 0b101
    await cluster.reset(NEAR)
    assert cluster.running == 0b111
