"""Hopper's mbarrier objects: 64-bit words in shared memory, one operation a clock."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.barrier_waiters import BarrierWaiters, Outcome
from hw.layouts import (
    BARRIER_COUNT_BITS,
    BARRIER_TAG_BITS,
    BARRIER_WORD_ADDRESS_BITS,
    TIME_LIMIT_BITS,
    BarrierCommand,
    BarrierFault,
    BarrierOp,
    BarrierResult,
    BarrierWake,
    barrier_fault_layout,
    barrier_update_layout,
)
from hw.params import SMEM_OFFSET_BITS, TmaParams
from hw.queue import Queue

ARRIVAL_BITS = 20
"""Width of a count of arrivals; at most ``2**20 - 1`` are expected in a phase."""

V1_ARRIVAL_BITS = 9
"""The same in layout v1."""

REPORT_BITS = 8
"""Width of the report of layout v1."""

REPORTS = 4
"""Results, and faults, that wait at their port before operations that may need one have to."""


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


class _Task(data.Struct):
    """An operation on its way to its word: a command with what its ``state`` says taken out.

    ``parity``: the phase that a wait is for. ``count`` of PENDING_COUNT is the result.
    """

    op: BarrierOp
    address: SMEM_OFFSET_BITS
    count: BARRIER_COUNT_BITS
    parity: 1
    time_limit: TIME_LIMIT_BITS
    v1: 1
    tag: BARRIER_TAG_BITS


class BarrierMemory(wiring.Signature):
    """A port for 64-bit words, always ready; addresses are byte offsets divided by 8.

    Members
    -------
    read_en : Out(1)
    read_address : Out(21)
    read_data : In(64)
        The word, in the clock after ``read_en``, without a write of the same clock as ``read_en``.
    write_en : Out(1)
    write_address : Out(21)
    write_data : Out(64)
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "read_en": Out(1),
                "read_address": Out(BARRIER_WORD_ADDRESS_BITS),
                "read_data": In(64),
                "write_en": Out(1),
                "write_address": Out(BARRIER_WORD_ADDRESS_BITS),
                "write_data": Out(64),
            }
        )


