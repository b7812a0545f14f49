"""Simulated tests of counters and events: what they say is what the golden model plans, and what
the testbench sees at the ports.
"""

from collections import Counter, defaultdict
from typing import Any

import cocotb
import numpy as np

from golden import BulkLoad, BulkReduce, BulkStore, Completion, Plan, Reduce, TensorMap
from golden.model import operands_of
from hw.layouts.monitor import STALLS, EventKind
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import Models, Stall, Timing
from sim_tb.trace.records import Event, decode, joined
from sim_tb.trace.requests import Requests
from tests.top import tb_loads
from tests.top.random_loads import Item as LoadItem
from tests.top.random_stores import HOPPER, Item, random_item
from tests.top.tb_loads import BARRIERS, FIRST, arch_of, batch

PIECE = 16
LOGS = (
    *(LogKind.LINE, LogKind.BEAT, LogKind.READ, LogKind.STORE, LogKind.FETCH),
    *(LogKind.PREFETCH, LogKind.EVENT, LogKind.WORD),
)
FETCHED = ("MAP_HITS", "MAP_MISSES")


async def start(dut: Any, models: Models) -> Environment:
    env = await Environment.start(dut, models, logs=LOGS)
    cocotb.log.info("seed %d", env.seed)
    return env


async def clear(env: Environment) -> None:
    """Let counts and logs begin anew."""
    await env.idle()
    await env.shared.counters.clear()
    for kind in LOGS:
        env.clear_log(kind)


async def counts_of(env: Environment) -> tuple[Counter[str], list[Event]]:
    """Return the counts and the events, when nothing is pending any more."""
    await env.idle()
    (counts,) = await env.shared.counters.read()
    log = env.log(LogKind.EVENT)
    events = decode(joined(zip(log["key"], log["value"], strict=True)))
    check_laws(env, counts, events)
    return Counter(counts), events


def check_laws(env: Environment, counts: dict[str, int], events: list[Event]) -> None:
    """Check what holds in every run."""
    logs = {kind: env.log(kind) for kind in LOGS}
    seen = {
        "LINES_READ": logs[LogKind.LINE].size,
        "LINES_PREFETCHED": logs[LogKind.PREFETCH].size,
        "MAP_FETCHES": logs[LogKind.FETCH].size,
        "BEATS_WRITTEN": logs[LogKind.BEAT].size,
        "PIECES_WRITTEN": sum(int(mask).bit_count() for mask in logs[LogKind.BEAT]["value"]),
        "BEATS_READ": logs[LogKind.READ].size,
        "PIECES_READ": sum(int(mask).bit_count() for mask in logs[LogKind.READ]["value"]),
    }
    assert {name: counts[name] for name in seen} == seen
    assert counts["LINES_WRITTEN"] + counts["LINES_REDUCED"] == logs[LogKind.STORE].size
    cycles, parameters = counts["CYCLES"], env.interface.parameters
    assert all(counts[stall.name] <= cycles for stall in STALLS)
    assert 0 < counts["BUSY"] <= cycles
    for name, most in (
        ("READS_IN_FLIGHT", parameters["tags"] + 2),
        ("WRITES_IN_FLIGHT", parameters["tags"] + 2),
        ("LOADS_IN_FLIGHT", parameters["requests_in_flight"]),
        ("STORES_IN_FLIGHT", parameters["requests_in_flight"]),
    ):
        assert counts[name] <= most * cycles

    # Each milestone is an event, or counts as lost.
    kinds = Counter(event.kind for event in events)
    requests = ("LOADS", "STORES")
    accepted = [f"{way}_{rest}" for way in ("TENSOR", "BULK") for rest in requests]
    accepted += ["PREFETCHES", "REDUCTIONS", "DSMEM_REQUESTS", "GROUP_OPERATIONS"]
    expected = {
        EventKind.ACCEPTED: sum(counts[name] for name in accepted),
        EventKind.MAP_HIT: counts["MAP_HITS"],
        EventKind.MAP_MISS: counts["MAP_MISSES"],
        EventKind.REFUSED: counts["REFUSED"],
        EventKind.OPENED: counts["LOADS_ENDED"] + counts["STORES_ENDED"],
        EventKind.SOURCE_READ: counts["STORES_ENDED"],
    }
    short = {kind: number - kinds[kind] for kind, number in expected.items()}
    ended = counts["LOADS_ENDED"] + counts["STORES_ENDED"]
    short[EventKind.ENDED] = ended - kinds[EventKind.ENDED] - kinds[EventKind.FAILED]
    assert all(number >= 0 for number in short.values()), short
    assert sum(short.values()) <= counts["EVENTS_LOST"]
    assert any(event.has_gap for event in events) <= (counts["EVENTS_LOST"] > 0)
    check_order(events, is_complete=not counts["EVENTS_LOST"])


