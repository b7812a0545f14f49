"""Simulated tests of a cluster whose SMs write the same global memory: no update is lost.

The environment variable ``MEMORY_MODELS`` is a preset of ``sim_tb.testbench.models``.
"""

import os
from typing import Any

import cocotb
import numpy as np

from golden import DataType, ReductionOp
from sim_tb.testbench.bridge import Bytes
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from sim_tb.testbench.models import PRESETS

TARGET, SOURCE = 0x10_0000, 0x400
WORDS = 64
ADD = DataType.UINT32, ReductionOp.ADD


async def start(dut: Any) -> tuple[ClusterEnvironment, Bytes]:
    cluster = await ClusterEnvironment.start(dut, PRESETS[os.environ["MEMORY_MODELS"]])
    target = np.zeros(WORDS, np.uint32)
    cluster.gmem.place(TARGET, target)
    return cluster, target


@cocotb.test()
async def no_reduction_is_lost(dut: Any) -> None:
    cluster, target = await start(dut)
    expected = np.zeros(WORDS, np.uint32)
    count = 20
    for env in cluster.sms:
        values = env.rng("values").integers(0, 1 << 32, WORDS, np.uint32)
        expected += np.uint32(count) * values
        env.smem[SOURCE : SOURCE + values.nbytes] = values.view(np.uint8)
        for _ in range(count):
            env.requests.bulk_store(TARGET, SOURCE, values.nbytes, reduction=ADD)
        env.requests.commit_group()
    for env in cluster.sms:
        await env.requests.wait_group()
    assert np.array_equal(target, expected)


@cocotb.test()
async def no_store_is_lost(dut: Any) -> None:
    """One SM adds 1 repeatedly while another stores: the stored upper halves stay."""
    cluster, target = await start(dut)
    adds, stores = cluster.sms[:2]
    adds.smem[SOURCE : SOURCE + target.nbytes] = np.ones(WORDS, np.uint32).view(np.uint8)
    count = 40
    for _ in range(count):
        adds.requests.bulk_store(TARGET, SOURCE, target.nbytes, reduction=ADD)
    for step in range(1, 9):
        stored = np.full(WORDS, step << 16, np.uint32)
        stores.smem[SOURCE : SOURCE + target.nbytes] = stored.view(np.uint8)
        stores.requests.bulk_store(TARGET, SOURCE, target.nbytes)
        stores.requests.commit_group()
        await stores.requests.wait_group()
        assert (target >> 16 == step).all()
        assert ((target & 0xFFFF) <= count).all()
    await cluster.idle()
    assert (target >> 16 == step).all()


@cocotb.test()
async def no_sm_starves(dut: Any) -> None:
    """A reduction of one SM completes while another SM always has reductions waiting."""
    cluster, target = await start(dut)
    many, one = cluster.sms[:2]
    for env in cluster.sms:
        env.smem[SOURCE : SOURCE + target.nbytes] = np.ones(WORDS, np.uint32).view(np.uint8)
    for _ in range(400):
        many.requests.bulk_store(TARGET, SOURCE, 32, reduction=ADD)
    many.requests.commit_group()
    await many.cycles(500)
    one.requests.bulk_store(TARGET, SOURCE, 32, reduction=ADD)
    one.requests.commit_group()
    await one.requests.wait_group()
    assert 1 < target[0] < 300
    await many.requests.wait_group()
    assert (target[:8] == 401).all()
