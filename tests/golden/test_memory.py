"""Memories, and which of their bytes plans and requests access."""

import numpy as np
import pytest

from golden import (
    AccessMode,
    Arch,
    ArrayMemory,
    BulkLoad,
    ErrorCode,
    HashedMemory,
    LayeredMemory,
    Load,
    Plan,
    ReportMechanism,
    Store,
    TensorMap,
    TmaError,
    model,
)
from golden import definition as literal
from golden.model import read_range, write_range

BASE = 0x1000
LATER = Arch.SM_100A


class Recorder:
    """Memory that remembers the addresses that are read."""

    def __init__(self):
        self.addresses = set()

    def read(self, addresses):
        self.addresses |= {*addresses.ravel().tolist()}
        return HashedMemory().read(addresses)


def layers():
    """Return a memory of two overlapping arrays above a third, and the arrays."""
    arrays = {BASE: np.zeros(8, np.uint8), BASE + 4: np.zeros(8, np.uint8)}
    below = ArrayMemory(np.zeros(64, np.uint8), BASE - 16)
    return LayeredMemory(below, arrays), arrays, below


def test_the_topmost_array_is_written():
    memory, arrays, below = layers()
    addresses = np.arange(BASE - 2, BASE + 14, dtype=np.uint64).reshape(4, 4)
    data = np.arange(1, 17, dtype=np.uint8).reshape(4, 4)
    memory.write(addresses, data)
    assert arrays[BASE].tolist() == [3, 4, 5, 6, 0, 0, 0, 0]
    assert arrays[BASE + 4].tolist() == [7, 8, 9, 10, 11, 12, 13, 14]
    assert below.bytes.nonzero()[0].tolist() == [14, 15, 28, 29]
    assert np.array_equal(memory.read(addresses), data)


def test_a_write_inside_the_layers_does_not_reach_the_memory_below():
    layered = LayeredMemory(HashedMemory(), {BASE: np.zeros(8, np.uint8)})
    inside = np.arange(BASE, BASE + 8, dtype=np.uint64)
    layered.write(inside, np.full(8, 7, np.uint8))
    assert layered.read(inside).tolist() == [7] * 8
    with pytest.raises(TmaError, match="address = 0x1008: must be in writable memory") as caught:
        layered.write(inside + np.uint64(1), np.full(8, 7, np.uint8))
    assert (caught.value.code, caught.value.value) == (ErrorCode.GMEM_FAULT, BASE + 8)


def test_hashed_memory_takes_no_byte():
    memory, nothing = HashedMemory(), np.empty(0, np.uint64)
    memory.write(nothing, np.empty(0, np.uint8))
    with pytest.raises(TmaError, match="address = 0x10: must be in writable memory"):
        memory.write(np.array([0x20, 0x10, 0x30], np.uint64), np.zeros(3, np.uint8))


@pytest.mark.parametrize("offset", [0, 5, 16])
def test_a_range_of_an_array_is_a_view(offset):
    memory = ArrayMemory(np.arange(32, dtype=np.uint8), BASE)
    view = read_range(memory, BASE + offset, 16)
    assert view.tolist() == [*range(offset, offset + 16)]
    assert np.shares_memory(view, memory.bytes)
    write_range(memory, BASE + offset, np.full(16, 99, np.uint8))
    assert memory.bytes.tolist() == [
        99 if offset <= byte < offset + 16 else byte for byte in range(32)
    ]


@pytest.mark.parametrize("offset", [-1, 17])
def test_a_range_that_leaves_the_array_is_a_fault(offset):
    memory = ArrayMemory(np.zeros(32, np.uint8), BASE)
    with pytest.raises(TmaError, match="address of a read"):
        read_range(memory, BASE + offset, 16)
    with pytest.raises(TmaError, match="address of a write"):
        write_range(memory, BASE + offset, np.ones(16, np.uint8))
    assert not memory.bytes.any()


def test_pieces_of_an_aligned_array():
    memory = ArrayMemory(np.arange(40, dtype=np.uint8), BASE)
    pieces = memory.at(BASE + 16, 16)
    assert pieces is not None
    assert pieces.tobytes() == bytes(range(16, 32))
    assert np.shares_memory(pieces, memory.bytes)
    assert memory.at(BASE + 16, 17) is None
    assert memory.at(BASE - 16, 16) is None
    assert ArrayMemory(np.zeros(64, np.uint8), BASE + 8).at(BASE + 8, 16) is None


