"""Simulated tests of corner cases that random loads do not reach: all barrier operations and their
misuse, errors of all kinds at once, and all slots in use.
"""

from typing import Any

import cocotb
import numpy as np

from golden import (
    BulkLoad,
    DataType,
    DsmemCopy,
    ErrorCode,
    HashedMemory,
    Load,
    Swizzle,
    TensorMap,
    TmaError,
    execute,
    mbarrier,
)
from golden.mbarrier import MAX_COUNT
from sim_tb.testbench.barriers import Command
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import PRESETS, Models, Stall, Timing
from sim_tb.testbench.results import BarrierResult

BARRIERS = (0x40, 0x48, 0x80)
TARGET = 0x400
LOCK = 1 << 42
TESTS = "TEST_WAIT_PARITY", "TRY_WAIT_PARITY", "TEST_WAIT", "TRY_WAIT"
LINE = 128
ROWS, STORES, ROUNDS, MAPS = 256, 32, 30, 150
MANY = 32
"""Barriers at which loads complete together."""
LATE = 1000
"""Clocks after which a line comes, in which many loads are issued."""
NO_TIME = 0
"""Time limit with which a ``try_wait`` answers at once."""


def golden(command: Command, word: int) -> tuple[int, BarrierResult]:
    """Return the golden model's word after the operation, and its answer."""
    op, count, state = command.op, command.count, command.state
    after, done, fault, returned = word, False, None, mbarrier.returned_state(word)
    try:
        if op == "INIT":
            after = mbarrier.init(count)
        elif op == "PENDING_COUNT":
            returned = mbarrier.pending_count(state)
        elif op == "REPORT":
            mbarrier.report(word & ~LOCK, count)
        elif op in TESTS:
            parity = count if op.endswith("PARITY") else mbarrier.parity_of(state)
            done = mbarrier.is_complete(word, parity)
        elif op != "INVAL":
            update = mbarrier.Op[op]
            if update.no_complete:
                returned = mbarrier.returned_state(word, merged=state & 0xFFFFFFFF)
            after = mbarrier.update(word, update, count, lanes=command.lanes)
    except TmaError as error:
        after = error.value if op in mbarrier.Op.__members__ else word
        fault = mbarrier.Fault(error.dim).name
    return after, BarrierResult(done, False, fault, returned)


def word_at(env: Environment, barrier: int) -> int:
    return int(env.smem[barrier : barrier + 8].view(np.uint64)[0])


async def refusals(env: Environment) -> set[tuple[int, int, int]]:
    """Return request, code and value of each error record, when the unit is idle."""
    await env.idle()
    return {(error.request_id, error.code, error.value) for error in env.errors.take_all()}


@cocotb.test()
async def every_operation_is_the_golden_models(dut: Any) -> None:
    env = await Environment.start(dut, PRESETS["rough"])
    rng = env.rng("operations")
    counts = (0, 1, 1, 2, 16, MAX_COUNT, MAX_COUNT + 1)
    ops = [*mbarrier.Op.__members__, *TESTS, *["INIT"] * 4, "INVAL", "PENDING_COUNT", "REPORT"]
    words = dict.fromkeys(BARRIERS, 0)
    commands, expected = [], []
    for _ in range(600):
        barrier = int(rng.choice(BARRIERS))
        before = words[barrier]
        command = Command(
            str(rng.choice(ops)),
            barrier,
            int(rng.choice(counts)),
            lanes=int(rng.choice((1, 1, 2, 32))),
            state=before ^ int(rng.integers(2)) << 63,
            time_limit=NO_TIME,
        )
        words[barrier], answer = golden(command, before)
        commands.append(command)
        expected.append(answer)
    assert await env.barriers.execute(commands) == expected
    await env.idle()
    assert {barrier: word_at(env, barrier) for barrier in BARRIERS} == words


