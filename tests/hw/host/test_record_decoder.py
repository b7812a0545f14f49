"""Record decoder: random records of all operations, compared with a model in Python."""

import random
from dataclasses import replace

import pytest
from amaranth.hdl import Shape
from amaranth.lib.enum import EnumType

from hw.host.record_decoder import SETTLED, RecordDecoder
from hw.layouts.barriers import BarrierOp
from hw.layouts.host import (
    BARRIER_OPERATIONS,
    CompletionKind,
    HostError,
    MapOperation,
    RecordFlags,
    record_layout,
    reserved_bits,
)
from hw.layouts.isa import Operation
from hw.params import HOST_ID_BITS, PRESETS
from tests.hw.simulate import Run, run_streams, simulation

UNITS = {
    "host": PRESETS["host"],
    "ignore_oob": replace(
        PRESETS["host"], ignore_oob=True, threads=4, request_id_bits=15, mbarrier_v1=True
    ),
}
REQUESTS = [operation.value for operation in Operation if operation.value <= 10]
BARRIERS = [BARRIER_OPERATIONS + operation.value for operation in BarrierOp]
MAPS = [operation.value for operation in MapOperation]
OUTPUTS = [
    *("request", "barrier_command", "descriptor_prefetch", "descriptor_invalidate", "refused")
]
SAME_NAMES = (
    *("request_id", "global_address", "mode", "rank", "cache_policy", "smem_address", "mbarrier"),
    *("reduction_op", "element_type", "byte_mask", "thread"),
)


def number(shape, rng: random.Random) -> int:
    return rng.getrandbits(Shape.cast(shape).width)


def draw(params, rng: random.Random, *, fence: bool | None = None) -> int:
    """Return a record with any bits in its fields; some have a mistake."""
    layout = record_layout(params)
    bits = 0
    for _, field in layout:
        drawn = number(field.shape, rng)
        if isinstance(field.shape, EnumType):
            drawn = rng.choice(list(field.shape)).value
        bits |= drawn << field.offset
    fields = layout.from_bits(bits)
    operation = rng.choice(
        (rng.choice(REQUESTS), rng.choice(BARRIERS), rng.choice(MAPS), rng.getrandbits(8))
    )
    mbarrier = fields.mbarrier
    if rng.random() < 0.9:
        mbarrier %= params.smem_bytes
    if rng.random() < 0.9:
        mbarrier &= ~7
    if rng.random() < 0.1:
        mbarrier = rng.choice((params.smem_bytes, params.smem_bytes - 8, params.smem_bytes - 1))
    for name, value in {"operation": operation, "mbarrier": mbarrier}.items():
        field = layout[name]
        width = Shape.cast(field.shape).width
        bits = bits & ~((1 << width) - 1 << field.offset) | value << field.offset
    if fence is not None or rng.random() < 0.8:
        bits = bits & ~(1 << 8) | bool(fence) << 8
    if rng.random() < 0.15:
        reserved = [at for at in range(512) if reserved_bits(params) >> at & 1]
        for at in rng.sample(reserved, rng.randrange(1, 4)):
            bits |= 1 << at
    return bits


def refusal(params, bits: int) -> tuple[HostError, int] | None:
    """Return why a record is refused, and the value of its completion."""
    record = record_layout(params).from_bits(bits)
    bad = bits & reserved_bits(params)
    if bad:
        return HostError.RESERVED_BITS, ((bad & -bad).bit_length() - 1) // 32
    operation = record.operation
    if operation not in (*REQUESTS, *BARRIERS, *MAPS):
        return HostError.OPERATION, operation
    if record.mbarrier >= params.smem_bytes or (operation in BARRIERS and record.mbarrier % 8):
        return HostError.MBARRIER, record.mbarrier
    return None


def check(params, bits: int, port: str, got) -> None:
    """Compare what a port was given with a record."""
    record = record_layout(params).from_bits(bits)
    refused = refusal(params, bits)
    if refused:
        assert port == "refused"
        assert got.kind is CompletionKind.REFUSED
        assert (HostError(got.code), got.value) == refused
        assert (got.request_id, got.detail, got.phase) == (record.request_id, 0, 0)
    elif record.operation in REQUESTS:
        assert port == "request"
        assert got.operation.value == record.operation
        for name in SAME_NAMES:
            assert got[name] == record[name], name
        assert (list(got.coords), list(got.im2col_info)) == (
            list(record.coords),
            list(record.im2col_info),
        )
        assert (got.size, got.groups) == (record.size % (1 << 20), record.size % 256)
        assert got.joins_group == record.flags.joins_group
        assert (got.multicast, got.cta_mask, got.dst_cta) == (0, 0, 0)
        if params.ignore_oob:
            assert got.ignore_first == record.coords[0] % 16
            assert got.ignore_last == record.coords[1] % 16
    elif record.operation in BARRIERS:
        assert port == "barrier_command"
        assert got.op.value == record.operation - BARRIER_OPERATIONS
        assert (got.address, got.count, got.lanes) == (record.mbarrier, record.size, 1)
        assert (got.state, got.v1) == (record.global_address, record.flags.v1)
        assert got.time_limit == record.coords[0] % (1 << 32)
        assert got.tag == record.request_id | record.flags.notify << HOST_ID_BITS
    elif record.operation == MapOperation.PREFETCH_MAP.value:
        assert port == "descriptor_prefetch"
        assert got == record.global_address
    else:
        assert port == "descriptor_invalidate"
        assert got.address == record.global_address
        assert got.all == (record.operation == MapOperation.INVALIDATE_ALL_MAPS.value)


