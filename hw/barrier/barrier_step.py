"""Barrier step: applies one operation to the word of a barrier, combinationally."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
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
from hw.lib.zero_sum import sum_is_zero
from hw.params import SMEM_OFFSET_BITS, TmaParams

ARRIVAL_BITS = 20
"""Width of an arrival count. A phase expects at most ``2**20 - 1`` arrivals."""

V1_ARRIVAL_BITS = 9
"""Width of the expected arrival count in layout v1."""

REPORT_BITS = 8
"""Width of the report in layout v1."""

NOT_VALID = 1
"""Report of a load whose data has the pattern that it reports (choice)."""


class BarrierWord(data.Struct):
    """Word of a barrier in shared memory (layout v0), as silicon has it.

    All counts are stored as their negative. Arrival counts are modulo ``2**20``, so that
    ``pending`` counts up to zero.

    Members
    -------
    ignored : kept as it is; 1 marks layout v1 in a unit with ``mbarrier_v1``
    expected : arrivals that each phase expects, negative
    tx : bytes that came in this phase, less the bytes that were expected
    lock : 1 after an error; the barrier then refuses all operations but INIT and INVAL
    pending : arrivals that are still to come in this phase, negative
    phase : parity of the current phase
    """

    ignored: 1
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
    op, address, tag : as in `BarrierCommand`
    v1 : of a command as in `BarrierCommand`; of an update ``reports``, with ``report_mechanism``
    operand : INIT: the word. NO_COMPLETE forms: mask of the lanes. REPORT: the report. TRY_WAIT and
        TRY_WAIT_PARITY: the time limit
    too_large : a count of the operation is illegal
    arrivals : arrivals that the operation counts
    tx_increment : bytes that the operation counts; negative for those that are expected.
        PENDING_COUNT: the result in the low 20 bits
    parity : parity of the phase that a test or wait asks for
    """

    op: BarrierOp
    address: SMEM_OFFSET_BITS
    operand: 64
    too_large: 1
    arrivals: ARRIVAL_BITS
    tx_increment: signed(BARRIER_COUNT_BITS)
    parity: 1
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
    is_init: Value
    is_report: Value
    counts: Value
    """Operations that count arrivals or bytes."""
    reports: Value
    """Updates that count bytes and report NOT_VALID."""


@dataclass(frozen=True)
class _Fields:
    """Fields of the word that both layouts have, decoded."""

    expected: Signal
    phase: Signal
    """Phase that the task asks for: the conditional phase with ``task.v1``."""


