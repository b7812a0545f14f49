"""Completion tracker: one end for each request, at its last piece."""

import random
from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from golden.errors import ErrorCode
from hw.load.completion_tracker import CompletionTracker
from hw.params import TmaParams

PARAMS = TmaParams(requests_in_flight=4)
RANK = 2


@pytest.mark.parametrize("ctas", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_every_request_ends_once_with_all_its_bytes(seed, ctas):
    """Part of the pieces are fill. Fill is reported at once or in several parts, also in the clock
    of a line of the same request; the report of no fill may come after the request has ended.

    In a cluster, remote requests end without a completion, and a receiver may be absent. With odd
    seeds, lines may report.
    """
    rng = random.Random(seed)
    params = replace(PARAMS, ctas=ctas, cta_group_2=ctas > 1)
    if seed % 2:
        params = replace(params, mbarrier_v1=True, report_mechanism=True)
    dut = CompletionTracker(params)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    totals = [rng.choice((1, 2, 9, 100)) for _ in range(80)]
    walks = [
        (n, k, last) for n in range(80) for last in [rng.randint(0, 2)] for k in range(last + 1)
    ]
    faulty = {n for n in range(80) if rng.random() < 0.15}
    remote = {n for n in range(80) if ctas > 1 and rng.random() < 0.5}
    unreceived = {n for n in remote if n not in faulty and rng.random() < 0.3}
    pairs = [{"enabled": rng.getrandbits(1), "parity": rng.getrandbits(1)} for _ in range(80)]
    holders = [RANK & ~1 | pair["parity"] if pair["enabled"] else RANK for pair in pairs]
    with_lines = [rng.choice((0, total, rng.randint(0, total))) for total in totals]
    for n in faulty | unreceived:
        with_lines[n] = max(with_lines[n], 1)
    reporting = {n for n in range(80) if params.report_mechanism and with_lines[n] and n % 3}
    opened: list[int] = []
    completed: list[tuple[int, int, bool]] = []
    errors: list[tuple[int, int, int]] = []

    @sim.add_testbench
    async def drive(ctx):
        passed = 0
        slots: dict[int, int] = {}
        unreported: dict[
            int, dict[str, int]
        ] = {}  # slot -> pieces of it that are still to be reported
        ending: set[int] = set()
        empty: list[int] = []  # slots of requests whose fill is none
        faults: dict[int, int] = {}  # slot -> line, to be reported before the last piece
        absent: dict[int, int] = {}  # slot -> receiver, likewise
        reports: set[int] = set()  # slots whose lines are to report, likewise
        absent_slot = None
        offered: dict[str, tuple[int, int]] = {}  # port -> slot and pieces
        untaken = {}  # what ends offer and is not taken yet
        if ctas > 1:
            ctx.set(dut.cta_rank, RANK)
        for cycle in range(8000):
            ctx.set(dut.i.valid, passed < len(walks))
            if passed < len(walks):
                request, walk, last = walks[passed]
                transfer = {
                    "request_id": request,
                    "mbarrier": 8 * request,
                    "pieces": totals[request],
                }
                if ctas > 1:
                    delivery = {"remote": request in remote, "pair": pairs[request]}
                    transfer["delivery"] = delivery
                ctx.set(dut.i.p.transfer, transfer)
                ctx.set(dut.i.p.first, walk == 0)
                ctx.set(dut.i.p.last, walk == last)
            ctx.set(dut.o.ready, rng.random() < 0.8)
            ready = 0.2 if cycle // 100 % 2 else 0.8
            ctx.set(dut.completion.ready, rng.random() < ready)
            ctx.set(dut.error.ready, rng.random() < ready)

            ctx.set(dut.fault.valid, 0)
            if faults and rng.random() < 0.3:
                slot, line = faults.popitem()
                ctx.set(dut.fault.p, {"slot": slot, "line": line})
                ctx.set(dut.fault.valid, 1)
                assert ctx.get(dut.fault.ready)
            if params.report_mechanism:
                marks = bool(reports) and rng.random() < 0.3
                ctx.set(dut.report, {"valid": marks, "slot": reports.pop() if marks else 0})
            for name, share in ("written", 0.8), ("filled", 0.5):
                port = getattr(dut, name)
                slots_left = [slot for slot in unreported if unreported[slot][name]]
                if name in offered or rng.random() >= share:
                    continue
                if name == "filled" and empty and rng.random() < 0.3:
                    offered[name] = empty.pop(0), 0
                elif slots_left:
                    same = offered.get("written", (None,))[0]
                    slot = same if same in slots_left else rng.choice(slots_left)
                    most = unreported[slot][name]
                    if name == "written":
                        waits = slot in faults or slot in absent or slot == absent_slot
                        most -= waits or slot in reports
                        most = min(most, rng.randint(1, 8))
                    elif rng.random() < 0.5:
                        most = rng.randint(1, most)
                    if most == 0:
                        continue
                    offered[name] = slot, most
                else:
                    continue
                slot, pieces = offered[name]
                ctx.set(port.p, {"slot": slot, "pieces": pieces})
            for name in "written", "filled":
                ctx.set(getattr(dut, name).valid, name in offered)
            if ctas > 1:
                if absent_slot is None and absent and rng.random() < 0.3:
                    absent_slot, receiver = absent.popitem()
                    ctx.set(dut.receiver_absent.p, {"slot": absent_slot, "receiver": receiver})
                    absent[absent_slot] = receiver  # until it is taken
                ctx.set(dut.receiver_absent.valid, absent_slot is not None)
                if absent_slot is not None and ctx.get(dut.receiver_absent.ready):
                    del absent[absent_slot]
                    absent_slot = None
                if ctx.get(dut.opened.valid):
                    opened.append(ctx.get(dut.opened.transfer.request_id))
                    assert ctx.get(dut.opened.slot) == ctx.get(dut.o.p.slot)

            for name in "completion", "error":
                port = getattr(dut, name)
                if name in untaken:
                    assert ctx.get(port.valid), f"{name}: withdrew what it offered"
                    assert ctx.get(port.payload) == untaken.pop(name), f"{name}: changed its offer"
                if ctx.get(port.valid) and not ctx.get(port.ready):
                    untaken[name] = ctx.get(port.payload)
            if ctx.get(dut.completion.valid) and ctx.get(dut.completion.ready):
                end = ctx.get(dut.completion.p)
                reported = bool(end.reports) if params.report_mechanism else False
                completed.append((end.address // 8, end.tx_bytes, reported))
                if ctas > 1:
                    assert (end.cta, end.holder) == (RANK, holders[end.request_id])
                assert end.address // 8 in ending
            if ctx.get(dut.error.valid) and ctx.get(dut.error.ready):
                record = ctx.get(dut.error.p)
                errors.append((record.request_id, record.code.value, record.value))
                assert record.request_id in ending
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                slot = ctx.get(dut.o.p.slot)
                assert ctx.get(dut.o.p.last) == (walk == last)
                if walk == 0:
                    assert slot not in slots, "a slot given twice"
                    slots[slot] = request
                assert slots[slot] == request, "the walks of a request under two slots"
                if walk == last:
                    lines = with_lines[request]
                    unreported[slot] = {"written": lines, "filled": totals[request] - lines}
                    if lines == totals[request] and rng.random() < 0.5:
                        empty.append(slot)
                    if request in faulty:
                        faults[slot] = 1000 + request
                    if request in reporting:
                        reports.add(slot)
                    if request in unreceived:
                        absent[slot] = request % ctas
                passed += 1
            for name in list(offered):
                if not ctx.get(getattr(dut, name).ready):
                    continue
                slot, pieces = offered.pop(name)
                if pieces:
                    unreported[slot][name] -= pieces
                    if not any(unreported[slot].values()):
                        del unreported[slot]
                        ending.add(slots.pop(slot))
            await ctx.tick()
            ends = len(completed) + len(errors) + len(remote - faulty - unreceived)
            if (
                ends == len(totals)
                and passed == len(walks)
                and not (unreported or empty or offered)
            ):
                return
        raise AssertionError("requests without an end")

    sim.run()
    whole = [n for n in range(len(totals)) if n not in faulty | remote]
    assert sorted(completed) == [(n, 16 * totals[n], n in reporting) for n in whole]
    expected = [(n, ErrorCode.GMEM_FAULT, (1000 + n) * PARAMS.line_bytes) for n in faulty]
    expected += [(n, ErrorCode.DST_CTA, n % ctas) for n in unreceived]
    assert sorted(errors) == sorted(expected)
    assert opened == ([] if ctas == 1 else list(range(80)))


async def open_requests(ctx, dut, requests: list[tuple[int, int]]) -> list[int]:
    """Pass a job of each request, by its number and pieces; return the slots."""
    slots = []
    await ctx.tick()  # the first slot is free a clock after reset
    ctx.set(dut.o.ready, 1)
    ctx.set(dut.i.p.first, 1)
    ctx.set(dut.i.valid, 1)
    for number, pieces in requests:
        ctx.set(dut.i.p.transfer, {"request_id": number, "mbarrier": 8 * number, "pieces": pieces})
        assert ctx.get(dut.i.ready)
        slots.append(ctx.get(dut.o.p.slot))
        await ctx.tick()
    ctx.set(dut.i.valid, 0)
    return slots


def test_a_line_and_fill_a_clock_on_one_slot():
    dut = CompletionTracker(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        [slot] = await open_requests(ctx, dut, [(1, 64 + 3 * 64)])
        ctx.set(dut.written.p, {"slot": slot, "pieces": 1})
        ctx.set(dut.filled.p, {"slot": slot, "pieces": 3})
        ctx.set(dut.written.valid, 1)
        ctx.set(dut.filled.valid, 1)
        for _ in range(64):
            assert ctx.get(dut.written.ready)
            assert ctx.get(dut.filled.ready)
            assert not ctx.get(dut.completion.valid)
            await ctx.tick()
        ctx.set(dut.written.valid, 0)
        ctx.set(dut.filled.valid, 0)
        for _ in range(3):
            assert not ctx.get(dut.completion.valid)
            await ctx.tick()
        assert ctx.get(dut.completion.valid)
        assert ctx.get(dut.completion.p.tx_bytes) == 16 * 256

    sim.run()


@pytest.mark.parametrize("skew", [-1, 0, 1])
def test_one_request_of_a_line_and_fill_a_clock(skew):
    """Fill comes ``skew`` clocks after the line; slots are reused all the time."""
    params = TmaParams(requests_in_flight=8)
    dut = CompletionTracker(params)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    count = 40
    ends = []

    @sim.add_testbench
    async def drive(ctx):
        slots: list[int] = []
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.i.p.first, 1)
        ctx.set(dut.completion.ready, 1)
        await ctx.tick()  # the first slot is free a clock after reset
        for cycle in range(count + 8):
            number = len(slots)
            ctx.set(dut.i.valid, number < count)
            ctx.set(
                dut.i.p.transfer,
                {"request_id": number, "mbarrier": 8 * number, "pieces": 2 + number},
            )
            for port, delay, fill in (dut.written, 2, 0), (dut.filled, 2 + skew, 1):
                at = cycle - delay
                ctx.set(port.valid, 0 <= at < count)
                if 0 <= at < count:
                    ctx.set(port.p, {"slot": slots[at], "pieces": 1 + fill * at})
                    assert ctx.get(port.ready)
            if ctx.get(dut.completion.valid):
                end = ctx.get(dut.completion.p)
                ends.append((cycle, end.request_id, end.tx_bytes))
            if number < count:
                assert ctx.get(dut.i.ready)
                slots.append(ctx.get(dut.o.p.slot))
            await ctx.tick()

    sim.run()
    first = 6 + max(skew, 0)
    assert ends == [(first + n, n, 16 * (2 + n)) for n in range(count)]


@pytest.mark.parametrize("first", ["written", "filled"])
def test_what_is_offered_stays_while_it_waits(first):
    """An end of the other kind comes after it; of two at once, the one by a line goes first."""
    dut = CompletionTracker(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    second = {"written": "filled", "filled": "written"}[first]

    @sim.add_testbench
    async def drive(ctx):
        slots = await open_requests(ctx, dut, [(n, 2) for n in range(4)])

        async def report(**by_port: int) -> None:
            for name, request in by_port.items():
                port = getattr(dut, name)
                ctx.set(port.p, {"slot": slots[request], "pieces": 2})
                ctx.set(port.valid, 1)
                assert ctx.get(port.ready)
            await ctx.tick()
            for name in by_port:
                ctx.set(getattr(dut, name).valid, 0)

        async def take(request: int) -> None:
            for ready in 0, 0, 1:
                ctx.set(dut.completion.ready, ready)
                assert ctx.get(dut.completion.valid)
                assert ctx.get(dut.completion.p.request_id) == request
                await ctx.tick()
            ctx.set(dut.completion.ready, 0)

        await report(**{first: 0})
        await report(**{second: 1})
        for _ in range(4):
            await ctx.tick()
        await take(0)
        await take(1)
        await report(written=2, filled=3)
        for _ in range(3):
            await ctx.tick()
        await take(2)
        await take(3)
        assert not ctx.get(dut.completion.valid)

    sim.run()


@pytest.mark.parametrize("port", ["written", "filled"])
def test_both_ports_wait_for_ends_of_one(port):
    """Two ends that came by one port are held up behind the one that is offered."""
    dut = CompletionTracker(TmaParams(requests_in_flight=8))
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    ports = dut.written, dut.filled

    @sim.add_testbench
    async def drive(ctx):
        slots = await open_requests(ctx, dut, [(n, 2) for n in range(5)])
        reports = getattr(dut, port)
        ctx.set(reports.valid, 1)
        for slot in slots:
            ctx.set(reports.p, {"slot": slot, "pieces": 2})
            assert [ctx.get(each.ready) for each in ports] == [1, 1]
            await ctx.tick()
        ctx.set(reports.valid, 0)
        assert [ctx.get(each.ready) for each in ports] == [0, 0]
        for request in range(5):
            for ready in 0, 0, 0, 1:
                ctx.set(dut.completion.ready, ready)
                assert ctx.get(dut.completion.valid)
                assert ctx.get(dut.completion.p.request_id) == request
                await ctx.tick()
            ctx.set(dut.completion.ready, 0)
        assert [ctx.get(each.ready) for each in ports] == [1, 1]
        assert not ctx.get(dut.completion.valid)

    sim.run()
