"""Benches of the real unit: random loads against the golden model, and the rules about faults and
tensor maps. ``LOADS_MODELS`` is a preset of ``sim_tb.models``, ``LOADS_COUNT`` a number of loads.
"""

import os
from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden import (
    AccessMode,
    BulkLoad,
    Completion,
    DataType,
    ErrorCode,
    Plan,
    TensorMap,
    TmaError,
    execute,
)
from golden import Load as LoadRequest
from golden.descriptor import as_descriptor
from golden.geometry import Operands
from golden.memory import ArrayMemory, HashedMemory
from sim_tb.bridge import LogKind
from sim_tb.environment import Environment, Word
from sim_tb.models import PRESETS, Memory, Models

BARRIERS = range(0, 32, 8)
"""Offsets of the barriers; loads go behind them."""

FIRST = 128
LARGEST = 12 * 1024
"""Most bytes of a random box, gaps of the swizzle included."""


@dataclass
class Load:
    """A request, and what the golden model says about it."""

    words: NDArray[np.uint32]
    coords: list[int]
    smem_address: int
    mbarrier: int

    def golden(self, smem: NDArray[np.uint8]) -> Completion | TmaError:
        """Apply it to ``smem``; return its bytes, or why it is refused."""
        request = LoadRequest(
            self.words.tobytes(),
            tuple(self.coords),
            AccessMode.TILE,
            smem_address=self.smem_address,
            mbarrier=self.mbarrier,
        )
        try:
            return execute(request, HashedMemory(), [smem])[0]
        except TmaError as error:
            return error

    def submit(self, env: Environment) -> int:
        """Issue it; return its request id."""
        self.map = env.descriptor(self.words)
        return env.submit(self.map, self.coords, self.smem_address, self.mbarrier)

    def forget(self, env: Environment) -> None:
        """Remove its map."""
        env.gmem.remove(self.map)

    def lines(self, line_bytes: int) -> tuple[NDArray[Any], int]:
        """Distinct lines that it reads, and how many reads row after row would take at most."""
        plan = Plan(self.words.tobytes(), AccessMode.TILE)
        spread = plan.spread(self.smem_address, Operands(tuple(self.coords)))
        inside = spread.inside > 0
        row = np.broadcast_to(np.arange(inside.shape[0])[:, None], inside.shape)[inside]
        line = spread.gmem[inside] // np.uint64(line_bytes)
        by_row = np.unique(np.stack([row.astype(np.uint64), line]), axis=1)
        return np.unique(line), by_row.shape[1]


