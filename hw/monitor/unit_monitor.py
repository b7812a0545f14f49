"""Unit monitor: counts what happens in a unit, and records the milestones of its requests."""

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import bits_for

from hw.layouts.isa import Operation, is_dsmem, is_reduction, is_store
from hw.layouts.monitor import (
    SAMPLE_CLOCKS,
    STALLS,
    Counter,
    CounterPort,
    EventKind,
    EventRecord,
)
from hw.monitor.event_counters import EventCounters
from hw.monitor.event_recorder import EventRecorder
from hw.monitor.taps import watched_layout
from hw.params import TmaParams

ON_THE_WAY = 4
"""Upper bound of the lines that have left the port of global memory, or come to it, and whose tags
are free."""


def fires(stream_view: data.View) -> Value:
    """Return 1 if the payload of a watched stream is taken."""
    return stream_view.valid & stream_view.ready


def waits(stream_view: data.View) -> Value:
    """Return 1 if the payload of a watched stream waits."""
    return stream_view.valid & ~stream_view.ready


class UnitMonitor(wiring.Component):
    """Counts what happens in a unit, and records the milestones of its requests.

    All signals of the unit that it needs end in registers: no path of the unit gets longer, and
    nothing in the unit waits for it.

    Latency: an event is counted, and gets its time, a clock after it happened. Otherwise as
    ``EventCounters`` and ``EventRecorder``. Throughput: all events of each clock; for milestones
    see ``EventRecorder``. Back-pressure: none. Errors: lost milestones are counted in EVENTS_LOST.

    Parameters
    ----------
    params : TmaParams
        With ``counters``.

    Members
    -------
    watched : In of ``watched_layout``
    counters : Out(CounterPort)
    trace : Out(stream) of ``EventRecord``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "watched": In(watched_layout(params)),
                "counters": Out(CounterPort()),
                "trace": Out(stream.Signature(EventRecord)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        seen = Signal(watched_layout(self.params))
        m.d.sync += seen.eq(self.watched)
        amounts = self._count_requests(seen) | self._count_data(seen) | self._count_stalls(seen)
        amounts |= self._in_flight(m, seen)
        if self.params.stores:
            amounts |= self._count_stores(seen)
        if self.params.ctas > 1:
            amounts |= {
                Counter.PACKETS_SENT: fires(seen.packet_out),
                Counter.PACKETS_RECEIVED: fires(seen.packet_in),
                Counter.PACKET_STALLS: waits(seen.packet_out),
            }
        m.submodules.recorder = recorder = self._record(m, seen, amounts)
        amounts[Counter.EVENTS_LOST] = recorder.lost
        widths = {counter.name.lower(): len(amount) for counter, amount in amounts.items()}
        m.submodules.event_counters = counters = EventCounters(widths)
        m.d.comb += [
            counters.amounts[counter.name.lower()].eq(amount) for counter, amount in amounts.items()
        ]
        connect(m, counters.port, flipped(self.counters))
        connect(m, recorder.o, flipped(self.trace))
        return m

    def _count_requests(self, seen: data.View) -> dict[Counter, Value]:
        """Return the amounts of the counters of requests and tensor maps."""
        operation = seen.request.operation
        accepted = fires(seen.request)
        groups = Operation.COMMIT_GROUP, Operation.WAIT_GROUP, Operation.WAIT_GROUP_READ
        kinds = {
            Counter.TENSOR_LOADS: operation == Operation.TENSOR_LOAD,
            Counter.BULK_LOADS: operation == Operation.BULK_LOAD,
            Counter.PREFETCHES: operation.as_value().matches(
                Operation.TENSOR_PREFETCH, Operation.BULK_PREFETCH
            ),
            Counter.TENSOR_STORES: operation == Operation.TENSOR_STORE,
            Counter.BULK_STORES: operation == Operation.BULK_STORE,
            Counter.REDUCTIONS: is_reduction(operation) & ~is_dsmem(operation),
            Counter.DSMEM_REQUESTS: is_dsmem(operation),
            Counter.GROUP_OPERATIONS: operation.as_value().matches(*groups),
        }
        with_map = fires(seen.with_map)
        return {
            Counter.CYCLES: Const(1, 1),
            Counter.BUSY: seen.busy,
            **{counter: accepted & is_kind for counter, is_kind in kinds.items()},
            Counter.REFUSED: fires(seen.tensor_refusal) + fires(seen.bulk_refusal),
            Counter.LOADS_ENDED: seen.load_slots.ended.valid,
            Counter.ERROR_RECORDS: fires(seen.error),
            Counter.MAP_HITS: with_map & ~seen.map_use.missed,
            Counter.MAP_MISSES: with_map & seen.map_use.missed,
            Counter.MAP_FETCHES: fires(seen.map_fetch),
            Counter.BARRIER_OPERATIONS: fires(seen.barrier_command),
        }

    def _count_data(self, seen: data.View) -> dict[Counter, Value]:
        """Return the amounts of the counters of lines, beats and pieces of loads."""
        read, written, fill = fires(seen.read), fires(seen.smem_write), fires(seen.lane_fill)
        return {
            Counter.LINES_READ: read & ~seen.read.prefetch,
            Counter.LINES_PREFETCHED: read & seen.read.prefetch,
            Counter.BEATS_WRITTEN: written,
            Counter.PIECES_WRITTEN: self._pieces(seen.smem_write.lanes, written),
            Counter.FILL_PIECES: self._pieces(seen.lane_fill.lanes, fill),
        }

    def _count_stores(self, seen: data.View) -> dict[Counter, Value]:
        """Return the amounts of the counters of stores."""
        write, read = fires(seen.write), fires(seen.smem_read)
        line_waits = seen.write_line.valid & seen.write_line.has_pieces
        return {
            Counter.STORES_ENDED: seen.store_slots.ended.valid,
            Counter.LINES_WRITTEN: write & ~seen.write.reduces,
            Counter.LINES_REDUCED: write & seen.write.reduces,
            Counter.BEATS_READ: read,
            Counter.PIECES_READ: self._pieces(seen.smem_read.lanes, read),
            Counter.STORE_SLOT_STALLS: waits(seen.store_job),
            Counter.STORE_LINE_STALLS: waits(seen.store_line),
            Counter.SMEM_READ_STALLS: waits(seen.smem_read),
            Counter.WRITE_TAG_STALLS: line_waits & ~seen.write.valid,
            Counter.WRITE_PORT_STALLS: waits(seen.write),
        }

    def _pieces(self, lanes: Value, fire: Value) -> Value:
        """Return the number of lanes, if there is a transfer."""
        return Mux(fire, sum(lanes), 0)

    def _count_stalls(self, seen: data.View) -> dict[Counter, Value]:
        """Return the amounts of the counters of stalls, but for those of stores."""
        return {
            Counter.REQUEST_STALLS: waits(seen.request),
            Counter.MAP_STALLS: seen.map_use.waits,
            Counter.SETUP_STALLS: waits(seen.with_map),
            Counter.LOAD_SLOT_STALLS: waits(seen.load_job),
            Counter.READ_TAG_STALLS: waits(seen.line) & ~seen.read.valid,
            Counter.READ_PORT_STALLS: waits(seen.read),
            Counter.RESPONSE_STALLS: waits(seen.response),
            Counter.LANE_STALLS: waits(seen.lane_line),
            Counter.FILL_STALLS: waits(seen.lane_fill),
            Counter.SMEM_WRITE_STALLS: waits(seen.smem_write),
            Counter.COMPLETION_STALLS: waits(seen.completion),
        }

    def _in_flight(self, m: Module, seen: data.View) -> dict[Counter, Value]:
        """Return what is in flight in each clock."""
        p = self.params

        def level(name: str, most: int, enters: Value, leaves: Iterable[Value]) -> Signal:
            signal = Signal(bits_for(most), name=name)
            m.d.sync += signal.eq(signal + enters - sum(leaves))
            return signal

        of_queue = p.channels * p.request_queue_depth + 1
        left = fires(seen.tensor), fires(seen.bulk)
        read = fires(seen.read) & ~seen.read.prefetch
        lines = p.tags + ON_THE_WAY
        levels = {
            Counter.REQUESTS_WAITING: level("waiting", of_queue, fires(seen.queued), left),
            Counter.LOADS_IN_FLIGHT: seen.load_slots.in_flight,
            Counter.READS_IN_FLIGHT: level("reads", lines, read, [fires(seen.arrival)]),
        }
        if p.stores:
            answered = fires(seen.performed) & seen.performed.answered
            levels |= {
                Counter.STORES_IN_FLIGHT: seen.store_slots.in_flight,
                Counter.WRITES_IN_FLIGHT: level("writes", lines, fires(seen.write), [answered]),
            }
        return levels

    def _record(self, m: Module, seen: data.View, amounts: dict[Counter, Value]) -> EventRecorder:
        """Return the recorder of all milestones, and of samples."""
        p = self.params
        offers = [
            self._accepted(seen.request),
            self._with_map(seen),
            *(self._refused(refusal) for refusal in (seen.tensor_refusal, seen.bulk_refusal)),
            self._opened(seen.load_job, of_store=False),
            self._line(seen.line, of_store=False),
            self._ended(seen.load_slots.ended, of_store=False),
            self._sample(m, seen, amounts),
        ]
        if p.stores:
            source_read = {
                "kind": EventKind.SOURCE_READ,
                "store": 1,
                "slot": seen.source_read.slot,
            }
            offers += [
                self._opened(seen.store_job, of_store=True),
                self._line(seen.store_line, of_store=True),
                (fires(seen.source_read), source_read),
                self._ended(seen.store_slots.ended, of_store=True),
            ]
        recorder = EventRecorder(len(offers))
        for source, (valid, fields) in zip(recorder.i, offers, strict=True):
            m.d.comb += [
                source.valid.eq(valid),
                *(source.event[name].eq(value) for name, value in fields.items()),
            ]
        return recorder

    def _accepted(self, request: data.View) -> tuple[Value, dict]:
        of_store = is_store(request.operation)
        return fires(request), {
            "kind": EventKind.ACCEPTED,
            "store": of_store,
            "stream": Mux(of_store, 0, request.stream),
            "request_id": request.request_id,
            "argument": request.operation,
        }

    def _with_map(self, seen: data.View) -> tuple[Value, dict]:
        request = seen.with_map
        of_store = is_store(request.operation)
        return fires(request), {
            "kind": Mux(seen.map_use.missed, EventKind.MAP_MISS, EventKind.MAP_HIT),
            "store": of_store,
            "stream": Mux(of_store, 0, request.stream),
            "request_id": request.request_id,
            "argument": request.map,
        }

    def _refused(self, refusal: data.View) -> tuple[Value, dict]:
        of_store = refusal.channel == self.params.streams
        return fires(refusal), {
            "kind": EventKind.REFUSED,
            "store": of_store,
            "stream": Mux(of_store, 0, refusal.channel),
            "request_id": refusal.request_id,
            "argument": refusal.code,
        }

    def _opened(self, job: data.View, *, of_store: bool) -> tuple[Value, dict]:
        return fires(job) & job.opens, {
            "kind": EventKind.OPENED,
            "store": of_store,
            "stream": 0 if of_store else job.stream,
            "slot": job.slot,
            "request_id": job.request_id,
            "argument": job.pieces,
        }

    def _line(self, line: data.View, *, of_store: bool) -> tuple[Value, dict]:
        counts = line.has_pieces if of_store else ~line.prefetch
        first, last = line.marks.first, line.marks.last
        one_end = Mux(first, EventKind.FIRST_LINE, EventKind.LAST_LINE)
        return fires(line) & counts & (first | last), {
            "kind": Mux(first & last, EventKind.ONLY_LINE, one_end),
            "store": of_store,
            "slot": line.slot,
            "argument": line.line,
        }

    def _ended(self, ended: data.View, *, of_store: bool) -> tuple[Value, dict]:
        return ended.valid, {
            "kind": Mux(ended.failed, EventKind.FAILED, EventKind.ENDED),
            "store": of_store,
            "slot": ended.slot,
            "request_id": ended.request_id,
        }

    def _sample(self, m: Module, seen: data.View, amounts: dict[Counter, Value]) -> tuple:
        """Return the sample that is due every ``SAMPLE_CLOCKS`` clocks."""
        clock = Signal(range(SAMPLE_CLOCKS))
        was_busy = Signal()
        stalled = Signal(len(STALLS))
        is_due = clock == SAMPLE_CLOCKS - 1
        stalls = Cat(amounts.get(counter, Const(0, 1)) for counter in STALLS)
        m.d.sync += [
            clock.eq(clock + 1),
            was_busy.eq(seen.busy | (was_busy & ~is_due)),
            stalled.eq(stalls | Mux(is_due, 0, stalled)),
        ]
        loads, stores, reads, writes = (
            amounts.get(counter, Const(0, 1))
            for counter in (
                Counter.LOADS_IN_FLIGHT,
                Counter.STORES_IN_FLIGHT,
                Counter.READS_IN_FLIGHT,
                Counter.WRITES_IN_FLIGHT,
            )
        )
        lines = Signal(data.StructLayout({"reads": 16, "writes": 16}), name="lines_in_flight")
        m.d.comb += [lines.reads.eq(reads), lines.writes.eq(writes)]
        return is_due & was_busy, {
            "kind": EventKind.SAMPLE,
            "slot": loads + stores,
            "request_id": stalled,
            "argument": lines,
        }
