"""Loads: equal to silicon, to the literal definition, and refused for the right reason."""

from pathlib import Path

import numpy as np
import pytest
from golden.load import round_tf32, swizzle

from golden import (
    ArrayMemory,
    DataType,
    ErrorCode,
    HashedMemory,
    LayeredMemory,
    OobFill,
    Refusal,
    Swizzle,
    TensorMap,
    check,
    lines_touched,
    load,
)
from golden import definition as literal
from golden.conformance import outcomes
from golden.tensor_map import Descriptor
from golden.vectors import check as compare
from golden.vectors import is_tiled_load, read, read_cases
from tests.golden.random_loads import random_load

SILICON = Path(__file__).parents[1] / "silicon"
KINDS = {
    "load_tile": 600,
    "load_tile_big": 4,
    "load_tile_i16": 120,
    "load_tile_i32": 120,
    "load_tile_i32x": 30,
    "load_special": 60,
    "load_mis": 24,
}
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


@pytest.mark.parametrize(("kind", "count"), KINDS.items())
def test_silicon(kind, count):
    cases = read_cases(SILICON / "transfers.npz", [kind])
    assert len(cases) == count
    pairs = zip(cases, outcomes(cases), strict=True)
    assert [text for case, outcome in pairs if (text := compare(case, outcome))] == []


def test_silicon_workloads():
    cases = [case for case in read_cases(SILICON / "workloads.npz") if is_tiled_load(case)]
    assert len(cases) == 102
    pairs = zip(cases, outcomes(cases), strict=True)
    assert [text for case, outcome in pairs if (text := compare(case, outcome))] == []


@pytest.mark.parametrize("interleaved", [False, True], ids=["plain", "interleaved"])
@pytest.mark.parametrize("seed", range(6))
def test_definition(seed, interleaved):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        case = random_load(rng, interleaved=interleaved)
        fast, slow = (np.full(233472, 0xCD, np.uint8) for _ in range(2))
        descriptor = Descriptor.from_bytes(case.tensor_map.encode())
        counts = (
            load(descriptor, HashedMemory(), fast, case.smem_address, case.coords),
            literal.load(descriptor, HashedMemory(), slow, case.smem_address, case.coords),
        )
        assert counts[0] == counts[1], case
        assert np.array_equal(fast, slow), case


@pytest.mark.parametrize("name", ["timing_workloads", "timing_random"])
def test_lines_and_beats_of_the_timing_files(name):
    rows, _ = read(SILICON / f"{name}.npz")
    counted = 0
    for row in rows:
        if row["mode"] != "tile" or row["interleave"]:
            continue
        rank = int(row["rank"])
        tensor_map = TensorMap.tiled(
            int(row["dtype"]),
            int(row["global_address"]),
            row["global_dim"][:rank].tolist(),
            row["global_strides"][: rank - 1].tolist(),
            row["box_dim"][:rank].tolist(),
            row["element_strides"][:rank].tolist(),
            swizzle=int(row["swizzle"]),
        )
        coords = row["coords"][:rank].tolist()
        lines, beats = lines_touched(tensor_map, int(row["smem_address"]), coords)
        assert (lines.size, beats.size) == (row["lines"], row["beats"]), row["name"]
        counted += 1
    assert counted == {"timing_workloads": 102, "timing_random": 150}[name]


def test_nothing_outside_the_tensor_is_read():
    """The array ends with the tensor: ArrayMemory refuses a read beyond it."""
    tensor = np.arange(20 * 16, dtype=np.float32).reshape(20, 16)
    tensor_map = TensorMap.tiled(DataType.FLOAT32, 0x1000, [16, 20], [64], [32, 16])
    smem = np.zeros(4096, np.uint8)
    assert load(tensor_map, ArrayMemory(tensor, 0x1000), smem, 0, (4, 12)) == 2048
    tile = smem[:2048].view(np.float32).reshape(16, 32)
    assert np.array_equal(tile[:8, :12], tensor[12:, 4:])
    assert not tile[8:].any()
    assert not tile[:, 12:].any()


def test_unreadable_memory_is_refused_before_anything_is_written():
    tensor_map = TensorMap.tiled(DataType.UINT8, 0x1000, [32, 4], [32], [32, 4])
    smem = np.zeros(4096, np.uint8)
    with pytest.raises(
        Refusal, match="GMEM_FAULT: read of 0x1060: memory is 0x1000 to 0x1060"
    ) as e:
        load(tensor_map, ArrayMemory(np.ones(96, np.uint8), 0x1000), smem, 0, (0, 0))
    assert (e.value.cause, e.value.value) == (ErrorCode.GMEM_FAULT, 0x1060)
    assert not smem.any()


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
def test_swizzle_is_its_own_inverse(kind):
    addresses = np.arange(4096)
    moved = swizzle(addresses, kind.mask)
    assert np.array_equal(np.sort(moved), addresses)
    assert np.array_equal(swizzle(moved, kind.mask), addresses)


