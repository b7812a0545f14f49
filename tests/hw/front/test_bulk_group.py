"""Bulk groups, against the golden model: no wait is over early, and each is over in time."""

import gc
import random
from collections import deque
from dataclasses import dataclass, field, replace

import pytest

from golden import bulk_group as golden
from hw.front.bulk_group import BulkGroups, counters_layout, most_pending
from hw.layouts.isa import Operation
from hw.params import PRESETS, TmaParams
from tests.hw.simulate import simulation
from tests.quick import quick

SMALL = TmaParams(
    threads=4,
    streams=1,
    bulk_groups=4,
    requests_in_flight=2,
    request_queue_depth=2,
    request_id_bits=8,
)
TWO_THREADS = replace(SMALL, threads=2)
MANY = replace(SMALL, threads=32, bulk_groups=8)
STORES = (
    Operation.TENSOR_STORE,
    Operation.BULK_STORE,
    Operation.TENSOR_REDUCE,
    Operation.BULK_REDUCE,
)
LOADS = Operation.TENSOR_LOAD, Operation.BULK_LOAD
PREFETCHES = Operation.TENSOR_PREFETCH, Operation.BULK_PREFETCH
WAITS = Operation.WAIT_GROUP, Operation.WAIT_GROUP_READ
LONG = 20
"""Clocks after which a port that has not moved is taken to be blocked."""


def bulk_groups(params):
    """Return the block of ``params`` that all tests share."""
    return simulation(BulkGroups, params).dut


def simulate(dut, program):
    simulation(BulkGroups, dut.params).run(program)


@dataclass
class Thread:
    """State of a thread in the test."""

    groups: golden.BulkGroups = field(default_factory=golden.BulkGroups)
    committed: int = 0
    blocked: bool = False
    wait: dict | None = None  # the wait that is accepted and not over
    due: int = 0  # clocks since its wait could have been over
    users: dict[int, list[int]] = field(default_factory=dict)  # index -> groups of its requests

    def is_over(self):
        """Return whether the golden model ends the wait."""
        if self.wait["operation"] == Operation.WAIT_GROUP_READ:
            return self.groups.wait_group_read(self.wait["groups"])
        return self.groups.wait_group(self.wait["groups"])


@dataclass
class Pending:
    """A request that joined, between ``o`` and its last token."""

    thread: int
    number: int  # in the golden model
    committed: int  # groups of the thread before the group of the request
    group: dict[str, int]
    token: str  # the port of its next token


def joins(request):
    return request["operation"] in STORES or (
        request["operation"] in LOADS and request["joins_group"]
    )


