"""Odometer, in the walk generator: every pixel once, at its address, and a walk a clock."""

from dataclasses import replace

import numpy as np
import pytest

from golden import AccessMode, Arch, Load, Store, TensorMap
from hw.params import PRESETS
from tests.hw.generate.columns import (
    check_stores,
    requests_of,
    setup,
    walk,
    with_slots,
)
from tests.hw.generate.generators import Walks
from tests.hw.golden_requests import (
    KINDS,
    STORE_KINDS,
    arch_of,
    expected,
    group_of,
    random_requests,
)
from tests.hw.setup.test_block import covered_by
from tests.hw.simulate import Run, run_streams, simulation
from tests.quick import quick
from tests.unit_arch import LATER_UNIT

LATENCY = 4 + 2 + 3 + 1 + 1 + 1
"""Column preparation, job store, odometer, walk builder, row preparation, queue."""


@pytest.mark.parametrize("seed", quick(range(2), 1))
@pytest.mark.parametrize("kind", KINDS)
def test_walks_cover_the_box(kind: str, seed: int) -> None:
    """The walks of each request cover its box."""
    loads = random_requests(np.random.default_rng(seed), kind, 10)
    run = walk(loads, PRESETS[KINDS[kind]], seed=seed)
    found = requests_of(run)
    assert len(found) == len(loads)
    for number, (load, jobs) in enumerate(zip(loads, found, strict=True)):
        assert covered_by(jobs) == expected(load, arch_of(kind)), load
        assert {job.slot for job in jobs} == {number}


@pytest.mark.parametrize("kind", KINDS | STORE_KINDS)
def test_a_job_says_what_completes_its_request(kind: str) -> None:
    """Each job carries the pieces and the bulk group of its request; first and last are marked."""
    preset = (KINDS | STORE_KINDS)[kind]
    requests = random_requests(np.random.default_rng(6), kind, 6)
    jobs = iter(setup(requests, PRESETS[preset]))
    for number, request in enumerate(requests):
        parts = [next(jobs)]
        while not parts[-1].last:
            parts.append(next(jobs))
        assert [job.first for job in parts] == [1] + [0] * (len(parts) - 1)
        for job in parts:
            assert job.transfer.request_id == number
            if isinstance(request, Store):
                group = {name: getattr(job.group, name) for name in ("joined", "thread", "index")}
                assert group == group_of(number)
            else:
                assert parts[-1].transfer.pieces == len(expected(request, arch_of(kind)))
    assert next(jobs, None) is None


@pytest.mark.parametrize("kind", ["load_tile", "sm_100a_gather4"])
def test_a_tile_passes(kind: str) -> None:
    """A tile a clock, behind the latency of the walk generator."""
    loads = random_requests(np.random.default_rng(2), kind, 8)
    run = walk(loads, PRESETS[KINDS[kind]], stall=0)
    tiles = range(len(run.payloads["o"]))
    assert run.taken["i"] == list(tiles)
    assert run.cycles["o"] == [number + LATENCY for number in tiles]


@pytest.mark.parametrize("pixels", [1, 2])
def test_a_column_of_one_step_a_clock(pixels: int) -> None:
    """Columns with all of their pixels in a row of the image: a column a clock of one channel."""
    count = 40
    run = walk([image(64, 7, 0, pixels)] * count, PRESETS["default"], stall=0)
    cycles = run.cycles["o"]
    assert cycles == [*range(cycles[0], cycles[0] + count)]


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_walks_of_a_store_cover_what_is_inside(kind: str) -> None:
    """Dimension 0 counts in whole pieces; in the others the golden model decides."""
    count = 5 if "im2col" in kind else 20
    stores = random_requests(np.random.default_rng(3), kind, count)
    params = PRESETS[STORE_KINDS[kind]]
    run = walk(stores, params, seed=1, stall=0.3)
    check_stores(stores, run, arch_of(kind))


@pytest.mark.parametrize("channels", [32, 64])
def test_a_store_of_im2col_w_stops_at_the_first_pixel_outside(channels: int) -> None:
    """The first pixel outside is in front of the tensor, behind it, in a row above or below it, or
    behind all images; pixels behind it are inside again. A store of other pixels follows.
    """
    dims, strides = (64, 9, 3, 4), (128, 1152, 3456)
    stores = []
    for lower, upper in ((0, 0), (-1, 0), (0, 1)):
        tensor_map = TensorMap.im2col(
            *("f16", 0, dims, strides, (lower,), (upper,), channels, 30),
            swizzle="128B",
            wide=True,
            arch=LATER_UNIT,
        )
        for where in ((0, 0, 0), (0, 8 + upper, 0), (2, 2, 1), (3, 1, 3), (3, 3, 0), (0, 0, 4)):
            stores.append(Store(tensor_map, (0, *where), AccessMode.IM2COL_W))
    run = walk(stores, PRESETS["sm_107a"], stall=0)
    check_stores(stores, run, LATER_UNIT)
    counts = {len(expected(store, LATER_UNIT)) for store in stores}
    assert len(counts) > 4


