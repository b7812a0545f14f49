"""Modes of architectures after Hopper: the unit against the golden model, mode by mode."""

from dataclasses import replace

import numpy as np
import pytest

from golden import AccessMode, DataType, Load, TensorMap
from golden.geometry import Geometry
from golden.model import operands_of
from sim_tb.performance.tb_timing import Box
from sim_tb.simulator import jobs, runner
from tests.top.random_loads import BLACKWELL, BY_PARAMETER, lines_of
from tests.top.units import LATER
from tests.unit_arch import LATER_UNIT

pytestmark = [pytest.mark.simulators(LATER), pytest.mark.spread]

MODULE = "tests.top.tb_loads"


def loads(testcase: str, modes: str, count: int, models: str, seed: int = 1) -> None:
    env = {"LOADS_MODELS": models, "LOADS_COUNT": str(count), "LOADS_MODES": modes}
    runner.run(MODULE, testcase, params=LATER, seed=seed, env=env)


@pytest.mark.parametrize("mode", [*BLACKWELL, *BY_PARAMETER])
def test_mode(mode: str) -> None:
    loads("in_flight", mode, 100, "rough")


@pytest.mark.parametrize("models", ["fixed", "rough"])
def test_with_all_others(models: str) -> None:
    loads("in_flight", "", 100, models)


@pytest.mark.parametrize("models", ["fixed", "rough"])
def test_mixed_sizes(models: str) -> None:
    """The largest box and other loads are in flight together: shared memory has room for both."""
    loads("mixed_sizes", "", 200, models)


def image(pixels: int) -> TensorMap:
    """Return a map of images with rows of 13 pixels of 128 bytes and a halo on both sides."""
    return TensorMap.im2col(
        *("bf16", 1 << 20, (64, 13, 9, 40), (128, 1664, 14976), (-1,), (1,), 64, pixels),
        swizzle="128B",
        wide=True,
        arch=LATER_UNIT,
    )


def matrix(kind: str, columns: int, rows: int = 512, **fields: str) -> TensorMap:
    """Return a map of a dense matrix with a box of all columns and one row."""
    data_type = DataType.member(kind)
    stride = columns * data_type.bits // 8
    shape = (columns, rows), (stride,), (columns, 1)
    return TensorMap.tiled(data_type, 1 << 20, *shape, **fields, arch=LATER_UNIT)


def tall(tensor_map: TensorMap, rows: int) -> TensorMap:
    return replace(tensor_map, box_dim=(tensor_map.box_dim[0], rows))


RATES = {
    "gather4": Load(
        matrix("bf16", 64, swizzle="128B"), (0, 7, 500, 3, 90), AccessMode.TILE_GATHER4
    ),
    "gather4, half a row": Load(matrix("bf16", 32), (0, 7, 500, 3, 90), AccessMode.TILE_GATHER4),
    "im2col_w": Load(image(128), (0, 3, 2, 1), AccessMode.IM2COL_W, w_halo=20, w_offset=1),
    "im2col_w_128": Load(image(128), (0, 3, 2, 1), AccessMode.IM2COL_W_128, w_halo=9),
    "96B": Load(tall(matrix("bf16", 48, swizzle="96B"), 64), (0, 8)),
    "128B_ATOM_32B": Load(tall(matrix("bf16", 64, swizzle="128B_ATOM_32B"), 64), (0, 8)),
    "128B_ATOM_64B": Load(tall(matrix("bf16", 64, swizzle="128B_ATOM_64B"), 64), (0, 8)),
    "16U4_ALIGN8B": Load(tall(matrix("16U4_ALIGN8B", 256), 64), (0, 8)),
    "16U4_ALIGN16B": Load(tall(matrix("16U4_ALIGN16B", 128), 64), (0, 8)),
    "16U6_ALIGN16B": Load(tall(matrix("16U6_ALIGN16B", 128), 64), (0, 8)),
}


def test_a_line_a_clock() -> None:
    """In steady state each mode takes a clock for each beat or each line, whichever is more.

    The number of lines is between the distinct lines of the box and the sum of the lines of its
    rows, because rows may share a line.
    """
    boxes, floors, limits = [], [], []
    for load in RATES.values():
        geometry = Geometry(load.tensor_map, load.mode, arch=LATER_UNIT)
        beats = np.unique(geometry.spread(0, operands_of(load)).smem // 128).size
        lines, by_row = lines_of(load, LATER_UNIT, 128)
        floors.append(max(beats, lines.size))
        limits.append(max(beats, by_row))
        extent, count = geometry.extent(load.w_halo), geometry.bytes(load.w_halo)
        boxes.append(Box(load, extent, count, floors[-1]))
    env = {"TIMING_MODELS": "fixed"}
    measured = jobs.results("sim_tb.performance.tb_timing", boxes, env=env, params=LATER)
    cycles_taken = [taken.cycles for taken in measured]
    for name, floor, limit, cycles in zip(RATES, floors, limits, cycles_taken, strict=True):
        assert 0.97 * floor < cycles <= 1.03 * limit, (name, floor, limit, cycles)


def test_offsets() -> None:
    loads("offsets_are_limited", "", 1, "fixed")


@pytest.mark.parametrize("apart", [40, pytest.param(1, marks=pytest.mark.regress)])
def test_every_kind(apart: int) -> None:
    """A load of each kind that coverage distinguishes, or of every fortieth kind."""
    env = {"LOADS_MODELS": "rough", "LOADS_EVERY": str(apart)}
    runner.run(MODULE, "every_kind", params=LATER, env=env)


@pytest.mark.regress
@pytest.mark.parametrize("models", ["fixed", "rough"])
@pytest.mark.parametrize("mode", [*BLACKWELL, *BY_PARAMETER])
def test_mode_at_length(mode: str, models: str) -> None:
    loads("in_flight", mode, 1000, models, seed=2)
