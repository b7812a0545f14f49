"""mbarrier objects: pure functions that take the 64-bit word before an operation.

The compiler's init sequence for sm_90a shows the places of expected and pending arrivals in the
word; reports give the places of tx-count, lock and phase. PTX 9.3 says of layout v1 only that 9
bits hold the expected arrivals, and that it has a report byte and a conditional phase: their places
and their behaviour are this project's choice.
"""

import enum
from dataclasses import dataclass, replace

from golden.errors import ErrorCode, TmaError

MAX_COUNT = (1 << 20) - 1
"""Largest number of arrivals of a phase, and largest magnitude of the tx-count (PTX ISA)."""

MAX_COUNT_V1 = (1 << 9) - 1
"""Largest number of arrivals of a phase in layout v1."""

_ARRIVALS = 1 << 20
_ARRIVALS_V1 = 1 << 9
_LOCK = 1 << 42


class Fault(enum.IntEnum):
    """Cause of a fault: the ``dim`` of a `TmaError` with MBAR_FAULT (choice)."""

    LOCKED = 1
    UNINITIALISED = 2
    OVER_ARRIVAL = 3
    TX_RANGE = 4
    COUNT = 5
    COMPLETES = 6
    OPERATION = 7


@dataclass(frozen=True)
class Report:
    """Fields that only layout v1 has (choice).

    Parameters
    ----------
    value : int
        Report byte.
    conditional_phase : int
        Flips together with the phase if the report of that phase is 0.
    stale : int
        1 if this phase has no report yet; ``value`` is then the report of the previous phase.
    """

    value: int = 0
    conditional_phase: int = 0
    stale: int = 0


@dataclass(frozen=True)
class Barrier:
    """Fields of an mbarrier.

    Parameters
    ----------
    phase : int
        Parity of the current phase.
    pending, expected : int
        Arrivals that the current phase still needs, and arrivals of the next phase.
    tx_count : int
        Bytes that are expected and not received; negative if more were received.
    lock : int
        1 after a fault.
    report : Report or None
        Further fields of layout v1; None in layout v0.
    """

    phase: int
    pending: int
    expected: int
    tx_count: int = 0
    lock: int = 0
    report: Report | None = None

    @classmethod
    def decode(cls, word: int) -> "Barrier":
        """Return the fields of a 64-bit word."""
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
        """Return the 64-bit word."""
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

    def _after_completion(self) -> "Barrier":
        """Return the barrier of the next phase if this phase is complete, otherwise the barrier."""
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
    """Return the low and the high 32 bits, as two registers hold them.

    Examples
    --------
    >>> [hex(half) for half in words(init(1))]
    ['0x1ffffe', '0x7ffff800']
    """
    return word & 0xFFFFFFFF, word >> 32


def _fault(fault: Fault, parameter: str, value: int, limit: str, word: int) -> TmaError:
    """Return the error of a fault; its value is the word after the fault."""
    code = ErrorCode.MBAR_FAULT
    return TmaError(code, parameter, word, limit, shown=str(value), dim=fault)


def init(count: int, *, v1: bool = False) -> int:
    """Return the word of an initialised mbarrier.

    Parameters
    ----------
    count : int
        Arrivals of each phase: 1 to 2**20 - 1, in layout v1 1 to 511.
    v1 : bool
        Layout v1 instead of v0.

    Raises
    ------
    TmaError
        MBAR_FAULT, if ``count`` is out of range.
    """
    most = MAX_COUNT_V1 if v1 else MAX_COUNT
    if not 1 <= count <= most:
        raise _fault(Fault.COUNT, "count", count, f"must be from 1 to {most}", count)
    return Barrier(0, count, count, report=Report() if v1 else None).encode()


def inval() -> int:
    """Return the word after ``mbarrier.inval``: zero, on which programs must not rely.

    Operations on a word of zero are faults (choice).
    """
    return 0


