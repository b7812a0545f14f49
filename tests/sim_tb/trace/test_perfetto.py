"""Perfetto's file of a trace: its fields are those of the format, and it shows what happened."""

import json
from collections import Counter
from typing import Any

import pytest

from hw.layouts.isa import ErrorCode, Operation
from hw.layouts.monitor import SAMPLE_CLOCKS, STALLS, EventKind
from hw.layouts.monitor import Counter as UnitCounter
from sim_tb import __main__ as command
from sim_tb.trace.perfetto import STALL_PROCESS, trace_of
from sim_tb.trace.records import Event
from sim_tb.trace.requests import Requests

NEEDED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
    "i": {"name", "cat", "ts", "pid", "tid", "s", "args"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "tid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "t": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
}
"""Fields of each phase of the Trace Event Format that is used."""


def load(clock: int, request_id: int, slot: int, *, miss: bool = False) -> list[Event]:
    """Return the events of a load of 100 clocks."""
    kind = EventKind.MAP_MISS if miss else EventKind.MAP_HIT
    named = {"stream": 1, "request_id": request_id}
    return [
        Event(clock, EventKind.ACCEPTED, argument=Operation.TENSOR_LOAD.value, **named),
        Event(clock + 10, kind, **named),
        Event(clock + 20, EventKind.OPENED, slot=slot, argument=8, **named),
        Event(clock + 25, EventKind.FIRST_LINE, slot=slot, argument=99),
        Event(clock + 30, EventKind.LAST_LINE, slot=slot, argument=100),
        Event(clock + 100, EventKind.ENDED, slot=slot, request_id=request_id),
    ]


