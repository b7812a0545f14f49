"""A stand-in for the unit: it has the unit's ports, copies lines, and commits faults on request.

Tests of the testbench use it to see whether a fault is noticed. A load reads the tensor map at
``tensor_map``, uses words 0 and 1 as an address (see ``tensor_map_of``), copies ``coords[3]`` lines
from there to ``smem_address``, and subtracts the bytes from the tx-count of the barrier.
``coords[4]`` selects a ``Fault``. One thread can wait at a barrier. In a cluster, an operation on
another CTA is answered with an error record whose value consists of its operands.
"""

from pathlib import Path

import numpy as np
from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from numpy.typing import NDArray

from hw.flow import verilog
from hw.flow.cache import cached, digest, sources
from hw.layouts.barriers import BarrierCommand, BarrierOp
from hw.layouts.ports import request_layout
from hw.params import TmaParams
from hw.top import tma_ports
from sim_tb.simulator import runner


class Fault(enum.Enum, shape=4):
    NONE = 0
    VALID_FALLS = 1
    """A line request is withdrawn before its transfer."""
    PAYLOAD_CHANGES = 2
    TAG_REUSED = 3
    BEYOND_SMEM = 4
    """The first beat is written to the last beat of the address space."""
    HANGS = 5
    """The unit stops after it has read the tensor map."""
    WRONG_TAG = 6
    """All later barrier results have a wrong tag."""
    SHORT_COUNT = 7
    """16 bytes too few are subtracted from the tx-count."""
    REFUSES = 8
    """The request gets an error record; its value consists of the operands that name CTAs."""
    WRONG_BYTE = 9
    WAITS_WRONGLY = 10
    """All later barrier results say that the thread waits."""
    BREAKS_ASSERTION = 11
    """An assertion does not hold."""
    READS_ELSEWHERE = 12
    """Lines are read between the rows of the box."""
    WRITES_ELSEWHERE = 13
    """Shared memory is written behind the box."""
    STORES = 14
    """The load writes a line of global memory."""


ELSEWHERE = 1 << 14
"""Distance of wrong addresses from the right ones, in lines and in bytes of shared memory."""


def tensor_map_of(address: int, size: int) -> NDArray[np.uint32]:
    """Return the words of a map of two parts, each of ``size`` bytes: the first one at ``address``,
    the other one more than ``ELSEWHERE`` lines behind it. A box at 0, 0, 0 has both.

    ``size`` is a multiple of 256, up to 65,536.
    """
    rows, distance = size // 256, 1 << 23
    words = np.zeros(32, np.uint32)
    words[[0, 2, 3, 4]] = address, 2 << 4, 256 >> 4, distance >> 4
    words[[8, 9, 10]] = 255, rows - 1, 1
    words[[13, 14]] = 255 << 24, rows - 1 | 1 << 8
    return words


