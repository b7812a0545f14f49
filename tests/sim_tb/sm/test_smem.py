"""Shared memory of kernels: pieces of swizzled tiles, bank conflicts, layout, rings."""

from itertools import islice

import numpy as np
import pytest

from golden import Swizzle
from sim_tb.sm.smem import Mbarrier, SmemError, SmemLayout, Tile, wavefronts

BYTE = np.dtype(np.uint8)
FLOAT = np.dtype(np.float32)


@pytest.mark.parametrize(
    ("swizzle", "shape"),
    [
        (Swizzle.NONE, (16, 48)),
        (Swizzle.SWIZZLE_32B, (16, 32)),
        (Swizzle.SWIZZLE_64B, (16, 64)),
        (Swizzle.SWIZZLE_128B, (16, 128)),
    ],
)
def test_pieces_lie_where_the_swizzle_says(swizzle, shape):
    tile = Tile("t", 2048, shape, BYTE, swizzle)
    for row in range(shape[0]):
        for piece in range(shape[1] // 16):
            offset = 2048 + row * shape[1] + piece * 16
            assert tile.pieces[row, piece] * 16 == offset ^ (offset >> 3 & swizzle.mask)


def test_a_view_of_rows_keeps_the_swizzle_of_the_whole():
    """The phase follows the row of the whole tile, even if the view begins between two repeats."""
    tile = Tile("t", 1024, (64, 64), np.dtype(np.float16), Swizzle.SWIZZLE_128B)
    view = tile.rows(3, 21).rows(2, 10)
    assert np.array_equal(view.pieces, tile.pieces[5:13])
    assert (view.shape, view.nbytes, view.address) == ((8, 64), 8 * 128, 1024 + 5 * 128)
    assert view.piece_range == slice((1024 + 5 * 128) // 16, (1024 + 13 * 128) // 16)
    for start, stop in ((-1, 4), (4, 4), (60, 65)):
        with pytest.raises(
            SmemError, match=f"t: there is no view of rows {start} to {stop}: the .* 64"
        ):
            tile.rows(start, stop)


def expected_wavefronts(addresses):
    """Clocks of the accesses, computed word by word without NumPy."""
    total = 0
    for access in addresses.tolist():
        banks = [set() for _ in range(32)]
        for address in access:
            banks[address // 4 % 32].add(address // 4)
        total += max(map(len, banks))
    return total


def test_wavefronts():
    lanes = np.arange(32)[None]
    assert wavefronts(lanes * 4) == 1
    assert wavefronts(lanes * 0) == 1  # all lanes read the same word
    assert wavefronts(lanes * 8) == 2
    assert wavefronts(lanes * 128) == 32
    assert wavefronts(np.concatenate([lanes * 4, lanes * 8])) == 3
    rng = np.random.default_rng(7)
    addresses = rng.integers(0, 4096, (50, 32))
    assert wavefronts(addresses) == expected_wavefronts(addresses)


@pytest.mark.parametrize(("swizzle", "clocks"), [(Swizzle.NONE, 32), (Swizzle.SWIZZLE_128B, 4)])
def test_a_column_conflicts_without_a_swizzle(swizzle, clocks):
    """Rows of 128 bytes start at the same bank. The swizzle moves eight of them apart."""
    tile = Tile("t", 0, (32, 32), FLOAT, swizzle)
    assert tile.access_wavefronts(columns=False) == 32
    assert tile.access_wavefronts(columns=True) == 32 * clocks


@pytest.mark.parametrize(("swizzle", "times"), [(Swizzle.NONE, 8), (Swizzle.SWIZZLE_128B, 1)])
def test_matrix_instructions_conflict_without_a_swizzle(swizzle, times):
    tile = Tile("t", 0, (64, 64), np.dtype(np.float16), swizzle)
    assert tile.matrix_wavefronts == times * tile.nbytes // 128


def test_layout_aligns_to_the_swizzle():
    smem = SmemLayout(8192)
    first = smem.tile("first", (1, 5), BYTE)
    second = smem.tile("second", (8, 32), FLOAT, Swizzle.SWIZZLE_128B)
    third = smem.tile("third", (1, 4), BYTE, align=16)
    assert (first.address, second.address, third.address) == (0, 1024, 2048)
    assert smem.bytes == 2052
    barrier = smem.mbarrier("done")
    assert barrier == Mbarrier("done", 2056)
    assert smem.name(barrier.address) == "done"
    assert smem.name(8) == "barrier at 0x8"
    tiles = smem.tiles("A", 2, (2, 8), BYTE)
    assert [tile.name for tile in tiles] == ["A[0]", "A[1]"]


def test_a_tile_or_barrier_that_does_not_fit_is_named():
    smem = SmemLayout(4096)
    smem.tile("all but 8", (1, 4088), BYTE)
    smem.mbarrier("fits")
    with pytest.raises(SmemError, match="too much would end at byte 4104: must be at most 4096"):
        smem.mbarrier("too much")
    with pytest.raises(
        SmemError, match="t: a row has 64 bytes: with swizzle 128B it must have 128"
    ):
        smem.tile("t", (8, 16), FLOAT, Swizzle.SWIZZLE_128B)


def test_ring():
    smem = SmemLayout(4096)
    ring = smem.ring("q", 2)
    assert [barrier.name for barrier in ring.full + ring.empty] == [
        "q.full[0]", "q.full[1]", "q.empty[0]", "q.empty[1]",
    ]  # fmt: skip
    assert list(islice(ring.steps(), 5)) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)]
    assert smem.rings == [ring]
