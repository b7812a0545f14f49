"""mbarriers: words of the silicon, phases, states and faults. ``test_recordings`` has more."""

from dataclasses import replace

import numpy as np
import pytest

from golden import ErrorCode, TmaError, mbarrier
from golden.mbarrier import MAX_COUNT, MAX_COUNT_V1, MAX_TX_COUNT, Barrier, Fault, Op, Report

LOCK = 1 << 42
update = mbarrier.update


@pytest.mark.parametrize(
    ("count", "word"),
    [
        (1, 0x7FFFF800_001FFFFE),
        (32, 0x7FFF0000_001FFFC0),
        (0, 0x80000000_00200000),
        (1 << 20, 0),
        ((1 << 32) - 1, 0x80000800_00200002),
    ],
)
def test_words_of_the_compiler(count, word):
    assert mbarrier.init(count) == word


def test_encode_and_decode():
    rng = np.random.default_rng(0)
    for _ in range(500):
        barrier = Barrier(
            phase=int(rng.integers(2)),
            pending=int(rng.integers(MAX_COUNT + 1)),
            expected=int(rng.integers(MAX_COUNT + 1)),
            tx_count=int(rng.integers(1 - MAX_TX_COUNT, MAX_TX_COUNT + 1)),
            lock=int(rng.integers(2)),
            ignored=int(rng.integers(2)),
        )
        assert Barrier.decode(barrier.encode()) == barrier
        report = Report(*(int(rng.integers(most)) for most in (256, 2, 2)))
        barrier = replace(barrier, expected=barrier.expected % 512, ignored=0, report=report)
        assert Barrier.decode(barrier.encode(), v1=True) == barrier


def test_the_word_holds_the_bytes_that_came():
    word = update(mbarrier.init(1), Op.EXPECT_TX, 16)
    assert word == 0x7FFFFBFF_FE1FFFFE
    assert Barrier.decode(word).tx_count == 16


def test_phase_needs_arrivals_and_bytes():
    word = mbarrier.init(2)
    assert mbarrier.is_complete(word, 1)
    assert not mbarrier.is_complete(word, 0)
    word = update(word, Op.ARRIVE_EXPECT_TX, 100)
    word = update(word, Op.ARRIVE)
    assert not mbarrier.is_complete(word, 0)
    word = update(word, Op.COMPLETE_TX, 60)
    assert Barrier.decode(word).tx_count == 40
    assert not mbarrier.is_complete(word, 0)
    word = update(word, Op.COMPLETE_TX, 40)
    assert mbarrier.is_complete(word, 0)
    assert Barrier.decode(word) == Barrier(phase=1, pending=2, expected=2)


def test_bytes_may_come_before_they_are_expected():
    word = update(mbarrier.init(1), Op.COMPLETE_TX, 64)
    assert Barrier.decode(word).tx_count == -64
    assert mbarrier.is_complete(update(word, Op.ARRIVE_EXPECT_TX, 64), 0)


def test_a_state_is_the_high_half_of_the_word_before():
    word = update(mbarrier.init(3), Op.ARRIVE)
    state = mbarrier.returned_state(word)
    assert state == word >> 32 << 32
    assert mbarrier.pending_count(state) == 2
    parity = mbarrier.parity_of(state)
    assert not mbarrier.is_complete(word, parity)
    assert mbarrier.is_complete(update(word, Op.ARRIVE, 2), parity)


def test_a_no_complete_state_has_the_merged_lanes():
    """Three lanes arrive twice each; the third one finds 4 arrivals of the others."""
    state = mbarrier.returned_state(mbarrier.init(9), merged=0b1101, earlier=4)
    assert state & 0xFFFFFFFF == 0b1101
    assert mbarrier.pending_count(state) == 5


def test_waits_look_at_one_bit():
    word = mbarrier.init(1)
    assert mbarrier.is_complete(word, 0xFFFFFFFF)
    assert not mbarrier.is_complete(word, 0xFFFFFFFE)
    assert mbarrier.parity_of(1 << 63) == 1
    assert mbarrier.parity_of((1 << 63) - 1) == 0


def test_drop_lowers_later_phases():
    word = update(update(mbarrier.init(2), Op.ARRIVE_DROP), Op.ARRIVE)
    assert Barrier.decode(word) == Barrier(phase=1, pending=1, expected=1)
    word = update(word, Op.ARRIVE_DROP)
    assert Barrier.decode(word) == Barrier(phase=0, pending=0, expected=0)


