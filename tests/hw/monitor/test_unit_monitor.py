"""Unit monitor: exact counts and events of random transfers at all taps, against a plain model."""

import random
from collections import Counter as Tally
from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Shape, Value

from hw.layouts.isa import ErrorCode, Operation
from hw.layouts.monitor import SAMPLE_CLOCKS, STALLS, Counter, EventKind
from hw.monitor.unit_monitor import UnitMonitor
from hw.params import TmaParams
from tests.hw.simulate import simulation

STORES = TmaParams(
    line_bytes=64, tags=16, requests_in_flight=8, threads=64, streams=2, counters=True
)
LOADS_ONLY = replace(STORES, stores=False, reductions=False)
CLUSTER = replace(STORES, ctas=4)

EACH_UNIT = pytest.mark.parametrize(
    "params", [STORES, LOADS_ONLY, CLUSTER], ids=["stores", "loads", "cluster"]
)

DSMEM = Operation.DSMEM_COPY, Operation.DSMEM_REDUCE
GROUPS = Operation.COMMIT_GROUP, Operation.WAIT_GROUP, Operation.WAIT_GROUP_READ
KINDS = {
    Counter.TENSOR_LOADS: (Operation.TENSOR_LOAD,),
    Counter.BULK_LOADS: (Operation.BULK_LOAD,),
    Counter.PREFETCHES: (Operation.TENSOR_PREFETCH, Operation.BULK_PREFETCH),
    Counter.TENSOR_STORES: (Operation.TENSOR_STORE,),
    Counter.BULK_STORES: (Operation.BULK_STORE,),
    Counter.REDUCTIONS: (Operation.TENSOR_REDUCE, Operation.BULK_REDUCE),
    Counter.DSMEM_REQUESTS: DSMEM,
    Counter.GROUP_OPERATIONS: GROUPS,
}
OF_STORES = (
    *(Operation.TENSOR_STORE, Operation.BULK_STORE, Operation.TENSOR_REDUCE),
    *(Operation.BULK_REDUCE, *DSMEM),
)
TAKEN = {
    "error": Counter.ERROR_RECORDS,
    "map_fetch": Counter.MAP_FETCHES,
    "tensor_refusal": Counter.REFUSED,
    "bulk_refusal": Counter.REFUSED,
    "smem_write": Counter.BEATS_WRITTEN,
    "smem_read": Counter.BEATS_READ,
    "barrier_command": Counter.BARRIER_OPERATIONS,
    "packet_out": Counter.PACKETS_SENT,
    "packet_in": Counter.PACKETS_RECEIVED,
}
"""Counters of all transfers of a stream."""

WAITING = {
    "request": Counter.REQUEST_STALLS,
    "with_map": Counter.SETUP_STALLS,
    "load_job": Counter.LOAD_SLOT_STALLS,
    "store_job": Counter.STORE_SLOT_STALLS,
    "read": Counter.READ_PORT_STALLS,
    "response": Counter.RESPONSE_STALLS,
    "lane_line": Counter.LANE_STALLS,
    "lane_fill": Counter.FILL_STALLS,
    "smem_write": Counter.SMEM_WRITE_STALLS,
    "store_line": Counter.STORE_LINE_STALLS,
    "smem_read": Counter.SMEM_READ_STALLS,
    "write": Counter.WRITE_PORT_STALLS,
    "completion": Counter.COMPLETION_STALLS,
    "packet_out": Counter.PACKET_STALLS,
}
"""Counters of the clocks in which a stream waits."""

PIECES = {
    "smem_write": Counter.PIECES_WRITTEN,
    "lane_fill": Counter.FILL_PIECES,
    "smem_read": Counter.PIECES_READ,
}

Sight = dict[str, Any]
"""Values of the watched signals in a clock, by name; of a struct, by field."""


def drawn(rng: random.Random, layout: Any, share: float) -> Sight:
    """Return random values of a struct; in ``share`` of the clocks a bit is 1. 0: all are 0."""
    values: Sight = {}
    for name, field in layout:
        if field.shape in (Operation, ErrorCode):
            values[name] = rng.choice(list(field.shape)).value
        elif hasattr(field.shape, "members") and not isinstance(field.shape, type(Operation)):
            values[name] = drawn(rng, field.shape, share)
        elif hasattr(field.shape, "as_shape"):
            values[name] = drawn(rng, field.shape.as_shape(), share)
        elif Shape.cast(field.shape).width == 1:
            values[name] = int(rng.random() < share)
        else:
            width = Shape.cast(field.shape).width
            values[name] = rng.randrange(1 << width) if share else 0
    return values


