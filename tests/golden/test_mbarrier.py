"""mbarriers: the compiler's words, phases, and faults."""

from dataclasses import replace

import numpy as np
import pytest

from golden import ErrorCode, TmaError, mbarrier
from golden.mbarrier import MAX_COUNT, MAX_COUNT_V1, Barrier, Fault, Report


@pytest.mark.parametrize(("count", "word"), [(1, 0x7FFFF800_001FFFFE), (32, 0x7FFF0000_001FFFC0)])
def test_words_of_the_compiler(count, word):
    assert mbarrier.init(count) == word


@pytest.mark.parametrize("count", [0, MAX_COUNT + 1])
def test_init_count_has_limits(count):
    with pytest.raises(TmaError, match=f"count = {count}: must be from 1"):
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
        report = Report(*(int(rng.integers(most)) for most in (256, 2, 2)))
        barrier = replace(barrier, expected=barrier.expected % 512, report=report)
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
    ("operation", "operand", "fault"),
    [
        (mbarrier.arrive, 3, Fault.OVER_ARRIVAL),
        (mbarrier.arrive_drop, 3, Fault.OVER_ARRIVAL),
        (mbarrier.arrive_no_complete, 2, Fault.COMPLETES),
        (mbarrier.arrive_drop_no_complete, 2, Fault.COMPLETES),
        (mbarrier.arrive_expect_tx, MAX_COUNT + 1, Fault.TX_RANGE),
        (mbarrier.expect_tx, MAX_COUNT + 1, Fault.TX_RANGE),
        (mbarrier.complete_tx, MAX_COUNT + 1, Fault.TX_RANGE),
    ],
)
@pytest.mark.parametrize("v1", [False, True])
def test_fault_locks_and_changes_nothing_else(operation, operand, fault, v1):
    word = mbarrier.init(2, v1=v1)
    with pytest.raises(TmaError) as caught:
        operation(word, operand)
    assert caught.value.value == word | 1 << 42
    assert caught.value.code == ErrorCode.MBAR_FAULT
    assert caught.value.dim == fault


@pytest.mark.parametrize("operation", [mbarrier.arrive, mbarrier.expect_tx, mbarrier.complete_tx])
def test_operations_on_a_zero_word_are_faults(operation):
    with pytest.raises(TmaError, match="there is no barrier") as caught:
        operation(mbarrier.inval(), 1)
    assert (caught.value.dim, caught.value.value) == (Fault.UNINITIALISED, 1 << 42)
    with pytest.raises(TmaError, match="there is no barrier") as caught:
        mbarrier.test_wait_parity(0, 1)
    assert (caught.value.dim, caught.value.value) == (Fault.UNINITIALISED, 0)


def test_zero_arrivals_and_zero_bytes_change_nothing():
    word = mbarrier.init(2)
    assert mbarrier.complete_tx(word, 0) == mbarrier.expect_tx(word, 0) == word
    assert mbarrier.arrive(word, 0) == word


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
        lambda word: mbarrier.test_conditional_wait_parity(word, 1),
        lambda word: mbarrier.report(word, 1),
    ],
)
def test_every_operation_on_a_locked_barrier_is_a_fault(operation):
    word = mbarrier.init(2) | 1 << 42
    with pytest.raises(TmaError, match="locked") as caught:
        operation(word)
    assert caught.value.value == word


def test_largest_tx_counts_are_legal():
    assert Barrier.decode(mbarrier.expect_tx(mbarrier.init(1), MAX_COUNT)).tx_count == MAX_COUNT
    assert Barrier.decode(mbarrier.complete_tx(mbarrier.init(1), MAX_COUNT)).tx_count == -MAX_COUNT


def test_drop_with_bytes():
    word = mbarrier.arrive_drop_expect_tx(mbarrier.init(2), 32)
    assert Barrier.decode(word) == Barrier(phase=0, pending=1, expected=1, tx_count=32)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [(mbarrier.arrive_no_complete, 2), (mbarrier.arrive_drop_no_complete, 1)],
)
def test_no_complete_keeps_the_phase(operation, expected):
    word = operation(mbarrier.init(2))
    assert Barrier.decode(word) == Barrier(phase=0, pending=1, expected=expected)
    assert mbarrier.pending_count(word) == 1
    with pytest.raises(TmaError, match="must leave the phase incomplete") as caught:
        operation(word)
    assert caught.value.value == word | 1 << 42


