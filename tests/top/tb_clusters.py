"""Simulated tests of a cluster: random requests against the golden model, and rules.

Environment variables: ``CLUSTER_MODELS`` is a preset of ``sim_tb.testbench.models``,
``CLUSTER_COUNT`` the number of rounds of random requests.
"""

import os
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np

from golden import DataType, ReductionOp, TensorMap
from golden.mbarrier import Barrier, Fault
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import WaitTimeoutError
from sim_tb.testbench.models import PRESETS, Models, Stall, Timing
from tests.top.random_clusters import Round

BARRIER, OTHER_BARRIER, DATA = 0x40, 0x48, 0x1000
SOURCE = 0x10_0000
FAST = Models(Timing.fixed(40), Timing.fixed(40), Timing.fixed(4), Timing.fixed(40))
LOGS = (LogKind.LINE, LogKind.BEAT, LogKind.WORD)
ROWS = 256
COMPLETE = Barrier(phase=1, pending=1, expected=1)


def matrix(cluster: ClusterEnvironment) -> np.ndarray:
    """Place a matrix with rows of 128 bytes in global memory; return it."""
    rng = cluster.sms[0].rng("matrix")
    data = rng.integers(0, 1 << 32, (4 * ROWS, 32), dtype=np.uint32)
    cluster.gmem.place(SOURCE, data)
    return data


def tensor_map(rows: int = ROWS) -> TensorMap:
    return TensorMap.tiled(DataType.UINT32, SOURCE, [32, 4 * ROWS], [128], [32, rows])


