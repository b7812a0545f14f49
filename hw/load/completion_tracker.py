"""Completion tracker: counts the pieces of each load and signals its barrier after the last one."""

from functools import cache

from amaranth.hdl import Assert, Const, Module, Mux, Signal
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
from hw.layouts.ports import clear_layout, error_layout, holder_field
from hw.lib.job_slots import JobSlots, failure
from hw.lib.memory import Copies, RowMemory, clear_row
from hw.lib.queue import Queue
from hw.params import TmaParams


@cache
def fault_layout(params: TmaParams) -> data.StructLayout:
    """Fault of a request.

    Members
    -------
    failed : the request has a fault
    receiver_absent : the fault is a receiver that does not run; otherwise it is a line that could
        not be read. In a cluster.
    line : number of that line, or of the receiver's CTA
    """
    absent = {"receiver_absent": 1} if params.ctas > 1 else {}
    return data.StructLayout({"failed": 1, **absent, "line": params.line_address_bits})


class PieceCounter:
    """Signals of one of the two counters: that of lines, or that of fill.

    A report on ``port`` passes two stages. In the first one (``busy``) its slot has been looked up
    and its pieces are added. If that completes the request, the request is an end in the second
    stage (``end_valid``) until it is ``retired``.

    Attributes
    ----------
    port : stream of ``written_layout``
    memory, write : pieces of each slot counted so far, and the port that writes them
    advance : the stages take the next report
    busy, slot, pieces : the report in the first stage
    transfer, fault : looked up for its slot
    other_total : pieces that the other counter has for the slot
    own_total : pieces that this counter has for the slot, with those of the report
    request_total : sum of both
    complete : the report completes its request
    end_valid, end : the request in the second stage
    retired : the end was signalled or reported in this clock
    """

    def __init__(self, params: TmaParams, name: str, port, memory: Copies) -> None:
        def signal(shape, part: str, **options) -> Signal:
            return Signal(shape, name=f"{name}_{part}", **options)

        self.port = port
        self.own, self.other = (copy.read_port(forwards=True) for copy in memory.memories)
        self.write = memory.write
        self.advance = signal(1, "advance")
        self.busy = signal(1, "busy")
        self.slot = signal(params.slot_bits, "slot", reset_less=True)
        self.pieces = signal(params.box_piece_bits, "pieces", reset_less=True)
        self.transfer = signal(transfer_layout(params), "transfer")
        self.fault = signal(fault_layout(params), "fault")
        self.other_total = signal(params.box_piece_bits, "other_total")
        self.own_total = signal(params.box_piece_bits, "own_total")
        self.request_total = signal(params.box_piece_bits, "request_total")
        self.complete = signal(1, "complete")
        end = {
            "slot": params.slot_bits,
            "transfer": transfer_layout(params),
            "fault": fault_layout(params),
        }
        self.end_valid = signal(1, "end_valid")
        self.end = signal(data.StructLayout(end), "end", reset_less=True)
        self.retired = signal(1, "retired")