def put(ctx, view, values: Sight) -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            put(ctx, view[name], value)
        else:
            ctx.set(Value.cast(view[name]), value)


class Model:
    """Counts that follow from what was seen."""

    def __init__(self) -> None:
        self.counts: Tally[Counter] = Tally()
        self.levels = dict.fromkeys(("waiting", "reads", "writes"), 0)

    def see(self, seen: Sight) -> None:
        streams = {name: s for name, s in seen.items() if isinstance(s, dict) and "ready" in s}
        fires = {name: s["valid"] & s["ready"] for name, s in streams.items()}
        waits = {name: s["valid"] & ~s["ready"] & 1 for name, s in streams.items()}
        counts = self.counts
        counts[Counter.CYCLES] += 1
        counts[Counter.BUSY] += seen["busy"]
        for table, happens in ((TAKEN, fires), (WAITING, waits)):
            for name, counter in table.items():
                counts[counter] += happens.get(name, 0)
        for name, counter in PIECES.items():
            if fires.get(name):
                counts[counter] += streams[name]["lanes"].bit_count()
        operation = Operation(streams["request"]["operation"])
        for counter, operations in KINDS.items():
            counts[counter] += fires["request"] * (operation in operations)
        missed = seen["map_use"]["missed"]
        counts[Counter.MAP_HITS] += fires["with_map"] & (1 - missed)
        counts[Counter.MAP_MISSES] += fires["with_map"] & missed
        counts[Counter.MAP_STALLS] += seen["map_use"]["waits"]
        prefetches = streams["read"]["prefetch"]
        counts[Counter.LINES_READ] += fires["read"] * (1 - prefetches)
        counts[Counter.LINES_PREFETCHED] += fires["read"] * prefetches
        counts[Counter.READ_TAG_STALLS] += waits["line"] * (1 - streams["read"]["valid"])
        counts[Counter.LOADS_ENDED] += seen["load_slots"]["ended"]["valid"]
        counts[Counter.LOADS_IN_FLIGHT] += seen["load_slots"]["in_flight"]
        for level, counter in (
            ("waiting", Counter.REQUESTS_WAITING),
            ("reads", Counter.READS_IN_FLIGHT),
            ("writes", Counter.WRITES_IN_FLIGHT),
        ):
            counts[counter] += self.levels[level]
        if "write" in streams:
            self._see_stores(seen, streams, fires)
        self.levels = self.next_levels(seen)

    def _see_stores(self, seen: Sight, streams: Sight, fires: dict[str, int]) -> None:
        counts, reduces = self.counts, streams["write"]["reduces"]
        counts[Counter.LINES_WRITTEN] += fires["write"] * (1 - reduces)
        counts[Counter.LINES_REDUCED] += fires["write"] * reduces
        has_line = streams["write_line"]["valid"] & streams["write_line"]["has_pieces"]
        counts[Counter.WRITE_TAG_STALLS] += has_line & (1 - streams["write"]["valid"])
        counts[Counter.STORES_ENDED] += seen["store_slots"]["ended"]["valid"]
        counts[Counter.STORES_IN_FLIGHT] += seen["store_slots"]["in_flight"]

    def next_levels(self, seen: Sight) -> dict[str, int]:
        """Return what is in flight behind this clock."""

        def fires(name: str, field: str = "valid", value: int = 1) -> int:
            taps = seen.get(name, {"valid": 0, "ready": 0, field: value})
            return taps["valid"] & taps["ready"] & (taps[field] == value)

        levels = dict(self.levels)
        levels["waiting"] += fires("queued") - fires("tensor") - fires("bulk")
        levels["reads"] += fires("read", "prefetch", 0) - fires("arrival")
        levels["writes"] += fires("write") - fires("performed", "answered")
        return levels

    def is_possible(self, seen: Sight, params: TmaParams) -> bool:
        """Return whether what is in flight stays within its bounds."""
        most = {"waiting": params.request_queue_depth, "reads": params.tags, "writes": params.tags}
        levels = self.next_levels(seen)
        return all(0 <= levels[name] <= most[name] for name in most)


