"""Barrier step: applies one operation to the word of a barrier, combinationally."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.barrier.barrier_waiters import Outcome
from hw.layouts.barriers import (
    BARRIER_COUNT_BITS,
    BARRIER_TAG_BITS,
    TIME_LIMIT_BITS,
    BarrierFault,
    BarrierOp,
)
from hw.params import SMEM_OFFSET_BITS, TmaParams

ARRIVAL_BITS = 20
"""Width of an arrival count. A phase expects at most ``2**20 - 1`` arrivals."""

V1_ARRIVAL_BITS = 9
"""Width of the expected arrival count in layout v1."""

REPORT_BITS = 8
"""Width of the report in layout v1."""


class BarrierWord(data.Struct):
    """Word of a barrier in shared memory (layout v0).

    Arrival counts are stored as their negative modulo ``2**20``, so that ``pending`` counts up to
    zero.

    Members
    -------
    reserved : 0; 1 marks layout v1
    expected : arrivals that each phase expects, negative
    tx : bytes that are still to come; negative if bytes came before they were expected
    lock : 1 after an error; the barrier then refuses all operations but INIT and INVAL
    pending : arrivals that are still to come in this phase, negative
    phase : parity of the current phase
    """

    reserved: 1
    expected: ARRIVAL_BITS
    tx: signed(BARRIER_COUNT_BITS)
    lock: 1
    pending: ARRIVAL_BITS
    phase: 1


class BarrierWordV1(data.Struct):
    """Word of a barrier in layout v1.

    The PTX ISA says that ``expected`` has 9 bits, and that there is a report byte and a phase that
    depends on it. The positions of the fields are this project's choice. ``tx``, ``lock``,
    ``pending`` and ``phase`` are where `BarrierWord` has them.

    Members
    -------
    is_v1 : 1
    expected : arrivals that each phase expects, negative modulo ``2**9``
    report : OR of the reports of one phase
    conditional_phase : parity that flips with ``phase`` if the report of the phase is 0
    stale : 1 if ``report`` is that of the completed phase: the current phase has none yet
    """

    is_v1: 1
    expected: V1_ARRIVAL_BITS
    report: REPORT_BITS
    conditional_phase: 1
    stale: 1
    reserved: 1
    tx: signed(BARRIER_COUNT_BITS)
    lock: 1
    pending: ARRIVAL_BITS
    phase: 1


class BarrierTask(data.Struct):
    """Operation with its operands decoded.

    Members
    -------
    op, address, count, time_limit, v1, tag : as in `BarrierCommand`; with PENDING_COUNT, ``count``
        is the result
    arrivals : arrivals that the operation counts
    tx_increment : bytes that the operation adds to those still to come; negative for COMPLETE_TX
    parity : parity of the phase that a test or wait asks for
    """

    op: BarrierOp
    address: SMEM_OFFSET_BITS
    count: BARRIER_COUNT_BITS
    arrivals: BARRIER_COUNT_BITS
    tx_increment: signed(BARRIER_COUNT_BITS + 1)
    parity: 1
    time_limit: TIME_LIMIT_BITS
    v1: 1
    tag: BARRIER_TAG_BITS


@dataclass(frozen=True)
class _Operation:
    """Classes of operations: each value is 1 if the task belongs to the class."""

    tries: Value
    """TRY_WAIT and TRY_WAIT_PARITY."""
    tests: Value
    """``tries``, TEST_WAIT and TEST_WAIT_PARITY."""
    drops: Value
    """ARRIVE_DROP in all its forms."""
    must_not_complete: Value
    """The NO_COMPLETE forms."""
    is_init: Value
    is_inval: Value
    is_report: Value
    counts: Value
    """Operations that count arrivals or bytes."""


@dataclass(frozen=True)
class _Fields:
    """Fields of the word that both layouts have, decoded."""

    expected: Signal
    phase: Signal
    """Phase that the task asks for: the conditional phase with ``task.v1``."""
    uninitialised: Signal


@dataclass(frozen=True)
class _Counts:
    """Counts after the operation, if it succeeds."""

    pending: Signal
    expected: Value
    tx: Signal
    complete: Signal
    """The phase completes."""
    over_arrived: Signal
    """More arrivals than are pending."""
    over_dropped: Signal
    """More dropped arrivals than are expected."""
    tx_out_of_range: Signal


def sum_is_zero(a: Value, b: Value) -> Value:
    """Return 1 if ``a + b`` is 0 modulo ``2**len(a)``, without a carry chain."""
    b = b[: len(a)]
    return (a ^ b) == ((a | b) << 1)[: len(a)]


class BarrierStep(wiring.Component):
    """Applies one operation to one barrier word. `MbarrierUnit` defines the operations.

    Latency: none, the block is combinational. Throughput: one operation per clock. Back-pressure:
    none. Errors: `MbarrierUnit` lists the faults.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    task : In(BarrierTask)
        The operation.
    is_update : In(1)
        The operation is an update, which has no result.
    word : In(BarrierWord)
        The barrier word before the operation.
    word_is_zero : In(1)
        ``word`` is 0.
    next_word : Out(BarrierWord)
        The barrier word after the operation.
    write_en : Out(1)
        ``next_word`` is to be written.
    fault : Out(BarrierFault)
        The first fault that applies.
    has_fault : Out(1)
        ``fault`` is not NONE.
    done : Out(1)
        A test or wait finds its phase complete.
    can_wait : Out(1)
        A TRY_WAIT finds its phase incomplete, and its time limit is not 0.
    ends_waits : Out(1)
        The operation ends the waits for the barrier.
    outcome : Out(Outcome)
        The reason why the waits end.
    conditional_pending : Out(1)
        The waits for the conditional phase do not end: that phase is not complete.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "task": In(BarrierTask),
                "is_update": In(1),
                "word": In(BarrierWord),
                "word_is_zero": In(1),
                "next_word": Out(BarrierWord),
                "write_en": Out(1),
                "fault": Out(BarrierFault),
                "has_fault": Out(1),
                "done": Out(1),
                "can_wait": Out(1),
                "ends_waits": Out(1),
                "outcome": Out(Outcome),
                "conditional_pending": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        op = self._decode()
        fields = self._read_fields(m)
        counts = self._count(m, op, fields)
        self._find_fault(m, op, fields, counts)
        succeeds = Signal()
        m.d.comb += succeeds.eq(~self.has_fault)
        self._change_word(m, op, counts, succeeds)
        self._respond(m, op, fields, counts, succeeds)
        return m

    def _decode(self) -> _Operation:
        """Return the classes that the task belongs to."""
        op = self.task.op.as_value()
        tries = op.matches(BarrierOp.TRY_WAIT, BarrierOp.TRY_WAIT_PARITY)
        return _Operation(
            tries=tries,
            tests=tries | op.matches(BarrierOp.TEST_WAIT, BarrierOp.TEST_WAIT_PARITY),
            drops=op.matches(
                BarrierOp.ARRIVE_DROP,
                BarrierOp.ARRIVE_DROP_NO_COMPLETE,
                BarrierOp.ARRIVE_DROP_EXPECT_TX,
            ),
            must_not_complete=op.matches(
                BarrierOp.ARRIVE_NO_COMPLETE, BarrierOp.ARRIVE_DROP_NO_COMPLETE
            ),
            is_init=self.task.op == BarrierOp.INIT,
            is_inval=self.task.op == BarrierOp.INVAL,
            is_report=self.task.op == BarrierOp.REPORT,
            counts=op.matches(
                BarrierOp.ARRIVE,
                BarrierOp.ARRIVE_NO_COMPLETE,
                BarrierOp.ARRIVE_DROP,
                BarrierOp.ARRIVE_DROP_NO_COMPLETE,
                BarrierOp.ARRIVE_EXPECT_TX,
                BarrierOp.ARRIVE_DROP_EXPECT_TX,
                BarrierOp.EXPECT_TX,
                BarrierOp.COMPLETE_TX,
            ),
        )

    def _read_fields(self, m: Module) -> _Fields:
        """Return the fields of the word, of either layout."""
        task, word = self.task, self.word
        expected = Signal(ARRIVAL_BITS)
        phase = Signal()
        uninitialised = Signal()
        m.d.comb += [
            expected.eq(word.expected),
            phase.eq(word.phase),
            uninitialised.eq(self.word_is_zero),
        ]
        if self.params.mbarrier_v1:
            v1 = data.View(BarrierWordV1, word.as_value())
            with m.If(v1.is_v1):
                high_bits = ARRIVAL_BITS - V1_ARRIVAL_BITS
                m.d.comb += expected.eq(Cat(v1.expected, v1.expected.any().replicate(high_bits)))
            with m.If(task.v1):
                m.d.comb += phase.eq(v1.conditional_phase)
        else:
            with m.If(word.reserved):
                m.d.comb += uninitialised.eq(1)
        return _Fields(expected, phase, uninitialised)

    def _subtract(
        self, m: Module, name: str, stored: Value, arrivals: Value, arrivals_less_one: Value
    ) -> tuple[Signal, Signal, Signal]:
        """Subtract ``arrivals`` from a count that is stored as its negative.

        Returns
        -------
        tuple[Signal, Signal, Signal]
            The count afterwards, stored as its negative; 1 if it is zero; 1 if ``arrivals`` is more
            than the count was. The last comes from ``arrivals_less_one``, which is ready early.
        """
        total = Signal(BARRIER_COUNT_BITS + 1, name=name)
        total_less_one = Signal(BARRIER_COUNT_BITS + 1, name=f"{name}_less_one")
        is_zero = Signal(name=f"{name}_is_zero")
        is_negative = Signal(name=f"{name}_is_negative")
        no_arrivals = arrivals == 0
        # A stored 0 means that no arrival is left. Any other count ends at 2**20.
        m.d.comb += [
            total.eq(stored + arrivals),
            total_less_one.eq(stored + arrivals_less_one),
            is_negative.eq(~no_arrivals & ((stored == 0) | total_less_one[ARRIVAL_BITS:].any())),
        ]
        with m.If(stored == 0):
            m.d.comb += is_zero.eq(no_arrivals)
        with m.Else():
            m.d.comb += is_zero.eq(sum_is_zero(stored, arrivals) & (total[ARRIVAL_BITS:] == 1))
        return total, is_zero, is_negative

    def _count(self, m: Module, op: _Operation, fields: _Fields) -> _Counts:
        """Return the counts after the operation."""
        word, arrivals, tx_increment = self.word, self.task.arrivals, self.task.tx_increment
        arrivals_less_one = Signal(BARRIER_COUNT_BITS)
        m.d.comb += arrivals_less_one.eq(arrivals - 1)
        arrived, all_arrived, over_arrived = self._subtract(
            m, "pending_arrivals", word.pending, arrivals, arrivals_less_one
        )
        remaining, _, over_dropped = self._subtract(
            m, "expected_arrivals", fields.expected, arrivals, arrivals_less_one
        )
        dropped = Mux(op.drops, remaining[:ARRIVAL_BITS], fields.expected)
        tx = Signal(signed(BARRIER_COUNT_BITS + 2))
        tx_less_one = Signal.like(tx)
        tx_increment_less_one = Signal.like(tx)
        tx_low_zero = sum_is_zero(word.tx.as_unsigned()[:ARRIVAL_BITS], tx_increment.as_unsigned())
        too_high, too_low = tx[ARRIVAL_BITS:].any(), ~tx_less_one[ARRIVAL_BITS:].all()
        tx_out_of_range = Signal()
        complete = Signal()
        m.d.comb += [
            tx.eq(word.tx + tx_increment),
            tx_increment_less_one.eq(tx_increment - 1),
            tx_less_one.eq(word.tx + tx_increment_less_one),
            tx_out_of_range.eq(Mux(tx < 0, too_low, too_high)),
            complete.eq(all_arrived & tx_low_zero & ~tx[ARRIVAL_BITS:].any()),
        ]
        return _Counts(arrived, dropped, tx, complete, over_arrived, over_dropped, tx_out_of_range)

    def _find_fault(self, m: Module, op: _Operation, fields: _Fields, counts: _Counts) -> None:
        """Find the first fault that applies. ``has_fault`` does not wait for the order of faults,
        because it is on the longest path.
        """
        task, word, fault = self.task, self.word, self.fault
        has_v1 = self.params.mbarrier_v1
        max_arrivals = (1 << ARRIVAL_BITS) - 1
        if has_v1:
            max_arrivals = Mux(task.v1, (1 << V1_ARRIVAL_BITS) - 1, max_arrivals)
        needs_v1 = op.is_report | (op.tests & task.v1)
        illegal_operation = (self.is_update & ~op.counts) | (
            0 if has_v1 else needs_v1 | (op.is_init & task.v1)
        )
        illegal_count = (task.count == 0) | (task.count > max_arrivals)
        m.d.comb += self.has_fault.eq(
            illegal_operation
            | (op.is_init & illegal_count)
            | (
                (op.counts | op.tests | op.is_report)
                & (
                    word.lock
                    | fields.uninitialised
                    | (needs_v1 & ~word.reserved)
                    | counts.over_arrived
                    | (op.drops & counts.over_dropped)
                    | (op.counts & counts.tx_out_of_range)
                    | (op.must_not_complete & counts.complete)
                )
            )
        )
        with m.If(illegal_operation):
            m.d.comb += fault.eq(BarrierFault.OPERATION)
        with m.Elif(op.is_init):
            with m.If(illegal_count):
                m.d.comb += fault.eq(BarrierFault.COUNT)
        with m.Elif(op.counts | op.tests | op.is_report):
            with m.If(word.lock):
                m.d.comb += fault.eq(BarrierFault.LOCKED)
            with m.Elif(fields.uninitialised):
                m.d.comb += fault.eq(BarrierFault.UNINITIALISED)
            with m.Elif(needs_v1 & ~word.reserved):
                m.d.comb += fault.eq(BarrierFault.OPERATION)
            with m.Elif(counts.over_arrived | (op.drops & counts.over_dropped)):
                m.d.comb += fault.eq(BarrierFault.OVER_ARRIVAL)
            with m.Elif(op.counts & counts.tx_out_of_range):
                m.d.comb += fault.eq(BarrierFault.TX_RANGE)
            with m.Elif(op.must_not_complete & counts.complete):
                m.d.comb += fault.eq(BarrierFault.COMPLETES)

    def _change_word(self, m: Module, op: _Operation, counts: _Counts, succeeds: Signal) -> None:
        """Make the word after the operation."""
        task, word, next_word = self.task, self.word, self.next_word
        v1 = data.View(BarrierWordV1, word.as_value())
        initial = (-task.count)[:ARRIVAL_BITS]
        m.d.comb += next_word.eq(word)
        with m.If(op.is_init | op.is_inval):
            m.d.comb += next_word.eq(0)
            with m.If(op.is_init):
                m.d.comb += [next_word.expected.eq(initial), next_word.pending.eq(initial)]
        with m.Elif(~succeeds):
            m.d.comb += next_word.lock.eq(1)
        with m.Elif(op.counts):
            m.d.comb += [
                next_word.expected.eq(counts.expected),
                next_word.pending.eq(Mux(counts.complete, counts.expected, counts.pending)),
                next_word.tx.eq(counts.tx),
                next_word.phase.eq(word.phase ^ counts.complete),
            ]
        if self.params.mbarrier_v1:
            next_v1 = data.View(BarrierWordV1, next_word.as_value())
            report = Mux(v1.stale, 0, v1.report)
            has_report = v1.is_v1 & (report != 0)
            m.d.comb += self.conditional_pending.eq(op.counts & succeeds & has_report)
            with m.If(op.is_init & task.v1):
                m.d.comb += [
                    next_v1.is_v1.eq(1),
                    next_word.expected.eq(initial[:V1_ARRIVAL_BITS]),
                ]
            with m.Elif(op.counts & succeeds & v1.is_v1):
                m.d.comb += [
                    next_word.expected.eq(word.expected),
                    next_v1.expected.eq(counts.expected),
                ]
                with m.If(counts.complete):
                    m.d.comb += [
                        next_v1.report.eq(report),
                        next_v1.stale.eq(1),
                        next_v1.conditional_phase.eq(v1.conditional_phase ^ ~has_report),
                    ]
            with m.Elif(op.is_report):
                m.d.comb += [next_v1.report.eq(report | task.count), next_v1.stale.eq(0)]

    def _respond(
        self, m: Module, op: _Operation, fields: _Fields, counts: _Counts, succeeds: Signal
    ) -> None:
        """Say whether the word is written, what a test finds, and whether waits end."""
        parity, time_limit = self.task.parity, self.task.time_limit
        m.d.comb += [
            self.write_en.eq(op.counts | (succeeds & (op.is_init | op.is_inval | op.is_report))),
            self.done.eq(op.tests & succeeds & (fields.phase != parity)),
            self.can_wait.eq(op.tries & succeeds & (fields.phase == parity) & (time_limit != 0)),
            self.ends_waits.eq(
                Mux(op.counts, counts.complete | ~succeeds, succeeds & (op.is_init | op.is_inval))
            ),
        ]
        with m.If(~op.counts):
            m.d.comb += self.outcome.eq(Outcome.REMOVED)
        with m.Elif(succeeds):
            m.d.comb += self.outcome.eq(Outcome.COMPLETE)
        with m.Else():
            m.d.comb += self.outcome.eq(Outcome.LOCKED)
