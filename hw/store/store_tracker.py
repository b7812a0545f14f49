"""Store tracker: reports when the source of a store is read and when its writes are performed."""

from amaranth.hdl import Assert, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import generator_job_layout, group_layout, opened_layout, walk_job_layout
from hw.layouts.lines import performed_layout
from hw.layouts.monitor import slot_use_layout
from hw.layouts.ports import clear_layout, error_layout
from hw.layouts.translation import cause_field
from hw.lib.job_slots import JobSlots, failure
from hw.lib.memory import Copies, RowMemory, clear_row, write_later
from hw.lib.queue import Queue
from hw.lib.zero_sum import sum_is_zero
from hw.params import TmaParams


class StoreTracker(wiring.Component):
    """Gives each store a slot, and ends the store when all of its lines are performed.

    ``source_read`` and ``complete`` report the bulk group of the store. A store with a line that
    failed completes, too, and gives an error record besides, with the address of the last line that
    failed. A DSMEM request, in a cluster, ends in the same way when its lines are on their way; its
    error record is DST_CTA if its receiver does not run.

    Latency: none for jobs, which pass as ``JobSlots`` lets them; one clock from ``slot_read`` to
    ``source_read``; two clocks from the last ``performed`` of a request to its ``complete``.
    Throughput: one of each a clock. Back-pressure: ``slot_read`` waits for ``source_read``;
    ``performed`` waits while an end is held up, by ``complete`` or, of a store that failed, by
    ``error``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``walk_job_layout``; all jobs of a request, then those of the next
    o : Out(stream) of ``generator_job_layout``
    slot_read : In(stream) of slots; once for each request, when its source is read
    performed : In(stream) of ``performed_layout``
    source_read : Out(stream) of ``group_layout``
    complete : Out(stream) of ``group_layout``
    error : Out(stream) of ``error_layout``
    clear : In of ``clear_layout``; the progress of all slots is to be cleared after a reset
    busy : Out; a request has a slot
    opened : Out of ``opened_layout``; each request, in the clock in which it gets its slot. Present
        in a cluster.
    slot_use : Out of ``slot_use_layout``; present with ``counters``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(walk_job_layout(params))),
                "o": Out(stream.Signature(generator_job_layout(params))),
                "slot_read": In(stream.Signature(params.slot_bits)),
                "performed": In(stream.Signature(performed_layout(params))),
                "source_read": Out(stream.Signature(group_layout(params))),
                "complete": Out(stream.Signature(group_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
                "clear": In(clear_layout(params)),
                "busy": Out(1),
                **({"opened": Out(opened_layout(params))} if params.ctas > 1 else {}),
                **({"slot_use": Out(slot_use_layout(params))} if params.counters else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        depth = p.requests_in_flight
        m.submodules.slots = slots = JobSlots(p)
        m.submodules.errors = errors = Queue(error_layout(p), 2)
        connect(m, errors.o, flipped(self.error))
        owner_layout = data.StructLayout(
            {"group": group_layout(p), "request_id": p.request_id_bits}
        )
        owners = Copies(m, "owners", owner_layout, depth, 2)

        # The owner of the slot is written whether or not the job passes: to wait for that would
        # make the path long, and the slot has no other owner.
        owner_write = owners.write
        connect(m, flipped(self.i), slots.i)
        connect(m, slots.o, flipped(self.o))
        m.d.comb += [
            owner_write.en.eq(slots.is_free & self.i.valid),
            owner_write.addr.eq(slots.slot),
            owner_write.data.group.eq(self.i.p.group),
            owner_write.data.request_id.eq(self.i.p.transfer.request_id),
        ]
        if p.ctas > 1:
            m.d.comb += [
                self.opened.valid.eq(slots.opened),
                self.opened.slot.eq(slots.slot),
                self.opened.transfer.eq(self.i.p.transfer),
            ]

        source, answered = (copy.read_port() for copy in owners.memories)
        self._pass_source_read(m, source)
        self._count(m, answered, slots, errors)
        m.d.comb += self.busy.eq(slots.busy)
        return m

    def _pass_source_read(self, m: Module, owner) -> None:
        """Look up the owner of the slot, and report its group."""
        busy = Signal()
        m.d.comb += [
            self.slot_read.ready.eq(~busy | self.source_read.ready),
            owner.en.eq(self.slot_read.ready),
            owner.addr.eq(self.slot_read.payload),
            self.source_read.valid.eq(busy),
            self.source_read.p.eq(owner.data.group),
        ]
        with m.If(self.slot_read.ready):
            m.d.sync += busy.eq(self.slot_read.valid)

    def _count(self, m: Module, owner, slots: JobSlots, errors: Queue) -> None:
        """Count the lines that are performed, and find the last one of each request.

        The last answer may come before or after the number of lines of the request.
        """
        p = self.params
        absent_field = {"receiver_absent": 1} if p.ctas > 1 else {}
        progress_layout = data.StructLayout(
            {
                "excess": p.box_piece_bits,  # lines performed, less those of the request if known
                "total_valid": 1,
                "failed": 1,
                **cause_field(p),
                **absent_field,
                "line": p.line_address_bits,
            }
        )
        busy = Signal()
        report = Signal(performed_layout(p), reset_less=True)
        advance = Signal()
        performed = self.performed.p
        progress_d = Signal(progress_layout)
        added = Signal(p.box_piece_bits, reset_less=True)  # to ``excess``, by the report
        complete = Signal()
        progress_q, is_zero = self._find_progress(m, busy, report.slot, advance, progress_d, added)
        failed = progress_q.failed | report.failed
        total_valid = progress_q.total_valid | report.total_valid
        line = Mux(report.failed, report.line, progress_q.line)
        cause = {
            name: Mux(report.failed, report[name], progress_q[name]) for name in cause_field(p)
        }
        receiver_absent = (
            Mux(report.failed, report.receiver_absent, progress_q.receiver_absent)
            if p.ctas > 1
            else Const(0, 1)
        )
        m.d.comb += [
            self.performed.ready.eq(advance),
            owner.addr.eq(performed.slot),
            owner.en.eq(advance),
            complete.eq(busy & total_valid & is_zero),
            # At the end ``excess`` is 0, and ``line`` has no meaning.
            progress_d.excess.eq(progress_q.excess + added),
            progress_d.total_valid.eq(total_valid & ~complete),
            progress_d.failed.eq(failed & ~complete),
            progress_d.line.eq(line),
            *(progress_d[name].eq(value) for name, value in cause.items()),
            *(progress_d[name].eq(receiver_absent) for name in absent_field),
        ]

        end_valid = Signal()
        end = Signal(self._end_layout(owner.data.shape()), reset_less=True)
        retired = Signal()
        self._end(m, slots, errors, end_valid, end, retired)
        m.d.comb += advance.eq(~end_valid | retired)
        with m.If(advance):
            m.d.sync += [
                busy.eq(self.performed.valid),
                report.eq(performed),
                added.eq(performed.answered - Mux(performed.total_valid, performed.total_lines, 0)),
                end_valid.eq(complete),
                end.slot.eq(report.slot),
                end.owner.eq(owner.data),
                end.failed.eq(failed),
                *(end[name].eq(value) for name, value in cause.items()),
                end.receiver_absent.eq(receiver_absent),
                end.line.eq(line),
            ]
        m.d.sync += Assert(
            ~(busy & progress_q.total_valid & report.total_valid),
            "store_tracker: a request ends twice\n",
        )

    def _find_progress(
        self, m: Module, busy: Value, slot: Value, advance: Value, progress_d, added: Value
    ) -> tuple[data.View, Value]:
        """Return the row of the report at ``slot``, and whether its ``excess`` and ``added`` are 0
        together. ``progress_d``: what becomes of the row.
        """
        layout = progress_d.shape()
        m.submodules.progress = progress = RowMemory(layout, self.params.requests_in_flight)
        write, read = progress.write_port(), progress.read_port(forwards=True)
        row = Signal(layout, name="progress_q")
        last = write_later(m, "progress", write, busy & advance, slot, progress_d)
        takes_last_row = Signal(reset_less=True)  # the report is of the same slot as the last one
        m.d.comb += [
            read.addr.eq(self.performed.p.slot),
            read.en.eq(advance),
            row.eq(Mux(takes_last_row, last.row.as_value(), read.data.as_value())),
        ]
        with m.If(advance):
            m.d.sync += takes_last_row.eq(busy & (self.performed.p.slot == slot))
        clear_row(m, write, self.clear)
        # The memory is slow, so both sums are compared before one is chosen.
        is_zero = Mux(
            takes_last_row,
            sum_is_zero(last.row.excess, added),
            sum_is_zero(read.data.excess, added),
        )
        return row, is_zero

    def _end_layout(self, owner_layout: data.StructLayout) -> data.StructLayout:
        """Return the layout of the request that ended."""
        return data.StructLayout(
            {
                "slot": self.params.slot_bits,
                "owner": owner_layout,
                "failed": 1,
                **cause_field(self.params),
                "receiver_absent": 1,
                "line": self.params.line_address_bits,
            }
        )

    def _end(self, m: Module, slots: JobSlots, errors: Queue, end_valid, end, retired) -> None:
        """Report the end of a request, and free its slot.

        A request that failed completes only when there is room for its error record.
        """
        code, cause, value = failure(m, self.params, end.receiver_absent, end, end.line)
        m.d.comb += [
            self.complete.valid.eq(end_valid & (~end.failed | errors.i.ready)),
            self.complete.p.eq(end.owner.group),
            retired.eq(self.complete.valid & self.complete.ready),
            errors.i.valid.eq(retired & end.failed),
            errors.i.p.request_id.eq(end.owner.request_id),
            errors.i.p.code.eq(code),
            errors.i.p.dim.eq(cause),
            errors.i.p.value.eq(value),
            slots.returned.valid.eq(retired),
            slots.returned.payload.eq(end.slot),
        ]
        if self.params.counters:
            ended = self.slot_use.ended
            m.d.comb += [
                self.slot_use.in_flight.eq(slots.in_flight),
                ended.valid.eq(retired),
                ended.failed.eq(end.failed),
                ended.slot.eq(end.slot),
                ended.request_id.eq(end.owner.request_id),
            ]
