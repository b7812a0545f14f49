"""mbarrier instructions of the recorded programs, in the terms of the unit's operations."""

import enum
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar

from golden.errors import ErrorCode

WORD_BYTES = 8
"""Bytes of a barrier."""


class Error(enum.IntEnum):
    """CUDA error that ended a recorded program."""

    NONE = 0
    ILLEGAL_ADDRESS = 700
    ILLEGAL_INSTRUCTION = 715
    MISALIGNED_ADDRESS = 716
    LAUNCH_FAILURE = 719
    """Fault of a barrier, or a CTA beyond the cluster."""

    @property
    def text(self) -> str:
        """Name in words."""
        return self.name.lower().replace("_", " ")


class StepResult(Protocol):
    """Result of a step on a target."""

    @property
    def error(self) -> ErrorCode | None:
        """Error that ended the program there, if any."""


R = TypeVar("R", bound=StepResult, contravariant=True)


class RecordedStep(Protocol[R]):
    """Step of a recorded program."""

    @property
    def index(self) -> int:
        """Number of the step in its program."""

    @property
    def name(self) -> str:
        """Instruction."""

    @property
    def faults(self) -> bool:
        """True if the silicon's program ended there."""

    def difference(self, result: R) -> str | None:
        """Return how a result differs from the silicon's, or None."""


def steps_difference(
    kind: str,
    steps: Iterable[RecordedStep[R]],
    results: Iterable[R],
    error: Error,
    codes: Mapping[Error, Container[ErrorCode]],
) -> str | None:
    """Compare the results of a program's steps with the silicon's; return the first difference.

    Parameters
    ----------
    kind : str
        Name of a step in messages, "step" for example.
    steps : iterable of RecordedStep
        All steps of the program.
    results : iterable of StepResult
        Results on a target, up to the first one with an error.
    error : Error
        Error that ended the program on silicon.
    codes : mapping of Error to container of ErrorCode
        Errors of a target that an error of the silicon stands for.
    """
    answers = iter(results)
    for step in steps:
        about = f"{kind} {step.index}, {step.name}"
        result = next(answers, None)
        if result is None:
            return f"{about}: no result"
        if step.faults:
            return fault_difference(about, error, codes, result.error)
        if result.error is not None:
            return f"{about}: silicon finished it, got {result.error.name}"
        if difference := step.difference(result):
            return f"{about}: {difference}"
    return f"silicon: {error.text}, got no error" if error else None


def fault_difference(
    about: str, error: Error, codes: Mapping[Error, Container[ErrorCode]], got: ErrorCode | None
) -> str | None:
    """Compare the fault of a step with the silicon's; return the difference, or None.

    Parameters
    ----------
    about : str
        Name of the step.
    error : Error
        Error of the silicon.
    codes : mapping of Error to container of ErrorCode
        Errors of a target that an error of the silicon stands for.
    got : ErrorCode or None
        Error of the target.
    """
    if got is not None and got in codes.get(error, ()):
        return None
    return f"{about}: silicon: {error.text}, got {got.name if got is not None else 'no error'}"


@dataclass(frozen=True)
class BarrierInstruction:
    """An mbarrier instruction of PTX.

    Parameters
    ----------
    op : str
        Operation, by its name in ``hw.layouts.barriers.BarrierOp``. Two operations are none of the
        unit: NOP, which leaves the word, and SET_WORD, an ordinary store.
    counts_one : bool
        The instruction has no count: each lane arrives once.
    remote : bool
        The address is one of ``.shared::cluster``. Such an instruction returns no state.
    """

    op: str
    counts_one: bool = False
    remote: bool = False

    @property
    def returns_state(self) -> bool:
        """True if the instruction returns a state, or a number of arrivals."""
        return self.op == "PENDING_COUNT" or (self.op.startswith("ARRIVE") and not self.remote)

    @property
    def is_test(self) -> bool:
        """True for tests and waits, which return a predicate."""
        return self.op.startswith(("TEST_WAIT", "TRY_WAIT"))

    @property
    def by_parity(self) -> bool:
        """True if the count of a test is the parity of the phase."""
        return self.op.endswith("PARITY")