async def expect(env: Environment, tx_bytes: int, barrier: int = BARRIER) -> None:
    await env.barriers.command("INIT", barrier, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", barrier, tx_bytes)


def received(env: Environment, data: np.ndarray, address: int = DATA) -> bool:
    return np.array_equal(
        env.smem[address : address + data.nbytes].view(np.uint32), data.reshape(-1)
    )


async def start(dut: Any, models: Models | list[Models] = FAST) -> ClusterEnvironment:
    return await ClusterEnvironment.start(dut, models, logs=LOGS)


@cocotb.test()
async def random_requests(dut):
    """Requests of all kinds between CTAs are in flight together, in several rounds."""
    models = PRESETS[os.environ["CLUSTER_MODELS"]]
    cluster = await ClusterEnvironment.start(dut, models, logs=[])
    rng = cluster.sms[0].rng("rounds")
    for _ in range(int(os.environ["CLUSTER_COUNT"])):
        await Round(cluster, rng, int(rng.integers(4, 18))).run()


@cocotb.test()
async def memory_is_read_once(dut):
    """A multicast of a box to n CTAs reads each line once; n loads read each line n times."""
    cluster = await start(dut)
    data = matrix(cluster)
    ctas = len(cluster.sms)
    where = cluster.sms[0].descriptors.place(tensor_map())
    lines = ROWS * 128 // cluster.sms[0].interface.parameters["line_bytes"]
    for receivers in range(1, ctas + 1):
        reads = []
        for multicast in (True, False):
            for env in cluster.sms:
                env.clear_log(LogKind.LINE)
                env.smem[DATA : DATA + 128 * ROWS] = 0
            for env in cluster.sms[:receivers]:
                await expect(env, 128 * ROWS)
            if multicast:
                mask = (1 << receivers) - 1
                cluster.sms[-1].requests.load(where, (0, 0), DATA, BARRIER, cta_mask=mask)
            else:
                for env in cluster.sms[:receivers]:
                    env.requests.load(where, (0, 0), DATA, BARRIER)
            await cluster.idle()
            for env in cluster.sms:
                assert received(env, data[:ROWS]) == (env.sm < receivers)
            for env in cluster.sms[:receivers]:
                assert env.barriers.read(BARRIER) == COMPLETE
            reads.append(sum(len(env.log(LogKind.LINE)) for env in cluster.sms))
        cocotb.log.info(f"{receivers} receivers: {reads[0]} lines read, alone {reads[1]}")
        assert reads == [lines, receivers * lines]


@cocotb.test()
async def a_beat_a_clock_at_every_receiver(dut):
    """Every receiver writes a beat a clock, with one sender and with all CTAs as senders."""
    cluster = await start(dut)
    data = matrix(cluster)
    ctas = len(cluster.sms)
    boxes = 4
    for senders in (1, ctas):
        rows = boxes * ROWS // senders
        where = cluster.sms[0].descriptors.place(tensor_map(min(rows, ROWS)))
        for env in cluster.sms:
            await expect(env, 128 * boxes * ROWS)
        for env in cluster.sms[:senders]:  # so that no fetch of the tensor map is measured
            await env.descriptors.prefetch(where)
        await cluster.idle()
        for env in cluster.sms:
            env.clear_log(LogKind.BEAT)
        for box in range(boxes):
            env = cluster.sms[box % senders]
            env.requests.load(
                where,
                (0, box * ROWS),
                DATA + 128 * ROWS * box,
                BARRIER,
                cta_mask=(1 << ctas) - 1,
            )
        for env in cluster.sms:
            await env.barriers.wait(BARRIER, 0)
        await cluster.idle()
        for env in cluster.sms:
            assert received(env, data)
            cycles = env.log(LogKind.BEAT)["cycle"].astype(int)
            assert len(cycles) == boxes * ROWS
            took = cycles[-1] - cycles[0] + 1
            cocotb.log.info(f"{senders} senders, SM {env.sm}: {len(cycles)} beats in {took} clocks")
            assert took <= boxes * ROWS + 4


@cocotb.test()
async def a_slow_receiver_stalls_only_its_own(dut):
    """A receiver that is almost always stalled delays only the packets that are sent to it.

    Packets between other CTAs have the full rate.
    """
    closed = replace(FAST, stalls={"smem_write": Stall(0.999, 5000)})
    cluster = await start(dut, [FAST, FAST, FAST, closed])
    data = matrix(cluster)
    where = cluster.sms[0].descriptors.place(tensor_map())
    first, second, third, slow = cluster.sms
    for env in (first, second, third):
        await env.descriptors.prefetch(where)
        await expect(env, 2 * 128 * ROWS)
    await expect(slow, 128 * ROWS)
    first.requests.load(
        where, (0, 0), DATA, BARRIER, cta_mask=0b1001
    )  # stalled by the slow receiver
    second.requests.load(where, (0, ROWS), DATA, BARRIER, cta_mask=0b0110)
    third.requests.load(where, (0, 2 * ROWS), DATA + 128 * ROWS, BARRIER, cta_mask=0b0110)
    began = cluster.sms[0].cycle
    for env in (second, third):
        cycle = await env.barriers.wait(BARRIER, 0)
        assert cycle - began < 2 * ROWS + 150
        assert received(env, data[ROWS : 3 * ROWS])
    assert first.barriers.read(BARRIER).phase == 0, "the sender finished before the receiver"
    assert slow.barriers.read(BARRIER).phase == 0


@cocotb.test()
async def an_absent_receiver_is_reported(dut):
    """A request to a CTA that does not run gives an error record.

    That holds for multicast, DSMEM copies, ``st.async`` and remote arrivals. The other receivers of
    a multicast are served.
    """
    cluster = await start(dut)
    data = matrix(cluster)
    where = cluster.sms[0].descriptors.place(tensor_map())
    absent = 2
    cluster.running = 0b1011
    first, second, _, last = cluster.sms
    for env in (second, last):
        await expect(env, 128 * ROWS)
    numbers = [first.requests.load(where, (0, 0), DATA, BARRIER, cta_mask=0b1110)]
    numbers.append(first.requests.dsmem_copy(absent, DATA, 0, 4096, BARRIER))
    numbers.append(first.remote.store(absent, DATA, np.uint32([7]), BARRIER))
    numbers.append(first.remote.send_barrier(absent, "ARRIVE", BARRIER, 1))
    for env in (second, last):
        await env.barriers.wait(BARRIER, 0)
        assert received(env, data[:ROWS])
    await cluster.idle()
    records = first.errors.take_all()
    assert sorted(record.request_id for record in records) == sorted(numbers)
    assert {(record.cause, record.value) for record in records} == {("DST_CTA", absent)}
    assert not cluster.sms[absent].smem.any()

    # The CTA runs again and receives.
    cluster.running = 0b1111
    await expect(cluster.sms[absent], 4096)
    first.requests.dsmem_copy(absent, DATA, 0, 4096, BARRIER)
    await cluster.sms[absent].barriers.wait(BARRIER, 0)
    assert not first.errors


@cocotb.test()
async def dsmem_rates(dut):
    """DSMEM copies and reductions run at a line a clock, with all CTAs in a ring."""
    cluster = await start(dut)
    size, ctas = 32 * 1024, len(cluster.sms)
    rng = cluster.sms[0].rng("dsmem")
    add = DataType.UINT32, ReductionOp.ADD
    for reduction in (None, add):
        for env in cluster.sms:
            env.smem[:] = rng.integers(0, 256, env.smem.size, dtype=np.uint8)
            await expect(env, size)
        before = [env.smem.copy() for env in cluster.sms]
        for env in cluster.sms:
            env.clear_log(LogKind.BEAT)
        for env in cluster.sms:
            to = (env.sm + 1) % ctas
            env.requests.dsmem_copy(to, 2 * size, size, size, BARRIER, reduction=reduction)
        for env in cluster.sms:
            await env.barriers.wait(BARRIER, 0)
        await cluster.idle()
        for env in cluster.sms:
            source = before[env.sm - 1][size : 2 * size].view(np.uint32)
            got = env.smem[2 * size : 3 * size].view(np.uint32)
            operand = before[env.sm][2 * size : 3 * size].view(np.uint32)
            assert np.array_equal(got, source if reduction is None else operand + source)
            cycles = env.log(LogKind.BEAT)["cycle"].astype(int)
            assert len(cycles) == size // 128
            took = cycles[-1] - cycles[0] + 1
            what = "copied" if reduction is None else "reduced"
            cocotb.log.info(f"SM {env.sm}: {len(cycles)} beats {what} in {took} clocks")
            # A reduction also reads the receiver's beat, through the same port.
            factor = 1 if reduction is None else 2
            assert took <= factor * size // 128 + 40


@cocotb.test()
async def barriers_of_other_ctas(dut):
    """Remote arrive, expect_tx, drop and ``st.async`` change the barrier and wake its waiters."""
    cluster = await start(dut)
    first, second = cluster.sms[:2]
    await second.barriers.command("INIT", BARRIER, 4)
    waiter = cocotb.start_soon(second.barriers.wait(BARRIER, 0))
    first.remote.send_barrier(1, "ARRIVE", BARRIER, 2)
    first.remote.send_barrier(1, "ARRIVE_EXPECT_TX", BARRIER, 20)
    await cluster.idle()
    assert second.barriers.read(BARRIER) == Barrier(phase=0, pending=1, expected=4, tx_count=20)
    first.remote.send_barrier(1, "ARRIVE_DROP", BARRIER, 1)
    first.remote.send_barrier(1, "EXPECT_TX", BARRIER, 12)
    await cluster.idle()
    assert second.barriers.read(BARRIER) == Barrier(phase=0, pending=0, expected=3, tx_count=32)
    assert not waiter.done()
    first.remote.store(1, DATA, np.arange(4, dtype=np.uint32), BARRIER)
    first.remote.store(1, DATA + 16, np.arange(4, dtype=np.uint32), BARRIER)
    await waiter
    assert second.barriers.read(BARRIER) == Barrier(phase=1, pending=3, expected=3)
    assert second.smem[DATA : DATA + 32].view(np.uint32).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]

    # A fault is recorded at the CTA of the barrier, with the rank of the issuer.
    number = first.remote.send_barrier(1, "ARRIVE", BARRIER, 9)
    record = await second.errors.take_next()
    assert (record.request_id, record.cause, record.cta) == (number, "MBAR_FAULT", 0)
    assert (record.dim, record.value) == (Fault.OVER_ARRIVAL, BARRIER)
    assert second.barriers.read(BARRIER).lock == 1
    assert not first.errors