def count(params: TmaParams, share: float, clocks: int, seed: int) -> tuple[Model, dict]:
    """Show random signals; return the model, and the counts of the monitor."""
    rng = random.Random(seed)
    sim = simulation(UnitMonitor, params)
    dut = sim.dut
    model, counts = Model(), {}
    layout = dut.watched.shape()

    async def drive(ctx) -> None:
        ctx.set(dut.trace.ready, 1)
        ctx.set(dut.counters.clear, 1)
        await ctx.tick()
        ctx.set(dut.counters.clear, 0)
        model.see(drawn(rng, layout, 0))  # the clock with the clear: it is counted in the next one
        for _ in range(clocks):
            seen = drawn(rng, layout, share)
            while not model.is_possible(seen, params):
                seen = drawn(rng, layout, share)
            put(ctx, dut.watched, seen)
            model.see(seen)
            await ctx.tick()
        put(ctx, dut.watched, drawn(rng, layout, 0))
        await ctx.tick()
        ctx.set(dut.counters.freeze, 1)
        while not ctx.get(dut.counters.settled):
            await ctx.tick()
        for counter in Counter:
            ctx.set(dut.counters.select, counter)
            await ctx.tick()
            counts[counter] = ctx.get(dut.counters.value)

    sim.run(drive)
    return model, counts


@EACH_UNIT
@pytest.mark.parametrize("seed", range(2))
def test_counts_are_those_of_the_model(params: TmaParams, seed: int) -> None:
    print(f"seed {seed}: pytest {__file__} -k 'counts and {seed}'")
    model, counts = count(params, 0.5, 250, seed)
    lost = counts.pop(Counter.EVENTS_LOST)
    assert lost > 0  # far more events than one a clock
    assert counts == {counter: model.counts[counter] for counter in counts}
    without = {Counter.PACKET_STALLS, Counter.PACKETS_SENT, Counter.PACKETS_RECEIVED}
    if params.ctas > 1:
        assert not without & {counter for counter, count in counts.items() if not count}
    assert sum(count > 0 for count in counts.values()) > (30 if params.stores else 20)


def record(params: TmaParams, sights: list[Sight], clocks: int) -> list[Sight]:
    """Show signals, then nothing for some clocks; return the events, with the fields that are not 0
    and ``clock``.
    """
    sim = simulation(UnitMonitor, params)
    dut, events = sim.dut, []
    nothing = drawn(random.Random(0), dut.watched.shape(), 0)

    async def drive(ctx) -> None:
        ctx.set(dut.trace.ready, 1)
        for seen in [*sights, *[nothing] * clocks]:
            put(ctx, dut.watched, seen)
            await ctx.tick()
            if ctx.get(dut.trace.valid):
                bits = ctx.get(Value.cast(dut.trace.payload))
                fields = {}
                for name, field in dut.trace.payload.shape().as_shape():
                    width = Shape.cast(field.shape).width
                    if (value := bits >> field.offset & (1 << width) - 1) or name == "clock":
                        fields[name] = EventKind(value) if name == "kind" else value
                events.append({"kind": EventKind.ACCEPTED} | fields)

    sim.run(drive)
    return events


MILESTONES = (
    *("request", "with_map", "tensor_refusal", "bulk_refusal", "load_job", "store_job"),
    *("line", "store_line", "source_read", "load_slots", "store_slots"),
)
"""Taps that have milestones."""


