"""cocotb module: cycles per box of the saturated unit. ``sim_tb.bench`` starts it.

``TIMING_MODELS`` is a preset of ``sim_tb.models``.
"""

import os
from dataclasses import dataclass, replace
from typing import Any

import cocotb
import numpy as np

from golden import Load, Store, TensorMap
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
    """What is to be measured.

    ``requests`` are issued in turn, a load, a store, or one of each; ``bytes`` is what a barrier
    counts, and ``floor`` the clocks that they take together at least.
    """

    requests: tuple[Load | Store, ...]
    footprint: int
    bytes: int
    floor: int


def barriers(box: Box, count: int, smem_bytes: int) -> list[int]:
    """Offsets of ``count`` barriers that the box does not write."""
    size = count * WORD_BYTES
    start = box.requests[0].smem_address
    if start + box.footprint + size <= smem_bytes:
        return list(range(smem_bytes - size, smem_bytes, WORD_BYTES))
    if size <= start:
        return list(range(0, size, WORD_BYTES))
    raise BenchError(f"no room for {count} barriers beside {box.footprint} bytes")


async def row(env: Environment, box: Box, tensor_map: int, count: int) -> int:
    """Clocks from the first of ``count`` boxes, issued as fast as they go, to the last phase and to
    the end of a wait for all stores.
    """
    needed = max(BARRIERS, -(-count * box.bytes // (PHASE_BYTES - box.bytes)))
    offsets = barriers(box, needed, env.smem.size) if box.bytes else []
    for i, offset in enumerate(offsets):
        await env.barrier("INIT", offset, 1)
        await env.barrier("ARRIVE_EXPECT_TX", offset, len(range(i, count, needed)) * box.bytes)
    for kind in LOGS:
        env.clear_log(kind)
    for i in range(count):
        for request in box.requests:
            if isinstance(request, Load):
                request = replace(request, mbarrier=offsets[i % needed])
            env.issue(request, tensor_map)
    ends = []
    if isinstance(box.requests[-1], Store):
        env.commit_group()
        ends.append(await env.wait_group())
    await env.idle()
    errors = env.take_errors()
    if errors:
        raise BenchError(f"refused: {errors[0]}")
    for offset in offsets:
        if env.word(offset).phase != 1:
            raise BenchError(f"incomplete: {env.word(offset)}\n{env.ledger()}")
    if offsets:
        ends.append(env.log(LogKind.WORD)["cycle"][-1])
    return int(max(ends) - env.log(LogKind.ACCEPT)["cycle"][0])


async def measure(env: Environment, box: Box) -> float:
    """Cycles per box in the steady state: what a row of 2 n boxes takes longer than one of n.

    The difference has neither the latency in it nor the order in which requests complete: the unit
    may write fill of later boxes while earlier ones wait for their lines.
    """
    count = int(np.clip(CLOCKS // box.floor, FEWEST, MOST))
    described = box.requests[0].tensor_map
    assert isinstance(described, TensorMap)
    tensor_map = env.descriptor(described)
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
    env = await Environment.start(dut, models, background="void", logs=LOGS)
    with jobs.Results() as results:
        for box in jobs.given():
            try:
                results.put(await measure(env, box))
            except BenchError as error:
                results.put(str(error))
                await env.reset(models, background="void", logs=LOGS)