@dataclass
class Bulk:
    """A bulk load, and what the golden model says about it."""

    gmem_address: int
    smem_address: int
    size: int
    mbarrier: int

    def golden(self, smem: NDArray[np.uint8]) -> Completion | TmaError:
        """Apply it to ``smem``; return its bytes, or why it is refused."""
        where = self.gmem_address, self.smem_address, self.size, self.mbarrier
        try:
            return execute(BulkLoad(*where), HashedMemory(), [smem])[0]
        except TmaError as error:
            return error

    def submit(self, env: Environment) -> int:
        """Issue it; return its request id."""
        where = self.gmem_address, self.smem_address, self.size, self.mbarrier
        return env.submit_bulk(*where)

    def forget(self, env: Environment) -> None:
        """There is nothing to remove."""

    def lines(self, line_bytes: int) -> tuple[NDArray[Any], int]:
        """Distinct lines that it reads, and how many reads it takes at most."""
        pieces = np.arange(self.gmem_address, self.gmem_address + self.size, 16, np.uint64)
        lines = np.unique(pieces // np.uint64(line_bytes))
        return lines, lines.size


def random_bulk(rng: np.random.Generator, smem_address: int, mbarrier: int) -> Bulk:
    """A bulk load; about one in ten is refused."""
    largest = LARGEST // 16
    size = 16 * int(pick(rng, 0, 1, 2, rng.integers(64), rng.integers(largest)))
    request = Bulk(
        16 * int(rng.integers(1 << int(pick(rng, 20, 44)))),
        smem_address + 16 * int(rng.integers(8)),
        min(size, LARGEST - 128),
        mbarrier,
    )
    fault = rng.integers(48)
    if fault == 0:
        request.gmem_address += int(rng.integers(1, 16))
    elif fault == 1:
        request.size += int(rng.integers(1, 16))
    elif fault == 2:
        request.smem_address += int(rng.integers(1, 16))
    elif fault == 3:
        request.size = (1 << 32) - 16
    elif fault == 4:
        request.mbarrier += int(rng.integers(1, 8))
    return request


def pick(rng: np.random.Generator, *choices: Any) -> Any:
    """One of ``choices``."""
    return choices[rng.integers(len(choices))]


def random_interleaved(rng: np.random.Generator) -> TensorMap:
    """An interleaved map whose box has at most ``LARGEST`` bytes."""
    rank, unit = int(rng.integers(3, 6)), 16 * int(rng.integers(1, 3))
    data_type = DataType(rng.integers(2, 13))
    least = 16 // data_type.itemsize
    element_strides = [int(rng.integers(1, 9)) if rng.random() < 0.3 else 1 for _ in range(rank)]
    box = [least * int(rng.integers(1, 3)), *rng.integers(1, 4, rank - 1).tolist()]
    dim = [int(rng.integers(1, pick(rng, 2, 3) * extent + 2)) for extent in box]
    strides, dense = [], dim[0] * unit
    for extent in dim[1:]:
        strides.append(dense + unit * int(pick(rng, 0, 0, rng.integers(0, 20))))
        dense = strides[-1] * extent
    return TensorMap.tiled(
        data_type=data_type,
        global_address=int(rng.integers(1 << 27)) * unit,
        global_dim=dim,
        global_strides=strides,
        box_dim=box,
        element_strides=element_strides,
        interleave=unit // 16,
        swizzle=int(rng.integers(4)),
        oob_fill=int(rng.integers(2)) if data_type.is_float else 0,
    )


def random_map(rng: np.random.Generator) -> TensorMap:
    """A map whose box has at most ``LARGEST`` bytes."""
    if rng.random() < 0.2:
        return random_interleaved(rng)
    while True:
        rank = int(rng.integers(1, 6))
        data_type = DataType(rng.integers(13))
        size = data_type.itemsize
        swizzle = int(rng.integers(4))
        span = 16 << swizzle if swizzle else min(256 * size, int(pick(rng, 64, 256, 1024)))
        box = [int(rng.integers(1, span // 16 + 1)) * 16 // size]
        box += [int(rng.integers(1, pick(rng, 3, 9, 40))) for _ in range(rank - 1)]
        if (span if swizzle else box[0] * size) * int(np.prod(box[1:], initial=1)) > LARGEST:
            continue
        element_strides = [int(rng.integers(1, 9)) if rng.random() < 0.3 else 1 for _ in box]
        dim = [int(rng.integers(1, pick(rng, 2, 3) * extent + 2)) for extent in box]
        strides, dense = [], dim[0] * size
        for extent in dim[1:]:
            dense = -(-dense // 16) * 16
            padding = int(rng.integers(0, 20)) * 16 if rng.random() < 0.5 else 0
            stride = pick(rng, dense, dense, dense + padding, padding, 1 << 35)
            strides.append(min(int(stride), (1 << 40) - 16))
            dense = strides[-1] * extent
        base = int(rng.integers(1 << 27)) * 16
        return TensorMap.tiled(
            data_type=data_type,
            global_address=pick(rng, base, base & ~127, base << 16),
            global_dim=dim,
            global_strides=strides,
            box_dim=box,
            element_strides=element_strides,
            interleave=0,
            swizzle=swizzle,
            oob_fill=int(rng.integers(2)) if data_type.is_float else 0,
        )


def random_coords(rng: np.random.Generator, tensor_map: TensorMap) -> list[int]:
    """A start inside, across an edge, outside, or as far away as it goes."""
    d = as_descriptor(tensor_map)
    assert d.data_type is not None
    unit = 16 // d.data_type.itemsize
    coords = []
    for extent, box in zip(d.global_dim[: d.rank], d.box_dim, strict=False):
        near = int(rng.integers(-box - 1, extent + 2))
        far = int(pick(rng, -(1 << 31), (1 << 31) - 1, (1 << 31) - box, -box, extent))
        coords.append(far if rng.random() < 0.05 else near if rng.random() < 0.6 else 0)
    coords[0] = coords[0] // unit * unit
    return coords


def random_load(rng: np.random.Generator, smem_address: int, mbarrier: int) -> Load:
    """A load; about one in eight is refused."""
    tensor_map = random_map(rng)
    words = np.frombuffer(tensor_map.encode(), np.uint32).copy()
    request = Load(words, random_coords(rng, tensor_map), smem_address, mbarrier)
    fault = rng.integers(48)
    if fault == 0:
        request.coords[0] += int(rng.integers(1, 16))
    elif fault == 1:
        request.coords = (request.coords * 5)[: int(rng.integers(1, 6))]
    elif fault == 2:
        request.smem_address += 16 * int(rng.integers(1, 8))
    elif fault == 3:
        request.smem_address = (1 << 24) - 128
    elif fault == 4:
        request.mbarrier += int(rng.integers(1, 8))
    elif fault == 5:
        words[0] += int(rng.integers(1, 16))
    elif fault == 6:
        words[2] ^= 1 << int(pick(rng, 0, 6, 10, 19, 20))
    return request


def assert_same(got: NDArray[np.uint8], expected: NDArray[np.uint8], about: object) -> None:
    """Fail with the first byte that differs."""
    differ = np.flatnonzero(got != expected)
    if differ.size:
        at = int(differ[0])
        raise AssertionError(
            f"{differ.size} bytes differ, the first at 0x{at:x}: expected 0x{expected[at]:02x}, "
            f"got 0x{got[at]:02x}\n{about}"
        )


async def run_batch(
    env: Environment, rng: np.random.Generator, count: int, flips: list[NDArray[np.uint8]]
) -> None:
    """Issue ``count`` loads back to back, over all barriers, and compare everything at the end.

    ``flips`` grows by a copy of shared memory at each phase that completes.
    """
    flips.clear()
    env.smem[:] = rng.integers(0, 256, env.smem.size, dtype=np.uint8)
    expected = env.smem.copy()
    loads: list[Load | Bulk] = []
    address = FIRST
    for _ in range(count):
        address += 128 * int(rng.integers(0, 12))
        kind = random_bulk if rng.random() < 0.2 else random_load
        loads.append(kind(rng, address, int(rng.choice(BARRIERS))))
        address += LARGEST
    answers = [item.golden(expected) for item in loads]
    to_come = dict.fromkeys(BARRIERS, 0)
    for item, answer in zip(loads, answers, strict=True):
        if isinstance(answer, Completion):
            to_come[item.mbarrier] += answer.bytes
    for barrier in BARRIERS:
        await env.barrier("INIT", barrier, 1)
        await env.barrier("ARRIVE_EXPECT_TX", barrier, to_come[barrier])
    env.clear_log(LogKind.LINE)
    names = [item.submit(env) for item in loads]
    for barrier in BARRIERS:
        await env.wait(barrier, 0)
    visible = flips[-1]  # shared memory as the last phase flipped
    await env.idle()

    about = "\n".join(f"{item} -> {answer!r}" for item, answer in zip(loads, answers, strict=True))
    for barrier in BARRIERS:
        word = env.word(barrier)
        assert word == Word(phase=1, pending=1, expected=1, tx=0, lock=0), (barrier, word, about)
        expected[barrier : barrier + 8] = env.smem[barrier : barrier + 8]
    assert_same(env.smem, expected, about)
    assert_same(visible, expected, f"completed before it was written\n{about}")
    refused = {
        (name, answer.code, answer.dim, answer.value & (1 << 64) - 1)
        for name, answer in zip(names, answers, strict=True)
        if isinstance(answer, TmaError)
    }
    errors = {(e.request_id, ErrorCode(e.code), e.dim, e.value) for e in env.take_errors()}
    assert errors == refused, (errors, refused, about)
    taken = [
        item for item, answer in zip(loads, answers, strict=True) if isinstance(answer, Completion)
    ]
    read = env.log(LogKind.LINE)["key"]
    lines = [item.lines(env.interface.parameters["line_bytes"]) for item in taken]
    touched = np.unique(np.concatenate([np.empty(0, np.uint64), *(line for line, _ in lines)]))
    assert np.array_equal(np.unique(read), touched), about
    assert read.size <= sum(most for _, most in lines), about
    for item in loads:
        item.forget(env)


async def random_batches(dut: Any, largest: int) -> None:
    count = int(os.environ["LOADS_COUNT"])
    env = await Environment.start(dut, PRESETS[os.environ["LOADS_MODELS"]])
    rng = env.rng("loads")
    cocotb.log.info("seed %d", env.seed)
    flips: list[NDArray[np.uint8]] = []
    for barrier in BARRIERS:
        env.watch(barrier, lambda *_: flips.append(env.smem.copy()))
    while count > 0:
        batch = int(rng.integers(1, min(count, largest) + 1))
        await run_batch(env, rng, batch, flips)
        count -= batch


@cocotb.test()
async def one_at_a_time(dut: Any) -> None:
    """Each load alone: its bytes, its lines, its barrier, and nothing else."""
    await random_batches(dut, 1)


@cocotb.test()
async def in_flight(dut: Any) -> None:
    """Up to sixteen loads in flight, over four barriers."""
    await random_batches(dut, 16)


# A tensor of 32 rows of 128 bytes, and a map whose box is all of it.

ROWS = 32
SOURCE, OTHER, TARGET, BARRIER = 0x10_0000, 0x20_0000, 0x400, 0x40


def whole(address: int) -> NDArray[np.uint32]:
    tensor_map = TensorMap.tiled(
        data_type=DataType.UINT8,
        global_address=address,
        global_dim=[128, ROWS],
        global_strides=[128],
        box_dim=[128, ROWS],
        element_strides=[1, 1],
    )
    return np.frombuffer(tensor_map.encode(), np.uint32).copy()


async def start(dut: Any, background: str = "fault") -> Environment:
    models = Models(Memory.random(20, 200), Memory.fixed(120))
    logs = [LogKind.LINE, LogKind.FETCH, LogKind.PREFETCH]
    env = await Environment.start(dut, models, background=background, logs=logs)
    env.smem[:] = 0xCD
    return env


async def fill(env: Environment, tensor_map: int, target: int = TARGET) -> NDArray[np.uint8]:
    """Load the whole tensor; return what came."""
    await env.barrier("INIT", BARRIER, 1)
    await env.barrier("ARRIVE_EXPECT_TX", BARRIER, ROWS * 128)
    env.submit(tensor_map, [0, 0], target, BARRIER)
    await env.wait(BARRIER, 0)
    return env.smem[target : target + ROWS * 128].copy()


def tensors(env: Environment) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    rng = env.rng("tensors")
    old, new = rng.integers(0, 256, (2, ROWS * 128), dtype=np.uint8)
    env.gmem.place(SOURCE, old)
    env.gmem.place(OTHER, new)
    return old, new


@cocotb.test()
async def an_edit_is_seen_after_invalidation(dut: Any) -> None:
    env = await start(dut)
    old, new = tensors(env)
    words = whole(SOURCE)
    tensor_map = env.descriptor(words)
    assert np.array_equal(await fill(env, tensor_map), old)
    words[:] = whole(OTHER)
    without = await fill(env, tensor_map)
    assert np.array_equal(without, old) or np.array_equal(without, new)
    for everything in False, True:
        words[:] = whole(OTHER)
        await env.invalidate(None if everything else tensor_map)
        assert np.array_equal(await fill(env, tensor_map), new)
        words[:] = whole(SOURCE)
        await env.invalidate(None if everything else tensor_map)
        assert np.array_equal(await fill(env, tensor_map), old)


@cocotb.test()
async def a_fill_in_flight_is_overtaken(dut: Any) -> None:
    """The map is edited and invalidated while its old words are on their way."""
    env = await start(dut)
    old, new = tensors(env)
    for by_prefetch in False, True:
        words = whole(SOURCE)
        tensor_map = env.descriptor(words)
        env.clear_log(LogKind.FETCH)
        await env.barrier("INIT", BARRIER + 8, 1)
        await env.barrier("ARRIVE_EXPECT_TX", BARRIER + 8, ROWS * 128)
        if by_prefetch:
            await env.prefetch(tensor_map)
        else:
            env.submit(tensor_map, [0, 0], TARGET + ROWS * 128, BARRIER + 8)
        while not env.log(LogKind.FETCH).size:
            await env.cycles(1)
        words[:] = whole(OTHER)
        await env.invalidate(tensor_map)
        assert np.array_equal(await fill(env, tensor_map), new)
        if not by_prefetch:
            await env.wait(BARRIER + 8, 0)
            first = env.smem[TARGET + ROWS * 128 :][: ROWS * 128]
            assert np.array_equal(first, old) or np.array_equal(first, new)


@cocotb.test()
async def a_prefetched_map_is_not_fetched_again(dut: Any) -> None:
    env = await start(dut)
    old, _ = tensors(env)
    tensor_map = env.descriptor(whole(SOURCE))
    await env.prefetch(tensor_map)
    await env.idle()
    assert np.array_equal(await fill(env, tensor_map), old)
    assert env.log(LogKind.FETCH)["key"].tolist() == [tensor_map]


@cocotb.test()
async def unreadable_lines_are_an_error(dut: Any) -> None:
    """No completion, one error record; the next request is as if nothing had been."""
    env = await start(dut)
    old, _ = tensors(env)
    half = old[: ROWS * 64]
    env.gmem.remove(SOURCE)
    env.gmem.place(SOURCE, half)
    tensor_map = env.descriptor(whole(SOURCE))
    await env.barrier("INIT", BARRIER, 1)
    await env.barrier("ARRIVE_EXPECT_TX", BARRIER, ROWS * 128)
    name = env.submit(tensor_map, [0, 0], TARGET, BARRIER)
    error = await env.next_error()
    assert (error.request_id, error.code) == (name, ErrorCode.GMEM_FAULT)
    await env.idle()
    assert env.errors == ()
    assert env.word(BARRIER) == Word(phase=0, pending=0, expected=1, tx=ROWS * 128, lock=0)
    env.gmem.place(SOURCE, old)
    assert np.array_equal(await fill(env, tensor_map), old)


@cocotb.test()
async def prefetches_ask_for_lines_and_nothing_else(dut: Any) -> None:
    """As many as the boxes touch, between loads that are not disturbed."""
    env = await start(dut)
    rng = env.rng("prefetch")
    line_bytes = env.interface.parameters["line_bytes"]
    old, _ = tensors(env)
    tensor_map = env.descriptor(whole(SOURCE))
    wanted, maps = [], []
    for _ in range(30):
        words = random_map(rng)
        coords = random_coords(rng, words)
        maps.append(env.descriptor(np.frombuffer(words.encode(), np.uint32).copy()))
        env.submit_prefetch(maps[-1], coords)
        wanted.append(Plan(words).touched(0, coords, line_bytes=line_bytes)[0])
    base, size = 16 * int(rng.integers(1 << 40)), 200 * 1024 + 48
    env.submit_bulk_prefetch(base, size)
    wanted.append(np.unique(np.arange(base, base + size, 16, np.uint64) // np.uint64(line_bytes)))
    env.submit_bulk_prefetch(base, 0)
    env.submit_bulk_prefetch(base, 8)
    before = env.smem.copy()
    assert np.array_equal(await fill(env, tensor_map), old)
    await env.idle()
    (error,) = env.take_errors()
    assert (error.code, error.value) == (ErrorCode.BULK_ALIGN, 8)
    asked = env.log(LogKind.PREFETCH)["key"]
    assert np.array_equal(np.unique(asked), np.unique(np.concatenate(wanted)))
    changed = np.flatnonzero(env.smem != before)
    assert not changed.size or changed.min() < TARGET + old.nbytes


@cocotb.test()
async def an_unreadable_map_is_an_error(dut: Any) -> None:
    env = await start(dut)
    name = env.submit(0x5000_0000, [0, 0], TARGET, BARRIER)
    error = await env.next_error()
    assert (error.request_id, error.code) == (name, ErrorCode.GMEM_FAULT)
    await env.idle()
    assert (env.smem == 0xCD).all()


@cocotb.test()
async def memory_is_read_inside_the_tensor_only(dut: Any) -> None:
    """Every line that is not the tensor's is unreadable, and the box reaches across all edges."""
    env = await start(dut)
    old, _ = tensors(env)
    env.gmem.remove(OTHER)
    words = whole(SOURCE)
    tensor_map = env.descriptor(words)
    for coords in [-16, -3], [16, 3], [-128, 0], [0, 1 << 30], [1 << 30, -(1 << 31)]:
        expected = env.smem.copy()
        count = Plan(words.tobytes()).load(ArrayMemory(old, SOURCE), expected, TARGET, coords)
        await env.barrier("INIT", BARRIER, 1)
        await env.barrier("ARRIVE_EXPECT_TX", BARRIER, count)
        env.submit(tensor_map, coords, TARGET, BARRIER)
        await env.wait(BARRIER, 0)
        expected[BARRIER : BARRIER + 8] = env.smem[BARRIER : BARRIER + 8]
        assert_same(env.smem, expected, coords)
    assert env.errors == ()