def check_format(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Check the fields of all events, and return them as they are read from the file."""
    trace = json.loads(json.dumps(trace))
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    named = set()
    for event in trace["traceEvents"]:
        assert set(event) == {"ph"} | NEEDED[event["ph"]], event
        assert isinstance(event["name"], str)
        numbers = {"ts", "dur", "pid", "tid", "id"} & set(event)
        assert all(isinstance(event[name], int) and event[name] >= 0 for name in numbers)
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
        if event["name"] == "thread_name":
            named.add((event["pid"], event["tid"]))
    events = trace["traceEvents"]
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xi"} <= named
    _check_rows(events)
    _check_flows(events)
    return events


def _check_rows(events: list[dict[str, Any]]) -> None:
    """Spans of a row do not overlap."""
    ends: Counter[tuple[int, int]] = Counter()
    for span in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], e["dur"])):
        row = span["pid"], span["tid"]
        assert ends[row] <= span["ts"], span
        ends[row] = span["ts"] + span["dur"]


def _check_flows(events: list[dict[str, Any]]) -> None:
    """A flow begins once, ends once, and each of its steps is at a span."""
    spans = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    steps: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] in "stf":
            steps.setdefault(event["id"], []).append(event)
            assert (event["pid"], event["tid"], event["ts"]) in spans
    for flow in steps.values():
        assert "".join(step["ph"] for step in flow) == "s" + "t" * (len(flow) - 2) + "f"
        times = [step["ts"] for step in flow]
        assert times == sorted(times)


def test_a_load_has_a_span_in_each_part() -> None:
    events = check_format(trace_of(load(1000, 7, 3, miss=True)))
    spans = {event["cat"]: event for event in events if event["ph"] == "X"}
    times = {part: (span["ts"], span["ts"] + span["dur"]) for part, span in spans.items()}
    assert times == {
        "queue": (1000, 1010),
        "setup": (1010, 1020),
        "generate": (1020, 1025),
        "lines": (1025, 1030),
        "data": (1030, 1100),
    }
    expected = {"request_id": 7, "stream": 1, "slot": 3, "pieces": 8, "map": "miss"}
    assert all(span["args"] == expected for span in spans.values())
    assert all(span["name"] == "tensor_load 7" for span in spans.values())
    assert len({span["tid"] for span in spans.values()}) == 5


def test_loads_of_one_name_are_told_apart() -> None:
    """Eight loads of one id overlap, and use three slots in turn."""
    events = sorted(
        (event for n in range(8) for event in load(40 * n, 5, n % 3)), key=lambda e: e.clock
    )
    requests = Requests(events).all
    assert [request.events for request in requests] == [load(40 * n, 5, n % 3) for n in range(8)]
    spans = [event for event in check_format(trace_of(events)) if event["ph"] == "X"]
    assert len(spans) == 8 * 5


def test_requests_without_all_events() -> None:
    """One is refused, one fails, one is a prefetch, one has not ended, one has begun before."""
    begin = Event(0, EventKind.ACCEPTED, argument=Operation.BULK_LOAD.value, request_id=1)
    events = [
        begin,
        Event(9, EventKind.REFUSED, request_id=1, argument=ErrorCode.BULK_ALIGN.value),
        *load(20, 2, 1)[:-1],
        Event(90, EventKind.FAILED, slot=1, request_id=2),
        Event(100, EventKind.ACCEPTED, argument=Operation.BULK_PREFETCH.value, request_id=3),
        *load(110, 4, 1)[:-1],
        Event(150, EventKind.ENDED, True, slot=9, request_id=6),
        Event(160, EventKind.ACCEPTED, argument=Operation.WAIT_GROUP.value, request_id=7),
        Event(170, EventKind.ACCEPTED, False, True, argument=Operation.BULK_LOAD.value),
    ]
    trace = check_format(trace_of(events))
    details = [event["args"] for event in trace if event["ph"] == "X"]
    assert {"request_id": 1, "stream": 0, "refused": "BULK_ALIGN"} in details
    assert any(detail.get("failed") for detail in details)
    longest = max(event["ts"] + event["dur"] for event in trace if event["ph"] == "X")
    assert longest == 170  # the load that has not ended
    instants = [(event["name"], event["ts"]) for event in trace if event["ph"] == "i"]
    assert instants == [("wait_group 7", 160), ("events lost", 170)]


def test_samples_are_rows_of_stalls_and_levels() -> None:
    def sample(number: int, *stalls: UnitCounter) -> Event:
        mask = sum(1 << STALLS.index(stall) for stall in stalls)
        clock = number * SAMPLE_CLOCKS
        return Event(clock, EventKind.SAMPLE, slot=4, request_id=mask, argument=7 | 2 << 16)

    tags, port = UnitCounter.READ_TAG_STALLS, UnitCounter.WRITE_PORT_STALLS
    events = [sample(1, tags), sample(2, tags, port), sample(3), sample(7, port)]
    trace = check_format(trace_of(events))
    spans = {
        (event["tid"], event["ts"] // SAMPLE_CLOCKS, event["dur"] // SAMPLE_CLOCKS)
        for event in trace
        if event["ph"] == "X" and event["pid"] == STALL_PROCESS
    }
    assert spans == {
        (STALLS.index(tags), 0, 2),
        (STALLS.index(port), 1, 1),
        (STALLS.index(port), 6, 1),
    }
    levels = {event["name"]: event["args"] for event in trace if event["ph"] == "C"}
    assert levels == {
        name: {name: level}
        for name, level in (
            ("requests in flight", 4),
            ("reads in flight", 7),
            ("writes in flight", 2),
        )
    }


def test_the_command_writes_a_file(tmp_path, capsys) -> None:
    path, target = tmp_path / "events.bin", tmp_path / "out.json"
    events = load(0, 1, 0) + load(200, 2, 0)
    path.write_bytes(b"".join(event.encode() for event in events))
    assert command.main(["trace", str(path), "--perfetto", str(target)]) == 0
    assert "12 events of 2 requests, of which 2 ended; 0 gaps" in capsys.readouterr().out
    check_format(json.loads(target.read_text()))
    assert command.main(["trace", str(path)]) == 0
    assert path.with_suffix(".json").read_text() == target.read_text()


@pytest.mark.parametrize("name", ["absent", "short"])
def test_the_command_says_what_is_wrong(name: str, tmp_path, capsys) -> None:
    (tmp_path / "short").write_bytes(bytes(3))
    assert command.main(["trace", str(tmp_path / name)]) == 1
    reason = {"absent": "No such file", "short": "3 bytes: must be a multiple of 16"}[name]
    assert reason in capsys.readouterr().err
