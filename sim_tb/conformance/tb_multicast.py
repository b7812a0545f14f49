"""cocotb module: runs recorded multicasts through a cluster. ``sim_tb.conformance.rtl`` starts it.

The environment variable ``CONFORMANCE_MODELS`` names a preset of ``sim_tb.testbench.models``; each
SM has these models.
"""

import os
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np

from golden import BulkLoad, Load
from golden.mbarrier import Barrier
from golden.vectors import UNTOUCHED, Case, Outcome
from sim_tb.conformance.tb_conformance import (
    BARRIER_BYTES,
    MEMORY_BASE,
    barrier_of,
    refusal_of,
)
from sim_tb.simulator import jobs
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.models import PRESETS


async def outcome(cluster: ClusterEnvironment, case: Case) -> Outcome:
    """Run a multicast; the outcome has all shared memories and the bytes that barriers counted.

    Barriers of CTAs outside of the mask also expect bytes, and must not count any.
    """
    issuer = cluster.sms[case.issuer]
    barrier = barrier_of(case, issuer.smem.size)
    for env in cluster.sms:
        env.smem[:] = case.smem()[: env.smem.size]
        await env.barriers.command("INIT", barrier, 1)
        await env.barriers.command("ARRIVE_EXPECT_TX", barrier, case.bytes)
    memory = case.gmem_before
    cluster.gmem.background("hash" if memory is None else "fault")
    if memory is not None:
        cluster.gmem.place(MEMORY_BASE, np.array(memory))
    request = case.request()
    assert isinstance(request, Load | BulkLoad)
    tensor_map = issuer.descriptors.place(np.frombuffer(case.descriptor, np.uint32).copy())
    issuer.requests.submit(replace(request, mbarrier=barrier), tensor_map)
    await cluster.idle()
    cluster.gmem.remove(tensor_map)
    cluster.gmem.remove(MEMORY_BASE)

    errors = [error for env in cluster.sms for error in env.errors.take_all()]
    words = [env.barriers.read(barrier) for env in cluster.sms]
    for env in cluster.sms:
        env.smem[barrier : barrier + BARRIER_BYTES] = UNTOUCHED
    if errors:
        return Outcome(refused=refusal_of(errors[0]))
    complete = Barrier(phase=1, pending=1, expected=1)
    incomplete = Barrier(phase=0, pending=0, expected=1, tx_count=case.bytes)
    for cta, word in enumerate(words):
        expected = complete if case.cta_mask >> cta & 1 else incomplete
        if word != expected:
            return Outcome(note=f"the barrier of CTA {cta} is {word}, not {expected}")
    return Outcome(bytes=case.bytes, memory=np.concatenate([env.smem for env in cluster.sms]))


@cocotb.test()
async def multicast(dut: Any) -> None:
    """Run every case of the job file in order; reset the cluster only after a violated rule."""
    models = PRESETS[os.environ["CONFORMANCE_MODELS"]]
    cluster = await ClusterEnvironment.start(dut, models, logs=[])
    with jobs.Results() as results:
        for case in jobs.given():
            try:
                results.put(await outcome(cluster, case))
            except CheckError as error:
                results.put(Outcome(note=str(error)))
                await cluster.reset(models, logs=[])
