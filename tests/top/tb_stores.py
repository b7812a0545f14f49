"""Simulated tests of stores, reductions and bulk groups: random requests against the golden model,
and single rules.

Environment variables: ``STORES_MODELS`` is a preset of ``sim_tb.testbench.models``,
``STORES_COUNT`` the number of random requests, ``STORES_MODES`` a list of their modes,
``STORES_EVERY`` the step between the kinds of requests in ``every_kind``.
"""

import os
from collections import Counter
from dataclasses import replace
from itertools import count, product
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden import Arch, DataType, ReductionOp, TensorMap, TmaError
from hw.layouts.axi import Response
from hw.params import WARP
from sim_tb.coverage.kinds import AnyKind, Kind
from sim_tb.coverage.store_kinds import ReductionKind, StoreKind
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import PRESETS, Models, Timing
from sim_tb.testbench.results import ErrorRecord
from tests.golden.random_requests import Rng, pick, random_bytes
from tests.top.every_kind import reduction_of, store_of
from tests.top.far_stores import far_store
from tests.top.random_stores import (
    APART,
    HOPPER,
    LATER,
    LOWEST,
    WINDOW,
    Item,
    StoreRequest,
    item_of,
    random_item,
)
from tests.unit_arch import unit_arch

THREADS = 4
SOURCE = 0x400
TARGET, OTHER = 0x10_0000, 0x20_0000
LINE = 128
FAR = 60
"""Stores of ``far_and_large``."""
BATCH = 16
"""Requests of ``every_kind`` that are in flight together."""


def arch_of(env: Environment) -> Arch:
    """Return the architecture that the unit was built for."""
    return unit_arch(env.interface.parameters)


def modes_of(env: Environment) -> list[str]:
    """Return the modes in ``STORES_MODES``, by default all modes of the unit."""
    chosen = os.environ.get("STORES_MODES", "")
    later = LATER if env.interface.parameters["gather4"] else ()
    return chosen.split(",") if chosen else [*HOPPER, *later]


