"""Hopper's mbarrier objects: 64-bit words in shared memory, one operation a clock."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts import (
    BARRIER_COUNT_BITS,
    BarrierCommand,
    BarrierOp,
    BarrierResult,
    barrier_completion_layout,
    barrier_fault_layout,
)
from hw.params import SMEM_OFFSET_BITS, TmaParams
from hw.queue import Queue

ARRIVAL_BITS = 20
"""Width of a count of arrivals; at most ``2**20 - 1`` are expected in a phase."""

WORD_ADDRESS_BITS = SMEM_OFFSET_BITS - 3
"""Width of a shared-memory offset in words of 64 bits."""

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
                "read_address": Out(WORD_ADDRESS_BITS),
                "read_data": In(64),
                "write_en": Out(1),
                "write_address": Out(WORD_ADDRESS_BITS),
                "write_data": Out(64),
            }
        )


class MbarrierUnit(wiring.Component):
    """Applies the operations of the SM's threads and the ``complete_tx`` of the unit to barriers.

    =================  ============================================================================
    INIT               expect ``count`` arrivals, from 1 to ``2**20 - 1``, in phase 0
    INVAL              write zero: plain memory
    ARRIVE             ``count`` arrivals, then the check
    EXPECT_TX          ``count`` more bytes to come, then the check
    COMPLETE_TX        ``count`` bytes came, then the check
    ARRIVE_EXPECT_TX   ``count`` more bytes to come and one arrival, then the check
    TEST_WAIT_PARITY   whether phase ``count[0]`` is complete: the phase is another
    =================  ============================================================================

    The check: when no arrival is pending and no byte is to come, the phase flips and the expected
    arrivals are pending again, in one step with the operation.

    Errors. More arrivals than are pending, or bytes to come outside ``-(2**20 - 1)`` to
    ``2**20 - 1``, set ``lock`` and change nothing else; with ``lock`` set every operation but INIT
    and INVAL is an error and changes nothing. INIT with a count out of range is an error and writes
    nothing, and so is an operation that does not exist. The error is in the result of a command; a
    completion has none and is reported at ``fault``. A word that was never initialised looks like
    any other, so its use is not detected. The low three bits of an address are ignored: alignment
    is checked where a request is.

    Order: operations take effect one after another in the order of their acceptance. Latency: the
    word is read in the clock of acceptance, written in the next, and the result offered in the one
    after. Throughput: one operation a clock, on any mix of barriers or on one. Arbitration: while
    both ports wait they take turns, so that each waits at most one clock for the other.
    Back-pressure: commands wait while ``REPORTS - 1`` results are held up, completions (never
    commands) while as many faults are; neither holds up the other.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    command : In(stream.Signature(BarrierCommand))
    result : Out(stream.Signature(BarrierResult))
        One for each command, in order.
    completion : In(stream.Signature(barrier_completion_layout(params)))
    fault : Out(stream.Signature(barrier_fault_layout(params)))
    memory : Out(BarrierMemory())
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "command": In(stream.Signature(BarrierCommand)),
                "result": Out(stream.Signature(BarrierResult)),
                "completion": In(stream.Signature(barrier_completion_layout(params))),
                "fault": Out(stream.Signature(barrier_fault_layout(params))),
                "memory": Out(BarrierMemory()),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.results = results = Queue(BarrierResult, REPORTS)
        m.submodules.faults = faults = Queue(barrier_fault_layout(self.params), REPORTS)
        wiring.connect(m, results.o, wiring.flipped(self.result))
        wiring.connect(m, faults.o, wiring.flipped(self.fault))

        # Accept one operation and read its word. One more may be on its way to each queue of
        # reports than ``level`` says.
        may_command = Signal()
        may_complete = Signal()
        completed_last = Signal()
        offered = Signal(BarrierCommand)
        m.d.comb += [
            may_command.eq(self.command.valid & (results.level < REPORTS - 1)),
            may_complete.eq(self.completion.valid & (faults.level < REPORTS - 1)),
            self.completion.ready.eq(may_complete & ~(may_command & completed_last)),
            self.command.ready.eq(may_command & ~self.completion.ready),
        ]
        with m.If(self.completion.ready):
            m.d.comb += [
                offered.op.eq(BarrierOp.COMPLETE_TX),
                offered.address.eq(self.completion.payload.address),
                offered.count.eq(self.completion.payload.tx_bytes),
            ]
        with m.Else():
            m.d.comb += offered.eq(self.command.payload)

        commanded = Signal()
        completed = Signal()
        todo = Signal(BarrierCommand, reset_less=True)
        request_id = Signal(self.params.request_id_bits, reset_less=True)
        word_address = todo.address[-WORD_ADDRESS_BITS:]
        m.d.comb += [
            self.memory.read_en.eq(self.command.ready | self.completion.ready),
            self.memory.read_address.eq(offered.address[-WORD_ADDRESS_BITS:]),
        ]
        m.d.sync += [
            commanded.eq(self.command.ready),
            completed.eq(self.completion.ready),
        ]
        with m.If(self.memory.read_en):
            m.d.sync += [
                todo.eq(offered),
                request_id.eq(self.completion.payload.request_id),
                completed_last.eq(self.completion.ready),
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

        # Apply the operation. With no arrival pending, the stored 0 stands for 2**20, the end.
        full = 1 << ARRIVAL_BITS
        arrivals = Signal(BARRIER_COUNT_BITS)
        more_bytes = Signal(signed(BARRIER_COUNT_BITS + 1))
        arrived = Signal(BARRIER_COUNT_BITS + 1)
        tx = Signal(signed(BARRIER_COUNT_BITS + 2))
        with m.Switch(todo.op):
            with m.Case(BarrierOp.ARRIVE):
                m.d.comb += arrivals.eq(todo.count)
            with m.Case(BarrierOp.EXPECT_TX):
                m.d.comb += more_bytes.eq(todo.count)
            with m.Case(BarrierOp.COMPLETE_TX):
                m.d.comb += more_bytes.eq(-todo.count)
            with m.Case(BarrierOp.ARRIVE_EXPECT_TX):
                m.d.comb += [arrivals.eq(1), more_bytes.eq(todo.count)]
        m.d.comb += [
            arrived.eq(Cat(word.pending, word.pending == 0) + arrivals),
            tx.eq(word.tx + more_bytes),
        ]

        after = Signal(BarrierWord)
        error = Signal()
        write = Signal()
        m.d.comb += [after.eq(word), write.eq(1)]
        with m.Switch(todo.op):
            with m.Case(BarrierOp.INIT):
                negative = (-todo.count)[:ARRIVAL_BITS]
                m.d.comb += [
                    error.eq((todo.count == 0) | (todo.count >= full)),
                    write.eq(~error),
                    after.eq(0),
                    after.expected.eq(negative),
                    after.pending.eq(negative),
                ]
            with m.Case(BarrierOp.INVAL):
                m.d.comb += after.eq(0)
            with m.Case(BarrierOp.TEST_WAIT_PARITY):
                m.d.comb += [error.eq(word.lock), write.eq(0)]
            with m.Case(
                BarrierOp.ARRIVE,
                BarrierOp.ARRIVE_EXPECT_TX,
                BarrierOp.EXPECT_TX,
                BarrierOp.COMPLETE_TX,
            ):
                with m.If(word.lock | (arrived > full) | (tx >= full) | (tx <= -full)):
                    m.d.comb += [error.eq(1), after.lock.eq(1)]
                with m.Elif((arrived == full) & (tx == 0)):
                    m.d.comb += [
                        after.phase.eq(~word.phase),
                        after.pending.eq(word.expected),
                        after.tx.eq(0),
                    ]
                with m.Else():
                    m.d.comb += [after.pending.eq(arrived), after.tx.eq(tx)]
            with m.Default():
                m.d.comb += [error.eq(1), write.eq(0)]

        waited = (todo.op == BarrierOp.TEST_WAIT_PARITY) & (word.phase != todo.count[0])
        m.d.comb += [
            self.memory.write_en.eq((commanded | completed) & write),
            self.memory.write_address.eq(word_address),
            self.memory.write_data.eq(after),
            results.i.valid.eq(commanded),
            results.i.p.tag.eq(todo.tag),
            results.i.p.done.eq(waited & ~error),
            results.i.p.error.eq(error),
            results.i.p.state.eq(word),
            faults.i.valid.eq(completed & error),
            faults.i.p.request_id.eq(request_id),
            faults.i.p.address.eq(todo.address),
        ]
        m.d.sync += [
            Assert(~results.i.valid | results.i.ready, "mbarrier unit: a result was lost\n"),
            Assert(~faults.i.valid | faults.i.ready, "mbarrier unit: a fault was lost\n"),
        ]
        return m