class CompletionTracker(wiring.Component):
    """Gives each load a slot, and ends the load when all of its pieces are written.

    A load ends with one ``completion`` that carries the byte count of the whole request. With a
    fault it ends with an error record instead, and its barrier is not signalled. A load that is
    ``remote``, in a cluster, ends without a completion when all of its pieces are on their way,
    because each receiver signals what it gets. The completion ``reports`` if a line of the request
    did. If a receiver does not run, it ends with an error
    record (DST_CTA).

    Latency: none for jobs, which pass as ``JobSlots`` lets them; ``completion`` is offered two
    clocks after the last report of ``written`` and ``filled``. Throughput: one ``written`` and one
    ``filled`` a clock; one end a clock. Back-pressure:
    a port waits while an end that came by it is held up, by ``completion`` or ``error`` or, for a
    clock, by an end of the other port. ``written`` also waits for a report of ``filled`` of the
    same request that waits.

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
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        depth = p.requests_in_flight
        m.submodules.slots = slots = JobSlots(p)
        m.submodules.errors = errors = Queue(error_layout(p), 2)
        transfers = Copies(m, "transfers", transfer_layout(p), depth, 2)
        faults = Copies(m, "faults", fault_layout(p), depth, 2)
        connect(m, errors.o, flipped(self.error))

        transfer_write = transfers.write
        self._open(m, slots, transfer_write)
        fault_write = faults.write
        lines, fill = self._count(m, transfers, faults)
        fill_is_offered = Signal()  # an end by fill was offered, and is not yet retired
        self._end(m, slots, errors, lines, fill, fill_is_offered, fault_write)
        for write in lines.write, fill.write, fault_write:
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

    def _count(self, m: Module, transfers: Copies, faults: Copies) -> list[PieceCounter]:
        """Add up the pieces of lines and those of fill; return the counters of both.

        Each counter has a memory of its own, so that both count in the same clock. The pieces of a
        request are the sum of both, modulo the size of a counter. The report that completes a
        request is its last one: it leaves a number in its memory that makes the sum 0 for the next
        request of the slot.
        """
        p = self.params
        counters = []
        for name, port in ("lines", self.written), ("fill", self.filled):
            memory = Copies(m, name, p.box_piece_bits, p.requests_in_flight, 2)
            counters.append(PieceCounter(p, name, port, memory))
        lines, fill = counters
        for counter, other, *looked_up in zip(
            counters, reversed(counters), transfers.memories, faults.memories, strict=True
        ):
            self._count_port(m, counter, other, *looked_up)
        # If a line and fill of one request are counted in the same clock, the line sees the pieces
        # of the fill, and must not pass before it. The next report follows in the clock in which an
        # end is retired.
        same = Signal()
        m.d.comb += [
            same.eq(lines.busy & fill.busy & (fill.slot == lines.slot)),
            fill.advance.eq(~fill.end_valid | fill.retired),
            lines.advance.eq((~lines.end_valid | lines.retired) & (fill.advance | ~same)),
        ]
        with m.If(same):
            m.d.comb += lines.other_total.eq(fill.own_total)
        return counters

    def _count_port(
        self,
        m: Module,
        counter: PieceCounter,
        other_counter: PieceCounter,
        transfers: RowMemory,
        faults: RowMemory,
    ) -> None:
        """Look up the slot of each report, then add its pieces."""
        own, other = counter.own, other_counter.other
        transfer, fault = transfers.read_port(forwards=True), faults.read_port(forwards=True)
        # Fill of no pieces may come after its request has ended, when the slot has a new owner.
        counts = (counter.pieces != 0) | (counter.transfer.pieces == 0)
        report = counter.port.p
        for read in own, transfer, fault:
            m.d.comb += [read.addr.eq(report.slot), read.en.eq(counter.advance)]
        m.d.comb += [
            # A report that waits must see what the other counter counts meanwhile.
            other.addr.eq(Mux(counter.advance, report.slot, counter.slot)),
            counter.port.ready.eq(counter.advance),
            counter.transfer.eq(transfer.data),
            counter.fault.eq(fault.data),
            counter.other_total.eq(other.data),
            counter.own_total.eq(own.data + counter.pieces),
            counter.request_total.eq(counter.own_total + counter.other_total),
            counter.complete.eq(
                counter.busy & counts & (counter.request_total == counter.transfer.pieces)
            ),
            counter.write.en.eq(counter.busy & counter.advance),
            counter.write.addr.eq(counter.slot),
            # At the end: the number of the other counter, negated.
            counter.write.data.eq(
                Mux(
                    counter.complete,
                    counter.own_total - counter.transfer.pieces,
                    counter.own_total,
                )
            ),
        ]
        with m.If(counter.advance):
            m.d.sync += [
                counter.busy.eq(counter.port.valid),
                counter.slot.eq(report.slot),
                counter.pieces.eq(report.pieces),
                counter.end_valid.eq(counter.complete),
                counter.end.slot.eq(counter.slot),
                counter.end.transfer.eq(counter.transfer),
                counter.end.fault.eq(counter.fault),
            ]
        with m.Elif(counter.retired):
            m.d.sync += counter.end_valid.eq(0)
        m.d.sync += Assert(
            ~counter.busy | (counter.request_total <= counter.transfer.pieces),
            "completion_tracker: more pieces are written than the request has\n",
        )

    def _end(
        self,
        m: Module,
        slots: JobSlots,
        errors: Queue,
        lines: PieceCounter,
        fill: PieceCounter,
        fill_is_offered,
        fault_write,
    ) -> None:
        """Signal the barrier of an ended request, or report its fault; free the slot.

        An end by a line goes before one by fill, unless the one by fill was offered already.
        """
        p = self.params
        has_end = Signal()
        takes_line = Signal()
        end = Signal(lines.end.shape())
        transfer, fault = end.transfer, end.fault
        m.d.comb += [
            has_end.eq(lines.end_valid | fill.end_valid),
            takes_line.eq(lines.end_valid & ~fill_is_offered),
            end.eq(Mux(takes_line, lines.end, fill.end)),
        ]
        retires = Signal()
        fault_comes = Signal()  # a fault is marked in this clock
        remote = transfer.delivery.remote if p.ctas > 1 else Const(0, 1)
        receiver_absent = fault.receiver_absent if p.ctas > 1 else Const(0, 1)
        code, value = failure(m, p, receiver_absent, fault.line)
        m.d.comb += [
            retires.eq(
                Mux(
                    fault.failed,
                    errors.i.ready & ~fault_comes,
                    remote | self.completion.ready,
                )
            ),
            lines.retired.eq(retires & takes_line),
            fill.retired.eq(retires & ~takes_line),
            self.completion.valid.eq(has_end & ~fault.failed & ~remote),
            self.completion.p.request_id.eq(transfer.request_id),
            self.completion.p.address.eq(transfer.mbarrier),
            self.completion.p.tx_bytes.eq(transfer.pieces << 4),
            errors.i.valid.eq(has_end & fault.failed & ~fault_comes),
            errors.i.p.request_id.eq(transfer.request_id),
            errors.i.p.code.eq(code),
            errors.i.p.value.eq(value),
            slots.returned.valid.eq(has_end & retires),
            slots.returned.payload.eq(end.slot),
        ]
        m.d.sync += fill_is_offered.eq(has_end & ~takes_line & ~retires)
        if p.report_mechanism:
            self._mark_reports(m, has_end & retires, end.slot)
        if p.ctas > 1:
            holder = holder_of(p, transfer.delivery, self.cta_rank)
            m.d.comb += [
                self.completion.p.cta.eq(self.cta_rank),
                *(self.completion.p[name].eq(holder) for name in holder_field(p)),
            ]
        self._mark_faults(m, fault_write, fault_comes, has_end & fault.failed & retires, end.slot)

    def _mark_reports(self, m: Module, clears, ended_slot) -> None:
        """Mark each slot that reports; clear the mark when its request ends."""
        marks = Signal(self.params.requests_in_flight)
        m.d.comb += self.completion.p.reports.eq(marks.bit_select(ended_slot, 1))
        for slot, mark in enumerate(marks):
            with m.If(self.report.valid & (self.report.slot == slot)):
                m.d.sync += mark.eq(1)
            with m.Elif(clears & (ended_slot == slot)):
                m.d.sync += mark.eq(0)

    def _mark_faults(self, m: Module, fault_write, fault_comes, clears, ended_slot) -> None:
        """Mark each fault in the table of slots when it comes; clear the mark when its request
        ends. Coming faults go first.
        """
        m.d.comb += self.fault.ready.eq(1)
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
                fault_write.en.eq(1),
                fault_write.addr.eq(self.fault.p.slot),
                fault_write.data.failed.eq(1),
                fault_write.data.line.eq(self.fault.p.line),
            ]
        if self.params.ctas > 1:
            with m.Elif(absent.valid):
                m.d.comb += [
                    fault_write.en.eq(1),
                    fault_write.addr.eq(absent.p.slot),
                    fault_write.data.failed.eq(1),
                    fault_write.data.receiver_absent.eq(1),
                    fault_write.data.line.eq(absent.p.receiver),
                ]
        with m.Else():
            m.d.comb += [fault_write.en.eq(clears), fault_write.addr.eq(ended_slot)]
