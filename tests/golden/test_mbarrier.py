"""mbarriers: the compiler's words, phases, and faults that change nothing."""

import numpy as np
import pytest

from golden import ErrorCode, mbarrier
from golden.mbarrier import MAX_COUNT, Barrier, BarrierFault


@pytest.mark.parametrize(("count", "word"), [(1, 0x7FFFF800_001FFFFE), (32, 0x7FFF0000_001FFFC0)])
def test_words_of_the_compiler(count, word):
    assert mbarrier.init(count) == word


@pytest.mark.parametrize("count", [0, MAX_COUNT + 1])
def test_init_count_has_limits(count):
    with pytest.raises(ValueError, match=f"count = {count}: must be from 1"):
        mbarrier.init(count)


def test_encode_and_decode():
    rng = np.random.default_rng(0)
    for _ in range(500):
        barrier = Barrier(
            phase=int(rng.integers(2)),
            pending=int(rng.integers(MAX_COUNT + 1)),
            expected=int(rng.integers(MAX_COUNT + 1)),
            tx_count=int(rng.integers(-MAX_COUNT, MAX_COUNT + 1)),
            lock=int(rng.integers(2)),
        )
        assert Barrier.decode(barrier.encode()) == barrier


def test_phase_needs_arrivals_and_bytes():
    word = mbarrier.init(2)
    assert mbarrier.test_wait_parity(word, 1)
    assert not mbarrier.test_wait_parity(word, 0)
    word = mbarrier.arrive_expect_tx(word, 100)
    word = mbarrier.arrive(word)
    assert not mbarrier.test_wait_parity(word, 0)
    word = mbarrier.complete_tx(word, 60)
    assert Barrier.decode(word).tx_count == 40
    assert not mbarrier.test_wait_parity(word, 0)
    word = mbarrier.complete_tx(word, 40)
    assert mbarrier.test_wait_parity(word, 0)
    assert Barrier.decode(word) == Barrier(phase=1, pending=2, expected=2)


def test_bytes_may_come_before_they_are_expected():
    word = mbarrier.complete_tx(mbarrier.init(1), 64)
    assert Barrier.decode(word).tx_count == -64
    assert mbarrier.test_wait_parity(mbarrier.arrive_expect_tx(word, 64), 0)


def test_state_and_pending_count():
    state = mbarrier.arrive(mbarrier.init(3))
    assert mbarrier.pending_count(state) == 2
    assert not mbarrier.test_wait(state, state)
    assert mbarrier.test_wait(mbarrier.arrive(state, 2), state)


def test_drop_lowers_later_phases():
    word = mbarrier.arrive(mbarrier.arrive_drop(mbarrier.init(2)))
    assert Barrier.decode(word) == Barrier(phase=1, pending=1, expected=1)


@pytest.mark.parametrize(
    ("operation", "operand"),
    [
        (mbarrier.arrive, 3),
        (mbarrier.arrive_drop, 3),
        (mbarrier.arrive_expect_tx, MAX_COUNT + 1),
        (mbarrier.expect_tx, MAX_COUNT + 1),
        (mbarrier.complete_tx, MAX_COUNT + 1),
    ],
)
def test_fault_locks_and_changes_nothing_else(operation, operand):
    word = mbarrier.init(2)
    with pytest.raises(BarrierFault) as caught:
        operation(word, operand)
    assert caught.value.word == word | 1 << 42
    assert caught.value.cause == ErrorCode.MBAR_FAULT


@pytest.mark.parametrize(
    "operation",
    [
        mbarrier.arrive,
        mbarrier.arrive_drop,
        lambda word: mbarrier.expect_tx(word, 0),
        lambda word: mbarrier.complete_tx(word, 0),
        lambda word: mbarrier.arrive_expect_tx(word, 0),
        lambda word: mbarrier.test_wait_parity(word, 1),
        lambda word: mbarrier.test_wait(word, 0),
    ],
)
def test_a_locked_barrier_takes_nothing(operation):
    word = mbarrier.init(2) | 1 << 42
    with pytest.raises(BarrierFault, match="locked") as caught:
        operation(word)
    assert caught.value.word == word


def test_outermost_counts_are_allowed():
    assert Barrier.decode(mbarrier.expect_tx(mbarrier.init(1), MAX_COUNT)).tx_count == MAX_COUNT
    assert Barrier.decode(mbarrier.complete_tx(mbarrier.init(1), MAX_COUNT)).tx_count == -MAX_COUNT