def test_ranges_of_other_memories():
    memory, arrays, _ = layers()
    write_range(memory, BASE, np.arange(8, dtype=np.uint8))
    assert arrays[BASE].tolist() == [0, 1, 2, 3, 0, 0, 0, 0]
    assert read_range(memory, BASE, 8).tolist() == [*range(8)]


TILED = TensorMap.tiled("u8", BASE, (40, 6), (64,), (48, 4))  # its rows end inside a piece
IMAGE = TensorMap.im2col("u8", BASE, (40, 5, 2), (64, 512), (-1,), (-1,), 48, 6)
WIDE = TensorMap.im2col(
    "u8", BASE, (64, 5, 2), (64, 512), (0,), (0,), 64, 4, swizzle="128B", wide=True, arch=LATER
)


@pytest.mark.parametrize(
    ("tensor_map", "mode", "operands"),
    [
        (TILED, AccessMode.TILE, ((0, 0),)),
        (TILED, AccessMode.TILE, ((16, -2),)),
        (TILED, AccessMode.TILE, ((0, 6),)),
        (IMAGE, AccessMode.IM2COL, ((0, -1, 0), (1,))),
        (IMAGE, AccessMode.IM2COL, ((0, 2, 1),)),
        (WIDE, AccessMode.IM2COL_W, ((0, 0, 0), (), 2, 1)),
        (WIDE, AccessMode.IM2COL_W, ((0, 0, 0),)),
        (WIDE, AccessMode.IM2COL_W, ((0, 0, 0), (), 0, 0)),
    ],
)
def test_pieces_of_a_request_are_what_it_reads(tensor_map, mode, operands):
    plan = Plan(tensor_map, mode, arch=LATER)
    start, placement = plan.gmem_pieces(*operands)
    size = plan.piece_bytes
    parts = (placement.gmem, size), (placement.tail_gmem, placement.tail_bytes)
    told = {
        start + placement.low + int(at) + byte
        for offsets, count in parts
        for at in offsets
        for byte in range(count)
    }
    memory = Recorder()
    plan.load(memory, np.zeros(8192, np.uint8), 0, *operands)
    assert told == memory.addresses


def test_the_definition_reads_modulo_2_to_the_64():
    tensor_map = TensorMap.tiled("u8", (1 << 64) - 32, (16, 3), (16,), (16, 3))
    bytes_read = literal.source_bytes(Load(tensor_map, (0, 0)))
    assert bytes_read == {*range((1 << 64) - 32, 1 << 64), *range(16)}


@pytest.mark.parametrize("execute", [literal.execute, model.execute])
def test_both_models_store_the_end_of_a_long_row(execute):
    tensor_map = TensorMap.tiled("u8", 0, (4096, 2), (4096,), (32, 2))
    gmem, smem = ArrayMemory(np.zeros(8192, np.uint8)), np.full(1024, 1, np.uint8)
    execute(Store(tensor_map, (4080, 0)), gmem, [smem])
    assert gmem.bytes.nonzero()[0].tolist() == [*range(4080, 4096), *range(8176, 8192)]


@pytest.mark.parametrize("execute", [literal.execute, model.execute])
@pytest.mark.parametrize("at", [31, 32, 47, 48])
def test_both_models_inspect_the_bytes_of_a_bulk_load(execute, at):
    data = np.zeros(128, np.uint8)
    data[at] = 0xFF
    request = BulkLoad(32, 0, 16, report=ReportMechanism.PER_ELEMENT_FF)
    (completion,) = execute(
        request, ArrayMemory(data), [np.zeros(1024, np.uint8)], arch=Arch.SM_107A
    )
    assert completion.reports is (32 <= at < 48)


def test_lines_of_a_tail_of_one_byte():
    plan = Plan(TensorMap.tiled("u8", BASE, (129,), (), (16,)))
    gmem, smem = plan.touched(256, (128,))
    assert (gmem.tolist(), smem.tolist()) == ([BASE // 128 + 1], [2])
    gmem, _ = plan.touched(256, (112,))
    assert gmem.tolist() == [BASE // 128]
    gmem, _ = Plan(TensorMap.tiled("u8", BASE, (256,), (), (32,))).touched(0, (112,))
    assert gmem.tolist() == [BASE // 128, BASE // 128 + 1]