@pytest.mark.parametrize(
    ("op", "count", "lanes", "fault"),
    [
        (Op.ARRIVE, 3, 1, Fault.OVER_ARRIVAL),
        (Op.ARRIVE_NO_COMPLETE, 3, 3, Fault.OVER_ARRIVAL),
        (Op.ARRIVE_DROP, 3, 1, Fault.OVER_ARRIVAL),
        (Op.ARRIVE_EXPECT_TX, 48, 3, Fault.OVER_ARRIVAL),
        (Op.ARRIVE, MAX_COUNT + 1, 1, Fault.COUNT),
        (Op.ARRIVE_EXPECT_TX, MAX_COUNT + 1, 1, Fault.COUNT),
        (Op.EXPECT_TX, MAX_COUNT + 1, 1, Fault.COUNT),
        (Op.COMPLETE_TX, MAX_COUNT + 1, 1, Fault.COUNT),
    ],
)
@pytest.mark.parametrize("v1", [False, True])
def test_fault_locks_and_changes_nothing_else(op, count, lanes, fault, v1):
    word = mbarrier.init(2, v1=v1)
    with pytest.raises(TmaError) as caught:
        update(word, op, count, lanes=lanes, v1=v1)
    assert caught.value.value == word | LOCK
    assert caught.value.code == ErrorCode.MBAR_FAULT
    assert caught.value.dim == fault


def test_limits_of_bytes():
    """2**20 bytes may be still to come, but not 2**20 early."""
    word = update(mbarrier.init(1), Op.EXPECT_TX, MAX_COUNT)
    most = update(word, Op.EXPECT_TX, 1)
    assert Barrier.decode(most).tx_count == MAX_TX_COUNT
    with pytest.raises(TmaError, match="tx-count = 1048577") as caught:
        update(most, Op.EXPECT_TX, 1)
    assert caught.value.dim == Fault.TX_RANGE
    early = update(mbarrier.init(1), Op.COMPLETE_TX, MAX_COUNT)
    with pytest.raises(TmaError, match="tx-count = -1048576") as caught:
        update(early, Op.COMPLETE_TX, 1)
    assert caught.value.dim == Fault.TX_RANGE


def test_word_zero_counts():
    """The word 0 is a barrier without pending arrivals, as on silicon."""
    assert update(0, Op.EXPECT_TX, 16) == 0x000003FF_FE000000
    assert update(0, Op.EXPECT_TX, 0) == 1 << 63
    assert update(0, Op.COMPLETE_TX, 16) == 16 << 21
    assert mbarrier.is_complete(0, 1)
    with pytest.raises(TmaError) as caught:
        update(0, Op.ARRIVE)
    assert (caught.value.dim, caught.value.value) == (Fault.OVER_ARRIVAL, LOCK)


def test_bit_0_is_kept_and_has_no_effect():
    word = update(mbarrier.init(1) | 1, Op.ARRIVE)
    assert word == update(mbarrier.init(1), Op.ARRIVE) | 1


def test_counts_of_zero_are_legal():
    word = mbarrier.init(2)
    assert update(word, Op.COMPLETE_TX, 0) == update(word, Op.EXPECT_TX, 0) == word
    assert update(word, Op.ARRIVE, 0) == word


@pytest.mark.parametrize(
    "operation",
    [
        lambda word: update(word, Op.ARRIVE),
        lambda word: update(word, Op.ARRIVE_EXPECT_TX, 0),
        lambda word: update(word, Op.EXPECT_TX, 0),
        lambda word: update(word, Op.COMPLETE_TX, 0),
        lambda word: mbarrier.is_complete(word, 1),
        lambda word: mbarrier.is_complete(word, 1, conditional=True),
        lambda word: mbarrier.report(word, 1),
    ],
)
def test_every_operation_on_a_locked_barrier_is_a_fault(operation):
    word = mbarrier.init(2) | LOCK
    with pytest.raises(TmaError, match="locked") as caught:
        operation(word)
    assert (caught.value.value, caught.value.dim) == (word, Fault.LOCKED)


def test_a_remote_operation_sets_the_lock_to_its_own_outcome():
    locked = mbarrier.init(2) | LOCK
    assert update(locked, Op.COMPLETE_TX, 16, remote=True) == update(
        mbarrier.init(2), Op.COMPLETE_TX, 16
    )
    with pytest.raises(TmaError) as caught:
        update(locked, Op.ARRIVE, 3, remote=True)
    assert (caught.value.value, caught.value.dim) == (locked, Fault.OVER_ARRIVAL)


