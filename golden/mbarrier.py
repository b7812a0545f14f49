"""mbarrier objects: pure functions that take the 64-bit word before an operation.

Words, states, predicates and faults are those of the silicon (``tests/silicon/barriers.npz``). A
unit later than Hopper also has layout v1, whose words have bit 0 set. Of it, PTX says that 9 bits
hold the expected arrivals, that the reports of a phase, a predicate and a byte, are combined, and
that the conditional phase advances if there was none. The places of these fields are this project's
choice, and so is the predicate: it is 1 if the byte is not 0.
"""

import enum
from dataclasses import dataclass, replace

from golden.errors import ErrorCode, TmaError

MAX_COUNT = (1 << 20) - 1
"""Largest count of an operation, and largest number of arrivals of a phase."""

MAX_COUNT_V1 = (1 << 9) - 1
"""Largest number of arrivals of a phase in layout v1."""

MAX_TX_COUNT = 1 << 20
"""Most bytes that may be still to come. Those that came early are at most one less."""

NOT_VALID = 1
"""Report of a load whose data matches the pattern of its report mechanism (choice)."""

_ARRIVALS = 1 << 20
_ARRIVALS_V1 = 1 << 9
_PENDING_AT = 43
_LOCK = 1 << 42
_HIGH_HALF = 0xFFFFFFFF << 32


class Op(enum.Enum):
    """Operations that count arrivals or bytes, by the names of the unit's ``BarrierOp``."""

    ARRIVE = "mbarrier.arrive"
    ARRIVE_NO_COMPLETE = "mbarrier.arrive.noComplete"
    ARRIVE_EXPECT_TX = "mbarrier.arrive.expect_tx"
    ARRIVE_DROP = "mbarrier.arrive_drop"
    ARRIVE_DROP_NO_COMPLETE = "mbarrier.arrive_drop.noComplete"
    ARRIVE_DROP_EXPECT_TX = "mbarrier.arrive_drop.expect_tx"
    EXPECT_TX = "mbarrier.expect_tx"
    COMPLETE_TX = "mbarrier.complete_tx"

    @property
    def arrives(self) -> bool:
        """True for arrivals."""
        return self.name.startswith("ARRIVE")

    @property
    def drops(self) -> bool:
        """True for arrivals that lower the arrivals of later phases."""
        return self.name.startswith("ARRIVE_DROP")

    @property
    def no_complete(self) -> bool:
        """True for ``noComplete`` arrivals: only the state that they return is special."""
        return self.name.endswith("NO_COMPLETE")

    @property
    def expects_tx(self) -> bool:
        """True if the count is one of bytes that are expected."""
        return self.name.endswith("EXPECT_TX")


class Fault(enum.IntEnum):
    """Cause of a fault: the ``dim`` of a `TmaError` with MBAR_FAULT. The first one is reported."""

    LOCKED = 1
    OVER_ARRIVAL = 2
    TX_RANGE = 3
    COUNT = 4
    OPERATION = 5


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

    Every word has them: a word that was never initialised, too. The word 0 is a barrier that
    expects no arrivals, and has none pending.

    Parameters
    ----------
    phase : int
        Parity of the current phase.
    pending, expected : int
        Arrivals that the current phase still needs, and arrivals of the next phase.
    tx_count : int
        Bytes that are expected and not received; negative if more were received. The word holds
        the negative value.
    lock : int
        1 after a fault.
    ignored : int
        Bit 0 of a word that is not of layout v1: it is kept, and has no effect.
    report : Report or None
        Further fields of layout v1; None in layout v0.

    Examples
    --------
    >>> hex(Barrier(phase=0, pending=1, expected=1, tx_count=16).encode())
    '0x7ffffbfffe1ffffe'
    """

    phase: int
    pending: int
    expected: int
    tx_count: int = 0
    lock: int = 0
    ignored: int = 0
    report: Report | None = None

    @classmethod
    def decode(cls, word: int, *, v1: bool = False) -> "Barrier":
        """Return the fields of a 64-bit word. ``v1``: the unit has layout v1."""
        came = word >> 21 & (1 << 21) - 1
        is_v1 = v1 and word & 1 == 1
        return cls(
            phase=word >> 63 & 1,
            pending=pending_count(word),
            expected=-(word >> 1) % (_ARRIVALS_V1 if is_v1 else _ARRIVALS),
            tx_count=(came >> 20 << 21) - came,
            lock=word >> 42 & 1,
            ignored=0 if is_v1 else word & 1,
            report=Report(word >> 10 & 0xFF, word >> 18 & 1, word >> 19 & 1) if is_v1 else None,
        )

    def encode(self) -> int:
        """Return the 64-bit word."""
        if self.report is None:
            low = self.ignored | (-self.expected % _ARRIVALS) << 1
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
            | (-self.tx_count % (1 << 21)) << 21
            | self.lock << 42
            | (-self.pending % _ARRIVALS) << _PENDING_AT
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
        Arrivals of each phase. A legal count is from 1 to 2**20 - 1, in layout v1 to 511. Others
        are no fault in layout v0 (silicon): the two halves of the word are what the compiler's
        arithmetic gives, with 32 bits.
    v1 : bool
        Layout v1 instead of v0.

    Raises
    ------
    TmaError
        MBAR_FAULT, if ``count`` is illegal in layout v1 (choice).

    Examples
    --------
    >>> hex(init(0))
    '0x8000000000200000'
    """
    if not v1:
        low = (_ARRIVALS - count) << 1 & 0xFFFFFFFF
        high = (_ARRIVALS - count) << 11 & 0xFFFFFFFF
        return high << 32 | low
    if not 1 <= count <= MAX_COUNT_V1:
        raise _fault(Fault.COUNT, "count", count, f"must be from 1 to {MAX_COUNT_V1}", count)
    return Barrier(0, count, count, report=Report()).encode()