class Driver:
    """Random threads and a random unit around the block, with checks in every clock."""

    def __init__(self, dut, seed):
        self.dut = dut
        self.params = dut.params
        self.rng = random.Random(seed)
        self.commit_rate = self.rng.choice((0.05, 0.2, 0.5))
        self.token_rate = self.rng.choice((0.1, 0.4, 0.9))
        self.rates = {name: self.rng.choice((0.3, 0.9, 1)) for name in ("i", "o", "result")}
        self.threads = [Thread() for _ in range(self.params.threads)]
        self.offered = None
        self.entering = None  # the wait that may not be in the queue of waits yet
        self.passing = (
            deque()
        )  # requests on their way to o: (request, golden number, groups before)
        self.pending = []
        self.tokens = {"source_read": None, "complete": None, "released": None}
        self.stalled = {"o": None, "result": None}  # payloads that are offered and not taken
        self.requests = 0
        self.results = 0

    async def run(self, ctx, clocks):
        for clock in range(clocks):
            self.offer_request(ctx, draining=clock > 0.7 * clocks)
            self.offer_tokens(ctx, draining=clock > 0.8 * clocks)
            for name in ("o", "result"):
                ctx.set(getattr(self.dut, name).ready, self.rng.random() < self.rates[name])
            self.check_stalled(ctx)
            self.check_results(ctx)
            self.check_passed(ctx)
            self.take_request(ctx)
            self.take_tokens(ctx)
            await ctx.tick()

    def offer_request(self, ctx, draining):
        rng = self.rng
        free = [n for n, thread in enumerate(self.threads) if not thread.blocked]
        if self.offered is None and free and not draining and rng.random() < self.rates["i"]:
            self.requests += 1
            kind = rng.random()
            if kind < self.commit_rate:
                operation = Operation.COMMIT_GROUP
            elif kind < 1.6 * self.commit_rate:
                operation = rng.choice(WAITS)
            elif len(self.pending) + len(self.passing) < most_pending(self.params) - 3:
                operation = rng.choice(rng.choice((STORES, STORES, LOADS, PREFETCHES)))
            else:
                operation = rng.choice(PREFETCHES)
            few = rng.randint(0, self.params.bulk_groups)
            self.offered = {
                "operation": operation,
                "request_id": rng.getrandbits(self.params.request_id_bits),
                "size": self.requests,
                "thread": rng.choice(free),
                "joins_group": rng.random() < 0.5,
                "groups": rng.choice((0, 0, few, few, rng.randint(0, 255))),
            }
            self.threads[self.offered["thread"]].blocked = operation in WAITS
            ctx.set(self.dut.i.payload, self.offered)
        ctx.set(self.dut.i.valid, self.offered is not None)

    def offer_tokens(self, ctx, draining):
        rng = self.rng
        for name, held in self.tokens.items():
            port = getattr(self.dut, name)
            if held is None and (draining or rng.random() < self.token_rate):
                ready = [request for request in self.pending if request.token == name]
                if rng.random() < 0.2:
                    group = {
                        "joined": 0,
                        "thread": rng.randrange(self.params.threads),
                        "index": rng.randrange(self.params.bulk_groups),
                    }
                    self.tokens[name] = Pending(0, 0, 0, group, "none")
                elif ready:
                    self.tokens[name] = rng.choice(ready)
                    self.pending.remove(self.tokens[name])
                if self.tokens[name] is not None:
                    ctx.set(port.payload, self.tokens[name].group)
            ctx.set(port.valid, self.tokens[name] is not None)

    def check_stalled(self, ctx):
        """Check that an offered payload stays until it is taken."""
        for name, before in self.stalled.items():
            port = getattr(self.dut, name)
            payload = ctx.get(port.payload) if ctx.get(port.valid) else None
            assert before is None or payload == before, f"{name}: withdrawn or changed"
            self.stalled[name] = None if ctx.get(port.ready) else payload

    def check_results(self, ctx):
        """Check that no wait is over early or late, by the tokens taken in earlier clocks."""
        result = self.dut.result
        valid, ready = ctx.get(result.valid), ctx.get(result.ready)
        if ctx.get(self.dut.i.ready):
            self.entering = None
        if valid:
            payload = ctx.get(result.payload)
            thread = self.threads[payload.thread]
            assert thread.wait is not None, "a result without a wait"
            assert payload.request_id == thread.wait["request_id"]
            assert thread.is_over(), "early"
            if ready:
                thread.wait, thread.blocked = None, False
                self.results += 1
        for thread in self.threads:
            if thread.wait is None or thread.wait is self.entering or not thread.is_over():
                thread.due = 0
            else:
                thread.due += ready or not valid
            assert thread.due <= 7 + 3 * len(self.threads), "late"

    def check_passed(self, ctx):
        if not ctx.get(self.dut.o.valid):
            return
        payload = ctx.get(self.dut.o.payload)
        request, number, committed = self.passing[0]
        for name in ("operation", "request_id", "size", "thread"):
            assert payload[name] == request[name]
        assert payload.group.joined == joins(request)
        if not ctx.get(self.dut.o.ready):
            return
        self.passing.popleft()
        if joins(request):
            assert payload.group.thread == payload.thread
            users = self.threads[payload.thread].users.setdefault(payload.group.index, [])
            assert set(users) <= {committed}, "two groups under one index"
            users.append(committed)
            group = {"joined": 1, "thread": payload.thread, "index": payload.group.index}
            refused = self.rng.random() < 0.2
            token = "released" if refused or request["operation"] in LOADS else "source_read"
            self.pending.append(Pending(payload.thread, number, committed, group, token))

    def take_request(self, ctx):
        if self.offered is None or not ctx.get(self.dut.i.ready):
            return
        request, self.offered = self.offered, None
        thread = self.threads[request["thread"]]
        if request["operation"] == Operation.COMMIT_GROUP:
            thread.groups.commit_group()
            thread.committed += 1
        elif request["operation"] in WAITS:
            thread.wait = self.entering = request
        else:
            number = thread.groups.issue() if joins(request) else None
            self.passing.append((request, number, thread.committed))

    def take_tokens(self, ctx):
        for name, request in self.tokens.items():
            if request is None or not ctx.get(getattr(self.dut, name).ready):
                continue
            self.tokens[name] = None
            if not request.group["joined"]:
                continue
            thread = self.threads[request.thread]
            if name != "complete":
                thread.groups.source_read(request.number)
            if name == "source_read":
                request.token = "complete"
                self.pending.append(request)
            else:
                thread.groups.complete(request.number)
                thread.users[request.group["index"]].remove(request.committed)


