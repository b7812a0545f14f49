"""Completion tracker: counts the pieces of each request and signals its barrier at the last."""

from functools import cache

from amaranth.hdl import Assert, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.barriers import barrier_completion_layout
from hw.layouts.jobs import generator_job_layout, opened_layout, transfer_layout, walk_job_layout
from hw.layouts.lines import absent_receiver_layout, read_fault_layout, written_layout
from hw.layouts.ports import error_layout
from hw.lib.job_slots import JobSlots, failure
from hw.lib.queue import Queue
from hw.params import TmaParams


@cache
def fault_layout(params: TmaParams) -> data.StructLayout:
    """Whether a request has ``failed``, or with ``gone`` at which CTA, or at which line."""
    gone = {"receiver_absent": 1} if params.ctas > 1 else {}
    return data.StructLayout({"failed": 1, **gone, "line": params.line_address_bits})


class Counted:
    """A kind of pieces that is counted: the event in hand, what was looked up for it, and the end
    of a request that an event before it was.
    """

    def __init__(self, params: TmaParams, name: str, port, memory: Memory):
        def signal(shape, part: str, **options) -> Signal:
            return Signal(shape, name=f"{name}_{part}", **options)

        self.port = port
        self.memory = memory
        self.write = memory.write_port()
        self.advance = signal(1, "advance")
        self.busy = signal(1, "busy")
        self.slot = signal(params.slot_bits, "slot", reset_less=True)
        self.pieces = signal(params.box_piece_bits, "pieces", reset_less=True)
        self.transfer = signal(transfer_layout(params), "transfer")
        self.fault = signal(fault_layout(params), "fault")
        self.others = signal(params.box_piece_bits, "others")
        self.total = signal(params.box_piece_bits, "total")
        self.sum = signal(params.box_piece_bits, "sum")
        self.complete = signal(1, "complete")
        end = {
            "slot": params.slot_bits,
            "transfer": transfer_layout(params),
            "fault": fault_layout(params),
        }
        self.ended = signal(1, "ended")
        self.end = signal(data.StructLayout(end), "end", reset_less=True)
        self.told = signal(1, "told")


