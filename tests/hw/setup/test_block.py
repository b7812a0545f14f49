"""Setup block: the walks of a box cover the box, and illegal requests are refused."""

import random
from collections import Counter
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest

import golden
from golden import Descriptor, Reduce, Store
from golden.errors import ErrorCode
from golden.request import as_descriptor
from hw.layouts.axi import Response
from hw.layouts.isa import AccessMode, Operation
from hw.layouts.translation import PageFault
from hw.params import PRESETS, TmaParams
from hw.setup.block import SetupBlock
from tests.hw.boxes import Box, Pieces, random_box, random_interleaved, stored_box
from tests.hw.golden_requests import (
    STORE_KINDS,
    arch_of,
    group_of,
    random_requests,
    refusal,
    setup_input,
)
from tests.hw.simulate import run_streams, simulation
from tests.quick import quick

PARAMS = TmaParams(setup_pipelines=1)
PIPELINES = 1, TmaParams().setup_pipelines
SEEDS = quick(range(4), 2)


def box_input(box: Box, **changes) -> dict:
    """Return the input of the setup block for a load of ``box``.

    ``changes`` replace fields of the request, words (``w0`` to ``w15``), and ``fault``.
    """
    request = {
        "operation": Operation.TENSOR_LOAD,
        "request_id": 7,
        "global_address": 0x1000,
        "size": 0,
        "mode": AccessMode.TILE,
        "im2col_info": [0, 0, 0],
        "cache_policy": 0,
        "rank": len(box.dims),
        "coords": [*box.coords, *[0] * (5 - len(box.coords))],
        "smem_address": box.smem_address,
        "mbarrier": 64,
        "no_receiver": 0,
    }
    words = box.words()
    fault = changes.pop("fault", 0)
    for name, value in changes.items():
        if name.startswith("w"):
            words[int(name[1:])] = value
        else:
            assert name in request
            request[name] = value
    return {"request": request, "words": words, "fault": fault}


def covered_by(jobs) -> Pieces:
    """Return the pieces that the walks of a request cover, by the members of ``walk_layout``."""
    pieces: Pieces = {}
    for job in jobs:
        walk = job.walk
        if walk.first:
            begin, runs = walk.smem_begin, {}
        if walk.has_data:
            runs |= runs_of(walk)
        if walk.last:
            rows = (smem for smem in range(begin, walk.smem_end) if is_row(walk.row_mask, smem))
            pieces |= dict.fromkeys(rows) | runs
    return pieces


def is_row(mask: int, smem: int) -> int:
    return mask >> (smem % 24 if mask >> 8 else smem % 8) & 1


def runs_of(walk) -> Pieces:
    """Return the pieces that the runs of a walk cover."""
    pieces: Pieces = {}
    loops = [walk.loops[n] for n in range(4)]
    for steps in product(*(range(loop.last + 1) for loop in loops)):
        start = walk.start + sum(k * loop.global_step for k, loop in zip(steps, loops, strict=True))
        smem = walk.smem_start + sum(
            k * loop.smem_step for k, loop in zip(steps, loops, strict=True)
        )
        row = walk.row_pieces or walk.run
        assert walk.run % row == 0
        for piece in range(walk.run):
            tail = walk.tail_bytes if piece % row == row - 1 and walk.tail_bytes else 16
            assert smem + piece not in pieces, "two runs overlap"
            pieces[smem + piece] = ((start + piece) % (1 << 60), tail)
    return pieces


def set_up(inputs: list[dict], seed: int, pipelines: int = 1) -> tuple[list, list]:
    """Jobs and error records for ``inputs``, under random back-pressure."""
    dut = simulation(SetupBlock, replace(PARAMS, setup_pipelines=pipelines))
    run = run_streams(dut, {"i": inputs}, ["job", "error"], seed=seed)
    return run.payloads["job"], run.payloads["error"]


