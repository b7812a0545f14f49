"""Taps: the streams of a unit that its monitor watches, and the fields of them that it needs."""

from functools import cache
from typing import Any

from amaranth.hdl import Cat, Module, ShapeLike, ValueLike
from amaranth.lib import data, stream

from hw.layouts.isa import ErrorCode, Operation
from hw.layouts.jobs import stream_of
from hw.layouts.lines import line_request_layout
from hw.layouts.monitor import MapUse, slot_use_layout
from hw.params import TmaParams

Fields = dict[str, ShapeLike]

LINE_BITS = 32
"""Bits of the number of a line that an event has."""

MAP_BITS = slice(6, 38)
"""Bits of the address of a tensor map that an event has."""


def _request(params: TmaParams) -> Fields:
    """Return the fields of a request."""
    return {
        "operation": Operation,
        "request_id": params.request_id_bits,
        "stream": params.stream_bits,
    }


def _refusal(params: TmaParams) -> Fields:
    """Return the fields of a refusal."""
    return {
        "code": ErrorCode,
        "request_id": params.request_id_bits,
        "channel": params.channel_bits,
    }


def _job(params: TmaParams) -> Fields:
    """Return the fields of a job that enters a tracker."""
    return {
        "opens": 1,
        "stream": params.stream_bits,
        "slot": params.slot_bits,
        "request_id": params.request_id_bits,
        "pieces": params.box_piece_bits,
    }


def _line(params: TmaParams) -> Fields:
    """Return the fields of a line that leaves a generator."""
    return {
        "marks": line_request_layout(params).members["marks"],
        "slot": params.slot_bits,
        "line": min(LINE_BITS, params.line_address_bits),
    }


@cache
def watched_layout(params: TmaParams) -> data.StructLayout:
    """Signals that the monitor of a unit watches.

    Members
    -------
    busy : something is pending in the unit
    map_use, load_slots, store_slots : see ``MapUse`` and ``slot_use_layout``
    others : of a stream: ``valid``, ``ready``, and the fields that count
    """
    lanes: Fields = {"lanes": params.lanes}
    streams: dict[str, Fields] = {
        "request": _request(params),
        "error": {},
        "queued": {},
        "tensor": {},
        "bulk": {},
        "with_map": {**_request(params), "map": MAP_BITS.stop - MAP_BITS.start},
        "map_fetch": {},
        "tensor_refusal": _refusal(params),
        "bulk_refusal": _refusal(params),
        "load_job": _job(params),
        "line": {"prefetch": 1, **_line(params)},
        "read": {"prefetch": 1},
        "response": {},
        "arrival": {},
        "lane_line": {},
        "lane_fill": lanes,
        "smem_write": lanes,
        "completion": {},
        "barrier_command": {},
    }
    use: Fields = {"busy": 1, "map_use": MapUse, "load_slots": slot_use_layout(params)}
    if params.stores:
        streams |= {
            "store_job": _job(params),
            "store_line": {"has_pieces": 1, **_line(params)},
            "source_read": {"slot": params.slot_bits},
            "smem_read": lanes,
            "write_line": {"has_pieces": 1},
            "write": {"reduces": 1},
            "performed": {"answered": 1},
        }
        use["store_slots"] = slot_use_layout(params)
    if params.ctas > 1:
        streams |= {"packet_out": {}, "packet_in": {}}
    handshake = {"valid": 1, "ready": 1}
    return data.StructLayout(
        use | {name: data.StructLayout({**handshake, **fields}) for name, fields in streams.items()}
    )