def layout_v1_is_missing() -> TmaError:
    """Return the fault of a unit without layout v1 that shall initialise a barrier of it."""
    return _fault(Fault.OPERATION, "layout", 1, "must be v0: the unit has no other layout", 0)


def _unlocked(word: int, v1: bool) -> Barrier:
    """Return the fields of an mbarrier; a locked one is a fault."""
    barrier = Barrier.decode(word, v1=v1)
    if barrier.lock:
        limit = "must be 0: an earlier fault has locked the barrier"
        raise _fault(Fault.LOCKED, "lock", 1, limit, word)
    return barrier


def update(
    word: int, op: Op, count: int = 1, *, lanes: int = 1, remote: bool = False, v1: bool = False,
    reports: bool = False,
) -> int:  # fmt: skip
    """Count arrivals or bytes, and complete the phase if nothing is pending (silicon).

    The lanes of one instruction at one barrier are one update. Those of a ``noComplete``
    instruction also need the same count. A ``noComplete`` arrival that completes the phase is an
    ordinary completion.

    Parameters
    ----------
    word : int
        Word of the mbarrier before the operation.
    op : Op
        The operation.
    count : int
        Sum of the operands of all lanes: arrivals, or bytes.
    lanes : int
        Number of lanes: the arrivals of ``ARRIVE_EXPECT_TX`` and ``ARRIVE_DROP_EXPECT_TX``.
    remote : bool
        The operation is one of another CTA, or the unit's ``complete_tx`` of a request. It takes no
        notice of the lock, and sets it to its own outcome. That it takes no notice is what explains
        the tests that silicon does not refuse after a load at a locked word
        (``tests/silicon/clusters_odd.npz``).
    v1 : bool
        The unit has layout v1.
    reports : bool
        The operation is the ``complete_tx`` of a load that reports NOT_VALID in the same step,
        before it completes the phase; the mbarrier must then have layout v1 (choice).

    Returns
    -------
    int
        Word of the mbarrier after the operation.

    Raises
    ------
    TmaError
        MBAR_FAULT; its ``value`` is the word after the fault: locked, otherwise unchanged. Silicon
        reports no fault of a remote operation.

    Examples
    --------
    >>> word = update(init(1), Op.ARRIVE_EXPECT_TX, 16)
    >>> hex(word), hex(update(word, Op.COMPLETE_TX, 16))
    ('0x3fffe1ffffe', '0xfffff800001ffffe')
    """
    if remote:
        word &= ~_LOCK
    barrier = _unlocked(word, v1)
    arrivals = (lanes if op.expects_tx else count) if op.arrives else 0
    tx = count if op.expects_tx else -count if op is Op.COMPLETE_TX else 0
    tx_count = barrier.tx_count + tx
    for fault, name, value, least, most in (
        (Fault.COUNT, "count", count, 0, MAX_COUNT),
        (Fault.OVER_ARRIVAL, "arrivals", arrivals, 0, barrier.pending),
        (Fault.TX_RANGE, "tx-count", tx_count, 1 - MAX_TX_COUNT, MAX_TX_COUNT),
    ):
        if not least <= value <= most:
            limit = f"must be from {least} to {most}"
            if fault is Fault.OVER_ARRIVAL:
                limit += ", the pending arrivals"
            raise _fault(fault, name, value, limit, word | _LOCK)
    after = replace(
        barrier,
        pending=barrier.pending - arrivals,
        expected=(barrier.expected - arrivals * op.drops) % _ARRIVALS,
        tx_count=tx_count,
    )
    if reports:
        if barrier.report is None:
            raise _fault(Fault.OPERATION, "layout", 0, "must be v1", word | _LOCK)
        old = 0 if barrier.report.stale else barrier.report.value
        after = replace(after, report=replace(barrier.report, value=old | NOT_VALID, stale=0))
    return after._after_completion().encode()


