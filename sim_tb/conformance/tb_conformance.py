"""cocotb module: runs recorded cases through the unit. ``sim_tb.conformance.rtl`` starts it.

The environment variable ``CONFORMANCE_MODELS`` names a preset of ``sim_tb.testbench.models``.
"""

import os
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np

from golden import Arch, BulkLoad, BulkReduce, BulkStore, Load, Store
from golden.errors import ErrorCode
from golden.mbarrier import Barrier
from golden.vectors import UNTOUCHED, Case, Outcome, Refusal
from sim_tb.coverage import crosses
from sim_tb.simulator import jobs
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.models import PRESETS
from sim_tb.testbench.requests import GoldenRequest
from sim_tb.testbench.results import ErrorRecord

MEMORY_BASE = 0
BARRIER_BYTES = 8
REFUSED_BYTES = 16
"""Bytes that the barrier expects for a refused case, so that its phase stays incomplete."""


def barrier_of(case: Case, smem_bytes: int) -> int:
    """Return the offset of the barrier: just below the destination, where a stray byte hits it, or
    if there is no room, at the end of shared memory.
    """
    address = case.smem_address // BARRIER_BYTES * BARRIER_BYTES
    return (address if 128 <= address <= smem_bytes else smem_bytes) - BARRIER_BYTES


def refusal_of(error: ErrorRecord) -> Refusal:
    """Return what an error record says of a request."""
    return Refusal(ErrorCode(error.code), error.dim, error.value)


async def outcome(env: Environment, case: Case) -> Outcome:
    """Run one case; return what is compared, or a note if there is nothing to compare."""
    return await (run_load(env, case) if case.op == "load" else run_store(env, case))


async def run_load(env: Environment, case: Case) -> Outcome:
    """Run a load; the outcome has the shared memory and the bytes that the barrier counted."""
    barrier = barrier_of(case, env.smem.size)
    env.smem[:] = case.smem()[: env.smem.size]
    memory = case.gmem_before
    expected = case.counted or REFUSED_BYTES
    env.gmem.background("hash" if memory is None else "fault")
    if memory is not None:
        env.gmem.place(MEMORY_BASE, np.array(memory))
    request = case.request()
    assert isinstance(request, Load | BulkLoad)
    await env.barriers.command("INIT", barrier, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", barrier, expected)
    await execute(env, case, replace(request, mbarrier=barrier))
    word = env.barriers.read(barrier)
    errors = env.errors.take_all()
    env.smem[barrier : barrier + BARRIER_BYTES] = UNTOUCHED
    if errors:
        if len(errors) > 1 or word != Barrier(phase=0, pending=0, expected=1, tx_count=expected):
            return Outcome(note=f"{len(errors)} error records, barrier {word}: {errors}")
        if (env.smem != case.smem()[: env.smem.size]).any():
            return Outcome(note=f"refused, but shared memory was written: {errors[0]}")
        return Outcome(refused=refusal_of(errors[0]))
    counted = expected - word.tx_count
    if (word.phase, word.pending, word.lock) != (counted == expected, word.phase, 0):
        return Outcome(note=f"the barrier word is wrong after {expected} bytes: {word}")
    return Outcome(bytes=counted, memory=env.smem.copy())


async def run_store(env: Environment, case: Case) -> Outcome:
    """Run a store or reduction until its bulk group completes; the outcome has global memory."""
    env.smem[:] = case.smem()[: env.smem.size]
    memory = case.gmem_writable().bytes
    env.gmem.background("fault")
    env.gmem.place(MEMORY_BASE, memory)
    request = case.request()
    assert isinstance(request, Store | BulkStore | BulkReduce)
    await execute(env, case, request)
    if (env.smem != case.smem()[: env.smem.size]).any():
        return Outcome(note="shared memory was written")
    errors = env.errors.take_all()
    if len(errors) > 1:
        return Outcome(note=f"{len(errors)} error records: {errors}")
    return Outcome(refused=refusal_of(errors[0]) if errors else None, memory=memory)


async def execute(env: Environment, case: Case, request: GoldenRequest) -> None:
    """Issue the request and wait for its end; then remove its memories."""
    tensor_map = env.descriptors.place(np.frombuffer(case.descriptor, np.uint32).copy())
    try:
        if not case.refused:
            crosses.record(request, Arch.SM_90A)
        env.requests.submit(request, tensor_map)
        if case.op != "load":
            env.requests.commit_group()
            await env.requests.wait_group()
        await env.idle()
    finally:
        env.gmem.remove(tensor_map)
        env.gmem.remove(MEMORY_BASE)


@cocotb.test()
async def conformance(dut: Any) -> None:
    """Run every case of the job file in order; reset the unit only after a violated rule."""
    models = PRESETS[os.environ["CONFORMANCE_MODELS"]]
    env = await Environment.start(dut, models, logs=[])
    with jobs.Results() as results:
        for case in jobs.given():
            try:
                results.put(await outcome(env, case))
            except CheckError as error:
                results.put(Outcome(note=str(error)))
                await env.reset(models, logs=[])