class Taps:
    """Connections of the signals that a monitor watches.

    Parameters
    ----------
    m : Module
        Module of the unit.
    params : TmaParams
    watched : View
        Input of the monitor, of ``watched_layout``.
    unit : Component
        The unit.
    """

    def __init__(self, m: Module, params: TmaParams, watched: data.View, unit: Any) -> None:
        self._m = m
        self._params = params
        self._watched = watched
        block = m.submodules
        m.d.comb += [
            watched.busy.eq(block.startup.busy),
            watched.map_use.eq(block.descriptor_cache.use),
            watched.load_slots.eq(block.completion_tracker.slot_use),
        ]
        self._watch_front(unit, block)
        self._watch_loads(unit, block)
        if params.stores:
            m.d.comb += watched.store_slots.eq(block.store_tracker.slot_use)
            self._watch_stores(unit, block)
        if params.ctas > 1:
            self._tap("packet_out", unit.packet_out)
            self._tap("packet_in", unit.packet_in)

    def _tap(self, name: str, source: stream.Interface, **fields: ValueLike) -> None:
        """Connect a stream, and these fields."""
        target = self._watched[name]
        self._m.d.comb += [
            target.valid.eq(source.valid),
            target.ready.eq(source.ready),
            *(target[field].eq(value) for field, value in fields.items()),
        ]

    def _tap_request(self, name: str, source: stream.Interface, request: Any, **fields) -> None:
        self._tap(
            name,
            source,
            operation=request.operation,
            request_id=request.request_id,
            stream=stream_of(self._params, request),
            **fields,
        )

    def _tap_refusal(self, name: str, source: stream.Interface) -> None:
        fields = {field: source.p[field] for field in _refusal(self._params)}
        self._tap(name, source, **fields)

    def _tap_job(self, name: str, tracker: Any) -> None:
        job, transfer = tracker.i.p, tracker.i.p.transfer
        self._tap(
            name,
            tracker.i,
            opens=job.first & ~job.walk.prefetch,
            stream=job.stream,
            slot=tracker.o.p.slot,
            request_id=transfer.request_id,
            pieces=transfer.pieces,
        )

    def _watch_front(self, unit: Any, block: Any) -> None:
        """Watch requests up to their jobs."""
        self._tap_request("request", unit.request, unit.request.p)
        self._tap("error", unit.error)
        self._tap("queued", block.request_queue.i)
        self._tap("tensor", block.request_queue.tensor)
        self._tap("bulk", block.request_queue.bulk)
        with_map = block.descriptor_cache.o
        request = with_map.p.request
        self._tap_request("with_map", with_map, request, map=request.global_address[MAP_BITS])
        self._tap("map_fetch", unit.descriptor_request)
        self._tap_refusal("tensor_refusal", block.setup_block.error)
        self._tap_refusal("bulk_refusal", block.bulk_setup.error)
        self._tap("barrier_command", unit.barrier_command)

    def _watch_loads(self, unit: Any, block: Any) -> None:
        """Watch the load path."""
        self._tap_job("load_job", block.completion_tracker)
        line, fill = block.request_generator.line, block.lane_network.fill
        use = line.p.use
        fields = {name: line.p[name] for name in ("prefetch", "marks", "line")}
        self._tap("line", line, slot=use.slot, **fields)
        self._tap("read", unit.gnic_request, prefetch=unit.gnic_request.p.prefetch)
        self._tap("response", unit.gnic_response)
        self._tap("arrival", block.gnic.o)
        self._tap("lane_line", block.lane_network.line)
        self._tap("lane_fill", fill, lanes=fill.p.valid)
        written = Cat(lane.valid for lane in unit.smem_write.p)
        self._tap("smem_write", unit.smem_write, lanes=written)
        self._tap("completion", block.completion_tracker.completion)

    def _watch_stores(self, unit: Any, block: Any) -> None:
        """Watch the store path."""
        self._tap_job("store_job", block.store_tracker)
        line = block.store_generator.line
        fields = {name: line.p[name] for name in ("marks", "slot", "line")}
        self._tap("store_line", line, has_pieces=line.p.valid.any(), **fields)
        self._tap("source_read", block.store_path.source_read, slot=block.store_path.source_read.p)
        read = Cat(lane.valid for lane in unit.smem_read.p)
        self._tap("smem_read", unit.smem_read, lanes=read)
        self._tap("write_line", block.gnic_write.i, has_pieces=block.gnic_write.i.p.has_pieces)
        reduction = unit.gnic_write.p.reduction
        self._tap("write", unit.gnic_write, reduces=reduction.enabled)
        performed = block.gnic_write.performed
        self._tap("performed", performed, answered=performed.p.answered)
