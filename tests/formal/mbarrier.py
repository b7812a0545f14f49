"""The mbarrier unit is its operations, one after another, whatever arrives when."""

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

from hw.barrier_waiters import Outcome
from hw.layouts import (
    TIME_LIMIT_BITS,
    BarrierCommand,
    BarrierFault,
    BarrierOp,
    BarrierResult,
    barrier_fault_layout,
)
from hw.mbarrier_unit import BarrierWord, MbarrierUnit
from hw.params import TmaParams
from tests.formal.inside import inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer

ARRIVALS = 1 << 20
COUNT_LIMIT = ARRIVALS - 1

ARRIVE = BarrierOp.ARRIVE, BarrierOp.ARRIVE_DROP
NO_COMPLETE = BarrierOp.ARRIVE_NO_COMPLETE, BarrierOp.ARRIVE_DROP_NO_COMPLETE
ARRIVE_EXPECT = BarrierOp.ARRIVE_EXPECT_TX, BarrierOp.ARRIVE_DROP_EXPECT_TX
DROPS = BarrierOp.ARRIVE_DROP, BarrierOp.ARRIVE_DROP_NO_COMPLETE, BarrierOp.ARRIVE_DROP_EXPECT_TX
BY_PARITY = BarrierOp.TEST_WAIT_PARITY, BarrierOp.TRY_WAIT_PARITY
TRIES = BarrierOp.TRY_WAIT, BarrierOp.TRY_WAIT_PARITY


def _unit() -> MbarrierUnit:
    return MbarrierUnit(
        TmaParams(
            request_id_bits=1, barrier_waiters=2, stores=False, reductions=False, im2col=False
        )
    )


def _drive(m: Module, dut: MbarrierUnit) -> None:
    """Any operations, at any time."""
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

    # The operation.
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
            done.op.eq(dut.update.p.op),
            done.address.eq(dut.update.p.address),
            done.count.eq(dut.update.p.count),
        ]
    with m.Else():
        m.d.comb += done.eq(dut.command.p)

    def among(*ops: BarrierOp):
        return Cat(done.op == op for op in ops).any()

    m.d.comb += parity.eq(Mux(among(*BY_PARITY), done.count[0], done.state[63]))

    # What it does.
    word, truth, expected = Signal(BarrierWord), Signal(BarrierWord), Signal(64)
    counts, tests = Signal(), Signal()
    arrivals, left, kept = Signal(21), Signal(signed(23)), Signal(signed(23))
    more, tx = Signal(signed(23)), Signal(signed(24))
    fault = Signal(BarrierFault)
    completes, flip = Signal(), Signal()
    m.d.sync += [truth.eq(word), expected.eq(word)]
    m.d.comb += [
        word.eq(Mux(begun, truth, start)),
        counts.eq(
            among(*ARRIVE, *NO_COMPLETE, *ARRIVE_EXPECT, BarrierOp.EXPECT_TX, BarrierOp.COMPLETE_TX)
        ),
        tests.eq(among(BarrierOp.TEST_WAIT, BarrierOp.TEST_WAIT_PARITY, *TRIES)),
        left.eq((-word.pending)[:20] - arrivals),
        kept.eq((-word.expected)[:20] - Mux(among(*DROPS), arrivals, 0)),
        tx.eq(word.tx + more),
        completes.eq((left == 0) & (tx == 0)),
        flip.eq(touched & counts & (fault == BarrierFault.NONE) & completes),
    ]
    with m.If(among(*ARRIVE, *NO_COMPLETE)):
        m.d.comb += arrivals.eq(done.count)
    with m.Elif(among(*ARRIVE_EXPECT)):
        m.d.comb += arrivals.eq(1)
    with m.If(among(*ARRIVE_EXPECT, BarrierOp.EXPECT_TX)):
        m.d.comb += more.eq(done.count)
    with m.Elif(among(BarrierOp.COMPLETE_TX)):
        m.d.comb += more.eq(-done.count)

    is_init = among(BarrierOp.INIT)
    needs_v1 = among(BarrierOp.REPORT) | ((is_init | tests) & done.v1)
    with m.If(needs_v1 | (updated & ~counts)):
        m.d.comb += fault.eq(BarrierFault.OPERATION)
    with m.Elif(is_init & ((done.count == 0) | (done.count > COUNT_LIMIT))):
        m.d.comb += fault.eq(BarrierFault.COUNT)
    with m.Elif(counts | tests):
        with m.If(word.lock):
            m.d.comb += fault.eq(BarrierFault.LOCKED)
        with m.Elif((word.as_value() == 0) | word.reserved):
            m.d.comb += fault.eq(BarrierFault.UNINITIALISED)
        with m.Elif((left < 0) | (kept < 0)):
            m.d.comb += fault.eq(BarrierFault.OVER_ARRIVAL)
        with m.Elif(counts & ((tx > COUNT_LIMIT) | (tx < -COUNT_LIMIT))):
            m.d.comb += fault.eq(BarrierFault.TX_RANGE)
        with m.Elif(among(*NO_COMPLETE) & completes):
            m.d.comb += fault.eq(BarrierFault.COMPLETES)

    is_taken = fault == BarrierFault.NONE
    with m.If(touched & counts & is_taken):
        m.d.sync += [
            truth.expected.eq(ARRIVALS - kept),
            truth.pending.eq(ARRIVALS - Mux(flip, kept, left)),
            truth.tx.eq(tx),
            truth.phase.eq(word.phase ^ flip),
        ]
    with m.Elif(touched & counts):
        m.d.sync += truth.lock.eq(1)
    with m.Elif(touched & is_init & is_taken):
        m.d.sync += [
            truth.eq(0),
            truth.expected.eq(ARRIVALS - done.count),
            truth.pending.eq(ARRIVALS - done.count),
        ]
    with m.Elif(touched & among(BarrierOp.INVAL) & is_taken):
        m.d.sync += truth.eq(0)
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
    )


