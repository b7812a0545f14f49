"""Mbarrier unit: each operation as in the golden model, one per clock; every wait ends once."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise

import pytest

from golden import mbarrier as golden
from golden.mbarrier import MAX_COUNT, MAX_TX_COUNT, Barrier, Fault
from hw.barrier.mbarrier_unit import MbarrierUnit
from hw.layouts.barriers import BarrierFault, BarrierOp
from hw.params import TmaParams
from tests.hw.barrier.operations import (
    CHANGES,
    NO_FAULT,
    TESTS,
    TRIES,
    Item,
    init,
    model,
    shown,
)
from tests.hw.simulate import simulation

PARAMS = TmaParams()
FEW = TmaParams(barrier_waiters=3)
V1 = TmaParams(barrier_waiters=8, mbarrier_v1=True, ctas=4)
REPORTING = TmaParams(barrier_waiters=8, mbarrier_v1=True, report_mechanism=True)
FOREVER = (1 << 32) - 1


@dataclass
class Wake:
    """Wake, with the clock in which it was offered first."""

    tag: int
    done: int
    fault: int
    offered: int


@dataclass
class Observed:
    """Operations that the unit accepted, and its answers."""

    accepted: list[tuple[int, str, Item]] = field(default_factory=list)
    """Clock, port and operation."""
    results: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """Tag, done, waits, fault, state."""
    faults: list[tuple[int, ...]] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    before: dict[int, int] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    waited: int = 0
    """Largest number of clocks that an update waited."""

    def clocks(self, port: str) -> list[int]:
        """Return the clocks in which the operations of a port were accepted."""
        return [clock for clock, other, _ in self.accepted if other == port]


def operate(
    commands: Iterable[Item | None],
    updates: Iterable[Item | None] = (),
    *,
    params: TmaParams = PARAMS,
    seed: int = 0,
    stall: float = 0,
    stalls: dict[str, float] | None = None,
    memory: dict[int, int] | None = None,
    quiet: int = 20,
    limit: int = 100_000,
) -> Observed:
    """Apply operations. None is a clock without an operation.

    The run ends ``quiet`` clocks after the last transfer, or after ``limit`` clocks.
    """
    sim = simulation(MbarrierUnit, params)
    dut = sim.dut
    memory = {} if memory is None else memory
    seen = Observed(memory=memory, before=dict(memory))
    shares = dict.fromkeys(("command", "update", "result", "fault", "wake"), stall)
    shares |= stalls or {}

    async def drive(ctx):
        rng = random.Random(seed)
        sources: dict[str, Iterator[Item | None]] = {
            "command": iter(commands),
            "update": iter(updates),
        }
        offered: dict[str, Item] = {}
        numbers = dict.fromkeys(sources, 0)
        ended: set[str] = set()
        held: dict[str, object] = {}
        clock = waiting = idle = 0
        read: int | None = None
        while idle < quiet and clock < limit:
            for name, source in sources.items():
                if name in offered or name in ended or rng.random() < shares[name]:
                    continue
                try:
                    item = next(source)
                except StopIteration:
                    ended.add(name)
                    continue
                if item is None:
                    continue
                payload = {
                    name: getattr(item, name) for name in ("op", "address", "count", "lanes")
                }
                if name == "command":
                    payload |= {"state": item.state, "time_limit": item.time_limit}
                    payload |= {"v1": item.v1, "tag": numbers[name] % (1 << 16)}
                else:
                    payload |= {"request_id": numbers[name]}
                    if params.report_mechanism:
                        payload |= {"reports": item.v1}
                    if params.ctas > 1:
                        payload |= {"cta": numbers[name] % params.ctas}
                port = getattr(dut, name)
                ctx.set(port.payload, payload)
                ctx.set(port.valid, 1)
                offered[name] = item
            for name in ("result", "fault", "wake"):
                ctx.set(getattr(dut, name).ready, rng.random() >= shares[name])
            if read is not None:
                ctx.set(dut.memory.read_data, read)

            taken = [name for name in offered if ctx.get(getattr(dut, name).ready)]
            assert len(taken) <= 1
            for name in taken:
                seen.accepted.append((clock, name, offered.pop(name)))
                numbers[name] += 1
            waiting = waiting + 1 if "update" in offered else 0
            seen.waited = max(seen.waited, waiting)
            moved = bool(taken)
            for name in ("result", "fault", "wake"):
                port = getattr(dut, name)
                if not ctx.get(port.valid):
                    assert name not in held, f"{name} withdrew what it offered"
                    continue
                payload = ctx.get(port.payload)
                if name in held:
                    assert payload == held.pop(name), f"{name} changed what it offered"
                elif name == "wake":
                    fault = payload.fault.value
                    seen.wakes.append(Wake(payload.tag, payload.done, fault, clock))
                if not ctx.get(port.ready):
                    held[name] = payload
                    continue
                moved = True
                if name == "result":
                    p = payload
                    seen.results.append((p.tag, p.done, p.waits, p.fault.value, p.state))
                elif name == "fault":
                    cta = (payload.cta,) if params.ctas > 1 else ()
                    record = (payload.request_id, *cta, payload.address, payload.fault.value)
                    seen.faults.append(record)
            read = None
            if ctx.get(dut.memory.read_en):
                read = memory.get(ctx.get(dut.memory.read_address) * 8, 0)
            if ctx.get(dut.memory.write_en):
                address = ctx.get(dut.memory.write_address) * 8
                memory[address] = ctx.get(dut.memory.write_data)
            await ctx.tick()
            for name in taken:
                ctx.set(getattr(dut, name).valid, 0)
            clock += 1
            idle = 0 if moved or offered or len(ended) < 2 else idle + 1

    sim.run(drive)
    return seen


@dataclass
class Wait:
    """Wait of a thread, with its end."""

    clock: int
    item: Item
    end: tuple[int, bool, int] | None = None
    """Clock of acceptance, done, fault."""


def check(seen: Observed, params: TmaParams = PARAMS) -> None:
    """Compare the words, results, faults and wakes with the golden model."""
    memory = dict(seen.before)
    results: list[tuple[int, int, int, int, int]] = []
    faults: list[tuple[int, ...]] = []
    waits: dict[int, Wait] = {}
    updates = 0
    for clock, port, item in seen.accepted:
        word = memory.get(item.address, 0)
        after, done, fault = model(item, word, port, params)
        memory[item.address] = after

        ends: tuple[bool, int] | None = None
        if item.op in CHANGES and fault:
            ends = False, Fault.LOCKED
        elif item.op in (*CHANGES, BarrierOp.INIT):
            ends = True, NO_FAULT
        for wait in waits.values():
            here = wait.end is None and wait.item.address == item.address
            if not here or ends is None:
                continue
            if not ends[0] or (word ^ after) >> (18 if wait.item.v1 else 63) & 1:
                wait.end = (clock, *ends)

        if port == "update":
            if fault:
                cta = (updates % params.ctas,) if params.ctas > 1 else ()
                faults.append((updates, *cta, item.address, fault))
            updates += 1
            continue
        tag = len(results) % (1 << 16)
        occupied = len(waits) - sum(wake.offered <= clock + 1 for wake in seen.wakes)
        may_wait = item.op in TRIES and not fault and not done and item.time_limit > 0
        starts = may_wait and occupied < params.barrier_waiters
        if starts:
            waits[tag] = Wait(clock, item)
        results.append((tag, int(done), int(starts), fault, shown(item, word, params)))
    assert seen.results == results
    assert seen.faults == faults
    assert {a: w for a, w in seen.memory.items() if w} == {a: w for a, w in memory.items() if w}
    check_wakes(seen, waits, params)


def check_wakes(seen: Observed, waits: dict[int, Wait], params: TmaParams) -> None:
    """Check that each wait has one wake: for its end, or for its time limit."""
    tags = [wake.tag for wake in seen.wakes]
    assert len(tags) == len(set(tags)), "a wait ended twice"
    for wake in seen.wakes:
        wait = waits.pop(wake.tag)
        first_over = wait.clock + wait.item.time_limit  # an event of this clock comes first
        if wake.done or wake.fault:
            assert wait.end is not None
            clock, done, fault = wait.end
            assert (bool(wake.done), wake.fault) == (done, fault)
            assert wake.offered >= clock + 5
            before_it = [w for w in seen.wakes if clock + 5 <= w.offered < wake.offered]
            assert len(before_it) <= params.barrier_waiters
            assert clock <= first_over + params.barrier_waiters
        else:
            assert wake.offered >= first_over + 5
            assert wait.end is None or wait.end[0] > first_over
    assert not any(wait.end for wait in waits.values()), "a wait did not end"
    for wait in waits.values():
        assert wait.clock + wait.item.time_limit + params.barrier_waiters > seen.accepted[-1][0]


ADDRESSES = [0, 8, 64, 0x38000]
EDGES = [MAX_COUNT, MAX_COUNT + 1, 511, 512, 2 * MAX_COUNT, 1 << 20, (1 << 21) - 1]
MISTAKES = [BarrierOp.EXPECT_TX, BarrierOp.COMPLETE_TX, BarrierOp.ARRIVE]
WAITS = [BarrierOp.TRY_WAIT, BarrierOp.TRY_WAIT_PARITY, BarrierOp.TEST_WAIT]


def draw(
    rng: random.Random, memory: dict[int, int], number: int, params: TmaParams, port: str
) -> Iterator[Item]:
    """Yield operations that are mostly legal for the current barriers."""
    for _ in range(number):
        address = rng.choice(ADDRESSES)
        word = memory.get(address, 0)
        barrier = Barrier.decode(word, v1=params.mbarrier_v1)
        state = word if rng.random() < 0.8 else rng.getrandbits(64)
        limit = rng.choice([0, 1, 2, 3, 5, 20, 20, 100, FOREVER])
        lanes = 1 if rng.random() < 0.7 else min(barrier.pending, 32)
        v1 = int(rng.random() < (0.5 if barrier.report else 0.02))
        is_command = port == "command"
        kind = rng.random()
        if kind < 0.02:
            op, count = rng.choice([*BarrierOp]), rng.choice([0, 1, 2, 3, 100, *EDGES])
        elif kind < 0.05:
            op, count = rng.choice(MISTAKES), rng.choice([0, *EDGES])
        elif kind < 0.06:
            op, count = BarrierOp.INVAL, 0
        elif kind < 0.07:
            op, count = BarrierOp.ARRIVE_NO_COMPLETE, barrier.pending
        elif is_command and (word == 0 or barrier.lock) and kind < 0.9:
            op, count = BarrierOp.INIT, 0
            is_v1 = params.mbarrier_v1 and rng.random() < 0.6
            state = golden.init(rng.choice([1, 1, 2, 3, 5]), v1=is_v1)
        elif is_command and kind < 0.5:
            op = rng.choice([*WAITS, *WAITS, *TESTS, BarrierOp.PENDING_COUNT])
            asked = barrier.report.conditional_phase if v1 and barrier.report else barrier.phase
            count = asked ^ (rng.random() < 0.2)
            if op is BarrierOp.PENDING_COUNT:
                state = rng.getrandbits(64)
        elif is_command and barrier.report and kind < 0.65:
            op, count = BarrierOp.REPORT, rng.choice([0, 0x100, 1, 2, 0x81, 0x80])
        elif barrier.tx_count and kind < 0.8:
            op = BarrierOp.COMPLETE_TX if barrier.tx_count > 0 else BarrierOp.EXPECT_TX
            count = abs(barrier.tx_count)
        elif is_command and kind < 0.75:
            op, count = BarrierOp.ARRIVE, barrier.pending
        elif kind < 0.85:
            op, count = rng.choice([*CHANGES]), rng.choice([0, 0, 1, 16])
        else:
            op, count = BarrierOp.COMPLETE_TX, rng.choice([0, 16, 100])
        yield Item(op, address, count, lanes, state, limit, v1)


@pytest.mark.parametrize("stall", [0, 0.5, 0.8])
@pytest.mark.parametrize("params", [FEW, V1, REPORTING, TmaParams(barrier_waiters=1)])
def test_is_the_golden_model(params, stall):
    rng = random.Random(0)
    memory = {8: rng.getrandbits(64) & ~(1 << 20 | 1 << 42)}
    rare = [Item(BarrierOp.TEST_WAIT, 256), init(256, 1), Item(BarrierOp.REPORT, 256)]
    commands = chain(rare, draw(rng, memory, 697, params, "command"))
    updates = draw(rng, memory, 400, params, "update")
    seen = operate(commands, updates, params=params, stall=stall, memory=memory, quiet=60)
    assert len(seen.accepted) == 1100
    check(seen, params)
    assert {fault for *_, fault, _ in seen.results} == {NO_FAULT, *Fault}
    assert {wake.fault for wake in seen.wakes} >= {NO_FAULT, Fault.LOCKED}
    assert {wake.done for wake in seen.wakes if not wake.fault} == {0, 1}


def test_faults_have_the_numbers_of_the_golden_model():
    assert {f.name: f.value for f in BarrierFault if f.value} == {f.name: f.value for f in Fault}


@pytest.mark.parametrize("address", [0, 1000 * 8])
def test_one_operation_a_clock_on_one_barrier(address):
    arrive = Item(BarrierOp.ARRIVE, address, 1)
    seen = operate([init(address, 1), *[arrive] * 100])
    check(seen)
    assert seen.clocks("command") == list(range(101))
    assert Barrier.decode(seen.memory[address]).phase == 0


def test_one_operation_a_clock_on_any_mix():
    memory = {address: golden.init(2) for address in ADDRESSES}
    rng = random.Random(1)
    ops = [BarrierOp.ARRIVE_DROP, BarrierOp.ARRIVE, BarrierOp.COMPLETE_TX, BarrierOp.TRY_WAIT]
    items = [Item(rng.choice(ops), rng.choice(ADDRESSES), 1, time_limit=9) for _ in range(200)]
    seen = operate(items[:100], items[100:], memory=memory)
    check(seen)
    clocks = [clock for clock, *_ in seen.accepted]
    assert clocks == list(range(200))


def test_commands_and_updates_take_turns():
    memory = {0: golden.init(1), 8: golden.init(1)}
    commands = [Item(BarrierOp.EXPECT_TX, 0, 16)] * 50
    seen = operate(commands, [Item(BarrierOp.COMPLETE_TX, 8, 16)] * 50, memory=memory)
    check(seen)
    ports = [port for _, port, _ in seen.accepted]
    assert all(a != b for a, b in pairwise(ports))
    assert seen.waited <= 1


def test_neither_port_waits_for_the_reports_of_the_other():
    arrives = [Item(BarrierOp.ARRIVE, 0, 1)]
    for port, stuck in (("update", "result"), ("command", "fault")):
        counts = {"command": 5, "update": 5, port: 40}
        commands, updates = arrives * counts["command"], arrives * counts["update"]
        memory = {0: golden.init(1) | 1 << 42}
        seen = operate(commands, updates, stalls={stuck: 1.0}, memory=memory, limit=60)
        clocks = seen.clocks(port)
        assert len(clocks) == 40
        assert clocks[-1] <= 45


@pytest.mark.parametrize(("count", "word"), [(1, 0x7FFFF800_001FFFFE), (32, 0x7FFF0000_001FFFC0)])
def test_words_of_the_compiler(count, word):
    assert operate([init(0, count)]).memory[0] == word


def test_an_update_that_cannot_be_taken_names_its_request():
    memory = {0: golden.init(1)}
    updates = [Item(BarrierOp.COMPLETE_TX, 0, count) for count in (MAX_TX_COUNT - 1, 16)]
    seen = operate([], [*updates, Item(BarrierOp.INVAL, 0)], memory=memory)
    check(seen)
    assert seen.faults == [(1, 0, Fault.TX_RANGE), (2, 0, Fault.OPERATION)]


def try_wait(address: int = 0, parity: int = 0, time_limit: int = FOREVER) -> Item:
    return Item(BarrierOp.TRY_WAIT_PARITY, address, parity, time_limit=time_limit)


@pytest.mark.parametrize("waiters", [1, 5, 64])
def test_a_phase_wakes_all_its_threads_at_once(waiters):
    params = TmaParams(barrier_waiters=waiters)
    memory = {0: golden.init(1), 8: golden.init(1)}
    others = [try_wait(8)] * (waiters // 2)
    waits = [try_wait(0)] * (waiters - len(others))
    seen = operate([*others, *waits, Item(BarrierOp.ARRIVE, 0, 1)], params=params, memory=memory)
    check(seen, params)
    flip = seen.clocks("command")[-1]
    assert [wake.offered for wake in seen.wakes] == [flip + 5 + n for n in range(len(waits))]
    assert {wake.tag for wake in seen.wakes} == set(range(len(others), waiters))
    assert all(wake.done for wake in seen.wakes)


@pytest.mark.parametrize(
    ("op", "count", "end"),
    [
        (BarrierOp.COMPLETE_TX, 0, None),
        (BarrierOp.ARRIVE, 1, (1, NO_FAULT)),
        (BarrierOp.ARRIVE, 2, (0, Fault.LOCKED)),
        (BarrierOp.INVAL, 0, None),
        (BarrierOp.INIT, 0, (1, NO_FAULT)),
        (BarrierOp.INIT, 1, None),
    ],
)
def test_what_ends_a_wait_right_behind_it(op, count, end):
    memory = {8 * gap: golden.init(1) for gap in range(4)}
    items: list[Item | None] = []
    for gap, address in enumerate(memory):
        end_of_wait = init(address, count) if op is BarrierOp.INIT else Item(op, address, count)
        items += [try_wait(address), *[None] * gap, end_of_wait]
    seen = operate(items, memory=memory, quiet=40)
    check(seen)
    assert [result[1:4] for result in seen.results[::2]] == [(0, 1, 0)] * 4
    assert [(wake.done, wake.fault) for wake in seen.wakes] == ([end] * 4 if end else [])


@pytest.mark.parametrize("waiters", [1, 4, 64])
def test_time_limits(waiters):
    params = TmaParams(barrier_waiters=waiters)
    limits = [*range(8), *range(8, 70, 5), FOREVER]
    items: list[Item | None] = []
    for limit in limits:
        items += [try_wait(time_limit=limit), *[None] * (min(limit, 100) + waiters + 3)]
    seen = operate(items, params=params, memory={0: golden.init(1)}, quiet=3 * waiters)
    check(seen, params)
    assert [result[2] for result in seen.results] == [0, *[1] * (len(limits) - 1)]
    clocks = seen.clocks("command")
    assert [wake.tag for wake in seen.wakes] == list(range(1, len(limits) - 1))
    late = [wake.offered - clocks[wake.tag] - limits[wake.tag] - 5 for wake in seen.wakes]
    assert 0 <= min(late) <= max(late) <= waiters
    assert not any(wake.done or wake.fault for wake in seen.wakes)


@pytest.mark.parametrize("waiters", [1, 3])
def test_a_phase_may_end_as_time_is_over(waiters):
    """One wake, for the first reason; for the phase, if both come in one clock."""
    params = TmaParams(barrier_waiters=waiters)
    memory = {8 * gap: golden.init(1) for gap in range(20)}
    items: list[Item | None] = []
    for gap, address in enumerate(memory):
        items += [
            try_wait(address, time_limit=10),
            *[None] * gap,
            Item(BarrierOp.ARRIVE, address, 1),
        ]
        items += [None] * (30 - gap)
    seen = operate(items, params=params, memory=memory)
    check(seen, params)
    assert [wake.tag for wake in seen.wakes] == list(range(0, 40, 2))
    ends = [wake.done for wake in seen.wakes]
    assert ends[:10] == [1] * 10  # the phase is complete 1 to 10 clocks behind the wait
    assert ends == sorted(ends, reverse=True)
    assert sum(ends) <= 10 + waiters


def test_more_threads_than_places():
    memory = {0: golden.init(1)}
    items = [try_wait()] * 5
    more = [try_wait(0, 1), *[None] * 6, try_wait(0, 1), *[try_wait(0, 1)] * 3]
    seen = operate([*items, Item(BarrierOp.ARRIVE, 0, 1), *more], params=FEW, memory=memory)
    check(seen, FEW)
    waits = [result[2] for result in seen.results]
    assert waits == [1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0]


def test_wakes_that_are_held_up_keep_their_places_and_nothing_else():
    memory = {0: golden.init(1)}
    arrive = Item(BarrierOp.ARRIVE, 0, 1)
    items = [*[try_wait()] * 3, arrive, *[arrive] * 30, *[try_wait()] * 3]
    seen = operate(items, params=FEW, memory=memory, stalls={"wake": 1.0})
    assert seen.clocks("command") == list(range(37))
    assert len(seen.wakes) == 1
    # One is at the port, two in the table.
    assert [result[2] for result in seen.results[-3:]] == [0, 0, 0]
    assert Barrier.decode(memory[0]).phase == 1


def test_wakes_leave_in_rotation():
    """Threads that come later do not delay the wake of a thread."""
    params = TmaParams(barrier_waiters=8)
    memory = {0: golden.init(1), 8: golden.init(1)}
    items = [*[try_wait()] * 8, Item(BarrierOp.ARRIVE, 0, 1)]
    for turn in range(60):
        items += [try_wait(8, turn & 1), Item(BarrierOp.ARRIVE, 8, 1)]
    seen = operate(items, params=params, memory=memory, stalls={"wake": 0.7})
    check(seen, params)
    first = [place for place, wake in enumerate(seen.wakes) if wake.tag < 8]
    assert len(first) == 8
    assert max(first) < len(seen.wakes) - 20


def test_a_thread_whose_time_is_over_gets_no_wake_for_the_phase():
    items = [try_wait(time_limit=1), *[None] * 8, Item(BarrierOp.ARRIVE, 0, 1)]
    seen = operate(items, params=FEW, memory={0: golden.init(1)})
    check(seen, FEW)
    assert [wake.done for wake in seen.wakes] == [0]


def test_a_report_keeps_the_conditional_phase():
    wait = Item(BarrierOp.TRY_WAIT_PARITY, 0, 0, time_limit=FOREVER, v1=1)
    arrive = Item(BarrierOp.ARRIVE, 0, 1)
    items = [
        init(0, 1, v1=True),
        Item(BarrierOp.REPORT, 0, 2),
        Item(BarrierOp.REPORT, 0, 1),
        wait,
        try_wait(),
        arrive,  # wakes the second only
        *[None] * 6,
        arrive,
    ]
    seen = operate(items, params=V1)
    check(seen, V1)
    assert [wake.tag for wake in seen.wakes] == [4, 3]
    assert [wake.done for wake in seen.wakes] == [1, 1]
    flip = seen.clocks("command")[-1]
    assert seen.wakes[1].offered == flip + 5
    barrier = Barrier.decode(seen.memory[0], v1=True)
    assert barrier.report == golden.Report(0, conditional_phase=1, stale=1)
    assert barrier.phase == 0