@pytest.mark.parametrize("seed", quick(range(6), 2))
@pytest.mark.parametrize("params", [SMALL, TWO_THREADS, MANY], ids=["small", "two", "many"])
def test_waits_follow_the_golden_model(params, seed):
    dut = bulk_groups(params)
    drive = Driver(dut, seed)

    async def program(ctx):
        await drive.run(ctx, 2000)

    simulate(dut, program)
    assert not drive.passing
    assert not drive.pending
    assert not any(thread.wait for thread in drive.threads), "a wait is never over"
    assert drive.results > 0


def store(**members):
    return {"operation": Operation.BULK_STORE, **members}


def commit(**members):
    return {"operation": Operation.COMMIT_GROUP, **members}


def wait(groups, operation=Operation.WAIT_GROUP, **members):
    return {"operation": operation, "groups": groups, **members}


def group(index, thread=0):
    return {"joined": 1, "thread": thread, "index": index}


async def send(ctx, port, payload):
    """Offer ``payload`` until it is taken; return the clocks that it waited."""
    ctx.set(port.payload, payload)
    ctx.set(port.valid, 1)
    for waited in range(LONG):
        ready = ctx.get(port.ready)
        await ctx.tick()
        if ready:
            ctx.set(port.valid, 0)
            return waited
    raise AssertionError("the payload is never taken")


async def clocks_to_result(ctx, dut):
    """Take a result; return the clocks before it, at most ``LONG``."""
    ctx.set(dut.result.ready, 1)
    for clocks in range(LONG):
        valid = ctx.get(dut.result.valid)
        if valid:
            await ctx.tick()
            return clocks
        await ctx.tick()
    return LONG


async def issue(ctx, dut, *requests):
    """Issue one request a clock."""
    ctx.set(dut.o.ready, 1)
    for request in requests:
        assert await send(ctx, dut.i, request) == 0


@pytest.mark.parametrize("params", [SMALL, TWO_THREADS, PRESETS["default"]])
@pytest.mark.parametrize("operation", WAITS)
def test_a_wait_right_behind_its_requests(params, operation):
    dut = bulk_groups(params)
    thread = params.threads - 1
    quick = params.threads <= 16

    async def program(ctx):
        done = dut.source_read if operation == Operation.WAIT_GROUP_READ else dut.complete
        other = dut.complete if operation == Operation.WAIT_GROUP_READ else dut.source_read
        for alignment in range(6):
            await issue(
                ctx,
                dut,
                store(thread=thread),
                store(thread=thread),
                commit(thread=thread),
                wait(0, operation, thread=thread),
            )
            index = group(alignment % params.bulk_groups, thread)
            assert await clocks_to_result(ctx, dut) == LONG
            await send(ctx, done, index)
            assert await clocks_to_result(ctx, dut) == LONG
            for _ in range(alignment):
                await ctx.tick()
            await send(ctx, done, index)
            # ``send`` ended after the clock of the token.
            assert 1 + await clocks_to_result(ctx, dut) == 3
            for _ in range(2):
                await send(ctx, other, index)

            # A group without requests is complete.
            await issue(ctx, dut, commit(thread=thread), wait(0, operation, thread=thread))
            assert 1 + await clocks_to_result(ctx, dut) == (4 if quick else 5)
            for _ in range(params.bulk_groups - 1):
                await issue(ctx, dut, commit(thread=thread))

    simulate(dut, program)


def test_a_wait_does_not_cover_the_open_group():
    dut = bulk_groups(SMALL)

    async def program(ctx):
        await issue(ctx, dut, store(), wait(0), store(), commit(thread=1), wait(0, thread=1))
        assert await clocks_to_result(ctx, dut) < LONG
        assert await clocks_to_result(ctx, dut) < LONG

    simulate(dut, program)


