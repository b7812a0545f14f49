"""mbarrier unit: every word follows the definition, every wait ends, and nothing deadlocks."""

from itertools import combinations
from types import SimpleNamespace

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    signed,
)

from hw.barrier.barrier_step import BarrierStep, BarrierWord
from hw.barrier.barrier_waiters import BarrierWaiters, Outcome
from hw.barrier.mbarrier_unit import REPORTS, MbarrierUnit
from hw.layouts.barriers import (
    TIME_LIMIT_BITS,
    BarrierCommand,
    BarrierFault,
    BarrierOp,
    BarrierResult,
    barrier_fault_layout,
)
from hw.params import TmaParams
from tests.formal.inside import Inside, inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.queue import follow_the_level
from tests.formal.streams import hold, offer

ARRIVALS = 1 << 20
COUNT_LIMIT = ARRIVALS - 1
TX_LIMIT = 1 << 20

ARRIVE = BarrierOp.ARRIVE, BarrierOp.ARRIVE_DROP
NO_COMPLETE = BarrierOp.ARRIVE_NO_COMPLETE, BarrierOp.ARRIVE_DROP_NO_COMPLETE
ARRIVE_EXPECT = BarrierOp.ARRIVE_EXPECT_TX, BarrierOp.ARRIVE_DROP_EXPECT_TX
DROPS = BarrierOp.ARRIVE_DROP, BarrierOp.ARRIVE_DROP_NO_COMPLETE, BarrierOp.ARRIVE_DROP_EXPECT_TX
BY_PARITY = BarrierOp.TEST_WAIT_PARITY, BarrierOp.TRY_WAIT_PARITY
TRIES = BarrierOp.TRY_WAIT, BarrierOp.TRY_WAIT_PARITY

SOON = 3
"""Clocks that the wake of any of two threads waits for others to leave."""

PATIENCE = 2
"""Clocks that fair ports hold up a report."""

ACCEPTED = 2 * (PATIENCE + 1) + 1
"""Clocks that an operation waits: for two reports to be taken, and for one of the other port."""


def _unit() -> MbarrierUnit:
    return MbarrierUnit(
        TmaParams(
            request_id_bits=1, barrier_waiters=2, stores=False, reductions=False, im2col=False
        )
    )


def _drive(m: Module, dut: MbarrierUnit) -> None:
    """Let the solver choose all operations and their clocks."""
    for name in "command", "update":
        offer(m, getattr(dut, name))
        hold(m, getattr(dut, name), name, Assume)
    for name in "result", "wake", "fault":
        m.d.comb += getattr(dut, name).ready.eq(AnySeq(1))
    m.d.comb += Assume(~ResetSignal())


