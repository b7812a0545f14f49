"""Simulated tests of loads: random loads against the golden model, and rules about faults and
tensor maps.

Environment variables: ``LOADS_MODELS`` is a preset of ``sim_tb.testbench.models``, ``LOADS_COUNT``
the number of random loads, ``LOADS_MODES`` a list of their modes, ``LOADS_EVERY`` the step between
the kinds of loads in ``every_kind``.
"""

import os
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden import (
    AccessMode,
    Arch,
    Completion,
    DataType,
    ErrorCode,
    Feature,
    Load,
    Plan,
    TensorMap,
    TmaError,
    check,
)
from golden.checks import OFFSET_LIMITS
from golden.enums import SMEM_BYTES
from golden.mbarrier import NOT_VALID, Barrier, Report
from golden.memory import ArrayMemory
from hw.layouts.axi import Response
from sim_tb.coverage.load_kinds import LoadKind
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import PRESETS, Models, Timing
from tests.golden.random_requests import random_row
from tests.top.every_kind import load_of
from tests.top.random_loads import (
    BLACKWELL,
    BY_PARAMETER,
    HOPPER,
    LARGEST,
    Item,
    as_prefetch,
    as_words,
    lines_of,
    random_item,
)
from tests.unit_arch import unit_arch

BARRIERS = range(0, 32, 8)
"""Offsets of the barriers; the loads' targets lie behind them."""

FIRST = 128
LINE = 128
MOST_PIECES = SMEM_BYTES // 16
"""Pieces of 16 bytes in the largest box, 228 KiB."""

WHOLE_ROWS, WHOLE_ROW_BYTES = 57, 4096

SHORT_ROWS = 9
"""Short rows of a box: more than share a line."""

MOST_LOADS = 32
"""Loads of a batch."""

Flips = dict[int, NDArray[np.uint8]]
"""Copies of shared memory, by barrier, from the clock in which its phase completed."""


def arch_of(env: Environment) -> Arch:
    """Return the architecture that the unit was built for."""
    return unit_arch(env.interface.parameters)


def modes_of(env: Environment) -> list[str]:
    """Return the modes in ``LOADS_MODES``, by default all modes of the unit.

    For a Hopper unit the default includes a later mode, which it refuses.
    """
    chosen = os.environ.get("LOADS_MODES", "")
    parameters = env.interface.parameters
    later = [*BLACKWELL] if parameters["gather4"] else ["im2col_w"]
    later += [mode for mode in BY_PARAMETER if parameters[mode]]
    return chosen.split(",") if chosen else [*HOPPER, *HOPPER, *later, "bulk", "bulk"]


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
    env: Environment, rng: np.random.Generator, loads: list[Item], flips: Flips
) -> list[int]:
    """Submit ``loads`` back to back and compare everything at the end.

    The bytes of each load are also compared as they were when the phase of its barrier completed.

    Returns
    -------
    list of int
        Bytes of each load that was accepted.
    """
    env.smem[:] = rng.integers(0, 256, env.smem.size, dtype=np.uint8)
    expected = env.smem.copy()
    answers = [item.golden(expected) for item in loads]
    to_come, reported = dict.fromkeys(BARRIERS, 0), dict.fromkeys(BARRIERS, False)
    for item, answer in zip(loads, answers, strict=True):
        if isinstance(answer, Completion):
            to_come[item.request.mbarrier] += answer.bytes
            reported[item.request.mbarrier] |= answer.reports
    v1 = any(item.request.report for item in loads)
    for barrier in BARRIERS:
        await env.barriers.command("INIT", barrier, 1, v1=v1)
        await env.barriers.command("ARRIVE_EXPECT_TX", barrier, to_come[barrier])
    env.clear_log(LogKind.LINE)
    flips.clear()
    policies = (int(rng.integers(1 << 64, dtype=np.uint64)) for _ in loads)
    names = [
        item.submit(env, cache_policy=policy) for item, policy in zip(loads, policies, strict=True)
    ]
    for barrier in BARRIERS:
        await env.barriers.wait(barrier, 0)
    await env.idle()

    about = "\n".join(f"{item} -> {answer!r}" for item, answer in zip(loads, answers, strict=True))
    for barrier in BARRIERS:
        word = env.barriers.read(barrier, v1=v1)
        report = Report(NOT_VALID if reported[barrier] else 0, not reported[barrier], stale=1)
        done = Barrier(phase=1, pending=1, expected=1, report=report if v1 else None)
        assert word == done, (barrier, word, about)
        expected[barrier : barrier + 8] = env.smem[barrier : barrier + 8]
    assert_same(env.smem, expected, about)
    taken = [
        item for item, answer in zip(loads, answers, strict=True) if isinstance(answer, Completion)
    ]
    for item in taken:
        if not to_come[item.request.mbarrier]:
            continue  # the phase completed without it
        there = slice(item.request.smem_address, item.request.smem_address + item.extent)
        visible = flips[item.request.mbarrier][there]
        assert_same(visible, expected[there], f"completed before it was written: {item}\n{about}")
    refused = Counter(
        (name, answer.code, answer.dim, answer.value & (1 << 64) - 1)
        for name, answer in zip(names, answers, strict=True)
        if isinstance(answer, TmaError)
    )
    records = env.errors.take_all()
    errors = Counter((e.request_id, ErrorCode(e.code), e.dim, e.value) for e in records)
    assert errors == refused, (errors, refused, about)
    read = env.log(LogKind.LINE)["key"]
    lines = [item.lines(env.interface.parameters["line_bytes"]) for item in taken]
    touched = np.unique(np.concatenate([np.empty(0, np.uint64), *(line for line, _ in lines)]))
    assert np.array_equal(np.unique(read), touched), about
    assert read.size <= sum(most for _, most in lines), about
    for item in loads:
        item.forget(env)
    return [answer.bytes for answer in answers if isinstance(answer, Completion)]


