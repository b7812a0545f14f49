"""Runs recorded programs of mbarrier operations through the golden model."""

from collections.abc import Iterator

from golden import TmaError, mbarrier
from golden.errors import ErrorCode
from sim_tb.conformance.barriers import BARRIERS, LANES, BarrierProgram, Operation, Result
from sim_tb.conformance.instructions import WORD_BYTES, LaneGroup


class BarrierMachine:
    """Eight barriers and the slots of a program, as the golden model has them.

    Attributes
    ----------
    words : list of int
        Words of the barriers.
    states : list of int
        States that the lanes got from the last operation.
    predicates : int
        Predicates that they got.
    """

    def __init__(self) -> None:
        self.words = [0] * BARRIERS
        self.states = [0] * LANES
        self.predicates = 0
        self._slots: dict[int, int] = {}

    def execute(self, operation: Operation) -> None:
        """Execute an instruction.

        Raises
        ------
        TmaError
            MBAR_FAULT; MBAR_ALIGN or SMEM_RANGE, if ``misalign`` makes the address none of a
            barrier.
        """
        self.states, self.predicates = [0] * LANES, 0
        if operation.misalign:
            aligned = operation.misalign % WORD_BYTES == 0
            code = ErrorCode.SMEM_RANGE if aligned else ErrorCode.MBAR_ALIGN
            raise TmaError(code, "misalign", operation.misalign, "must be 0")
        state = operation.value
        if operation.source is not None:
            state = self._slots.get(operation.source, 0)
        for group in operation.groups:
            self._execute(operation, group, state)
        if operation.save is not None:
            self._slots[operation.save] = self.states[operation.lowest_lane]

    def _execute(self, operation: Operation, group: LaneGroup, state: int) -> None:
        """Execute the part of an instruction that is one update."""
        instruction, barrier, counts = operation.instruction, group.barrier, group.counts
        word = self.words[barrier]
        match instruction.op:
            case "NOP" | "INVAL":
                return
            case "INIT":
                self.words[barrier] = mbarrier.init(counts[-1])
                return
            case "SET_WORD":
                self.words[barrier] = operation.value
                return
            case "PENDING_COUNT":
                self._return(group, [mbarrier.pending_count(state)] * len(counts))
                return
        if instruction.is_test:
            for lane, count in zip(group.lanes, counts, strict=True):
                parity = count if instruction.by_parity else mbarrier.parity_of(state)
                self.predicates |= mbarrier.is_complete(word, parity) << lane
            return
        op = mbarrier.Op[instruction.op]
        after = mbarrier.update(word, op, sum(counts), lanes=len(counts))
        self.words[barrier] = after
        if instruction.returns_state:
            merged = sum(1 << lane for lane in group.lanes) if op.no_complete else 0
            earlier = [sum(counts[:n]) if op.no_complete else 0 for n in range(len(counts))]
            self._return(
                group, [mbarrier.returned_state(word, merged=merged, earlier=n) for n in earlier]
            )

    def _return(self, group: LaneGroup, states: list[int]) -> None:
        for lane, state in zip(group.lanes, states, strict=True):
            self.states[lane] = state


def outcome(program: BarrierProgram) -> Iterator[Result]:
    """Yield the results of each operation of a program, up to the first one that failed."""
    machine = BarrierMachine()
    for operation in program.operations:
        error = None
        try:
            machine.execute(operation)
        except TmaError as caught:
            error = caught.code
        yield Result(list(machine.words), machine.states, machine.predicates, error)
        if error is not None:
            return
