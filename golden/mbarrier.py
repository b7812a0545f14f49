"""mbarrier objects: pure functions from word to word.

The layout of the 64 bits is that of the compiler's init sequence for sm_90a where it shows them
(expected and pending arrivals) and that of reports for the rest (tx-count, lock, phase). Of layout
v1 (PTX 9.3) it is known that 9 bits hold the expected arrivals, and that there is a report byte and
a conditional phase; where they are and what they do is this project's choice.
"""

import enum
from dataclasses import dataclass, replace

from golden.errors import ErrorCode, TmaError

MAX_COUNT = (1 << 20) - 1
"""Most arrivals of a phase, and most bytes that may be outstanding either way (PTX ISA)."""

MAX_COUNT_V1 = (1 << 9) - 1
"""Most arrivals of a phase in layout v1."""

_ARRIVALS = 1 << 20
_ARRIVALS_V1 = 1 << 9
_LOCK = 1 << 42


class Fault(enum.IntEnum):
    """Why a barrier operation was not done: ``dim`` of a `TmaError` with MBAR_FAULT (choice)."""

    LOCKED = 1
    UNINITIALISED = 2
    OVER_ARRIVAL = 3
    TX_RANGE = 4
    COUNT = 5
    COMPLETES = 6
    OPERATION = 7


@dataclass(frozen=True)
class Report:
    """What layout v1 has beside the rest (choice).

    ``conditional_phase`` flips with the phase, if the report of that phase is 0. ``stale``: none
    has come in this phase, ``value`` is that of the phase before.
    """

    value: int = 0
    conditional_phase: int = 0
    stale: int = 0


@dataclass(frozen=True)
class Barrier:
    """A barrier's fields. ``tx_count``: bytes still to come; negative if they came early.

    ``report``: of layout v1, otherwise None.
    """

    phase: int
    pending: int
    expected: int
    tx_count: int = 0
    lock: int = 0
    report: Report | None = None

    @classmethod
    def decode(cls, word: int) -> "Barrier":
        """Take the fields out of the 64-bit word."""
        tx = word >> 21 & (1 << 21) - 1
        report = None
        expected = -(word >> 1) % _ARRIVALS
        if word & 1:
            report = Report(word >> 10 & 0xFF, _conditional_phase(word), word >> 19 & 1)
            expected = -(word >> 1) % _ARRIVALS_V1
        return cls(
            phase=word >> 63 & 1,
            pending=-(word >> 43) % _ARRIVALS,
            expected=expected,
            tx_count=tx - (tx >> 20 << 21),
            lock=word >> 42 & 1,
            report=report,
        )

    def encode(self) -> int:
        """The 64-bit word."""
        if self.report is None:
            low = (-self.expected % _ARRIVALS) << 1
        else:
            low = (
                1
                | (-self.expected % _ARRIVALS_V1) << 1
                | self.report.value << 10
                | self.report.conditional_phase << 18
                | self.report.stale << 19
            )
        return (
            low
            | (self.tx_count % (1 << 21)) << 21
            | self.lock << 42
            | (-self.pending % _ARRIVALS) << 43
            | self.phase << 63
        )

    def _checked(self) -> "Barrier":
        """Flip the phase if nothing is pending: one step with the operation."""
        if self.pending or self.tx_count:
            return self
        report = self.report
        if report is not None:
            value = 0 if report.stale else report.value
            report = Report(value, report.conditional_phase ^ (value == 0), stale=1)
        return replace(self, phase=1 - self.phase, pending=self.expected, report=report)


def _conditional_phase(word: int) -> int:
    return word >> 18 & 1


def words(word: int) -> tuple[int, int]:
    """The low and the high 32 bits, as two registers hold them.

    Examples
    --------
    >>> [hex(half) for half in words(init(1))]
    ['0x1ffffe', '0x7ffff800']
    """
    return word & 0xFFFFFFFF, word >> 32


def _fault(fault: Fault, parameter: str, value: int, limit: str, word: int) -> TmaError:
    """A fault; its value is the word afterwards."""
    code = ErrorCode.MBAR_FAULT
    return TmaError(code, parameter, word, limit, shown=str(value), dim=fault)


def init(count: int, *, v1: bool = False) -> int:
    """A fresh barrier that expects ``count`` arrivals: 1 to 2**20 - 1, in layout v1 to 511.

    Raises
    ------
    TmaError
        MBAR_FAULT, if it cannot expect so many.
    """
    most = MAX_COUNT_V1 if v1 else MAX_COUNT
    if not 1 <= count <= most:
        raise _fault(Fault.COUNT, "count", count, f"must be from 1 to {most}", count)
    return Barrier(0, count, count, report=Report() if v1 else None).encode()


def inval() -> int:
    """What an invalidated barrier leaves in memory: here zero; programs may not rely on it.

    Zero is no barrier (choice): operations on it are faults.
    """
    return 0


def require_layout(word: int, *, locks: bool = True) -> None:
    """Refuse a word that a unit without layout v1 takes for no barrier: one with bit 0 set.

    With ``locks`` the fault locks it.

    Raises
    ------
    TmaError
        MBAR_FAULT.
    """
    if word & 1:
        _usable(word, locks=locks)
        after = word | _LOCK if locks else word
        raise _fault(Fault.UNINITIALISED, "word[0]", 1, "must be 0 in layout v0", after)


def layout_v1_is_missing() -> TmaError:
    """The fault of a unit without layout v1 for an operation that there is for it only."""
    return _fault(Fault.OPERATION, "layout", 1, "must be v0: the unit has no other", 0)