def batch(env: Environment, rng: np.random.Generator, count: int) -> list[Item]:
    """Return up to ``count`` loads of boxes of up to ``LARGEST`` bytes, or an eighth of memory."""
    modes, arch = modes_of(env), arch_of(env)
    largest = min(LARGEST, env.smem.size // 8)
    loads: list[Item] = []
    address = FIRST
    for _ in range(int(rng.integers(1, count + 1))):
        address += min(128 * int(rng.integers(0, 12)), largest)
        barrier = int(rng.choice(BARRIERS))
        loads.append(addressable(env, rng, modes, arch, address, barrier, largest))
        address += largest
    return loads


def addressable(env: Environment, rng: np.random.Generator, *operands: Any) -> Item:
    """Return a random load that reads no address beyond those of the unit, and no tensor map.

    Half of the loads have addresses above 2^44, so that each bit of an address has both values.
    """
    bits = env.interface.parameters["address_bits"]
    while True:
        item = random_item(rng, *operands)
        if bits == 64:
            item.move_up(int(rng.integers(1 << 18)) * int(rng.integers(2)) << 44)
            return item
        item.move_below(1 << (bits - 2))
        try:
            check(item.request, smem_bytes=env.smem.size, arch=item.arch)
        except TmaError:
            return item
        lines, _ = item.lines(LINE)
        if not lines.size or int(lines.max()) < env.gmem.maps // LINE:
            return item


def largest_load(room: int) -> Load:
    """Return a load of the largest box that fits ``room`` bytes, at most 228 KiB."""
    rows = min(WHOLE_ROWS, room // WHOLE_ROW_BYTES)
    tensor_map = TensorMap.tiled("f32", 1 << 32, (64, 60, 20), (512, 1 << 15), (64, rows, 16))
    return Load(tensor_map, (0, 2, -3), AccessMode.TILE)


def large_load(rng: np.random.Generator, room: int) -> Load:
    """Return a load of a box of almost ``room`` bytes, at least 16, with rows of up to 2,048."""
    room = min(room, SMEM_BYTES)
    row, kind = random_row(rng, room)
    rows = max(room // row, 1)
    middle = min(256, int(rows ** rng.random()))
    box = row // kind.itemsize, middle, min(256, rows // middle)
    tensor_map = TensorMap.tiled(kind, 1 << 32, (300, 300, 300), (4096, 1 << 21), box)
    return Load(tensor_map, (0, 2, -3), AccessMode.TILE)


def mixture(env: Environment, rng: np.random.Generator, *, largest_first: bool) -> list[Item]:
    """Return loads of boxes of all sizes, from 16 bytes to the largest, until memory is full.

    With ``largest_first`` the first one is the largest box that fits behind the barriers.
    """
    modes, arch = modes_of(env), arch_of(env)
    loads: list[Item] = []
    address = FIRST
    while True:
        size = 16 * int(MOST_PIECES ** rng.random())
        barrier = int(rng.choice(BARRIERS))
        if largest_first or rng.random() < 0.05:
            room = env.smem.size - address
            load = largest_load(room) if largest_first else large_load(rng, room)
            largest_first = False
            item = Item(replace(load, smem_address=address, mbarrier=barrier), arch)
            size = item.extent
        else:
            item = random_item(rng, modes, arch, address, barrier, max(size, 256))
            size = max(item.extent, size)
        address += -(-size // 128) * 128 + 128
        if address > env.smem.size:
            return loads
        loads.append(item)


async def start_random(
    dut: Any, models: str | None = None
) -> tuple[Environment, np.random.Generator, Flips]:
    env = await Environment.start(dut, PRESETS[models or os.environ["LOADS_MODELS"]])
    cocotb.log.info("seed %d", env.seed)
    flips: Flips = {}
    for barrier in BARRIERS:
        env.barriers.watch(barrier, lambda *_, at=barrier: flips.setdefault(at, env.smem.copy()))
    rng = env.rng("loads")
    env.requests.number_from(int(rng.integers(1 << 16)))
    return env, rng, flips


async def random_batches(dut: Any, largest: int) -> None:
    count = int(os.environ["LOADS_COUNT"])
    env, rng, flips = await start_random(dut)
    while count > 0:
        loads = batch(env, rng, min(count, largest))
        await run_batch(env, rng, loads, flips)
        count -= len(loads)


@cocotb.test()
async def one_at_a_time(dut: Any) -> None:
    """Each load alone changes its bytes and its barrier only, and reads its lines only."""
    await random_batches(dut, 1)


@cocotb.test()
async def in_flight(dut: Any) -> None:
    """Up to sixteen loads are in flight, with four barriers."""
    await random_batches(dut, 16)


@cocotb.test()
async def mixed_sizes(dut: Any) -> None:
    """Loads of all sizes are in flight together, from 16 bytes to the largest box that fits."""
    count = int(os.environ["LOADS_COUNT"])
    env, rng, flips = await start_random(dut)
    sizes: list[int] = []
    while count > 0:
        loads = mixture(env, rng, largest_first=not sizes)
        sizes += await run_batch(env, rng, loads, flips)
        count -= len(loads)
    assert min(size for size in sizes if size) == 16
    room = (env.smem.size - FIRST) // WHOLE_ROW_BYTES * WHOLE_ROW_BYTES
    assert max(sizes) >= min(16 * MOST_PIECES, room)


@cocotb.test()
async def every_kind(dut: Any) -> None:
    """A load of each kind that coverage distinguishes, or of every ``LOADS_EVERY``-th kind."""
    env, rng, flips = await start_random(dut)
    arch = arch_of(env)
    apart = int(os.environ.get("LOADS_EVERY", "1"))
    kinds = list(LoadKind.every(arch))[int(rng.integers(apart)) :: apart]
    rng.shuffle(kinds)
    loads: list[Item] = []
    address = FIRST
    for kind in kinds:
        item = Item(load_of(rng, kind), arch)
        assert LoadKind.of(item.request, arch) == kind
        end = address + -(-item.extent // 128) * 128
        if len(loads) == MOST_LOADS or end > env.smem.size:
            await run_batch(env, rng, loads, flips)
            loads, end, address = [], end - address + FIRST, FIRST
        barrier = int(rng.choice(BARRIERS))
        item.request = replace(item.request, smem_address=address, mbarrier=barrier)
        loads.append(item)
        address = end
    await run_batch(env, rng, loads, flips)


def placed(rng: np.random.Generator, load: Load, line: int, arch: Arch) -> Item:
    """Return ``load`` with its target ``line`` lines behind the barriers, and with a barrier.

    The line also chooses the stream.
    """
    target = FIRST + LINE * line
    return Item(replace(load, smem_address=target, mbarrier=int(rng.choice(BARRIERS))), arch)


@cocotb.test()
async def short_rows_of_all_steps(dut: Any) -> None:
    """Short rows of all lengths and distances in both memories, along each dimension.

    Each stream loads all of them, from the begin of a line to the begin of a line.
    """
    env, rng, flips = await start_random(dut, "near")
    arch, streams = arch_of(env), env.interface.parameters["streams"]
    kinds = [
        (pieces, pitch, step)
        for pitch, step in product(range(1, 8), range(8))
        for pieces in range(1, pitch + 1)
    ]
    loads = []
    for number, (pieces, pitch, step) in enumerate(kinds * streams):
        others = [1] * int(rng.integers(4))
        tensor_map = TensorMap.tiled(
            DataType.UINT8,
            LINE * int(rng.integers(1 << 30)) + 16 * pieces + 16,
            [112, *others, SHORT_ROWS],
            [LINE] * len(others) + [16 * step],
            [16 * pitch, *others, SHORT_ROWS],
        )
        coords = (112 - 16 * pieces, *(0 for _ in others), 0)
        load = Load(tensor_map, coords, AccessMode.TILE)
        line = streams * SHORT_ROWS * (number % MOST_LOADS) + number // len(kinds)
        loads.append(placed(rng, load, line, arch))
    for first in range(0, len(loads), MOST_LOADS):
        await run_batch(env, rng, loads[first : first + MOST_LOADS], flips)


@cocotb.test()
async def rows_of_pixels(dut: Any) -> None:
    """Short rows of an im2col box: pixels that overlap, and channels in front of the tensor."""
    env, rng, flips = await start_random(dut, "near")
    arch, loads = arch_of(env), []
    pixels = 8
    for pieces in range(1, 8):
        channels, base = 16 * pieces, LINE * int(rng.integers(1 << 30))
        tensor_map = TensorMap.im2col(
            DataType.UINT8, base, [channels, 64, 1], [16, LINE], [0], [0], channels, pixels,
            [1, pieces, 1],
        )  # fmt: skip
        for channel in 0, -channels:
            load = Load(tensor_map, (channel, 0, 0), AccessMode.IM2COL)
            loads.append(placed(rng, load, pixels * len(loads), arch))
    await run_batch(env, rng, loads, flips)


@cocotb.test()
async def fill_of_all_streams(dut: Any) -> None:
    """All streams have rows of a line and more than a beat of fill: fill waits for its port."""
    env, rng, flips = await start_random(dut, "near")
    arch, loads = arch_of(env), []
    rows, times = 64, 4
    for number in range(3 * env.interface.parameters["streams"]):
        base = LINE * int(rng.integers(1 << 30))
        tensor_map = TensorMap.tiled(DataType.UINT8, base, [16, rows], [LINE], [2 * LINE, rows])
        load = Load(tensor_map, (0, 0), AccessMode.TILE)
        loads.append(placed(rng, load, (2 * rows + 1) * number, arch))
    await run_batch(env, rng, loads * times, flips)


@cocotb.test()
async def offsets_are_limited(dut: Any) -> None:
    """im2col offsets and halos: the largest that the instruction can encode, and one above it."""
    env, rng, flips = await start_random(dut)
    arch = arch_of(env)
    requests = []
    for rank in 3, 4, 5:
        inside = load_of(rng, LoadKind.parse(f"im2col {rank} 2B 128B none zero 128B inside"))
        for j, beyond in product(range(rank - 2), (0, 1)):
            offsets = [0] * (rank - 2)
            offsets[j] = min(OFFSET_LIMITS[rank] + beyond, 65535)
            requests.append(replace(inside, im2col_offsets=tuple(offsets)))
    if arch.has(Feature.IM2COL_W):
        for mode, halo in ("im2col_w", 511), ("im2col_w_128", 31):
            inside = load_of(rng, LoadKind.parse(f"{mode} 3 2B 128B none zero 128B inside"))
            for name, limit in ("w_halo", halo), ("w_offset", 31):
                requests += [replace(inside, **{name: number}) for number in (limit, limit + 1)]
    for request in requests:
        item = Item(replace(request, smem_address=FIRST, mbarrier=0), arch)
        await run_batch(env, rng, [item], flips)


@cocotb.test()
async def hints_go_with_every_line(dut: Any) -> None:
    """Each line access carries the request's cache policy and its tensor map's L2 promotion."""
    models = PRESETS[os.environ.get("LOADS_MODELS", "fixed")]
    env = await Environment.start(dut, models, logs=[LogKind.HINT])
    rng = env.rng("hints")
    seen = set()
    for turn in range(60):
        policy = int(rng.integers(1 << 63)) if turn % 3 else 0
        target = FIRST + 128 * int(rng.integers(4))  # the address chooses the stream
        item = random_item(rng, [*HOPPER, "bulk"], arch_of(env), target, 0)
        promotion = 0
        if isinstance(item.request, Load):
            words = np.frombuffer(as_words(item.request), np.uint32).copy()
            promotion = int(words[2]) >> 17 & 3 ^ turn & 3
            words[2] ^= (turn & 3) << 17
            item.request = replace(item.request, tensor_map=words.tobytes())
        prefetch = bool(turn & 4)
        await env.barriers.command("INIT", 0, 1)
        env.clear_log(LogKind.HINT)
        item.submit(env, cache_policy=policy, prefetch=prefetch)
        # Setup and walk of a box outside the tensor can take over 256 clocks without a transfer.
        await env.idle(quiet=2000)
        env.errors.take_all()
        hints = env.log(LogKind.HINT)
        lines = item.accesses(env, prefetch=prefetch)
        assert set(zip(hints["key"].tolist(), hints["value"].tolist(), strict=True)) == (
            {(policy, promotion)} if lines else set()
        )
        seen |= {promotion} if lines else set()
        item.forget(env)
    assert seen == {0, 1, 2, 3}


# Rules, on a tensor of 32 rows of 128 bytes and a tensor map whose box is the whole tensor

ROWS = 32
SOURCE, OTHER, TARGET, BARRIER = 0x10_0000, 0x20_0000, 0x400, 0x40
REFUSED = 0x5001_0000


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
    models = Models(Timing.random(20, 200), Timing.fixed(120))
    logs = [LogKind.LINE, LogKind.FETCH, LogKind.PREFETCH]
    env = await Environment.start(dut, models, background=background, logs=logs)
    env.smem[:] = 0xCD
    return env


async def fill(env: Environment, tensor_map: int, target: int = TARGET) -> NDArray[np.uint8]:
    """Load the whole tensor; return the bytes in shared memory."""
    await env.barriers.command("INIT", BARRIER, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", BARRIER, ROWS * 128)
    env.requests.load(tensor_map, [0, 0], target, BARRIER)
    await env.barriers.wait(BARRIER, 0)
    return env.smem[target : target + ROWS * 128].copy()


def response(env: Environment, kind: Response) -> int:
    """Return ``dim`` of the record of a failed access: behind AXI4 the response, else 0."""
    return kind.value if env.interface.parameters["axi_data_bits"] else 0


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
    tensor_map = env.descriptors.place(words)
    assert np.array_equal(await fill(env, tensor_map), old)
    words[:] = whole(OTHER)
    without = await fill(env, tensor_map)
    assert np.array_equal(without, old) or np.array_equal(without, new)
    for everything in False, True:
        words[:] = whole(OTHER)
        await env.descriptors.invalidate(None if everything else tensor_map)
        assert np.array_equal(await fill(env, tensor_map), new)
        words[:] = whole(SOURCE)
        await env.descriptors.invalidate(None if everything else tensor_map)
        assert np.array_equal(await fill(env, tensor_map), old)


@cocotb.test()
async def a_fill_in_flight_is_overtaken(dut: Any) -> None:
    """A tensor map is changed and invalidated while the fetch of its old words is in flight."""
    env = await start(dut)
    old, new = tensors(env)
    for by_prefetch in False, True:
        words = whole(SOURCE)
        tensor_map = env.descriptors.place(words)
        env.clear_log(LogKind.FETCH)
        await env.barriers.command("INIT", BARRIER + 8, 1)
        await env.barriers.command("ARRIVE_EXPECT_TX", BARRIER + 8, ROWS * 128)
        if by_prefetch:
            await env.descriptors.prefetch(tensor_map)
        else:
            env.requests.load(tensor_map, [0, 0], TARGET + ROWS * 128, BARRIER + 8)
        while not env.log(LogKind.FETCH).size:
            await env.cycles(1)
        words[:] = whole(OTHER)
        await env.descriptors.invalidate(tensor_map)
        assert np.array_equal(await fill(env, tensor_map), new)
        if not by_prefetch:
            await env.barriers.wait(BARRIER + 8, 0)
            first = env.smem[TARGET + ROWS * 128 :][: ROWS * 128]
            assert np.array_equal(first, old) or np.array_equal(first, new)


@cocotb.test()
async def a_prefetched_map_is_not_fetched_again(dut: Any) -> None:
    env = await start(dut)
    old, _ = tensors(env)
    tensor_map = env.descriptors.place(whole(SOURCE))
    await env.descriptors.prefetch(tensor_map)
    await env.idle()
    assert np.array_equal(await fill(env, tensor_map), old)
    assert env.log(LogKind.FETCH)["key"].tolist() == [tensor_map]


@cocotb.test()
async def unreadable_lines_are_an_error(dut: Any) -> None:
    """A load with unreadable lines gives one error record and does not complete.

    The next request is not affected.
    """
    env = await start(dut)
    old, _ = tensors(env)
    half = old[: ROWS * 64]
    env.gmem.remove(SOURCE)
    env.gmem.place(SOURCE, half)
    tensor_map = env.descriptors.place(whole(SOURCE))
    await env.barriers.command("INIT", BARRIER, 1)
    await env.barriers.command("ARRIVE_EXPECT_TX", BARRIER, ROWS * 128)
    name = env.requests.load(tensor_map, [0, 0], TARGET, BARRIER)
    error = await env.errors.take_next()
    assert (error.request_id, error.code) == (name, ErrorCode.GMEM_FAULT)
    assert error.dim == response(env, Response.DECERR)
    await env.idle()
    assert not env.errors
    assert env.barriers.read(BARRIER) == Barrier(
        phase=0, pending=0, expected=1, tx_count=ROWS * 128
    )
    env.gmem.place(SOURCE, old)
    assert np.array_equal(await fill(env, tensor_map), old)


@cocotb.test()
async def prefetches_ask_for_lines_and_nothing_else(dut: Any) -> None:
    """Prefetches request the lines that their boxes touch, write nothing and complete nothing."""
    env = await start(dut)
    rng = env.rng("prefetch")
    line_bytes = env.interface.parameters["line_bytes"]
    old, _ = tensors(env)
    tensor_map = env.descriptors.place(whole(SOURCE))
    wanted, maps = [], []
    while len(wanted) < 30:
        load = random_item(rng, [*HOPPER], arch_of(env), 0, 0).request
        request = as_prefetch(load)
        try:
            check(request, smem_bytes=env.smem.size)
        except TmaError:
            continue
        maps.append(env.descriptors.place(np.frombuffer(as_words(load), np.uint32).copy()))
        env.requests.submit(request, maps[-1])
        wanted.append(lines_of(request, arch_of(env), line_bytes)[0])
    base, size = 16 * int(rng.integers(1 << 40)), 200 * 1024 + 48
    env.requests.bulk_prefetch(base, size)
    wanted.append(np.unique(np.arange(base, base + size, 16, np.uint64) // np.uint64(line_bytes)))
    env.requests.bulk_prefetch(base, 0)
    env.requests.bulk_prefetch(base, 8)  # no bytes: bits 3:0 of the size do not count
    env.requests.bulk_prefetch(base + 8, 16)
    before = env.smem.copy()
    assert np.array_equal(await fill(env, tensor_map), old)
    await env.idle()
    (error,) = env.errors.take_all()
    assert (error.code, error.value) == (ErrorCode.BULK_ALIGN, base + 8)
    asked = env.log(LogKind.PREFETCH)["key"]
    assert np.array_equal(np.unique(asked), np.unique(np.concatenate(wanted)))
    before[BARRIER : BARRIER + 8] = env.smem[BARRIER : BARRIER + 8]
    before[TARGET : TARGET + old.nbytes] = old
    assert_same(env.smem, before, "a prefetch wrote shared memory")


@cocotb.test()
async def an_unreadable_map_is_an_error(dut: Any) -> None:
    env = await start(dut)
    env.gmem.refuse(REFUSED, 128)
    for address, kind in (0x5000_0000, Response.DECERR), (REFUSED, Response.SLVERR):
        name = env.requests.load(address, [0, 0], TARGET, BARRIER)
        error = await env.errors.take_next()
        assert (error.request_id, error.code) == (name, ErrorCode.GMEM_FAULT)
        assert (error.dim, error.value) == (response(env, kind), address)
    await env.idle()
    assert (env.smem == 0xCD).all()


@cocotb.test()
async def memory_is_read_inside_the_tensor_only(dut: Any) -> None:
    """No line outside the tensor is read, although boxes reach across all of its edges."""
    env = await start(dut)
    old, _ = tensors(env)
    env.gmem.remove(OTHER)
    words = whole(SOURCE)
    tensor_map = env.descriptors.place(words)
    for coords in [-16, -3], [16, 3], [-128, 0], [0, 1 << 30], [1 << 30, -(1 << 31)]:
        expected = env.smem.copy()
        count = Plan(words.tobytes()).load(ArrayMemory(old, SOURCE), expected, TARGET, coords)
        await env.barriers.command("INIT", BARRIER, 1)
        await env.barriers.command("ARRIVE_EXPECT_TX", BARRIER, count)
        env.requests.load(tensor_map, coords, TARGET, BARRIER)
        await env.barriers.wait(BARRIER, 0)
        expected[BARRIER : BARRIER + 8] = env.smem[BARRIER : BARRIER + 8]
        assert_same(env.smem, expected, coords)
    assert not env.errors