def require_layout(word: int, *, locks: bool = True) -> None:
    """Refuse a word of layout v1, which has bit 0 set, for a unit that has only layout v0.

    ``locks``: the fault locks the mbarrier.

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
    """Return the fault of a unit without layout v1, for an operation that only v1 has."""
    return _fault(Fault.OPERATION, "layout", 1, "must be v0: the unit has no other layout", 0)


def _usable(word: int, *, locks: bool) -> Barrier:
    """Return the fields of an mbarrier; a locked or uninitialised one is a fault."""
    barrier = Barrier.decode(word)
    if barrier.lock:
        limit = "must be 0: an earlier fault has locked the barrier"
        raise _fault(Fault.LOCKED, "lock", 1, limit, word)
    if word == 0:
        limit = "must be the word of an initialised mbarrier: there is no barrier"
        raise _fault(Fault.UNINITIALISED, "word", 0, limit, _LOCK if locks else 0)
    return barrier


def _update(word: int, *, arrivals: int = 0, tx: int = 0, drops: int = 0) -> int:
    """Return the word after arrivals, drops and bytes. A fault locks, and changes nothing else."""
    barrier = _usable(word, locks=True)
    tx_count = barrier.tx_count + tx
    for name, value, most, field in (
        ("arrivals", arrivals, barrier.pending, "pending"),
        ("drops", drops, barrier.expected, "expected"),
    ):
        if not 0 <= value <= most:
            limit = f"must be from 0 to {most}, the {field} arrivals"
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
    return after._after_completion().encode()


def _incomplete(word: int, after: int, count: int) -> int:
    """Return ``after``; it is a fault if the phase of ``word`` is complete there."""
    if Barrier.decode(after).phase != Barrier.decode(word).phase:
        limit = "must leave the phase incomplete"
        raise _fault(Fault.COMPLETES, "arrivals", count, limit, word | _LOCK)
    return after


def arrive(word: int, count: int = 1) -> int:
    """Arrive ``count`` times, and complete the phase if nothing is pending (PTX ISA).

    The state that the PTX instruction returns is ``word``.

    Parameters
    ----------
    word : int
        Word of the mbarrier before the operation.
    count : int
        Number of arrivals, at most the pending ones.

    Returns
    -------
    int
        Word of the mbarrier after the operation.

    Raises
    ------
    TmaError
        MBAR_FAULT; its ``value`` is the word after the fault, locked (report).
    """
    return _update(word, arrivals=count)


def arrive_no_complete(word: int, count: int = 1) -> int:
    """Arrive ``count`` times without completing the phase.

    Raises
    ------
    TmaError
        MBAR_FAULT, as `arrive`, and if the arrivals complete the phase: the PTX ISA leaves this
        undefined (choice).
    """
    return _incomplete(word, arrive(word, count), count)


def arrive_expect_tx(word: int, tx_bytes: int) -> int:
    """Expect ``tx_bytes`` bytes and arrive once, as one operation (PTX ISA)."""
    return _update(word, arrivals=1, tx=tx_bytes)


def arrive_drop(word: int, count: int = 1) -> int:
    """Arrive ``count`` times; later phases expect ``count`` arrivals less (PTX ISA)."""
    return _update(word, arrivals=count, drops=count)


def arrive_drop_expect_tx(word: int, tx_bytes: int) -> int:
    """Expect ``tx_bytes`` bytes and drop one arrival, as one operation (PTX ISA)."""
    return _update(word, arrivals=1, drops=1, tx=tx_bytes)


def arrive_drop_no_complete(word: int, count: int = 1) -> int:
    """Drop ``count`` arrivals without completing the phase.

    Raises
    ------
    TmaError
        MBAR_FAULT, as `arrive_no_complete`.
    """
    return _incomplete(word, arrive_drop(word, count), count)


def expect_tx(word: int, tx_bytes: int) -> int:
    """Expect ``tx_bytes`` bytes; this may complete the phase (choice)."""
    return _update(word, tx=tx_bytes)


def complete_tx(word: int, tx_bytes: int) -> int:
    """Count ``tx_bytes`` bytes as received, also before they are expected (PTX ISA)."""
    return _update(word, tx=-tx_bytes)


def _report(word: int) -> Report:
    """Return the fields of layout v1; a fault does not lock the mbarrier."""
    report = _usable(word, locks=False).report
    if report is None:
        raise _fault(Fault.OPERATION, "layout", 0, "must be v1", word)
    return report


def report(word: int, value: int) -> int:
    """OR ``value`` into the report of the phase (choice; layout v1).

    Raises
    ------
    TmaError
        MBAR_FAULT, if the mbarrier has layout v0, is locked or not initialised; its ``value`` is
        the word, unchanged.
    """
    before = _report(word)
    old = 0 if before.stale else before.value
    after = replace(before, value=old | value & 0xFF, stale=0)
    return replace(Barrier.decode(word), report=after).encode()


def test_wait(word: int, state: int) -> bool:
    """Return whether the phase of ``state`` is complete.

    ``state`` is a word of the current or of the preceding phase. ``try_wait`` has the same result;
    in hardware it may wait before it returns.
    """
    return test_wait_parity(word, Barrier.decode(state).phase)


def test_wait_parity(word: int, parity: int) -> bool:
    """Return whether the phase of ``parity`` is complete; after ``init`` parity 1 is.

    Raises
    ------
    TmaError
        MBAR_FAULT, if the mbarrier is locked or not initialised; its ``value`` is the word,
        unchanged.
    """
    return _usable(word, locks=False).phase != parity


def test_conditional_wait(word: int, state: int) -> bool:
    """Return whether the conditional phase of ``state`` is complete (choice; layout v1)."""
    return test_conditional_wait_parity(word, _conditional_phase(state))


def test_conditional_wait_parity(word: int, parity: int) -> bool:
    """Return whether the conditional phase of ``parity`` is complete; v0 is a fault (choice)."""
    return _report(word).conditional_phase != parity


def pending_count(state: int) -> int:
    """Return the pending arrivals in ``state``."""
    return Barrier.decode(state).pending
