"""Mbarrier unit: applies operations to the mbarriers in shared memory, one per clock."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value
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
    BARRIER_WORD_ADDRESS_BITS,
    LANES_BITS,
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
"""Entries of the queue of results, and of the queue of faults."""


class BarrierMemory(wiring.Signature):
    """Port for the 64-bit words of barriers in shared memory; it accepts every access at once.

    Members
    -------
    read_en : Out(1)
        Read a word.
    read_address : Out(21)
        Its byte offset in shared memory divided by 8.
    read_data : In(64)
        The word, in the clock after ``read_en``. A write in the clock of ``read_en`` is not in it.
    write_en : Out(1)
        Write a word.
    write_address : Out(21)
        Its byte offset in shared memory divided by 8.
    write_data : Out(64)
        The word.
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
    """Applies the commands of threads and the updates of other blocks to barriers.

    Words, results and faults are bit for bit those of silicon (``tests/silicon/README.md``). Any
    word is a barrier, also 0: there is no barrier that is not initialised.

    ==========================  ===================================================================
    INIT                        write ``state``: for N arrivals, N from 1 on, the 20-bit number
                                ``2**20 - N`` in bits 20:1 and 62:43, and 0 in the other bits
    INVAL                       nothing: the word stays as it is
    ARRIVE                      ``count`` arrivals, then the completion check
    ARRIVE_DROP                 ARRIVE, and each later phase expects ``count`` arrivals fewer
    ARRIVE(_DROP)_NO_COMPLETE   ARRIVE(_DROP), also if the phase completes
    ARRIVE(_DROP)_EXPECT_TX     expect ``count`` bytes more, ``lanes`` arrivals, then the completion
                                check
    EXPECT_TX                   expect ``count`` bytes more, then the completion check
    COMPLETE_TX                 ``count`` bytes have come, then the completion check
    TEST_WAIT_PARITY            test whether the phase of parity ``count[0]`` is complete, that is,
                                whether the current phase has the other parity
    TEST_WAIT                   test whether the phase of ``state`` is complete
    TRY_WAIT(_PARITY)           TEST_WAIT(_PARITY); if the phase is incomplete, the thread waits
    PENDING_COUNT               return the number of pending arrivals of ``state``
    REPORT                      OR ``count[7:0]`` into the report; with ``mbarrier_v1`` only
    ==========================  ===================================================================

    Completion check: if no arrival is pending and no byte is still to come, the phase flips and
    the pending arrivals become the expected arrivals. This is one step with the operation.

    Waits. A TRY_WAIT whose phase is incomplete occupies one of ``barrier_waiters`` entries, and its
    result has ``waits``. The thread uses no further clocks of the unit until its wake, of which
    there is exactly one. The wake reports that the phase is complete, that ``time_limit`` clocks
    have passed, or that an error has locked the barrier (LOCKED). INIT ends the waits for a barrier
    if it changes the phase. If no entry is free, or ``time_limit`` is 0, TRY_WAIT returns the
    result of TEST_WAIT. A wake does not wait for the result of its TRY_WAIT, and may come before
    it.

    Layout v1, with ``mbarrier_v1``; its function is this project's choice. A word whose bit 0 is 1
    is a barrier of layout v1, which expects at most 511 arrivals; without ``mbarrier_v1`` that bit
    is ignored and kept. Such a barrier has a report, to which REPORT adds; the first REPORT of a
    phase clears the report of the phase before. When a phase completes, the conditional phase flips
    as well, if the report of that phase is 0 or the phase had no report. Tests and waits with
    ``v1`` ask for the conditional phase. With ``report_mechanism``, a COMPLETE_TX that ``reports``
    is a REPORT of ``NOT_VALID`` as well, before the completion check.

    Errors: the first fault that applies, in this order.

    ================  =============================================================================
    OPERATION         REPORT or ``v1`` in a unit without ``mbarrier_v1``; an update that counts
                      neither arrivals nor bytes
    LOCKED            an earlier error has locked the barrier; not for INIT, INVAL, PENDING_COUNT,
                      nor for updates
    OPERATION         REPORT, or a test or wait with ``v1``, and the barrier is not of layout v1
    COUNT             an operation that counts has a ``count`` of ``2**20`` or more
    OVER_ARRIVAL      more arrivals than are pending
    TX_RANGE          the bytes that came, less those expected, leave ``-2**20`` to ``2**20 - 1``
    OPERATION         a COMPLETE_TX ``reports``, and the barrier is not of layout v1
    ================  =============================================================================

    A fault of an operation that counts arrivals or bytes sets ``lock`` in the word and changes
    nothing else of it; other faults write nothing. An update does not look at the lock: it sets it
    if it has a fault, and clears it otherwise. The fault of a command is in its result. The fault
    of an update is reported at ``fault``; silicon only sets the lock, so that the next command
    fails. The low three bits of an address are ignored: the blocks that accept requests, and the SM
    for its commands, check the alignment.

    Order: operations take effect in the order of their acceptance. The first event after the
    acceptance of a wait ends it. Latency: the word is read in the clock of acceptance and written
    one clock later; the result is offered three clocks after acceptance. The first wake is offered
    five clocks after the acceptance of the operation that causes it, further wakes of that
    operation in the clocks after it. If no other wakes are offered, the wake of an expired wait is
    offered ``time_limit + 5`` to ``time_limit + 5 + barrier_waiters`` clocks after its acceptance.
    Throughput: one operation per clock, on one barrier or on any mix. Arbitration: while commands
    and updates wait, they alternate. Back-pressure: commands wait while ``REPORTS - 1`` results are
    not taken; updates wait while ``REPORTS - 1`` faults are not taken, and for a clock more after
    an update or a fault that is taken; neither port blocks the other. Wakes that are not taken keep
    their entries.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    command : In(stream.Signature(BarrierCommand))
        Operations of the SM's threads.
    result : Out(stream.Signature(BarrierResult))
        One result for each command, in order.
    wake : Out(stream.Signature(BarrierWake))
        One wake for each result with ``waits``.
    update : In(stream.Signature(barrier_update_layout(params)))
        ``complete_tx`` of requests, and operations of other CTAs.
    fault : Out(stream.Signature(barrier_fault_layout(params)))
        Updates that failed, in order.
    memory : Out(BarrierMemory())
        The barrier words in shared memory.
    busy : Out(1)
        A thread waits.
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
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.results = results = Queue(BarrierResult, REPORTS)
        m.submodules.faults = faults = Queue(barrier_fault_layout(self.params), REPORTS)
        m.submodules.waiters = waiters = BarrierWaiters(self.params)
        connect(m, results.o, flipped(self.result))
        connect(m, faults.o, flipped(self.fault))
        connect(m, waiters.wake, flipped(self.wake))
        m.d.comb += self.busy.eq(waiters.busy)

        # Clock 0: accept one operation, decode it, and read its word. When an operation is
        # accepted, the report of the one before it may be on its way.
        is_command = Signal()
        is_update = Signal()
        result_room = self._room(m, "result_room", results, is_command, results.o.ready)
        fault_room = self._room(m, "fault_room", faults, is_update, 0)  # faults are rare
        can_accept_command = Signal()
        can_accept_update = Signal()
        update_was_last = Signal()
        update_fire = Signal()
        m.d.comb += [
            can_accept_command.eq(self.command.valid & result_room),
            can_accept_update.eq(fault_room),
            self.update.ready.eq(can_accept_update & ~(can_accept_command & update_was_last)),
            update_fire.eq(self.update.valid & self.update.ready),
            self.command.ready.eq(can_accept_command & ~update_fire),
        ]
        new_task = Signal(BarrierTask)
        self._decode(m, update_fire, new_task)
        self._decode_counts(m, update_fire, new_task)

        task = Signal(BarrierTask, reset_less=True)
        update = Signal(barrier_update_layout(self.params), reset_less=True)
        m.d.comb += [
            self.memory.read_en.eq(self.command.ready | update_fire),
            self.memory.read_address.eq(new_task.address[-BARRIER_WORD_ADDRESS_BITS:]),
        ]
        m.d.sync += [
            is_command.eq(self.command.ready),
            is_update.eq(update_fire),
        ]
        with m.If(self.memory.read_en):
            m.d.sync += [
                task.eq(new_task),
                update.eq(self.update.p),
                update_was_last.eq(update_fire),
            ]

        # Clock 1: apply the operation, and write the word. In clock 2 the waiters get a thread that
        # has to wait, or the end of waits, and the report is queued.
        step = self._apply(m, task, is_command, is_update)
        starts_wait = self._wait(m, task, step, is_command, is_update)
        self._report(m, task, update, step, starts_wait, is_command, is_update)
        return m

    def _room(
        self, m: Module, name: str, reports: Queue, may_come: Signal, leaves: Value | int
    ) -> Signal:
        """Return whether fewer than ``REPORTS - 1`` reports wait, with one that comes, from a
        register. A report may come in the next clock if ``may_come``, and one ``leaves`` in this
        one.
        """
        has_room = Signal(name=name, init=1)
        waiting = reports.level + reports.i.valid + may_come
        m.d.sync += has_room.eq((waiting < REPORTS - 1) | ((waiting == REPORTS - 1) & leaves))
        return has_room

    def _decode(self, m: Module, update_fire: Signal, new_task: data.View) -> None:
        """Decode the operation that is accepted, but for the counts."""
        command, update = self.command.p, self.update.p
        state = data.View(BarrierWord, command.state)
        with m.If(update_fire):
            m.d.comb += [new_task.op.eq(update.op), new_task.address.eq(update.address)]
        with m.Else():
            m.d.comb += [new_task.op.eq(command.op), new_task.address.eq(command.address)]
        # The other fields have no meaning for an update.
        m.d.comb += [
            new_task.v1.eq(command.v1),
            new_task.tag.eq(command.tag),
            new_task.operand.eq(command.state),
            new_task.parity.eq(state.phase),
        ]
        if self.params.mbarrier_v1:
            with m.If(command.v1):
                conditional_phase = data.View(BarrierWordV1, command.state).conditional_phase
                m.d.comb += new_task.parity.eq(conditional_phase)
        if self.params.report_mechanism:
            with m.If(update_fire):
                m.d.comb += new_task.v1.eq(update.reports)
        with m.Switch(command.op):
            with m.Case(BarrierOp.TEST_WAIT_PARITY):
                m.d.comb += new_task.parity.eq(command.count[0])
            with m.Case(BarrierOp.TRY_WAIT_PARITY):
                m.d.comb += [
                    new_task.parity.eq(command.count[0]),
                    new_task.operand.eq(command.time_limit),
                ]
            with m.Case(BarrierOp.TRY_WAIT):
                m.d.comb += new_task.operand.eq(command.time_limit)
            if self.params.mbarrier_v1:
                with m.Case(BarrierOp.REPORT):
                    m.d.comb += new_task.operand.eq(command.count)

    def _decode_counts(self, m: Module, update_fire: Signal, new_task: data.View) -> None:
        """Decode the counts in this clock: the path through `BarrierStep` is longer.

        What an operation counts is decoded at each port, because the choice of the port comes late.
        """
        command, update = self.command.p, self.update.p

        def is_one_of(*ops: BarrierOp) -> Value:
            of_update, of_command = (port.op.as_value().matches(*ops) for port in (update, command))
            return Mux(update_fire, of_update, of_command)

        count = Signal(ARRIVAL_BITS)
        lanes = Signal(LANES_BITS)
        none_arrives = Signal()
        state = data.View(BarrierWord, command.state)
        is_init = ~update_fire & (command.op == BarrierOp.INIT)
        has_pending = command.op.as_value().matches(BarrierOp.PENDING_COUNT, BarrierOp.INIT)
        command_count = Mux(has_pending, state.pending, command.count)
        counts_arrivals = is_init | is_one_of(
            BarrierOp.ARRIVE,
            BarrierOp.ARRIVE_NO_COMPLETE,
            BarrierOp.ARRIVE_DROP,
            BarrierOp.ARRIVE_DROP_NO_COMPLETE,
        )
        drops = is_one_of(
            BarrierOp.ARRIVE_DROP,
            BarrierOp.ARRIVE_DROP_NO_COMPLETE,
            BarrierOp.ARRIVE_DROP_EXPECT_TX,
        )
        arrives_and_expects = BarrierOp.ARRIVE_EXPECT_TX, BarrierOp.ARRIVE_DROP_EXPECT_TX
        counts_lanes = is_one_of(*arrives_and_expects)
        expects = is_one_of(*arrives_and_expects, BarrierOp.EXPECT_TX, BarrierOp.PENDING_COUNT)
        completes = is_one_of(BarrierOp.COMPLETE_TX)
        m.d.comb += [
            Cat(count, new_task.too_large).eq(Mux(update_fire, update.count, command_count)),
            lanes.eq(Mux(update_fire, update.lanes, command.lanes)),
            new_task.is_init.eq(is_init),
            *(
                new_task.init[name].eq(is_init & state[name])
                for name in ("ignored", "lock", "phase")
            ),
            new_task.arrivals.eq(Mux(counts_arrivals, count, 0) | Mux(counts_lanes, lanes, 0)),
            Cat(new_task.arrivals_less_one, none_arrives).eq(new_task.arrivals - 1),
            new_task.arrives.eq(~none_arrives),
            new_task.expected_increment.eq(
                Mux(drops, new_task.arrivals, 0) | Mux(is_init, state.expected, 0)
            ),
            new_task.tx_increment.eq(
                Mux(expects, -count, 0) | Mux(completes, count, 0) | Mux(is_init, state.tx, 0)
            ),
        ]

    def _apply(
        self, m: Module, task: data.View, is_command: Signal, is_update: Signal
    ) -> BarrierStep:
        """Apply the operation to its word, and write the word. Return the block that does it."""
        # A read does not return what is written in its clock: that word is forwarded.
        is_forwarded = Signal()
        last_written = Signal(64, reset_less=True)
        m.d.sync += [
            is_forwarded.eq(
                self.memory.write_en & (self.memory.write_address == self.memory.read_address)
            ),
            last_written.eq(self.memory.write_data),
        ]
        m.submodules.step = step = BarrierStep(self.params)
        m.d.comb += [
            step.task.eq(task),
            step.is_update.eq(is_update),
            step.word.eq(Mux(is_forwarded, last_written, self.memory.read_data)),
            self.memory.write_en.eq((is_command | is_update) & step.write_en),
            self.memory.write_address.eq(task.address[-BARRIER_WORD_ADDRESS_BITS:]),
            self.memory.write_data.eq(step.next_word),
        ]
        return step

    def _wait(
        self,
        m: Module,
        task: data.View,
        step: BarrierStep,
        is_command: Signal,
        is_update: Signal,
    ) -> Signal:
        """Pass a thread that has to wait, or the end of waits, to the waiters. Return 1 if the
        thread starts to wait.
        """
        waiters = m.submodules.waiters
        starts_wait = Signal()
        may_wait = (
            Signal()
        )  # there is an entry, also if a thread comes to the waiters in this clock
        m.d.comb += [
            may_wait.eq(waiters.has_free | (waiters.has_room & ~waiters.i.valid)),
            starts_wait.eq(is_command & step.can_wait & may_wait),
        ]
        m.d.sync += [
            waiters.i.valid.eq(starts_wait),
            waiters.i.p.address.eq(self.memory.write_address),
            waiters.i.p.tag.eq(task.tag),
            waiters.i.p.time_limit.eq(task.operand),
            waiters.event.valid.eq(
                (is_command | is_update) & (step.ends_waits | step.ends_conditional_waits)
            ),
            waiters.event.p.address.eq(self.memory.write_address),
            waiters.event.p.outcome.eq(step.outcome),
        ]
        if self.params.mbarrier_v1:
            m.d.sync += [
                waiters.i.p.conditional.eq(task.v1),
                waiters.event.p.ends_waits.eq(step.ends_waits),
                waiters.event.p.ends_conditional_waits.eq(step.ends_conditional_waits),
            ]
        return starts_wait

    def _report(
        self,
        m: Module,
        task: data.View,
        update: data.View,
        step: BarrierStep,
        starts_wait: Signal,
        is_command: Signal,
        is_update: Signal,
    ) -> None:
        """Queue the result of a command, or the fault of an update."""
        results, faults = m.submodules.results, m.submodules.faults
        low_half, high_half = step.word.as_value()[:32], step.word.as_value()[32:]
        no_complete = BarrierOp.ARRIVE_NO_COMPLETE, BarrierOp.ARRIVE_DROP_NO_COMPLETE
        state = Signal(64)
        with m.Switch(task.op):
            with m.Case(BarrierOp.PENDING_COUNT):
                m.d.comb += state.eq(task.tx_increment.as_unsigned()[:ARRIVAL_BITS])
            with m.Case(*no_complete):
                m.d.comb += state.eq(Cat(task.operand, high_half))
            with m.Default():
                m.d.comb += state.eq(high_half << 32)
                if self.params.mbarrier_v1:
                    with m.If(step.word.ignored):
                        m.d.comb += state.eq(Cat(low_half, high_half))
        m.d.sync += [
            results.i.valid.eq(is_command),
            results.i.p.tag.eq(task.tag),
            results.i.p.done.eq(step.done),
            results.i.p.waits.eq(starts_wait),
            results.i.p.fault.eq(step.fault),
            results.i.p.state.eq(state),
            faults.i.valid.eq(is_update & step.has_fault),
            faults.i.p.request_id.eq(update.request_id),
            faults.i.p.address.eq(task.address),
            faults.i.p.fault.eq(step.fault),
        ]
        if self.params.ctas > 1:
            m.d.sync += faults.i.p.cta.eq(update.cta)
        m.d.sync += [
            Assert(~results.i.valid | results.i.ready, "mbarrier_unit: a result was lost\n"),
            Assert(~faults.i.valid | faults.i.ready, "mbarrier_unit: a fault was lost\n"),
            Assert(
                ~(is_command | is_update) | (step.has_fault == (step.fault != BarrierFault.NONE)),
                "mbarrier_unit: has_fault and fault contradict each other\n",
            ),
        ]