def milestone(name: str, tap: Sight, missed: int, streams: int) -> Sight | None:
    """Return the event of a transfer, by the definition of `EventKind`; None if there is none."""
    kind, fields = None, {}
    if name in ("request", "with_map"):
        kind = EventKind.MAP_MISS if missed else EventKind.MAP_HIT
        kind = EventKind.ACCEPTED if name == "request" else kind
        argument = tap["operation"] if name == "request" else tap["map"]
        store = Operation(tap["operation"]) in OF_STORES
        stream = 0 if store else tap["stream"]
        fields = {"store": store, "stream": stream, "request_id": tap["request_id"]}
        fields["argument"] = argument
    elif name in ("tensor_refusal", "bulk_refusal"):
        store = tap["channel"] == streams
        kind, fields = EventKind.REFUSED, {"store": store, "argument": tap["code"]}
        fields |= {"stream": 0 if store else tap["channel"], "request_id": tap["request_id"]}
    elif name in ("load_job", "store_job") and tap["opens"]:
        store = name == "store_job"
        kind, fields = EventKind.OPENED, {"store": store, "stream": 0 if store else tap["stream"]}
        fields |= {"slot": tap["slot"], "request_id": tap["request_id"], "argument": tap["pieces"]}
    elif name in ("line", "store_line"):
        store, marks = name == "store_line", tap["marks"]
        counts = tap["has_pieces"] if store else not tap["prefetch"]
        kinds = {(1, 1): EventKind.ONLY_LINE, (1, 0): EventKind.FIRST_LINE}
        kinds |= {(0, 1): EventKind.LAST_LINE, (0, 0): None}
        kind = kinds[marks["first"], marks["last"]] if counts else None
        fields = {"store": store, "slot": tap["slot"], "argument": tap["line"] & 0xFFFF_FFFF}
    elif name == "source_read":
        kind, fields = EventKind.SOURCE_READ, {"store": True, "slot": tap["slot"]}
    if kind is None:
        return None
    return {"kind": kind} | {field: int(value) for field, value in fields.items() if value}


@EACH_UNIT
def test_each_milestone_is_an_event(params: TmaParams) -> None:
    """One stream after the other has a transfer, or a slot is given back."""
    rng = random.Random(1)
    layout = simulation(UnitMonitor, params).dut.watched.shape()
    nothing = drawn(rng, layout, 0)
    sights, expected = [], []
    for clock in range(400):
        random_sight = drawn(rng, layout, 0.5)
        name = rng.choice([name for name in random_sight if name not in ("busy", "map_use")])
        if clock % 3:  # most taps have no milestones
            name = rng.choice([name for name in MILESTONES if name in random_sight])
            random_sight[name] |= {"valid": 1, "ready": 1} if "ready" in random_sight[name] else {}
        tap = random_sight[name]
        sight = nothing | {name: tap, "map_use": random_sight["map_use"]}
        if "ended" in tap:
            ended = tap["ended"]
            kind = EventKind.FAILED if ended["failed"] else EventKind.ENDED
            store = name == "store_slots"
            fields = {"store": int(store), "slot": ended["slot"], "request_id": ended["request_id"]}
            event = {"kind": kind} | {field: value for field, value in fields.items() if value}
            event = event if ended["valid"] else None
        elif tap["valid"] & tap["ready"]:
            event = milestone(name, tap, sight["map_use"]["missed"], params.streams)
        else:
            event = None
        sights.append(sight)
        if event is not None:
            expected.append({**event, "clock": clock + 1})
    events = record(params, sights, 8)
    assert events == expected
    kinds = {event["kind"] for event in events}
    assert kinds == set(EventKind) - {EventKind.SAMPLE} - (
        set() if params.stores else {EventKind.SOURCE_READ}
    )


def test_samples_say_what_has_stalled_and_what_is_in_flight() -> None:
    rng = random.Random(2)
    layout = simulation(UnitMonitor, STORES).dut.watched.shape()
    nothing = drawn(rng, layout, 0)
    handshake = {"valid": 1, "ready": 0}
    waiting = {
        "request": nothing["request"] | handshake,
        "write": nothing["write"] | handshake,
        "busy": 1,
    }
    in_flight = {
        "load_slots": nothing["load_slots"] | {"in_flight": 5},
        "store_slots": nothing["store_slots"] | {"in_flight": 2},
    }
    reads = {"read": nothing["read"] | {"valid": 1, "ready": 1}}
    sights = [nothing] * 10 + [nothing | waiting] + [nothing | reads] * 3
    sights += [nothing | in_flight] * 250
    events = record(STORES, sights, 260)
    stalls = 1 << STALLS.index(Counter.REQUEST_STALLS) | 1 << STALLS.index(
        Counter.WRITE_PORT_STALLS
    )
    (event,) = events  # later, nothing is pending
    assert event == {
        "kind": EventKind.SAMPLE,
        "clock": SAMPLE_CLOCKS - 1,
        "slot": 7,
        "request_id": stalls,
        "argument": 3,
    }