@cocotb.test()
async def errors_of_all_kinds_wait_for_their_port(dut: Any) -> None:
    """Refused loads, unreadable lines and completions that a barrier cannot count occur together.

    Completions that wait for the same barrier are combined. They give one error record, with the
    request id of the last.
    """
    env = await Environment.start(dut, PRESETS["choked"], background="fault")
    source = np.zeros(128, np.uint8)
    env.gmem.place(0, source)
    free, full, _ = BARRIERS
    await env.barriers.command("INIT", free, 1)
    await env.barriers.command("INIT", full, 1)
    await env.barriers.command("COMPLETE_TX", full, MAX_COUNT)
    word = word_at(env, full)
    kinds = (
        (ErrorCode.MBAR_FAULT, 0, full),
        (ErrorCode.BULK_ALIGN, 8, free),
        (ErrorCode.GMEM_FAULT, 4096, free),
    )
    expected = set()
    for number in env.rng("kinds").integers(0, len(kinds), 200):
        code, address, barrier = kinds[number]
        expected.add((env.requests.bulk_load(address, TARGET, 16, barrier), code))
    await env.idle()
    errors = env.errors.take_all()
    recorded = {(error.request_id, error.code) for error in errors}
    at_barriers = {(number, code) for number, code in expected if code is ErrorCode.MBAR_FAULT}
    assert expected - at_barriers <= recorded <= expected
    faults = [error.dim for error in errors if error.code == ErrorCode.MBAR_FAULT]
    assert set(faults) == {mbarrier.Fault.TX_RANGE}
    assert 1 < len(faults) <= len(at_barriers)
    assert word_at(env, full) == word | LOCK
    assert (await env.barriers.command("TEST_WAIT_PARITY", full)).fault == "LOCKED"


@cocotb.test()
async def errors_of_stores_wait_for_their_port(dut: Any) -> None:
    """Stores to unwritable lines follow each other; few of their error records are taken."""
    stalls = {"error": Stall(0.9, mean=64)}
    env = await Environment.start(dut, Models(stalls=stalls), background="fault")
    stores = {env.requests.bulk_store(LINE * line, TARGET, 16) for line in range(STORES)}
    expected = {(store, ErrorCode.GMEM_FAULT) for store in stores}
    env.requests.commit_group()
    await env.requests.wait_group()
    await env.idle()
    assert {(error.request_id, error.code) for error in env.errors.take_all()} == expected


