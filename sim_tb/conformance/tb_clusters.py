"""cocotb module: runs recorded programs on clusters through a cluster of units.

``sim_tb.conformance.rtl`` starts it. The CTAs of a program are the first ones of the cluster; the
others do not run. The environment variable ``CONFORMANCE_MODELS`` names a preset of
``sim_tb.testbench.models``; each SM has these models.
"""

import os
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.errors import ErrorCode
from golden.memory import Bytes
from golden.request import (
    ApplyPriority,
    BulkApplyPriority,
    BulkStore,
    Request,
    Store,
    TensorRequest,
    as_descriptor,
)
from sim_tb.conformance.barriers import BARRIERS
from sim_tb.conformance.clusters import (
    BARRIER_ADDRESSES,
    DATA_BYTES,
    ClusterProgram,
    Outcome,
    Progress,
    RemoteStores,
    Step,
)
from sim_tb.conformance.instructions import WORD_BYTES
from sim_tb.simulator import jobs
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.models import PRESETS

QUIET = 64
"""Clocks without a transfer after which a step is finished: the longest way through the unit."""

MEMORY_BYTES = 1 << 24
"""Global memory from address 0 on of programs whose memory is not the hash."""


class Memory:
    """Global memory of the programs.

    Parameters
    ----------
    cluster : ClusterEnvironment
        The cluster.
    """

    def __init__(self, cluster: ClusterEnvironment) -> None:
        self._gmem = cluster.gmem
        self._before: Bytes | None = None
        self._bytes: Bytes | None = None
        self._base = 0

    def prepare(self, program: ClusterProgram) -> None:
        """Fill global memory for a program. Of hashed memory, it can write what was recorded."""
        self._gmem.background("hash")
        self._base = 0
        if program.has_hashed_memory:
            recorded = program.gmem_after()
            size = 0 if recorded is None else recorded.size
            self._base = program.gmem_address if size else 0
            self._bytes = _bytes_before(program, self._base, size)
        else:
            if self._before is None:
                self._before = _bytes_before(program, 0, MEMORY_BYTES)
            self._bytes = self._before.copy() if _writes(program) else self._before
        self._gmem.place(self._base, self._bytes)

    def finish(self, program: ClusterProgram) -> Bytes | None:
        """Return the bytes that were recorded after the program, and remove the memory."""
        recorded = program.gmem_after()
        self._gmem.remove(self._base)
        if recorded is None:
            return None
        assert self._bytes is not None
        first = program.gmem_address - self._base
        return self._bytes[first : first + recorded.size].copy()


def _bytes_before(program: ClusterProgram, base: int, size: int) -> Bytes:
    return program.gmem_before(np.uint64(base) + np.arange(size, dtype=np.uint64))


def _writes(program: ClusterProgram) -> bool:
    return any(isinstance(step.request, Store | BulkStore) for step in program.steps)


