"""Simulated tests of page faults: absent and read-only pages, beside requests that are unharmed.

``hw.page_loop`` has a page of each kind; all others can be read and written.
"""

from typing import Any

import cocotb
import numpy as np

from golden import DataType, ErrorCode, ReductionOp, TensorMap
from golden.mbarrier import Barrier
from golden.memory import HashedMemory
from hw.layouts.translation import PageFault
from hw.page_loop import ABSENT, READ_ONLY
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import Models, Timing
from sim_tb.testbench.results import ErrorRecord
from tests.top.tb_stores import place

BARRIERS = 0, 8
TARGETS = 0x400, 0x1400
SOURCE = 0x400
GOOD = 0x1234_5000
SIZE = 4096


def page_of(env: Environment, address: int) -> int:
    """Return the number of the page of an address."""
    return address >> env.interface.parameters["tlb_page_bits"]


def line_of(env: Environment, address: int) -> int:
    """Return the address of the line of an address."""
    return address & -env.interface.parameters["line_bytes"]


async def start(dut: Any, background: str = "hash") -> Environment:
    """Start with random shared memory."""
    models = Models(stores=Timing.random(20, 100))
    env = await Environment.start(dut, models, background=background)
    env.smem[:] = env.rng("faults").integers(0, 256, env.smem.size, dtype=np.uint8)
    return env


async def expect(env: Environment, barrier: int, size: int) -> None:
    """Let a phase of a barrier wait for ``size`` bytes."""
    await env.barriers.command("INIT", barrier, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", barrier, size)


async def take(env: Environment, name: int, fault: PageFault) -> int:
    """Take the record of a page fault of the request ``name``; return its address."""
    error = await env.errors.take_next()
    assert isinstance(error, ErrorRecord)
    assert (error.request_id, error.code, error.dim) == (name, ErrorCode.GMEM_FAULT, fault.value)
    return error.value


@cocotb.test()
async def loads_of_an_absent_page(dut: Any) -> None:
    """A load whose last half is in an absent page, between loads of pages that exist."""
    env = await start(dut)
    rows = TensorMap.tiled(DataType.UINT8, ABSENT - 2048, (128, 32), (128,), (128, 32))
    tensor_map = env.descriptors.place(rows)
    expected = np.empty(SIZE, np.uint8)
    for turn in range(4):
        for barrier in BARRIERS:
            await expect(env, barrier, SIZE)
        if turn % 2:
            wrong = env.requests.bulk_load(ABSENT - 2048, TARGETS[0], SIZE, BARRIERS[0])
        else:
            wrong = env.requests.load(tensor_map, [0, 0], TARGETS[0], BARRIERS[0])
        source = GOOD + turn * SIZE
        env.requests.bulk_load(source, TARGETS[1], SIZE, BARRIERS[1])
        await env.barriers.wait(BARRIERS[1], 0)
        expected[:] = HashedMemory().read(np.arange(source, source + SIZE, dtype=np.uint64))
        assert np.array_equal(env.smem[TARGETS[1] :][:SIZE], expected)
        address = await take(env, wrong, PageFault.ABSENT)
        assert page_of(env, address) == page_of(env, ABSENT)
        assert address == line_of(env, address)
        await env.idle()
        assert env.barriers.read(BARRIERS[0]) == Barrier(
            phase=0, pending=0, expected=1, tx_count=SIZE
        )
    assert not env.errors


@cocotb.test()
async def a_prefetch_of_an_absent_page_is_ignored(dut: Any) -> None:
    env = await start(dut)
    env.requests.bulk_prefetch(ABSENT - 2048, SIZE)
    await expect(env, BARRIERS[0], SIZE)
    env.requests.bulk_load(GOOD, TARGETS[0], SIZE, BARRIERS[0])
    await env.barriers.wait(BARRIERS[0], 0)
    await env.idle()
    assert not env.errors


@cocotb.test()
async def tensor_maps_of_an_absent_page(dut: Any) -> None:
    """Maps that can be read, between maps that cannot: each load gets its own map or a record."""
    env = await start(dut)
    good = [
        env.descriptors.place(
            TensorMap.tiled(DataType.UINT8, GOOD + n * SIZE, (128, 32), (128,), (128, 32))
        )
        for n in range(2)
    ]
    for turn in range(3):
        absent = [ABSENT + 64 * (8 * turn + n) for n in range(3)]
        for barrier in BARRIERS:
            await expect(env, barrier, SIZE)
        await env.descriptors.invalidate()
        names = []
        for n, address in enumerate(absent):
            names.append(env.requests.load(address, [0, 0], TARGETS[0], BARRIERS[0]))
            if n < len(good):
                env.requests.load(good[n], [0, 0], TARGETS[n], BARRIERS[n])
        for n, barrier in enumerate(BARRIERS):
            await env.barriers.wait(barrier, 0)
            source = np.arange(GOOD + n * SIZE, GOOD + (n + 1) * SIZE, dtype=np.uint64)
            assert np.array_equal(env.smem[TARGETS[n] :][:SIZE], HashedMemory().read(source))
        records = [await env.errors.take_next() for _ in names]
        assert {record.code for record in records} == {ErrorCode.GMEM_FAULT}
        assert {record.dim for record in records} == {PageFault.ABSENT.value}
        got = [(record.request_id, record.value) for record in records]
        assert got == list(zip(names, absent, strict=True))
        await env.idle()
    assert not env.errors


@cocotb.test()
async def stores_to_absent_and_read_only_pages(dut: Any) -> None:
    """The part of a store in the page in front of such a page is written, and its group completes.

    Other stores are unharmed; a load from a read-only page is, too.
    """
    env = await start(dut, "fault")
    other = place(env, GOOD, SIZE)
    reductions = env.interface.parameters["reductions"]
    kinds = [None, *([(DataType.UINT32, ReductionOp.ADD)] if reductions else [])]
    for address, fault in ((ABSENT, PageFault.ABSENT), (READ_ONLY, PageFault.READ_ONLY)):
        before = place(env, address - 512, 512)
        behind = place(env, address, 512)
        for reduction in kinds:
            before[:] = other[:] = 0
            wrong = env.requests.bulk_store(address - 512, SOURCE, 1024, reduction=reduction)
            env.requests.bulk_store(GOOD, SOURCE, SIZE, reduction=reduction)
            env.requests.commit_group()
            await env.requests.wait_group(0)
            last = await take(env, wrong, fault)
            assert last == line_of(env, address + 511)
            assert np.array_equal(before, env.smem[SOURCE:][:512])
            assert np.array_equal(other, env.smem[SOURCE:][:SIZE])
            assert not behind.any()
    behind[:] = env.rng("page").integers(0, 256, behind.size, dtype=np.uint8)
    await expect(env, BARRIERS[0], 512)
    env.requests.bulk_load(READ_ONLY, TARGETS[1], 512, BARRIERS[0])
    await env.barriers.wait(BARRIERS[0], 0)
    assert np.array_equal(env.smem[TARGETS[1] :][:512], behind)
    await env.idle()
    assert not env.errors
