"""Barrier router: each operation reaches the SM that holds its barrier; no SM blocks another."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from hw.cluster.barrier_router import BarrierRouter
from hw.layouts.barriers import BarrierOp
from hw.layouts.isa import ErrorCode
from hw.params import TmaParams
from tests.hw.simulate import Run, run_streams

PARAMS = TmaParams(ctas=4, cta_group_2=True)
RANK, ABSENT = 2, 1
RUNNING = 0b1111 & ~(1 << ABSENT)
OUTPUTS = ["update", "to_cluster", "error"]


def completion(number: int, holder: int, address: int) -> dict:
    return {
        "request_id": number,
        "cta": number % 4,
        "holder": holder,
        "address": address,
        "tx_bytes": 16 * (number + 1),
    }


def update(number: int, op: BarrierOp = BarrierOp.ARRIVE) -> dict:
    return {
        "op": op,
        "address": 8 * number,
        "count": number + 1,
        "request_id": 1000 + number,
        "cta": number % 4,
    }


def run(inputs: dict, params: TmaParams = PARAMS, **options) -> Run:
    dut = BarrierRouter(params)

    async def prepare(ctx):
        ctx.set(dut.cta_rank, RANK)
        ctx.set(dut.running, RUNNING)

    ports = {name: inputs.get(name, []) for name in ("completion", "command", "from_cluster")}
    return run_streams(dut, ports, OUTPUTS, prepare=prepare, **options)


def tx_of(updates) -> Counter:
    """Return the bytes of all COMPLETE_TX, by address."""
    total: Counter = Counter()
    for one in updates:
        if one.op == BarrierOp.COMPLETE_TX:
            total[one.address] += one.count
    return total


@pytest.mark.parametrize("seed", range(4))
def test_every_operation_arrives(seed):
    """The bytes of completions add up at their barriers; other operations pass unchanged."""
    rng = random.Random(seed)
    completions = [
        completion(n, rng.randrange(4), 8 * rng.choice([0, 1, 2, rng.randrange(90)]))
        for n in range(80)
    ]
    commands = [{"holder": rng.randrange(4), "update": update(n)} for n in range(60)]
    arriving = [update(100 + n, BarrierOp.EXPECT_TX) for n in range(60)]
    inputs = {"completion": completions, "command": commands, "from_cluster": arriving}
    result = run(inputs, seed=seed, stall=(0, 0.3, 0.6, 0.8)[seed])

    own, away, refused = (result.payloads[name] for name in OUTPUTS)
    expected: dict[int, Counter] = {holder: Counter() for holder in range(4)}
    for one in completions:
        expected[one["holder"]][one["address"]] += one["tx_bytes"]
    assert tx_of(own) == expected[RANK]
    for holder in (0, 3):
        assert tx_of(m.update for m in away if m.holder == holder) == expected[holder]
    assert not any(message.holder in (ABSENT, RANK) for message in away)

    sent = [(m.holder, m.update.request_id) for m in away if m.update.op == BarrierOp.ARRIVE]
    assert sent == [
        (c["holder"], c["update"]["request_id"])
        for c in commands
        if c["holder"] not in (ABSENT, RANK)
    ]
    local = [one.request_id for one in own if one.op == BarrierOp.ARRIVE]
    assert local == [c["update"]["request_id"] for c in commands if c["holder"] == RANK]
    taken = [(one.request_id, one.count) for one in own if one.op == BarrierOp.EXPECT_TX]
    assert taken == [(one["request_id"], one["count"]) for one in arriving]

    assert {(record.code, record.value, record.dim) for record in refused} == {
        (ErrorCode.DST_CTA, ABSENT, 0)
    }
    lost = [c["update"]["request_id"] for c in commands if c["holder"] == ABSENT]
    assert [r.request_id for r in refused if r.request_id >= 1000] == lost
    assert any(record.request_id < 1000 for record in refused)


def test_what_arrives_does_not_wait_for_what_leaves():
    """While no output message is taken, messages from other CTAs still reach the barriers."""
    commands = [{"holder": 0, "update": update(n)} for n in range(5)]
    arriving = [update(100 + n) for n in range(40)]
    inputs = {"command": commands, "from_cluster": arriving}
    result = run(
        inputs,
        stall=0,
        stalls={"to_cluster": 1},
        until=lambda r: len(r.taken["from_cluster"]) == 40,
    )
    assert len(result.payloads["update"]) >= 39
    assert not result.payloads["to_cluster"]


def test_completions_of_a_unit_without_pairs_do_not_wait_for_the_cluster():
    """All barriers are in this SM. A CTA beyond the cluster does not run."""
    completions = [completion(n, RANK, 8 * n) for n in range(40)]
    for one in completions:
        del one["holder"]
    commands = [{"holder": holder, "update": update(holder)} for holder in (4, 255, 0)]
    result = run(
        {"completion": completions, "command": commands},
        replace(PARAMS, cta_group_2=False),
        stall=0,
        stalls={"to_cluster": 1},
        until=lambda r: len(r.payloads["update"]) == 40,
    )
    assert sum(tx_of(result.payloads["update"]).values()) == sum(c["tx_bytes"] for c in completions)
    refused = [(r.request_id, r.code, r.value) for r in result.payloads["error"]]
    assert refused == [(1004, ErrorCode.DST_CTA, 4), (1255, ErrorCode.DST_CTA, 255)]


def test_latency_of_completions():
    """A completion passes in the clock after it arrives, behind the coalescer; one per clock."""
    result = run({"completion": [completion(n, RANK, 8 * n) for n in range(20)]}, stall=0)
    assert result.taken["completion"] == list(range(20))
    assert result.cycles["update"] == list(range(1, 21))
