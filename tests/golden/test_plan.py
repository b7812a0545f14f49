"""Plans: results of silicon, fast and slow paths, and no access outside the tensor."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golden import (
    AccessMode,
    Arch,
    ArrayMemory,
    DataType,
    ErrorCode,
    HashedMemory,
    LayeredMemory,
    Load,
    Plan,
    ReductionOp,
    Swizzle,
    TensorMap,
    TmaError,
    execute,
)
from golden import definition as literal
from golden.conformance import outcomes
from golden.geometry import swizzled
from golden.plan import round_tf32
from golden.vectors import check as compare
from golden.vectors import read_cases, read_timings

SILICON = Path(__file__).parents[1] / "silicon"
TF32_VECTORS = {
    0x3F801000: 0x3F800000,
    0x3F801001: 0x3F802000,
    0x3F803000: 0x3F804000,
    0x7F7FEFFF: 0x7F7FE000,
    0x7F7FF000: 0x7F800000,
    0x00001000: 0x00000000,
    0x00001001: 0x00002000,
    0x807FFFFF: 0x80800000,
    0xFF800000: 0xFF800000,
    0xFFC00001: 0x7FFFE000,
}


@pytest.mark.parametrize(("name", "count"), [("transfers", 2801), ("workloads", 132)])
def test_silicon(name, count):
    cases = read_cases(SILICON / f"{name}.npz")
    assert len(cases) == count
    pairs = zip(cases, outcomes(cases), strict=True)
    assert [text for case, outcome in pairs if (text := compare(case, outcome))] == []


@pytest.mark.parametrize("name", ["timing_workloads", "timing_random"])
def test_lines_and_beats_of_the_timing_files(name):
    rows = read_timings(SILICON / f"{name}.npz")
    for row in rows:
        rank = int(row["rank"])
        layout = {"swizzle": int(row["swizzle"]), "interleave": int(row["interleave"])}
        shared = (
            int(row["dtype"]),
            int(row["global_address"]),
            row["global_dim"][:rank].tolist(),
            row["global_strides"][: rank - 1].tolist(),
        )
        strides = row["element_strides"][:rank].tolist()
        offsets = ()
        if row["mode"] == "tile":
            tensor_map = TensorMap.tiled(*shared, row["box_dim"][:rank].tolist(), strides, **layout)
        else:
            tensor_map = TensorMap.im2col(
                *shared,
                row["lower_corner"][: rank - 2].tolist(),
                row["upper_corner"][: rank - 2].tolist(),
                int(row["channels_per_pixel"]),
                int(row["pixels_per_column"]),
                strides,
                **layout,
            )
            offsets = row["im2col_offsets"][: rank - 2].tolist()
        coords = row["coords"][:rank].tolist()
        lines, beats = Plan(tensor_map).touched(int(row["smem_address"]), coords, offsets)
        assert (lines.size, beats.size) == (row["lines"], row["beats"]), row["name"]
    assert len(rows) == {"timing_workloads": 132, "timing_random": 150}[name]


def test_nothing_outside_the_tensor_is_read():
    """The array ends with the tensor, so that ArrayMemory refuses any read beyond it."""
    tensor = np.arange(20 * 16, dtype=np.float32).reshape(20, 16)
    tensor_map = TensorMap.tiled(DataType.FLOAT32, 0x1000, [16, 20], [64], [32, 16])
    smem = np.zeros(4096, np.uint8)
    assert Plan(tensor_map).load(ArrayMemory(tensor, 0x1000), smem, 0, (4, 12)) == 2048
    tile = smem[:2048].view(np.float32).reshape(16, 32)
    assert np.array_equal(tile[:8, :12], tensor[12:, 4:])
    assert not tile[8:].any()
    assert not tile[:, 12:].any()


def test_unreadable_memory_is_refused_before_anything_is_written():
    tensor_map = TensorMap.tiled(DataType.UINT8, 0x1000, [32, 4], [32], [32, 4])
    smem = np.zeros(4096, np.uint8)
    memory = ArrayMemory(np.ones(96, np.uint8), 0x1000)
    text = "address of a read = 0x1060: must be from 0x1000 to 0x105f, the addresses of the array"
    with pytest.raises(TmaError, match=text) as e:
        Plan(tensor_map).load(memory, smem, 0, (0, 0))
    assert (e.value.code, e.value.value) == (ErrorCode.GMEM_FAULT, 0x1060)
    assert not smem.any()
    with pytest.raises(TmaError, match="address of a write = 0x1060"):
        Plan(tensor_map, store=True).store(memory, smem, 0, (0, 0))
    assert memory.bytes.all()


def test_layers_of_memory():
    layers = {0x1000: np.full(4, 1, np.uint8), 0x1002: np.full(4, 2, np.uint8)}
    addresses = np.arange(0xFFE, 0x1008, dtype=np.uint64).reshape(2, 5)
    below = HashedMemory().read(addresses)
    expected = [*below.flat[:2], 1, 1, 2, 2, 2, 2, *below.flat[8:]]
    read = LayeredMemory(HashedMemory(), layers).read(addresses)
    assert read.shape == (2, 5)
    assert read.ravel().tolist() == expected


def test_array_memory_shares_its_array():
    with pytest.raises(ValueError, match="C-contiguous"):
        ArrayMemory(np.zeros((4, 4))[:, ::2])


def test_tf32_vectors():
    words = np.array(list(TF32_VECTORS), np.uint32)
    assert round_tf32(words).tolist() == list(TF32_VECTORS.values())
    assert [literal.round_tf32(word) for word in TF32_VECTORS] == list(TF32_VECTORS.values())


def test_tf32_rounding_is_the_definition():
    words = np.random.default_rng(0).integers(0, 1 << 32, 20000, dtype=np.uint32)
    words[:5000] |= 0x7F800000
    words[5000:7000] &= 0x807FFFFF
    assert round_tf32(words).tolist() == [literal.round_tf32(int(word)) for word in words]


@pytest.mark.parametrize("kind", Swizzle)
def test_swizzle_permutes_blocks_and_repeats(kind):
    addresses = np.arange(4096)
    moved = swizzled(addresses, kind)
    assert np.array_equal(np.sort(moved), addresses)
    assert np.array_equal(swizzled(moved, kind), addresses)
    assert np.array_equal(moved // kind.block, addresses // kind.block)
    assert np.array_equal(moved[kind.repeat :] - kind.repeat, moved[: -kind.repeat])
    assert moved.tolist() == [literal.swizzled(a, kind) for a in range(4096)]


def test_columns_of_the_128_byte_swizzle():
    pieces = swizzled(np.arange(0, 1024, 16), Swizzle.SWIZZLE_128B) // 16 % 8
    rows = ["".join(map(str, row)) for row in pieces.reshape(8, 8)]
    assert " ".join(rows) == (
        "01234567 10325476 23016745 32107654 45670123 54761032 67452301 76543210"
    )


def test_pixels_of_a_convolution():
    """Worked examples of the im2col walk; the value of each pixel is its number, from 1."""

    def column(images, corners, coords, offsets):
        pixels = np.arange(1, 16 * images + 1, dtype=np.float32)
        tensor = np.repeat(pixels[:, None], 32, 1).reshape(images, 4, 4, 32)
        tensor_map = TensorMap.im2col(
            "f32", 0, (32, 4, 4, images), (128, 512, 2048), corners, corners, 32, 16
        )
        smem = np.zeros(2048, np.uint8)
        plan = Plan(tensor_map)
        assert plan.load(ArrayMemory(tensor), smem, 0, coords, offsets) == 2048
        rows = smem.view(np.float32).reshape(16, 32)
        assert (rows == rows[:, :1]).all()
        return rows[:, 0].tolist()

    padded = (-1, -1)
    assert column(1, padded, (0, -1, -1, 0), (0, 0)) == [
        *(0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11)
    ]
    assert column(1, padded, (0, -1, -1, 0), (1, 1)) == list(range(1, 17))
    assert column(2, (0, 0), (0, 3, 1, 0), (0, 0)) == list(range(8, 24))


def test_a_store_writes_whole_pieces_behind_a_row():
    """Rows have 5 f32: bytes 0 to 31 of each row are written, of which 20 to 31 are padding."""
    tensor_map = TensorMap.tiled("f32", 0, (5, 3), (48,), (8, 4))
    memory = ArrayMemory(np.zeros(144, np.uint8))
    Plan(tensor_map, store=True).store(memory, np.full(256, 7, np.uint8), 0, (0, 0))
    written = memory.bytes.reshape(3, 48) == 7
    assert written[:, :32].all()
    assert not written[:, 32:].any()


def test_overlapping_rows_are_stored_and_reduced_in_order():
    tensor_map = TensorMap.tiled("u32", 0, (4, 8), (0,), (4, 8))
    rows = np.arange(1, 9, dtype=np.uint32).repeat(4)
    memory = ArrayMemory(np.zeros(4, np.uint32))
    plan = Plan(tensor_map, store=True)
    plan.store(memory, rows.view(np.uint8), 0, (0, 0))
    assert memory.bytes.view(np.uint32).tolist() == [8] * 4
    plan.reduce(ReductionOp.ADD, memory, rows.view(np.uint8), 0, (0, 0))
    assert memory.bytes.view(np.uint32).tolist() == [8 + 36] * 4


class Bytewise:
    """A memory without the fast path that plans have for ArrayMemory."""

    def __init__(self, memory):
        self.memory = memory

    def read(self, addresses):
        return self.memory.read(addresses)

    def write(self, addresses, data):
        self.memory.write(addresses, data)


@pytest.mark.parametrize("coords", [(0, 0), (64, 8), (-16, 3), (200, 60), (0, 300), (248, 0)])
@pytest.mark.parametrize("swizzle", ["none", "128B"])
@pytest.mark.parametrize("kind", ["bf16", "tf32"])
def test_fast_and_bytewise_memory_agree(kind, swizzle, coords):
    rng = np.random.default_rng(0)
    item = TensorMap.tiled(kind, 0, (16,), (), (16,)).data_type.itemsize
    tensor_map = TensorMap.tiled(
        kind, 0x4000, (250, 64), (1024,), (64 // item, 16), swizzle=swizzle
    )
    memory = ArrayMemory(rng.integers(0, 256, 1 << 16, dtype=np.uint8), 0x4000)
    results = []
    for source in memory, Bytewise(memory):
        smem = np.full(4096, 0xCD, np.uint8)
        plan = Plan(tensor_map)
        for _ in range(2):  # the second load uses the cache
            plan.load(source, smem, 128, coords)
        results.append(smem)
    assert np.array_equal(*results)


def test_the_cache_of_a_plan_is_bounded():
    plan = Plan(TensorMap.tiled("u8", 0, (64, 4096), (64,), (64, 2)))
    smem = np.zeros(128, np.uint8)
    memory = HashedMemory()
    for n in range(2000):
        plan.load(memory, smem, 0, (-16, n))
        expected = memory.read(np.arange(64 * n, 64 * n + 48, dtype=np.uint64))
        assert np.array_equal(smem[16:64], expected)
    assert len(plan._located) <= 512


def test_addresses_are_modulo_two_to_the_64():
    """The base is close to the end of the address space, and the box wraps to its start."""
    tensor_map = TensorMap.tiled("u8", 2**64 - 64, (16, 8), (32,), (16, 8))
    smem = np.zeros(128, np.uint8)
    Plan(tensor_map).load(ArrayMemory(np.arange(256, dtype=np.uint8)), smem, 0, (0, 2))
    assert smem[:96].reshape(6, 16)[:, 0].tolist() == [0, 32, 64, 96, 128, 160]


@pytest.mark.parametrize("mode", [AccessMode.TILE_GATHER4, AccessMode.IM2COL_W])
def test_later_modes_are_refused_on_hopper(mode):
    tensor_map = TensorMap.tiled("u8", 0, (64, 64), (64,), (64, 1))
    with pytest.raises(TmaError) as caught:
        Plan(tensor_map, mode)
    assert caught.value.code is ErrorCode.MAP_MODE


def test_only_im2col_w_has_a_halo():
    tensor_map = TensorMap.im2col(
        DataType.UINT8, 0, (16, 8, 8), (16, 128), [0], [0], channels_per_pixel=16,
        pixels_per_column=4,
    )  # fmt: skip
    load = Load(tensor_map, (0, 0, 0), mode=AccessMode.IM2COL)
    results = []
    for each in load, replace(load, w_halo=1, w_offset=5):
        smem = np.zeros(1024, np.uint8)
        results.append((execute(each, HashedMemory(), [smem]), smem.tobytes()))
    assert results[0] == results[1]


def test_gather4_repeats_and_reorders_rows():
    array = np.arange(64 * 16, dtype=np.uint8).reshape(64, 16)
    tensor_map = TensorMap.from_array(array, (16, 1), global_address=0)
    smem = np.zeros(64, np.uint8)
    plan = Plan(tensor_map, AccessMode.TILE_GATHER4, arch=Arch.SM_100A)
    assert plan.load(ArrayMemory(array), smem, 0, (0, 9, 2, 9, 64)) == 64
    assert np.array_equal(smem.reshape(4, 16)[:3], array[[9, 2, 9]])
    assert not smem[48:].any()


def test_a_plan_is_for_one_direction():
    tensor_map = TensorMap.tiled("u32", 0, (64,), (), (16,))
    smem = np.zeros(128, np.uint8)
    with pytest.raises(ValueError, match="made for stores"):
        Plan(tensor_map, store=True).load(HashedMemory(), smem, 0, (0,))
    with pytest.raises(ValueError, match="made for loads"):
        Plan(tensor_map).store(HashedMemory(), smem, 0, (0,))
    with pytest.raises(ValueError, match="made for loads"):
        Plan(tensor_map).reduce(ReductionOp.ADD, HashedMemory(), smem, 0, (0,))


@pytest.mark.parametrize("coords", [(), (0,), (0,) * 6])
def test_the_number_of_coordinates_is_checked(coords):
    im2col = TensorMap.im2col("u8", 0, (64, 8, 2), (64, 512), (0,), (0,), 64, 8)
    for tensor_map in TensorMap.tiled("u8", 0, (64, 8), (64,), (64, 8)), im2col:
        with pytest.raises(TmaError, match=rf"len\(coords\) = {len(coords)}: must be") as caught:
            Plan(tensor_map).load(HashedMemory(), np.zeros(1024, np.uint8), 0, coords)
        assert caught.value.code is ErrorCode.MAP_MODE
