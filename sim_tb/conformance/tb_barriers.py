"""cocotb module: runs recorded programs of mbarrier operations through the unit.

``sim_tb.conformance.rtl`` starts it. A program has a barrier memory of its own in shared memory, so
that many programs run side by side: their operations of one number go to the unit together. The
environment variable ``CONFORMANCE_MODELS`` names a preset of ``sim_tb.testbench.models``.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.errors import ErrorCode
from golden.mbarrier import returned_state
from sim_tb.conformance.barriers import BARRIERS, LANES, BarrierProgram, Operation, Result
from sim_tb.conformance.instructions import WORD_BYTES, LaneGroup
from sim_tb.simulator import jobs
from sim_tb.testbench.barriers import Command
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import PRESETS
from sim_tb.testbench.results import BarrierResult

BATCH = 512
"""Programs that run side by side."""

PROGRAM_BYTES = BARRIERS * WORD_BYTES


@dataclass(frozen=True)
class Sent:
    """A command of a group of lanes.

    Parameters
    ----------
    group : LaneGroup
        Lanes that the command stands for.
    command : Command
        The command.
    """

    group: LaneGroup
    command: Command


class Machine:
    """One program in the simulator: what the SM does for it around the unit.

    Parameters
    ----------
    program : BarrierProgram
        The program.
    address : int
        Offset of its barriers in shared memory.
    words : ndarray
        The words of its barriers, as the unit sees them.
    """

    def __init__(self, program: BarrierProgram, address: int, words: NDArray[np.uint64]) -> None:
        self.results: list[Result] = []
        self._operations = iter(program.operations)
        self._address = address
        self._words = words
        self._words[:] = 0
        self._slots: dict[int, int] = {}
        self._operation: Operation | None = None
        self._sent: list[Sent] = []

    def begin(self) -> list[Command]:
        """Start the next operation, if there is one; return its commands."""
        self._operation = next(self._operations, None)
        self._sent = []
        if self._operation is not None and not self._is_misaligned(self._operation):
            state = self._operation.value
            if self._operation.source is not None:
                state = self._slots[self._operation.source]
            for group in self._operation.groups:
                self._sent += self._sent_for(self._operation, group, state)
        return [sent.command for sent in self._sent]

    def end(self, answers: Sequence[BarrierResult]) -> bool:
        """Take the answers to the commands; return whether the program goes on."""
        operation = self._operation
        if operation is None:
            return False
        error = ErrorCode.MBAR_ALIGN if self._is_misaligned(operation) else None
        states, predicates = [0] * LANES, 0
        for sent, answer in zip(self._sent, answers, strict=True):
            if answer.fault is not None:
                error = ErrorCode.MBAR_FAULT
            lanes = sent.group.lanes
            if operation.instruction.is_test:
                predicates |= sum(1 << lane for lane in lanes) * answer.done
            elif operation.instruction.returns_state:
                for lane, state in zip(lanes, _states(sent, answer), strict=True):
                    states[lane] = state
        if operation.save is not None:
            self._slots[operation.save] = states[operation.lowest_lane]
        self.results.append(Result(self._words.tolist(), states, predicates, error))
        return error is None

    @staticmethod
    def _is_misaligned(operation: Operation) -> bool:
        """Return whether the SM refuses the address."""
        return operation.misalign % WORD_BYTES != 0

    def _sent_for(self, operation: Operation, group: LaneGroup, state: int) -> list[Sent]:
        """Return the commands for one group of lanes."""
        instruction = operation.instruction
        at = self._address + WORD_BYTES * group.barrier
        match instruction.op:
            case "NOP":
                return []
            case "SET_WORD":
                self._words[group.barrier] = operation.value
                return []
            case "INIT":
                return [Sent(group, Command("INIT", at, group.counts[-1]))]
        if instruction.by_parity:
            return [
                Sent(part, Command(instruction.op, at, part.counts[0])) for part in _parities(group)
            ]
        if instruction.op.endswith("NO_COMPLETE"):
            state = sum(1 << lane for lane in group.lanes)
        count, lanes = sum(group.counts), len(group.lanes)
        return [Sent(group, Command(instruction.op, at, count, lanes, state))]


def _parities(group: LaneGroup) -> list[LaneGroup]:
    """Split lanes that test a word by the parity that they ask for."""
    parts = []
    for parity in (0, 1):
        members = zip(group.lanes, group.counts, strict=True)
        lanes = tuple(lane for lane, count in members if count & 1 == parity)
        if lanes:
            parts.append(LaneGroup(group.barrier, lanes, (parity,) * len(lanes)))
    return parts


def _states(sent: Sent, answer: BarrierResult) -> list[int]:
    """Return the state of each lane. The code of ``noComplete`` adds the arrivals before a lane."""
    if not sent.command.op.endswith("NO_COMPLETE"):
        return [answer.state] * len(sent.group.lanes)
    merged, counts = answer.state & 0xFFFFFFFF, sent.group.counts
    return [
        returned_state(answer.state, merged=merged, earlier=sum(counts[:n]))
        for n in range(len(counts))
    ]


async def run(env: Environment, programs: Sequence[BarrierProgram]) -> list[list[Result]]:
    """Run programs side by side; return the results of each, up to the first that failed."""
    words = env.smem[: PROGRAM_BYTES * len(programs)].view(np.uint64).reshape(-1, BARRIERS)
    machines = [Machine(program, PROGRAM_BYTES * n, words[n]) for n, program in enumerate(programs)]
    running = machines
    while running:
        parts = [machine.begin() for machine in running]
        answers = iter(await env.barriers.execute([command for part in parts for command in part]))
        running = [
            machine
            for machine, part in zip(running, parts, strict=True)
            if machine.end([next(answers) for _ in part])
        ]
    return [machine.results for machine in machines]


@cocotb.test()
async def barriers(dut: Any) -> None:
    """Run every program of the job file."""
    env = await Environment.start(dut, PRESETS[os.environ["CONFORMANCE_MODELS"]], logs=[])
    programs = jobs.given()
    with jobs.Results() as results:
        for first in range(0, len(programs), BATCH):
            for each in await run(env, programs[first : first + BATCH]):
                results.put(each)
