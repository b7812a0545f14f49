"""One operation on the word of a barrier, as a function."""

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
"""Width of a count of arrivals; at most ``2**20 - 1`` are expected in a phase."""

V1_ARRIVAL_BITS = 9
"""The same in layout v1."""

REPORT_BITS = 8
"""Width of the report of layout v1."""


class BarrierWord(data.Struct):
    """A barrier in shared memory.

    Arrivals are stored as the negative of their number, modulo ``2**20``: ``pending`` counts up to
    zero. ``lock`` freezes a barrier that was misused.
    """

    reserved: 1
    expected: ARRIVAL_BITS
    tx: signed(BARRIER_COUNT_BITS)
    lock: 1
    pending: ARRIVAL_BITS
    phase: 1


class BarrierWordV1(data.Struct):
    """A barrier of layout v1.

    Known of it are the 9 bits of ``expected``, that there is a report byte, and a phase that
    depends on it. The rest is this project's choice: the places, and that ``pending``, ``lock``,
    ``tx`` and ``phase`` are where ``BarrierWord`` has them. ``is_v1`` is 1; ``stale``: the report
    is that of a completed phase, none of this one has come.
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
    """An operation on its way to its word: a command with what its ``state`` says taken out.

    ``parity``: the phase that a wait is for. ``count`` of PENDING_COUNT is the result.
    ``arrivals``, ``more_bytes``: what is to be counted.
    """

    op: BarrierOp
    address: SMEM_OFFSET_BITS
    count: BARRIER_COUNT_BITS
    arrivals: BARRIER_COUNT_BITS
    more_bytes: signed(BARRIER_COUNT_BITS + 1)
    parity: 1
    time_limit: TIME_LIMIT_BITS
    v1: 1
    tag: BARRIER_TAG_BITS


def sum_is_zero(a: Value, b: Value) -> Value:
    """Return whether ``a + b`` is 0, modulo the width of ``a``; without a chain of carries."""
    b = b[: len(a)]
    return (a ^ b) == ((a | b) << 1)[: len(a)]


class BarrierStep(wiring.Component):
    """Carries out one operation on one word, in no time; `MbarrierUnit` says what each does.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    task : In(BarrierTask)
    is_update : In(1)
        It came without a place for a result.
    word : In(BarrierWord)
    is_zero : In(1)
        Whether it is 0.
    after : Out(BarrierWord)
    writes : Out(1)
        ``after`` is to be written.
    fault : Out(BarrierFault)
    fails : Out(1)
        There is one.
    done : Out(1)
        A wait finds its phase complete.
    may_wait : Out(1)
        A TRY_WAIT does not, and has time.
    ends_waits : Out(1)
        Waits for the barrier end, with ``outcome``; with ``unmet`` not those for its conditional
        phase.
    outcome : Out(Outcome)
    unmet : Out(1)
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "task": In(BarrierTask),
                "is_update": In(1),
                "word": In(BarrierWord),
                "is_zero": In(1),
                "after": Out(BarrierWord),
                "writes": Out(1),
                "fault": Out(BarrierFault),
                "fails": Out(1),
                "done": Out(1),
                "may_wait": Out(1),
                "ends_waits": Out(1),
                "outcome": Out(Outcome),
                "unmet": Out(1),
            }
        )

    def _arrive(self, m: Module, name: str, stored: Value, arrivals: Value, fewer: Value) -> tuple:
        """Count ``arrivals`` in a stored number; return the number, whether it is the end, and
        whether it is beyond, which ``fewer``, that is one arrival less, says sooner.
        """
        total = Signal(BARRIER_COUNT_BITS + 1, name=name)
        less_one = Signal(BARRIER_COUNT_BITS + 1, name=f"{name}_less_one")
        at_end = Signal(name=f"{name}_at_end")
        beyond = Signal(name=f"{name}_beyond")
        none = arrivals == 0
        m.d.comb += [
            total.eq(stored + arrivals),
            less_one.eq(stored + fewer),
            beyond.eq(~none & ((stored == 0) | less_one[ARRIVAL_BITS:].any())),
        ]
        with m.If(stored == 0):
            m.d.comb += at_end.eq(none)
        with m.Else():
            m.d.comb += at_end.eq(sum_is_zero(stored, arrivals) & (total[ARRIVAL_BITS:] == 1))
        return total, at_end, beyond

    def elaborate(self, platform) -> Module:
        m = Module()
        has_v1 = self.params.mbarrier_v1
        task, word, after, fault = self.task, self.word, self.after, self.fault
        v1 = data.View(BarrierWordV1, word.as_value())

        # What the operation asks for.
        op = task.op.as_value()
        tries = op.matches(BarrierOp.TRY_WAIT, BarrierOp.TRY_WAIT_PARITY)
        tests = tries | op.matches(BarrierOp.TEST_WAIT, BarrierOp.TEST_WAIT_PARITY)
        drops = op.matches(
            BarrierOp.ARRIVE_DROP,
            BarrierOp.ARRIVE_DROP_NO_COMPLETE,
            BarrierOp.ARRIVE_DROP_EXPECT_TX,
        )
        must_not_complete = op.matches(
            BarrierOp.ARRIVE_NO_COMPLETE, BarrierOp.ARRIVE_DROP_NO_COMPLETE
        )
        is_init = task.op == BarrierOp.INIT
        is_inval = task.op == BarrierOp.INVAL
        is_report = task.op == BarrierOp.REPORT
        counts = op.matches(
            BarrierOp.ARRIVE,
            BarrierOp.ARRIVE_NO_COMPLETE,
            BarrierOp.ARRIVE_DROP,
            BarrierOp.ARRIVE_DROP_NO_COMPLETE,
            BarrierOp.ARRIVE_EXPECT_TX,
            BarrierOp.ARRIVE_DROP_EXPECT_TX,
            BarrierOp.EXPECT_TX,
            BarrierOp.COMPLETE_TX,
        )
        arrivals, more_bytes = task.arrivals, task.more_bytes

        # The fields of the word, of either layout.
        expected = Signal(ARRIVAL_BITS)
        phase = Signal()
        uninitialised = Signal()
        m.d.comb += [
            expected.eq(word.expected),
            phase.eq(word.phase),
            uninitialised.eq(self.is_zero),
        ]
        if has_v1:
            with m.If(v1.is_v1):
                more = ARRIVAL_BITS - V1_ARRIVAL_BITS
                m.d.comb += expected.eq(Cat(v1.expected, v1.expected.any().replicate(more)))
            with m.If(task.v1):
                m.d.comb += phase.eq(v1.conditional_phase)
        else:
            with m.If(word.reserved):
                m.d.comb += uninitialised.eq(1)

        # What they become. With no arrival pending, the stored 0 stands for 2**20, the end.
        fewer = Signal(BARRIER_COUNT_BITS)
        m.d.comb += fewer.eq(arrivals - 1)
        arrived, all_arrived, over_arrived = self._arrive(
            m, "arrived", word.pending, arrivals, fewer
        )
        left, _, over_dropped = self._arrive(m, "left", expected, arrivals, fewer)
        dropped = Mux(drops, left[:ARRIVAL_BITS], expected)
        tx = Signal(signed(BARRIER_COUNT_BITS + 2))
        tx_less_one = Signal.like(tx)
        fewer_bytes = Signal.like(tx)
        tx_low_zero = sum_is_zero(word.tx.as_unsigned()[:ARRIVAL_BITS], more_bytes.as_unsigned())
        too_high, too_low = tx[ARRIVAL_BITS:].any(), ~tx_less_one[ARRIVAL_BITS:].all()
        tx_out_of_range = Signal()
        complete = Signal()
        m.d.comb += [
            tx.eq(word.tx + more_bytes),
            fewer_bytes.eq(more_bytes - 1),
            tx_less_one.eq(word.tx + fewer_bytes),
            tx_out_of_range.eq(Mux(tx < 0, too_low, too_high)),
            complete.eq(all_arrived & tx_low_zero & ~tx[ARRIVAL_BITS:].any()),
        ]

        # The first error that applies, and, sooner, whether one does.
        most = (1 << ARRIVAL_BITS) - 1
        if has_v1:
            most = Mux(task.v1, (1 << V1_ARRIVAL_BITS) - 1, most)
        wants_v1 = is_report | (tests & task.v1)
        is_operation = (self.is_update & ~counts) | (
            0 if has_v1 else wants_v1 | (is_init & task.v1)
        )
        is_count = (task.count == 0) | (task.count > most)
        m.d.comb += self.fails.eq(
            is_operation
            | (is_init & is_count)
            | (
                (counts | tests | is_report)
                & (
                    word.lock
                    | uninitialised
                    | (wants_v1 & ~word.reserved)
                    | over_arrived
                    | (drops & over_dropped)
                    | (counts & tx_out_of_range)
                    | (must_not_complete & complete)
                )
            )
        )
        with m.If(is_operation):
            m.d.comb += fault.eq(BarrierFault.OPERATION)
        with m.Elif(is_init):
            with m.If(is_count):
                m.d.comb += fault.eq(BarrierFault.COUNT)
        with m.Elif(counts | tests | is_report):
            with m.If(word.lock):
                m.d.comb += fault.eq(BarrierFault.LOCKED)
            with m.Elif(uninitialised):
                m.d.comb += fault.eq(BarrierFault.UNINITIALISED)
            with m.Elif(wants_v1 & ~word.reserved):
                m.d.comb += fault.eq(BarrierFault.OPERATION)
            with m.Elif(over_arrived | (drops & over_dropped)):
                m.d.comb += fault.eq(BarrierFault.OVER_ARRIVAL)
            with m.Elif(counts & tx_out_of_range):
                m.d.comb += fault.eq(BarrierFault.TX_RANGE)
            with m.Elif(must_not_complete & complete):
                m.d.comb += fault.eq(BarrierFault.COMPLETES)

        # The word afterwards.
        taken = Signal()
        m.d.comb += [taken.eq(~self.fails), after.eq(word)]
        initial = (-task.count)[:ARRIVAL_BITS]
        with m.If(is_init | is_inval):
            m.d.comb += after.eq(0)
            with m.If(is_init):
                m.d.comb += [after.expected.eq(initial), after.pending.eq(initial)]
        with m.Elif(~taken):
            m.d.comb += after.lock.eq(1)
        with m.Elif(counts):
            m.d.comb += [
                after.expected.eq(dropped),
                after.pending.eq(Mux(complete, dropped, arrived)),
                after.tx.eq(tx),
                after.phase.eq(word.phase ^ complete),
            ]
        if has_v1:
            v1_after = data.View(BarrierWordV1, after.as_value())
            report = Mux(v1.stale, 0, v1.report)
            keeps = v1.is_v1 & (report != 0)
            m.d.comb += self.unmet.eq(counts & taken & keeps)
            with m.If(is_init & task.v1):
                m.d.comb += [v1_after.is_v1.eq(1), after.expected.eq(initial[:V1_ARRIVAL_BITS])]
            with m.Elif(counts & taken & v1.is_v1):
                m.d.comb += [after.expected.eq(word.expected), v1_after.expected.eq(dropped)]
                with m.If(complete):
                    m.d.comb += [
                        v1_after.report.eq(report),
                        v1_after.stale.eq(1),
                        v1_after.conditional_phase.eq(v1.conditional_phase ^ ~keeps),
                    ]
            with m.Elif(is_report):
                m.d.comb += [v1_after.report.eq(report | task.count), v1_after.stale.eq(0)]
        m.d.comb += [
            self.writes.eq(counts | (taken & (is_init | is_inval | is_report))),
            self.done.eq(tests & taken & (phase != task.parity)),
            self.may_wait.eq(tries & taken & (phase == task.parity) & (task.time_limit != 0)),
            self.ends_waits.eq(Mux(counts, complete | ~taken, taken & (is_init | is_inval))),
        ]
        with m.If(~counts):
            m.d.comb += self.outcome.eq(Outcome.REMOVED)
        with m.Elif(taken):
            m.d.comb += self.outcome.eq(Outcome.COMPLETE)
        with m.Else():
            m.d.comb += self.outcome.eq(Outcome.LOCKED)
        return m
