"""Completion tracker: counts the pieces of each load and signals its barrier after the last one."""

from collections.abc import Sequence
from functools import cache

from amaranth.hdl import Assert, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.barriers import barrier_completion_layout
from hw.layouts.jobs import (
    generator_job_layout,
    holder_of,
    opened_layout,
    transfer_layout,
    walk_job_layout,
)
from hw.layouts.lines import (
    absent_receiver_layout,
    line_report_layout,
    read_fault_layout,
    written_layout,
)
from hw.layouts.monitor import slot_use_layout
from hw.layouts.ports import clear_layout, error_layout, holder_field
from hw.layouts.translation import cause_field
from hw.lib.job_slots import JobSlots, failure
from hw.lib.memory import Copies, ReadPort, RowMemory, WritePort, clear_row
from hw.lib.one_hot import one_hot
from hw.lib.queue import Queue
from hw.lib.zero_sum import sum_is_zero
from hw.params import TmaParams


@cache
def fault_layout(params: TmaParams) -> data.StructLayout:
    """Fault of a request.

    Members
    -------
    decode, page : see `cause_field`
    receiver_absent : the fault is a receiver that does not run; otherwise it is a line that could
        not be read. In a cluster.
    line : number of that line, or of the receiver's CTA
    """
    absent = {"receiver_absent": 1} if params.ctas > 1 else {}
    return data.StructLayout({**cause_field(params), **absent, "line": params.line_address_bits})


@cache
def expected_layout(params: TmaParams) -> data.StructLayout:
    """Pieces that a slot counts to the end of its request.

    Members
    -------
    total : pieces of all requests that it has had, modulo the size of a counter
    is_empty : its request has no pieces
    pieces : pieces of its request, for an assertion
    """
    bits = params.box_piece_bits
    return data.StructLayout({"total": bits, "is_empty": 1, "pieces": bits})


class PieceCounter:
    """Signals of one of the two counters: that of lines, or that of fill.

    A report on ``port`` passes two stages. In the first one (``looks_up``) the pieces of its slot
    have been looked up, and its own are added. In the second one (``busy``) the sum is stored, and
    compared with that of the other counter. A report that completes its request leaves its slot in
    the queue ``ends``.

    Attributes
    ----------
    port : stream of ``written_layout``
    write : port that writes the pieces of each slot counted so far
    own, other : ports that read them, for this counter and for the other one; ``other`` does not
        forward
    other_forwards, other_written : the row that was read by ``other`` was written meanwhile, and
        what was written
    expected : port that reads ``expected_layout`` of each slot
    ends : slots of completed requests
    looks_up, new_slot, new_pieces : the report in the first stage
    follows : the report in the second stage has pieces, and is of the same slot
    busy, slot, has_pieces, counts : the report in the second stage; if it ``counts``, it may
        complete its request
    own_total : pieces that this counter has for the slot, with those of the report
    own_excess : ``own_total``, less the expected total
    request_pieces : pieces of the request, for an assertion
    other_total : pieces that the other counter has for the slot
    complete : the report completes its request
    """

    def __init__(self, m: Module, params: TmaParams, name: str, port, expected: RowMemory) -> None:
        def signal(shape, part: str, **options) -> Signal:
            return Signal(shape, name=f"{name}_{part}", **options)

        slot_bits, piece_bits = params.slot_bits, params.box_piece_bits
        memory = Copies(m, name, piece_bits, params.requests_in_flight, 2)
        self.port = port
        own, other = memory.memories
        self.own, self.other = own.read_port(forwards=True), other.read_port()
        self.other_forwards = signal(1, "other_forwards")
        self.other_written = signal(piece_bits, "other_written", reset_less=True)
        self.write = memory.write
        self.expected = expected.read_port(forwards=True)
        self.ends = Queue(slot_bits, 2)
        m.submodules[f"{name}_ends"] = self.ends
        self.looks_up = signal(1, "looks_up")
        self.new_slot = signal(slot_bits, "new_slot", reset_less=True)
        self.new_pieces = signal(piece_bits, "new_pieces", reset_less=True)
        self.follows = signal(1, "follows")
        self.busy = signal(1, "busy")
        self.slot = signal(slot_bits, "slot", reset_less=True)
        self.has_pieces = signal(1, "has_pieces", reset_less=True)
        self.counts = signal(1, "counts", reset_less=True)
        self.own_total = signal(piece_bits, "own_total", reset_less=True)
        self.own_excess = signal(piece_bits, "own_excess", reset_less=True)
        self.request_pieces = signal(piece_bits, "request_pieces", reset_less=True)
        self.other_total = signal(piece_bits, "other_total")
        self.complete = signal(1, "complete")