def test_a_request_a_clock():
    """A request leaves one clock after its acceptance; commits and waits do not stall ``i``."""
    dut = bulk_groups(SMALL)
    sent = [
        store(size=1),
        store(size=2),
        commit(),
        store(size=3),
        {"operation": Operation.TENSOR_LOAD, "size": 4},
        commit(),
        commit(),
        {"operation": Operation.TENSOR_LOAD, "size": 5, "joins_group": 1},
        wait(0),
        store(size=6, thread=1),
        {"operation": Operation.BULK_PREFETCH, "size": 7, "joins_group": 1},
    ]
    groups = [(1, 0, 0), (1, 0, 0), (1, 0, 1), None, (1, 0, 3), (1, 1, 0), None]

    async def program(ctx):
        ctx.set(dut.o.ready, 1)
        passed = []
        for clock, request in enumerate([*sent, None]):
            valid = ctx.get(dut.o.valid)
            assert valid == (clock > 0 and "size" in sent[clock - 1])
            if valid:
                payload = ctx.get(dut.o.payload)
                assert payload.size == sent[clock - 1]["size"]
                members = payload.group
                passed.append((1, members.thread, members.index) if members.joined else None)
            if request is not None:
                assert ctx.get(dut.i.ready)
                ctx.set(dut.i.payload, request)
            ctx.set(dut.i.valid, request is not None)
            await ctx.tick()
        assert passed == groups

    simulate(dut, program)


def test_back_pressure():
    dut = bulk_groups(SMALL)

    async def program(ctx):
        await send(ctx, dut.i, store())
        ctx.set(dut.i.payload, commit())
        ctx.set(dut.i.valid, 1)
        for _ in range(LONG):
            assert not ctx.get(dut.i.ready)
            assert ctx.get(dut.o.valid)
            await ctx.tick()
        ctx.set(dut.o.ready, 1)
        assert ctx.get(dut.i.ready)
        await ctx.tick()
        await issue(ctx, dut, wait(0))
        assert await clocks_to_result(ctx, dut) == LONG

    simulate(dut, program)


def test_a_commit_waits_for_the_oldest_group():
    """The commit holds up all requests behind it, and does not depend on them."""
    dut = bulk_groups(SMALL)

    async def program(ctx):
        await issue(ctx, dut, *[store(), commit()] * 3, store(), commit())
        ctx.set(dut.i.payload, store(thread=1))
        ctx.set(dut.i.valid, 1)
        for younger in (1, 2):
            await send(ctx, dut.released, group(younger))
        await send(ctx, dut.source_read, group(0))
        for _ in range(LONG):
            assert not ctx.get(dut.i.ready)
            await ctx.tick()
        await send(ctx, dut.complete, group(0))
        # Only group 3 is pending.
        assert await send(ctx, dut.i, wait(1)) <= 3
        assert await clocks_to_result(ctx, dut) < LONG
        await issue(ctx, dut, store(), wait(0))
        assert await clocks_to_result(ctx, dut) == LONG
        await send(ctx, dut.released, group(3))
        assert await clocks_to_result(ctx, dut) < LONG

    simulate(dut, program)


@pytest.mark.parametrize("params", [SMALL, PRESETS["default"], replace(SMALL, bulk_groups=64)])
@pytest.mark.parametrize("first", [0, 1, 6])
def test_every_number_of_pending_groups(params, first):
    """Waits with every ``groups``, with all indices but one in use down to none. Groups without
    requests come before the first one.
    """
    dut = bulk_groups(params)
    most = params.bulk_groups - 1

    async def program(ctx):
        await issue(ctx, dut, *[commit()] * first, *[store(), commit()] * most)
        for oldest in range(most):
            pending = most - oldest
            for groups in (pending, most + 1, 64, 128, 255):
                await issue(ctx, dut, wait(groups))
                assert await clocks_to_result(ctx, dut) < LONG
            await issue(ctx, dut, wait(pending - 1))
            assert await clocks_to_result(ctx, dut) == LONG
            await send(ctx, dut.released, group((first + oldest) % params.bulk_groups))
            assert await clocks_to_result(ctx, dut) < LONG

    simulate(dut, program)


