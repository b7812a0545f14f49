"""Requests: broken rules are reported in order; refused requests have no effect."""

from dataclasses import replace

import numpy as np
import pytest

from golden import (
    AccessMode,
    Arch,
    ArrayMemory,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    Completion,
    DataType,
    Descriptor,
    DsmemCopy,
    DsmemReduce,
    ErrorCode,
    HashedMemory,
    Load,
    Prefetch,
    Reduce,
    ReductionOp,
    Store,
    TensorMap,
    TmaError,
    check,
    execute,
)

SMEM = 65536
MAP = TensorMap.tiled("f32", 1 << 20, (64, 64), (256,), (8, 16), swizzle="32B", oob_fill="nan")
IMAGE = TensorMap.im2col("f16", 0, (64, 8, 8, 2), (128, 1024, 8192), (-1, -1), (-1, -1), 64, 16)
SLICED = TensorMap.im2col(
    "f16", 0, (8, 8, 4, 2), (128, 1024, 4096), (0, 0), (-1, -1), 64, 16, interleave="16B"
)
INT = TensorMap.tiled("s64", 0, (64, 64), (512,), (8, 16))
WORDS = Descriptor.from_bytes(MAP.encode()).words


def changed(**words: int) -> Descriptor:
    """Return MAP with words replaced: ``w2=...``."""
    values = list(WORDS)
    for name, value in words.items():
        values[int(name[1:])] = value
    return Descriptor(tuple(values))


LOAD = Load(MAP, (0, 0))
STORE = Store(MAP, (0, 0))
BULK = BulkLoad(0, 0, 64)
COPY = DsmemCopy(1, 0, 0, 64)
ADD = ReductionOp.ADD

