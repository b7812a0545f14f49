"""Kinds of operations on mbarriers: what they find, and what they do."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from golden.arch import EVERY_FEATURE, Arch
from golden.errors import TmaError
from golden.mbarrier import Barrier, Fault, Op, update
from sim_tb.coverage.kinds import Kind


class Operation(StrEnum):
    """Operation that counts arrivals or bytes, in the order of ``golden.mbarrier.Op``."""

    ARRIVE = "arrive"
    ARRIVE_NO_COMPLETE = "arrive_no_complete"
    ARRIVE_EXPECT_TX = "arrive_expect_tx"
    ARRIVE_DROP = "arrive_drop"
    ARRIVE_DROP_NO_COMPLETE = "arrive_drop_no_complete"
    ARRIVE_DROP_EXPECT_TX = "arrive_drop_expect_tx"
    EXPECT_TX = "expect_tx"
    COMPLETE_TX = "complete_tx"

    @property
    def arrives(self) -> bool:
        """True for arrivals."""
        return self not in (Operation.EXPECT_TX, Operation.COMPLETE_TX)

    @property
    def expects(self) -> bool:
        """True if the count is one of bytes that are expected."""
        return self.value.endswith("expect_tx")


class Port(StrEnum):
    """Port of the operation: that of the threads of the SM, or that of the unit and other CTAs."""

    COMMAND = "command"
    UPDATE = "update"


class Phase(StrEnum):
    """Parity of the phase."""

    EVEN = "even"
    ODD = "odd"


class Pending(StrEnum):
    """Arrivals that the phase still needs."""

    NONE = "none"
    LAST = "last"
    SOME = "some"


class Bytes(StrEnum):
    """Bytes that the phase still needs; ``EARLY``: more were received than are expected."""

    NONE = "none"
    TO_COME = "to_come"
    EARLY = "early"


class Outcome(StrEnum):
    """Outcome of the operation: it counts, it also completes the phase, or it is a fault."""

    COUNTS = "counts"
    COMPLETES = "completes"
    LOCKED = "locked"
    OVER_ARRIVAL = "over_arrival"
    TX_RANGE = "tx_range"
    COUNT = "count"


@dataclass(frozen=True)
class BarrierKind(Kind):
    """The kind of an operation on a barrier of layout v0."""

    operation: Operation
    port: Port
    phase: Phase
    pending: Pending
    bytes: Bytes
    outcome: Outcome

    noun: ClassVar[str] = "barrier operations"
    dimensions: ClassVar[dict[str, Any]] = {
        "operation": Operation,
        "port": Port,
        "phase": Phase,
        "pending": Pending,
        "bytes": Bytes,
        "outcome": Outcome,
    }

    @classmethod
    def of(cls, word: int, op: Op, count: int, lanes: int, port: str) -> Self:
        """Return the kind of an operation that finds ``word``; see ``golden.mbarrier.update``."""
        barrier = Barrier.decode(word)
        try:
            after = Barrier.decode(update(word, op, count, lanes=lanes, remote=port == "update"))
            completes = after.phase != barrier.phase
            outcome = Outcome.COMPLETES if completes else Outcome.COUNTS
        except TmaError as error:
            outcome = Outcome[Fault(error.dim).name]
        return cls(
            Operation[op.name],
            Port(port),
            list(Phase)[barrier.phase],
            list(Pending)[min(barrier.pending, 2)],
            list(Bytes)[(barrier.tx_count > 0) + 2 * (barrier.tx_count < 0)],
            outcome,
        )

    def impossible(self, _arch: Arch = EVERY_FEATURE, /) -> str:
        """Return why no operation is of this kind; "" if some is."""
        arrives, expects = self.operation.arrives, self.operation.expects
        is_empty = self.pending is Pending.NONE
        has_surplus = arrives and expects and is_empty
        match self.outcome:
            case Outcome.LOCKED if self.port is Port.UPDATE:
                return "an update takes no notice of the lock"
            case Outcome.OVER_ARRIVAL if not arrives:
                return "the operation has no arrivals"
            case Outcome.COUNTS | Outcome.COMPLETES | Outcome.TX_RANGE if has_surplus:
                return "an arrival with bytes is one arrival at least, and none is pending"
            case Outcome.TX_RANGE if self.bytes is not self._overflowing:
                return "one operation cannot bring the bytes out of their range"
            case Outcome.COMPLETES:
                return self._unfinished(arrives, is_empty)
            case Outcome.COUNTS if arrives and is_empty and self.bytes is Bytes.NONE:
                return "nothing is pending, and no arrival changes that: the phase completes"
        return ""

    @property
    def _overflowing(self) -> Bytes | None:
        """Bytes from which the operation can leave their range."""
        if self.operation.expects:
            return Bytes.TO_COME
        return Bytes.EARLY if self.operation is Operation.COMPLETE_TX else None

    def _unfinished(self, arrives: bool, is_empty: bool) -> str:
        """Return why something is pending after the operation; "" if nothing may be."""
        if not arrives and not is_empty:
            return "arrivals stay pending"
        finishes = {Bytes.NONE}
        if self.operation.expects:
            finishes.add(Bytes.EARLY)
        elif self.operation is Operation.COMPLETE_TX:
            finishes.add(Bytes.TO_COME)
        return "" if self.bytes in finishes else "bytes stay pending, or early"
