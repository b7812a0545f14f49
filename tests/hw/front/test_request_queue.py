"""Request queue: order and operands of each channel, and channels that do not wait."""

import random
from contextlib import suppress
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import connect, flipped
from amaranth.sim import Simulator

from hw.front.request_queue import RequestQueue
from hw.layouts.isa import Operation
from hw.layouts.jobs import channel_of, stream_of
from hw.params import TmaParams
from tests.hw.simulate import run_streams

PARAMS = TmaParams(request_queue_depth=3, jobs_waiting=4, streams=4)
STORES = PARAMS.streams
FIELDS = (
    *("operation", "request_id", "global_address", "size", "rank", "coords", "smem_address"),
    *("mbarrier", "thread"),
)


class Freeing(wiring.Component):
    """Request queue with a generator that frees each request ``clocks`` after it left.

    Requests of the channels in the mask ``stuck`` are never freed.
    """

    def __init__(self, params: TmaParams, clocks: int, stuck: int = 0):
        self.queue = RequestQueue(params)
        self.clocks = clocks
        self.stuck = stuck
        ports = self.queue.signature.members
        super().__init__({name: ports[name] for name in ("i", "tensor", "bulk", "room")})

    def elaborate(self, _platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        p = queue.params
        for name in "tensor", "bulk":
            connect(m, getattr(queue, name), flipped(getattr(self, name)))
        connect(m, flipped(self.i), queue.i)
        freed = []
        for port in (queue.tensor, queue.bulk):
            channel = channel_of(p, port.p.operation, stream_of(p, port.p))
            bit = Signal(p.channels)
            m.d.comb += bit.eq((port.valid & port.ready) << channel)
            for _ in range(self.clocks):
                delayed = Signal(p.channels)
                m.d.sync += delayed.eq(bit)
                bit = delayed
            freed.append(bit & ~self.stuck)
        m.d.comb += [
            queue.freed.eq(freed[0]),
            queue.refused.eq(freed[1]),
            self.room.eq(queue.room),
        ]
        return m


def request(number: int, operation: Operation, stream: int) -> dict:
    return {
        "operation": operation,
        "request_id": number,
        "global_address": number << 40,
        "size": 16 * number,
        "rank": number % 5 + 1,
        "coords": [-number, number, 1 - number, number + 1, 2 * number],
        "smem_address": 128 * number,
        "mbarrier": 8 * number,
        "thread": 128 * (number % 8) + 32 * stream + number % 32,
    }


def channel(item) -> int:
    return STORES if item.operation.value & 4 else item.thread >> 5 & 3


def random_field(rng: random.Random, layout: StructLayout, name: str) -> Any:
    """Return random bits for a field of a layout; of an enumeration, a member."""
    while True:
        with suppress(ValueError):
            return layout.from_bits(rng.getrandbits(layout.size))[name]


def on_channel(number: int, channel: int) -> dict:
    """Return a request that goes through a channel: the streams' loads, or stores."""
    operation = Operation.TENSOR_STORE if channel == STORES else Operation.TENSOR_LOAD
    return request(number, operation, channel % STORES)


def operands(item) -> dict:
    return {field: getattr(item, field) for field in FIELDS} | {"coords": list(item.coords)}


@pytest.mark.parametrize("seed", range(3))
def test_order_and_operands(seed):
    rng = random.Random(seed)
    operations = [Operation(code) for code in (*range(8), 13)]
    requests = [request(number, rng.choice(operations), rng.randrange(4)) for number in range(300)]
    run = run_streams(Freeing(PARAMS, 5), {"i": requests}, ["tensor", "bulk"], seed=seed)
    for name, bit in ("tensor", 0), ("bulk", 1):
        got = [operands(item) for item in run.payloads[name]]
        wanted = [item for item in requests if item["operation"].value & 1 == bit]
        for stream in range(4):
            for store in False, True:

                def mine(items, stream=stream, store=store):
                    return [
                        item
                        for item in items
                        if bool(item["operation"].value & 4) == store
                        and (store or item["thread"] >> 5 & 3 == stream)
                    ]

                assert mine(got) == mine(wanted)


@pytest.mark.parametrize("params", [PARAMS, TmaParams()], ids=["small", "default"])
def test_all_bits_of_a_request_pass(params: TmaParams) -> None:
    dut = Freeing(params, 2)
    layout = dut.i.payload.shape()
    rng = random.Random(4)
    requests = [
        {name: random_field(rng, layout, name) for name in layout.members}
        | {"operation": Operation.TENSOR_LOAD}
        for _ in range(60)
    ]
    run = run_streams(dut, {"i": requests}, ["tensor", "bulk"], seed=1)
    got = [{name: item[name] for name in layout.members} for item in run.payloads["tensor"]]
    for stream in range(4):
        of_stream = [item for item in requests if item["thread"] >> 5 & 3 == stream]
        assert [item for item in got if item["thread"] >> 5 & 3 == stream] == of_stream


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("operation", [Operation.TENSOR_LOAD, Operation.BULK_STORE])
def test_one_a_clock_of_one_stream(streams, operation):
    """Two clocks, if requests are freed soon: a credit comes back three clocks after that."""
    params = TmaParams(request_queue_depth=3, jobs_waiting=8, streams=streams)
    requests = [request(number, operation, 0) for number in range(50)]
    run = run_streams(Freeing(params, 4), {"i": requests}, ["tensor", "bulk"], stall=0)
    name = "bulk" if operation.value & 1 else "tensor"
    assert run.taken["i"] == list(range(50))
    assert run.cycles[name] == list(range(2, 52))


def test_streams_that_are_stuck_hold_up_no_other():
    """Two of four streams are never freed; the other streams and the stores pass."""
    stuck = [request(number, Operation.TENSOR_LOAD, number % 2) for number in range(8 + 6)]
    others = [
        request(100 + number, Operation.TENSOR_STORE if number % 3 else Operation.BULK_LOAD, 2)
        for number in range(60)
    ]
    dut = Freeing(PARAMS, 2, stuck=0b00011)
    run = run_streams(dut, {"i": [*stuck, *others]}, ["tensor", "bulk"], stall=0)
    from_others = [
        item for name in run.payloads for item in run.payloads[name] if channel(item) > 1
    ]
    from_stuck = [item for item in run.payloads["tensor"] if channel(item) < 2]
    assert len(from_others) == 60
    assert len(from_stuck) == 2 * PARAMS.jobs_waiting
    assert run.taken["i"][-1] == len(stuck) + len(others) - 1


@pytest.mark.parametrize("params", [PARAMS, TmaParams()], ids=["small", "default"])
@pytest.mark.parametrize("stuck", range(5))
@pytest.mark.parametrize("stall", [0, 0.8])
def test_a_channel_that_is_stuck_holds_up_no_other(params: TmaParams, stuck: int, stall: float):
    """Requests of a channel are never freed: as many leave as it has credits. All others pass.

    They leave in each clock, or with pauses.
    """
    waiting = params.requests_waiting + params.request_queue_depth
    requests = [on_channel(number, stuck) for number in range(waiting)]
    others = [number for number in range(5) if number != stuck]
    requests += [on_channel(100 + number, others[number % 4]) for number in range(60)]
    dut = Freeing(params, 2, stuck=1 << stuck)
    run = run_streams(dut, {"i": requests}, ["tensor", "bulk"], stall=0, stalls={"i": stall})
    left = [channel(item) for name in run.payloads for item in run.payloads[name]]
    assert [left.count(number) for number in others] == [15] * 4
    assert left.count(stuck) == params.requests_waiting
    assert stall or run.taken["i"][-1] == len(requests) - 1


@pytest.mark.parametrize("depth", [2, 3, 8])
@pytest.mark.parametrize("stuck", range(5))
def test_room(depth: int, stuck: int):
    """While a channel has room, one more request finds a place behind the next one."""
    params = TmaParams(request_queue_depth=depth, jobs_waiting=4, streams=4)
    dut = Freeing(params, 2, stuck=1 << stuck)
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    async def drive(ctx):
        ctx.set(dut.i.payload, on_channel(0, stuck))
        ctx.set(dut.tensor.ready, 1)
        await ctx.tick()
        assert ctx.get(dut.room) == 0b11111
        taken = 0
        waited = 0
        while waited < 6:
            offers = ctx.get(dut.room) >> stuck & 1
            waited = 0 if offers else waited + 1
            ctx.set(dut.i.valid, offers)
            taken += offers & ctx.get(dut.i.ready)
            await ctx.tick()
        ctx.set(dut.i.valid, 1)
        beyond_room = 0
        while ctx.get(dut.i.ready):
            beyond_room += 1
            await ctx.tick()
        assert ctx.get(dut.room) == 0b11111 & ~(1 << stuck)
        assert taken + beyond_room == params.jobs_waiting + params.request_queue_depth
        assert beyond_room == 1

    sim.add_testbench(drive)
    sim.run()