@pytest.mark.parametrize("pipelines", PIPELINES)
@pytest.mark.parametrize("seed", SEEDS)
def test_walk_covers_the_box(seed, pipelines):
    rng = random.Random(seed)
    boxes = [random_box(rng) for _ in range(100)]
    boxes += [random_interleaved(rng) for _ in range(60)]
    rng.shuffle(boxes)
    jobs, errors = set_up([box_input(box) for box in boxes], seed, pipelines)
    assert not errors
    for box, job in zip(boxes, jobs, strict=True):
        expected = box.pieces()
        assert covered_by([job]) == expected, box
        assert job.transfer.pieces == len(expected)


@pytest.mark.parametrize("pipelines", PIPELINES)
@pytest.mark.parametrize("element_stride", range(1, 9))
def test_long_dimension_over_each_edge(element_stride, pipelines):
    """A box of up to 256 steps in any dimension is clipped on either side."""
    rng = random.Random(element_stride)
    boxes = []
    for start in (-300, -257, -256, -255, -129, -128, -1, 0, 1, 100):
        for extent in (1, 127, 128, 129, 200, 255, 256, 257, 400):
            at, length = rng.randint(1, 4), rng.choice((129, 255, 256))
            steps = (element_stride if way == at else 1 for way in range(1, 5))
            long = {
                "dims": (2, *(extent if way == at else 2 for way in range(1, 5))),
                "box": (2, *(length if way == at else rng.randint(1, 2) for way in range(1, 5))),
                "element_strides": (1, *steps),
                "coords": (0, *(start if way == at else rng.randint(0, 1) for way in range(1, 5))),
                "strides": (32, *(32 * rng.randrange(1 << 20) for _ in range(3))),
                "interleave": rng.choice((0, 0, 1)),
            }
            boxes.append(replace(PLAIN, format=5, swizzle=0, fill=0, smem_address=0, **long))
    jobs, _ = set_up([box_input(box) for box in boxes], 0, pipelines)
    for box, job in zip(boxes, jobs, strict=True):
        assert covered_by([job]) == box.pieces(), box


@pytest.mark.parametrize("pipelines", PIPELINES)
@pytest.mark.parametrize("middle", [1, 4])
def test_dense_rows_are_one_run(middle, pipelines):
    """Dense rows merge across a dimension of one step, whatever its stride."""
    dense = Box(
        format=0,
        swizzle=0,
        fill=0,
        address=0,
        dims=(32, 64, 5),
        strides=(32, 2048) if middle == 4 else (4096, 32),
        box=(32, 64, 4) if middle == 4 else (32, 1, 64),
        element_strides=(1, 1, 1),
        coords=(0, 0, 0),
        smem_address=0,
    )
    if middle == 1:
        dense = replace(dense, dims=(32, 5, 64))
    (job,), _ = set_up([box_input(dense)], 0, pipelines)
    assert job.walk.run == 2 * 64 * middle


SLICED = {"rank": 3, "coords": [0, 0, 0, 0, 0]}
W2_SLICED = 2 << 4 | 7 << 7 | 2 << 11

PLAIN = Box(
    format=7,
    swizzle=1,
    fill=1,
    address=1 << 20,
    dims=(64, 64),
    strides=(256,),
    box=(8, 16),
    element_strides=(1, 1),
    coords=(0, 0),
    smem_address=1024,
)
W2 = PLAIN.words()[2]


def test_a_prefetch_has_no_place_in_shared_memory():
    changes = {"operation": Operation.TENSOR_PREFETCH, "smem_address": 5, "mbarrier": 5}
    jobs, errors = set_up([box_input(PLAIN, **changes), box_input(PLAIN)], 0)
    assert not errors
    assert [job.walk.prefetch for job in jobs] == [1, 0]
    assert (jobs[0].walk.start, jobs[0].walk.run) == (jobs[1].walk.start, jobs[1].walk.run)


LAST_MBARRIER = PARAMS.smem_bytes - 8