def test_columns_of_the_128_byte_swizzle():
    pieces = swizzle(np.arange(0, 1024, 16), Swizzle.SWIZZLE_128B.mask) // 16 % 8
    rows = ["".join(map(str, row)) for row in pieces.reshape(8, 8)]
    assert " ".join(rows) == (
        "01234567 10325476 23016745 32107654 45670123 54761032 67452301 76543210"
    )


MAP = TensorMap.tiled(
    DataType.FLOAT32,
    1 << 20,
    [64, 64],
    [256],
    [8, 16],
    swizzle=Swizzle.SWIZZLE_32B,
    oob_fill=OobFill.NAN_REQUEST_ZERO_FMA,
)
WORDS = Descriptor.from_bytes(MAP.encode()).words


def changed(**words: int) -> Descriptor:
    """MAP with words replaced: ``w2=...``."""
    values = list(WORDS)
    for name, value in words.items():
        values[int(name[1:])] = value
    return Descriptor(tuple(values))


@pytest.mark.parametrize(
    ("tensor_map", "smem", "coords", "mbarrier", "cause", "value"),
    [
        (changed(w2=WORDS[2] | 0xF << 7), 0, (0, 0), 0, ErrorCode.MAP_FIELD, WORDS[2] | 0xF << 7),
        (changed(w2=WORDS[2] | 3 << 11), 0, (0, 0), 0, ErrorCode.MAP_FIELD, WORDS[2] | 3 << 11),
        (changed(w2=WORDS[2] | 7 << 4), 0, (0, 0), 0, ErrorCode.MAP_FIELD, WORDS[2] | 7 << 4),
        (changed(w2=WORDS[2] | 1 << 19), 0, (0, 0), 0, ErrorCode.MAP_FIELD, WORDS[2] | 1 << 19),
        (changed(w2=WORDS[2] & ~0x780), 0, (0, 0), 0, ErrorCode.MAP_FIELD, WORDS[2] & ~0x780),
        (changed(w13=6 << 24), 0, (0, 0), 0, ErrorCode.MAP_FIELD, WORDS[2]),
        (changed(w13=11 << 24), 0, (0, 0), 0, ErrorCode.MAP_FIELD, WORDS[2]),
        (changed(w0=8), 0, (0, 0), 0, ErrorCode.MAP_FIELD, WORDS[2]),
        (MAP, 0, (0, 0, 0), 0, ErrorCode.MAP_MODE, 3),
        (MAP, 64, (0, 0), 0, ErrorCode.SMEM_ALIGN, 64),
        (MAP, 233472 - 384, (0, 0), 0, ErrorCode.SMEM_RANGE, 233472 - 384),
        (MAP, -128, (0, 0), 0, ErrorCode.SMEM_RANGE, -128),
        (MAP, 0, (0, 0), 233472, ErrorCode.SMEM_RANGE, 233472),
        (MAP, 0, (0, 0), -8, ErrorCode.SMEM_RANGE, -8),
        (MAP, 0, (0, 0), 233472 - 4, ErrorCode.SMEM_RANGE, 233472 - 4),
        (changed(w2=WORDS[2] | 1), 0, (0, 0), 0, ErrorCode.MAP_FIELD, WORDS[2] | 1),
        (MAP, 0, (-3, 0), 0, ErrorCode.COORD_ALIGN, -3),
        (MAP, 0, (0, 0), 12, ErrorCode.MBAR_ALIGN, 12),
        (changed(w0=8), 64, (1, 0, 0), 4, ErrorCode.MAP_FIELD, WORDS[2]),
        (MAP, 64, (1, 0, 0), 4, ErrorCode.MAP_MODE, 3),
        (MAP, 233472, (1, 0), 4, ErrorCode.SMEM_RANGE, 233472),
        (MAP, 0, (1, 0), 4, ErrorCode.COORD_ALIGN, 1),
    ],
)
def test_refusal(tensor_map, smem, coords, mbarrier, cause, value):
    memory = np.zeros(233472, np.uint8)
    with pytest.raises(Refusal) as caught:
        load(tensor_map, HashedMemory(), memory, smem, coords, mbarrier=mbarrier)
    assert (caught.value.cause, caught.value.value) == (cause, value)
    assert not memory.any()


def test_refusal_says_what_to_change():
    with pytest.raises(Refusal, match=r"coords\[0\] = 5 starts at byte 20: must be a multiple"):
        check(MAP, 0, (5, 0))


def test_just_inside():
    assert check(MAP, 233472 - 512, (-4, 0), mbarrier=233472 - 8).bytes == 512