def _define(m: Module, dut: MbarrierUnit) -> SimpleNamespace:
    """One word of the memory, at any address, as the definition has it.

    The definition is in numbers of arrivals and bytes, not in the stored complements, and takes an
    operation in the clock of its acceptance: the phase flips exactly when both have come to zero.

    Returns
    -------
    SimpleNamespace
        ``done``, ``commanded``, ``updated``: the operation that is accepted; ``touched``: it is on
        the word. ``parity``: that a wait asks for. ``word``: as it was before; ``fault``, ``flip``:
        of the operation. ``cell``: what the unit has stored two clocks after the operation that
        ``expected`` is the outcome of.
    """
    # The memory; it is read before it is written.
    memory = dut.memory
    address = AnyConst(len(memory.read_address))
    start = AnyConst(64)
    begun = Signal()
    cell_now, cell = Signal(64), Signal(64)
    was_read, read = Signal(), Signal(64)
    m.d.comb += [cell_now.eq(Mux(begun, cell, start)), memory.read_data.eq(AnySeq(64))]
    m.d.sync += [
        begun.eq(1),
        cell.eq(cell_now),
        was_read.eq(memory.read_en & (memory.read_address == address)),
        read.eq(cell_now),
    ]
    with m.If(memory.write_en & (memory.write_address == address)):
        m.d.sync += cell.eq(memory.write_data)
    with m.If(was_read):
        m.d.comb += Assume(memory.read_data == read)

    # The operation that is accepted.
    done = Signal(BarrierCommand)
    commanded, updated, touched = Signal(), Signal(), Signal()
    parity = Signal()
    m.d.comb += [
        commanded.eq(dut.command.valid & dut.command.ready),
        updated.eq(dut.update.valid & dut.update.ready),
        Assert(~(commanded & updated)),
        touched.eq((commanded | updated) & (done.address[3:] == address)),
    ]
    with m.If(updated):
        m.d.comb += [
            done[name].eq(dut.update.p[name]) for name in ("op", "address", "count", "lanes")
        ]
    with m.Else():
        m.d.comb += done.eq(dut.command.p)

    def among(*ops: BarrierOp):
        return Cat(done.op == op for op in ops).any()

    m.d.comb += parity.eq(Mux(among(*BY_PARITY), done.count[0], done.state[63]))

    # The effect of the operation. An update does not look at the lock.
    word, truth, expected = Signal(BarrierWord), Signal(BarrierWord), Signal(64)
    counts, tests = Signal(), Signal()
    arrivals, left, kept = Signal(21), Signal(signed(23)), Signal(signed(23))
    tx_change, tx = Signal(signed(23)), Signal(signed(24))
    fault = Signal(BarrierFault)
    completes, flip, restart = Signal(), Signal(), Signal()
    m.d.sync += [truth.eq(word), expected.eq(word)]
    m.d.comb += [
        word.eq(Mux(begun, truth, start)),
        counts.eq(
            among(*ARRIVE, *NO_COMPLETE, *ARRIVE_EXPECT, BarrierOp.EXPECT_TX, BarrierOp.COMPLETE_TX)
        ),
        tests.eq(among(BarrierOp.TEST_WAIT, BarrierOp.TEST_WAIT_PARITY, *TRIES)),
        left.eq((-word.pending)[:20] - arrivals),
        kept.eq((-word.expected)[:20] - Mux(among(*DROPS), arrivals, 0)),
        tx.eq(word.tx + tx_change),
        completes.eq((left == 0) & (tx == 0)),
        flip.eq(touched & counts & (fault == BarrierFault.NONE) & completes),
    ]
    with m.If(among(*ARRIVE, *NO_COMPLETE)):
        m.d.comb += arrivals.eq(done.count)
    with m.Elif(among(*ARRIVE_EXPECT)):
        m.d.comb += arrivals.eq(done.lanes)
    with m.If(among(*ARRIVE_EXPECT, BarrierOp.EXPECT_TX)):
        m.d.comb += tx_change.eq(-done.count)
    with m.Elif(among(BarrierOp.COMPLETE_TX)):
        m.d.comb += tx_change.eq(done.count)

    needs_v1 = among(BarrierOp.REPORT) | (tests & done.v1)
    with m.If(needs_v1 | (updated & ~counts)):
        m.d.comb += fault.eq(BarrierFault.OPERATION)
    with m.Elif((counts | tests) & word.lock & commanded):
        m.d.comb += fault.eq(BarrierFault.LOCKED)
    with m.Elif(counts):
        with m.If(done.count > COUNT_LIMIT):
            m.d.comb += fault.eq(BarrierFault.COUNT)
        with m.Elif(left < 0):
            m.d.comb += fault.eq(BarrierFault.OVER_ARRIVAL)
        with m.Elif((tx >= TX_LIMIT) | (tx < -TX_LIMIT)):
            m.d.comb += fault.eq(BarrierFault.TX_RANGE)

    is_taken = fault == BarrierFault.NONE
    with m.If(touched & counts & is_taken):
        m.d.sync += [
            truth.expected.eq(ARRIVALS - kept),
            truth.pending.eq(ARRIVALS - Mux(flip, kept, left)),
            truth.tx.eq(tx),
            truth.lock.eq(0),
            truth.phase.eq(word.phase ^ flip),
        ]
    with m.Elif(touched & counts):
        m.d.sync += truth.lock.eq(1)
    with m.Elif(touched & among(BarrierOp.INIT) & is_taken):
        m.d.sync += truth.eq(done.state)
        m.d.comb += restart.eq(word.phase != done.state[63])
    with m.If(begun):
        m.d.comb += Assert(cell == expected)
    return SimpleNamespace(
        address=address,
        start=start,
        done=done,
        commanded=commanded,
        updated=updated,
        touched=touched,
        among=among,
        tests=tests,
        counts=counts,
        parity=parity,
        word=word,
        fault=fault,
        is_taken=is_taken,
        flip=flip,
        restart=restart,
    )


