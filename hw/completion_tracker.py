"""Completion tracker: counts the pieces of each request and signals its barrier at the last."""

from amaranth.hdl import Assert, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.job_slots import JobSlots, failure
from hw.layouts import (
    barrier_completion_layout,
    error_layout,
    generator_job_layout,
    gone_layout,
    opened_layout,
    read_fault_layout,
    transfer_layout,
    walk_job_layout,
    written_layout,
)
from hw.params import TmaParams
from hw.queue import Queue


class CompletionTracker(wiring.Component):
    """Gives each request a slot, and ends it when all of its pieces are written.

    Jobs pass as ``JobSlots`` lets them. One ``written`` a clock; a request's
    ``completion`` is offered the clock after its last one, once, with the byte count of the whole
    request. A request with a read fault gives an error record instead and its barrier is not
    signalled. ``written`` waits only for ``completion`` or ``error``.

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
    written : In(stream) of ``written_layout``
    fault : In(stream) of ``read_fault_layout``; always ready; before its line's ``written``
    completion : Out(stream) of ``barrier_completion_layout``
    cta_rank : In, of this SM's CTA; this and the following are there in a cluster
    opened : Out of ``opened_layout``; each request, as it gets its slot
    gone : In(stream) of ``gone_layout``; before the ``written`` of what the receiver does not get
    error : Out(stream) of ``error_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        in_cluster = {
            "cta_rank": In(params.cta_bits),
            "opened": Out(opened_layout(params)),
            "gone": In(stream.Signature(gone_layout(params))),
        }
        super().__init__(
            {
                **(in_cluster if params.ctas > 1 else {}),
                "i": In(stream.Signature(walk_job_layout(params))),
                "o": Out(stream.Signature(generator_job_layout(params))),
                "written": In(stream.Signature(written_layout(params))),
                "fault": In(stream.Signature(read_fault_layout(params))),
                "completion": Out(stream.Signature(barrier_completion_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        depth = p.requests_in_flight
        gone_bit = {"gone": 1} if p.ctas > 1 else {}
        fault_layout = data.StructLayout({"failed": 1, **gone_bit, "line": p.line_address_bits})
        m.submodules.slots = slots = JobSlots(p)
        m.submodules.errors = errors = Queue(error_layout(p), 2)
        m.submodules.transfers = transfers = Memory(shape=transfer_layout(p), depth=depth, init=[])
        m.submodules.progress = progress = Memory(shape=p.box_piece_bits, depth=depth, init=[])
        m.submodules.faults = faults = Memory(shape=fault_layout, depth=depth, init=[])
        connect(m, errors.o, flipped(self.error))

        # Open: a slot, and what is to happen when it ends.
        opened = transfers.write_port()
        connect(m, flipped(self.i), slots.i)
        connect(m, slots.o, flipped(self.o))
        m.d.comb += [
            opened.en.eq(slots.opened),
            opened.addr.eq(slots.slot),
            opened.data.eq(self.i.p.transfer),
        ]
        if p.ctas > 1:
            m.d.comb += [
                self.opened.valid.eq(slots.opened),
                self.opened.slot.eq(slots.slot),
                self.opened.transfer.eq(self.i.p.transfer),
            ]

        # Count: look the slot up, then add. Reads see the count written in the same clock.
        counted = progress.write_port()
        failed = faults.write_port()
        transfer_read = transfers.read_port()
        progress_read = progress.read_port(transparent_for=(counted,))
        fault_read = faults.read_port(transparent_for=(failed,))
        busy = Signal()
        now = Signal(written_layout(p), reset_less=True)
        advance = Signal()
        transfer = transfer_read.data
        pieces = Signal(p.box_piece_bits)
        complete = Signal()
        is_failed = Signal()
        m.d.comb += [
            self.written.ready.eq(advance),
            *(port.addr.eq(self.written.p.slot) for port in (transfer_read, progress_read)),
            fault_read.addr.eq(self.written.p.slot),
            *(port.en.eq(advance) for port in (transfer_read, progress_read, fault_read)),
            pieces.eq(progress_read.data + now.pieces),
            complete.eq(busy & (pieces == transfer.pieces)),
            is_failed.eq(fault_read.data.failed),
            counted.en.eq(busy & advance),
            counted.addr.eq(now.slot),
            counted.data.eq(Mux(complete, 0, pieces)),
        ]
        with m.If(advance):
            m.d.sync += [busy.eq(self.written.valid), now.eq(self.written.p)]

        # End: the barrier or an error, and the slot is free.
        marks = Signal()  # a fault, now
        remote = transfer.delivery.remote if p.ctas > 1 else Const(0, 1)
        gone = fault_read.data.gone if p.ctas > 1 else Const(0, 1)
        code, value = failure(m, p, gone, fault_read.data.line)
        m.d.comb += [
            advance.eq(
                ~complete | Mux(is_failed, errors.i.ready & ~marks, remote | self.completion.ready)
            ),
            self.completion.valid.eq(complete & ~is_failed & ~remote),
            self.completion.p.request_id.eq(transfer.request_id),
            self.completion.p.address.eq(transfer.mbarrier),
            self.completion.p.tx_bytes.eq(transfer.pieces << 4),
            errors.i.valid.eq(complete & is_failed & ~marks),
            errors.i.p.request_id.eq(transfer.request_id),
            errors.i.p.code.eq(code),
            errors.i.p.value.eq(value),
            slots.returned.valid.eq(complete & advance),
            slots.returned.payload.eq(now.slot),
        ]
        if p.ctas > 1:
            m.d.comb += [
                self.completion.p.cta.eq(self.cta_rank),
                self.completion.p.holder.eq(transfer.delivery.signal_cta),
            ]

        # The mark of a fault is set as it is seen and wiped as its request ends.
        m.d.comb += self.fault.ready.eq(1)
        if p.ctas > 1:
            gone = self.gone
            m.d.comb += [marks.eq(self.fault.valid | gone.valid), gone.ready.eq(~self.fault.valid)]
        else:
            m.d.comb += marks.eq(self.fault.valid)
        with m.If(self.fault.valid):
            m.d.comb += [
                failed.en.eq(1),
                failed.addr.eq(self.fault.p.slot),
                failed.data.failed.eq(1),
                failed.data.line.eq(self.fault.p.line),
            ]
        if p.ctas > 1:
            with m.Elif(gone.valid):
                m.d.comb += [
                    failed.en.eq(1),
                    failed.addr.eq(gone.p.slot),
                    failed.data.failed.eq(1),
                    failed.data.gone.eq(1),
                    failed.data.line.eq(gone.p.receiver),
                ]
        with m.Else():
            m.d.comb += [failed.en.eq(complete & is_failed & advance), failed.addr.eq(now.slot)]

        m.d.sync += Assert(
            ~busy | (pieces <= transfer.pieces),
            "CompletionTracker: more pieces written than the request has\n",
        )
        return m