@cocotb.test()
async def pairs_signal_one_barrier(dut):
    """With ``.cta_group::2`` both CTAs of a pair signal the barrier of one of them."""
    cluster = await start(dut)
    data = matrix(cluster)
    where = cluster.sms[0].descriptors.place(tensor_map())
    size = 128 * ROWS
    for env, pairs in zip(cluster.sms, (0, 2, 0, 2), strict=True):
        await expect(env, pairs * size if pairs else 16)
    cluster.sms[1].requests.load(where, (0, 0), DATA, BARRIER, cta_mask=0b1111, cta_group=2)
    await cluster.idle()
    for env in cluster.sms:
        assert received(env, data[:ROWS])
        waits = Barrier(phase=0, pending=0, expected=1, tx_count=16)
        assert env.barriers.read(BARRIER) == (COMPLETE if env.sm % 2 else waits)


@cocotb.test()
async def waiting_signals_are_combined(dut):
    """Signals of several packets that wait for the mbarrier unit become one operation."""
    cluster = await start(dut)
    matrix(cluster)
    first, second = cluster.sms[:2]
    where = first.descriptors.place(tensor_map())
    await expect(second, 128 * ROWS)
    second.clear_log(LogKind.WORD)
    first.requests.load(where, (0, 0), DATA, BARRIER, cta_mask=0b0010)
    await second.barriers.command("INIT", OTHER_BARRIER, (1 << 20) - 1)
    arrivals = 3 * ROWS
    for _ in range(arrivals):  # they occupy at least every second clock of the unit
        second.barriers.send("ARRIVE", OTHER_BARRIER, 1)
    await second.barriers.wait(BARRIER, 0)
    await cluster.idle()
    updates = (second.log(LogKind.WORD)["key"] == BARRIER).sum()
    assert 1 < updates < ROWS
    assert second.barriers.read(OTHER_BARRIER).pending == (1 << 20) - 1 - arrivals