@pytest.mark.parametrize(
    ("changes", "cause", "value"),
    [
        ({"w2": W2 | 0xF << 7}, ErrorCode.MAP_FIELD, W2 | 0xF << 7),
        ({"w2": W2 & ~(0xF << 7)}, ErrorCode.MAP_FIELD, W2 & ~(0xF << 7)),  # NaN and an integer
        ({"w2": W2 | 1 << 11}, ErrorCode.MAP_FIELD, W2 | 1 << 11),  # interleaved, rank 2
        ({"w2": W2 | 3 << 11}, ErrorCode.MAP_FIELD, W2 | 3 << 11),
        ({"w2": W2_SLICED, **SLICED, "w0": 16}, ErrorCode.MAP_FIELD, W2_SLICED),
        ({"w2": W2_SLICED, **SLICED, "w4": 1}, ErrorCode.MAP_FIELD, W2_SLICED),
        ({"w2": W2 | 7 << 4}, ErrorCode.MAP_FIELD, W2 | 7 << 4),
        ({"w13": 6 << 24}, ErrorCode.MAP_FIELD, W2),  # 28 bytes a row
        ({"w13": 11 << 24}, ErrorCode.MAP_FIELD, W2),  # 48 bytes a row, span 32
        ({"w0": 8}, ErrorCode.MAP_FIELD, W2),
        ({"w2": W2 | 1}, ErrorCode.MAP_FIELD, W2 | 1),  # im2col needs rank 3
        ({"w2": W2 | 1 | 2 << 4, "rank": 3}, ErrorCode.MAP_MODE, AccessMode.TILE.value),
        ({"rank": 3}, ErrorCode.MAP_MODE, 3),
        ({"smem_address": 64}, ErrorCode.SMEM_ALIGN, 64),
        ({"smem_address": PARAMS.smem_bytes}, ErrorCode.SMEM_RANGE, PARAMS.smem_bytes),
        ({"smem_address": PARAMS.smem_bytes - 384}, ErrorCode.SMEM_RANGE, PARAMS.smem_bytes - 384),
        # The address has more bits than an offset in shared memory.
        ({"smem_address": 2**24 - 1024}, ErrorCode.SMEM_RANGE, 2**24 - 1024),
        ({"mbarrier": LAST_MBARRIER + 8}, ErrorCode.SMEM_RANGE, LAST_MBARRIER + 8),
        ({"coords": [-3, 0, 0, 0, 0]}, ErrorCode.COORD_ALIGN, 2**64 - 3),
        ({"mbarrier": 12}, ErrorCode.MBAR_ALIGN, 12),
        ({"fault": 1}, ErrorCode.GMEM_FAULT, 0x1000),
        # several errors: the first one of the table
        ({"w0": 8, "rank": 3}, ErrorCode.MAP_FIELD, W2),
        ({"rank": 1, "smem_address": 64}, ErrorCode.MAP_MODE, 1),
        (
            {"smem_address": PARAMS.smem_bytes, "mbarrier": 4},
            ErrorCode.SMEM_RANGE,
            PARAMS.smem_bytes,
        ),
        ({"coords": [1, 0, 0, 0, 0], "mbarrier": 4}, ErrorCode.COORD_ALIGN, 1),
    ],
)
def test_refusal(changes, cause, value):
    jobs, errors = set_up([box_input(PLAIN, **changes), box_input(PLAIN)], 0)
    assert len(jobs) == 1  # of the next request
    (error,) = errors
    assert (error.request_id, error.code.value, error.value) == (7, cause, value)


