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


class InitFlags(data.Struct):
    """Fields of `BarrierWord` that no operation counts."""

    ignored: 1
    lock: 1
    phase: 1


class BarrierTask(data.Struct):
    """Operation with its operands decoded.

    Members
    -------
    op, address, tag : as in `BarrierCommand`
    v1 : of a command as in `BarrierCommand`; of an update ``reports``, with ``report_mechanism``
    operand : NO_COMPLETE forms: mask of the lanes. REPORT: the report. TRY_WAIT and
        TRY_WAIT_PARITY: the time limit
    too_large : a count of the operation is illegal
    is_init : a command INIT. The word counts as 0, so that ``arrivals``, ``expected_increment``,
        ``tx_increment`` and ``init`` are the fields of the new one
    arrivals : arrivals that the operation counts
    arrives, arrivals_less_one : ``arrivals`` is not 0; ``arrivals - 1``, which has a meaning then
    expected_increment : of those, the arrivals that later phases do not expect
    tx_increment : bytes that the operation counts; negative for those that are expected.
        PENDING_COUNT: the result in the low 20 bits
    init : of a command INIT, the other fields of the new word; otherwise 0
    parity : parity of the phase that a test or wait asks for
    """

    op: BarrierOp
    address: SMEM_OFFSET_BITS
    operand: TIME_LIMIT_BITS
    too_large: 1
    is_init: 1
    arrivals: ARRIVAL_BITS
    arrives: 1
    arrivals_less_one: ARRIVAL_BITS
    expected_increment: ARRIVAL_BITS
    tx_increment: signed(BARRIER_COUNT_BITS)
    init: InitFlags
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
    is_report: Value
    counts: Value
    """Operations that count arrivals or bytes."""
    reports: Value
    """Updates that count bytes and report NOT_VALID."""


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
        stored = Signal(BarrierWord)
        # One LUT with the choice of a forwarded word: INIT is in no later choice.
        m.d.comb += stored.eq(Mux(self.task.is_init, 0, self.word.as_value()))
        counts = self._count(m, op, stored)
        self._find_fault(m, op, counts)
        succeeds = Signal()
        m.d.comb += succeeds.eq(~self.has_fault)
        self._change_word(m, op, stored, counts, succeeds)
        self._respond(m, op, self._find_phase(m), counts, succeeds)
        return m

    def _decode(self) -> _Operation:
        """Return the classes that the task belongs to."""
        op = self.task.op.as_value()
        tries = op.matches(BarrierOp.TRY_WAIT, BarrierOp.TRY_WAIT_PARITY)
        return _Operation(
            tries=tries,
            tests=tries | op.matches(BarrierOp.TEST_WAIT, BarrierOp.TEST_WAIT_PARITY),
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

    def _find_phase(self, m: Module) -> Signal:
        """Return the phase that the task asks for: the conditional phase with ``task.v1``."""
        phase = Signal()
        m.d.comb += phase.eq(self.word.phase)
        if self.params.mbarrier_v1:
            with m.If(self.task.v1):
                v1 = data.View(BarrierWordV1, self.word.as_value())
                m.d.comb += phase.eq(v1.conditional_phase)
        return phase

    def _find_expected(self, m: Module, stored: data.View) -> Signal:
        """Return the arrivals that each phase expects, of either layout."""
        expected = Signal(ARRIVAL_BITS)
        m.d.comb += expected.eq(stored.expected)
        if self.params.mbarrier_v1:
            v1 = data.View(BarrierWordV1, stored.as_value())
            with m.If(v1.is_v1):
                high_bits = ARRIVAL_BITS - V1_ARRIVAL_BITS
                m.d.comb += expected.eq(Cat(v1.expected, v1.expected.any().replicate(high_bits)))
        return expected

    def _count(self, m: Module, op: _Operation, stored: data.View) -> _Counts:
        """Return the counts after the operation."""
        arrivals, tx_increment = self.task.arrivals, self.task.tx_increment
        pending = Signal(ARRIVAL_BITS)
        expected = Signal(ARRIVAL_BITS)
        tx = Signal(signed(BARRIER_COUNT_BITS + 1))
        all_arrived = Signal()
        over_arrived = Signal()
        tx_out_of_range = Signal()
        complete = Signal()
        # A stored 0 means that no arrival is left. Any other count ends at 2**20: there are more
        # arrivals than are pending if one arrival less reaches that. This does not wait for the
        # comparison of the sum with 0.
        exceeds = (stored.pending + self.task.arrivals_less_one)[-1]
        m.d.comb += [
            pending.eq(stored.pending + arrivals),
            all_arrived.eq(sum_is_zero(stored.pending, arrivals)),
            over_arrived.eq(self.task.arrives & ((stored.pending == 0) | exceeds)),
            expected.eq(self._find_expected(m, stored) + self.task.expected_increment),
            tx.eq(stored.tx + tx_increment),
            tx_out_of_range.eq(tx[-1] ^ tx[-2]),
            complete.eq(
                op.counts
                & all_arrived
                & sum_is_zero(stored.tx.as_unsigned(), tx_increment.as_unsigned())
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

    def _change_word(
        self, m: Module, op: _Operation, stored: data.View, counts: _Counts, succeeds: Signal
    ) -> None:
        """Make the word after the operation."""
        word, next_word, init = self.word, self.next_word, self.task.init
        m.d.comb += [
            next_word.ignored.eq(stored.ignored | init.ignored),
            next_word.expected.eq(Mux(succeeds, counts.expected, stored.expected)),
            next_word.tx.eq(Mux(succeeds, counts.tx, stored.tx)),
            next_word.lock.eq(~succeeds | init.lock),
            next_word.pending.eq(
                Mux(succeeds, Mux(counts.complete, counts.expected, counts.pending), stored.pending)
            ),
            next_word.phase.eq(stored.phase ^ (init.phase | (counts.complete & succeeds))),
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
                m.d.comb += [
                    next_word.expected.eq(word.expected),
                    next_v1.report.eq(report | self.task.operand),
                    next_v1.stale.eq(0),
                ]

    def _respond(
        self, m: Module, op: _Operation, phase: Signal, counts: _Counts, succeeds: Signal
    ) -> None:
        """Say whether the word is written, what a test finds, and which waits end."""
        task, word = self.task, self.word
        m.d.comb += [
            self.write_en.eq(op.counts | task.is_init | (succeeds & op.is_report)),
            self.done.eq(op.tests & succeeds & (phase != task.parity)),
            self.can_wait.eq(op.tries & succeeds & (phase == task.parity) & task.operand.any()),
            self.ends_waits.eq(
                Mux(
                    op.counts,
                    counts.complete | ~succeeds,
                    task.is_init & (word.phase != task.init.phase),
                )
            ),
            self.outcome.eq(Mux(op.counts & ~succeeds, Outcome.LOCKED, Outcome.COMPLETE)),
        ]
        if self.params.mbarrier_v1:
            v1 = data.View(BarrierWordV1, word.as_value())
            of_init = Cat(task.init.ignored, task.expected_increment, Const(0, 64))[:64]
            new_v1 = data.View(BarrierWordV1, of_init)
            has_report = v1.is_v1 & ((~v1.stale & (v1.report != 0)) | op.reports)
            m.d.comb += self.ends_conditional_waits.eq(
                Mux(
                    op.counts,
                    (counts.complete & ~has_report) | ~succeeds,
                    task.is_init & (v1.conditional_phase != new_v1.conditional_phase),
                )
            )