def image(channels: int, w: int, corner: int, pixels: int = 256) -> Load:
    """Return a column over all of W, H, D and N of a small image of 16-bit numbers."""
    dims = (64, w, 3, 2, 64)
    strides = (128, 128 * w, 384 * w, 768 * w)
    lower, upper = (-corner,) * 3, (corner,) * 3
    tensor_map = TensorMap.im2col(
        *("f16", 0, dims, strides, lower, upper, channels, pixels), swizzle="128B"
    )
    return Load(tensor_map, (0, -corner, -corner, -corner, 0), mbarrier=0)


@pytest.mark.parametrize("corner", [0, 1])
@pytest.mark.parametrize("channels", [32, 64])
def test_no_clock_is_lost_at_any_wrap(channels: int, corner: int) -> None:
    """Rows have one, two and seven pixels; W, H, D and N wrap, and so do requests. A last row that
    is outside has no walk of its own.
    """
    widths = 1, 2, 7
    loads = [image(channels, w, corner) for w in widths] * 2
    run = walk(loads, PRESETS["default"], stall=0)
    cycles = run.cycles["o"]
    assert cycles[-1] - cycles[0] == len(cycles) - 1
    rows = [-(-256 // (w + 2 * corner)) for w in widths]
    h_rows, d_rows = 3 + 2 * corner, 2 + 2 * corner
    last_inside = [
        corner <= (n - 1) % h_rows < 3 + corner
        and corner <= (n - 1) // h_rows % d_rows < 2 + corner
        for n in rows
    ]
    assert set(last_inside) == ({True, False} if corner else {True})
    walks = [n - (corner and not inside) for n, inside in zip(rows, last_inside, strict=True)]
    assert len(cycles) == 2 * sum(walks)


def test_what_is_outside_at_the_end_is_in_the_walk_before_it() -> None:
    """A row in front of or behind the tensor in H, or in D behind a wrap; or all that lies behind
    the last image.
    """
    corners = (0, -1, -1), (0, 1, 1)
    for where, pixels, walks in (
        ((0, 0, 2, 0, 0), 8, 1),  # H 2, then H 3
        ((0, 0, 2, 0, 0), 6, 1),
        ((0, 0, 2, 0, 0), 9, 2),  # then H -1 of D 0
        ((0, 2, 2, 0, 0), 6, 1),
        ((0, 0, 1, 0, 0), 8, 2),
        ((0, 0, -1, 0, 0), 8, 2),  # H -1, then H 0
        ((0, 0, 3, 1, 0), 8, 1),  # H 3, then D 2
        ((0, 0, 3, 0, 0), 8, 1),  # H 3, then H -1 of D 1
        ((0, 0, 3, 2, 1), 8, 1),  # the last row of all images
        ((0, 0, 3, 2, 1), 400, 1),
        ((0, 0, 2, 2, 1), 400, 2),
        ((0, 0, 3, 2, 0), 400, 1 + 4 * 5),  # the first image, then all rows of the second one
    ):
        tensor_map = TensorMap.im2col(
            *("f16", 0, (64, 4, 3, 2, 2), (128, 512, 1536, 3072), *corners, 64, pixels),
            swizzle="128B",
        )
        loads = [Load(tensor_map, where, mbarrier=0)]
        found = requests_of(walk(loads, PRESETS["default"], stall=0))
        assert [len(jobs) for jobs in found] == [walks], (where, pixels)
        assert covered_by(found[0]) == expected(loads[0], arch_of("load_im2col"))


@pytest.mark.parametrize(
    "by", [1, 3, 7, 8, *(pytest.param(by, marks=pytest.mark.regress) for by in (2, 4, 5, 6))]
)
@pytest.mark.parametrize("channels", [8, 24])
def test_long_rows_of_pixels_that_lie_apart(channels: int, by: int) -> None:
    """Each pixel is ``by`` positions behind the last: walks have 32 pixels, and cross all edges."""
    width = 331
    tensor_map = TensorMap.im2col(
        *("f16", 0, (24, width, 3, 20), (48, 48 * width, 144 * width), (-20, 0), (11, 0)),
        *(channels, 500),
        element_strides=(1, by, 1, 1),
        swizzle="64B" if channels == 24 else "32B",
    )
    loads = [Load(tensor_map, (0, x, 0, 0)) for x in (-20, -1, 0, 7, 290, 320, width - 1 + 11)]
    run = walk(loads, PRESETS["default"], stall=0)
    for load, jobs in zip(loads, requests_of(run), strict=True):
        assert covered_by(jobs) == expected(load, Arch.SM_90A), load
        rows, left, x = 0, 500, load.coords[1]
        while left > 0:
            row = -(-(width + 11 - x) // by)
            rows += -(-min(row, left) // 32)
            left, x = left - row, -20
        assert len(jobs) == rows


@pytest.mark.parametrize("where", ["W", "H", "D", "N", "C", "W from the right"])
def test_what_is_outside_to_the_last_pixel_is_one_walk(where: str) -> None:
    """Rows and columns beside all images, images behind the last one, and channels are outside."""
    dims, strides = (16, 5, 4, 3, 2), (32, 160, 640, 1920)
    lower, upper, coords = [-1] * 3, [1] * 3, [0, 1, 2, 1, 1]
    if where == "C":
        coords[0] = 16
    elif where == "N":
        coords[4] = 2
    elif where == "W from the right":
        lower[0], upper[0], coords[1] = 5, 7, 6
    else:
        at = "WHD".index(where)
        lower[at], upper[at], coords[1 + at] = -7, -dims[1 + at], -3
    tensor_map = TensorMap.im2col("f16", 0, dims, strides, lower, upper, 8, 200)
    loads = [Load(tensor_map, coords), Load(tensor_map, [*coords[:4], 2])]
    (jobs, others) = requests_of(walk(loads, PRESETS["default"], stall=0))
    assert covered_by(jobs) == expected(loads[0], Arch.SM_90A)
    assert len(jobs) == len(others) == 1


@pytest.mark.parametrize("channels", [8, 24, 72])
def test_pixels_of_any_width_are_contiguous(channels: int) -> None:
    """Pixels of 1, 3 and 9 pieces: each row is a walk of one run."""
    strides = [2 * channels * n for n in (1, 9, 27)]
    tensor_map = TensorMap.im2col(
        *("f16", 0, (channels, 9, 3, 9), strides, (0, 0), (0, 0), channels, 50)
    )
    loads = [Load(tensor_map, (0, 3, 0, 0)), Load(tensor_map, (0, 0, 1, 1))]
    run = walk(loads, PRESETS["default"], stall=0)
    for load, jobs in zip(loads, requests_of(run), strict=True):
        assert covered_by(jobs) == expected(load, Arch.SM_90A), load
        assert len(jobs) == 6
        assert not any(loop.last for job in jobs for loop in job.walk.loops)


@pytest.mark.parametrize("corner", [0, 1, 3])
def test_rows_of_pixels_are_cut_at_the_edges(corner: int) -> None:
    """Contiguous pixels are one walk, with some of them outside on either side."""
    loads = [image(64, w, corner, pixels) for w in (1, 2, 7) for pixels in (5, 100)]
    loads = [replace(load, coords=(0, x, 0, 0, 0)) for load in loads for x in (-corner, 0)]
    run = walk(loads, PRESETS["default"], stall=0)
    for load, jobs in zip(loads, requests_of(run), strict=True):
        assert covered_by(jobs) == expected(load, Arch.SM_90A), load


def test_strided_pixels_are_not_contiguous() -> None:
    """Every second pixel of overlapping rows has the address that contiguous pixels would have."""
    tensor_map = TensorMap.im2col(
        *("f16", 0, (64, 9, 3, 2), (64, 1152, 3456), (0, 0), (0, 0), 64, 20),
        element_strides=(1, 2, 1, 1),
        swizzle="128B",
    )
    load = Load(tensor_map, (0, 1, 0, 0))
    (jobs,) = requests_of(walk([load], PRESETS["default"], stall=0))
    assert covered_by(jobs) == expected(load, Arch.SM_90A)


@pytest.mark.parametrize("where", [-1, 3])
def test_what_the_column_does_not_walk_may_be_outside(where: int) -> None:
    """The slice of an interleaved map, and H of ``im2col::w``, are outside: everything is fill."""
    dims, strides = (9, 3, 4), (288, 1152)
    sliced = TensorMap.im2col(
        *("f16", 0, dims, strides, (0,), (0,), 8, 20), swizzle="32B", interleave="32B"
    )
    dims, strides = (64, 9, 3, 4), (128, 1152, 3456)
    wide = TensorMap.im2col(
        *("f16", 0, dims, strides, (0,), (0,), 64, 20),
        swizzle="128B",
        wide=True,
        arch=LATER_UNIT,
    )
    loads = [Load(sliced, (2, where, 1)), Load(wide, (0, 2, where, 1), AccessMode.IM2COL_W)]
    run = walk(loads, PRESETS["sm_107a"], stall=0)
    for load, jobs in zip(loads, requests_of(run), strict=True):
        pieces = covered_by(jobs)
        assert pieces == expected(load, LATER_UNIT)
        assert not any(pieces.values())


@pytest.mark.parametrize("dimension", ["H", "D"])
@pytest.mark.parametrize("front", [0, 1])
def test_images_have_any_number_of_rows(dimension: str, front: int) -> None:
    """A column has the last row of an image, and the first two of the next one, which is the last.
    The images have ``2**n + 1`` rows in H or in D, ``front`` of them in front of the tensor.
    """
    loads = []
    for bit in range(1, 10):
        rows = (1 << bit) + 1 - front
        h, d = (rows, 2) if dimension == "H" else (1, rows)
        # With another row of D, D goes on behind the last row of the tensor and does not wrap.
        corners = ((0, -front, 0), (0, 0, 1)) if dimension == "H" else ((0, 0, -front), (0, 0, 0))
        start = (h - 1, 0) if dimension == "H" else (0, d - 1)
        tensor_map = TensorMap.im2col(
            *("f16", 0, (64, 4, h, d, 2), (128, 512, 512 * h, 512 * h * d)),
            *(*corners, 64, 3 * 4),
            swizzle="128B",
        )
        loads.append(Load(tensor_map, (0, 0, *start, 0), mbarrier=0))
    run = walk(loads, PRESETS["default"], stall=0)
    for load, jobs in zip(loads, requests_of(run), strict=True):
        assert covered_by(jobs) == expected(load, Arch.SM_90A), load


@pytest.mark.parametrize("rank", [4, 5])
def test_long_columns_of_small_images(rank: int) -> None:
    """Each dimension wraps, also far in front of the tensor and far behind it."""
    rng = np.random.default_rng(rank)
    farthest = {4: 40, 5: 15}[rank]
    loads = []
    for _ in range(12):
        lower, upper = (
            [int(rng.choice([0, 1, farthest]) * rng.random()) for _ in range(rank - 2)]
            for _ in range(2)
        )
        dims = [8, *rng.integers(1, 4, rank - 1).tolist()]
        strides = 16 * np.cumprod([1, *dims[1:-1]])
        tensor_map = TensorMap.im2col(
            *("f16", 0, dims, strides.tolist(), [-far for far in lower], upper, 8, 1024),
            [1, *rng.integers(1, 4, rank - 2).tolist(), 1],
        )
        start = [
            int(rng.integers(-far, size + beyond))
            for far, size, beyond in zip(lower, dims[1:-1], upper, strict=True)
        ]
        loads.append(Load(tensor_map, (0, *start, 0)))
    run = walk(loads, PRESETS["default"], all_streams=True, stall=0)
    for load, jobs in zip(loads, requests_of(run), strict=True):
        assert covered_by(jobs) == expected(load, Arch.SM_90A), load


def test_turns_are_given_for_jobs_only() -> None:
    """A channel with two tiles takes two clocks from the column of another channel."""
    params = PRESETS["default"]
    tiles = random_requests(np.random.default_rng(2), "load_tile", 1)
    column, tile = with_slots(setup([image(32, 1, 0), *tiles], params), params)
    for few in range(params.streams):
        many = (few + 1) % params.streams
        jobs = [column | {"channel": many}, *[tile | {"channel": few}] * 2]
        outputs = [f"walk_{few}", f"walk_{many}"]
        run = run_streams(simulation(Walks, params), {"i": jobs}, outputs, stall=0)
        cycles = sorted(cycle for name in outputs for cycle in run.cycles[name])
        assert len(run.cycles[f"walk_{many}"]) == 256
        assert cycles == [*range(cycles[0], cycles[0] + 256 + 2)], few


@pytest.mark.parametrize("channel", range(5))
def test_a_tile_is_not_late_after_any_pause(channel: int) -> None:
    """Each channel has one tile at a time, in any clock after the one before."""
    params = PRESETS["default"]
    is_store = channel == params.streams
    kind, output = ("store_tile", "store_walk") if is_store else ("load_tile", f"walk_{channel}")
    tiles = random_requests(np.random.default_rng(2), kind, 1)
    (tile,) = with_slots(setup(tiles, params), params)
    clocks = {20 * number + number % 8 for number in range(1, 17)}

    def feed(_run: Run, clock: int) -> dict[str, list]:
        return {"i": [tile | {"channel": channel}] if clock in clocks else []}

    run = run_streams(simulation(Walks, params), {"i": []}, [output], stall=0, feed=feed)
    assert run.taken["i"] == sorted(clocks)
    assert run.cycles[output] == [clock + LATENCY for clock in run.taken["i"]]
