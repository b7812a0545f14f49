"""mbarrier objects: pure functions from word to word.

The layout of the 64 bits is that of the compiler's init sequence for sm_90a where it shows them
(expected and pending arrivals) and that of reports for the rest (tx-count, lock, phase).
"""

from dataclasses import dataclass, replace

from golden.errors import Cause, Refusal

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


class BarrierFault(Refusal):
    """An operation that a barrier cannot take.

    ``cause`` is MBAR_FAULT.

    Attributes
    ----------
    word : int
        The barrier afterwards: locked, and otherwise as it was.
    """

    def __init__(self, word: int, message: str) -> None:
        super().__init__(Cause.MBAR_FAULT, 0, word, message)
        self.word = word


def init(count: int) -> int:
    """A fresh barrier that expects ``count`` arrivals, 1 to 2**20 - 1."""
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(f"count = {count}: must be from 1 to {MAX_COUNT}")
    return Barrier(phase=0, pending=count, expected=count).encode()


def _unlocked(word: int) -> Barrier:
    barrier = Barrier.decode(word)
    if barrier.lock:
        raise BarrierFault(word, "the barrier is locked by an earlier fault")
    return barrier


def _update(word: int, *, arrivals: int = 0, tx: int = 0, drops: int = 0) -> int:
    barrier = _unlocked(word)
    tx_count = barrier.tx_count + tx
    locked = replace(barrier, lock=1).encode()
    if arrivals > barrier.pending:
        raise BarrierFault(locked, f"{arrivals} arrivals: {barrier.pending} are pending")
    if drops > barrier.expected:
        raise BarrierFault(locked, f"{drops} drops: {barrier.expected} are expected")
    if abs(tx_count) > MAX_COUNT:
        raise BarrierFault(locked, f"tx-count {tx_count}: must be within {MAX_COUNT} of 0")
    after = replace(
        barrier,
        pending=barrier.pending - arrivals,
        expected=barrier.expected - drops,
        tx_count=tx_count,
    )
    return after._checked().encode()


def arrive(word: int, count: int = 1) -> int:
    """``count`` arrivals, then the check (PTX ISA)."""
    return _update(word, arrivals=count)


def arrive_drop(word: int, count: int = 1) -> int:
    """``count`` arrivals that later phases do not expect, then the check (PTX ISA)."""
    return _update(word, arrivals=count, drops=count)


def expect_tx(word: int, tx_bytes: int) -> int:
    """``tx_bytes`` more to come, then the check."""
    return _update(word, tx=tx_bytes)


def arrive_expect_tx(word: int, tx_bytes: int) -> int:
    """``tx_bytes`` more to come and one arrival, then the check: a single step (PTX ISA)."""
    return _update(word, arrivals=1, tx=tx_bytes)


def complete_tx(word: int, tx_bytes: int) -> int:
    """``tx_bytes`` came, then the check; before they were expected, too (PTX ISA)."""
    return _update(word, tx=-tx_bytes)


def inval() -> int:
    """What an invalidated barrier leaves in memory: here zero; programs may not rely on it."""
    return 0


def test_wait(word: int, state: int) -> bool:
    """Whether the phase of ``state``, a word of this or the preceding phase, is complete."""
    return test_wait_parity(word, Barrier.decode(state).phase)


def test_wait_parity(word: int, parity: int) -> bool:
    """Whether the phase of this parity is complete: a fresh barrier says so of parity 1."""
    return _unlocked(word).phase != parity


def pending_count(state: int) -> int:
    """Arrivals pending in ``state``."""
    return Barrier.decode(state).pending