class StandIn(wiring.Component):
    """Stand-in for the unit; see the module. It has one request and one line in flight."""

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(tma_ports(params))  # ports not used below are idle
        # Signals of their own, so that no bits of the payload are driven by a constant process,
        # which Verilator refuses.
        self.error_id = Signal.like(self.error.p.request_id)
        self.error_value = Signal.like(self.error.p.value)

    def elaborate(self, _) -> Module:
        m = Module()
        p = self.params
        request = Signal(request_layout(p))
        line = Signal(64)
        lines_left = Signal(32)
        beat = Signal(p.smem_beat_bits)
        tag = Signal(p.tag_bits)
        fault = Signal(Fault)
        fault_done = Signal()  # the fault has been committed
        word = Signal(
            data.StructLayout(
                {"zero": 1, "expected": 20, "tx": 21, "lock": 1, "pending": 20, "phase": 1}
            )
        )
        command = Signal(BarrierCommand)
        internal = Signal()  # the command is the completion of a load
        wrong_tag = Signal()
        wrong_wait = Signal()
        waiter = Signal(BarrierCommand)
        waiting = Signal()
        time_left = Signal(32)
        line_shift = (p.line_bytes - 1).bit_length()
        waits = command.op == BarrierOp.TRY_WAIT_PARITY
        done = word.phase != command.count[0]
        suspended = Signal()  # the command's thread waits at the barrier

        m.d.comb += [
            self.request_room.channels.eq(~0),
            self.descriptor_prefetch.ready.eq(1),
            self.descriptor_invalidate.ready.eq(1),
            self.descriptor_request.payload.eq(request.global_address),
            self.gnic_request.p.tag.eq(tag),
            self.gnic_request.p.line.eq(line + Mux(fault == Fault.READS_ELSEWHERE, ELSEWHERE, 0)),
            self.error.p.request_id.eq(self.error_id),
            self.error.p.code.eq(1),
            self.error.p.value.eq(self.error_value),
            self.error_id.eq(request.request_id),
            self.error_value.eq(
                Cat(
                    request.multicast,
                    request.cta_mask,
                    request.dst_cta,
                    request.mbarrier_cta,
                    request.cta_group_2,
                )
            ),
            self.barrier_memory.read_address.eq(command.address >> 3),
            self.barrier_memory.write_address.eq(command.address >> 3),
        ]
        m.d.sync += Assert(
            fault != Fault.BREAKS_ASSERTION, "stand-in: an assertion fails on purpose\n"
        )

        # The waiting thread wakes when its phase completes or its time limit passes.
        phase_completes = Signal()
        with m.If(waiting & ~self.barrier_wake.valid):
            m.d.sync += time_left.eq(time_left - 1)
            with m.If(phase_completes | (time_left == 0)):
                m.d.sync += [
                    self.barrier_wake.valid.eq(1),
                    self.barrier_wake.p.tag.eq(waiter.tag ^ wrong_tag),
                    self.barrier_wake.p.done.eq(phase_completes),
                ]
        with m.If(self.barrier_wake.valid & self.barrier_wake.ready):
            m.d.sync += [self.barrier_wake.valid.eq(0), waiting.eq(0)]

        with m.FSM(name="fsm"):
            with m.State("IDLE"):
                m.d.comb += self.control.idle.eq(1)
                m.d.comb += self.barrier_command.ready.eq(1)
                m.d.comb += self.request.ready.eq(~self.barrier_command.valid)
                with m.If(self.barrier_command.valid):
                    m.d.sync += command.eq(self.barrier_command.payload)
                    m.d.sync += internal.eq(0)
                    m.next = "READ_WORD"
                with m.Elif(self.request.valid):
                    m.d.sync += request.eq(self.request.payload)
                    m.next = "FETCH"
                if p.ctas > 1:
                    with m.Elif(self.remote_command.valid):
                        m.next = "REMOTE_COMMAND"
                    with m.Elif(self.remote_store.valid):
                        m.next = "REMOTE_STORE"
            with m.State("FETCH"):
                m.d.comb += self.descriptor_request.valid.eq(1)
                with m.If(self.descriptor_request.ready):
                    m.next = "FILL"
            with m.State("FILL"):
                m.d.comb += self.descriptor_fill.ready.eq(1)
                with m.If(self.descriptor_fill.valid):
                    words = self.descriptor_fill.p.words
                    m.d.sync += [
                        line.eq(Cat(words[0], words[1]) >> line_shift),
                        lines_left.eq(request.coords[3]),
                        beat.eq(request.smem_address >> line_shift),
                        fault.eq(Fault(request.coords[4][:4])),
                        fault_done.eq(0),
                    ]
                    m.next = "START"
            with m.State("START"):
                with m.If(fault == Fault.WRONG_TAG):
                    m.d.sync += wrong_tag.eq(1)
                with m.If(fault == Fault.WAITS_WRONGLY):
                    m.d.sync += wrong_wait.eq(1)
                with m.If(fault == Fault.REFUSES):
                    m.d.comb += self.error.valid.eq(1)
                    with m.If(self.error.ready):
                        m.next = "IDLE"
                if p.stores:
                    with m.Elif(fault == Fault.STORES):
                        m.next = "STORE"
                with m.Elif(fault != Fault.HANGS):
                    m.next = "LINE"
            if p.stores:
                with m.State("STORE"):
                    m.d.comb += self.gnic_write.valid.eq(1)
                    m.d.comb += self.gnic_write.p.line.eq(line)
                    m.d.comb += self.gnic_write.p.strobe.eq(~0)
                    with m.If(self.gnic_write.ready):
                        m.next = "LINE"
            with m.State("LINE"):
                m.d.comb += self.gnic_request.valid.eq(1)
                with m.If(self.gnic_request.ready):
                    m.d.sync += tag.eq(tag + 1)
                    m.next = "DATA"
                    with m.If((fault == Fault.TAG_REUSED) & ~fault_done):
                        m.d.sync += fault_done.eq(1)
                        m.d.sync += tag.eq(tag)
                        m.next = "LINE"
                with m.Elif((fault == Fault.VALID_FALLS) & ~fault_done):
                    m.d.sync += fault_done.eq(1)
                    m.next = "START"
                with m.Elif((fault == Fault.PAYLOAD_CHANGES) & ~fault_done):
                    m.d.sync += fault_done.eq(1)
                    m.d.sync += line.eq(line + 1)
            with m.State("DATA"):
                m.d.comb += [
                    self.smem_write.valid.eq(self.gnic_response.valid),
                    self.gnic_response.ready.eq(self.smem_write.ready),
                ]
                place = beat + Mux(fault == Fault.WRITES_ELSEWHERE, ELSEWHERE >> line_shift, 0)
                for number in range(p.lanes):
                    lane = self.smem_write.payload[number]
                    bits = self.gnic_response.p.data.word_select(number, 128)
                    m.d.comb += [
                        lane.valid.eq(1),
                        lane.words.eq(~0),
                        lane.beat.eq(Mux((fault == Fault.BEYOND_SMEM) & ~fault_done, ~0, place)),
                        lane.data.eq(bits ^ ((fault == Fault.WRONG_BYTE) & (number == 0))),
                    ]
                with m.If(self.smem_write.valid & self.smem_write.ready):
                    m.d.sync += [
                        line.eq(line + 1),
                        lines_left.eq(lines_left - 1),
                        beat.eq(beat + 1),
                    ]
                    m.d.sync += fault_done.eq(1)
                    m.next = "LINE"
                    with m.If(lines_left == 1):
                        count = (request.coords[3] << line_shift).as_unsigned()
                        m.d.sync += [
                            command.op.eq(BarrierOp.COMPLETE_TX),
                            command.address.eq(request.mbarrier),
                            command.count.eq(count - 16 * (fault == Fault.SHORT_COUNT)),
                            internal.eq(1),
                        ]
                        m.next = "READ_WORD"
            with m.State("READ_WORD"):
                m.d.comb += self.barrier_memory.read_en.eq(1)
                m.next = "LATCH"
            with m.State("LATCH"):
                m.d.sync += word.eq(self.barrier_memory.read_data)
                m.next = "WRITE_WORD"
            with m.State("WRITE_WORD"):
                tx = Signal(21)
                pending = Signal(20)
                after = Signal.like(word)
                m.d.comb += [tx.eq(word.tx), pending.eq(word.pending), after.eq(word)]
                with m.Switch(command.op):
                    with m.Case(BarrierOp.ARRIVE):
                        m.d.comb += pending.eq(word.pending + command.count)
                    with m.Case(BarrierOp.ARRIVE_EXPECT_TX):
                        m.d.comb += pending.eq(word.pending + 1)
                        m.d.comb += tx.eq(word.tx - command.count)
                    with m.Case(BarrierOp.EXPECT_TX):
                        m.d.comb += tx.eq(word.tx - command.count)
                    with m.Case(BarrierOp.COMPLETE_TX):
                        m.d.comb += tx.eq(word.tx + command.count)
                flip = (tx == 0) & (pending == 0)
                m.d.comb += [
                    after.tx.eq(tx),
                    after.pending.eq(Mux(flip, word.expected, pending)),
                    after.phase.eq(word.phase ^ flip),
                ]
                with m.If(command.op == BarrierOp.INIT):
                    m.d.comb += after.eq(command.state)
                m.d.comb += self.barrier_memory.write_en.eq(~waits)
                m.d.comb += self.barrier_memory.write_data.eq(after)
                m.d.comb += phase_completes.eq(~waits & flip & (command.address == waiter.address))
                m.next = "RESULT"
                with m.If(waits & ~done & ~waiting & (command.time_limit != 0)):
                    m.d.sync += [waiter.eq(command), waiting.eq(1), suspended.eq(1)]
                    m.d.sync += time_left.eq(command.time_limit)
                with m.If(internal):
                    m.next = "IDLE"
            with m.State("RESULT"):
                m.d.comb += self.barrier_result.valid.eq(1)
                with m.If(self.barrier_result.ready):
                    m.d.sync += suspended.eq(0)
                    m.next = "IDLE"
            if p.ctas > 1:
                m.d.comb += self.error.p.cta.eq(self.cta_rank)
                update, store = self.remote_command.p.update, self.remote_store.p
                with m.State("REMOTE_COMMAND"):
                    self._answer(
                        m,
                        self.remote_command,
                        update,
                        (self.remote_command.p.holder, update.op, update.address, update.count),
                    )
                with m.State("REMOTE_STORE"):
                    reduction = store.reduction
                    self._answer(
                        m,
                        self.remote_store,
                        store,
                        (store.dst_cta, store.mbarrier, store.words, reduction.enabled, store.data),
                    )
        result = self.barrier_result.p
        m.d.comb += [
            result.tag.eq(command.tag ^ wrong_tag),
            result.done.eq(waits & done),
            result.waits.eq(suspended | wrong_wait),
            result.state.eq(word),
        ]
        return m

    def _answer(self, m, source, payload, operands) -> None:
        """Accept an operation on another CTA, and report its operands in an error record."""
        m.d.comb += [
            self.error.valid.eq(1),
            self.error_id.eq(payload.request_id),
            self.error_value.eq(Cat(operands)),
            source.ready.eq(self.error.ready),
        ]
        with m.If(self.error.ready):
            m.next = "IDLE"


UNIT = TmaParams(reductions=False)
CLUSTER = TmaParams(line_bytes=32, stores=False, reductions=False, ctas=3)


def rtl(params: TmaParams) -> Path:
    """Return the cached folder with the Verilog and JSON of a stand-in, or of a cluster of them."""
    texts = [repr(params), sources("hw", "golden"), Path(__file__).read_text()]
    return cached(
        "verilog", digest(texts), lambda folder: verilog.generate(params, folder, StandIn(params))
    )


def build_unit() -> None:
    """Build the simulator of one stand-in."""
    runner.build_as_asked(UNIT, rtl=rtl(UNIT))


def build_unit_with_waves() -> None:
    """Build the simulator that traces one stand-in."""
    runner.build(rtl=rtl(UNIT), waves=True)


def build_cluster() -> None:
    """Build the simulator of a cluster of stand-ins."""
    runner.build_as_asked(CLUSTER, rtl=rtl(CLUSTER))