@pytest.mark.parametrize(
    ("cause", "dim"),
    [
        ({"decode": 0}, Response.SLVERR),
        ({"decode": 1}, Response.DECERR),
        ({"decode": 1, "page": PageFault.ABSENT}, PageFault.ABSENT),
    ],
)
def test_an_unreadable_map_has_its_cause(cause, dim):
    """``dim`` of the record is the response, or the page fault of a map that was not asked for."""
    params = replace(PARAMS, axi_data_bits=64, tlb_entries=4 if "page" in cause else 0)
    setup = simulation(SetupBlock, params)
    entries = [box_input(PLAIN, fault=1) | cause, box_input(PLAIN)]
    run = run_streams(setup, {"i": entries}, ["job", "error"])
    (error,) = run.payloads["error"]
    assert (error.code.value, error.dim) == (ErrorCode.GMEM_FAULT, dim.value)
    assert error.value == 0x1000
    assert len(run.payloads["job"]) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"smem_address": PARAMS.smem_bytes - 512},
        {"mbarrier": LAST_MBARRIER},
        {"coords": [-4, 0, 0, 0, 0]},
    ],
)
def test_just_inside(changes):
    jobs, errors = set_up([box_input(PLAIN, **changes)], 0)
    assert len(jobs) == 1
    assert not errors


@pytest.mark.parametrize(
    "changes",
    [
        {"w2": W2 | 7 << 1},  # version
        *({"w2": W2 | 1 << bit} for bit in range(19, 32)),  # fields of later architectures
        {"w13": PLAIN.words()[13] | 0x1FF << 15},
        {"w15": (1 << 32) - 1},
    ],
)
def test_reserved_bits_are_ignored(changes):
    jobs, errors = set_up([box_input(PLAIN), box_input(PLAIN, **changes)], 0)
    assert not errors
    assert jobs[0] == jobs[1]


@pytest.mark.parametrize(("feature", "bit"), [("im2col_w", 22), ("swizzle_atoms", 19)])
def test_a_unit_of_a_later_architecture_decodes_reserved_bits(feature, bit):
    """A tile map has no mode of ``im2col::w``, and the 32-byte swizzle has no other atoms."""
    word = W2 | 1 << bit
    dut = simulation(SetupBlock, replace(PARAMS, **{feature: True}))
    run = run_streams(dut, {"i": [box_input(PLAIN, w2=word)]}, ["job", "error"])
    (error,) = run.payloads["error"]
    assert (error.code.value, error.value) == (ErrorCode.MAP_FIELD, word)


def test_a_load_without_receivers_is_a_prefetch_that_is_checked():
    nobody = {"no_receiver": 1}
    inputs = [box_input(PLAIN, **nobody), box_input(PLAIN, smem_address=64, **nobody)]
    (job,), (error,) = set_up(inputs, 0)
    assert job.walk.prefetch
    assert error.code.value == ErrorCode.SMEM_ALIGN


def test_footprint_that_overflows_every_counter():
    huge = Box(
        format=9,
        swizzle=0,
        fill=0,
        address=0,
        dims=(256,) * 5,
        strides=(2048,) * 4,
        box=(256,) * 5,
        element_strides=(1,) * 5,
        coords=(0,) * 5,
        smem_address=0,
    )
    jobs, (error,) = set_up([box_input(huge)], 0)
    assert not jobs
    assert error.code.value == ErrorCode.SMEM_RANGE


@pytest.mark.parametrize("junk", [0, -1, 1 << 30, -(1 << 31)])
def test_a_row_has_no_other_dimension(junk):
    """A map of rank 1 is decoded whatever its fields of higher dimensions hold."""
    row = Box(
        format=0,
        swizzle=0,
        fill=0,
        address=1 << 30,
        dims=(100,),
        strides=(),
        box=(64,),
        element_strides=(1,),
        coords=(48,),
        smem_address=256,
    )
    words = {"w3": 0xFFFFFFFF, "w7": 0xFFFF, "w9": 5, "w13": 63 << 24 | 0x7FF8, "w14": 0xFFFFFFFF}
    jobs, errors = set_up([box_input(row, coords=[48, *[junk] * 4], **words)], 0)
    assert not errors
    assert covered_by(jobs) == row.pieces()
    assert jobs[0].transfer.pieces == 4


def small_box(rank: int, interleave: int = 0) -> Box:
    """Return a box of one row of 16 bytes."""
    return Box(
        format=0,
        swizzle=0,
        fill=0,
        address=0,
        dims=(16,) * rank,
        strides=(16,) * (rank - 1),
        box=(16,) + (1,) * (rank - 1),
        element_strides=(1,) * rank,
        coords=(0,) * rank,
        smem_address=0,
        interleave=interleave,
    )


