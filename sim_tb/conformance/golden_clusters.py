"""Runs recorded programs on clusters through the golden model."""

import warnings

import numpy as np
from numpy.typing import NDArray

from golden import Cluster, TmaError, TmaWarning, mbarrier
from golden.memory import Bytes
from sim_tb.conformance.barriers import BARRIERS
from sim_tb.conformance.clusters import (
    BARRIER_ADDRESSES,
    DATA_BYTES,
    WINDOW_BYTES,
    ClusterProgram,
    Outcome,
    Progress,
    Step,
)


class ProgramMemory:
    """Global memory of a program: the bytes before it, and those that it wrote."""

    def __init__(self, program: ClusterProgram) -> None:
        self._program = program
        self._written: dict[int, int] = {}

    def read(self, addresses: NDArray[np.uint64]) -> Bytes:
        """Return the bytes at ``addresses``, in their shape."""
        data = self._program.gmem_before(addresses)
        if self._written:
            for n, address in enumerate(addresses.ravel().tolist()):
                if address in self._written:
                    data.reshape(-1)[n] = self._written[address]
        return data

    def write(self, addresses: NDArray[np.uint64], data: Bytes) -> None:
        """Write ``data`` at ``addresses``, of the same shape."""
        self._written.update(zip(addresses.ravel().tolist(), data.ravel().tolist(), strict=True))


class ClusterMachine:
    """Golden cluster in the state before a program.

    Attributes
    ----------
    cluster : Cluster
        Its shared memories have ``WINDOW_BYTES`` bytes.
    gmem : ProgramMemory
    state : int
        State that the last step returned.
    predicate : bool
        Predicate that it returned.
    """

    def __init__(self, program: ClusterProgram) -> None:
        self.gmem = ProgramMemory(program)
        self.cluster = Cluster(self.gmem, program.ctas, smem_bytes=WINDOW_BYTES)
        for cta, smem in enumerate(self.cluster.smem):
            smem[:DATA_BYTES] = program.smem_before(cta)
        self.state = 0
        self.predicate = False

    def words(self) -> NDArray[np.uint64]:
        """Return the words of the barriers, of shape (CTAs, 8)."""
        first = BARRIER_ADDRESSES.start
        return np.stack([smem[first:].view(np.uint64)[:BARRIERS] for smem in self.cluster.smem])

    def set_words(self, words: NDArray[np.uint64]) -> None:
        """Set the words of the barriers, of shape (CTAs, 8)."""
        for smem, row in zip(self.cluster.smem, words, strict=True):
            smem[BARRIER_ADDRESSES.start :].view(np.uint64)[:BARRIERS] = row

    def execute(self, step: Step) -> None:
        """Execute a step.

        Raises
        ------
        TmaError
            If the step is refused or faults.
        """
        self.state, self.predicate = 0, False
        cluster = self.cluster
        if step.request is not None:
            cluster.issue(step.request, cta=step.issuer)
        if step.remote_stores is not None:
            lanes, barrier = step.remote_stores.lanes, step.address
            reduction, cta = step.remote_stores.reduction, step.remote_stores.cta
            if reduction is None:
                cluster.st_async(lanes, barrier, cta=cta)
            else:
                values = [(address, int.from_bytes(data, "little")) for address, data in lanes]
                cluster.red_async(values, *reduction, barrier, cta=cta)
        if step.instruction is not None:
            self._execute_instruction(step)

    def _execute_instruction(self, step: Step) -> None:
        cluster, instruction, address, cta = self.cluster, step.instruction, step.address, step.cta
        assert instruction is not None
        match instruction.op:
            case "NOP":
                return
            case "INIT":
                cluster.mbarrier_init(address, step.count, cta=cta)
                return
            case "INVAL":
                cluster.mbarrier_inval(address, cta=cta)
                return
            case "SET_WORD":
                cluster.word(address, cta)  # refuses an address without a barrier
                cluster.smem[cta][address : address + 8].view(np.uint64)[0] = step.value
                return
            case "PENDING_COUNT":
                self.state = mbarrier.pending_count(step.value)
                return
        if instruction.is_test:
            parity = step.count if instruction.by_parity else mbarrier.parity_of(step.value)
            self.predicate = cluster.mbarrier_test_wait_parity(address, parity, cta=cta)
            return
        op = mbarrier.Op[instruction.op]
        state = cluster.mbarrier_update(op, address, step.count, cta=cta, issuer=step.issuer)
        self.state = state if instruction.returns_state else 0


def outcome(program: ClusterProgram) -> Outcome:
    """Run a program; return its outcome."""
    machine = ClusterMachine(program)
    progress = Progress(machine)
    for step in program.steps:
        error = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TmaWarning)
                machine.execute(step)
        except TmaError as caught:
            error = None if step.is_silent(caught.code) else caught.code
        if not progress.end(step, error):
            break
    smem = [memory[:DATA_BYTES] for memory in machine.cluster.smem]
    expected = program.gmem_after()
    gmem = None
    if expected is not None:
        first = np.uint64(program.gmem_address)
        gmem = machine.gmem.read(first + np.arange(expected.size, dtype=np.uint64))
    return Outcome(progress.results, smem, gmem, progress.parts)
