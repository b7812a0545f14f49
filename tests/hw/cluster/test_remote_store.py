"""Remote store: a store passes unchanged, or is refused with the first error that applies."""

import random

import pytest

from hw.cluster.remote_store import RemoteStore
from hw.layouts.isa import ElementType, ErrorCode, ReductionOp
from hw.params import TmaParams
from tests.hw.simulate import run_streams

PARAMS = TmaParams(ctas=4, smem_bytes=4096)
RUNNING = 0b1011
GOOD = {
    "request_id": 7,
    "dst_cta": 3,
    "address": 4080,
    "mbarrier": 4088,
    "reduction": {"enabled": 1, "op": ReductionOp.ADD, "element_type": ElementType.U64},
    "words": 3,
    "data": 1 << 127 | 5,
}


def run(stores: list[dict], params: TmaParams = PARAMS, **options):
    dut = RemoteStore(params)

    async def prepare(ctx):
        ctx.set(dut.running, RUNNING)

    return run_streams(dut, {"i": stores}, ["o", "error"], prepare=prepare, **options)


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"address": 8}, ErrorCode.SMEM_ALIGN, 8),
        ({"words": 0b0110}, ErrorCode.SMEM_ALIGN, 4080),
        ({"words": 0b0111}, ErrorCode.SMEM_ALIGN, 4080),
        ({"address": 4096}, ErrorCode.SMEM_RANGE, 4096),
        ({"mbarrier": 4096}, ErrorCode.SMEM_RANGE, 4096),
        (
            {"reduction": {"enabled": 1, "op": ReductionOp.MIN, "element_type": ElementType.U64}},
            ErrorCode.RED_TYPE,
            ReductionOp.MIN.value,
        ),
        ({"dst_cta": 2}, ErrorCode.DST_CTA, 2),
        ({"dst_cta": 4}, ErrorCode.DST_CTA, 4),
        ({"dst_cta": 255}, ErrorCode.DST_CTA, 255),
        ({"mbarrier": 12}, ErrorCode.MBAR_ALIGN, 12),
        ({"dst_cta": 9, "address": 1, "mbarrier": 1}, ErrorCode.SMEM_ALIGN, 1),
        ({"dst_cta": 9, "mbarrier": 1}, ErrorCode.DST_CTA, 9),
    ],
)
def test_refusals(changes, code, value):
    """A refused store gives one error; the stores around it pass."""
    others = GOOD | {"request_id": 8}
    result = run([others, GOOD | changes, others])
    assert [store.request_id for store in result.payloads["o"]] == [8, 8]
    (record,) = result.payloads["error"]
    assert (record.request_id, record.code, record.dim, record.value) == (7, code, 0, value)


def test_a_reduction_needs_the_feature():
    """A unit without reductions refuses one; a plain store ignores the operands of a reduction."""
    params = TmaParams(ctas=4, reductions=False)
    plain = GOOD | {"reduction": {"enabled": 0, "op": ReductionOp.MIN, "element_type": 4}}
    result = run([GOOD, plain], params)
    assert [record.code for record in result.payloads["error"]] == [ErrorCode.RED_TYPE]
    assert len(result.payloads["o"]) == 1
    assert len(run([plain]).payloads["o"]) == 1


@pytest.mark.parametrize("stall", [0, 0.5])
def test_order_and_rate(stall):
    """Stores pass unchanged and in order; without stalls one per clock, after one clock."""
    rng = random.Random(3)
    stores = [
        GOOD | {"request_id": n, "data": rng.getrandbits(128), "words": rng.choice((1, 4, 12, 15))}
        for n in range(60)
    ]
    result = run(stores, stall=stall, seed=5)
    got = [(store.request_id, store.data, store.words) for store in result.payloads["o"]]
    assert got == [(store["request_id"], store["data"], store["words"]) for store in stores]
    if not stall:
        assert result.cycles["o"] == [cycle + 1 for cycle in result.taken["i"]]
        assert result.cycles["o"] == list(range(result.cycles["o"][0], result.cycles["o"][0] + 60))
