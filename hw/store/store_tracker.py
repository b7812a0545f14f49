"""Store tracker: knows of each store when its source is read and when its writes are performed."""

from amaranth.hdl import Assert, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import generator_job_layout, group_layout, opened_layout, walk_job_layout
from hw.layouts.lines import performed_layout
from hw.layouts.ports import error_layout
from hw.lib.job_slots import JobSlots, failure
from hw.lib.queue import Queue
from hw.params import TmaParams


class StoreTracker(wiring.Component):
    """Gives each store a slot, and ends it when all of its lines are performed.

    Jobs pass as ``JobSlots`` lets them. One ``performed`` a clock; a request's ``complete`` is
    offered two clocks after its last one, once. A request of which a line failed completes, too,
    and gives an error record besides, with the address of the last line that failed.
    ``source_read`` is passed on, as the group that its slot stands for, in the clock after.

    A DSMEM request, in a cluster, ends as a store does, when its lines are on their way; the error
    record is DST_CTA where its receiver does not run.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``walk_job_layout``; all jobs of a request, then those of the next
    o : Out(stream) of ``generator_job_layout``
    slot_read : In(stream) of slots: the source of the request is read, once for each
    performed : In(stream) of ``performed_layout``
    source_read : Out(stream) of ``group_layout``
    complete : Out(stream) of ``group_layout``
    opened : Out of ``opened_layout``; each request, as it gets its slot; in a cluster
    error : Out(stream) of ``error_layout``
    """

    def __init__(self, params: TmaParams):
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
                **({"opened": Out(opened_layout(params))} if params.ctas > 1 else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        depth = p.requests_in_flight
        m.submodules.slots = slots = JobSlots(p)
        m.submodules.errors = errors = Queue(error_layout(p), 2)
        connect(m, errors.o, flipped(self.error))
        owner_layout = data.StructLayout(
            {"group": group_layout(p), "request_id": p.request_id_bits}
        )
        m.submodules.owners = owners = Memory(shape=owner_layout, depth=depth, init=[])

        # Open: a slot, and whose it is; that is written whether or not the job passes, as to know
        # it takes long.
        opened = owners.write_port()
        connect(m, flipped(self.i), slots.i)
        connect(m, slots.o, flipped(self.o))
        m.d.comb += [
            opened.en.eq(slots.is_free & self.i.valid),
            opened.addr.eq(slots.slot),
            opened.data.group.eq(self.i.p.group),
            opened.data.request_id.eq(self.i.p.transfer.request_id),
        ]
        if p.ctas > 1:
            m.d.comb += [
                self.opened.valid.eq(slots.opened),
                self.opened.slot.eq(slots.slot),
                self.opened.transfer.eq(self.i.p.transfer),
            ]

        self._pass_source_read(m, owners.read_port())
        self._count(m, owners.read_port(), slots, errors)
        return m

    def _pass_source_read(self, m: Module, owner) -> None:
        """Look up whose slot it is."""
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
        """Count lines that are performed; end the request at the last, which may come before it is
        known how many there are.
        """
        p = self.params
        gone_bit = {"receiver_absent": 1} if p.ctas > 1 else {}
        progress_layout = data.StructLayout(
            {
                "performed": p.box_piece_bits,
                "known": 1,
                "lines": p.box_piece_bits,
                "failed": 1,
                **gone_bit,
                "line": p.line_address_bits,
            }
        )
        m.submodules.progress = progress = Memory(
            shape=progress_layout, depth=p.requests_in_flight, init=[]
        )
        counted = progress.write_port()
        read = progress.read_port(transparent_for=(counted,))
        busy = Signal()
        now = Signal(performed_layout(p), reset_less=True)
        advance = Signal()
        before, after = read.data, Signal(progress_layout)
        number = Signal(p.box_piece_bits)  # of lines performed
        ends = Signal()
        failed = before.failed | now.failed
        known = before.known | now.total_valid
        lines = Mux(now.total_valid, now.total_lines, before.lines)
        line = Mux(now.failed, now.line, before.line)
        gone = (
            Mux(now.failed, now.receiver_absent, before.receiver_absent)
            if p.ctas > 1
            else Const(0, 1)
        )
        m.d.comb += [
            self.performed.ready.eq(advance),
            *(port.addr.eq(self.performed.p.slot) for port in (owner, read)),
            *(port.en.eq(advance) for port in (owner, read)),
            number.eq(before.performed + now.answered),
            after.performed.eq(number),
            after.known.eq(known),
            after.lines.eq(lines),
            after.failed.eq(failed),
            after.line.eq(line),
            *(after[name].eq(gone) for name in gone_bit),
            ends.eq(busy & known & (number == lines)),
            counted.en.eq(busy & advance),
            counted.addr.eq(now.slot),
            counted.data.eq(Mux(ends, 0, after)),
        ]

        # What has ended. A failed request needs room for its record before it lets go of its group.
        end_layout = {
            "slot": p.slot_bits,
            "owner": owner.data.shape(),
            "failed": 1,
            "receiver_absent": 1,
            "line": p.line_address_bits,
        }
        ended = Signal()
        end = Signal(data.StructLayout(end_layout), reset_less=True)
        told = Signal()
        code, value = failure(m, p, end.receiver_absent, end.line)
        m.d.comb += [
            self.complete.valid.eq(ended & (~end.failed | errors.i.ready)),
            self.complete.p.eq(end.owner.group),
            told.eq(self.complete.valid & self.complete.ready),
            errors.i.valid.eq(told & end.failed),
            errors.i.p.request_id.eq(end.owner.request_id),
            errors.i.p.code.eq(code),
            errors.i.p.value.eq(value),
            slots.returned.valid.eq(told),
            slots.returned.payload.eq(end.slot),
            advance.eq(~ended | told),
        ]
        with m.If(advance):
            m.d.sync += [
                busy.eq(self.performed.valid),
                now.eq(self.performed.p),
                ended.eq(ends),
                end.slot.eq(now.slot),
                end.owner.eq(owner.data),
                end.failed.eq(failed),
                end.receiver_absent.eq(gone),
                end.line.eq(line),
            ]
        m.d.sync += Assert(
            ~(busy & before.known & now.total_valid), "StoreTracker: a request ends twice\n"
        )