def _usable(word: int, *, locks: bool) -> Barrier:
    """The barrier, unless an operation is a fault whatever it is."""
    barrier = Barrier.decode(word)
    if barrier.lock:
        limit = "must be 0: an earlier fault has locked the barrier"
        raise _fault(Fault.LOCKED, "lock", 1, limit, word)
    if word == 0:
        limit = "must be what init has made: there is no barrier"
        raise _fault(Fault.UNINITIALISED, "word", 0, limit, _LOCK if locks else 0)
    return barrier


def _update(word: int, *, arrivals: int = 0, tx: int = 0, drops: int = 0) -> int:
    """Arrive and count bytes. A fault locks the barrier and changes nothing else."""
    barrier = _usable(word, locks=True)
    tx_count = barrier.tx_count + tx
    for name, value, most in (
        ("arrivals", arrivals, barrier.pending),
        ("drops", drops, barrier.expected),
    ):
        if not 0 <= value <= most:
            limit = f"must be from 0 to {most}: {most} are left"
            raise _fault(Fault.OVER_ARRIVAL, name, value, limit, word | _LOCK)
    if abs(tx_count) > MAX_COUNT:
        limit = f"must be from {-MAX_COUNT} to {MAX_COUNT}"
        raise _fault(Fault.TX_RANGE, "tx-count", tx_count, limit, word | _LOCK)
    after = replace(
        barrier,
        pending=barrier.pending - arrivals,
        expected=barrier.expected - drops,
        tx_count=tx_count,
    )
    return after._checked().encode()


def _incomplete(word: int, after: int, count: int) -> int:
    """``after``, unless the phase of ``word`` is complete in it."""
    if Barrier.decode(after).phase != Barrier.decode(word).phase:
        limit = "must leave the phase incomplete"
        raise _fault(Fault.COMPLETES, "arrivals", count, limit, word | _LOCK)
    return after


def arrive(word: int, count: int = 1) -> int:
    """``count`` arrivals, then the check (PTX ISA).

    The state that the instruction returns is ``word``, the barrier before.

    Parameters
    ----------
    word : int
        The barrier: 64 bits.
    count : int
        Arrivals, as many as are pending at most.

    Returns
    -------
    int
        The barrier afterwards.

    Raises
    ------
    TmaError
        MBAR_FAULT; its ``value`` is the barrier afterwards, locked (report).
    """
    return _update(word, arrivals=count)


def arrive_no_complete(word: int, count: int = 1) -> int:
    """``count`` arrivals that do not complete the phase.

    Raises
    ------
    TmaError
        MBAR_FAULT if they would, which the PTX ISA leaves undefined (choice), or as `arrive`.
    """
    return _incomplete(word, arrive(word, count), count)


def arrive_expect_tx(word: int, tx_bytes: int) -> int:
    """``tx_bytes`` more to come and one arrival, then the check: a single step (PTX ISA)."""
    return _update(word, arrivals=1, tx=tx_bytes)


def arrive_drop(word: int, count: int = 1) -> int:
    """``count`` arrivals that later phases do not expect, then the check (PTX ISA)."""
    return _update(word, arrivals=count, drops=count)


def arrive_drop_expect_tx(word: int, tx_bytes: int) -> int:
    """``tx_bytes`` more to come and one dropped arrival, then the check (PTX ISA)."""
    return _update(word, arrivals=1, drops=1, tx=tx_bytes)


def arrive_drop_no_complete(word: int, count: int = 1) -> int:
    """``count`` dropped arrivals that do not complete the phase.

    Raises
    ------
    TmaError
        MBAR_FAULT, as `arrive_no_complete`.
    """
    return _incomplete(word, arrive_drop(word, count), count)


def expect_tx(word: int, tx_bytes: int) -> int:
    """``tx_bytes`` more to come, then the check (that there is one: choice)."""
    return _update(word, tx=tx_bytes)


def complete_tx(word: int, tx_bytes: int) -> int:
    """``tx_bytes`` came, then the check; before they were expected, too (PTX ISA)."""
    return _update(word, tx=-tx_bytes)


def _report(word: int) -> Report:
    """What layout v1 has beside the rest; a fault locks nothing."""
    report = _usable(word, locks=False).report
    if report is None:
        raise _fault(Fault.OPERATION, "layout", 0, "must be v1", word)
    return report


def report(word: int, value: int) -> int:
    """Add to the report of the phase, bit by bit (choice; layout v1).

    Raises
    ------
    TmaError
        MBAR_FAULT: the barrier is of another layout, locked or none; its ``value`` is the word.
    """
    before = _report(word)
    old = 0 if before.stale else before.value
    after = replace(before, value=old | value & 0xFF, stale=0)
    return replace(Barrier.decode(word), report=after).encode()


def test_wait(word: int, state: int) -> bool:
    """Whether the phase of ``state``, a word of this or the preceding phase, is complete.

    ``try_wait`` answers the same; in hardware it may wait for a while first.
    """
    return test_wait_parity(word, Barrier.decode(state).phase)


def test_wait_parity(word: int, parity: int) -> bool:
    """Whether the phase of this parity is complete: a fresh barrier says so of parity 1.

    Raises
    ------
    TmaError
        MBAR_FAULT: the barrier is locked, or none; its ``value`` is the word, which stays.
    """
    return _usable(word, locks=False).phase != parity


def test_conditional_wait(word: int, state: int) -> bool:
    """As `test_wait` of the conditional phases (choice; layout v1)."""
    return test_conditional_wait_parity(word, _conditional_phase(state))


def test_conditional_wait_parity(word: int, parity: int) -> bool:
    """As `test_wait_parity` of the conditional phase; a fault in layout v0 (choice)."""
    return _report(word).conditional_phase != parity


def pending_count(state: int) -> int:
    """Arrivals pending in ``state``."""
    return Barrier.decode(state).pending