@pytest.mark.parametrize("late", [(), ("source_read",), ("complete",)])
def test_tokens_take_turns(late):
    """``released`` and the other tokens wait at most one clock for each other."""
    dut = bulk_groups(replace(SMALL, requests_in_flight=128))

    async def program(ctx):
        await issue(ctx, dut, *[store()] * 60, commit(), wait(0), store(thread=1))
        for name in late:
            for _ in range(30):
                await send(ctx, getattr(dut, name), group(0))
        remaining = {
            name: 0 if name in late else 30 for name in ("source_read", "complete", "released")
        }
        waited = dict.fromkeys(remaining, 0)
        clocks = 0
        while any(remaining.values()):
            for name in remaining:
                ctx.set(getattr(dut, name).payload, group(0))
                ctx.set(getattr(dut, name).valid, remaining[name] > 0)
            assert not ctx.get(dut.result.valid)
            for name in remaining:
                taken = remaining[name] > 0 and ctx.get(getattr(dut, name).ready)
                remaining[name] -= taken
                waited[name] = 0 if taken or not remaining[name] else waited[name] + 1
                assert waited[name] <= 1
            await ctx.tick()
            clocks += 1
        for name in remaining:
            ctx.set(getattr(dut, name).valid, 0)
        assert clocks == 59  # the last token has a place to wait
        assert await clocks_to_result(ctx, dut) < LONG

    simulate(dut, program)


@pytest.mark.parametrize("alone", ["source_read", "complete", "released"])
def test_a_token_a_clock(alone):
    dut = bulk_groups(replace(SMALL, requests_in_flight=128))

    async def program(ctx):
        await issue(ctx, dut, *[store()] * 60, commit(), wait(0))
        names = (alone,) if alone == "released" else ("source_read", "complete")
        for name in names:
            for _ in range(60):
                assert await send(ctx, getattr(dut, name), group(0)) == 0
        assert await clocks_to_result(ctx, dut) < LONG

    simulate(dut, program)


def test_tokens_of_one_request_in_any_order():
    """``complete`` may come before ``source_read``, also when its index is in use again."""
    dut = bulk_groups(SMALL)

    async def program(ctx):
        await issue(ctx, dut, store(), commit(), *[commit()] * 2)
        await send(ctx, dut.complete, group(0))
        await ctx.tick().repeat(2)  # until the token is counted
        await issue(ctx, dut, commit(), store(), commit(), wait(0, Operation.WAIT_GROUP_READ))
        await send(ctx, dut.source_read, group(0))
        assert await clocks_to_result(ctx, dut) == LONG
        await send(ctx, dut.source_read, group(0))
        assert await clocks_to_result(ctx, dut) < LONG

    simulate(dut, program)


def test_a_result_that_waits_holds_up_no_request():
    """A result stays offered while the groups of other waits complete, and while a later commit of
    its thread waits.
    """
    dut = bulk_groups(SMALL)

    async def program(ctx):
        for thread in range(1, 4):
            await issue(ctx, dut, store(thread=thread), commit(thread=thread))
        for thread in range(4):
            await send(ctx, dut.i, wait(0, thread=thread, request_id=thread))
        for _ in range(LONG):
            await ctx.tick()
        await issue(ctx, dut, *[store(), commit()] * SMALL.bulk_groups)
        for thread in range(1, 4):
            for _ in range(LONG):
                assert ctx.get(dut.result.valid)
                assert ctx.get(dut.result.p.request_id) == 0
                await ctx.tick()
            await send(ctx, dut.released, group(0, thread))
        ctx.set(dut.result.ready, 1)
        results = []
        for _ in range(LONG):
            if ctx.get(dut.result.valid):
                results.append(ctx.get(dut.result.p.request_id))
            await ctx.tick()
        assert sorted(results) == [0, 1, 2, 3]

    simulate(dut, program)


def test_more_waits_than_threads_wait_at_the_input():
    dut = bulk_groups(TWO_THREADS)

    async def program(ctx):
        waits = [wait(0, request_id=number) for number in range(1, 4)]
        await issue(ctx, dut, store(), commit(), *waits)
        for _ in range(LONG):
            assert not ctx.get(dut.i.ready)
            await ctx.tick()
        ctx.set(dut.result.ready, 1)
        await send(ctx, dut.released, group(0))
        await send(ctx, dut.i, store())
        assert await clocks_to_result(ctx, dut) < LONG

    simulate(dut, program)