class WordSpec(Elaboratable):
    """Any one word of memory holds, two clocks after an operation was accepted, its outcome.

    And the operation's answer, or the record of an update's fault, is on its way to its queue one
    clock after.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = _unit()
        here = inside(dut)
        _drive(m, dut)
        it = _define(m, dut)

        # Answers and faults.
        was_command, was_fault, was_touched = Signal(), Signal(), Signal()
        answer, may_wait = Signal(BarrierResult), Signal()
        record = Signal(barrier_fault_layout(dut.params))
        is_count = it.among(BarrierOp.PENDING_COUNT)
        pending = (-BarrierWord(it.done.state).pending)[:20]
        m.d.sync += [
            was_command.eq(it.commanded),
            was_fault.eq(it.updated & ~it.is_taken),
            was_touched.eq(it.touched),
            may_wait.eq(
                it.among(*TRIES)
                & it.is_taken
                & (it.word.phase == it.parity)
                & (it.done.time_limit != 0)
            ),
            answer.tag.eq(it.done.tag),
            answer.done.eq(it.tests & it.is_taken & (it.word.phase != it.parity)),
            answer.fault.eq(it.fault),
            answer.state.eq(Mux(is_count, pending, it.word)),
            record.request_id.eq(dut.update.p.request_id),
            record.address.eq(dut.update.p.address),
            record.fault.eq(it.fault),
        ]
        results, faults = here.results.i, here.faults.i
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
                m.d.comb += Assert(~results.p.waits | may_wait)
            with m.If(was_fault):
                m.d.comb += Assert(faults.p == record)

        # The proof is not empty: a phase completes by an update on top of other operations.
        operations, completed = Signal(3), Signal()
        m.d.sync += operations.eq(operations + (it.commanded | it.updated))
        with m.If(it.flip & it.updated & (operations == 3)):
            m.d.sync += completed.eq(1)
        m.d.comb += Cover(completed & (it.start == 0))
        return m


PROOFS = [
    Proof(
        "mbarrier: the word follows the definition",
        WordSpec,
        depth=4,
        cover=12,
        bugs=(
            Bug(
                "a phase that flips with bytes to come",
                "hw.mbarrier_unit",
                "complete.eq((arrived == full) & (tx == 0))",
                "complete.eq(arrived == full)",
                depth=5,
            ),
            Bug(
                "a word read before it was written",
                "hw.mbarrier_unit",
                "word.eq(Mux(forward, written, self.memory.read_data))",
                "word.eq(self.memory.read_data)",
                depth=5,
            ),
            Bug(
                "drops of the next phase's arrivals only after it",
                "hw.mbarrier_unit",
                "after.pending.eq(Mux(complete, dropped, arrived))",
                "after.pending.eq(Mux(complete, word.expected, arrived))",
                depth=5,
            ),
        ),
        unbounded=True,
    ),
]
