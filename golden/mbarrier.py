"""mbarrier objects: pure functions from word to word.

The layout of the 64 bits is that of the compiler's init sequence for sm_90a where it shows them
(expected and pending arrivals) and that of reports for the rest (tx-count, lock, phase).
"""

from dataclasses import dataclass, replace

from golden.errors import ErrorCode, TmaError

MAX_COUNT = (1 << 20) - 1
"""Most arrivals of a phase, and most bytes that may be outstanding either way (PTX ISA)."""

_ARRIVALS = 1 << 20


@dataclass(frozen=True)
class Barrier:
    """A barrier's fields. ``tx_count``: bytes still to come; negative if they came early."""

    phase: int
    pending: int
    expected: int
    tx_count: int = 0
    lock: int = 0

    @classmethod
    def decode(cls, word: int) -> "Barrier":
        """Take the fields out of the 64-bit word."""
        tx = word >> 21 & (1 << 21) - 1
        return cls(
            phase=word >> 63 & 1,
            pending=-(word >> 43) % _ARRIVALS,
            expected=-(word >> 1) % _ARRIVALS,
            tx_count=tx - (tx >> 20 << 21),
            lock=word >> 42 & 1,
        )

    def encode(self) -> int:
        """The 64-bit word."""
        return (
            (-self.expected % _ARRIVALS) << 1
            | (self.tx_count % (1 << 21)) << 21
            | self.lock << 42
            | (-self.pending % _ARRIVALS) << 43
            | self.phase << 63
        )

    def _checked(self) -> "Barrier":
        """Flip the phase if nothing is pending: one step with the operation."""
        if self.pending == 0 and self.tx_count == 0:
            return replace(self, phase=1 - self.phase, pending=self.expected)
        return self


def words(word: int) -> tuple[int, int]:
    """The low and the high 32 bits, as two registers hold them.

    Examples
    --------
    >>> [hex(half) for half in words(init(1))]
    ['0x1ffffe', '0x7ffff800']
    """
    return word & 0xFFFFFFFF, word >> 32


def init(count: int) -> int:
    """A fresh barrier that expects ``count`` arrivals, 1 to 2**20 - 1.

    Raises
    ------
    TmaError
        MBAR_FAULT, if it cannot expect so many.
    """
    if not 1 <= count <= MAX_COUNT:
        limit = f"must be from 1 to {MAX_COUNT}"
        raise TmaError(ErrorCode.MBAR_FAULT, "count", count, limit)
    return Barrier(phase=0, pending=count, expected=count).encode()


def inval() -> int:
    """What an invalidated barrier leaves in memory: here zero; programs may not rely on it."""
    return 0


def _fault(barrier: Barrier, parameter: str, value: int, limit: str) -> TmaError:
    """A fault locks the barrier and changes nothing else; its value is the word afterwards."""
    locked = replace(barrier, lock=1).encode()
    return TmaError(ErrorCode.MBAR_FAULT, parameter, locked, limit, shown=str(value))


def _unlocked(word: int) -> Barrier:
    barrier = Barrier.decode(word)
    if barrier.lock:
        raise _fault(barrier, "lock", 1, "must be 0: an earlier fault has locked the barrier")
    return barrier


def _update(word: int, *, arrivals: int = 0, tx: int = 0, drops: int = 0) -> int:
    barrier = _unlocked(word)
    tx_count = barrier.tx_count + tx
    for name, value, most in (
        ("arrivals", arrivals, barrier.pending),
        ("drops", drops, barrier.expected),
    ):
        if not 0 <= value <= most:
            limit = f"must be from 0 to {most}: {most} are left"
            raise _fault(barrier, name, value, limit)
    if abs(tx_count) > MAX_COUNT:
        limit = f"must be from {-MAX_COUNT} to {MAX_COUNT}"
        raise _fault(barrier, "tx-count", tx_count, limit)
    after = replace(
        barrier,
        pending=barrier.pending - arrivals,
        expected=barrier.expected - drops,
        tx_count=tx_count,
    )
    return after._checked().encode()


def _incomplete(word: int, after: int, count: int) -> int:
    """``after``, unless the phase of ``word`` is complete in it."""
    before = Barrier.decode(word)
    if Barrier.decode(after).phase != before.phase:
        raise _fault(before, "arrivals", count, "must leave the phase incomplete")
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


def test_wait(word: int, state: int) -> bool:
    """Whether the phase of ``state``, a word of this or the preceding phase, is complete.

    ``try_wait`` answers the same; in hardware it may wait for a while first.
    """
    return test_wait_parity(word, Barrier.decode(state).phase)


def test_wait_parity(word: int, parity: int) -> bool:
    """Whether the phase of this parity is complete: a fresh barrier says so of parity 1."""
    return _unlocked(word).phase != parity


def pending_count(state: int) -> int:
    """Arrivals pending in ``state``."""
    return Barrier.decode(state).pending