def test_new_waits_get_in_among_many():
    """31 waits delay a new wait by one clock, and a result by two clocks for each wait."""
    dut = bulk_groups(MANY)

    async def program(ctx):
        ctx.set(dut.o.ready, 1)
        for thread in range(31):
            for request in (store(), commit(), wait(0)):
                assert await send(ctx, dut.i, request | {"thread": thread}) <= 1
        await ctx.tick().repeat(2 * LONG)
        assert not ctx.get(dut.result.valid)
        for request in (store(), commit(), wait(0), store()):
            assert await send(ctx, dut.i, request | {"thread": 31}) <= 1
        ctx.set(dut.result.ready, 1)
        for thread in (31, 7, 30, 0):
            await send(ctx, dut.released, group(0, thread))
            for _ in range(7 + 2 * 31):
                if ctx.get(dut.result.valid):
                    break
                await ctx.tick()
            assert ctx.get(dut.result.valid)
            assert ctx.get(dut.result.p.thread) == thread
            await ctx.tick()

    simulate(dut, program)


def test_counters_wrap():
    """A group has more requests than a counter counts, most of them complete."""
    dut = bulk_groups(SMALL)
    most = most_pending(SMALL)
    limit = 1 << counters_layout(SMALL).elem_shape

    async def program(ctx):
        await issue(ctx, dut, *[store()] * most)
        for _ in range(2 * limit):
            await send(ctx, dut.released, group(0))
            await ctx.tick()
            await issue(ctx, dut, store())
        await issue(ctx, dut, commit(), wait(0))
        for _ in range(most):
            assert not ctx.get(dut.result.valid)
            await send(ctx, dut.released, group(0))
        assert await clocks_to_result(ctx, dut) < LONG

    simulate(dut, program)


@pytest.mark.parametrize("operation", WAITS)
def test_each_group_counts_with_all_bits(operation):
    """The counter of each group of a thread comes to a number, and later to its complement."""
    params = PRESETS["default"]
    dut = bulk_groups(params)
    rng = random.Random(1)
    limit = 1 << counters_layout(params).elem_shape
    behind = 4
    firsts = [rng.randrange(limit // 2, limit) for _ in range(params.bulk_groups)]
    further = [(limit - 1 - 2 * first) % limit for first in firsts]

    async def program(ctx):
        ctx.set(dut.o.ready, 1)
        for number, requests in enumerate(firsts + further):
            index = number % params.bulk_groups
            ctx.set(dut.i.payload, store())
            ctx.set(dut.released.payload, group(index))
            for clock in range(requests + behind - 1):
                ctx.set(dut.i.valid, clock < requests)
                ctx.set(dut.released.valid, clock >= behind)
                await ctx.tick()
            ctx.set(dut.released.valid, 0)
            await issue(ctx, dut, commit(), wait(0, operation))
            assert await clocks_to_result(ctx, dut) == LONG
            await send(ctx, dut.released, group(index))
            assert await clocks_to_result(ctx, dut) < LONG

    simulate(dut, program)


@pytest.mark.parametrize("name", ["source_read", "complete", "released"])
def test_a_token_without_a_request_is_found(name):
    dut = bulk_groups(SMALL)

    async def program(ctx):
        await send(ctx, getattr(dut, name), group(2))
        await issue(ctx, dut, wait(0, WAITS[name == "source_read"]))
        for _ in range(LONG):
            await ctx.tick()

    with pytest.raises(AssertionError, match="without a request"):
        simulate(dut, program)


def test_too_many_requests_in_a_group_are_found():
    dut = bulk_groups(SMALL)

    async def program(ctx):
        await issue(ctx, dut, *[store()] * (most_pending(SMALL) + 1), commit())
        for _ in range(LONG):
            await ctx.tick()

    with pytest.raises(AssertionError, match="too many requests"):
        simulate(dut, program)


def test_there_are_no_groups_without_stores(monkeypatch):
    monkeypatch.setattr(BulkGroups, "_MustUse__silence", True, raising=False)  # never elaborated
    with pytest.raises(ValueError, match="stores"):
        BulkGroups(replace(SMALL, stores=False, reductions=False))
    gc.collect()
