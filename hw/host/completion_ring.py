"""Completion ring: writes the completion records of a host to a ring in memory."""

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.host.ring import Ring, after
from hw.layouts.barriers import BarrierFault, BarrierResult, BarrierWake
from hw.layouts.host import (
    COMPLETION_BYTES,
    INDEX_BITS,
    Completion,
    CompletionAnswer,
    CompletionKind,
    HostError,
    completion_write_layout,
)
from hw.layouts.ports import error_record_layout, group_result_layout
from hw.lib.arbiter import Arbiter
from hw.params import HOST_ID_BITS, TmaParams


class CompletionRing(wiring.Component):
    """Writes a record for each end of a wait, each error, and each barrier operation that the host
    wants to hear of.

    A result or a wake gives a record if its tag has the bit that says so (see ``RecordDecoder``),
    or if it has a fault. A result that ``waits`` gives none: the wake follows.

    Latency: one clock from an input to ``write``. Throughput: a record every two clocks. The inputs
    take turns. Back-pressure: inputs wait while the ring is full or not enabled. ``unit_index``
    counts the records that are in memory: a record is visible before its index is.

    Errors: a record that cannot be written is lost, with the fault COMPLETION_RING.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    ring : In(Ring)
        Its ``base`` and ``size`` are constant while it is ``enabled``. The ring is full if the
        record in front of that with ``host_index`` is the one that is written next.
    barrier_result : In(stream) of ``BarrierResult``
    barrier_wake : In(stream) of ``BarrierWake``
    group_result : In(stream) of ``group_result_layout``
    error : In(stream) of ``error_record_layout``
    refused : In(stream) of ``Completion``
        Completions of records that were refused.
    write : Out(stream) of ``completion_write_layout``
    ack : In(stream) of ``CompletionAnswer``
    completed : Out(1)
        A record was written.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "ring": In(Ring(params)),
                "barrier_result": In(stream.Signature(BarrierResult)),
                "barrier_wake": In(stream.Signature(BarrierWake)),
                "group_result": In(stream.Signature(group_result_layout(params))),
                "error": In(stream.Signature(error_record_layout(params))),
                "refused": In(stream.Signature(Completion)),
                "write": Out(stream.Signature(completion_write_layout(params))),
                "ack": In(stream.Signature(CompletionAnswer)),
                "completed": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.records = records = Arbiter(Completion, 5)
        results, wakes, groups, errors, refused = records.i
        result = self.barrier_result.p
        self._take_barriers(m, self.barrier_result, results, result.waits)
        m.d.comb += results.p.value.eq(result.state)
        self._take_barriers(m, self.barrier_wake, wakes, Const(0, 1))
        self._take_groups(m, groups)
        self._take_errors(m, errors)
        connect(m, flipped(self.refused), refused)
        self._write(m, records.o)
        return m

    def _take_barriers(self, m: Module, ends, records, waits: Value) -> None:
        """Take the ends of barrier operations: results, or wakes."""
        end = ends.p
        is_told = (end.tag[HOST_ID_BITS] & ~waits) | (end.fault != BarrierFault.NONE)
        m.d.comb += [
            records.valid.eq(ends.valid & is_told),
            ends.ready.eq(records.ready | ~is_told),
            records.p.kind.eq(CompletionKind.BARRIER),
            records.p.request_id.eq(end.tag[:HOST_ID_BITS]),
            records.p.code.eq(end.fault),
            records.p.detail.eq(end.done),
        ]

    def _take_groups(self, m: Module, records) -> None:
        """Take the ends of waits for bulk groups."""
        m.d.comb += [
            records.valid.eq(self.group_result.valid),
            self.group_result.ready.eq(records.ready),
            records.p.kind.eq(CompletionKind.GROUP),
            records.p.request_id.eq(self.group_result.p.request_id),
        ]

    def _take_errors(self, m: Module, records) -> None:
        """Take error records."""
        error = self.error.p
        m.d.comb += [
            records.valid.eq(self.error.valid),
            self.error.ready.eq(records.ready),
            records.p.kind.eq(CompletionKind.ERROR),
            records.p.request_id.eq(error.request_id),
            records.p.code.eq(error.code),
            records.p.detail.eq(error.dim),
            records.p.value.eq(error.value),
        ]

    def _write(self, m: Module, records) -> None:
        """Write the records, and count those that are in memory."""
        ring = self.ring
        is_running = Signal()
        index = Signal(INDEX_BITS)  # of the record that is written next
        phase = Signal()
        in_flight = Signal(INDEX_BITS + 1)
        valid = Signal()
        write = Signal(completion_write_layout(self.params))
        takes = Signal()
        begins = Signal()
        is_full = after(index, ring) == ring.host_index
        m.d.comb += [
            records.ready.eq(is_running & ring.enabled & ~is_full & ~valid),
            takes.eq(records.valid & records.ready),
            begins.eq(ring.enabled & ~is_running & ~ring.busy),
            self.write.valid.eq(valid),
            self.write.p.eq(write),
            self.ack.ready.eq(1),
            self.completed.eq(self.ack.valid),
            ring.busy.eq(in_flight != 0),
            ring.fault.value.eq(ring.unit_index),
        ]
        with m.If(takes):
            base = ring.base[(COMPLETION_BYTES - 1).bit_length() :]
            m.d.sync += [
                valid.eq(1),
                write.address.eq(base + index),
                write.record.eq(records.p),
                write.record.phase.eq(phase),
                index.eq(after(index, ring)),
                phase.eq(phase ^ (after(index, ring) == 0)),
            ]
        with m.Elif(self.write.ready):
            m.d.sync += valid.eq(0)
        m.d.sync += in_flight.eq(in_flight + takes - self.ack.valid)
        with m.If(self.ack.valid):
            m.d.sync += ring.unit_index.eq(after(ring.unit_index, ring))
            with m.If(self.ack.p.error):
                m.d.comb += ring.fault.code.eq(HostError.COMPLETION_RING)
        with m.If(~ring.enabled):
            m.d.sync += is_running.eq(0)
        with m.If(begins):
            m.d.sync += [is_running.eq(1), index.eq(0), phase.eq(1), ring.unit_index.eq(0)]