def check_order(events: list[Event], *, is_complete: bool) -> None:
    """Check that the milestones of each request come in their order, each once."""
    order = (
        (EventKind.ACCEPTED,),
        (EventKind.MAP_HIT, EventKind.MAP_MISS),
        (EventKind.REFUSED, EventKind.OPENED),
        (EventKind.FIRST_LINE, EventKind.ONLY_LINE),
        (EventKind.LAST_LINE,),
        (EventKind.SOURCE_READ,),
        (EventKind.ENDED, EventKind.FAILED),
    )
    rank = {kind: number for number, kinds in enumerate(order) for kind in kinds}
    for request in Requests(events).all if is_complete else ():
        ranks = [rank[event.kind] for event in request.events]
        assert ranks == sorted(set(ranks)), request
        assert request.operation is not None, request


def pieces_of(item: LoadItem) -> tuple[int, int]:
    """Return the pieces that a load writes to shared memory, and those of them that are fill."""
    request = item.request
    if isinstance(request, BulkLoad):
        return item.extent // PIECE, 0
    plan = Plan(request.descriptor, request.mode, arch=item.arch)
    inside = plan.spread(request.smem_address, operands_of(request)).inside
    return inside.size, int((inside == 0).sum())


@cocotb.test()
async def counts_of_loads(dut: Any) -> None:
    """Random loads: requests, refusals, ends, lines, pieces and fill are those of the plans."""
    env = await start(dut, Models(Timing.random(20, 200), Timing.fixed(120)))
    rng = env.rng("loads")
    total: Counter[str] = Counter()
    for _ in range(6):
        loads = batch(env, rng, 12)
        expected: Counter[str] = Counter()
        await clear(env)
        for barrier in BARRIERS:
            await env.barriers.command("INIT", barrier, 1)
        smem = env.smem.copy()
        fewest = most = 0
        for item in loads:
            is_bulk = isinstance(item.request, BulkLoad)
            expected["BULK_LOADS" if is_bulk else "TENSOR_LOADS"] += 1
            answer = item.golden(smem)
            if not isinstance(answer, Completion):
                expected["REFUSED"] += 1
                continue
            pieces, fill = pieces_of(item)
            assert pieces * PIECE == answer.bytes
            expected["LOADS_ENDED"] += pieces > 0
            expected["PIECES_WRITTEN"] += pieces
            expected["FILL_PIECES"] += fill
            lines, at_most = item.lines(env.interface.parameters["line_bytes"])
            fewest, most = fewest + lines.size, most + at_most
        for item in loads:
            item.submit(env)
        counts, events = await counts_of(env)
        assert {name: counts[name] for name in expected} == expected
        assert fewest <= counts["LINES_READ"] <= most
        assert counts["ERROR_RECORDS"] == expected["REFUSED"]
        assert counts["MAP_HITS"] + counts["MAP_MISSES"] == expected["TENSOR_LOADS"]
        assert counts["BARRIER_OPERATIONS"] == len(BARRIERS)
        assert counts["PREFETCHES"] == counts["LINES_WRITTEN"] == counts["PIECES_READ"] == 0
        refused = [event for event in events if event.kind is EventKind.REFUSED]
        assert counts["EVENTS_LOST"] or len(refused) == expected["REFUSED"]
        total += expected
        env.errors.take_all()
        for item in loads:
            item.forget(env)
    cocotb.log.info("%s", dict(total))
    assert all(total[name] for name in ("REFUSED", "FILL_PIECES", "BULK_LOADS", "LOADS_ENDED"))


