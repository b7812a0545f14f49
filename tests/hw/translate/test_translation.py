"""Translation: every access uses a legal translation of its page, and none is lost."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from hw.layouts.translation import PageFault
from hw.params import TmaParams
from hw.translate.translation import Translation
from tests.hw.simulate import Run, run_streams, simulation
from tests.hw.translate.accesses import Invalidations, Traffic, check
from tests.hw.translate.walking import INPUTS, OUTPUTS, Memory, PageTable, Walker

PARAMS = TmaParams(
    line_bytes=32,
    address_bits=36,
    tags=8,
    requests_in_flight=8,
    descriptor_cache_entries=2,
    tlb_entries=4,
)
UNITS = [
    PARAMS,
    replace(PARAMS, tlb_entries=2, tlb_page_bits=21, line_bytes=16, tags=32),
    replace(PARAMS, tlb_entries=7, tlb_page_bits=16, line_bytes=128, axi_data_bits=64),
    replace(PARAMS, tlb_entries=16, tags=64, descriptor_cache_entries=5),
]


def run_of(params: TmaParams, feeds: Iterable[Any], **options: Any) -> Run:
    """Run a translation with inputs from all ``feeds``: functions of a run and a clock."""

    def feed(run: Run, clock: int) -> dict[str, list[Any]]:
        inputs: dict[str, list[Any]] = {}
        for each in feeds:
            for name, payloads in each(run, clock).items():
                inputs.setdefault(name, []).extend(payloads)
        return inputs

    nothing: dict[str, list[Any]] = {name: [] for name in INPUTS}
    return run_streams(simulation(Translation, params), nothing, OUTPUTS, feed=feed, **options)


@pytest.mark.parametrize("stall", [0, 0.5])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("params", UNITS, ids=lambda params: f"{params.tlb_entries}_entries")
def test_random_accesses(params: TmaParams, seed: int, stall: float) -> None:
    """Pages change and are invalidated while their walks are under way."""
    rng = random.Random(seed)
    table = PageTable(params, rng, pages=12)
    walker = Walker(table, rng.choice((0.05, 0.3, 1)))
    memory = Memory(rng, rng.choice((0.3, 1)))
    traffic = Traffic(params, table, share=rng.choice((0.3, 1)))
    invalidations = Invalidations(table, share=rng.choice((0, 0.02, 0.1)))

    def feed(run: Run, _clock: int) -> dict[str, list[Any]]:
        inputs = {"tlb_invalidate": invalidations.feed(run)} if traffic.made < traffic.count else {}
        return inputs | {"walk_response": walker.feed(run)} | memory.feed(run) | traffic.feed(run)

    run = run_of(params, [feed], seed=seed, stall=stall)
    check(params, table, traffic, run)
    assert all(sorted(free) == [*range(params.tags)] for free in traffic.free.values())
    faults = {answer.page for answer in (*run.payloads["gnic_response"], *run.payloads["gnic_ack"])}
    assert faults == {*PageFault}


def whole(
    params: TmaParams = PARAMS, pages: int = 8, **options: float
) -> tuple[PageTable, Traffic]:
    """Return a page table whose pages are present and writable, and accesses to them."""
    table = PageTable(params, random.Random(0), pages, absent=0, read_only=0)
    return table, Traffic(params, table, **options)


def scripted(traffic: Traffic, script: dict[int, tuple[str, int, int]]) -> Any:
    """Return a function that asks for the accesses of ``script``, by clock."""

    def feed(run: Run, clock: int) -> dict[str, list[Any]]:
        traffic.take_tags_back(run)
        return traffic.access(*script[clock]) if clock in script else {}

    return feed


def answering(walker: Walker, memory: Memory) -> Any:
    """Return a function that answers as walker and memory do."""
    return lambda run, _clock: {"walk_response": walker.feed(run), **memory.feed(run)}


def test_hits_under_a_miss() -> None:
    """While a page is walked, reads and writes of another page pass, as many as there are."""
    params = replace(PARAMS, tags=64)
    waiting = params.tlb_reads_waiting
    table, traffic = whole(params)
    walked, other = [*table.versions][:2]
    walker, memory = Walker(table, 1), Memory(table.rng, 1)
    walker.held.add(walked)
    script = {0: ("read", other, 0), 1: ("write", other, 0)}
    script |= {20 + n: ("read", walked, n) for n in range(waiting)}
    script |= {60 + n: ("read", other, n) for n in range(20)}
    script |= {80 + n: ("write", other, n) for n in range(20)}

    def feed(_run: Run, clock: int) -> dict[str, list[Any]]:
        if clock == 140:
            walker.held.clear()
        return {}

    run = run_of(params, [feed, scripted(traffic, script), answering(walker, memory)], stall=0)
    check(params, table, traffic, run)
    reads = [each.line >> params.page_line_bits for each in run.payloads["memory_request"]]
    physical = table.of(walked)[0]
    assert reads[:21] == [table.of(other)[0]] * 21
    assert reads[21:] == [physical] * waiting
    assert max(run.cycles["memory_request"][:21]) < 90
    assert max(run.cycles["memory_write"]) < 110
    assert len(run.payloads["walk_request"]) == 2


def test_walks_overlap() -> None:
    """All entries are walked at once; one more miss waits for an entry."""
    table, traffic = whole()
    pages = [*table.versions]
    script = {n: ("read", page, 1) for n, page in enumerate(pages[: PARAMS.tlb_entries + 1])}
    run = run_of(PARAMS, [scripted(traffic, script)], stall=0)
    walks = [(walk.id, walk.page) for walk in run.payloads["walk_request"]]
    assert walks == [*enumerate(pages[: PARAMS.tlb_entries])]


def test_one_read_and_one_write_a_clock() -> None:
    """Both change their page in every clock."""
    params = replace(PARAMS, tags=64)
    table, traffic = whole(params, pages=4)
    pages = [*table.versions]
    script = {n: ("read", page, 0) for n, page in enumerate(pages)}
    walker, memory = Walker(table, 1), Memory(table.rng, 1)
    reads = {30 + n: ("read", pages[n % 4], n) for n in range(40)}
    writes = {30 + n: ("write", pages[n % 3], n) for n in range(40)}
    feeds = [scripted(traffic, {**script, **reads}), scripted(traffic, writes)]
    run = run_of(params, [*feeds, answering(walker, memory)], stall=0)
    check(params, table, traffic, run)
    for name in "memory_request", "memory_write", "gnic_response", "gnic_ack":
        clocks = run.cycles[name][-40:]
        assert clocks == [*range(clocks[0], clocks[0] + 40)], name


def test_a_write_that_hits_leaves_in_the_next_clock() -> None:
    table, traffic = whole()
    page = next(iter(table.versions))
    script = {0: ("write", page, 0), 30: ("write", page, 1)}
    run = run_of(
        PARAMS,
        [scripted(traffic, script), answering(Walker(table, 1), Memory(table.rng, 1))],
        stall=0,
    )
    assert run.cycles["memory_write"][1] == run.taken["gnic_write"][1] + 1


@pytest.mark.parametrize("everything", [False, True])
def test_an_invalidation_during_a_walk(everything: bool) -> None:
    """Reads before it use the walk that was under way; after it, the page is walked again."""
    table, traffic = whole()
    page = next(iter(table.versions))
    walker, memory = Walker(table, 1, late=False), Memory(table.rng, 1)
    walker.held.add(page)
    old = table.of(page)[0]
    invalidations = Invalidations(table, 0)
    script = {0: ("read", page, 1), 1: ("read", page, 2), 20: ("read", page, 3)}

    def feed(run: Run, clock: int) -> dict[str, list[Any]]:
        if clock == 40:
            walker.held.clear()
        change = invalidations.change(page, everything=everything) if clock == 10 else []
        invalidations.feed(run)
        return {"tlb_invalidate": change}

    run = run_of(PARAMS, [feed, scripted(traffic, script), answering(walker, memory)], stall=0)
    check(PARAMS, table, traffic, run)
    pages = [each.line >> PARAMS.page_line_bits for each in run.payloads["memory_request"]]
    assert sorted(pages) == sorted([old, old, table.of(page)[0]])
    assert len(run.payloads["walk_request"]) == 2


def test_a_walk_that_nobody_asked_for_is_dropped() -> None:
    table, traffic = whole()
    page = next(iter(table.versions))
    wrong = {"page": 5, "present": 1, "writable": 1}
    walker, memory = Walker(table, 1), Memory(table.rng, 1)
    walker.held.add(page)
    script = {0: ("read", page, 1)}

    def feed(_run: Run, clock: int) -> dict[str, list[Any]]:
        if clock == 30:
            walker.held.clear()
        responses = [{"id": number, "translation": wrong} for number in (1, 2, 3)]
        return {"walk_response": responses} if clock == 10 else {}

    run = run_of(PARAMS, [feed, scripted(traffic, script), answering(walker, memory)], stall=0)
    check(PARAMS, table, traffic, run)
    assert run.cycles["memory_request"][0] > 30


def test_both_ports_share_a_walk() -> None:
    """A read and a write of one page, in the same clock, give one walk."""
    table, traffic = whole()
    page = next(iter(table.versions))
    feeds = [scripted(traffic, {0: (kind, page, 1)}) for kind in ("read", "write")]
    run = run_of(PARAMS, [*feeds, answering(Walker(table, 1), Memory(table.rng, 1))], stall=0)
    check(PARAMS, table, traffic, run)
    assert len(run.payloads["walk_request"]) == 1
    assert len(run.payloads["memory_write"]) == len(run.payloads["memory_request"]) == 1


def test_busy_until_the_walk_has_ended() -> None:
    table, _ = whole()
    page = next(iter(table.versions))
    sim = simulation(Translation, PARAMS)
    dut = sim.dut
    seen: list[int] = []

    async def drive(ctx: Any) -> None:
        ctx.set(dut.gnic_request.payload.line, page << PARAMS.page_line_bits)
        ctx.set(dut.gnic_request.payload.prefetch, 1)
        ctx.set(dut.gnic_request.valid, 1)
        seen.append(ctx.get(dut.busy))
        await ctx.tick()
        ctx.set(dut.gnic_request.valid, 0)
        ctx.set(dut.walk_request.ready, 1)
        await ctx.tick().repeat(10)
        seen.append(ctx.get(dut.busy))
        ctx.set(dut.walk_response.valid, 1)  # absent: the prefetch is dropped
        await ctx.tick()
        ctx.set(dut.walk_response.valid, 0)
        await ctx.tick().repeat(4)
        seen.append(ctx.get(dut.busy))

    sim.run(drive)
    assert seen == [0, 1, 0]