class CompletionTracker(wiring.Component):
    """Gives each load a slot, and ends the load when all of its pieces are written.

    A load ends with one ``completion`` that carries the byte count of the whole request. With a
    fault it ends with an error record instead, and its barrier is not signalled. A load that is
    ``remote``, in a cluster, ends without a completion when all of its pieces are on their way,
    because each receiver signals what it gets. The completion ``reports`` if a line of the request
    did. If a receiver does not run, it ends with an error
    record (DST_CTA).

    Latency: none for jobs, which pass as ``JobSlots`` lets them; ``completion`` is offered four
    clocks after the last report of ``written`` and ``filled``. Throughput: one ``written`` and one
    ``filled`` a clock; one end a clock. Back-pressure: both ports wait while two ends that came by
    one of them are held up, by ``completion`` or ``error`` or by ends of the other port.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``walk_job_layout``; all jobs of a request, then those of the next
    o : Out(stream) of ``generator_job_layout``
    written : In(stream) of ``written_layout``; pieces of lines
    filled : In(stream) of ``written_layout``; pieces of fill
    fault : In(stream) of ``read_fault_layout``; always ready; comes before its line's ``written``
    report : In of ``line_report_layout``; comes before its line's ``written``; present with
        ``report_mechanism``
    completion : Out(stream) of ``barrier_completion_layout``
    error : Out(stream) of ``error_layout``
    clear : In of ``clear_layout``; all counts and faults are to be cleared after a reset
    busy : Out; a request has a slot
    cta_rank : In; rank of this SM's CTA. This port and the following are present in a cluster.
    opened : Out of ``opened_layout``; each request, in the clock in which it gets its slot
    receiver_absent : In(stream) of ``absent_receiver_layout``; comes before the ``written`` of the
        pieces that the receiver does not get
    slot_use : Out of ``slot_use_layout``; present with ``counters``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        in_cluster = {
            "cta_rank": In(params.cta_bits),
            "opened": Out(opened_layout(params)),
            "receiver_absent": In(stream.Signature(absent_receiver_layout(params))),
        }
        super().__init__(
            {
                **(in_cluster if params.ctas > 1 else {}),
                "i": In(stream.Signature(walk_job_layout(params))),
                "o": Out(stream.Signature(generator_job_layout(params))),
                "written": In(stream.Signature(written_layout(params))),
                "filled": In(stream.Signature(written_layout(params))),
                "fault": In(stream.Signature(read_fault_layout(params))),
                **({"report": In(line_report_layout(params))} if params.report_mechanism else {}),
                "completion": Out(stream.Signature(barrier_completion_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
                "clear": In(clear_layout(params)),
                "busy": Out(1),
                **({"slot_use": Out(slot_use_layout(params))} if params.counters else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        depth = p.requests_in_flight
        m.submodules.slots = slots = JobSlots(p)
        m.submodules.errors = errors = Queue(error_layout(p), 2)
        m.submodules.transfers = transfers = RowMemory(transfer_layout(p), depth)
        m.submodules.faults = faults = RowMemory(fault_layout(p), depth)
        # Whether a request has a fault: long paths begin there, and block memory is slow.
        m.submodules.failed = failed = RowMemory(1, depth, in_block=False)
        expected = Copies(m, "expected", expected_layout(p), depth, 3)
        connect(m, errors.o, flipped(self.error))

        transfer_write = transfers.write_port()
        fault_write, failed_write = faults.write_port(), failed.write_port()
        *counted, before = expected.memories
        self._open(m, slots, transfer_write)
        self._expect(m, slots, before.read_port(), expected.write)
        lines, fill = self._count(m, counted)
        self._end(m, slots, errors, lines.ends.o, fill.ends.o, (fault_write, failed_write))
        for write in lines.write, fill.write, expected.write, failed_write:
            clear_row(m, write, self.clear)
        m.d.comb += self.busy.eq(slots.busy)
        return m

    def _open(self, m: Module, slots: JobSlots, transfer_write) -> None:
        """Give each request a slot, and store what is to be signalled at its end.

        The transfer is written whether or not the job passes: to wait for that would make the path
        long, and the slot has no other owner.
        """
        connect(m, flipped(self.i), slots.i)
        connect(m, slots.o, flipped(self.o))
        m.d.comb += [
            transfer_write.en.eq(slots.is_free & self.i.valid),
            transfer_write.addr.eq(slots.slot),
            transfer_write.data.eq(self.i.p.transfer),
        ]
        if self.params.ctas > 1:
            m.d.comb += [
                self.opened.valid.eq(slots.opened),
                self.opened.slot.eq(slots.slot),
                self.opened.transfer.eq(self.i.p.transfer),
            ]

    def _expect(self, m: Module, slots: JobSlots, before: ReadPort, write: WritePort) -> None:
        """Add the pieces of a request to the total of its slot, in the clock after it got the slot.

        ``before`` reads the total, and ``write`` the new one. No report of the request comes
        earlier.
        """
        adds = Signal()
        added_slot = Signal(self.params.slot_bits, reset_less=True)
        added_pieces = Signal(self.params.box_piece_bits, reset_less=True)
        m.d.sync += [
            adds.eq(slots.opened),
            added_slot.eq(slots.slot),
            added_pieces.eq(self.i.p.transfer.pieces),
        ]
        m.d.comb += [
            before.addr.eq(slots.slot),
            write.en.eq(adds),
            write.addr.eq(added_slot),
            write.data.is_empty.eq(added_pieces == 0),
            write.data.pieces.eq(added_pieces),
            write.data.total.eq(before.data.total + added_pieces),
        ]

    def _count(self, m: Module, expected: Sequence[RowMemory]) -> list[PieceCounter]:
        """Add up the pieces of lines and those of fill; return the counters of both.

        Each counter has a memory of its own, so that both count in the same clock. The pieces of a
        slot are the sum of both, modulo the size of a counter. The counts go on from request to
        request, as the expected total does: nothing is written at the end of a request.
        """
        p = self.params
        ports = ("lines", self.written), ("fill", self.filled)
        counters = [
            PieceCounter(m, p, name, port, memory)
            for (name, port), memory in zip(ports, expected, strict=True)
        ]
        lines, fill = counters
        advance = Signal()
        m.d.comb += advance.eq(lines.ends.i.ready & fill.ends.i.ready)
        self._count_port(m, advance, lines, fill)
        self._count_port(m, advance, fill, lines)
        # If a line and fill of one request are stored in the same clock, the line sees the pieces
        # of the fill.
        is_same_slot = Signal()
        with m.If(advance):
            m.d.sync += is_same_slot.eq(fill.looks_up & (fill.new_slot == lines.new_slot))
        self._complete(
            m,
            lines,
            fill.other.data,
            fill.other_forwards | is_same_slot,
            Mux(is_same_slot, fill.own_total, fill.other_written),
        )
        self._complete(m, fill, lines.other.data, lines.other_forwards, lines.other_written)
        return counters

    def _complete(
        self, m: Module, counter: PieceCounter, stored: Value, is_newer: Value, newer: Value
    ) -> None:
        """Find out whether the report in the second stage completes its request: whether its excess
        and the pieces of the other counter are 0 together.

        ``stored``: those pieces, from the memory. ``newer``: the pieces if ``is_newer``. The memory
        is slow, so both are compared before one is chosen.
        """
        is_zero = Mux(
            is_newer,
            sum_is_zero(newer, counter.own_excess),
            sum_is_zero(stored, counter.own_excess),
        )
        left = Signal(self.params.box_piece_bits)
        m.d.comb += [
            counter.complete.eq(counter.busy & counter.counts & is_zero),
            counter.other_total.eq(Mux(is_newer, newer, stored)),
            left.eq(-(counter.own_excess + counter.other_total)),
        ]
        m.d.sync += Assert(
            ~(counter.busy & counter.has_pieces) | (left <= counter.request_pieces),
            "completion_tracker: more pieces are written than the request has\n",
        )

    def _count_port(
        self, m: Module, advance: Signal, counter: PieceCounter, other_counter: PieceCounter
    ) -> None:
        """Look up the slot of each report, add its pieces, and find the end of its request."""
        own, other, expected = counter.own, other_counter.other, counter.expected
        report = counter.port.p
        m.d.comb += [
            counter.port.ready.eq(advance),
            *(read.addr.eq(report.slot) for read in (own, expected)),
            other.addr.eq(counter.new_slot),
            *(read.en.eq(advance) for read in (own, other, expected)),
        ]
        # What the report in the second stage adds is not in the memory yet.
        old_total = Mux(counter.follows, counter.own_total, own.data)
        has_pieces = counter.new_pieces != 0
        # Fill of no pieces may come after its request has ended, when the slot has a new owner.
        with m.If(advance):
            m.d.sync += [
                counter.looks_up.eq(counter.port.valid),
                counter.new_slot.eq(report.slot),
                counter.new_pieces.eq(report.pieces),
                counter.follows.eq(
                    counter.looks_up & has_pieces & (counter.new_slot == report.slot)
                ),
                counter.busy.eq(counter.looks_up),
                counter.slot.eq(counter.new_slot),
                counter.has_pieces.eq(has_pieces),
                counter.counts.eq(has_pieces | expected.data.is_empty),
                counter.request_pieces.eq(expected.data.pieces),
                counter.own_total.eq(old_total + counter.new_pieces),
                counter.own_excess.eq(old_total + (counter.new_pieces - expected.data.total)),
                other_counter.other_forwards.eq(
                    other_counter.write.en & (other_counter.write.addr == other.addr)
                ),
                other_counter.other_written.eq(other_counter.write.data),
            ]
        m.d.comb += [
            counter.write.en.eq(counter.busy & counter.has_pieces & advance),
            counter.write.addr.eq(counter.slot),
            counter.write.data.eq(counter.own_total),
            counter.ends.i.valid.eq(counter.complete & advance),
            counter.ends.i.payload.eq(counter.slot),
        ]

    def _end(
        self,
        m: Module,
        slots: JobSlots,
        errors: Queue,
        line_end,
        fill_end,
        fault_writes: tuple,
    ) -> None:
        """Look up each ended request. Signal its barrier, or report its fault; free the slot.

        An end by a line goes before one by fill.
        """
        p = self.params
        read_transfer = m.submodules.transfers.read_port()
        read_fault = m.submodules.faults.read_port()
        read_failed = m.submodules.failed.read_port()
        takes_next = Signal()
        next_slot = Signal(p.slot_bits)
        has_end = Signal()
        end_slot = Signal(p.slot_bits, reset_less=True)
        transfer, fault, failed = read_transfer.data, read_fault.data, read_failed.data
        m.d.comb += [
            next_slot.eq(Mux(line_end.valid, line_end.payload, fill_end.payload)),
            line_end.ready.eq(takes_next),
            fill_end.ready.eq(takes_next & ~line_end.valid),
            *(read.addr.eq(next_slot) for read in (read_transfer, read_fault, read_failed)),
            *(read.en.eq(takes_next) for read in (read_transfer, read_fault, read_failed)),
        ]
        with m.If(takes_next):
            m.d.sync += [has_end.eq(line_end.valid | fill_end.valid), end_slot.eq(next_slot)]
        retires = Signal()
        fault_comes = Signal()  # a fault is marked in this clock
        remote = transfer.delivery.remote if p.ctas > 1 else Const(0, 1)
        receiver_absent = fault.receiver_absent if p.ctas > 1 else Const(0, 1)
        code, cause, value = failure(m, p, receiver_absent, fault, fault.line)
        m.d.comb += [
            retires.eq(
                Mux(
                    failed,
                    errors.i.ready & ~fault_comes,
                    remote | self.completion.ready,
                )
            ),
            takes_next.eq(~has_end | retires),
            self.completion.valid.eq(has_end & ~failed & ~remote),
            self.completion.p.request_id.eq(transfer.request_id),
            self.completion.p.address.eq(transfer.mbarrier),
            self.completion.p.tx_bytes.eq(transfer.pieces << 4),
            errors.i.valid.eq(has_end & failed & ~fault_comes),
            errors.i.p.request_id.eq(transfer.request_id),
            errors.i.p.code.eq(code),
            errors.i.p.dim.eq(cause),
            errors.i.p.value.eq(value),
            slots.returned.valid.eq(has_end & retires),
            slots.returned.payload.eq(end_slot),
        ]
        if p.counters:
            ended = self.slot_use.ended
            m.d.comb += [
                self.slot_use.in_flight.eq(slots.in_flight),
                ended.valid.eq(slots.returned.valid),
                ended.failed.eq(failed),
                ended.slot.eq(end_slot),
                ended.request_id.eq(transfer.request_id),
            ]
        if p.report_mechanism:
            self._mark_reports(m, has_end & retires, end_slot)
        if p.ctas > 1:
            holder = holder_of(p, transfer.delivery, self.cta_rank)
            m.d.comb += [
                self.completion.p.cta.eq(self.cta_rank),
                *(self.completion.p[name].eq(holder) for name in holder_field(p)),
            ]
        self._mark_faults(m, fault_writes, fault_comes, has_end & failed & retires, end_slot)

    def _mark_reports(self, m: Module, clears, ended_slot) -> None:
        """Mark each slot that reports; clear the mark when its request ends."""
        marks = Signal(self.params.requests_in_flight)
        reported = one_hot(self.report.slot, self.report.valid, len(marks))
        ended = one_hot(ended_slot, clears, len(marks))
        m.d.comb += self.completion.p.reports.eq(marks.bit_select(ended_slot, 1))
        m.d.sync += marks.eq((marks & ~ended) | reported)

    def _mark_faults(self, m: Module, writes: tuple, fault_comes, clears, ended_slot) -> None:
        """Store each fault when it comes, and mark its slot; clear the mark when its request ends.
        Coming faults go first.

        ``writes``: the write ports of the faults and of the marks.
        """
        fault_write, failed_write = writes
        m.d.comb += [
            self.fault.ready.eq(1),
            fault_write.en.eq(fault_comes),
            failed_write.en.eq(fault_comes | clears),
            failed_write.addr.eq(Mux(fault_comes, fault_write.addr, ended_slot)),
            failed_write.data.eq(fault_comes),
        ]
        if self.params.ctas > 1:
            absent = self.receiver_absent
            m.d.comb += [
                fault_comes.eq(self.fault.valid | absent.valid),
                absent.ready.eq(~self.fault.valid),
            ]
        else:
            m.d.comb += fault_comes.eq(self.fault.valid)
        with m.If(self.fault.valid):
            m.d.comb += [
                fault_write.addr.eq(self.fault.p.slot),
                fault_write.data.line.eq(self.fault.p.line),
                *(
                    fault_write.data[name].eq(self.fault.p[name])
                    for name in cause_field(self.params)
                ),
            ]
        if self.params.ctas > 1:
            with m.Else():
                m.d.comb += [
                    fault_write.addr.eq(absent.p.slot),
                    fault_write.data.receiver_absent.eq(1),
                    fault_write.data.line.eq(absent.p.receiver),
                ]
