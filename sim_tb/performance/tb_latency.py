"""cocotb module: clocks of single loads through an empty unit, part by part.

``sim_tb.performance.microbenchmarks`` starts it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import cocotb

from golden import BulkLoad, Load
from sim_tb.performance.tb_timing import Box, TensorMaps, barriers
from sim_tb.simulator import jobs
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError

LOGS = (LogKind.ACCEPT, LogKind.LINE, LogKind.BEAT, LogKind.WORD)


@dataclass(frozen=True)
class Latency:
    """Clocks of a single load.

    Parameters
    ----------
    first_line : int
        From the acceptance of the request to its first line read.
    last_phase : int
        From the last write to shared memory to the next phase of the barrier.
    total : int
        From the acceptance of the request to the next phase of the barrier.
    """

    first_line: int
    last_phase: int
    total: int


async def latency(env: Environment, box: Box) -> Latency:
    """Load a box through the empty unit; its tensor map is in the descriptor cache."""
    request = box.request
    assert isinstance(request, Load | BulkLoad)
    (barrier,) = barriers([box], 1, env.smem.size)
    await env.barriers.command("INIT", barrier, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", barrier, box.bytes)
    with TensorMaps(env) as maps:
        tensor_map = await maps.address(box)
        await env.idle()
        for kind in LOGS:
            env.clear_log(kind)
        env.requests.submit(replace(request, mbarrier=barrier), tensor_map)
        await env.idle()
    errors = env.errors.take_all()
    if errors or env.barriers.read(barrier).phase != 1:
        raise CheckError(f"incomplete: {env.barriers.read(barrier)}, {errors}")
    accepted, line = (int(env.log(kind)["cycle"][0]) for kind in (LogKind.ACCEPT, LogKind.LINE))
    beat, phase = (int(env.log(kind)["cycle"][-1]) for kind in (LogKind.BEAT, LogKind.WORD))
    return Latency(line - accepted, phase - beat, phase - accepted)


@cocotb.test()
async def latencies(dut: Any) -> None:
    """Measure the ``Latency`` of each box of the job file, in order."""
    env = await Environment.start(dut, background="void", logs=LOGS)
    boxes: Iterable[Box] = jobs.given()
    with jobs.Results() as results:
        for box in boxes:
            results.put(await latency(env, box))