@cocotb.test()
async def a_bad_request_leaves_nothing(dut):
    """A request with an illegal mask or CTA is refused, writes nothing, and blocks nothing."""
    cluster = await start(dut)
    data = matrix(cluster)
    first, second = cluster.sms[:2]
    where = first.descriptors.place(tensor_map())
    wrong: list[tuple[dict[str, int], str, int]] = [
        ({"cta_mask": 0b10011}, "MASK", 0b10011),
        ({"dst_cta": 4}, "DST_CTA", 4),
        ({"dst_cta": 1, "mbarrier_cta": 2, "cta_group": 2}, "DST_CTA", 2),
    ]
    for operands, cause, value in wrong:
        number = first.requests.load(where, (0, 0), DATA, BARRIER, **operands)
        record = await first.errors.take_next()
        assert (record.request_id, record.cause, record.value) == (number, cause, value)
    misaligned = first.remote.store(1, DATA + 8, np.zeros(4, np.uint32), BARRIER)
    beyond = first.remote.send_barrier(15, "ARRIVE", BARRIER, 1)
    await cluster.idle()
    records = [(record.request_id, record.cause) for record in first.errors.take_all()]
    assert sorted(records) == [(misaligned, "SMEM_ALIGN"), (beyond, "DST_CTA")]
    assert not any(env.smem[DATA:].any() for env in cluster.sms)
    await expect(second, 128 * ROWS)
    first.requests.load(where, (0, 0), DATA, BARRIER, dst_cta=1)
    await second.barriers.wait(BARRIER, 0)
    assert received(second, data[:ROWS])


@cocotb.test()
async def what_is_ignored_as_on_silicon(dut):
    """An empty mask and no bytes do nothing; the CTA bits of a barrier's address have no effect."""
    cluster = await start(dut)
    data = matrix(cluster)
    first, second = cluster.sms[:2]
    where = first.descriptors.place(tensor_map())
    size = 128 * ROWS
    for env in (first, second):
        await env.barriers.command("INIT", BARRIER, 1)
    first.requests.load(where, (0, 0), DATA, BARRIER, cta_mask=0)
    first.requests.bulk_load(SOURCE, DATA, 0, BARRIER)
    first.requests.dsmem_copy(1, DATA, 0, 1 << 20, BARRIER)
    await cluster.idle()
    for env in (first, second):
        assert env.barriers.read(BARRIER) == Barrier(phase=0, pending=1, expected=1)
        assert not env.smem[DATA : DATA + size].any()

    for env in (first, second):
        await env.barriers.command("ARRIVE_EXPECT_TX", BARRIER, size)
    first.requests.load(where, (0, 0), DATA, BARRIER, cta_mask=3, mbarrier_cta=3)
    await cluster.idle()
    for env in (first, second):
        assert env.barriers.read(BARRIER) == COMPLETE
        assert received(env, data[:ROWS])

    # A copy to oneself, of bits 19:4 of its size.
    await first.barriers.command("ARRIVE_EXPECT_TX", BARRIER, 32)
    first.requests.dsmem_copy(0, DATA + size, DATA, (1 << 20) + 40, BARRIER)
    await first.barriers.wait(BARRIER, 1)
    copied = first.smem[DATA + size :][:48]
    assert np.array_equal(copied[:32], first.smem[DATA:][:32])
    assert not copied[32:].any()
    assert not first.errors


@cocotb.test()
async def an_unreadable_line_signals_less(dut):
    """A multicast with an unreadable line gives an error record, and no phase completes."""
    cluster = await ClusterEnvironment.start(dut, FAST, background="fault", logs=LOGS)
    rows = np.zeros((ROWS // 2, 32), np.uint32)
    cluster.gmem.place(SOURCE, rows)
    first, second = cluster.sms[:2]
    where = first.descriptors.place(tensor_map())
    for env in (first, second):
        await expect(env, 128 * ROWS)
    number = first.requests.load(where, (0, 0), DATA, BARRIER, cta_mask=0b11)
    record = await first.errors.take_next()
    assert (record.request_id, record.cause) == (number, "GMEM_FAULT")
    await cluster.idle()
    for env in (first, second):
        word = Barrier(phase=0, pending=0, expected=1, tx_count=128 * ROWS // 2)
        assert env.barriers.read(BARRIER) == word
    try:
        await second.barriers.wait(BARRIER, 0, timeout=300)
    except WaitTimeoutError:
        return
    raise AssertionError("the phase ended")