@cocotb.test()
async def completions_of_many_barriers(dut: Any) -> None:
    """Loads complete at barriers anywhere, more of them at a time than their port takes.

    A quarter of the barriers cannot count the bytes: their error records hold up the others.
    """
    env = await Environment.start(dut, PRESETS["choked"])
    rng = env.rng("barriers")
    half = env.smem.size // 2
    barriers = [8 * int(n) for n in rng.choice(half // 8, MANY, replace=False)]
    full = {*barriers[: MANY // 4]}
    loads = []
    for _ in range(8 * MANY):
        size = 16 * int((half // 64) ** (rng.random() * int(rng.integers(2))))
        target = half + 16 * int(rng.integers((half - size) // 16 + 1))
        loads.append((16 * int(rng.integers(1 << 40)), target, size, int(rng.choice(barriers))))
    for barrier in barriers:
        expected = sum(size for *_, size, at in loads if at == barrier)
        await env.barriers.command("INIT", barrier, 1)
        if barrier in full:
            await env.barriers.command("COMPLETE_TX", barrier, MAX_COUNT)
        else:
            await env.barriers.command("ARRIVE_EXPECT_TX", barrier, expected)
    word = word_at(env, barriers[0])
    for load in loads:
        env.requests.bulk_load(*load)
    await env.idle()
    done = mbarrier.Barrier(phase=1, pending=1, expected=1)
    assert {env.barriers.read(barrier) for barrier in barriers if barrier not in full} == {done}
    used = {at for *_, at in loads} & full
    assert {word_at(env, barrier) for barrier in used} == {word | LOCK}
    errors = env.errors.take_all()
    assert len(used) <= len(errors) <= len(loads)
    assert {(error.code, error.dim) for error in errors} == {
        (ErrorCode.MBAR_FAULT, mbarrier.Fault.TX_RANGE)
    }


@cocotb.test()
async def waits_end(dut: Any) -> None:
    """A wait ends with its phase, a fault, or its time limit; the invalidation does not end it."""
    env = await Environment.start(dut, PRESETS["rough"])
    for barrier in BARRIERS:
        await env.barriers.command("INIT", barrier, 1)
    completed, locked, invalid = BARRIERS
    waits = [cocotb.start_soon(env.barriers.try_wait(barrier, 0)) for barrier in BARRIERS]
    state = word_at(env, completed)
    waits.append(cocotb.start_soon(env.barriers.try_wait(completed, state=state)))
    waits.append(cocotb.start_soon(env.barriers.try_wait(completed, 0, time_limit=200)))
    await env.cycles(1000)
    await env.idle()
    assert (await env.barriers.try_wait(completed, 1)).done
    await env.barriers.command("ARRIVE", completed, 1)
    await env.barriers.command("ARRIVE", locked, 2)
    await env.barriers.command("INVAL", invalid)
    await env.barriers.command("ARRIVE", invalid, 1)
    ends = [(await wait)[:3] for wait in waits]
    assert ends == [
        (True, True, None),
        (False, True, "LOCKED"),
        (True, True, None),
        (True, True, None),
        (False, True, None),
    ]


@cocotb.test()
async def time_limits_count_from_any_clock(dut: Any) -> None:
    """A wait takes its time limit and the way through the unit, also after 2^16 clocks."""
    env = await Environment.start(dut, PRESETS["fixed"])
    barrier, limit = BARRIERS[0], 200
    await env.barriers.command("INIT", barrier, 1)
    for _ in range(2):
        start = env.cycle
        assert not (await env.barriers.try_wait(barrier, 0, time_limit=limit)).done
        assert limit <= env.cycle - start < limit + 100
        await env.cycles(1 << 16)


@cocotb.test()
async def an_error_wakes_all_waiters(dut: Any) -> None:
    """An error locks a barrier for which all places for waits are taken."""
    env = await Environment.start(dut, PRESETS["rough"])
    barrier = BARRIERS[0]
    await env.barriers.command("INIT", barrier, 1)
    places = env.interface.parameters["barrier_waiters"]
    waits = [cocotb.start_soon(env.barriers.try_wait(barrier, 0)) for _ in range(places)]
    await env.cycles(1000)
    await env.barriers.command("ARRIVE", barrier, 2)
    assert {(await wait).fault for wait in waits} == {"LOCKED"}


@cocotb.test()
async def as_many_waits_as_there_are_places(dut: Any) -> None:
    """All places for waits are taken, by barriers anywhere in shared memory, again and again."""
    env = await Environment.start(dut, PRESETS["rough"])
    rng, places = env.rng("waits"), env.interface.parameters["barrier_waiters"]
    for _ in range(ROUNDS):
        barriers = [8 * int(word) for word in rng.permutation(env.smem.size // 8)[:places]]
        for barrier in barriers:
            await env.barriers.command("INIT", barrier, 1)
        waits = [cocotb.start_soon(env.barriers.try_wait(barrier, 0)) for barrier in barriers]
        await env.cycles(4 * places)
        for barrier in rng.permutation(barriers).tolist():
            await env.barriers.command("ARRIVE", barrier, 1)
        for wait in waits:
            assert (await wait)[:3] == (True, True, None)
    await env.idle()


@cocotb.test()
async def addresses_of_maps_and_hints_have_any_bits(dut: Any) -> None:
    """Tensor maps anywhere in global memory, and any cache policy of loads and stores."""
    env = await Environment.start(dut, PRESETS["rough"])
    rng, barrier, expected = env.rng("maps"), BARRIERS[0], env.smem.copy()
    await env.barriers.command("INIT", barrier, 1)
    for number in range(MAPS):
        at, source, target = (LINE * int(line) for line in rng.integers(1 << 57, size=3))
        policies = [int(policy) for policy in rng.integers(1 << 64, size=2, dtype=np.uint64)]
        tensor_map = TensorMap.tiled(DataType.UINT8, source, [LINE], [], [LINE])
        env.descriptors.place(tensor_map, at)
        execute(Load(tensor_map, (0,), smem_address=TARGET), HashedMemory(), [expected])
        if number % 2:
            await env.descriptors.prefetch(at)
        await env.barriers.command("ARRIVE_EXPECT_TX", barrier, LINE)
        env.requests.load(at, (0,), TARGET, barrier, cache_policy=policies[0])
        await env.barriers.wait(barrier, number & 1)
        stored = np.zeros(LINE, np.uint8)
        env.gmem.place(target, stored)
        env.requests.bulk_store(target, TARGET, LINE, cache_policy=policies[1])
        env.requests.commit_group()
        await env.requests.wait_group()
        assert np.array_equal(stored, expected[TARGET : TARGET + LINE])
        for address in at, target:
            env.gmem.remove(address)
    assert not env.errors


@cocotb.test()
async def as_many_loads_in_flight_as_there_are_slots(dut: Any) -> None:
    """All slots of the unit are in use, and as many loads wait for a slot."""
    env = await Environment.start(dut, Models(Timing.fixed(3000)))
    parameters = env.interface.parameters
    count = 2 * max(parameters["requests_in_flight"], parameters["tags"]) + 1
    barrier, rng = BARRIERS[0], env.rng("loads")
    expected = env.smem.copy()
    await env.barriers.command("INIT", barrier, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", barrier, 16 * count)
    for number, line in enumerate(rng.integers(0, 1 << 40, count).tolist()):
        place = TARGET + 16 * number
        execute(BulkLoad(128 * line, place, 16), HashedMemory(), [expected])
        env.requests.bulk_load(128 * line, place, 16, barrier)
    await env.barriers.wait(barrier, 0)
    expected[barrier : barrier + 8] = env.smem[barrier : barrier + 8]
    assert np.array_equal(env.smem, expected)


@cocotb.test()
async def lines_wait_in_every_lane(dut: Any) -> None:
    """Shared memory takes little. Each line has pieces in two beats, swizzled differently."""
    stalls = {"smem_write": Stall(0.9, mean=64)}
    env = await Environment.start(dut, Models(Timing.fixed(1), stalls=stalls))
    barrier, expected = BARRIERS[0], env.smem.copy()
    tensor_map = TensorMap.tiled(
        DataType.UINT8, 16, [LINE, ROWS], [LINE], [LINE, ROWS], swizzle=Swizzle.SWIZZLE_128B
    )
    execute(Load(tensor_map, (0, 0), smem_address=TARGET), HashedMemory(), [expected])
    await env.barriers.command("INIT", barrier, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", barrier, LINE * ROWS)
    env.requests.load(env.descriptors.place(tensor_map), (0, 0), TARGET, barrier)
    await env.barriers.wait(barrier, 0)
    expected[barrier : barrier + 8] = env.smem[barrier : barrier + 8]
    assert np.array_equal(env.smem, expected)


@cocotb.test()
async def barriers_outside_shared_memory_or_misaligned_are_refused(dut: Any) -> None:
    env = await Environment.start(dut)
    tensor_map = TensorMap.tiled("u8", 0, [128, 8], [128], [128, 8])
    where = env.descriptors.place(tensor_map)
    before = env.smem.copy()
    expected = set()
    for barrier, code in (
        (env.smem.size, ErrorCode.SMEM_RANGE),
        ((1 << 24) - 8, ErrorCode.SMEM_RANGE),
        *((BARRIERS[0] + odd, ErrorCode.MBAR_ALIGN) for odd in (1, 2, 4)),
    ):
        for name in (
            env.requests.load(where, [0, 0], TARGET, barrier),
            env.requests.bulk_load(0, TARGET, 16, barrier),
        ):
            expected.add((name, code, barrier))
    assert await refusals(env) == expected
    assert np.array_equal(env.smem, before)


@cocotb.test()
async def ctas_outside_the_cluster_are_refused(dut: Any) -> None:
    """Without a cluster, no CTA but the own one receives, and none receives from its own."""
    env = await Environment.start(dut)
    size, beyond = 16, env.smem.size
    before = env.smem.copy()
    refused = (
        (BulkLoad(0, TARGET, size, cta_mask=0b10), ErrorCode.MASK, 0b10),
        (BulkLoad(0, TARGET, size, dst_cta=1), ErrorCode.DST_CTA, 1),
        (DsmemCopy(0, TARGET, 0, size), ErrorCode.DST_CTA, 0),
        (DsmemCopy(0, TARGET + 8, 0, size), ErrorCode.SMEM_ALIGN, TARGET + 8),
        (DsmemCopy(0, beyond, 0, size), ErrorCode.SMEM_RANGE, beyond),
    )
    expected = {(env.requests.submit(request), code, value) for request, code, value in refused}
    assert await refusals(env) == expected
    assert np.array_equal(env.smem, before)


@cocotb.test()
async def completions_wait_for_the_operations_of_threads(dut: Any) -> None:
    """Completions of many barriers come together while threads use their port in each clock."""
    env = await Environment.start(dut, Models(Timing.fixed(LATE)))
    rng, half = env.rng("barriers"), env.smem.size // 2
    barriers = [8 * int(word) for word in rng.choice(half // 8, MANY, replace=False)]
    loads = [int(barrier) for barrier in rng.choice(barriers[:8], 8 * MANY)]
    for barrier in barriers:
        await env.barriers.command("INIT", barrier, 1)
        await env.barriers.command("ARRIVE_EXPECT_TX", barrier, 16 * loads.count(barrier))
    for number, barrier in enumerate(loads):
        env.requests.bulk_load(LINE * number, half + LINE * number, 16, barrier)
    tests = [Command("TEST_WAIT_PARITY", int(rng.choice(barriers)), 1) for _ in range(2 * LATE)]
    results = await env.barriers.execute(tests)
    assert not any(result.fault for result in results)
    await env.idle()
    done = mbarrier.Barrier(phase=1, pending=1, expected=1)
    assert {env.barriers.read(barrier) for barrier in loads} == {done}