def small_column(rank: int, **fields) -> golden.Load:
    """Return an im2col load of one pixel of 16 bytes."""
    dims, strides = (16,) * rank, (16,) * (rank - 1)
    corners = [(0,) * (rank - 2)] * 2
    tensor_map = golden.TensorMap.im2col("u8", 0, dims, strides, *corners, 16, 1, **fields)
    return golden.Load(tensor_map, (0,) * rank)


SLICES = {"interleave": "16B"}
SMALL = {
    **{f"tile {rank}": (box_input(small_box(rank)), max(1, rank - 1)) for rank in range(1, 6)},
    **{f"slices {rank}": (box_input(small_box(rank, 1)), rank) for rank in range(3, 6)},
    **{f"image {rank}": (setup_input(small_column(rank)), 5) for rank in range(3, 6)},
    **{
        f"slices of images {rank}": (setup_input(small_column(rank, **SLICES)), 5)
        for rank in range(3, 6)
    },
}
"""Requests, and the number of the places of their items."""


@pytest.mark.parametrize("pipelines", [1, 3])
@pytest.mark.parametrize("name", SMALL)
def test_throughput_and_latency(name, pipelines):
    """A batch a clock, of an item for each pipeline."""
    request, places = SMALL[name]
    batches = -(-places // pipelines)
    dut = simulation(SetupBlock, replace(PARAMS, setup_pipelines=pipelines))
    run = run_streams(dut, {"i": [request] * 20}, ["job", "error"], stall=0)
    first = 7 + batches - 1  # the first is offered in clock 0
    assert run.cycles["job"] == list(range(first, first + 20 * batches, batches))


def small_requests(seed: int, count: int) -> list[dict]:
    """Return requests of all ranks and modes, the slowest first; every tenth is refused."""
    requests = random.Random(seed).choices([request for request, _ in SMALL.values()], k=count)
    requests[0], _ = max(SMALL.values(), key=lambda small: small[1])
    inputs = [{**r, "request": r["request"] | {"request_id": n}} for n, r in enumerate(requests)]
    for number in range(5, count, 10):
        inputs[number]["fault"] = 1
    return inputs


def results_of(run) -> list[tuple[int, int, bool]]:
    """Return clock, request id and whether it was refused, for each job and error record."""
    jobs, records = run.payloads["job"], run.payloads["error"]
    done = [(job.transfer.request_id, False) for job in jobs]
    done += [(record.request_id, True) for record in records]
    times = run.cycles["job"] + run.cycles["error"]
    return sorted((time, *what) for time, what in zip(times, done, strict=True))


def test_five_pipelines_take_a_request_a_clock():
    """Requests of all ranks and modes enter, and their jobs and records leave, every clock."""
    run = run_streams(
        simulation(SetupBlock, replace(PARAMS, setup_pipelines=5)),
        {"i": small_requests(8, 100)},
        ["job", "error"],
        stall=0,
    )
    assert run.taken["i"] == list(range(100))
    times = [time for time, _, _ in results_of(run)]
    assert times == list(range(7, 107))


@pytest.mark.parametrize("pipelines", [2, 3, 4])
def test_jobs_leave_in_the_order_of_the_requests(pipelines):
    """Some requests have four jobs, and some are refused."""
    loads = random_requests(np.random.default_rng(3), "sm_100a_gather4", 10)
    inputs = [*small_requests(9, 60), *(setup_input(load) for load in loads)]
    random.Random(9).shuffle(inputs)
    inputs = [{**r, "request": r["request"] | {"request_id": n}} for n, r in enumerate(inputs)]
    params = replace(PRESETS["sm_107a"], setup_pipelines=pipelines)
    run = run_streams(simulation(SetupBlock, params), {"i": inputs}, ["job", "error"], seed=9)
    gathers = AccessMode.TILE_GATHER4
    wanted = [
        (number, bool(entry["fault"]))
        for number, entry in enumerate(inputs)
        for _ in range(4 if entry["request"]["mode"] == gathers else 1)
    ]
    results = results_of(run)
    for refused in False, True:  # each output has its own queue
        numbers = [number for _, number, is_refused in results if is_refused == refused]
        assert numbers == [number for number, is_refused in wanted if is_refused == refused]


@pytest.mark.parametrize("pipelines", PIPELINES)
@pytest.mark.parametrize("seed", quick(range(2), 1))
def test_walk_of_a_store_covers_what_is_inside(seed, pipelines):
    """A store writes the pieces that a load would read, the tensor's last piece as a whole."""
    rng = random.Random(seed)
    boxes = [stored_box(rng) for _ in range(60)]
    jobs, errors = set_up(
        [box_input(box, operation=Operation.TENSOR_STORE) for box in boxes], seed, pipelines
    )
    assert not errors
    for box, job in zip(boxes, jobs, strict=True):
        written = {smem: source for smem, source in covered_by([job]).items() if source}
        assert written == box.stored(), box
        assert (job.walk.store, job.walk.prefetch, job.transfer.mbarrier) == (1, 0, 0)


def spoiled(rng: random.Random, store: Store) -> Store:
    """Return ``store`` with one random change, which may make it illegal."""
    coords = list(store.coords)
    dim = rng.randrange(len(coords))
    words = list(as_descriptor(store.tensor_map).words)
    match rng.randrange(8):
        case 0 | 1:
            coords[dim] = rng.choice((-16, -1, -(1 << 31), coords[dim] + 1, (1 << 31) - 16))
            return replace(store, coords=tuple(coords))
        case 2:
            return replace(store, coords=tuple(coords[: rng.randint(1, 5)]))
        case 3:
            mode = rng.choice(list(AccessMode)).value
            return replace(store, mode=golden.AccessMode(mode))
        case 4:
            address = rng.choice((64, PARAMS.smem_bytes - 128, PARAMS.smem_bytes))
            return replace(store, smem_address=address)
        case 5 if isinstance(store, Reduce):
            return replace(store, op=rng.choice(list(golden.ReductionOp)))
        case 6:
            words[14] ^= 1 << rng.randrange(32)  # corners, or the box
        case _:
            words[2] ^= 1 << rng.choice((0, 4, 7, 8, 9, 11, 13, 14, 19, 20, 22))
    return replace(store, tensor_map=Descriptor(tuple(words)))


@pytest.mark.parametrize("preset", ["default", "sm_107a"])
def test_refusals_of_stores_against_golden(preset):
    """A store with up to three changes gets the golden model's error, and keeps its group."""
    rng = random.Random(5)
    kinds = [kind for kind, unit in STORE_KINDS.items() if unit == preset]
    arch = arch_of(kinds[0])
    draw = np.random.default_rng(5)
    stores = [store for kind in kinds for store in random_requests(draw, kind, 60)]
    for number, store in enumerate(stores):
        for _ in range(rng.randint(0, 3)):
            stores[number] = store = spoiled(rng, store)
    inputs = [setup_input(store, number) for number, store in enumerate(stores)]
    run = run_streams(
        simulation(SetupBlock, PRESETS[preset]), {"i": inputs}, ["job", "error"], stall=0.1
    )
    records = {record.request_id: record for record in run.payloads["error"]}
    accepted = {job.transfer.request_id for job in run.payloads["job"]}
    seen = Counter()
    for number, store in enumerate(stores):
        error = refusal(store, arch)
        if error is None:
            assert number in accepted, (store, records[number])
            continue
        assert number not in accepted, (store, error)
        record = records.pop(number)
        assert (record.code.value, record.dim) == (error.code, error.dim), (store, error)
        assert record.value == error.value % (1 << 64), (store, error)
        group = {"joined": record.group.joined, "thread": record.group.thread}
        assert group | {"index": record.group.index} == group_of(number)
        seen[error.code] += 1
    assert not records
    wanted = {code for code in ErrorCode if ErrorCode.MAP_FIELD <= code <= ErrorCode.IM2COL_START}
    if preset == "default":
        wanted |= {ErrorCode.IM2COL_CORNER, ErrorCode.RED_TYPE}
    assert set(seen) == wanted, seen


def test_corners_of_a_store_are_inside_the_tensor():
    """Each corner is moved by -1, 0 and 1: a bounding box beyond the tensor is refused."""
    stores = []
    for rank in (3, 4, 5):
        for corner in range(2 * (rank - 2)):
            for by in (-1, 0, 1):
                corners = [[0] * (rank - 2), [0] * (rank - 2)]
                corners[corner % 2][corner // 2] = by
                dims, strides = (8, 4, 4, 4, 4)[:rank], (16, 64, 256, 1024)[: rank - 1]
                tensor_map = golden.TensorMap.im2col("f16", 0, dims, strides, *corners, 8, 9)
                coords = (0, *(1,) * (rank - 1))
                stores.append(Store(tensor_map, coords))
    inputs = [setup_input(store, number) for number, store in enumerate(stores)]
    jobs, errors = set_up(inputs, 0)
    wanted = {n: refusal(store, golden.Arch.SM_90A) for n, store in enumerate(stores)}
    assert [job.transfer.request_id for job in jobs] == [n for n in wanted if wanted[n] is None]
    got = [(error.request_id, error.code.value, error.dim, error.value) for error in errors]
    assert got == [
        (number, error.code, error.dim, error.value % (1 << 64))
        for number, error in wanted.items()
        if error
    ]
    assert {code for _, code, _, _ in got} == {ErrorCode.IM2COL_CORNER}


@pytest.mark.parametrize(
    ("without", "code", "value"),
    [
        ({"stores": False, "reductions": False}, ErrorCode.MAP_MODE, AccessMode.TILE.value),
        ({"reductions": False}, ErrorCode.RED_TYPE, 0),
    ],
)
def test_a_unit_without_stores_or_reductions_refuses_them(without, code, value):
    params = replace(PARAMS, **without)
    wanted = [Operation.TENSOR_LOAD, Operation.TENSOR_STORE, Operation.TENSOR_REDUCE]
    inputs = [
        box_input(PLAIN, operation=operation, request_id=number)
        for number, operation in enumerate(wanted)
    ]
    run = run_streams(simulation(SetupBlock, params), {"i": inputs}, ["job", "error"])
    jobs = [job.transfer.request_id for job in run.payloads["job"]]
    assert jobs == ([0, 1] if params.stores else [0])
    records = run.payloads["error"]
    assert [record.request_id for record in records] == [n for n in range(3) if n not in jobs]
    assert {(record.code.value, record.value) for record in records} == {(code, value)}


@pytest.mark.parametrize("pipelines", PIPELINES)
@pytest.mark.parametrize("interleave", [0, 1])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_dense_boxes_that_end_with_the_tensor_are_one_run(
    rank: int, interleave: int, pipelines: int
):
    """The last dimension has any number of steps inside; the others are whole."""
    row = (16,) if interleave else (32, 2)
    slices = (1,) if interleave else ()
    box = (*row, *(2,) * (rank - 1 - len(row) - len(slices)), *slices, 16)
    unit = 16 if interleave else 1
    boxes = [
        Box(
            format=0,
            swizzle=0,
            fill=0,
            address=0,
            dims=(*box[:-1], inside),
            strides=tuple(unit * prod(box[:dim]) for dim in range(1, rank)),
            box=box,
            element_strides=(1,) * rank,
            coords=(0,) * rank,
            smem_address=0,
            interleave=interleave,
        )
        for inside in range(1, 17)
    ]
    jobs, errors = set_up([box_input(box) for box in boxes], 0, pipelines)
    assert not errors
    pieces = unit * prod(box[:-1]) // 16
    assert [job.walk.run for job in jobs] == [pieces * inside for inside in range(1, 17)]