def test_two_registers_hold_a_barrier():
    assert mbarrier.words(mbarrier.init(32)) == (0x001FFFC0, 0x7FFF0000)


def test_a_state_serves_its_phase_and_the_next():
    first = mbarrier.init(1)
    second = mbarrier.arrive(first)
    third = mbarrier.arrive(second)
    assert [mbarrier.test_wait(word, first) for word in (first, second)] == [False, True]
    assert [mbarrier.test_wait(word, second) for word in (second, third)] == [False, True]


def test_random_operations_match_a_reference():
    """A phase completes exactly when no arrivals are pending and the tx-count is 0."""
    rng = np.random.default_rng(3)
    word = mbarrier.init(5)
    phase, pending, expected, tx, flips = 0, 5, 5, 0, 0
    for _ in range(3000):
        kind = rng.integers(4)
        count = int(rng.integers(1, 3))
        if kind == 0 and pending >= count:
            word, pending = mbarrier.arrive(word, count), pending - count
        elif kind == 1 and tx < 50:
            word, tx = mbarrier.expect_tx(word, 16 * count), tx + 16 * count
        elif kind == 2 and tx > -50:
            word, tx = mbarrier.complete_tx(word, 16 * count), tx - 16 * count
        elif kind == 3 and pending and expected > 1 and rng.random() < 0.01:
            word, pending, expected = mbarrier.arrive_drop(word), pending - 1, expected - 1
        else:
            continue
        if pending == 0 and tx == 0:
            phase, pending, flips = 1 - phase, expected, flips + 1
        assert Barrier.decode(word) == Barrier(phase, pending, expected, tx)
    assert flips > 50


def test_layout_v1():
    """Places of expected arrivals, report byte and conditional phase; they are a choice."""
    word = mbarrier.init(3, v1=True)
    assert word & (1 << 20) - 1 == 1 | (512 - 3) << 1
    assert mbarrier.pending_count(word) == 3
    word = mbarrier.arrive(mbarrier.arrive_drop(word, 1), 2)
    assert Barrier.decode(word) == Barrier(1, 2, 2, report=Report(0, 1, 1))
    for count in (0, MAX_COUNT_V1 + 1):
        with pytest.raises(TmaError, match="must be from 1 to 511"):
            mbarrier.init(count, v1=True)
    assert Barrier.decode(mbarrier.init(MAX_COUNT_V1, v1=True)).expected == MAX_COUNT_V1


def test_a_report_keeps_the_conditional_phase():
    word = mbarrier.init(1, v1=True)
    word = mbarrier.report(mbarrier.report(word, 0x101), 0x80)
    word = mbarrier.arrive(word)
    assert Barrier.decode(word) == Barrier(1, 1, 1, report=Report(0x81, 0, 1))
    assert mbarrier.test_wait_parity(word, 0)
    assert not mbarrier.test_conditional_wait_parity(word, 0)
    state = word
    word = mbarrier.report(word, 0)  # a report of 0, for the new phase
    assert Barrier.decode(word).report == Report(0, 0, 0)
    word = mbarrier.arrive(word)
    assert Barrier.decode(word) == Barrier(0, 1, 1, report=Report(0, 1, 1))
    assert mbarrier.test_conditional_wait(word, state)


@pytest.mark.parametrize(
    "operation",
    [
        lambda word: mbarrier.report(word, 1),
        lambda word: mbarrier.test_conditional_wait_parity(word, 1),
        lambda word: mbarrier.test_conditional_wait(word, word),
    ],
)
def test_layout_v0_has_no_report(operation):
    word = mbarrier.init(1)
    with pytest.raises(TmaError, match="must be v1") as caught:
        operation(word)
    assert (caught.value.dim, caught.value.value) == (Fault.OPERATION, word)


def test_layout_v1_is_a_fault_on_units_without_it():
    word = mbarrier.init(1, v1=True)
    mbarrier.require_layout(mbarrier.init(1))
    with pytest.raises(TmaError) as caught:
        mbarrier.require_layout(word)
    assert (caught.value.dim, caught.value.value) == (Fault.UNINITIALISED, word | 1 << 42)
    with pytest.raises(TmaError) as caught:
        mbarrier.require_layout(word, locks=False)
    assert (caught.value.dim, caught.value.value) == (Fault.UNINITIALISED, word)
    with pytest.raises(TmaError) as caught:
        mbarrier.require_layout(word | 1 << 42)
    assert caught.value.dim == Fault.LOCKED
