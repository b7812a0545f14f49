"""Im2col walker, behind the setup block: every pixel once, at its address, one walk a clock."""

from dataclasses import replace

import numpy as np
import pytest

from golden import AccessMode, Arch, Load, TensorMap, TmaError, check
from golden.descriptor import as_descriptor
from golden.geometry import Geometry
from golden.model import operands_of
from hw.im2col_walker import Im2colWalker
from hw.layouts import AccessMode as Mode
from hw.layouts import Operation
from hw.params import PRESETS, TmaParams
from hw.setup_block import SetupBlock
from tests.golden.random_requests import MODES
from tests.hw.boxes import Pieces
from tests.hw.simulate import Run, run_streams
from tests.hw.test_setup_block import covered_by

KINDS = {
    "load_im2col": "default",
    "load_im2col_interleaved": "default",
    "sm_100a_im2col_w": "sm_100a",
    "sm_100a_im2col_w_128": "sm_100a",
    "sm_100a_gather4": "sm_100a",
    "load_tile": "default",
}
SMEM_BYTES = PRESETS["default"].smem_bytes


def described(load: Load) -> dict:
    """The input of the setup block for ``load``."""
    d = as_descriptor(load.tensor_map)
    mode = AccessMode(int(d.mode)) if load.mode is None else load.mode
    info = load.im2col_offsets
    if mode in (AccessMode.IM2COL_W, AccessMode.IM2COL_W_128):
        info = load.w_halo, load.w_offset
    request = {
        "operation": Operation.TENSOR_LOAD,
        "mode": Mode(mode.value),
        "rank": len(load.coords),
        "coords": [*load.coords, 0, 0, 0, 0][:5],
        "im2col_info": [*info, 0, 0, 0][:3],
        "smem_address": load.smem_address,
        "mbarrier": 0,
    }
    return {"request": request, "words": list(d.words), "fault": 0}


def expected(load: Load, arch: Arch) -> Pieces:
    """The pieces of ``load``, before the swizzle."""
    geometry = Geometry(load.tensor_map, load.mode, arch=arch)
    spread = geometry.spread(load.smem_address, operands_of(load))
    pieces: Pieces = {}
    for row, (addresses, inside) in enumerate(zip(spread.gmem, spread.inside, strict=True)):
        start = (load.smem_address + row * geometry.pitch) // 16
        for column, (address, count) in enumerate(zip(addresses, inside, strict=True)):
            source = (int(address) // 16, int(count)) if count else None
            pieces[start + column] = source
    return pieces


def walk(loads: list[Load], params: TmaParams, **options) -> Run:
    """What the walker makes of ``loads``; setup runs without stalls."""
    inputs = {"i": [described(load) for load in loads]}
    jobs = run_streams(SetupBlock(params), inputs, ["job", "error"], stall=0)
    assert not jobs.payloads["error"]
    return run_streams(Im2colWalker(params), {"i": jobs.payloads["job"]}, ["o"], **options)


def requests_of(run: Run) -> list[list]:
    """The walks, request by request."""
    requests: list[list] = []
    for job in run.payloads["o"]:
        if job.first:
            requests.append([])
        requests[-1].append(job)
    return requests


def arch_of(kind: str) -> Arch:
    return Arch.SM_100A if KINDS[kind] == "sm_100a" else Arch.SM_90A


def random_loads(rng: np.random.Generator, kind: str, count: int) -> list[Load]:
    """Legal loads of types that are no smaller than a byte."""
    loads: list[Load] = []
    while len(loads) < count:
        try:
            load = MODES[kind](rng).request
            check(load, smem_bytes=SMEM_BYTES, arch=arch_of(kind))
        except TmaError:
            continue
        data_type = as_descriptor(load.tensor_map).data_type
        if data_type is not None and not data_type.is_sub_byte:
            loads.append(load)
    return loads


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_walks_cover_the_box(kind: str, seed: int) -> None:
    loads = random_loads(np.random.default_rng(seed), kind, 10)
    run = walk(loads, PRESETS[KINDS[kind]], seed=seed)
    found = requests_of(run)
    assert len(found) == len(loads)
    for load, jobs in zip(loads, found, strict=True):
        wanted = expected(load, arch_of(kind))
        assert covered_by(jobs) == wanted, load
        assert [job.last for job in jobs] == [0] * (len(jobs) - 1) + [1]
        assert {job.transfer.pieces for job in jobs} == {len(wanted)}


def image(channels: int, w: int, corner: int, pixels: int = 256) -> Load:
    """A column over all of W, H, D and N of a small image of 16-bit numbers."""
    dims = (64, w, 3, 2, 4)
    strides = (128, 128 * w, 384 * w, 768 * w)
    lower, upper = (-corner,) * 3, (corner,) * 3
    tensor_map = TensorMap.im2col(
        *("f16", 0, dims, strides, lower, upper, channels, pixels), swizzle="128B"
    )
    return Load(tensor_map, (0, -corner, -corner, -corner, 0), mbarrier=0)


@pytest.mark.parametrize("corner", [0, 1])
@pytest.mark.parametrize("channels", [32, 64])
def test_no_clock_is_lost_at_any_wrap(channels: int, corner: int) -> None:
    """Rows of one pixel, of two and of seven; W, H, D and N wrap, and so do requests."""
    loads = [image(channels, w, corner) for w in (1, 2, 7)] * 2
    run = walk(loads, PRESETS["default"], stall=0)
    cycles = run.cycles["o"]
    assert cycles[-1] - cycles[0] == len(cycles) - 1
    if channels == 32:  # not dense: a walk for each pixel
        assert len(cycles) == 6 * 256
    else:
        rows = {w: 256 // (w + 2 * corner) for w in (1, 2, 7)}
        assert len(cycles) == 2 * sum(-(-256 // (w + 2 * corner)) for w in rows)


@pytest.mark.parametrize("corner", [0, 1, 3])
def test_rows_of_pixels_are_cut_at_the_edges(corner: int) -> None:
    """Contiguous pixels in one walk, some of them outside on either side."""
    loads = [image(64, w, corner, pixels) for w in (1, 2, 7) for pixels in (5, 100)]
    loads = [replace(load, coords=(0, x, 0, 0, 0)) for load in loads for x in (-corner, 0)]
    run = walk(loads, PRESETS["default"], stall=0)
    for load, jobs in zip(loads, requests_of(run), strict=True):
        assert covered_by(jobs) == expected(load, Arch.SM_90A), load


def test_strided_pixels_are_not_contiguous() -> None:
    """Every second pixel of rows that overlap: the addresses are those of contiguous pixels."""
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
    """The slice of an interleaved map, and H of ``im2col::w``: everything is fill."""
    dims, strides = (9, 3, 4), (288, 1152)
    sliced = TensorMap.im2col(
        *("f16", 0, dims, strides, (0,), (0,), 8, 20), swizzle="32B", interleave="32B"
    )
    dims, strides = (64, 9, 3, 4), (128, 1152, 3456)
    wide = TensorMap.im2col(
        *("f16", 0, dims, strides, (0,), (0,), 64, 20),
        swizzle="128B",
        wide=True,
        arch=Arch.SM_100A,
    )
    loads = [Load(sliced, (2, where, 1)), Load(wide, (0, 2, where, 1), AccessMode.IM2COL_W)]
    run = walk(loads, PRESETS["sm_100a"], stall=0)
    for load, jobs in zip(loads, requests_of(run), strict=True):
        pieces = covered_by(jobs)
        assert pieces == expected(load, Arch.SM_100A)
        assert not any(pieces.values())