BARRIER_INSTRUCTIONS = {
    # cp.async.mbarrier.arrive raises the pending arrivals by one, and then arrives once.
    "NOP": BarrierInstruction("NOP"),
    "CP_ARRIVE": BarrierInstruction("NOP"),
    "CP_ARRIVE_NOINC": BarrierInstruction("ARRIVE", counts_one=True),
    "SETWORD": BarrierInstruction("SET_WORD"),
    "INIT": BarrierInstruction("INIT"),
    "INVAL": BarrierInstruction("INVAL"),
    "ARRIVE": BarrierInstruction("ARRIVE", counts_one=True),
    "ARRIVE_N": BarrierInstruction("ARRIVE"),
    "ARRIVE_NC": BarrierInstruction("ARRIVE_NO_COMPLETE"),
    "DROP": BarrierInstruction("ARRIVE_DROP", counts_one=True),
    "DROP_N": BarrierInstruction("ARRIVE_DROP"),
    "DROP_NC": BarrierInstruction("ARRIVE_DROP_NO_COMPLETE"),
    "EXPECT": BarrierInstruction("EXPECT_TX"),
    "ARR_EXPECT": BarrierInstruction("ARRIVE_EXPECT_TX"),
    "DROP_EXPECT": BarrierInstruction("ARRIVE_DROP_EXPECT_TX"),
    "COMPLETE": BarrierInstruction("COMPLETE_TX", remote=True),
    "COMPLETE_CTA": BarrierInstruction("COMPLETE_TX"),
    "TEST": BarrierInstruction("TEST_WAIT"),
    "TEST_P": BarrierInstruction("TEST_WAIT_PARITY"),
    "TRY": BarrierInstruction("TRY_WAIT"),
    "TRY_P": BarrierInstruction("TRY_WAIT_PARITY"),
    "PENDING": BarrierInstruction("PENDING_COUNT"),
    "EXPECT_CL": BarrierInstruction("EXPECT_TX", remote=True),
    "R_ARRIVE": BarrierInstruction("ARRIVE", counts_one=True, remote=True),
    "R_ARRIVE_N": BarrierInstruction("ARRIVE", remote=True),
    "R_ARR_EXPECT": BarrierInstruction("ARRIVE_EXPECT_TX", remote=True),
    "R_DROP": BarrierInstruction("ARRIVE_DROP", counts_one=True, remote=True),
    "R_DROP_N": BarrierInstruction("ARRIVE_DROP", remote=True),
    "R_DROP_EXPECT": BarrierInstruction("ARRIVE_DROP_EXPECT_TX", remote=True),
}
"""Instructions by their name in ``op_names``; the waits have a time limit of 0."""


@dataclass(frozen=True)
class LaneGroup:
    """Lanes of one instruction that the silicon merges to one update of a barrier.

    Parameters
    ----------
    barrier : int
        Number of the barrier.
    lanes, counts : tuple of int
        Lanes, ascending, and the operand of each: arrivals, bytes, or the parity of a test.
    """

    barrier: int
    lanes: tuple[int, ...]
    counts: tuple[int, ...]


@cache
def active_lanes(mask: int) -> tuple[int, ...]:
    """Return the lanes of a mask, ascending."""
    return tuple(lane for lane in range(mask.bit_length()) if mask >> lane & 1)


def merged(
    instruction: BarrierInstruction,
    lanes: Sequence[int],
    barriers: Sequence[int],
    counts: Sequence[int],
) -> list[LaneGroup]:
    """Return the updates that an instruction of a warp makes, in the order of their lowest lanes.

    Lanes with one barrier are one update. Those of a ``noComplete`` instruction also need the same
    count.

    Parameters
    ----------
    instruction : BarrierInstruction
        The instruction.
    lanes, barriers, counts : sequence of int
        Active lanes, ascending, and the barrier and the operand of each.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    by_count = instruction.op.endswith("NO_COMPLETE")
    for n, barrier in enumerate(barriers):
        groups.setdefault((barrier, counts[n] if by_count else 0), []).append(n)
    return [
        LaneGroup(barrier, tuple(lanes[n] for n in members), tuple(counts[n] for n in members))
        for (barrier, _), members in groups.items()
    ]