@cocotb.test()
async def counts_of_stores(dut: Any) -> None:
    """Random stores and reductions: requests, lines and pieces are those of the plans."""
    env = await start(dut, Models(stores=Timing.random(50, 150)))
    rng = env.rng("stores")
    env.smem[:] = rng.integers(0, 256, env.smem.size, dtype=np.uint8)
    arch = arch_of(env)
    await clear(env)
    expected: Counter[str] = Counter()
    items: list[Item] = []
    lines: dict[bool, int] = defaultdict(int)
    for number in range(60):
        item = random_item(rng, str(rng.choice(HOPPER)), arch, env.smem, number, 0)
        request = item.request
        if isinstance(request, Reduce | BulkReduce):
            expected["REDUCTIONS"] += 1
        else:
            expected["BULK_STORES" if isinstance(request, BulkStore) else "TENSOR_STORES"] += 1
        if item.refusal is None:
            expected["STORES_ENDED"] += 1
            touched, pieces = accesses(env, item)
            lines[isinstance(request, Reduce | BulkReduce)] += touched
            expected["PIECES_READ"] += pieces
        else:
            expected["REFUSED"] += 1
        item.submit(env, 0)
        items.append(item)
    env.requests.commit_group(0)
    await env.requests.wait_group(0, thread=0)
    expected["GROUP_OPERATIONS"] = 2
    counts, _ = await counts_of(env)
    assert {name: counts[name] for name in expected} == expected
    assert counts["LINES_WRITTEN"] >= lines[False] > 0
    assert counts["LINES_REDUCED"] >= lines[True] > 0
    assert counts["LINES_READ"] == counts["PIECES_WRITTEN"] == counts["LOADS_ENDED"] == 0
    for item in items:
        item.check(env)


