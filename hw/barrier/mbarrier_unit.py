"""Hopper's mbarrier objects: 64-bit words in shared memory, one operation a clock."""

from amaranth.hdl import Assert, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.barrier.barrier_step import (
    ARRIVAL_BITS,
    BarrierStep,
    BarrierTask,
    BarrierWord,
    BarrierWordV1,
)
from hw.barrier.barrier_waiters import BarrierWaiters
from hw.layouts.barriers import (
    BARRIER_COUNT_BITS,
    BARRIER_WORD_ADDRESS_BITS,
    BarrierCommand,
    BarrierFault,
    BarrierOp,
    BarrierResult,
    BarrierWake,
    barrier_fault_layout,
    barrier_update_layout,
)
from hw.lib.queue import Queue
from hw.params import TmaParams

REPORTS = 4
"""Results, and faults, that wait at their port before operations that may need one have to."""


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
        updates = Signal()
        m.d.comb += [
            may_command.eq(self.command.valid & (results.level < REPORTS - 1)),
            may_update.eq(faults.level < REPORTS - 1),
            self.update.ready.eq(may_update & ~(may_command & updated_last)),
            updates.eq(self.update.valid & self.update.ready),
            self.command.ready.eq(may_command & ~updates),
        ]
        offered = Signal(BarrierTask)
        command = self.command.p
        with m.If(updates):
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

        # What it counts, early: the step behind has enough to do.
        op = Signal(BarrierOp)
        count = Signal(BARRIER_COUNT_BITS)
        m.d.comb += [
            op.eq(Mux(updates, self.update.p.op.as_value(), command.op.as_value())),
            count.eq(Mux(updates, self.update.p.count, command.count)),
        ]
        with m.Switch(op):
            with m.Case(
                BarrierOp.ARRIVE,
                BarrierOp.ARRIVE_NO_COMPLETE,
                BarrierOp.ARRIVE_DROP,
                BarrierOp.ARRIVE_DROP_NO_COMPLETE,
            ):
                m.d.comb += offered.arrivals.eq(count)
            with m.Case(BarrierOp.ARRIVE_EXPECT_TX, BarrierOp.ARRIVE_DROP_EXPECT_TX):
                m.d.comb += [offered.arrivals.eq(1), offered.more_bytes.eq(count)]
            with m.Case(BarrierOp.EXPECT_TX):
                m.d.comb += offered.more_bytes.eq(count)
            with m.Case(BarrierOp.COMPLETE_TX):
                m.d.comb += offered.more_bytes.eq(-count)

        commanded = Signal()
        updated = Signal()
        task = Signal(BarrierTask, reset_less=True)
        updating = Signal(barrier_update_layout(self.params), reset_less=True)
        m.d.comb += [
            self.memory.read_en.eq(self.command.ready | updates),
            self.memory.read_address.eq(offered.address[-BARRIER_WORD_ADDRESS_BITS:]),
        ]
        m.d.sync += [
            commanded.eq(self.command.ready),
            updated.eq(updates),
        ]
        with m.If(self.memory.read_en):
            m.d.sync += [
                task.eq(offered),
                updating.eq(self.update.p),
                updated_last.eq(updates),
            ]

        # The read did not see what was written in the same clock.
        forward = Signal()
        written = Signal(64, reset_less=True)
        m.d.sync += [
            forward.eq(
                self.memory.write_en & (self.memory.write_address == self.memory.read_address)
            ),
            written.eq(self.memory.write_data),
        ]

        # Apply the operation.
        m.submodules.step = step = BarrierStep(self.params)
        m.d.comb += [
            step.task.eq(task),
            step.is_update.eq(updated),
            step.word.eq(Mux(forward, written, self.memory.read_data)),
            step.is_zero.eq(Mux(forward, written == 0, self.memory.read_data == 0)),
            self.memory.write_en.eq((commanded | updated) & step.writes),
            self.memory.write_address.eq(task.address[-BARRIER_WORD_ADDRESS_BITS:]),
            self.memory.write_data.eq(step.after),
        ]

        # The threads that wait.
        waits = Signal()
        m.d.comb += [
            waits.eq(commanded & step.may_wait & waiters.has_room),
            waiters.i.valid.eq(waits),
            waiters.i.p.address.eq(self.memory.write_address),
            waiters.i.p.tag.eq(task.tag),
            waiters.i.p.time_limit.eq(task.time_limit),
            waiters.event.valid.eq((commanded | updated) & step.ends_waits),
            waiters.event.p.address.eq(self.memory.write_address),
            waiters.event.p.outcome.eq(step.outcome),
        ]
        if has_v1:
            m.d.comb += [
                waiters.i.p.conditional.eq(task.v1),
                waiters.event.p.unmet.eq(step.unmet),
            ]

        # Report.
        m.d.comb += [
            results.i.valid.eq(commanded),
            results.i.p.tag.eq(task.tag),
            results.i.p.done.eq(step.done),
            results.i.p.waits.eq(waits),
            results.i.p.fault.eq(step.fault),
            results.i.p.state.eq(Mux(task.op == BarrierOp.PENDING_COUNT, task.count, step.word)),
            faults.i.valid.eq(updated & step.fails),
            faults.i.p.request_id.eq(updating.request_id),
            faults.i.p.address.eq(task.address),
            faults.i.p.fault.eq(step.fault),
        ]
        if self.params.ctas > 1:
            m.d.comb += faults.i.p.cta.eq(updating.cta)
        m.d.sync += [
            Assert(~results.i.valid | results.i.ready, "mbarrier unit: a result was lost\n"),
            Assert(~faults.i.valid | faults.i.ready, "mbarrier unit: a fault was lost\n"),
            Assert(
                step.fails == (step.fault != BarrierFault.NONE),
                "mbarrier unit: a fault without a reason\n",
            ),
        ]
        return m