def drive(unit: str, records: list[int], seed: int, feed=None, **options) -> Run:
    params = UNITS[unit]
    layout = record_layout(params)
    sim = simulation(RecordDecoder, params)

    async def prepare(ctx) -> None:
        ctx.set(sim.dut.idle, 1)
        if feed is not None:
            feed.ctx, feed.dut = ctx, sim.dut

    inputs = {"i": [layout.from_bits(bits) for bits in records]}
    return run_streams(sim, inputs, OUTPUTS, seed=seed, prepare=prepare, feed=feed, **options)


def in_order(run: Run) -> list[tuple[str, object]]:
    """Return what was taken from all outputs, by clock."""
    found = [
        (clock, name, payload)
        for name in OUTPUTS
        for clock, payload in zip(run.cycles[name], run.payloads[name], strict=True)
    ]
    return [(name, payload) for _, name, payload in sorted(found, key=lambda item: item[0])]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("seed", range(2))
def test_each_record_goes_to_one_port(unit: str, seed: int) -> None:
    rng = random.Random(seed)
    records = [draw(UNITS[unit], rng) for _ in range(300)]
    run = drive(unit, records, seed)
    given = in_order(run)
    assert len(given) == len(records)
    for bits, (port, payload) in zip(records, given, strict=True):
        check(UNITS[unit], bits, port, payload)
    causes = {refusal(UNITS[unit], bits)[0] for bits in records if refusal(UNITS[unit], bits)}
    assert causes == {HostError.RESERVED_BITS, HostError.OPERATION, HostError.MBARRIER}
    assert all(run.payloads[name] for name in OUTPUTS)


def test_every_reserved_bit_is_refused() -> None:
    """Alone, and with the number of its word."""
    params = UNITS["host"]
    places = [at for at in range(512) if reserved_bits(params) >> at & 1]
    run = drive("host", [1 << at for at in places], 1, stall=0.0)
    assert [(got.code, got.value) for got in run.payloads["refused"]] == [
        (HostError.RESERVED_BITS.value, at // 32) for at in places
    ]


def test_every_number_of_an_operation() -> None:
    params = UNITS["host"]
    run = drive("host", list(range(256)), 1, stall=0.0)
    for bits, (port, payload) in zip(range(256), in_order(run), strict=True):
        check(params, bits, port, payload)


class Idle:
    """Lets ``idle`` of the unit fall and rise."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.idle: list[int] = []  # by clock

    def __call__(self, _run: Run, _cycle: int) -> dict[str, list]:
        if self.idle and self.rng.random() < 0.1:
            self.ctx.set(self.dut.idle, 1 - self.idle[-1])
        self.idle.append(self.ctx.get(self.dut.idle))
        return {}


@pytest.mark.parametrize("seed", range(2))
def test_a_fence_waits_for_the_unit(seed: int) -> None:
    """``SETTLED`` clocks must pass, and the unit must then be idle."""
    rng = random.Random(seed)
    fences = [rng.random() < 0.5 for _ in range(100)]
    records = [draw(UNITS["host"], rng, fence=fence) for fence in fences]
    flags = [RecordFlags.from_bits(bits >> 8 & 15) for bits in records]
    idle = Idle(seed)
    run = drive("host", records, seed, feed=idle, quiet=200)
    offered = sorted(clock for name in OUTPUTS for clock in run.offered[name])
    taken = sorted(clock for name in OUTPUTS for clock in run.cycles[name])
    assert len(offered) == len(records)
    for before, clock, flag in zip(taken[:-1], offered[1:], flags[1:], strict=True):
        if flag.fence:
            assert clock - before > SETTLED
            assert idle.idle[clock - 1]


def test_rate() -> None:
    """A record every two clocks without fences."""
    rng = random.Random(1)
    records = [draw(UNITS["host"], rng, fence=False) for _ in range(50)]
    run = drive("host", records, 1, stall=0.0)
    clocks = run.taken["i"]
    assert clocks[-1] - clocks[0] == 2 * (len(records) - 1)