def threads_of(env: Environment) -> int:
    """Return the number of threads that store, each from its own window of shared memory."""
    return min(THREADS, env.interface.parameters["threads"], max(1, env.smem.size // WINDOW))


# Random requests of several threads


def every(rng: Rng, cross: type[AnyKind], arch: Arch, apart: int) -> tuple[AnyKind, ...]:
    """Return every ``apart``-th kind of a cross, from a random one on."""
    return cross.every(arch)[int(rng.integers(apart)) :: apart]


class Thread:
    """A thread that commits groups of stores, waits for some of them, and compares the memory."""

    def __init__(self, env: Environment, number: int, numbers: "count[int]") -> None:
        self.env = env
        self.number = number
        self.thread = int(
            env.rng("threads").permutation(env.interface.parameters["threads"])[number]
        )
        self.numbers = numbers
        self.rng = env.rng(f"thread {number}")
        self.groups: list[list[Item]] = []
        self.refused: list[tuple[int, TmaError]] = []
        bits = env.interface.parameters["address_bits"]
        self.lowest = min(LOWEST, 1 << (bits - 1))
        if bits == 64:  # so that each bit of an address has both values
            self.lowest += int(self.rng.integers(1 << 18)) << 44
        self.window = env.smem[number * WINDOW : (number + 1) * WINDOW]

    async def run(self, requests: int) -> None:
        """Submit ``requests`` requests, in groups of up to four."""
        modes, arch = modes_of(self.env), arch_of(self.env)
        while requests > 0:
            group = []
            for _ in range(min(int(self.rng.integers(0, 5)), requests)):
                mode, number = pick(self.rng, *modes), next(self.numbers)
                smem = self.env.smem
                item = random_item(self.rng, mode, arch, smem, number, self.number, self.lowest)
                name = item.submit(self.env, self.thread)
                if item.refusal is not None:
                    self.refused.append((name, item.refusal))
                group.append(item)
            requests -= max(len(group), 1)
            self.env.requests.commit_group(self.thread)
            self.groups.append(group)
            match self.rng.integers(4):
                case 0:
                    await self.wait(int(pick(self.rng, 0, 1, 2, self.rng.integers(256))))
                case 1:
                    await self.reuse()
        await self.wait(0)

    async def wait(self, pending: int) -> None:
        """Wait for all but the youngest ``pending`` groups; compare the memory of the others."""
        await self.env.requests.wait_group(pending, thread=self.thread)
        while len(self.groups) > pending:
            for item in self.groups.pop(0):
                item.check(self.env)

    async def reuse(self) -> None:
        """Wait until the unit has read the window, and fill it with other bytes."""
        await self.env.requests.wait_group(0, read=True, thread=self.thread)
        self.window[:] = random_bytes(self.rng, self.window.size)


@cocotb.test()
async def random_stores(dut: Any) -> None:
    """Stores of several threads in flight: each wait ends when exactly their bytes are written."""
    env = await Environment.start(dut, PRESETS[os.environ["STORES_MODELS"]], background="fault")
    cocotb.log.info("seed %d", env.seed)
    env.smem[:] = random_bytes(env.rng("smem"), env.smem.size)
    env.requests.number_from(int(env.rng("ids").integers(1 << 16)))
    numbers = count()
    threads = [Thread(env, number, numbers) for number in range(threads_of(env))]
    share = -(-int(os.environ["STORES_COUNT"]) // len(threads))
    for task in [cocotb.start_soon(thread.run(share)) for thread in threads]:
        await task
    await env.idle()
    refused = Counter(
        (name, error.code.value, error.dim, error.value & (1 << 64) - 1)
        for thread in threads
        for name, error in thread.refused
    )
    errors = Counter((e.request_id, e.code, e.dim, e.value) for e in env.errors.take_all())
    assert errors == refused, (errors - refused, refused - errors)


@cocotb.test()
async def far_and_large(dut: Any) -> None:
    """Boxes whose rows are far apart, and large ones, from anywhere in shared memory.

    Of some boxes a line cannot be written, which gives an error record.
    """
    env = await Environment.start(dut, PRESETS["rough"], background="fault")
    rng, arch, parameters = env.rng("far"), arch_of(env), env.interface.parameters
    env.requests.number_from(int(rng.integers(1 << 16)))
    for _ in range(FAR):
        env.smem[:] = random_bytes(rng, env.smem.size)
        store = far_store(rng, env.smem, arch, env)
        lines = store.single_lines(parameters["line_bytes"])
        missing = pick(rng, *lines) if lines and rng.random() < 0.5 else None
        await store.run(env, int(rng.integers(parameters["threads"])), missing)


@cocotb.test()
async def all_threads_wait(dut: Any) -> None:
    """More threads wait for their groups at a time than waits can be stored."""
    env, _ = await start(dut)
    threads = min(env.interface.parameters["threads"], 64)
    target = place(env, TARGET, 128 * threads)
    waits = []
    for thread in range(threads):
        at = 128 * thread
        env.requests.bulk_store(TARGET + at, SOURCE + at, 128, thread=thread)
        env.requests.commit_group(thread)
        waits.append(cocotb.start_soon(env.requests.wait_group(0, thread=thread)))
    for wait in waits:
        await wait
    assert np.array_equal(target, env.smem[SOURCE:][: target.size])


@cocotb.test()
async def every_kind(dut: Any) -> None:
    """A store and a reduction of each kind that coverage distinguishes, or of some of them."""
    env = await Environment.start(dut, PRESETS[os.environ["STORES_MODELS"]], background="fault")
    rng, arch = env.rng("every kind"), arch_of(env)
    env.smem[:] = random_bytes(rng, env.smem.size)
    apart = int(os.environ.get("STORES_EVERY", "1"))
    requests: list[tuple[Kind, StoreRequest]] = [
        *((kind, store_of(rng, kind)) for kind in every(rng, StoreKind, arch, apart)),
        *((kind, reduction_of(rng, kind)) for kind in every(rng, ReductionKind, arch, apart)),
    ]
    rng.shuffle(requests)
    for start in range(0, len(requests), BATCH):
        items = []
        for number, (kind, request) in enumerate(requests[start : start + BATCH]):
            assert type(kind).of(request, arch) == kind
            offset = 128 * int(rng.integers(128))
            request = replace(request, smem_address=offset)
            items.append(item_of(rng, request, arch, env.smem, LOWEST + 2 * number * APART))
            items[-1].submit(env, 0)
        env.requests.commit_group(0)
        await env.requests.wait_group(0, thread=0)
        for item in items:
            item.check(env)
    assert not env.errors


@cocotb.test()
async def copies(dut: Any) -> None:
    """Threads copy matrices through shared memory: loads and stores are in flight together."""
    env = await Environment.start(dut, PRESETS[os.environ["STORES_MODELS"]], background="fault")
    rng = env.rng("copies")
    rows = 40 * THREADS
    a = random_bytes(rng, rows * 256)
    b = np.zeros_like(a)
    env.gmem.place(TARGET, a)
    env.gmem.place(OTHER, b)
    maps = [env.descriptors.place(matrix(address, 128, rows, 8)) for address in (TARGET, OTHER)]

    async def copy(thread: int) -> None:
        buffers = [thread * WINDOW + 4096 * (1 + k) for k in range(3)]
        barriers = [thread * WINDOW + 8 * k for k in range(3)]
        for barrier in barriers:
            await env.barriers.command("INIT", barrier, 1)
        first = range(thread * 40, thread * 40 + 40, 8)
        for step, row in enumerate(first):
            k = step % 3
            await env.requests.wait_group(2, read=True, thread=thread)
            await env.barriers.command("ARRIVE_EXPECT_TX", barriers[k], 2048)
            env.requests.load(maps[0], (0, row), buffers[k], barriers[k])
            await env.barriers.wait(barriers[k], step // 3 & 1)
            env.requests.store(maps[1], (0, row), buffers[k], thread=thread)
            env.requests.commit_group(thread)
        await env.requests.wait_group(0, thread=thread)
        there = slice(thread * 40 * 256, (thread + 1) * 40 * 256)
        assert np.array_equal(a[there], b[there])

    tasks = [cocotb.start_soon(copy(thread)) for thread in range(threads_of(env))]
    for task in tasks:
        await task
    assert not env.errors


def matrix(
    address: int, columns: int, rows: int, box: int, width: int | None = None, **fields: Any
) -> TensorMap:
    """Return a map of a dense u16 matrix with boxes of ``box`` rows and ``width`` columns."""
    shape = (columns, rows), (2 * columns,), (width or columns, box)
    return TensorMap.tiled(DataType.UINT16, address, *shape, **fields)


# Rules


async def start(dut: Any, models: Models | None = None) -> tuple[Environment, Rng]:
    """Start with random shared memory and no arrays; by default stores take 150 to 450 clocks."""
    models = models or Models(stores=Timing.random(150, 450))
    logs = [LogKind.STORE, LogKind.READ, LogKind.PERFORMED, LogKind.LINE]
    env = await Environment.start(dut, models, background="fault", logs=logs)
    rng = env.rng("rules")
    env.smem[:] = rng.integers(0, 256, env.smem.size, dtype=np.uint8)
    return env, rng


def place(env: Environment, address: int, size: int) -> NDArray[np.uint8]:
    """Place an array of zeros at ``address``; return it."""
    array = np.zeros(size, np.uint8)
    env.gmem.place(address, array)
    return array


@cocotb.test()
async def read_is_before_done(dut: Any) -> None:
    """``wait_group.read`` ends after the reads of shared memory, ``wait_group`` after writes."""
    env, _ = await start(dut)
    target = place(env, TARGET, 8192)
    before = env.smem[SOURCE : SOURCE + 8192].copy()
    env.requests.bulk_store(TARGET, SOURCE, 8192)
    env.requests.commit_group()
    read = await env.requests.wait_group(0, read=True)
    assert env.log(LogKind.READ).size == 8192 // LINE
    assert env.log(LogKind.PERFORMED).size == 0
    env.smem[SOURCE : SOURCE + 8192] = 0
    done = await env.requests.wait_group(0)
    assert env.log(LogKind.PERFORMED).size == 8192 // LINE
    assert np.array_equal(target, before)
    last = int(env.log(LogKind.PERFORMED)["cycle"].max())
    assert read < last < done < last + 20


@cocotb.test()
async def groups_are_the_threads_own(dut: Any) -> None:
    """A wait concerns only the groups of its thread, and only those older than the youngest n."""
    env, _ = await start(dut)
    target = place(env, TARGET, 1 << 16)
    sizes = (16384, 16, 2048)
    at = 0
    for size in sizes:
        env.requests.bulk_store(TARGET + at, SOURCE + at, size, thread=1)
        env.requests.commit_group(1)
        at += size
    env.requests.commit_group(2)
    assert await env.requests.wait_group(0, thread=2) < 100
    ends = []
    for pending in (200, 3, 2, 1, 0):
        ends.append(await env.requests.wait_group(pending, thread=1))
        there = sum(sizes[: max(3 - pending, 0)])
        assert np.array_equal(target[:there], env.smem[SOURCE : SOURCE + there])
    assert ends == sorted(ends)
    assert ends[1] < 100 < ends[2]


@cocotb.test()
async def a_load_joins_until_its_map_is_read(dut: Any) -> None:
    """A load with ``joins_group`` is in the group until its tensor map has been read.

    A wait behind it ends long before the data arrives.
    """
    models = Models(Timing.fixed(2000), Timing.fixed(400))
    env, _ = await start(dut, models)
    source = place(env, TARGET, 4096)
    source[:] = 7
    tensor_map = env.descriptors.place(matrix(TARGET, 128, 16, 16))
    await env.barriers.command("INIT", 0, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", 0, 4096)
    env.requests.load(tensor_map, (0, 0), SOURCE, 0, thread=3, joins_group=True)
    env.requests.commit_group(3)
    read = await env.requests.wait_group(0, read=True, thread=3)
    done = await env.requests.wait_group(0, thread=3)
    assert 400 < read < done < 500
    assert await env.barriers.wait(0, 0) > 2000
    # Neither a refused load nor a load that does not join delays the wait.
    env.requests.load(tensor_map, (1, 0), SOURCE, 0, thread=3, joins_group=True)
    env.requests.load(tensor_map, (0, 0), SOURCE, 0)
    env.requests.commit_group(3)
    began = env.cycle
    assert await env.requests.wait_group(0, thread=3) < began + 50
    assert (await env.errors.take_next()).cause == "COORD_ALIGN"
    # A refused load leaves its group to the next one.
    env.requests.load(tensor_map, (0, 0), SOURCE, 0, thread=3, joins_group=True)
    env.requests.commit_group(3)
    began = env.cycle
    assert await env.requests.wait_group(0, thread=3) < began + 50


@cocotb.test()
async def groups_are_left_in_the_same_clocks(dut: Any) -> None:
    """Loads and refused stores leave their groups in the clocks in which stores complete."""
    latency, count = 500, 64
    env, _ = await start(dut, Models(Timing.fixed(latency)))
    target = place(env, TARGET, 16 * count)
    tensor_map = env.descriptors.place(TensorMap.tiled("u8", TARGET, [16], [], [16]))
    await env.barriers.command("INIT", 0, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", 0, 16 * latency)
    for number in range(count):
        env.requests.bulk_store(TARGET + 16 * number, SOURCE + 16 * number, 16, thread=number % 8)
    refused = set()
    for _ in range(latency):
        refused.add(env.requests.bulk_store(TARGET + 8, SOURCE, 16))
        env.requests.load(tensor_map, (0,), 0x80, 0, thread=WARP, joins_group=True)
    for thread in (*range(8), WARP):
        env.requests.commit_group(thread)
        await env.requests.wait_group(0, thread=thread)
    await env.barriers.wait(0, 0)
    await env.idle()
    assert np.array_equal(target, env.smem[SOURCE:][: 16 * count])
    errors = env.errors.take_all()
    assert {error.request_id for error in errors} == refused
    assert {error.cause for error in errors} == {"BULK_ALIGN"}


@cocotb.test()
async def refused_stores_leave_nothing(dut: Any) -> None:
    """A refused store reads nothing and writes nothing, and its group completes."""
    env, _ = await start(dut)
    target = place(env, TARGET, 4096)
    tensor_map = env.descriptors.place(matrix(TARGET, 128, 16, 16))
    env.requests.store(tensor_map, (-8, 0), SOURCE)
    env.requests.bulk_store(TARGET + 8, SOURCE, 16)
    env.requests.store(tensor_map, (0, 0), SOURCE, op=ReductionOp.ADD)
    env.requests.commit_group()
    await env.requests.wait_group(0)
    await env.idle()
    causes = sorted(error.cause for error in env.errors.take_all())
    assert causes == ["BULK_ALIGN", "COORD_NEG", "RED_TYPE"]
    assert not target.any()
    assert env.log(LogKind.STORE).size == env.log(LogKind.READ).size == 0


@cocotb.test()
async def unwritable_lines_are_an_error(dut: Any) -> None:
    """Lines that cannot be written give one error record, which names the last of them.

    All other lines are written, and the group completes.
    """
    env, _ = await start(dut, Models())
    target = place(env, TARGET, 2048)
    for reduction in None, (DataType.UINT32, ReductionOp.ADD):
        target[:] = 0
        env.requests.bulk_store(TARGET + 8, SOURCE, 16)
        name = env.requests.bulk_store(TARGET - 256, SOURCE, 4096, reduction=reduction)
        env.requests.bulk_store(TARGET + 16, SOURCE, 0)
        env.requests.commit_group()
        await env.requests.wait_group(0)
        assert np.array_equal(target, env.smem[SOURCE + 256 :][:2048])
        assert (await env.errors.take_next()).cause == "BULK_ALIGN"
        error = await env.errors.take_next()
        assert isinstance(error, ErrorRecord)
        assert (error.request_id, error.cause) == (name, "GMEM_FAULT")
        parameters = env.interface.parameters
        assert error.value == TARGET - 256 + 4096 - parameters["line_bytes"]
        assert error.dim == (Response.DECERR.value if parameters["axi_data_bits"] else 0)
        assert not env.errors


@cocotb.test()
async def padding_of_a_row_is_written(dut: Any) -> None:
    """Dimension 0 is written in whole pieces of 16 bytes: five floats of a row take eight.

    Bytes between the rows stay.
    """
    env, _ = await start(dut)
    target = place(env, TARGET, 1024)
    shape = (5, 6), (64,), (8, 4)
    tensor_map = TensorMap.tiled(DataType.FLOAT32, TARGET, *shape)
    env.requests.store(env.descriptors.place(tensor_map), (0, 4), SOURCE)
    env.requests.commit_group()
    await env.requests.wait_group(0)
    expected = np.zeros_like(target)
    for row in (4, 5):
        expected[64 * row :][:32] = env.smem[SOURCE + 32 * (row - 4) :][:32]
    assert np.array_equal(target, expected)


@cocotb.test()
async def corners_are_limited(dut: Any) -> None:
    """An im2col store with a corner outside the tensor is refused, in each dimension."""
    env, _ = await start(dut)
    for rank, j, corner in product((3, 4, 5), range(3), (0, 1)):
        if j >= rank - 2:
            continue
        corners = [[0] * (rank - 2), [0] * (rank - 2)]
        corners[corner][j] = (-1, 1)[corner]
        dims = (8, *[4] * (rank - 1))
        strides = [16 * 4**i for i in range(rank - 1)]
        tensor_map = TensorMap.im2col(DataType.UINT16, TARGET, dims, strides, *corners, 8, 4)
        env.requests.store(env.descriptors.place(tensor_map), (0,) * rank, SOURCE, mode="IM2COL")
        error = await env.errors.take_next()
        value = (-1, 1)[corner] & (1 << 64) - 1
        assert (error.cause, error.dim, error.value) == ("IM2COL_CORNER", 1 + j, value)


@cocotb.test()
async def slots_and_tags_are_used_again(dut: Any) -> None:
    """Two threads submit more stores of one piece than the unit can have in flight."""
    for memory in Timing.random(1, 300), Timing.fixed(900):
        env, _ = await start(dut, Models(stores=memory))
        parameters = env.interface.parameters
        stores = 3 * max(parameters["requests_in_flight"], parameters["tags"])
        target = place(env, TARGET, 16 * stores)
        for number in range(stores):
            at = 16 * number
            env.requests.bulk_store(TARGET + at, SOURCE + at, 16, thread=number & 1)
        for thread in 0, 1:
            env.requests.commit_group(thread)
        for thread in 0, 1:
            await env.requests.wait_group(0, thread=thread)
        assert np.array_equal(target, env.smem[SOURCE : SOURCE + 16 * stores])
        clocks = np.ptp(env.log(LogKind.STORE)["cycle"])
        assert (clocks < 1.05 * stores) == (memory.high < parameters["tags"])


# Ordering and hazards


@cocotb.test()
async def two_stores_to_the_same_bytes(dut: Any) -> None:
    """Two stores without a wait are unordered: each line has the bytes of one of them.

    With a wait in between, the bytes of the second store stay.
    """
    env, _ = await start(dut)
    size = 32 * LINE
    target = place(env, TARGET, size)
    first, second = (env.smem[at : at + size] for at in (SOURCE, SOURCE + size))
    seen = set()
    for _ in range(4):
        env.requests.bulk_store(TARGET, SOURCE, size)
        env.requests.bulk_store(TARGET, SOURCE + size, size, thread=1)
        env.requests.commit_group()
        env.requests.commit_group(1)
        await env.requests.wait_group(0)
        await env.requests.wait_group(0, thread=1)
        for at in range(0, size, LINE):
            line = slice(at, at + LINE)
            winners = [np.array_equal(target[line], each[line]) for each in (first, second)]
            assert any(winners)
            seen.add(tuple(winners))
    assert len(seen) == 2, "the memory reorders, so both results must occur"
    for _ in range(4):
        for at in (SOURCE, SOURCE + size):
            env.requests.bulk_store(TARGET, at, size)
            env.requests.commit_group()
            await env.requests.wait_group(0)
        assert np.array_equal(target, second)


@cocotb.test()
async def a_load_behind_a_store(dut: Any) -> None:
    """A load behind a store reads old or new bytes in each piece; behind a full wait, new bytes."""
    env, rng = await start(dut, Models(stores=Timing.random(1, 300)))
    size, back, barrier = 32 * LINE, 0x8000, 0x40
    target = place(env, TARGET, size)
    phases = count()

    async def load() -> NDArray[np.uint8]:
        parity = next(phases) & 1
        await env.barriers.command("ARRIVE_EXPECT_TX", barrier, size)
        env.requests.bulk_load(TARGET, back, size, barrier)
        await env.barriers.wait(barrier, parity)
        return env.smem[back : back + size].copy()

    await env.barriers.command("INIT", barrier, 1)
    seen = set()
    for wait in (False, True) * 3:
        old = target.copy()
        env.smem[SOURCE : SOURCE + size] = rng.integers(0, 256, size, dtype=np.uint8)
        new = env.smem[SOURCE : SOURCE + size].copy()
        env.requests.bulk_store(TARGET, SOURCE, size)
        env.requests.commit_group()
        if wait:
            await env.requests.wait_group(0)
            assert np.array_equal(await load(), new)
            continue
        await env.cycles(100)
        got = await load()
        for at in range(0, size, 16):
            piece = slice(at, at + 16)
            is_new = np.array_equal(got[piece], new[piece])
            assert is_new or np.array_equal(got[piece], old[piece])
            seen.add(is_new)
        await env.requests.wait_group(0)
    assert seen == {False, True}, "the memory reorders, so both results must occur"


@cocotb.test()
async def shared_memory_is_written_again_behind_a_read_wait(dut: Any) -> None:
    """A kernel may overwrite shared memory after a store and ``wait_group.read``."""
    env, rng = await start(dut, Models(smem=Timing.fixed(30)))
    size = 64 * LINE
    target = place(env, TARGET, 8 * size)
    expected = []
    for turn in range(8):
        env.smem[SOURCE : SOURCE + size] = rng.integers(0, 256, size, dtype=np.uint8)
        expected.append(env.smem[SOURCE : SOURCE + size].copy())
        env.requests.bulk_store(TARGET + turn * size, SOURCE, size)
        env.requests.commit_group()
        await env.requests.wait_group(0, read=True)
    await env.requests.wait_group(0)
    assert np.array_equal(target, np.concatenate(expected))


@cocotb.test()
async def reductions_to_one_address(dut: Any) -> None:
    """Each element is updated atomically: no addition of several threads is lost."""
    env, rng = await start(dut, Models(stores=Timing.random(1, 300)))
    size = 4 * LINE
    target = place(env, TARGET, size).view(np.uint32)
    sums = np.zeros_like(target)
    for turn in range(64):
        at = SOURCE + 16 * int(rng.integers(0, 256))
        part = 16 * int(rng.integers(1, size // 16 + 1))
        to = 16 * int(rng.integers(0, (size - part) // 16 + 1))
        reduction = DataType.UINT32, ReductionOp.ADD
        thread = turn % 8
        env.requests.bulk_store(TARGET + to, at, part, reduction=reduction, thread=thread)
        env.requests.commit_group(thread)
        sums[to // 4 :][: part // 4] += env.smem[at : at + part].view(np.uint32)
    for thread in range(8):
        await env.requests.wait_group(0, thread=thread)
    assert np.array_equal(target, sums)


# Rate


@cocotb.test()
async def a_line_a_clock_both_ways(dut: Any) -> None:
    """Loads and stores of boxes of 8 KiB run at a line a clock each, alone and together."""
    models = Models()
    boxes, rows = 24, 64
    spent = {}
    for way in ("load", "store", "both"):
        env, _ = await start(dut, models)
        size = boxes * rows * 256
        source = place(env, TARGET, size)
        place(env, 0x40_0000, size)
        source[:] = 3
        load_map, store_map = (
            env.descriptors.place(matrix(address, 128, boxes * rows, rows, 64, swizzle="128B"))
            for address in (TARGET, 0x40_0000)
        )
        await env.barriers.command("INIT", 0, 1)
        await env.barriers.command(
            "ARRIVE_EXPECT_TX", 0, boxes * rows * LINE if way != "store" else 0
        )
        for number in range(boxes):
            if way != "store":
                env.requests.load(load_map, (0, number * rows), 0x2000 * (1 + number % 4), 0)
            if way != "load":
                env.requests.store(store_map, (0, number * rows), 0x10000 + 0x2000 * (number % 4))
        env.requests.commit_group()
        await env.barriers.wait(0, 0)
        await env.requests.wait_group(0)
        for kind, present in (LogKind.LINE, way != "store"), (LogKind.STORE, way != "load"):
            cycles = env.log(kind)["cycle"]
            assert cycles.size == boxes * rows * present
            if present:
                spent[way, kind] = int(cycles[-1] - cycles[0]) + 1
                assert spent[way, kind] <= boxes * rows * 1.01, (way, kind, spent)
        assert not env.errors
    cocotb.log.info("clocks for %d lines: %s", boxes * rows, spent)