def _follow_the_room(m: Module, unit: Inside) -> Inside:
    """Assert that a thread that comes to the waiters has an entry, and a report a place in its
    queue. Return access to the waiters.
    """
    table = inside(unit.waiters)
    coming, event = unit.waiters.i, unit.waiters.event
    m.d.comb += [
        Assert(table.has_new_entry == table.new_entry.any()),
        Assert(~coming.valid | (table.has_new_entry & ~event.valid)),
    ]
    for report, queue in ("result", unit.results), ("fault", unit.faults):
        has_room = unit.signal(f"{report}_room")
        m.d.comb += Assert(~has_room | (queue.level + queue.i.valid < REPORTS - 1))
    return table


class WordSpec(Elaboratable):
    """Any one word of memory holds, two clocks after an operation was accepted, its outcome.

    By then, its answer or the record of its fault is on the way to its queue; a thread that has to
    wait is on the way to the table, and an event if waits for the word are over.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = _unit()
        here = inside(dut)
        _drive(m, dut)
        _follow_the_room(m, here)
        it = _define(m, dut)

        # Answers and faults.
        answer, may_wait = Signal(BarrierResult), Signal()
        record = Signal(barrier_fault_layout(dut.params))
        is_count = it.among(BarrierOp.PENDING_COUNT)
        pending = (-BarrierWord(it.done.state).pending)[:20]
        lanes = Mux(it.among(*NO_COMPLETE), it.done.state[:32], 0)
        state = Cat(lanes, it.word.as_value()[32:])
        locks = it.counts & ~it.is_taken
        m.d.comb += [
            may_wait.eq(
                it.among(*TRIES)
                & it.is_taken
                & (it.word.phase == it.parity)
                & (it.done.time_limit != 0)
            ),
            answer.tag.eq(it.done.tag),
            answer.done.eq(it.tests & it.is_taken & (it.word.phase != it.parity)),
            answer.fault.eq(it.fault),
            answer.state.eq(Mux(is_count, pending, state)),
            record.request_id.eq(dut.update.p.request_id),
            record.address.eq(dut.update.p.address),
            record.fault.eq(it.fault),
        ]

        def delayed(value, name: str, clocks: int = 2):
            for clock in range(clocks):
                later = Signal.like(value, name=f"{name}_{clock}")
                m.d.sync += later.eq(value)
                value = later
            return value

        was_command = delayed(it.commanded, "was_command")
        was_fault = delayed(it.updated & ~it.is_taken, "was_fault")
        was_touched = delayed(it.touched, "was_touched")
        answer, record = delayed(answer, "last_answer"), delayed(record, "last_record")
        waits = delayed(delayed(may_wait, "may_wait", 1) & here.may_wait, "waits", 1)
        ends = delayed(it.touched & (it.flip | locks | it.restart), "ends")
        is_locked = delayed(locks, "is_locked")
        results, faults, event = here.results.i, here.faults.i, here.waiters.event
        m.d.comb += [
            Assert(results.valid == was_command),
            Assert(~results.valid | results.ready),
            Assert(~faults.valid | faults.ready),
        ]
        with m.If(was_touched):
            m.d.comb += Assert(faults.valid == was_fault)
            with m.If(was_command):
                m.d.comb += [
                    Assert(results.p[name] == answer[name])
                    for name in ("tag", "done", "fault", "state")
                ]
                m.d.comb += Assert(results.p.waits == waits)
            with m.If(was_fault):
                m.d.comb += Assert(faults.p == record)

        # Waits for the word end as its phase completes or is changed by INIT, or as it is locked.
        m.d.comb += [
            Assert((event.valid & (event.p.address == it.address)) == ends),
            Assert(~ends | ((event.p.outcome == Outcome.LOCKED) == is_locked)),
            Assert(~ends | (event.p.outcome != Outcome.TIME_OVER)),
        ]

        # The assumptions can be met: an update completes a phase after other operations.
        operations, completed = Signal(3), Signal()
        m.d.sync += operations.eq(operations + (it.commanded | it.updated))
        with m.If(it.flip & it.updated & (operations == 3)):
            m.d.sync += completed.eq(1)
        m.d.comb += Cover(completed & (it.start == 0))
        return m


class WaitSpec(Elaboratable):
    """Any one waiting thread is woken once, soon, and for a reason.

    The solver chooses the thread by its tag, which no other has while it waits, and its barrier.
    Its reason is the first of: an event of its barrier, that is an operation which completes or
    changes the phase or locks the barrier, as ``WordSpec`` proves; the end of its time. Other
    threads come and go, memory holds anything, and wakes may be held up.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = _unit()
        here = inside(dut)
        table = _follow_the_room(m, here)
        _drive(m, dut)
        m.d.comb += dut.memory.read_data.eq(AnySeq(64))

        # The thread issues its operation. The next clock says whether the thread waits. It comes to
        # the table in the clock after that.
        tag, address = AnyConst(len(dut.wake.p.tag)), AnyConst(len(dut.memory.read_address))
        command, event, coming = dut.command, here.waiters.event, here.waiters.i
        asks, asked, waiting = Signal(), Signal(), Signal()
        limit = Signal(TIME_LIMIT_BITS)
        starts_wait, woken = Signal(), Signal()
        places = Signal(2)  # wakes that are owed
        m.d.comb += [
            asks.eq(
                (command.valid & command.ready)
                & Cat(command.p.op == op for op in TRIES).any()
                & (command.p.tag == tag)
            ),
            Assume(~asks | (~asked & ~waiting & (command.p.address[3:] == address))),
            starts_wait.eq(here.starts_wait),
            woken.eq(dut.wake.valid & (dut.wake.p.tag == tag)),
        ]
        m.d.sync += [
            asked.eq(asks),
            waiting.eq(Mux(asked, starts_wait, waiting & ~(woken & dut.wake.ready))),
            places.eq(places + starts_wait - (dut.wake.valid & dut.wake.ready)),
        ]
        with m.If(asks):
            m.d.sync += limit.eq(command.p.time_limit)

        # The reason for the end of its wait, and the clock in which it came.
        ended, reason = Signal(), Signal(Outcome)
        age, age_of_reason = Signal(TIME_LIMIT_BITS + 1), Signal(TIME_LIMIT_BITS + 1)
        overdue = limit + 5
        with m.If(asks):
            m.d.sync += [age.eq(1), ended.eq(0)]
        with m.Elif(asked | waiting):
            m.d.sync += age.eq(Mux(age == overdue, age, age + 1))
            with m.If(waiting & event.valid & (event.p.address == address) & ~ended):
                m.d.sync += [ended.eq(1), reason.eq(event.p.outcome), age_of_reason.eq(age)]

        is_event = (reason == Outcome.COMPLETE) | (reason == Outcome.LOCKED)
        m.d.comb += Assert(~ended | is_event)

        # The reason of the wake is the event, unless the time limit expired in an earlier clock.
        def is_right(given):
            time_is_over = (age > limit + 2) & (~ended | (age_of_reason > limit + 2))
            return Mux(given == Outcome.TIME_OVER, time_is_over, ended & (given == reason))

        given = Signal(Outcome)
        with m.If(dut.wake.p.done):
            m.d.comb += given.eq(Outcome.COMPLETE)
        with m.Elif(dut.wake.p.fault == BarrierFault.LOCKED):
            m.d.comb += given.eq(Outcome.LOCKED)
        no_fault = dut.wake.p.fault == BarrierFault.NONE
        with m.If(woken):
            m.d.comb += [
                Assert(waiting),
                Assert(is_right(given)),
                Assert(no_fault == ((given == Outcome.COMPLETE) | (given == Outcome.TIME_OVER))),
            ]
        hold(m, dut.wake, "wake", Assert)

        # The wake comes within SOON clocks; clocks in which wakes are held up do not count.
        late = Signal(3)
        with m.If(asks):
            m.d.sync += late.eq(0)
        with m.Elif(waiting & (ended | (age == overdue)) & (~dut.wake.valid | dut.wake.ready)):
            m.d.sync += late.eq(late + 1)
        m.d.comb += Assert(~waiting | (late <= SOON))

        # The thread has one entry in the table, with its operands.
        entries = table.waiting, table.wake_pending, table.leaving, table.new_entry
        is_coming = coming.valid & (coming.p.tag == tag)
        m.d.comb += [
            Assert(age <= overdue),
            *(Assert((one & other) == 0) for one, other in combinations(entries, 2)),
            *(Assert((mask & (mask - 1)) == 0) for mask in entries[2:]),
            Assert(table.is_leaving == table.leaving.any()),
            Assert(table.last_time == (table.current_time - 1)[: len(table.last_time)]),
            Assert(
                places
                == sum(
                    (*table.waiting, *table.wake_pending, *table.leaving, coming.valid),
                    start=table.wake_valid,
                )
            ),
        ]
        with m.If(is_coming):
            m.d.comb += [
                Assert(coming.p.address == address),
                Assert(coming.p.time_limit == limit),
                Assert((age == 2) & ~ended & (late == 0)),
            ]
        found = []
        for number in range(dut.params.barrier_waiters):
            deadline = row(m, table.deadlines, number)
            is_it = row(m, table.tags, number) == tag
            is_waiting, is_pending = table.waiting[number], table.wake_pending[number]
            is_leaving = table.leaving[number]
            looked = (table.scanned_index == number) & table.scanned_waiting
            reason_kept = Signal(Outcome, name=f"reason_{number}")
            with m.If(table.by_event[number]):
                m.d.comb += reason_kept.eq(
                    Mux(table.locked[number], Outcome.LOCKED.value, Outcome.COMPLETE.value)
                )
            found.append(is_it & (is_waiting | is_pending | is_leaving))
            with m.If(is_waiting & looked):
                m.d.comb += Assert(table.deadlines.read_ports[0].data == deadline)
            with m.If(is_waiting & is_it):
                m.d.comb += [
                    Assert(table.signal(f"address_{number}") == address),
                    Assert(~ended),
                    # The memory holds the deadline less 1.
                    Assert(deadline == (table.current_time + limit + 1 - age)[: len(deadline)]),
                    Assert((age <= limit + 3) | ((age == limit + 4) & looked)),
                    Assert(late == 0),
                ]
            with m.If((is_pending | is_leaving) & is_it):
                m.d.comb += Assert(is_right(reason_kept))
            with m.If(is_pending & is_it):
                # No other wake overtakes it when the other entry has left.
                m.d.comb += Assert((late == 0) | ((late == 1) & (table.above_last == 2 * number)))
            with m.If(is_leaving & is_it):
                m.d.comb += Assert(late <= 2)
        is_offered = table.wake_valid & (table.tags.read_ports[0].data == tag)
        m.d.comb += Assert(sum((*found, is_coming), start=is_offered) == waiting)

        # The assumptions can be met: its phase completes when another thread's time limit expires.
        overtaken = Signal()
        with m.If(dut.wake.valid & ~woken & ~dut.wake.p.done & waiting & ended):
            m.d.sync += overtaken.eq(1)
        m.d.comb += Cover(overtaken & woken & dut.wake.p.done)
        return m