class Machine:
    """A program in the simulator.

    Parameters
    ----------
    cluster : ClusterEnvironment
        The cluster.
    program : ClusterProgram
        The program.
    """

    def __init__(self, cluster: ClusterEnvironment, program: ClusterProgram) -> None:
        self.cluster = cluster
        self.sms = cluster.sms[: program.ctas]
        for cta, env in enumerate(self.sms):
            env.smem[:DATA_BYTES] = program.smem_before(cta)
            env.smem[DATA_BYTES:] = 0
        self.state = 0
        self.predicate = False

    def words(self) -> NDArray[np.uint64]:
        """Return the words of the barriers, of shape (CTAs, 8)."""
        return np.stack([self._barriers(env).copy() for env in self.sms])

    def set_words(self, words: NDArray[np.uint64]) -> None:
        """Set the words of the barriers, of shape (CTAs, 8)."""
        for env, row in zip(self.sms, words, strict=True):
            self._barriers(env)[:] = row

    async def execute(self, step: Step) -> ErrorCode | None:
        """Execute a step; return the first error that it caused and that silicon reports."""
        self.state, self.predicate = 0, False
        errors: list[ErrorCode] = []
        if step.instruction is not None:
            errors += await self._execute_instruction(step)
        if step.request is not None:
            await self._issue(self.cluster.sms[step.issuer], step.request)
        if step.remote_stores is not None:
            await self._store(step.issuer, step.remote_stores, step.address)
        errors += [
            ErrorCode(record.code) for env in self.cluster.sms for record in env.errors.take_all()
        ]
        return next((error for error in errors if not step.is_silent(error)), None)

    @staticmethod
    def _barriers(env: Environment) -> NDArray[np.uint64]:
        return env.smem[BARRIER_ADDRESSES.start :].view(np.uint64)[:BARRIERS]

    async def _issue(self, env: Environment, request: Request) -> None:
        """Issue a request, and wait for its end."""
        assert not isinstance(request, ApplyPriority | BulkApplyPriority), "Hopper has none"
        tensor_map = 0
        if isinstance(request, TensorRequest):
            words = as_descriptor(request.tensor_map).words
            tensor_map = env.descriptors.place(np.array(words, np.uint32))
        env.requests.submit(request, tensor_map)
        await self.cluster.idle(QUIET)
        if tensor_map:
            self.cluster.gmem.remove(tensor_map)

    async def _store(self, issuer: int, stores: RemoteStores, mbarrier: int) -> None:
        """Issue the stores of all lanes, and wait for their end."""
        remote = self.cluster.sms[issuer].remote
        for address, data in stores.lanes:
            values = np.frombuffer(data, np.uint8)
            remote.store(stores.cta, address, values, mbarrier, reduction=stores.reduction)
        await self.cluster.idle(QUIET)

    async def _execute_instruction(self, step: Step) -> list[ErrorCode]:
        """Execute an mbarrier instruction; return the errors that its thread sees."""
        instruction = step.instruction
        assert instruction is not None
        if instruction.op == "NOP":
            return []
        # The SM checks the addresses of its barrier instructions.
        env = self.cluster.sms[step.issuer]
        if step.address % WORD_BYTES:
            return [ErrorCode.MBAR_ALIGN]
        if step.address > env.smem.size - WORD_BYTES:
            return [ErrorCode.SMEM_RANGE]
        if step.cta != step.issuer:
            env.remote.send_barrier(step.cta, instruction.op, step.address, step.count)
            await self.cluster.idle(QUIET)
            return []
        if instruction.op == "SET_WORD":
            env.smem[step.address :][:WORD_BYTES].view(np.uint64)[0] = step.value
            return []
        answer = await env.barriers.command(
            instruction.op, step.address, step.count, state=step.value, time_limit=0
        )
        self.predicate = answer.done
        self.state = answer.state if instruction.returns_state else 0
        return [] if answer.fault is None else [ErrorCode.MBAR_FAULT]


async def outcome(cluster: ClusterEnvironment, memory: Memory, program: ClusterProgram) -> Outcome:
    """Run a program; return its outcome."""
    cluster.running = (1 << program.ctas) - 1
    await cluster.sms[0].cycles(4)
    memory.prepare(program)
    machine = Machine(cluster, program)
    progress = Progress(machine)
    for step in program.steps:
        if not progress.end(step, await machine.execute(step)):
            break
    smem = [env.smem[:DATA_BYTES].copy() for env in machine.sms]
    return Outcome(progress.results, smem, memory.finish(program), progress.parts)


@cocotb.test()
async def clusters(dut: Any) -> None:
    """Run every program of the job file in order; reset the cluster only after a violated rule."""
    models = PRESETS[os.environ["CONFORMANCE_MODELS"]]
    cluster = await ClusterEnvironment.start(dut, models, logs=[])
    memory = Memory(cluster)
    with jobs.Results() as results:
        for program in jobs.given():
            try:
                results.put(await outcome(cluster, memory, program))
            except CheckError as error:
                results.put(str(error))
                await cluster.reset(models, logs=[])
                memory = Memory(cluster)