def test_drop_with_bytes():
    word = update(mbarrier.init(4), Op.ARRIVE_DROP_EXPECT_TX, 32, lanes=2)
    assert Barrier.decode(word) == Barrier(phase=0, pending=2, expected=2, tx_count=32)


@pytest.mark.parametrize(
    ("op", "like"),
    [
        (Op.ARRIVE_NO_COMPLETE, Op.ARRIVE),
        (Op.ARRIVE_DROP_NO_COMPLETE, Op.ARRIVE_DROP),
    ],
)
def test_a_no_complete_that_completes_is_a_completion(op, like):
    word = mbarrier.init(2)
    for count in (1, 2):
        assert update(word, op, count) == update(word, like, count)
    assert mbarrier.is_complete(update(word, op, 2), 0)


def test_two_registers_hold_a_barrier():
    assert mbarrier.words(mbarrier.init(32)) == (0x001FFFC0, 0x7FFF0000)


def test_random_operations_match_a_reference():
    """A phase completes exactly when no arrivals are pending and the tx-count is 0."""
    rng = np.random.default_rng(3)
    word = mbarrier.init(5)
    phase, pending, expected, tx, flips = 0, 5, 5, 0, 0
    for _ in range(3000):
        kind = rng.integers(4)
        count = int(rng.integers(1, 3))
        if kind == 0 and pending >= count:
            word, pending = update(word, Op.ARRIVE, count), pending - count
        elif kind == 1 and tx < 50:
            word, tx = update(word, Op.EXPECT_TX, 16 * count), tx + 16 * count
        elif kind == 2 and tx > -50:
            word, tx = update(word, Op.COMPLETE_TX, 16 * count), tx - 16 * count
        elif kind == 3 and pending and expected > 1 and rng.random() < 0.01:
            word, pending, expected = update(word, Op.ARRIVE_DROP), pending - 1, expected - 1
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
    word = update(update(word, Op.ARRIVE_DROP, v1=True), Op.ARRIVE, 2, v1=True)
    assert Barrier.decode(word, v1=True) == Barrier(1, 2, 2, report=Report(0, 1, 1))
    for count in (0, MAX_COUNT_V1 + 1):
        with pytest.raises(TmaError, match="must be from 1 to 511"):
            mbarrier.init(count, v1=True)
    word = mbarrier.init(MAX_COUNT_V1, v1=True)
    assert Barrier.decode(word, v1=True).expected == MAX_COUNT_V1


def test_a_report_keeps_the_conditional_phase():
    word = mbarrier.init(1, v1=True)
    word = mbarrier.report(mbarrier.report(word, 0x101, v1=True), 0x80, v1=True)
    word = update(word, Op.ARRIVE, v1=True)
    assert Barrier.decode(word, v1=True) == Barrier(1, 1, 1, report=Report(0x81, 0, 1))
    assert mbarrier.is_complete(word, 0, v1=True)
    assert not mbarrier.is_complete(word, 0, conditional=True, v1=True)
    state = word
    word = mbarrier.report(word, 0, v1=True)  # a report of 0, for the new phase
    assert Barrier.decode(word, v1=True).report == Report(0, 0, 0)
    word = update(word, Op.ARRIVE, v1=True)
    assert Barrier.decode(word, v1=True) == Barrier(0, 1, 1, report=Report(0, 1, 1))
    parity = mbarrier.parity_of(state, conditional=True)
    assert mbarrier.is_complete(word, parity, conditional=True, v1=True)


@pytest.mark.parametrize(
    "operation",
    [
        lambda word, v1: mbarrier.report(word, 1, v1=v1),
        lambda word, v1: mbarrier.is_complete(word, 1, conditional=True, v1=v1),
    ],
)
@pytest.mark.parametrize(
    ("word", "v1"),
    [(mbarrier.init(1), True), (mbarrier.init(1, v1=True), False)],
    ids=["barrier", "unit"],
)
def test_layout_v0_has_no_report(operation, word, v1):
    with pytest.raises(TmaError, match="must be v1") as caught:
        operation(word, v1)
    assert (caught.value.dim, caught.value.value) == (Fault.OPERATION, word)