def accesses(env: Environment, item: Item) -> tuple[int, int]:
    """Return the distinct lines that a store writes, and the pieces that it reads."""
    request, line_bytes = item.request, env.interface.parameters["line_bytes"]
    if isinstance(request, BulkStore | BulkReduce):
        size = request.size & 0xFFFF0
        first, last = request.gmem_address, request.gmem_address + size - 1
        return (last // line_bytes - first // line_bytes + 1 if size else 0), size // PIECE
    plan = Plan(request.descriptor, request.mode, store=True, arch=arch_of(env))
    spread = plan.spread(request.smem_address, operands_of(request))
    inside = spread.inside > 0
    return np.unique(spread.gmem[inside] // np.uint64(line_bytes)).size, int(inside.sum())


def whole(rows: int) -> TensorMap:
    """Return the map of rows of 128 bytes, whose box is the whole tensor."""
    return TensorMap.tiled("u8", tb_loads.SOURCE, (128, rows), (128,), (128, rows))


@cocotb.test()
async def hits_and_misses(dut: Any) -> None:
    """The first load misses, also behind an invalidation; a prefetch of the map is no miss."""
    env = await start(dut, Models(descriptors=Timing.fixed(150)))
    tensor_map = env.descriptors.place(whole(4))
    await env.barriers.command("INIT", 0, 1)
    for prefetches in (False, True):
        await env.descriptors.invalidate(tensor_map)
        if prefetches:
            await env.descriptors.prefetch(tensor_map)
        await clear(env)
        for _ in range(5):
            env.requests.load(tensor_map, (0, 0), FIRST, 0)
        counts, _ = await counts_of(env)
        misses = 0 if prefetches else 1
        assert [counts[name] for name in FETCHED] == [5 - misses, misses]
        assert counts["MAP_FETCHES"] == misses
        if prefetches:
            assert counts["MAP_STALLS"] == 0
        else:
            assert 150 <= counts["MAP_STALLS"] <= 165


@cocotb.test()
async def stalls_have_their_cause(dut: Any) -> None:
    """A port that waits most of the time, and a memory with more latency than there are tags."""
    rest = {"lines": Timing.fixed(20), "stores": Timing.fixed(20)}
    slow = Stall(0.9, 10)
    cases = {
        "READ_PORT_STALLS": Models(**rest, stalls={"gnic_request": slow}),
        "READ_TAG_STALLS": Models(lines=Timing.fixed(300), stores=Timing.fixed(20)),
        "SMEM_WRITE_STALLS": Models(**rest, stalls={"smem_write": slow}),
        "SMEM_READ_STALLS": Models(**rest, stalls={"smem_read": slow}),
        "WRITE_PORT_STALLS": Models(**rest, stalls={"gnic_write": slow}),
        "WRITE_TAG_STALLS": Models(lines=Timing.fixed(20), stores=Timing.fixed(300)),
    }
    env = await start(dut, Models())
    for name, models in cases.items():
        await env.reset(models, background="hash", logs=LOGS)
        target = np.zeros(1 << 14, np.uint8)
        env.gmem.place(1 << 30, target)
        await env.barriers.command("INIT", 0, 1)
        await clear(env)
        for _ in range(3):
            env.requests.bulk_load(tb_loads.SOURCE, 1 << 14, 4096, 0)
            env.requests.bulk_store(1 << 30, 1 << 13, 4096)
        counts, events = await counts_of(env)
        worst = max(
            (
                stall.name
                for stall in STALLS
                if not stall.name.endswith(("SLOT_STALLS", "LINE_STALLS"))
            ),
            key=counts.__getitem__,
        )
        behind = {"SMEM_WRITE_STALLS": ("LANE_STALLS", "RESPONSE_STALLS")}.get(name, ())
        assert worst in (name, *behind), (name, worst, counts)
        assert counts[name] > counts["BUSY"] // 3, (name, counts)
        samples = [event for event in events if event.kind is EventKind.SAMPLE]
        bit = next(bit for bit, stall in enumerate(STALLS) if stall.name == name)
        assert samples
        assert any(sample.request_id >> bit & 1 for sample in samples)


@cocotb.test()
async def lines_in_flight(dut: Any) -> None:
    """A line is in flight for the latency of memory, and a few clocks more, always the same."""
    beyond = set()
    for latency in (50, 200):
        env = await start(dut, Models(lines=Timing.fixed(latency)))
        await env.barriers.command("INIT", 0, 1)
        await clear(env)
        env.requests.bulk_load(tb_loads.SOURCE, FIRST, 4096, 0)
        counts, _ = await counts_of(env)
        assert counts["READS_IN_FLIGHT"] % counts["LINES_READ"] == 0
        beyond.add(counts["READS_IN_FLIGHT"] // counts["LINES_READ"] - latency)
    assert len(beyond) == 1
    assert 0 <= beyond.pop() < 5


@cocotb.test()
async def a_slow_reader_of_events(dut: Any) -> None:
    """Events are lost and counted, and the unit does not wait for their reader."""
    clocks = []
    for share in (0.0, 0.98):
        stalls = {"trace": Stall(share, 200)} if share else {}
        env = await start(dut, Models(lines=Timing.fixed(30), stalls=stalls))
        await env.barriers.command("INIT", 0, 1)
        await env.barriers.command("ARRIVE_EXPECT_TX", 0, 100 * 64)
        await clear(env)
        begin = env.cycle
        for number in range(100):
            env.requests.bulk_load(tb_loads.SOURCE + 64 * number, FIRST + 64 * number, 64, 0)
        await env.idle()
        clocks.append(int(env.log(LogKind.WORD)["cycle"][-1]) - begin)
        counts, events = await counts_of(env)
        lost = counts["EVENTS_LOST"]
        assert lost > len(events) if share else lost < len(events) / 20
        assert any(event.has_gap for event in events) == (lost > 0)
    assert clocks[0] == clocks[1]
