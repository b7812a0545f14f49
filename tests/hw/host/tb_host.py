"""cocotb: ``tma_host`` between a master of AXI4-Lite and a memory of cocotbext-axi.

The environment gives the parameters of the unit (``HOST_PARAMS``, JSON), the share of clocks in
which a channel pauses (``HOST_PAUSE``), and how many random requests there are (``HOST_COUNT``).
"""

import json
import os
import random

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles

from golden import ArrayMemory, BulkLoad, BulkReduce, BulkStore, Load, Reduce, TmaError, execute
from golden.request import as_descriptor
from hw.host.monitor_registers import WORDS, MonitorRegister
from hw.host.registers import Register
from hw.layouts.axi import Response
from hw.layouts.barriers import BarrierFault, BarrierOp
from hw.layouts.host import (
    BARRIER_OPERATIONS,
    RECORD_BYTES,
    WINDOW_BITS,
    CompletionKind,
    HostError,
    MapOperation,
    record_layout,
    reserved_bits,
)
from hw.layouts.isa import AccessMode, ElementType, ErrorCode, Operation, ReductionOp
from hw.layouts.monitor import Counter, EventKind, EventRecord
from hw.params import TmaParams
from tests.golden.random_requests import GMEM_BYTES, random_bytes
from tests.hw.host.host import (
    COMPLETIONS,
    IMAGE,
    MAPS,
    PAGE,
    REQUESTS,
    STORES,
    Host,
)
from tests.top import random_loads, random_stores

LOADS = "tile", "interleaved", "im2col", "im2col_interleaved", "bulk"
LINE = 0x1000_0000
"""Address of memory with hashes, which loads read."""


def host_of(dut) -> Host:
    """Return the host of a test."""
    params = TmaParams(**json.loads(os.environ["HOST_PARAMS"]))
    rng = random.Random(cocotb.RANDOM_SEED)
    pause = float(os.environ["HOST_PAUSE"])
    return Host(dut, params, rng, pause, latency=100 if pause else 0)


async def succeed(host: Host, mbarrier: int = 8) -> None:
    """Load 64 bytes from a random address, and check them."""
    address = LINE + 16 * host.rng.randrange(1 << 20)
    done = await host.load(
        host.request(
            Operation.BULK_LOAD, global_address=address, size=64, smem_address=256,
            mbarrier=mbarrier,
        ),
        mbarrier,
        64,
    )  # fmt: skip
    assert (done.detail, done.code) == (1, 0)
    data = await host.save(IMAGE + PAGE, 64, 256)
    assert bytes(data) == host.memory.get(address, 64)


# Random requests


