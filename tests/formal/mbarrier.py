"""The mbarrier unit is its operations, one after another, whatever arrives when."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
    signed,
)

from hw.layouts import BarrierCommand, BarrierOp
from hw.mbarrier_unit import BarrierWord, MbarrierUnit
from hw.params import TmaParams
from tests.formal.streams import hold

ARRIVALS = 1 << 20
COUNT_LIMIT = ARRIVALS - 1


def _drive(m: Module, dut: MbarrierUnit) -> None:
    for port in (dut.command, dut.completion):
        m.d.comb += [
            port.valid.eq(AnySeq(1)),
            port.payload.eq(AnySeq(len(Value.cast(port.payload)))),
        ]
    m.d.comb += [dut.result.ready.eq(AnySeq(1)), Assume(~ResetSignal())]
    hold(m, dut.command, "command", Assume)
    hold(m, dut.completion, "completion", Assume)
    m.d.comb += Assume(Value.cast(dut.command.payload.op) != 7)  # no such operation


class WordSpec(Elaboratable):
    """Any one word of memory holds, two clocks after an operation was accepted, its outcome.

    The outcome is stated in numbers of arrivals and bytes, not in the stored complements: the phase
    flips exactly when both have come to zero.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = MbarrierUnit(TmaParams(request_id_bits=1))
        _drive(m, dut)
        m.d.comb += dut.fault.ready.eq(AnySeq(1))

        # One word of the memory, at any address; it is read before it is written.
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

        # The same word by the definition, one operation at a time.
        done = Signal(BarrierCommand)
        accepted = Signal()
        m.d.comb += accepted.eq(
            (dut.command.valid & dut.command.ready) | (dut.completion.valid & dut.completion.ready)
        )
        with m.If(dut.completion.valid & dut.completion.ready):
            m.d.comb += [
                done.op.eq(BarrierOp.COMPLETE_TX),
                done.address.eq(dut.completion.payload.address),
                done.count.eq(dut.completion.payload.tx_bytes),
                Assert(~dut.command.ready),
            ]
        with m.Else():
            m.d.comb += done.eq(dut.command.payload)

        truth_now, truth, expected = Signal(BarrierWord), Signal(BarrierWord), Signal(64)
        m.d.comb += truth_now.eq(Mux(begun, truth, start))
        m.d.sync += [truth.eq(truth_now), expected.eq(truth_now)]
        pending, left = Signal(21), Signal(signed(23))
        arrivals, tx = Signal(21), Signal(signed(24))
        m.d.comb += [
            pending.eq(Mux(truth_now.pending == 0, 0, ARRIVALS - truth_now.pending)),
            left.eq(pending - arrivals),
        ]
        with m.Switch(done.op):
            with m.Case(BarrierOp.ARRIVE):
                m.d.comb += [arrivals.eq(done.count), tx.eq(truth_now.tx)]
            with m.Case(BarrierOp.ARRIVE_EXPECT_TX):
                m.d.comb += [arrivals.eq(1), tx.eq(truth_now.tx + done.count)]
            with m.Case(BarrierOp.EXPECT_TX):
                m.d.comb += tx.eq(truth_now.tx + done.count)
            with m.Default():
                m.d.comb += tx.eq(truth_now.tx - done.count)

        flip = Signal()
        is_init, is_test = Signal(), Signal()
        m.d.comb += [
            is_init.eq(done.op == BarrierOp.INIT),
            is_test.eq(done.op == BarrierOp.TEST_WAIT_PARITY),
        ]
        touched = accepted & (done.address[3:] == address)
        with m.If(touched & is_init & (done.count > 0) & (done.count <= COUNT_LIMIT)):
            m.d.sync += [
                truth.eq(0),
                truth.expected.eq(ARRIVALS - done.count),
                truth.pending.eq(ARRIVALS - done.count),
            ]
        with m.Elif(touched & (done.op == BarrierOp.INVAL)):
            m.d.sync += truth.eq(0)
        with m.Elif(touched & ~is_init & ~is_test & ~truth_now.lock):
            with m.If((left < 0) | (tx > COUNT_LIMIT) | (tx < -COUNT_LIMIT)):
                m.d.sync += truth.lock.eq(1)
            with m.Else():
                m.d.comb += flip.eq((left == 0) & (tx == 0))
                m.d.sync += [
                    truth.tx.eq(tx),
                    truth.pending.eq(Mux(flip, truth_now.expected, ARRIVALS - left)),
                    truth.phase.eq(truth_now.phase ^ flip),
                ]
        with m.If(begun):
            m.d.comb += Assert(cell == expected)

        # The proof is not empty: a phase completes by a complete_tx on top of other operations.
        operations, completed = Signal(3), Signal()
        m.d.sync += operations.eq(operations + accepted)
        with m.If(flip & dut.completion.ready & (operations == 3)):
            m.d.sync += completed.eq(1)
        m.d.comb += Cover(completed & (start == 0))
        return m


class TurnSpec(Elaboratable):
    """A completion waits one clock at most, however long results are held up.

    Faults are taken at once here: a full queue of faults is the one thing that may hold it up.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = MbarrierUnit(TmaParams(request_id_bits=1))
        _drive(m, dut)
        m.d.comb += [dut.fault.ready.eq(1), dut.memory.read_data.eq(AnySeq(64))]
        hold(m, dut.result, "result", Assert)
        waited, stalled = Signal(), Signal(4)
        m.d.sync += waited.eq(dut.completion.valid & ~dut.completion.ready)
        with m.If(dut.command.valid & ~dut.command.ready):
            m.d.sync += stalled.eq(stalled + 1)
        with m.Else():
            m.d.sync += stalled.eq(0)
        with m.If(waited):
            m.d.comb += Assert(dut.completion.ready)

        # A completion passes commands that wait for room.
        m.d.comb += Cover((stalled == 3) & dut.completion.valid & dut.completion.ready)
        return m
