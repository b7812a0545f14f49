"""Destination: receivers, barrier holders and refusals are those of the golden model."""

import random
from dataclasses import replace

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from golden import Arch, BulkLoad, DsmemCopy, Load, TensorMap, TmaError, check
from golden.errors import ErrorCode
from golden.model import receivers_of, signalled_by
from hw.front.destination import Destination
from hw.layouts.isa import Operation
from hw.layouts.jobs import delivery_layout, holder_of
from hw.params import TmaParams

MAP = TensorMap.tiled("u32", 0, (64, 64), (256,), (16, 8))
SEED = 11


def draw(rng: random.Random, ctas: int, rank: int) -> Load | BulkLoad | DsmemCopy:
    """Return a request, which is mostly legal."""

    def cta() -> int:
        return rng.choice([rank, rng.randrange(ctas), rng.randrange(ctas), rng.randrange(256)])

    kind = rng.choice([Load, Load, BulkLoad, DsmemCopy])
    if kind is DsmemCopy:
        dst = cta()
        return DsmemCopy(dst, 0, 0, 16, mbarrier_cta=rng.choice([dst, dst, cta()]))
    group = {"cta_group": rng.choice([1, 2])} if kind is Load else {}
    if rng.random() < 0.6:
        mask = rng.choice([rng.randrange(1 << ctas), 1 << rank, rng.randrange(1 << 16), 0])
        where = {"cta_mask": mask, "mbarrier_cta": rng.choice([rank, rank, cta()])}
    else:
        dst = cta()
        where = {"dst_cta": dst, "mbarrier_cta": rng.choice([dst, dst, dst ^ 1, cta()])}
    if kind is Load:
        return Load(MAP, (0, 0), **where, **group)
    return BulkLoad(0, 0, 16, **where)


def fields(request: Load | BulkLoad | DsmemCopy, number: int) -> dict:
    operations = {
        Load: Operation.TENSOR_LOAD,
        BulkLoad: Operation.BULK_LOAD,
        DsmemCopy: Operation.DSMEM_COPY,
    }
    mask = getattr(request, "cta_mask", None)
    return {
        "operation": operations[type(request)],
        "request_id": number,
        "multicast": mask is not None,
        "cta_mask": mask or 0,
        "dst_cta": request.dst_cta or 0,
        "mbarrier_cta": request.mbarrier_cta or 0,
        "cta_group_2": getattr(request, "cta_group", 1) == 2,
    }


@pytest.mark.parametrize("pairs", [False, True], ids=["alone", "pairs"])
@pytest.mark.parametrize("ctas", [1, 2, 3, 4, 7, 16])
def test_destinations(ctas, pairs):
    """Receivers, holders of the barrier and error codes, for issuers of every rank."""
    params = TmaParams(ctas=ctas, cta_group_2=ctas > 1 and pairs)
    dut = Destination(params)
    sim = Simulator(dut)
    seen = set()

    @sim.add_testbench
    async def drive(ctx):
        rng = random.Random(SEED * ctas)
        for number in range(600):
            rank = rng.randrange(ctas)
            request = draw(rng, ctas, rank)
            if isinstance(request, Load) and not params.cta_group_2:
                request = replace(request, cta_group=1)
            if ctas > 1:
                ctx.set(dut.cta_rank, rank)
            ctx.set(dut.i.payload, fields(request, number))
            ctx.set(dut.i.valid, 1)
            ctx.set(dut.o.ready, number % 2)
            assert ctx.get(dut.o.valid)
            assert ctx.get(dut.i.ready) == number % 2
            out = ctx.get(dut.o.payload)
            assert out.request_id == number
            misdirected = out.misdirected
            errors = (misdirected.mask, ErrorCode.MASK), (misdirected.cta, ErrorCode.DST_CTA)
            got = next((code for flag, code in errors if flag), None)
            expected = error_of(request, rank)
            assert got == expected, (rank, request)
            if expected is ErrorCode.MASK:
                assert misdirected.value == request.cta_mask
            seen.add(expected)
            assert out.no_receiver == (getattr(request, "cta_mask", None) == 0)
            if expected is None and ctas > 1:
                compare(out.delivery, request, rank)

    def error_of(request, rank):
        if isinstance(request, DsmemCopy) and ctas == 1:
            return ErrorCode.DST_CTA  # without a cluster, there is no DSMEM
        try:
            check(request, cta=rank, ctas=ctas, arch=Arch.SM_100A)
        except TmaError as error:
            return error.code
        return None

    def compare(delivery, request, rank):
        if isinstance(request, DsmemCopy):
            receivers, holders = [request.dst_cta], [request.dst_cta]
        else:
            receivers, holders = receivers_of(request, rank), signalled_by(request, rank)
        assert delivery.mask == sum(1 << receiver for receiver in receivers)
        assert delivery.remote == (isinstance(request, DsmemCopy) or receivers != [rank])
        paired = params.cta_group_2 and delivery.pair.enabled
        seen.add((type(request), bool(delivery.remote), bool(paired)))
        for receiver, holder in zip(receivers, holders, strict=True):
            signalled = receiver & ~1 | delivery.pair.parity if paired else receiver
            assert signalled == holder, (rank, request)

    sim.run()
    # A mask has 16 bits.
    assert seen >= {None, ErrorCode.DST_CTA, *([ErrorCode.MASK] if ctas < 16 else [])}
    if ctas > 1:
        assert (Load, True, params.cta_group_2) in seen
        assert (Load, False, False) in seen
        assert (DsmemCopy, True, False) in seen


def test_holder():
    """The receiver, or the CTA of its pair that has the parity."""
    pairs = TmaParams(ctas=16, cta_group_2=True)
    dut = Module()
    source, receiver = Signal(delivery_layout(pairs)), Signal(4)
    holders = Signal(4), Signal(4)
    for params, holder in zip((TmaParams(ctas=16), pairs), holders, strict=True):
        dut.d.comb += holder.eq(holder_of(params, source, receiver))
    sim = Simulator(dut)

    @sim.add_testbench
    async def drive(ctx):
        ctx.set(receiver, 6)
        for enabled, parity, expected in ((0, 1, 6), (1, 0, 6), (1, 1, 7)):
            ctx.set(source.pair, {"enabled": enabled, "parity": parity})
            assert [ctx.get(holder) for holder in holders] == [6, expected]

    sim.run()
