"""Perfetto's JSON of a trace: a row for each part of the unit, and a flow for each request.

A clock is a microsecond of the trace, so that Perfetto's times are numbers of clocks.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from hw.layouts.isa import ErrorCode
from hw.layouts.monitor import SAMPLE_CLOCKS, STALLS, EventKind
from sim_tb.trace.records import Event
from sim_tb.trace.requests import GROUPS, Request, Requests

UNIT, STALL_PROCESS = 0, 1
"""Numbers of the two processes: the unit, and its stalls."""

PARTS = {
    "queue": "request queue and map",
    "setup": "setup",
    "generate": "generator",
    "lines": "lines",
    "data": "memory",
}
"""Parts of the unit, in the order of a request's way, and their labels."""

LINES = EventKind.FIRST_LINE, EventKind.LAST_LINE, EventKind.ONLY_LINE
MAPS = EventKind.MAP_HIT, EventKind.MAP_MISS

JsonEvent = dict[str, Any]


def phases(request: Request, last_clock: int) -> Iterator[tuple[str, int, int]]:
    """Yield part, first clock and end of each phase of a request.

    A request without an end is in its last phase until ``last_clock``; a prefetch has none, as its
    end is not known.
    """
    first = request.events[0].clock
    mapped = request.at(*MAPS)
    opened = request.at(EventKind.OPENED)
    begun = request.at(EventKind.FIRST_LINE, EventKind.ONLY_LINE)
    cut = request.at(EventKind.LAST_LINE, EventKind.ONLY_LINE)
    end = request.end
    marks = [
        ("queue", first),
        ("setup", mapped),
        ("generate", opened),
        ("lines", begun),
        ("data", cut),
    ]
    known = [(part, clock) for part, clock in marks if clock is not None]
    stop = end.clock if end is not None else last_clock
    if end is None and opened is None:
        stop = known[-1][1]
    for (part, clock), (_, following) in zip(known, [*known[1:], ("", stop)], strict=True):
        yield part, clock, max(clock, following)


class _Rows:
    """Rows of a part of the unit: as many as it has requests at the same time."""

    def __init__(self) -> None:
        self._ends: list[int] = []

    def place(self, begin: int, end: int) -> int:
        """Return the number of a row that is free from ``begin`` to ``end``."""
        for row, free in enumerate(self._ends):
            if free <= begin:
                self._ends[row] = end
                return row
        self._ends.append(end)
        return len(self._ends) - 1

    def __len__(self) -> int:
        return len(self._ends)


def _details(request: Request) -> JsonEvent:
    """Return what Perfetto shows of a request that is selected."""
    details: JsonEvent = {"request_id": request.request_id, "stream": request.stream}
    for event in request.events:
        match event.kind:
            case EventKind.OPENED:
                details |= {"slot": event.slot, "pieces": event.argument}
            case EventKind.MAP_HIT | EventKind.MAP_MISS:
                details["map"] = "hit" if event.kind is EventKind.MAP_HIT else "miss"
            case EventKind.REFUSED:
                details["refused"] = ErrorCode(event.argument).name
            case EventKind.FAILED:
                details["failed"] = True
    return details


def _requests(requests: Sequence[Request], last_clock: int) -> Iterator[JsonEvent]:
    """Yield the phases of all requests, a flow through the phases of each, and the rows."""
    parts = [f"{way} {label}" for way in ("load", "store") for label in PARTS.values()]
    rows = {part: _Rows() for part in parts}
    bases = {part: 1 + 1000 * number for number, part in enumerate(parts)}
    flows = count(1)
    for request in requests:
        if request.operation in GROUPS:
            yield _instant(request.events[0], request.name)
            continue
        way = "store" if request.is_store else "load"
        spans = list(phases(request, last_clock))
        flow = next(flows)
        for number, (part, begin, end) in enumerate(spans):
            label = f"{way} {PARTS[part]}"
            track = bases[label] + rows[label].place(begin, end)
            where = {"pid": UNIT, "tid": track, "ts": begin}
            name = {"name": request.name, "cat": part, "args": _details(request)}
            yield {"ph": "X", "dur": end - begin, **where, **name}
            if len(spans) > 1:
                step = "s" if number == 0 else "f" if number == len(spans) - 1 else "t"
                ends = {"bp": "e"} if step == "f" else {}
                yield {"ph": step, "id": flow, "name": "request", "cat": "flow", **where, **ends}
    for part, base in bases.items():
        for row in range(len(rows[part])):
            yield _name(UNIT, base + row, "thread_name", f"{part} {row}" if row else part)
            yield {
                **_name(UNIT, base + row, "thread_sort_index", ""),
                "args": {"sort_index": base + row},
            }


def _samples(events: Sequence[Event]) -> Iterator[JsonEvent]:
    """Yield what is in flight, and a row for each cause of a stall."""
    begins: dict[int, int] = {}

    def end_stall(number: int, clock: int) -> JsonEvent:
        begin = begins.pop(number)
        return {
            "ph": "X",
            "name": "stall",
            "cat": "stall",
            "pid": STALL_PROCESS,
            "tid": number,
            "ts": begin,
            "dur": clock - begin,
            "args": {},
        }

    seen = set()
    last = None
    for event in events:
        start = max(0, event.clock - SAMPLE_CLOCKS)
        levels = {
            "requests in flight": event.slot,
            "reads in flight": event.argument & 0xFFFF,
            "writes in flight": event.argument >> 16,
        }
        for name, level in levels.items():
            yield {"ph": "C", "pid": UNIT, "ts": event.clock, "name": name, "args": {name: level}}
        is_continued = last is not None and last.clock == start
        for number in range(len(STALLS)):
            stalls = event.request_id >> number & 1
            if number in begins and not (stalls and is_continued):
                assert last is not None
                yield end_stall(number, last.clock)
            if stalls:
                begins.setdefault(number, start)
                seen.add(number)
        last = event
    for number in list(begins):
        assert last is not None
        yield end_stall(number, last.clock)
    for number in sorted(seen):
        name = STALLS[number].name.lower().replace("_", " ")
        yield _name(STALL_PROCESS, number, "thread_name", name)


def _instant(event: Event, name: str) -> JsonEvent:
    """Return an event without a duration."""
    return {
        "ph": "i",
        "s": "t",
        "pid": UNIT,
        "tid": 0,
        "ts": event.clock,
        "name": name,
        "cat": "event",
        "args": {},
    }


def _name(process: int, track: int, kind: str, name: str) -> JsonEvent:
    """Return the event that names a process or a row."""
    return {"ph": "M", "pid": process, "tid": track, "name": kind, "args": {"name": name}}


def trace_of(events: Sequence[Event]) -> dict[str, Any]:
    """Return the contents of a file that Perfetto and Chrome load.

    Parameters
    ----------
    events : sequence of Event
        In the order of their clocks.
    """
    last_clock = max((event.clock for event in events), default=0)
    json_events = [
        _name(UNIT, 0, "process_name", "TMA"),
        _name(UNIT, 0, "thread_name", "bulk groups, lost events"),
        _name(STALL_PROCESS, 0, "process_name", f"stalls in {SAMPLE_CLOCKS} clocks"),
        *_requests(Requests(events).all, last_clock),
        *_samples([event for event in events if event.kind is EventKind.SAMPLE]),
        *(_instant(event, "events lost") for event in events if event.has_gap),
    ]
    return {"traceEvents": json_events, "displayTimeUnit": "ns"}