class MbarrierUnit(wiring.Component):
    """Applies the operations of threads and the ``complete_tx`` of units to barriers.

    ==========================  ===================================================================
    INIT                        expect ``count`` arrivals, from 1 to ``2**20 - 1``, in phase 0
    INVAL                       write zero: plain memory
    ARRIVE                      ``count`` arrivals, then the check
    ARRIVE_DROP                 the same, and as many less are expected from the next phase on
    ARRIVE(_DROP)_NO_COMPLETE   the same, but it is an error if the phase is complete
    ARRIVE(_DROP)_EXPECT_TX     ``count`` more bytes to come and one arrival, then the check
    EXPECT_TX                   ``count`` more bytes to come, then the check
    COMPLETE_TX                 ``count`` bytes came, then the check
    TEST_WAIT_PARITY            whether phase ``count[0]`` is complete: the phase is another
    TEST_WAIT                   whether the phase of ``state`` is complete
    TRY_WAIT(_PARITY)           the same; if it is not, the thread waits for it
    PENDING_COUNT               the arrivals pending in ``state``
    REPORT                      add ``count[7:0]`` to the report, bit by bit; ``mbarrier_v1`` only
    ==========================  ===================================================================

    The check: when no arrival is pending and no byte is to come, the phase flips and the expected
    arrivals are pending again, in one step with the operation.

    Waits. A TRY_WAIT whose phase is not complete takes a place among ``barrier_waiters`` and its
    result says ``waits``; it takes no more turns here. Its one ``wake`` says that the phase is
    complete, that ``time_limit`` clocks are over, or, as a fault, that an error has locked the
    barrier (LOCKED) or INVAL or INIT has ended it (UNINITIALISED). Without a free place, or with a
    ``time_limit`` of 0, the result is that of a TEST_WAIT. A wake does not wait for its result: it
    may be the first, if the result is held up.

    Layout v1, with ``mbarrier_v1``; what it does is this project's choice. INIT with ``v1`` makes
    such a barrier, of 511 arrivals at most. It has a report, which REPORT adds to; the first one
    of a phase starts anew. When a phase is complete the conditional phase flips, too, if the report
    of that phase is 0 or there was none. Waits with ``v1`` are for the conditional phase, in
    ``state`` as elsewhere.

    Errors, the first that applies:

    ================  =============================================================================
    OPERATION         REPORT or ``v1`` without ``mbarrier_v1``; an update that neither arrives nor
                      counts bytes
    COUNT             INIT: not so many
    LOCKED            all but INIT, INVAL and PENDING_COUNT: an earlier error has locked the barrier
    UNINITIALISED     the same: the word is 0, or bit 0 is set without ``mbarrier_v1``
    OPERATION         REPORT, or a wait with ``v1``, for a barrier that is not of layout v1
    OVER_ARRIVAL      more arrivals than are pending, or more dropped than are expected
    TX_RANGE          bytes to come outside ``-(2**20 - 1)`` to ``2**20 - 1``
    COMPLETES         NO_COMPLETE: the phase is complete
    ================  =============================================================================

    An error of an arrival or of bytes sets ``lock`` and changes nothing else, whatever the word is;
    other errors write nothing. The error of a command is in its result; that of an update is
    reported at ``fault``. A barrier that expects no arrivals, because all were dropped, may look
    uninitialised. The low three bits of an address are ignored: alignment is checked where a
    request is.

    Order: operations take effect one after another in the order of their acceptance; a wait is
    answered by the first event behind it. Latency: the word is read in the clock of acceptance,
    written in the next, and the result offered in the one after; the first wake is offered three
    clocks after the acceptance of the operation that is its reason, the others in the clocks behind
    it. A wake for want of time is offered ``time_limit + 3`` to ``time_limit + 3 +
    barrier_waiters`` clocks after acceptance, if no others leave. Throughput: one operation a
    clock, on any mix of barriers or on one. Arbitration: while both ports wait they take turns, so
    that each waits at most one clock for the other. Back-pressure: commands wait while
    ``REPORTS - 1`` results are held up, updates (never commands) while as many faults are; neither
    holds up the other. Wakes that are held up keep their places.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    command : In(stream.Signature(BarrierCommand))
    result : Out(stream.Signature(BarrierResult))
        One for each command, in order.
    wake : Out(stream.Signature(BarrierWake))
        One for each result that says ``waits``.
    update : In(stream.Signature(barrier_update_layout(params)))
    fault : Out(stream.Signature(barrier_fault_layout(params)))
    memory : Out(BarrierMemory())
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "command": In(stream.Signature(BarrierCommand)),
                "result": Out(stream.Signature(BarrierResult)),
                "wake": Out(stream.Signature(BarrierWake)),
                "update": In(stream.Signature(barrier_update_layout(params))),
                "fault": Out(stream.Signature(barrier_fault_layout(params))),
                "memory": Out(BarrierMemory()),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        has_v1 = self.params.mbarrier_v1
        m.submodules.results = results = Queue(BarrierResult, REPORTS)
        m.submodules.faults = faults = Queue(barrier_fault_layout(self.params), REPORTS)
        m.submodules.waiters = waiters = BarrierWaiters(self.params)
        connect(m, results.o, flipped(self.result))
        connect(m, faults.o, flipped(self.fault))
        connect(m, waiters.wake, flipped(self.wake))

        # Accept one operation and read its word. One more may be on its way to each queue of
        # reports than ``level`` says.
        may_command = Signal()
        may_update = Signal()
        updated_last = Signal()
        m.d.comb += [
            may_command.eq(self.command.valid & (results.level < REPORTS - 1)),
            may_update.eq(self.update.valid & (faults.level < REPORTS - 1)),
            self.update.ready.eq(may_update & ~(may_command & updated_last)),
            self.command.ready.eq(may_command & ~self.update.ready),
        ]
        offered = Signal(_Task)
        command = self.command.p
        with m.If(self.update.ready):
            m.d.comb += [
                offered.op.eq(self.update.p.op),
                offered.address.eq(self.update.p.address),
                offered.count.eq(self.update.p.count),
            ]
        with m.Else():
            m.d.comb += [
                *(offered[name].eq(command[name]) for name in ("op", "address", "count")),
                *(offered[name].eq(command[name]) for name in ("time_limit", "v1", "tag")),
            ]
            with m.Switch(command.op):
                with m.Case(BarrierOp.TEST_WAIT_PARITY, BarrierOp.TRY_WAIT_PARITY):
                    m.d.comb += offered.parity.eq(command.count[0])
                with m.Case(BarrierOp.PENDING_COUNT):
                    pending = data.View(BarrierWord, command.state).pending
                    m.d.comb += offered.count.eq((-pending)[:ARRIVAL_BITS])
                with m.Default():
                    m.d.comb += offered.parity.eq(data.View(BarrierWord, command.state).phase)
                    if has_v1:
                        state = data.View(BarrierWordV1, command.state)
                        with m.If(command.v1):
                            m.d.comb += offered.parity.eq(state.conditional_phase)

        commanded = Signal()
        updated = Signal()
        task = Signal(_Task, reset_less=True)
        updating = Signal(barrier_update_layout(self.params), reset_less=True)
        m.d.comb += [
            self.memory.read_en.eq(self.command.ready | self.update.ready),
            self.memory.read_address.eq(offered.address[-BARRIER_WORD_ADDRESS_BITS:]),
        ]
        m.d.sync += [
            commanded.eq(self.command.ready),
            updated.eq(self.update.ready),
        ]
        with m.If(self.memory.read_en):
            m.d.sync += [
                task.eq(offered),
                updating.eq(self.update.p),
                updated_last.eq(self.update.ready),
            ]

        # The read did not see what was written in the same clock.
        forward = Signal()
        written = Signal(64, reset_less=True)
        word = Signal(BarrierWord)
        m.d.sync += [
            forward.eq(
                self.memory.write_en & (self.memory.write_address == self.memory.read_address)
            ),
            written.eq(self.memory.write_data),
        ]
        m.d.comb += word.eq(Mux(forward, written, self.memory.read_data))

        # What the operation asks for.
        counts = Signal()  # arrives or counts bytes
        tests = Signal()
        tries = Signal()
        drops = Signal()
        must_not_complete = Signal()
        is_init = task.op == BarrierOp.INIT
        is_inval = task.op == BarrierOp.INVAL
        is_report = task.op == BarrierOp.REPORT
        arrivals = Signal(BARRIER_COUNT_BITS)
        more_bytes = Signal(signed(BARRIER_COUNT_BITS + 1))
        with m.Switch(task.op):
            with m.Case(
                BarrierOp.ARRIVE,
                BarrierOp.ARRIVE_NO_COMPLETE,
                BarrierOp.ARRIVE_DROP,
                BarrierOp.ARRIVE_DROP_NO_COMPLETE,
            ):
                m.d.comb += [counts.eq(1), arrivals.eq(task.count)]
            with m.Case(BarrierOp.ARRIVE_EXPECT_TX, BarrierOp.ARRIVE_DROP_EXPECT_TX):
                m.d.comb += [counts.eq(1), arrivals.eq(1), more_bytes.eq(task.count)]
            with m.Case(BarrierOp.EXPECT_TX):
                m.d.comb += [counts.eq(1), more_bytes.eq(task.count)]
            with m.Case(BarrierOp.COMPLETE_TX):
                m.d.comb += [counts.eq(1), more_bytes.eq(-task.count)]
            with m.Case(BarrierOp.TEST_WAIT, BarrierOp.TEST_WAIT_PARITY):
                m.d.comb += tests.eq(1)
            with m.Case(BarrierOp.TRY_WAIT, BarrierOp.TRY_WAIT_PARITY):
                m.d.comb += [tests.eq(1), tries.eq(1)]
        with m.Switch(task.op):
            with m.Case(
                BarrierOp.ARRIVE_DROP,
                BarrierOp.ARRIVE_DROP_NO_COMPLETE,
                BarrierOp.ARRIVE_DROP_EXPECT_TX,
            ):
                m.d.comb += drops.eq(1)
        with m.Switch(task.op):
            with m.Case(BarrierOp.ARRIVE_NO_COMPLETE, BarrierOp.ARRIVE_DROP_NO_COMPLETE):
                m.d.comb += must_not_complete.eq(1)

        # The fields of the word, of either layout.
        full = 1 << ARRIVAL_BITS
        expected = Signal(ARRIVAL_BITS)
        phase = Signal()
        uninitialised = Signal()
        wants_v1 = is_report | (tests & task.v1)
        m.d.comb += [
            expected.eq(word.expected),
            phase.eq(word.phase),
            uninitialised.eq(word.as_value() == 0),
        ]
        if has_v1:
            v1 = data.View(BarrierWordV1, word.as_value())
            with m.If(v1.is_v1):
                more = ARRIVAL_BITS - V1_ARRIVAL_BITS
                m.d.comb += expected.eq(Cat(v1.expected, v1.expected.any().replicate(more)))
            with m.If(task.v1):
                m.d.comb += phase.eq(v1.conditional_phase)
        else:
            with m.If(word.reserved):
                m.d.comb += uninitialised.eq(1)

        # What they become. With no arrival pending, the stored 0 stands for 2**20, the end.
        arrived = Signal(BARRIER_COUNT_BITS + 1)
        dropped = Signal(BARRIER_COUNT_BITS + 1)
        tx = Signal(signed(BARRIER_COUNT_BITS + 2))
        complete = Signal()
        m.d.comb += [
            arrived.eq(Cat(word.pending, word.pending == 0) + arrivals),
            dropped.eq(Cat(expected, expected == 0) + Mux(drops, arrivals, 0)),
            tx.eq(word.tx + more_bytes),
            complete.eq((arrived == full) & (tx == 0)),
        ]

        fault = Signal(BarrierFault)
        most = Mux(task.v1, (1 << V1_ARRIVAL_BITS) - 1, full - 1)
        unknown = 0 if has_v1 else is_report | ((is_init | tests) & task.v1)
        with m.If(unknown | (updated & ~counts)):
            m.d.comb += fault.eq(BarrierFault.OPERATION)
        with m.Elif(is_init):
            with m.If((task.count == 0) | (task.count > most)):
                m.d.comb += fault.eq(BarrierFault.COUNT)
        with m.Elif(counts | tests | is_report):
            with m.If(word.lock):
                m.d.comb += fault.eq(BarrierFault.LOCKED)
            with m.Elif(uninitialised):
                m.d.comb += fault.eq(BarrierFault.UNINITIALISED)
            with m.Elif(wants_v1 & ~word.reserved):
                m.d.comb += fault.eq(BarrierFault.OPERATION)
            with m.Elif((arrived > full) | (dropped > full)):
                m.d.comb += fault.eq(BarrierFault.OVER_ARRIVAL)
            with m.Elif(counts & ((tx >= full) | (tx <= -full))):
                m.d.comb += fault.eq(BarrierFault.TX_RANGE)
            with m.Elif(must_not_complete & complete):
                m.d.comb += fault.eq(BarrierFault.COMPLETES)

        # The word afterwards.
        taken = Signal()
        after = Signal(BarrierWord)
        m.d.comb += [taken.eq(fault == BarrierFault.NONE), after.eq(word)]
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
        unmet = Signal()
        if has_v1:
            v1_after = data.View(BarrierWordV1, after.as_value())
            report = Mux(v1.stale, 0, v1.report)
            m.d.comb += unmet.eq(v1.is_v1 & (report != 0))
            with m.If(is_init & task.v1):
                m.d.comb += [v1_after.is_v1.eq(1), after.expected.eq(initial[:V1_ARRIVAL_BITS])]
            with m.Elif(counts & taken & v1.is_v1):
                m.d.comb += [after.expected.eq(word.expected), v1_after.expected.eq(dropped)]
                with m.If(complete):
                    m.d.comb += [
                        v1_after.report.eq(report),
                        v1_after.stale.eq(1),
                        v1_after.conditional_phase.eq(v1.conditional_phase ^ ~unmet),
                    ]
            with m.Elif(is_report):
                m.d.comb += [v1_after.report.eq(report | task.count), v1_after.stale.eq(0)]
        m.d.comb += [
            self.memory.write_en.eq(
                (commanded | updated) & (counts | (taken & (is_init | is_inval | is_report)))
            ),
            self.memory.write_address.eq(task.address[-BARRIER_WORD_ADDRESS_BITS:]),
            self.memory.write_data.eq(after),
        ]

        # The threads that wait.
        waits = Signal()
        m.d.comb += [
            waits.eq(
                (commanded & tries & taken)
                & (phase == task.parity)
                & (task.time_limit != 0)
                & waiters.has_room
            ),
            waiters.i.valid.eq(waits),
            waiters.i.p.address.eq(self.memory.write_address),
            waiters.i.p.tag.eq(task.tag),
            waiters.i.p.time_limit.eq(task.time_limit),
            waiters.event.valid.eq(
                (commanded | updated) & Mux(counts, complete | ~taken, (is_init | is_inval) & taken)
            ),
            waiters.event.p.address.eq(self.memory.write_address),
        ]
        with m.If(~counts):
            m.d.comb += waiters.event.p.outcome.eq(Outcome.REMOVED)
        with m.Elif(taken):
            m.d.comb += waiters.event.p.outcome.eq(Outcome.COMPLETE)
        with m.Else():
            m.d.comb += waiters.event.p.outcome.eq(Outcome.LOCKED)
        if has_v1:
            m.d.comb += [
                waiters.i.p.conditional.eq(task.v1),
                waiters.event.p.unmet.eq(counts & taken & unmet),
            ]

        m.d.comb += [
            results.i.valid.eq(commanded),
            results.i.p.tag.eq(task.tag),
            results.i.p.done.eq(tests & taken & (phase != task.parity)),
            results.i.p.waits.eq(waits),
            results.i.p.fault.eq(fault),
            results.i.p.state.eq(Mux(task.op == BarrierOp.PENDING_COUNT, task.count, word)),
            faults.i.valid.eq(updated & ~taken),
            faults.i.p.request_id.eq(updating.request_id),
            faults.i.p.address.eq(task.address),
            faults.i.p.fault.eq(fault),
        ]
        if self.params.ctas > 1:
            m.d.comb += faults.i.p.cta.eq(updating.cta)
        m.d.sync += [
            Assert(~results.i.valid | results.i.ready, "mbarrier unit: a result was lost\n"),
            Assert(~faults.i.valid | faults.i.ready, "mbarrier unit: a fault was lost\n"),
        ]
        return m