REFUSED = {
    "format": (Load(changed(w2=WORDS[2] | 0xF << 7), (0, 0)), "MAP_FIELD", "data_type"),
    "interleave": (Load(changed(w2=WORDS[2] | 3 << 11), (0, 0)), "MAP_FIELD", "interleave = 3"),
    "rank": (Load(changed(w2=WORDS[2] | 7 << 4), (0, 0)), "MAP_FIELD", "rank = 8"),
    "NaN": (Load(changed(w2=WORDS[2] & ~0x780), (0, 0)), "MAP_FIELD", "oob_fill"),
    "inner": (Load(changed(w13=6 << 24), (0, 0)), "MAP_FIELD", "box_dim[0]*4 = 28 bytes"),
    "span": (Load(changed(w13=11 << 24), (0, 0)), "MAP_FIELD", "must be at most 32"),
    "base": (Load(changed(w0=8), (0, 0)), "MAP_FIELD", "global_address = 0x8"),
    "im2col of rank 2": (Load(changed(w2=WORDS[2] | 1), (0, 0)), "MAP_FIELD", "with im2col"),
    "coordinates": (Load(MAP, (0, 0, 0)), "MAP_MODE", "len(coords) = 3: must be 2 for TILE"),
    "mode": (Load(MAP, (0, 0), AccessMode.IM2COL), "MAP_MODE", "IM2COL with a rank-2 TILE map"),
    "tile of im2col": (Prefetch(IMAGE, (0,) * 4, AccessMode.TILE), "MAP_MODE", "mode of the map"),
    "offsets": (replace(LOAD, im2col_offsets=(0,)), "MAP_MODE", "len(im2col_offsets) = 1"),
    "gather4": (Load(MAP, (0,) * 5, AccessMode.TILE_GATHER4), "MAP_MODE", "not SM_90A"),
    "pair": (replace(LOAD, cta_group=2), "MAP_MODE", "cta_group = 2: .cta_group::2 needs SM_100A"),
    "range": (Load(MAP, (0, 1 << 31)), "COORD_RANGE", "must fit in 32 signed bits"),
    "smem": (replace(LOAD, smem_address=64), "SMEM_ALIGN", "smem_address = 64: must be a multip"),
    "bulk smem": (replace(BULK, smem_address=8), "SMEM_ALIGN", "must be a multiple of 16"),
    "end": (replace(LOAD, smem_address=SMEM - 384), "SMEM_RANGE", f"from 0 to {SMEM - 512}"),
    "negative": (replace(STORE, smem_address=-128), "SMEM_RANGE", "smem_address = -128"),
    "barrier beyond": (replace(LOAD, mbarrier=SMEM), "SMEM_RANGE", f"mbarrier = {SMEM}"),
    "barrier half in": (
        replace(LOAD, mbarrier=SMEM - 4),
        "SMEM_RANGE",
        "8 bytes in a window of 65536 bytes",
    ),
    "bulk end": (
        replace(BULK, smem_address=SMEM - 48),
        "SMEM_RANGE",
        "64 bytes in a window of 65536 bytes",
    ),
    "start": (Load(MAP, (-3, 0)), "COORD_ALIGN", "coords[0] = -3 starts at byte -12"),
    "store start": (Store(MAP, (3, 0)), "COORD_ALIGN", "coords[0] = 3 starts at byte 12"),
    "negative store": (Store(MAP, (0, -1)), "COORD_NEG", "coords[1] = -1"),
    "left of the box": (Load(IMAGE, (0, -2, 0, 0)), "IM2COL_START", "coords[1] = -2: must be from"),
    "right of the box": (Load(SLICED, (0, 7, 0, 0)), "IM2COL_START", "must be from 0 to 6"),
    "prefetch": (Prefetch(IMAGE, (0, 0, 7, 0)), "IM2COL_START", "coords[2] = 7"),
    "corner": (Store(IMAGE, (0, 0, 0, 0)), "IM2COL_CORNER", "lower_corner[0] = -1"),
    "offset": (
        Load(IMAGE, (0, 0, 0, 0), im2col_offsets=(0, 256)),
        "IM2COL_OFFSET",
        "im2col_offsets[1] = 256: must be from 0 to 255 with rank 4",
    ),
    "type": (Reduce(INT, (0, 0)), "RED_TYPE", "ADD of INT64: must be one of MIN, MAX"),
    "no type": (
        Reduce(TensorMap.tiled("u8", 0, (64,), (), (64,)), (0,)),
        "RED_TYPE",
        "op = ADD of UINT8: UINT8 has no reductions",
    ),
    "bulk type": (BulkReduce(0, 0, 64, DataType.UINT8, ADD), "RED_TYPE", "ADD of UINT8"),
    "dsmem type": (
        DsmemReduce(1, 0, 0, 64, data_type=DataType.FLOAT32),
        "RED_TYPE",
        "ADD of FLOAT32",
    ),
    "size": (replace(BULK, size=1 << 32), "BULK_ALIGN", "size = 4294967296: must fit in 32 bits"),
    "gmem": (BulkStore(8, 0, 64), "BULK_ALIGN", "gmem_address = 0x8"),
    "bulk prefetch": (BulkPrefetch(8, 16), "BULK_ALIGN", "gmem_address = 0x8"),
    "ignored": (replace(BULK, ignore_last=16), "BULK_ALIGN", "ignore_last = 16: must be from 0"),
    "mask": (replace(LOAD, cta_mask=0x11), "MASK", "cta_mask = 0x11: must be from 0 to 0xf"),
    "bulk mask": (replace(BULK, cta_mask=16), "MASK", "the cluster has 4 CTAs"),
    "far": (replace(LOAD, dst_cta=4), "DST_CTA", "dst_cta = 4: must be from 0 to 3"),
    "far copy": (replace(COPY, dst_cta=15), "DST_CTA", "dst_cta = 15: must be from 0 to 3"),
    "store of another mode": (Store(IMAGE, (0,) * 4, AccessMode.TILE), "MAP_MODE", "mode of the"),
    "prefetch of another rank": (Prefetch(IMAGE, (0,) * 3), "MAP_MODE", "len(coords) = 3"),
    "barrier": (replace(LOAD, mbarrier=12), "MBAR_ALIGN", "mbarrier = 12: must be a multiple of 8"),
}

