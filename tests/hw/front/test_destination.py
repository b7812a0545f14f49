"""Destination: receivers, barrier holders and refusals are those of the golden model."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from golden import Arch, BulkLoad, DsmemCopy, Load, TensorMap, TmaError, check
from golden.errors import ErrorCode
from golden.model import receivers_of, signalled_by
from hw.front.destination import Destination
from hw.layouts.isa import Operation
from hw.layouts.jobs import SignalTo, holder_of
from hw.params import TmaParams

MAP = TensorMap.tiled("u32", 0, (64, 64), (256,), (16, 8))
CTA_ERRORS = {ErrorCode.MASK, ErrorCode.DST_CTA}
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
        "mbarrier_cta": request.mbarrier_cta,
        "cta_group_2": getattr(request, "cta_group", 1) == 2,
    }


@pytest.mark.parametrize("ctas", [1, 2, 3, 4, 7, 16])
def test_destinations(ctas):
    """Receivers, holders of the barrier and error codes, for issuers of every rank."""
    params = TmaParams(ctas=ctas, cta_group_2=ctas > 1)
    dut = Destination(params)
    sim = Simulator(dut)
    seen = set()

    @sim.add_testbench
    async def drive(ctx):
        rng = random.Random(SEED * ctas)
        for number in range(600):
            rank = rng.randrange(ctas)
            request = draw(rng, ctas, rank)
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
            if expected is None and ctas > 1:
                compare(out.delivery, request, rank)

    def error_of(request, rank):
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
        assert delivery.remote == (receivers != [rank])
        seen.add((type(request), bool(delivery.remote), delivery.signal))
        for receiver, holder in zip(receivers, holders, strict=True):
            signal = SignalTo(delivery.signal)
            match signal:
                case SignalTo.RECEIVER:
                    signalled = receiver
                case SignalTo.PAIR:
                    signalled = receiver & ~1 | delivery.signal_cta & 1
                case SignalTo.CTA:
                    signalled = delivery.signal_cta
            assert signalled == holder, (rank, request)

    sim.run()
    assert seen >= {None, *CTA_ERRORS}
    if ctas > 2:
        assert (Load, True, SignalTo.PAIR) in seen
        assert (Load, True, SignalTo.RECEIVER) in seen
        assert (Load, False, SignalTo.CTA) in seen
        assert (DsmemCopy, True, SignalTo.CTA) in seen


def test_holder():
    """Each kind of ``SignalTo`` gives its CTA."""
    m = Module()
    signal, cta, receiver, holder = Signal(SignalTo), Signal(4), Signal(4), Signal(4)
    m.d.comb += holder.eq(holder_of(signal, cta, receiver))
    sim = Simulator(m)

    @sim.add_testbench
    async def drive(ctx):
        ctx.set(cta, 9)
        for kind, expected in ((SignalTo.RECEIVER, 6), (SignalTo.PAIR, 7), (SignalTo.CTA, 9)):
            ctx.set(receiver, 6)
            ctx.set(signal, kind)
            assert ctx.get(holder) == expected

    sim.run()