class CompletionTracker(wiring.Component):
    """Gives each request a slot, and ends it when all of its pieces are written.

    Jobs pass as ``JobSlots`` lets them. One ``written`` and one ``filled`` a clock; a request's
    ``completion`` is offered two clocks after its last one of either, once, with the byte count of
    the whole request. A request with a read fault gives an error record instead and its barrier is
    not signalled. ``written`` and ``filled`` wait only while an end of theirs is held up, by
    ``completion`` or ``error`` or, for a clock, by the other's end; a line waits, besides, for fill
    of its request that does.

    In a cluster a request may be ``remote``: its receivers signal what they get. It ends without a
    completion when all of its pieces are on their way, and with an error record (DST_CTA) if one of
    the receivers is ``gone``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``walk_job_layout``; all jobs of a request, then those of the next
    o : Out(stream) of ``generator_job_layout``
    written : In(stream) of ``written_layout``; of lines
    filled : In(stream) of ``written_layout``; of fill
    fault : In(stream) of ``read_fault_layout``; always ready; before its line's ``written``
    completion : Out(stream) of ``barrier_completion_layout``
    cta_rank : In, of this SM's CTA; this and the following are there in a cluster
    opened : Out of ``opened_layout``; each request, as it gets its slot
    receiver_absent : In(stream) of ``absent_receiver_layout``; before the ``written`` of what the
        receiver does not get
    error : Out(stream) of ``error_layout``
    """

    def __init__(self, params: TmaParams):
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
                "completion": Out(stream.Signature(barrier_completion_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        depth = p.requests_in_flight
        m.submodules.slots = slots = JobSlots(p)
        m.submodules.errors = errors = Queue(error_layout(p), 2)
        m.submodules.transfers = transfers = Memory(shape=transfer_layout(p), depth=depth, init=[])
        m.submodules.faults = faults = Memory(shape=fault_layout(p), depth=depth, init=[])
        connect(m, errors.o, flipped(self.error))

        # Open: a slot, and what is to happen when it ends; that is written whether or not the job
        # passes, as to know it takes long.
        opened = transfers.write_port()
        connect(m, flipped(self.i), slots.i)
        connect(m, slots.o, flipped(self.o))
        m.d.comb += [
            opened.en.eq(slots.is_free & self.i.valid),
            opened.addr.eq(slots.slot),
            opened.data.eq(self.i.p.transfer),
        ]
        if p.ctas > 1:
            m.d.comb += [
                self.opened.valid.eq(slots.opened),
                self.opened.slot.eq(slots.slot),
                self.opened.transfer.eq(self.i.p.transfer),
            ]

        # Count: look the slot up, then add.
        marked = faults.write_port()
        lines, fill = self._count(m, transfers, faults, marked)

        # End: the barrier or an error, and the slot is free. Lines go first, but what is offered
        # stays.
        ends, of_lines, fill_waits = Signal(), Signal(), Signal()
        end = Signal(lines.end.shape())
        transfer, fault = end.transfer, end.fault
        m.d.comb += [
            ends.eq(lines.ended | fill.ended),
            of_lines.eq(lines.ended & ~fill_waits),
            end.eq(Mux(of_lines, lines.end, fill.end)),
        ]
        done = Signal()
        marks = Signal()  # a fault, now
        remote = transfer.delivery.remote if p.ctas > 1 else Const(0, 1)
        gone = fault.receiver_absent if p.ctas > 1 else Const(0, 1)
        code, value = failure(m, p, gone, fault.line)
        m.d.comb += [
            done.eq(Mux(fault.failed, errors.i.ready & ~marks, remote | self.completion.ready)),
            lines.told.eq(done & of_lines),
            fill.told.eq(done & ~of_lines),
            self.completion.valid.eq(ends & ~fault.failed & ~remote),
            self.completion.p.request_id.eq(transfer.request_id),
            self.completion.p.address.eq(transfer.mbarrier),
            self.completion.p.tx_bytes.eq(transfer.pieces << 4),
            errors.i.valid.eq(ends & fault.failed & ~marks),
            errors.i.p.request_id.eq(transfer.request_id),
            errors.i.p.code.eq(code),
            errors.i.p.value.eq(value),
            slots.returned.valid.eq(ends & done),
            slots.returned.payload.eq(end.slot),
        ]
        m.d.sync += fill_waits.eq(ends & ~of_lines & ~done)
        if p.ctas > 1:
            m.d.comb += [
                self.completion.p.cta.eq(self.cta_rank),
                self.completion.p.holder.eq(transfer.delivery.signal_cta),
            ]

        # The mark of a fault is set as it is seen and wiped as its request ends.
        m.d.comb += self.fault.ready.eq(1)
        if p.ctas > 1:
            gone = self.receiver_absent
            m.d.comb += [marks.eq(self.fault.valid | gone.valid), gone.ready.eq(~self.fault.valid)]
        else:
            m.d.comb += marks.eq(self.fault.valid)
        with m.If(self.fault.valid):
            m.d.comb += [
                marked.en.eq(1),
                marked.addr.eq(self.fault.p.slot),
                marked.data.failed.eq(1),
                marked.data.line.eq(self.fault.p.line),
            ]
        if p.ctas > 1:
            with m.Elif(gone.valid):
                m.d.comb += [
                    marked.en.eq(1),
                    marked.addr.eq(gone.p.slot),
                    marked.data.failed.eq(1),
                    marked.data.receiver_absent.eq(1),
                    marked.data.line.eq(gone.p.receiver),
                ]
        with m.Else():
            m.d.comb += [marked.en.eq(ends & fault.failed & done), marked.addr.eq(end.slot)]
        return m

    def _count(self, m: Module, transfers: Memory, faults: Memory, marked) -> list["Counted"]:
        """Add up the pieces of lines and those of fill.

        Each has a memory of its own, so that both count in the same clock; what a request has is
        the sum of both, modulo the size of a counter. The event that makes it whole is the last one
        and leaves in its memory what makes the sum 0 for the next request of the slot.
        """
        p = self.params
        counted = []
        for name, port in ("lines", self.written), ("fill", self.filled):
            m.submodules[name] = memory = Memory(
                shape=p.box_piece_bits, depth=p.requests_in_flight, init=[]
            )
            counted.append(Counted(p, name, port, memory))
        lines, fill = counted
        for mine, other in (lines, fill), (fill, lines):
            own = mine.memory.read_port(transparent_for=(mine.write,))
            others = other.memory.read_port(transparent_for=(other.write,))
            transfer = transfers.read_port()
            fault = faults.read_port(transparent_for=(marked,))
            # Fill of no pieces may come when its request has ended, and its slot is another's.
            counts = (mine.pieces != 0) | (mine.transfer.pieces == 0)
            for read in own, transfer, fault:
                m.d.comb += [read.addr.eq(mine.port.p.slot), read.en.eq(mine.advance)]
            m.d.comb += [
                # An event that waits goes on seeing what the other kind has counted.
                others.addr.eq(Mux(mine.advance, mine.port.p.slot, mine.slot)),
                mine.port.ready.eq(mine.advance),
                mine.transfer.eq(transfer.data),
                mine.fault.eq(fault.data),
                mine.others.eq(others.data),
                mine.total.eq(own.data + mine.pieces),
                mine.sum.eq(mine.total + mine.others),
                mine.complete.eq(mine.busy & counts & (mine.sum == mine.transfer.pieces)),
                mine.write.en.eq(mine.busy & mine.advance),
                mine.write.addr.eq(mine.slot),
                # The others' number, negated.
                mine.write.data.eq(
                    Mux(mine.complete, mine.total - mine.transfer.pieces, mine.total)
                ),
            ]
            with m.If(mine.advance):
                m.d.sync += [
                    mine.busy.eq(mine.port.valid),
                    mine.slot.eq(mine.port.p.slot),
                    mine.pieces.eq(mine.port.p.pieces),
                    mine.ended.eq(mine.complete),
                    mine.end.slot.eq(mine.slot),
                    mine.end.transfer.eq(mine.transfer),
                    mine.end.fault.eq(mine.fault),
                ]
            with m.Elif(mine.told):
                m.d.sync += mine.ended.eq(0)
            m.d.sync += Assert(
                ~mine.busy | (mine.sum <= mine.transfer.pieces),
                "CompletionTracker: more pieces written than the request has\n",
            )
        # Of two events of a request in the same clock, that of a line sees the other, and does not
        # leave before it. What is behind an end follows as it is told, in a compact unit then.
        same = Signal()
        follows = Const(not self.params.compact)
        m.d.comb += [
            same.eq(lines.busy & fill.busy & (fill.slot == lines.slot)),
            fill.advance.eq(~fill.ended | (fill.told & follows)),
            lines.advance.eq((~lines.ended | (lines.told & follows)) & (fill.advance | ~same)),
        ]
        with m.If(same):
            m.d.comb += lines.others.eq(fill.total)
        return counted
