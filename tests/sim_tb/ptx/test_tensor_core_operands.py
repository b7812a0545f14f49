"""Tensor cores: places of elements in registers and in shared memory."""

import numpy as np
import pytest

from sim_tb.ptx.instructions import tensor_cores as cores

BASE = 0x2400


def descriptor(layout: int, leading: int, stride: int, start: int = BASE) -> int:
    """Return a matrix descriptor; offsets are in bytes."""
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | layout << 62


@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_operands_are_held_once(itemsize):
    """Each element of A and of B is in one place of one thread."""
    k = 32 // itemsize
    for places, rows in ((cores.left_places(itemsize), 16), (cores.right_places(itemsize), 8)):
        row, column = np.broadcast_arrays(*places)
        assert sorted(zip(row.flat, column.flat, strict=True)) == [
            (i, j) for i in range(rows) for j in range(k)
        ]


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("n", [8, 24, 256])
def test_sums_are_held_once(n, itemsize):
    row, column = cores.sum_places(n, itemsize)
    assert len({*zip(row.flat, column.flat, strict=True)}) == row.size == 16 * n
    # The document's example: thread 5 holds row 1, columns 2 and 3, and row 9.
    assert [*zip(row[:4, 5], column[:4, 5], strict=True)] == [(1, 2), (1, 3), (9, 2), (9, 3)]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("layout", [0, 1, 2, 3])
def test_elements_have_places_of_their_own(layout, transposed):
    """An operand of 64 rows fills as many bytes as it has."""
    span = {0: 16, 1: 128, 2: 64, 3: 32}[layout]
    leading, stride = {
        (False, False): (1 << 13, 8 * span),
        (False, True): (1 << 13, 8 * span),
        (True, False): (128, 256),
        (True, True): (1 << 13, 128),
    }[layout == 0, transposed]
    where = descriptor(layout, leading, stride)
    places = cores.addresses_of(where, 64, 2, transposed=transposed)
    assert places.shape == (64, 16)
    assert np.unique(places).size == places.size
    assert places.min() >= BASE
    assert (places % 2 == 0).all()


def test_swizzle_of_128_bytes():
    """Chunk c of row r is at chunk c ^ r, whatever the first element of k is."""
    start = 0x2000
    for first in range(0, 128, 32):
        places = cores.addresses_of(descriptor(1, 0, 1024, start + first), 8, 2, transposed=False)
        for row in range(8):
            chunk = (first // 16 + np.arange(16) // 8) ^ row
            expected = start + 128 * row + 16 * chunk + 2 * (np.arange(16) % 8)
            assert (places[row] == expected).all()