class TurnSpec(Elaboratable):
    """Commands and updates are accepted soon, whoever waits.

    Commands need only that results are taken within ``PATIENCE`` clocks, and updates need the same
    of faults. All else may be held up for ever: the other reports, and wakes.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = _unit()
        here = inside(dut)
        _drive(m, dut)
        _follow_the_room(m, here)
        m.d.comb += dut.memory.read_data.eq(AnySeq(64))
        for name, report, queue, on_its_way in (
            ("command", "result", here.results, here.is_command),
            ("update", "fault", here.faults, here.is_update),
        ):
            port, taken_from = getattr(dut, name), getattr(dut, report)
            is_fair = AnyConst(1)
            held_up = Signal(range(PATIENCE + 2), name=f"{report}_held_up")
            waits = Signal(range(ACCEPTED + 2), name=f"{name}_waits")
            with m.If(taken_from.valid & ~taken_from.ready):
                m.d.comb += Assume(~is_fair | (held_up < PATIENCE))
                m.d.sync += held_up.eq(Mux(held_up > PATIENCE, held_up, held_up + 1))
            with m.Else():
                m.d.sync += held_up.eq(0)
            with m.If(port.valid & ~port.ready & is_fair):
                m.d.sync += waits.eq(waits + 1)
            with m.Else():
                m.d.sync += waits.eq(0)
            hold(m, taken_from, report, Assert)
            follow_the_level(m, queue)
            m.d.comb += [
                Assert(waits <= ACCEPTED),
                Assert(queue.level + queue.i.valid + on_its_way <= queue.depth),
            ]

        # Commands and updates can wait as long as allowed, while everything else continues.
        stalled = Signal(5)
        with m.If(dut.command.valid & ~dut.command.ready):
            m.d.sync += stalled.eq(stalled + 1)
        with m.Else():
            m.d.sync += stalled.eq(0)
        m.d.comb += Cover((stalled == 3) & dut.update.valid & dut.update.ready & dut.wake.valid)
        return m


def _flips_with_bytes_to_come(_step: BarrierStep, inner: Inside) -> None:
    inner.module.d.comb += inner.complete.eq(inner.all_arrived)


def _reads_before_the_write(unit: MbarrierUnit, inner: Inside) -> None:
    inner.module.d.comb += inner.step.word.eq(unit.memory.read_data)


def _drops_too_late(step: BarrierStep, inner: Inside) -> None:
    with inner.module.If(inner.complete & ~step.has_fault):
        inner.module.d.comb += step.next_word.pending.eq(step.word.expected)


def _loses_a_wake(_waiters: BarrierWaiters, inner: Inside) -> None:
    leaving = inner.wake_pending
    ended = inner.ended_by_event | inner.ended_by_time
    inner.module.d.sync += leaving.eq(Mux(leaving.any(), leaving & ~inner.dequeues, ended))


def _wakes_twice(waiters: BarrierWaiters, inner: Inside) -> None:
    entered = Mux(waiters.i.valid, inner.new_entry, 0)
    inner.module.d.sync += inner.waiting.eq((inner.waiting | entered) & ~inner.ended_by_event)


def _takes_errors_for_done(waiters: BarrierWaiters, inner: Inside) -> None:
    inner.module.d.comb += waiters.wake.p.done.eq(inner.done | inner.is_locked)


def _favours_updates(unit: MbarrierUnit, inner: Inside) -> None:
    inner.module.d.comb += unit.update.ready.eq(inner.can_accept_update)


def _waits_for_room(unit: MbarrierUnit, inner: Inside) -> None:
    has_room = (inner.results.level < REPORTS - 1) & inner.may_wait
    inner.module.d.comb += inner.can_accept_command.eq(unit.command.valid & has_room)


PROOFS = [
    Proof(
        "mbarrier: the word follows the definition",
        WordSpec,
        depth=3,
        cover=12,
        bugs=(
            Bug(
                "a phase that flips with bytes to come",
                BarrierStep,
                _flips_with_bytes_to_come,
                depth=6,
            ),
            Bug(
                "a word read before it was written",
                MbarrierUnit,
                _reads_before_the_write,
                depth=6,
            ),
            Bug(
                "drops of the next phase's arrivals only after it",
                BarrierStep,
                _drops_too_late,
                depth=6,
            ),
        ),
        unbounded=True,
    ),
    Proof(
        "mbarrier: a waiting thread is woken once, soon, and for a reason",
        WaitSpec,
        depth=3,
        cover=12,
        bugs=(
            Bug(
                "a wake that is lost while another leaves",
                BarrierWaiters,
                _loses_a_wake,
                depth=9,
            ),
            Bug(
                "a wake for a phase and another for the time limit",
                BarrierWaiters,
                _wakes_twice,
                depth=9,
            ),
            Bug(
                "a wake with done for an error",
                BarrierWaiters,
                _takes_errors_for_done,
                depth=8,
            ),
        ),
        unbounded=True,
    ),
    Proof(
        "mbarrier: no deadlock: operations are accepted soon, whichever threads wait",
        TurnSpec,
        depth=ACCEPTED + 2,
        cover=14,
        bugs=(
            Bug(
                "updates that are never followed by a command",
                MbarrierUnit,
                _favours_updates,
                depth=ACCEPTED + 3,
            ),
            Bug(
                "operations that wait for room for wakes",
                MbarrierUnit,
                _waits_for_room,
                depth=ACCEPTED + 6,
            ),
        ),
        unbounded=True,
    ),
]
