"""cocotb module: cycles per box of the saturated unit. ``sim_tb.bench`` starts it.

``TIMING_MODELS`` is a preset of ``sim_tb.models``.
"""

import os
from dataclasses import dataclass, replace
from typing import Any

import cocotb
import numpy as np

from golden import Load, TensorMap
from sim_tb import jobs
from sim_tb.bridge import LogKind
from sim_tb.environment import BenchError, Environment
from sim_tb.models import PRESETS

CLOCKS = 4096
"""What a measurement should take at the floor, within limits for the number of boxes."""

FEWEST, MOST = 16, 512

PHASE_BYTES = (1 << 20) - 1
"""Bytes that a barrier can expect in one phase."""

BARRIERS = 4
WORD_BYTES = 8
LOGS = (LogKind.ACCEPT, LogKind.WORD)


@dataclass(frozen=True)
class Box:
    """A load to be measured, and what it moves."""

    load: Load
    footprint: int
    bytes: int
    floor: int


def barriers(box: Box, count: int, smem_bytes: int) -> list[int]:
    """Offsets of ``count`` barriers that the box does not write."""
    size = count * WORD_BYTES
    start = box.load.smem_address
    if start + box.footprint + size <= smem_bytes:
        return list(range(smem_bytes - size, smem_bytes, WORD_BYTES))
    if size <= start:
        return list(range(0, size, WORD_BYTES))
    raise BenchError(f"no room for {count} barriers beside {box.footprint} bytes")


async def row(env: Environment, box: Box, tensor_map: int, count: int) -> int:
    """Clocks from the first of ``count`` requests, issued as fast as they go, to the last phase."""
    needed = max(BARRIERS, -(-count * box.bytes // (PHASE_BYTES - box.bytes)))
    offsets = barriers(box, needed, env.smem.size)
    for i, offset in enumerate(offsets):
        await env.barrier("INIT", offset, 1)
        await env.barrier("ARRIVE_EXPECT_TX", offset, len(range(i, count, needed)) * box.bytes)
    for kind in LOGS:
        env.clear_log(kind)
    for i in range(count):
        env.issue(replace(box.load, mbarrier=offsets[i % needed]), tensor_map)
    await env.idle()
    errors = env.take_errors()
    if errors:
        raise BenchError(f"refused: {errors[0]}")
    for offset in offsets:
        if env.word(offset).phase != 1:
            raise BenchError(f"incomplete: {env.word(offset)}\n{env.ledger()}")
    first, last = env.log(LogKind.ACCEPT)["cycle"][0], env.log(LogKind.WORD)["cycle"][-1]
    return int(last - first)


async def measure(env: Environment, box: Box) -> float:
    """Cycles per box in the steady state: what a row of 2 n boxes takes longer than one of n.

    The difference has neither the latency in it nor the order in which requests complete: the unit
    may write fill of later boxes while earlier ones wait for their lines.
    """
    count = int(np.clip(CLOCKS // box.floor, FEWEST, MOST))
    assert isinstance(box.load.tensor_map, TensorMap)
    words = np.frombuffer(box.load.tensor_map.encode(), np.uint32)
    tensor_map = env.descriptor(words.copy())
    try:
        await env.prefetch(tensor_map)
        await env.idle()
        short = await row(env, box, tensor_map, count)
        return (await row(env, box, tensor_map, 2 * count) - short) / count
    finally:
        env.gmem.remove(tensor_map)


@cocotb.test()
async def timing(dut: Any) -> None:
    """Every box in order; a result is a number of cycles, or a text that says what went wrong."""
    models = PRESETS[os.environ["TIMING_MODELS"]]
    env = await Environment.start(dut, models, logs=LOGS)
    with jobs.Results() as results:
        for box in jobs.given():
            try:
                results.put(await measure(env, box))
            except BenchError as error:
                results.put(str(error))
                await env.reset(models, logs=LOGS)