def returned_state(word: int, *, merged: int = 0, earlier: int = 0) -> int:
    """Return the state that a lane gets from an arrival (silicon).

    It has the high half of the word before the operation. Only ``noComplete`` returns more.

    Parameters
    ----------
    word : int
        Word of the mbarrier before the operation.
    merged : int
        Mask of the lanes that were merged to one ``noComplete``: the low half.
    earlier : int
        Sum of the counts of the merged lanes before this one, of a ``noComplete``. These arrivals
        are not pending in the state.

    Examples
    --------
    >>> hex(returned_state(init(4), merged=0b11, earlier=1))
    '0x7fffe80000000003'
    """
    return (word & _HIGH_HALF) + (earlier << _PENDING_AT) & _HIGH_HALF | merged


def _with_report(word: int, v1: bool) -> tuple[Barrier, Report]:
    """Return an mbarrier of layout v1; a fault does not lock it."""
    barrier = _unlocked(word, v1)
    if barrier.report is None:
        raise _fault(Fault.OPERATION, "layout", 0, "must be v1", word)
    return barrier, barrier.report


def report(word: int, value: int, *, v1: bool = False) -> int:
    """OR ``value`` into the report of the phase (choice; layout v1).

    Raises
    ------
    TmaError
        MBAR_FAULT, if the unit or the mbarrier does not have layout v1, or if the mbarrier is
        locked; its ``value`` is the word, unchanged.
    """
    barrier, before = _with_report(word, v1)
    old = 0 if before.stale else before.value
    return replace(barrier, report=replace(before, value=old | value & 0xFF, stale=0)).encode()


def reported(word: int, *, v1: bool = False) -> tuple[int, int]:
    """Return the predicate and the value of the reports of the phase that completed last.

    They are those of ``test_wait`` and ``try_wait`` with ``.phase_type::primary``: 0 in layout v0,
    and 0 if the current phase has had a report, which replaces those of the last one (choice).
    """
    report = Barrier.decode(word, v1=v1).report
    value = report.value if report is not None and report.stale else 0
    return int(value != 0), value


def check_layout(word: int, layout: int, *, v1: bool = False) -> bool:
    """Return whether an mbarrier has a layout, as ``mbarrier.check_layout`` does.

    Parameters
    ----------
    word : int
        Word of the mbarrier.
    layout : int
        0 for ``.layout::v0``, 1 for ``.layout::v1``.
    v1 : bool
        The unit has layout v1. Without it, every mbarrier has layout v0.

    Examples
    --------
    >>> check_layout(init(1, v1=True), 1, v1=True), check_layout(init(1), 1, v1=True)
    (True, False)
    """
    if layout not in (0, 1):
        raise _fault(Fault.OPERATION, "layout", layout, "must be 0 or 1", word)
    return layout == (Barrier.decode(word, v1=v1).report is not None)


def parity_of(state: int, *, conditional: bool = False) -> int:
    """Return the parity of the phase of a state: bit 63, and no other bit, counts (silicon).

    ``conditional`` asks for the parity of the conditional phase of layout v1; ``state`` is then a
    word (choice).
    """
    return state >> 18 & 1 if conditional else state >> 63 & 1


def is_complete(word: int, parity: int, *, conditional: bool = False, v1: bool = False) -> bool:
    """Return whether the phase of ``parity`` is complete, as tests and waits do.

    A test by state asks for the parity of the state. After ``init``, parity 1 is complete.

    Parameters
    ----------
    word : int
        Word of the mbarrier.
    parity : int
        Parity: bit 0, and no other bit, counts (silicon).
    conditional : bool
        Ask for the conditional phase of layout v1 (choice).
    v1 : bool
        The unit has layout v1.

    Raises
    ------
    TmaError
        MBAR_FAULT, if the mbarrier is locked; with ``conditional`` as `report`. Its ``value`` is
        the word, unchanged.
    """
    if conditional:
        phase = _with_report(word, v1)[1].conditional_phase
    else:
        phase = _unlocked(word, v1).phase
    return phase != parity & 1


def pending_count(state: int) -> int:
    """Return the pending arrivals in ``state``."""
    return -(state >> _PENDING_AT) % _ARRIVALS