ORDER = {
    "map first": (
        replace(Load(changed(w0=8), (1, 0, 0)), smem_address=64, mbarrier=4),
        "MAP_FIELD",
    ),
    "then mode": (replace(Load(MAP, (1, 0, 0)), smem_address=64, mbarrier=4), "MAP_MODE"),
    "then shared memory": (replace(Load(MAP, (1, 0)), smem_address=SMEM, mbarrier=4), "SMEM_RANGE"),
    "then the start": (replace(Load(MAP, (1, 0)), mbarrier=4, cta_mask=32), "COORD_ALIGN"),
    "alignment before sign": (Store(MAP, (-1, -1)), "COORD_ALIGN"),
    "start before corner": (Store(IMAGE, (0, 8, 0, 0)), "IM2COL_START"),
    "sign before type": (Reduce(INT, (0, -1)), "COORD_NEG"),
    "type before alignment": (BulkReduce(8, 0, 64, DataType.UINT8, ADD), "RED_TYPE"),
    "mask before barrier": (replace(LOAD, cta_mask=32, mbarrier=4), "MASK"),
    "CTA before barrier": (replace(LOAD, dst_cta=9, mbarrier=4), "DST_CTA"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    request, code, text = REFUSED[name]
    gmem = ArrayMemory(np.zeros(1 << 16, np.uint8))
    smem = [np.full(SMEM, 0xCD, np.uint8) for _ in range(4)]
    with pytest.raises(TmaError) as caught:
        execute(request, gmem, smem, cta=1)
    error = caught.value
    assert error.code is ErrorCode[code]
    assert text in str(error)
    assert f"[{code}" in str(error)
    assert not gmem.bytes.any()
    assert all((memory == 0xCD).all() for memory in smem)


@pytest.mark.parametrize("name", ORDER)
def test_the_first_of_several_is_reported(name):
    request, code = ORDER[name]
    with pytest.raises(TmaError) as caught:
        check(request, ctas=4, smem_bytes=SMEM)
    assert caught.value.code is ErrorCode[code]


def test_the_error_of_an_illegal_map_holds_its_word_w2():
    with pytest.raises(TmaError) as caught:
        check(REFUSED["inner"][0])
    error = caught.value
    assert (error.code, error.detail) == (ErrorCode.MAP_FIELD, ErrorCode.INNER_ALIGN)
    assert error.value == WORDS[2]
    assert str(error).endswith("must be a multiple of 16 [MAP_FIELD: INNER_ALIGN, silicon]")


def test_every_code_of_a_request_is_tested():
    tested = {code for _, code, _ in REFUSED.values()}
    elsewhere = {"NONE", "MBAR_FAULT", "GMEM_FAULT", "WRONG_TAG"}
    assert {code.name for code in ErrorCode if code < 32} <= tested | elsewhere


def test_operands_at_their_limits_are_legal():
    check(Load(MAP, (-4, 0), smem_address=SMEM - 512, mbarrier=SMEM - 8), smem_bytes=SMEM)


def test_multicast_signals_every_receiver():
    gmem = ArrayMemory(np.arange(4096, dtype=np.uint8))
    smem = [np.zeros(1024, np.uint8) for _ in range(4)]
    request = Load(
        TensorMap.tiled("u8", 0, (64, 64), (64,), (64, 2)), (0, 3), cta_mask=0b1011, mbarrier=512
    )
    assert execute(request, gmem, smem, cta=2) == [Completion(n, 512, 128) for n in (0, 1, 3)]
    assert [memory[:2].tolist() for memory in smem] == [[192, 193], [192, 193], [0, 0], [192, 193]]


@pytest.mark.parametrize(
    ("options", "signalled"),
    [
        ({"cta_mask": 0b1111, "mbarrier_cta": 1}, [1, 1, 3, 3]),
        ({"cta_mask": 0b0110, "mbarrier_cta": 2}, [0, 2]),
        ({"dst_cta": 2, "mbarrier_cta": 3}, [3]),
        ({"dst_cta": 2}, [2]),
    ],
)
def test_pairs_of_ctas(options, signalled):
    gmem = ArrayMemory(np.zeros(4096, np.uint8))
    smem = [np.zeros(1024, np.uint8) for _ in range(4)]
    tensor_map = TensorMap.tiled("u8", 0, (64, 64), (64,), (64, 2))
    request = Load(tensor_map, (0, 0), cta_group=2, **options)
    completions = execute(request, gmem, smem, arch=Arch.SM_100A)
    assert [completion.cta for completion in completions] == signalled


@pytest.mark.parametrize("size", [0, 15, 1 << 20, (1 << 32) - (1 << 20) + 1])
def test_bulk_requests_without_a_byte_signal_nothing(size):
    smem = [np.zeros(128, np.uint8)]
    gmem = ArrayMemory(np.zeros(16, np.uint8))
    assert execute(BulkLoad(1 << 40, 0, size), gmem, smem) == []
    assert execute(DsmemCopy(0, 0, 64, size), gmem, smem) == []
    assert execute(DsmemReduce(0, 0, 64, size), gmem, smem) == []
    assert execute(BulkStore(0, 0, size), gmem, smem) == []
    assert execute(BulkReduce(0, 0, size, DataType.FLOAT32, ADD), gmem, smem) == []


@pytest.mark.parametrize(("size", "moved"), [(24, 16), (72, 64), ((1 << 20) + 16, 16)])
def test_bits_19_to_4_of_a_size_count(size, moved):
    smem = [np.zeros(256, np.uint8)]
    gmem = ArrayMemory(np.ones(256, np.uint8))
    assert execute(BulkLoad(0, 0, size, 128), gmem, smem) == [Completion(0, 128, moved)]
    assert smem[0].sum() == smem[0][:moved].sum() == moved


@pytest.mark.parametrize(
    "request_",
    [
        replace(LOAD, cta_mask=0b1001, dst_cta=2, mbarrier_cta=9),
        replace(BULK, cta_mask=0b1001, dst_cta=9, mbarrier_cta=1),
    ],
)
def test_multicasts_ignore_the_ctas_of_their_addresses(request_):
    smem = [np.zeros(1024, np.uint8) for _ in range(4)]
    completions = execute(request_, HashedMemory(), smem, cta=1)
    assert [completion.cta for completion in completions] == [0, 3]


@pytest.mark.parametrize("request_", [replace(LOAD, cta_mask=0), replace(BULK, cta_mask=0)])
def test_a_multicast_to_nobody_does_nothing(request_):
    smem = [np.zeros(1024, np.uint8) for _ in range(4)]
    assert execute(request_, HashedMemory(), smem, cta=1) == []
    assert not any(memory.any() for memory in smem)


@pytest.mark.parametrize(
    "request_",
    [
        replace(LOAD, dst_cta=2, mbarrier_cta=3),
        replace(BULK, dst_cta=2, mbarrier_cta=1),
        replace(COPY, dst_cta=2, mbarrier_cta=1),
    ],
)
def test_the_barrier_is_in_the_destination(request_):
    smem = [np.zeros(1024, np.uint8) for _ in range(4)]
    completions = execute(request_, HashedMemory(), smem, cta=1)
    assert [completion.cta for completion in completions] == [2]


def test_a_cta_copies_to_itself():
    smem = [np.arange(256, dtype=np.uint8) for _ in range(2)]
    assert execute(DsmemCopy(1, 0, 128, 64), HashedMemory(), smem, cta=1) == [Completion(1, 0, 64)]
    assert smem[1][:64].tolist() == list(range(128, 192))


@pytest.mark.parametrize("word", [2, 13, 15])
def test_hopper_ignores_reserved_bits(word):
    """Version and w2[31:19], w13[23:15], and w15 of a tiled map."""
    reserved = {2: 0xFFF8_000E, 13: 0xFF8000, 15: 0xFFFFFFFF}[word]
    smem = [np.zeros(1024, np.uint8) for _ in range(2)]
    for memory, words in zip(smem, (WORDS[word], WORDS[word] | reserved), strict=True):
        execute(Load(changed(**{f"w{word}": words}), (4, 2)), HashedMemory(), [memory])
    assert smem[0].any()
    assert (smem[0] == smem[1]).all()


def test_later_architectures_decode_reserved_bits():
    """w2[20:19] is the atom of the swizzle, w2[22] marks ``im2col::w``."""
    swizzled = TensorMap.tiled("f32", 1 << 20, (64, 64), (256,), (32, 8), swizzle="128B").encode()
    w2 = Descriptor.from_bytes(swizzled).words[2]
    with_atom = Descriptor((*WORDS[:2], w2 | 1 << 19, *Descriptor.from_bytes(swizzled).words[3:]))
    smem = [np.zeros(1024, np.uint8) for _ in range(3)]
    execute(Load(swizzled, (0, 0)), HashedMemory(), smem[:1])
    execute(Load(with_atom, (0, 0)), HashedMemory(), smem[1:2])
    execute(Load(with_atom, (0, 0)), HashedMemory(), smem[2:], arch=Arch.SM_100A)
    assert (smem[0] == smem[1]).all()
    assert (smem[0] != smem[2]).any()
    wide = Load(changed(w2=WORDS[2] | 1 << 22), (0, 0))
    check(wide)
    with pytest.raises(TmaError, match="needs im2col"):
        check(wide, arch=Arch.SM_100A)


def test_bulk_beyond_memory_is_a_fault():
    smem = [np.ones(128, np.uint8)]
    gmem = ArrayMemory(np.zeros(96, np.uint8), 0x1000)
    for request in BulkLoad(0x1040, 0, 64), BulkStore(0x1040, 0, 64):
        with pytest.raises(TmaError, match="0x1060: must be from 0x1000 to 0x105f") as caught:
            execute(request, gmem, smem)
        assert caught.value.code is ErrorCode.GMEM_FAULT
    assert smem[0].all()
    assert not gmem.bytes.any()