def load_record(host: Host, request: Load | BulkLoad, number: int) -> int:
    """Place the tensor map of a load; return its record."""
    if isinstance(request, BulkLoad):
        return host.request(
            Operation.BULK_LOAD, request_id=number, global_address=request.gmem_address,
            size=request.size & 0x1F_FFFF, smem_address=request.smem_address,
            mbarrier=request.mbarrier,
        )  # fmt: skip
    place = MAPS + 64 * number
    host.memory.put(place, random_loads.as_words(request)[:64])
    coords = [*request.coords, 0, 0, 0, 0]
    return host.request(
        Operation.TENSOR_LOAD, request_id=number, mode=AccessMode(int(request.mode)),
        rank=len(request.coords), coords=coords[:5], global_address=place,
        im2col_info=[*request.im2col_offsets, 0, 0, 0][:3], smem_address=request.smem_address,
        mbarrier=request.mbarrier,
    )  # fmt: skip


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def random_loads_are_right(dut) -> None:
    """Each load writes what the golden model writes, or gives its error."""
    host = host_of(dut)
    params = host.params
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    await host.start()
    barrier = params.smem_bytes - 8
    window = 8192
    smem = random_bytes(rng, params.smem_bytes)
    smem[window:] = 0
    refused = 0
    await host.fill(smem[:window], barrier)
    for number in range(int(os.environ["HOST_COUNT"])):
        mode = LOADS[number % len(LOADS)]
        arch = random_loads.Arch.SM_90A
        item = random_loads.random_item(rng, [mode], arch, 0, barrier, window // 2)
        item.move_below(1 << 28)
        golden = execute_load(item, smem, host)
        record = load_record(host, item.request, number)
        if isinstance(golden, TmaError):
            refused += 1
            await host.post([record])
            error = await host.take(CompletionKind.ERROR, number)
            assert ErrorCode(error.code).name == golden.code.name, f"{golden}: {item}"
        else:
            done = await host.load(record, barrier, golden)
            assert (done.detail, done.code) == (1, 0), item
        got = await host.save(IMAGE + PAGE, window)
        wrong = np.flatnonzero(got != smem[:window])
        assert not wrong.size, f"{wrong.size} bytes, from {wrong[0]:#x} on: {item}"
    assert host.completions == []
    assert await host.get(Register.ERROR) == 0


def execute_load(item: random_loads.Item, smem: np.ndarray, host: Host) -> int | TmaError:
    """Apply a load to ``smem``; return the bytes that its barrier counts, or its error."""
    try:
        done = execute(item.request, host.memory, [smem], arch=item.arch)
    except TmaError as error:
        return error
    return done[0].bytes if done else 0


def store_record(host: Host, request: random_stores.StoreRequest, number: int, thread: int) -> int:
    """Place the tensor map of a store; return its record."""
    common = {"request_id": number, "thread": thread, "smem_address": request.smem_address}
    if isinstance(request, BulkStore | BulkReduce):
        common |= {"global_address": request.gmem_address, "size": request.size}
        if isinstance(request, BulkStore):
            return host.request(Operation.BULK_STORE, byte_mask=request.byte_mask, **common)
        element_type = ElementType(request.data_type.format)
        return host.request(
            Operation.BULK_REDUCE, element_type=element_type, reduction_op=request.op, **common
        )
    place = MAPS + 64 * number
    words = np.array(as_descriptor(request.tensor_map).words, "<u4")
    host.memory.put(place, words.tobytes()[:64])
    operation, op = Operation.TENSOR_STORE, 0
    if isinstance(request, Reduce):
        operation, op = Operation.TENSOR_REDUCE, request.op
    return host.request(
        operation, mode=AccessMode(int(request.mode)), rank=len(request.coords),
        coords=[*request.coords, 0, 0, 0, 0][:5], global_address=place, reduction_op=op, **common,
    )  # fmt: skip


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def random_stores_are_right(dut) -> None:
    """Each store and reduction writes what the golden model writes, or gives its error."""
    host = host_of(dut)
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    await host.start()
    smem = np.zeros(host.params.smem_bytes, np.uint8)
    window = 8192
    smem[:window] = random_bytes(rng, window)
    await host.fill(smem[:window], smem.size - 8)
    modes = random_stores.HOPPER
    for number in range(int(os.environ["HOST_COUNT"])):
        while True:
            item = random_stores.random_item(
                rng, modes[number % len(modes)], random_loads.Arch.SM_90A, smem, 0, 0, STORES
            )
            if sources_are_in(item, window):
                break
        thread = host.rng.randrange(host.params.threads)
        host.memory.put(STORES, item.memory.tobytes())
        records = [
            store_record(host, item.request, number, thread),
            host.request(Operation.COMMIT_GROUP, thread=thread),
            host.request(Operation.WAIT_GROUP, thread=thread, request_id=number),
        ]
        await host.post(records)
        await host.take(CompletionKind.GROUP, number)
        if item.refusal is not None:
            error = await host.take(CompletionKind.ERROR, number)
            assert ErrorCode(error.code).name == item.refusal.code.name, item
        got = np.frombuffer(host.memory.get(STORES, GMEM_BYTES), np.uint8)
        wrong = np.flatnonzero(got != item.expected)
        assert not wrong.size, f"{wrong.size} bytes, from {wrong[0]:#x} on: {item}"
    assert host.completions == []


def sources_are_in(item: random_stores.Item, window: int) -> bool:
    """Return whether a store reads only the first bytes of shared memory."""
    smem = np.zeros(window, np.uint8)
    try:
        execute(item.request, ArrayMemory(item.memory.copy(), item.base), [smem])
    except TmaError as error:
        return item.refusal is not None and error.code == item.refusal.code
    return True


# Bad input


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def bad_accesses_are_refused(dut) -> None:
    """Each gives its error, changes nothing, and is followed by a request that succeeds."""
    host = host_of(dut)
    size = host.params.smem_bytes
    await host.start()
    window = 1 << WINDOW_BITS
    for address, value, error in (
        (Register.ID, 0, HostError.READ_ONLY),
        (Register.REQUEST_HEAD, 1, HostError.READ_ONLY),
        (0x50, 0, HostError.ADDRESS),
        (window - 4, 0, HostError.ADDRESS),
        (window + size, 0, HostError.ADDRESS),
        (2 * window - 4, 0, HostError.ADDRESS),
        (Register.REQUEST_BASE_LOW, REQUESTS, HostError.RING_STATE),
        (Register.COMPLETION_SIZE, 3, HostError.RING_STATE),
        (Register.REQUEST_TAIL, 64, HostError.RING_INDEX),
        (Register.COMPLETION_HEAD, 1 << 31, HostError.RING_INDEX),
    ):
        before = [await host.get(register) for register in Register]
        assert not await host.set(address, value)
        told = value if error is HostError.RING_INDEX else address
        assert await host.take_error() == (error, told)
        if error is HostError.ADDRESS:
            assert await host.get(address) is None
            assert await host.take_error() == (error, address)
        assert await host.set(Register.INTERRUPT_STATUS, 2)
        assert [await host.get(register) for register in Register] == before
        await succeed(host)
        assert await host.set(Register.INTERRUPT_STATUS, 1)
    assert not await host.set(Register.CONTROL, 0, count=2)
    assert await host.take_error() == (HostError.PARTIAL_WRITE, Register.CONTROL)
    await succeed(host)
    await host.close()
    for address, value, error in (
        (Register.REQUEST_BASE_LOW, REQUESTS + 32, HostError.RING_BASE),
        (Register.COMPLETION_BASE_LOW, COMPLETIONS + 8, HostError.RING_BASE),
        (Register.REQUEST_BASE_HIGH, 1, HostError.RING_BASE),
        (Register.REQUEST_SIZE, 16, HostError.RING_SIZE),
        (Register.COMPLETION_SIZE, 0, HostError.RING_SIZE),
    ):
        assert not await host.set(address, value)
        assert await host.take_error() == (error, value)
    assert not await host.set(Register.REQUEST_TAIL, 0)
    assert await host.take_error() == (HostError.RING_STATE, Register.REQUEST_TAIL)
    await host.open(6, 6)
    await succeed(host)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def bad_records_are_refused(dut) -> None:
    """Each gives a completion record, and is followed by a request that succeeds."""
    host = host_of(dut)
    params, rng = host.params, host.rng
    await host.start()
    reserved = [at for at in range(512) if reserved_bits(params) >> at & 1]
    good = host.request(Operation.COMMIT_GROUP, request_id=5)
    bad: list[tuple[int, HostError, int]] = [
        (good | 1 << at, HostError.RESERVED_BITS, at // 32) for at in rng.sample(reserved, 4)
    ]
    for operation in 0x0B, 0x23, 0xFF:
        bad.append((host.record(operation, request_id=5), HostError.OPERATION, operation))
    for mbarrier in params.smem_bytes, (1 << 24) - 8:
        for record in (
            host.barrier(BarrierOp.ARRIVE, mbarrier, request_id=5),
            host.request(Operation.BULK_LOAD, mbarrier=mbarrier, size=16, request_id=5),
        ):
            bad.append((record, HostError.MBARRIER, mbarrier))
    bad.append((host.barrier(BarrierOp.INIT, 12, request_id=5), HostError.MBARRIER, 12))
    for record, error, value in bad:
        await host.post([record])
        completion = await host.take(CompletionKind.REFUSED, 5)
        assert (HostError(completion.code), completion.value) == (error, value)
        await succeed(host)
    assert host.completions == []
    assert await host.get(Register.ERROR) == 0


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def faults_are_reported(dut) -> None:
    """Maps, lines, source lines of reductions, and barriers that fail."""
    host = host_of(dut)
    await host.start()
    page = IMAGE + 2 * PAGE
    host.memory.bad_pages = {page // PAGE}
    bulk = {"smem_address": 512, "size": 32, "mbarrier": 16}
    map_words = bytes(64)
    host.memory.put(MAPS, map_words)
    cases = [
        (Operation.TENSOR_LOAD, {"global_address": page + 64, "rank": 1}, ErrorCode.GMEM_FAULT),
        (Operation.TENSOR_LOAD, {"global_address": MAPS + 16, "rank": 1}, ErrorCode.MAP_FIELD),
        (Operation.TENSOR_LOAD, {"global_address": MAPS, "rank": 7}, ErrorCode.MAP_FIELD),
        (Operation.BULK_LOAD, {"global_address": page + 128, **bulk}, ErrorCode.GMEM_FAULT),
        (Operation.BULK_LOAD, {"global_address": LINE + 8, **bulk}, ErrorCode.BULK_ALIGN),
        (Operation.BULK_LOAD, {**bulk, "mbarrier": 20}, ErrorCode.MBAR_ALIGN),
        (Operation.BULK_STORE, {"global_address": page, **bulk}, ErrorCode.GMEM_FAULT),
        (
            Operation.BULK_REDUCE,
            {"global_address": page, "element_type": ElementType.U32, **bulk},
            ErrorCode.GMEM_FAULT,
        ),
        (
            Operation.BULK_REDUCE,
            {"element_type": ElementType.F32, "reduction_op": ReductionOp.AND, **bulk},
            ErrorCode.RED_TYPE,
        ),
    ]
    for operation, fields, code in cases:
        record = host.request(operation, request_id=9, byte_mask=0xFFFF, **fields)
        await host.post([record])
        error = await host.take(CompletionKind.ERROR, 9)
        assert ErrorCode(error.code) is code, (operation, fields)
        if code is ErrorCode.GMEM_FAULT:
            assert error.detail == Response.SLVERR.value
            assert error.value // PAGE == page // PAGE
        await succeed(host)
    # A phase that counts more arrivals than it expects locks the barrier.
    arrive = host.barrier(BarrierOp.ARRIVE_NO_COMPLETE, 24, size=5, global_address=1, request_id=9)
    await host.post([arrive])
    failed = await host.take(CompletionKind.BARRIER, 9)
    assert BarrierFault(failed.code) is not BarrierFault.NONE
    await succeed(host)
    assert host.completions == []


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def rings_that_fail(dut) -> None:
    """A record that cannot be read halts the requests, one that cannot be written is lost."""
    host = host_of(dut)
    await host.start()
    assert await host.set(Register.INTERRUPT_ENABLE, 2)
    for _ in range(3):
        await succeed(host)
    assert not dut.irq.value
    # Half of the ring is in a page of its own.
    await host.close()
    offset = PAGE - 32 * RECORD_BYTES
    await host.open(6, 6, offset)
    index = 32
    for _ in range(5):
        await host.post([host.request(Operation.COMMIT_GROUP)] * 5)
    host.memory.bad_pages = {(REQUESTS + PAGE) // PAGE}
    await host.post([host.request(Operation.COMMIT_GROUP)] * (index - 25 + 4))
    await host.until(2, 2)
    await ClockCycles(dut.clk, 50)
    assert dut.irq.value
    assert await host.get(Register.REQUEST_HEAD) == index
    assert await host.take_error() == (HostError.REQUEST_RING, index)
    assert await host.set(Register.INTERRUPT_STATUS, 3)
    assert not dut.irq.value
    host.memory.bad_pages = set()
    await ClockCycles(dut.clk, 100)
    assert await host.get(Register.STATUS) & 7 == 7  # halted until the rings are enabled anew
    await host.close()
    await host.open(6, 6)
    await succeed(host)

    host.memory.bad_pages = {COMPLETIONS // PAGE}
    index = await host.get(Register.COMPLETION_TAIL)
    await host.post([host.record(0xFF)])
    for _ in range(200):
        if await host.get(Register.ERROR):
            break
    assert await host.take_error() == (HostError.COMPLETION_RING, index)
    assert await host.get(Register.COMPLETION_TAIL) == index + 1
    host.memory.bad_pages = set()
    host.answers.advance()
    await succeed(host)


# Order and state


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def barriers_and_waits(dut) -> None:
    """Waits that end by an arrival, by their time limit and by an error; results without them."""
    host = host_of(dut)
    await host.start()
    word = host.barrier(BarrierOp.INIT, 64, size=2, global_address=(1 << 20) - 2 << 1
                        | (1 << 20) - 2 << 43)  # fmt: skip
    parity = BarrierOp.TRY_WAIT_PARITY
    wait = {"notify": 1, "coords": [5000, 0, 0, 0, 0]}
    await host.post([word, host.barrier(parity, 64, request_id=1, **wait)])
    await host.post([host.barrier(BarrierOp.ARRIVE, 64, size=1, request_id=2, notify=1)])
    result = await host.take(CompletionKind.BARRIER, 2)
    assert (result.code, result.detail) == (0, 0)
    assert host.completions == []
    await host.post([host.barrier(BarrierOp.ARRIVE, 64, size=1, request_id=3)])
    assert (await host.take(CompletionKind.BARRIER, 1)).detail == 1
    test = BarrierOp.TEST_WAIT_PARITY
    for number, phase in enumerate((1, 0)):
        await host.post([host.barrier(test, 64, size=number, request_id=4, notify=1)])
        assert (await host.take(CompletionKind.BARRIER, 4)).detail == phase
    limited = host.barrier(parity, 64, size=1, request_id=5, notify=1, coords=[300, 0, 0, 0, 0])
    await host.post([limited])
    expired = await host.take(CompletionKind.BARRIER, 5)
    assert (expired.detail, expired.code) == (0, 0)
    await host.post([host.barrier(parity, 64, size=1, request_id=6, **wait)])
    await host.post([host.barrier(BarrierOp.ARRIVE, 64, size=(1 << 20) - 1, request_id=7)])
    assert (await host.take(CompletionKind.BARRIER, 6)).code == BarrierFault.LOCKED.value
    assert (await host.take(CompletionKind.BARRIER, 7)).code != 0
    assert host.completions == []
    await host.until(1)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def fences(dut) -> None:
    """A store behind a load, in the same shared memory, needs nothing but its fence."""
    host = host_of(dut)
    await host.start()
    for number in range(8):
        source, size = LINE + 0x1000 * number, 2048
        target = STORES + 0x1000 * number
        await host.post(
            [
                host.barrier(BarrierOp.INIT, 8, global_address=(1 << 20) - 1 << 1
                             | (1 << 20) - 1 << 43),
                host.request(Operation.BULK_LOAD, global_address=source, size=size, mbarrier=8,
                             smem_address=1024),
                host.request(Operation.BULK_STORE, fence=1, global_address=target, size=size,
                             smem_address=1024, byte_mask=0xFFFF),
                host.record(MapOperation.INVALIDATE_ALL_MAPS.value),
                host.request(Operation.COMMIT_GROUP, fence=1, request_id=number),
                host.record(0xFF, request_id=number),
            ]
        )  # fmt: skip
        await host.take(CompletionKind.REFUSED, number)
        assert host.memory.get(target, size) == host.memory.get(source, size)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def shared_memory_and_small_rings(dut) -> None:
    """A host writes and reads words and bytes, while loads fill other shared memory."""
    host = host_of(dut)
    rng, window = host.rng, 1 << WINDOW_BITS
    await host.start(1, 1)
    host.memory.bytes[:] = 0
    words = bytearray(512)
    data = bytes(await host.save(IMAGE, 512, 4096))
    words[:] = data
    for _ in range(15):
        load = cocotb.start_soon(succeed(host))
        for _ in range(12):
            at, count = rng.randrange(512), rng.randrange(1, 5)
            count = min(count, 4 - at % 4)
            value = rng.getrandbits(8 * count)
            if rng.random() < 0.5:
                assert await host.set(window + 4096 + at, value, count)
                words[at : at + count] = value.to_bytes(count, "little")
            else:
                at &= ~3
                got = await host.get(window + 4096 + at)
                assert got == int.from_bytes(words[at : at + 4], "little")
        await load
    assert bytes(await host.save(IMAGE, 512, 4096)) == words


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def a_host_that_is_slow(dut) -> None:
    """With a full completion ring nothing is lost, and the unit is not idle."""
    host = host_of(dut)
    await host.start(5, 2)
    await host.post([host.record(0xFF, request_id=number) for number in range(20)])
    await ClockCycles(dut.clk, 2000)
    assert await host.get(Register.COMPLETION_TAIL) == 3
    assert await host.get(Register.STATUS) & 1 == 0
    assert host.completions == []
    for number in range(20):
        await host.take(CompletionKind.REFUSED, number)
    await host.until(1)
    assert await host.get(Register.COMPLETION_TAIL) == 20 % 4


async def count_of(host: Host, counter: Counter) -> int:
    """Return a count of the unit."""
    assert await host.set(MonitorRegister.COUNTER_SELECT, counter.value)
    low = await host.get(MonitorRegister.COUNTER_LOW)
    return low | await host.get(MonitorRegister.COUNTER_HIGH) << 32


async def events_of(host: Host) -> list:
    """Take the events of the unit, as many as there are."""
    events = []
    while await host.get(MonitorRegister.TRACE_STATUS):
        words = [await host.get(register) for register in WORDS]
        events.append(EventRecord.from_bits(sum(word << 32 * n for n, word in enumerate(words))))
        assert await host.set(MonitorRegister.TRACE_STATUS, 1)
    return events


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def counters_and_events(dut) -> None:
    """A host reads by registers what a load and a store did."""
    host = host_of(dut)
    await host.start()
    assert await host.set(MonitorRegister.COUNTER_CONTROL, 2)
    size = 128
    record = host.request(
        Operation.BULK_LOAD, global_address=LINE, size=size, smem_address=256, mbarrier=8
    )
    await host.load(record, 8, size)
    events = await events_of(host)
    await host.save(IMAGE + PAGE, size, 256)
    await host.until(1)
    assert await host.set(MonitorRegister.COUNTER_CONTROL, 1)
    while not await host.get(MonitorRegister.COUNTER_CONTROL) & 4:
        pass
    lines = size // host.params.line_bytes
    expected = {
        Counter.TENSOR_LOADS: 0, Counter.BULK_LOADS: 1, Counter.BULK_STORES: 1,
        Counter.GROUP_OPERATIONS: 2, Counter.REFUSED: 0, Counter.LOADS_ENDED: 1,
        Counter.STORES_ENDED: 1, Counter.ERROR_RECORDS: 0, Counter.LINES_READ: lines,
        Counter.LINES_WRITTEN: lines, Counter.PIECES_WRITTEN: size // 16,
        Counter.PIECES_READ: size // 16,
    }  # fmt: skip
    assert {counter: await count_of(host, counter) for counter in expected} == expected
    assert await count_of(host, Counter.CYCLES) == await count_of(host, Counter.CYCLES) > 0
    kinds = [EventKind(event.kind) for event in events if EventKind(event.kind) != EventKind.SAMPLE]
    assert kinds[0] == EventKind.ACCEPTED
    assert events[0].argument == Operation.BULK_LOAD.value
    assert {EventKind.OPENED, EventKind.FIRST_LINE, EventKind.ENDED} <= set(kinds)


def any_record(host: Host) -> int:
    """Return a record with an operation that exists; its waits are short."""
    rng = host.rng
    bits = rng.getrandbits(512) & ~reserved_bits(host.params)
    operations = (
        *range(Operation.WAIT_GROUP_READ.value + 1),
        *(BARRIER_OPERATIONS + operation.value for operation in BarrierOp),
        *(operation.value for operation in MapOperation),
    )
    address = MAPS + 64 * rng.randrange(64), rng.getrandbits(32) & ~15, rng.getrandbits(64)
    operation = rng.choice(operations)
    large = 12 if operation == Operation.BULK_PREFETCH.value else 21  # bits of a size
    small = {
        "operation": operation,
        "global_address": rng.choice(address),
        "smem_address": rng.choice((rng.getrandbits(24), 128 * rng.randrange(200))),
        "mbarrier": rng.choice((rng.getrandbits(24), 8 * rng.randrange(64))),
        "size": rng.choice((rng.getrandbits(large), 16 * rng.randrange(20))),
    }
    for name, value in small.items():
        field = record_layout(host.params)[name]
        mask = (1 << field.width) - 1 << field.offset
        bits = bits & ~mask | value << field.offset
    coords = record_layout(host.params)["coords"].offset
    limit = (1 << 32) - 1 << coords
    return bits & ~limit | rng.randrange(500) << coords


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def any_records(dut) -> None:
    """Records with any bits in their fields: nothing hangs, and a request succeeds behind them."""
    host = host_of(dut)
    rng = host.rng
    await host.start()
    host.memory.put(MAPS, rng.randbytes(64 * 64))
    for _ in range(int(os.environ["HOST_COUNT"])):
        records = [any_record(host) for _ in range(rng.randrange(1, 12))]
        await host.post(records)
        await host.poll()
        await succeed(host, 1024)
        host.completions.clear()
    await host.until(1)