@dataclass(frozen=True)
class _Counts:
    """Counts after the operation, if it succeeds; stored as in the word."""

    pending: Signal
    expected: Signal
    tx: Signal
    complete: Signal
    """The phase completes."""
    over_arrived: Signal
    """More arrivals than are pending."""
    tx_out_of_range: Signal


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
        The operation ends the waits for the phase of the barrier.
    ends_conditional_waits : Out(1)
        The operation ends the waits for the conditional phase of the barrier; 0 without
        ``mbarrier_v1``.
    outcome : Out(Outcome)
        The reason why the waits end.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "task": In(BarrierTask),
                "is_update": In(1),
                "word": In(BarrierWord),
                "next_word": Out(BarrierWord),
                "write_en": Out(1),
                "fault": Out(BarrierFault),
                "has_fault": Out(1),
                "done": Out(1),
                "can_wait": Out(1),
                "ends_waits": Out(1),
                "ends_conditional_waits": Out(1),
                "outcome": Out(Outcome),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        op = self._decode()
        fields = self._read_fields(m)
        counts = self._count(m, op, fields)
        self._find_fault(m, op, counts)
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
            is_init=(self.task.op == BarrierOp.INIT) & ~self.is_update,
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
            reports=(
                (self.task.op == BarrierOp.COMPLETE_TX) & self.is_update & self.task.v1
                if self.params.report_mechanism
                else Const(0, 1)
            ),
        )

    def _read_fields(self, m: Module) -> _Fields:
        """Return the fields of the word, of either layout."""
        task, word = self.task, self.word
        expected = Signal(ARRIVAL_BITS)
        phase = Signal()
        m.d.comb += [expected.eq(word.expected), phase.eq(word.phase)]
        if self.params.mbarrier_v1:
            v1 = data.View(BarrierWordV1, word.as_value())
            with m.If(v1.is_v1):
                high_bits = ARRIVAL_BITS - V1_ARRIVAL_BITS
                m.d.comb += expected.eq(Cat(v1.expected, v1.expected.any().replicate(high_bits)))
            with m.If(task.v1):
                m.d.comb += phase.eq(v1.conditional_phase)
        return _Fields(expected, phase)

    def _count(self, m: Module, op: _Operation, fields: _Fields) -> _Counts:
        """Return the counts after the operation."""
        word, arrivals, tx_increment = self.word, self.task.arrivals, self.task.tx_increment
        pending = Signal(ARRIVAL_BITS + 1)
        expected = Signal(ARRIVAL_BITS)
        tx = Signal(signed(BARRIER_COUNT_BITS + 1))
        all_arrived = Signal()
        over_arrived = Signal()
        tx_out_of_range = Signal()
        complete = Signal()
        # A stored 0 means that no arrival is left. Any other count ends at 2**20.
        m.d.comb += [
            pending.eq(word.pending + arrivals),
            all_arrived.eq(sum_is_zero(word.pending, arrivals)),
            over_arrived.eq(~all_arrived & ((word.pending == 0) | pending[-1])),
            expected.eq(fields.expected + Mux(op.drops, arrivals, 0)),
            tx.eq(word.tx + tx_increment),
            tx_out_of_range.eq(tx[-1] ^ tx[-2]),
            complete.eq(
                all_arrived & sum_is_zero(word.tx.as_unsigned(), tx_increment.as_unsigned())
            ),
        ]
        return _Counts(pending, expected, tx, complete, over_arrived, tx_out_of_range)

    def _find_fault(self, m: Module, op: _Operation, counts: _Counts) -> None:
        """Find the first fault that applies. ``has_fault`` does not wait for the order of faults,
        because it is on the longest path.
        """
        task, word, fault = self.task, self.word, self.fault
        needs_v1 = op.is_report | (op.tests & task.v1) | op.reports
        has_v1 = self.params.mbarrier_v1
        illegal_operation = (self.is_update & ~op.counts) | (0 if has_v1 else needs_v1)
        uses_word = op.counts | op.tests | op.is_report
        is_locked = uses_word & word.lock & ~self.is_update
        is_not_v1 = needs_v1 & ~word.ignored if has_v1 else Const(0, 1)
        m.d.comb += self.has_fault.eq(
            illegal_operation
            | is_locked
            | is_not_v1
            | (op.counts & (task.too_large | counts.over_arrived | counts.tx_out_of_range))
        )
        with m.If(illegal_operation):
            m.d.comb += fault.eq(BarrierFault.OPERATION)
        with m.Elif(is_locked):
            m.d.comb += fault.eq(BarrierFault.LOCKED)
        with m.Elif(op.counts):
            with m.If(task.too_large):
                m.d.comb += fault.eq(BarrierFault.COUNT)
            with m.Elif(counts.over_arrived):
                m.d.comb += fault.eq(BarrierFault.OVER_ARRIVAL)
            with m.Elif(counts.tx_out_of_range):
                m.d.comb += fault.eq(BarrierFault.TX_RANGE)
            if self.params.report_mechanism:
                with m.Elif(is_not_v1):
                    m.d.comb += fault.eq(BarrierFault.OPERATION)
        if has_v1:
            with m.Elif(is_not_v1):
                m.d.comb += fault.eq(BarrierFault.OPERATION)

    def _change_word(self, m: Module, op: _Operation, counts: _Counts, succeeds: Signal) -> None:
        """Make the word after the operation."""
        word, next_word = self.word, self.next_word
        m.d.comb += next_word.eq(word)
        with m.If(op.is_init):
            m.d.comb += next_word.eq(self.task.operand)
        with m.Elif(~succeeds):
            m.d.comb += next_word.lock.eq(1)
        with m.Elif(op.counts):
            m.d.comb += [
                next_word.lock.eq(0),
                next_word.expected.eq(counts.expected),
                next_word.pending.eq(Mux(counts.complete, counts.expected, counts.pending)),
                next_word.tx.eq(counts.tx),
                next_word.phase.eq(word.phase ^ counts.complete),
            ]
        if self.params.mbarrier_v1:
            v1 = data.View(BarrierWordV1, word.as_value())
            next_v1 = data.View(BarrierWordV1, next_word.as_value())
            report = Mux(v1.stale, 0, v1.report)
            if self.params.report_mechanism:
                report = report | op.reports * NOT_VALID
            with m.If(op.counts & succeeds & v1.is_v1):
                m.d.comb += [
                    next_word.expected.eq(word.expected),
                    next_v1.expected.eq(counts.expected),
                ]
                if self.params.report_mechanism:
                    with m.If(op.reports):
                        m.d.comb += [next_v1.report.eq(report), next_v1.stale.eq(0)]
                with m.If(counts.complete):
                    m.d.comb += [
                        next_v1.report.eq(report),
                        next_v1.stale.eq(1),
                        next_v1.conditional_phase.eq(v1.conditional_phase ^ (report == 0)),
                    ]
            with m.Elif(op.is_report):
                m.d.comb += [next_v1.report.eq(report | self.task.operand), next_v1.stale.eq(0)]

    def _respond(
        self, m: Module, op: _Operation, fields: _Fields, counts: _Counts, succeeds: Signal
    ) -> None:
        """Say whether the word is written, what a test finds, and which waits end."""
        task, word = self.task, self.word
        time_limit = task.operand[:TIME_LIMIT_BITS]
        new_word = data.View(BarrierWord, task.operand)
        m.d.comb += [
            self.write_en.eq(op.counts | op.is_init | (succeeds & op.is_report)),
            self.done.eq(op.tests & succeeds & (fields.phase != task.parity)),
            self.can_wait.eq(
                op.tries & succeeds & (fields.phase == task.parity) & time_limit.any()
            ),
            self.ends_waits.eq(
                Mux(
                    op.counts,
                    counts.complete | ~succeeds,
                    op.is_init & (word.phase != new_word.phase),
                )
            ),
            self.outcome.eq(Mux(op.counts & ~succeeds, Outcome.LOCKED, Outcome.COMPLETE)),
        ]
        if self.params.mbarrier_v1:
            v1 = data.View(BarrierWordV1, word.as_value())
            new_v1 = data.View(BarrierWordV1, task.operand)
            has_report = v1.is_v1 & ((~v1.stale & (v1.report != 0)) | op.reports)
            m.d.comb += self.ends_conditional_waits.eq(
                Mux(
                    op.counts,
                    (counts.complete & ~has_report) | ~succeeds,
                    op.is_init & (v1.conditional_phase != new_v1.conditional_phase),
                )
            )
