"""Tensor maps: the driver's bytes, the driver's verdicts, and error messages."""

from pathlib import Path

import numpy as np
import pytest

from golden import (
    Arch,
    DataType,
    Descriptor,
    ErrorCode,
    Interleave,
    OobFill,
    Swizzle,
    TensorMap,
    TmaError,
)
from golden.conformance import check_encoding
from golden.request import TensorRequest
from golden.vectors import read_cases
from tests.golden.random_requests import MODES, random_case

SILICON = Path(__file__).parents[1] / "silicon"
PLAIN = {
    "data_type": DataType.FLOAT16,
    "global_address": 0x7F0000000000,
    "global_dim": [16, 16],
    "global_strides": [32],
    "box_dim": [16, 8],
}


def test_every_map_of_the_driver():
    cases = read_cases(SILICON / "tensor_maps.npz")
    assert len(cases) == 4800
    assert [diagnosis for case in cases if (diagnosis := check_encoding(case))] == []


@pytest.mark.parametrize("kind", ["encode", "encode_im2col"])
def test_a_wrong_byte_or_verdict_is_found(kind):
    case = next(c for c in read_cases(SILICON / "tensor_maps.npz", [kind]) if not c.encode_status)
    case.fields["descriptor"][13] ^= 1
    assert "word w13" in (check_encoding(case) or "")
    case.fields["encode_status"] = 1
    assert "the driver rejects the map, the golden model accepts it" in (check_encoding(case) or "")


def test_words_of_a_plain_map():
    """Worked example of the words of a tiled map."""
    words = np.frombuffer(TensorMap.tiled(**PLAIN).encode(), "<u4")
    expected = np.zeros(32, np.uint32)
    for word, value in {
        1: 0x7F00,
        2: 0x310,
        3: 2,
        8: 0xF,
        9: 0xF,
        13: 0x0F000000,
        14: 7,
        16: 0x100,
        18: 0x10,
    }.items():
        expected[word] = value
    assert words.tolist() == expected.tolist()


def test_words_of_an_im2col_map():
    """Worked example of the words of an im2col map."""
    tensor_map = TensorMap.im2col(
        "f16",
        0,
        (64, 14, 9, 64),
        (128, 1792, 16128),
        (-1, -2),
        (-3, 1),
        64,
        32,
        (1, 2, 1, 1),
        swizzle="128B",
        l2_promotion="128B",
    )
    words = Descriptor.from_bytes(tensor_map.encode()).words
    expected = {2: 0x46331, 3: 8, 4: 0x70, 5: 0x3F0, 8: 0x3F, 9: 0xD, 10: 8, 11: 0x3F}
    expected |= {13: 0x3F000008, 14: 0x01FDFEFF, 15: 0x1F}
    assert words == tuple(expected.get(n, 0) for n in range(16))
    assert np.frombuffer(tensor_map.encode(), "<u4")[[16, 18]].tolist() == [0x1000, 0x400]


@pytest.mark.parametrize("mode", [mode for mode in MODES if "bulk" not in mode and mode != "dsmem"])
def test_round_trip(mode):
    rng = np.random.default_rng(0)
    for _ in range(50):
        case = random_case(rng, mode)
        if not isinstance(case.request, TensorRequest):
            continue
        tensor_map = case.request.tensor_map
        assert TensorMap.decode(tensor_map.encode(), arch=case.arch) == tensor_map


IM2COL = {
    "data_type": DataType.FLOAT16,
    "global_address": 0,
    "global_dim": [64, 8, 8, 4],
    "global_strides": [128, 1024, 8192],
    "lower_corner": [0, 0],
    "upper_corner": [0, 0],
    "channels_per_pixel": 64,
    "pixels_per_column": 32,
}
TOO_WIDE = {"box_dim": [32, 8], "swizzle": Swizzle.SWIZZLE_32B}
SUB_BYTE = {"data_type": DataType.PACKED_16U6_ALIGN16B, "arch": Arch.SM_100A}


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (
            {"data_type": 13},
            "DATA_TYPE",
            "= PACKED_16U4_ALIGN8B: a type of 4 or 6 bits needs SM_100A",
        ),
        ({"data_type": 16}, "DATA_TYPE", "data_type = 16: must be from 0 to 15, or one of UINT8"),
        ({"data_type": "f17"}, "DATA_TYPE", "data_type = f17: must be from 0 to 15, or one of"),
        ({"interleave": 3}, "INTERLEAVE", "interleave = 3: must be from 0 to 2"),
        (
            {"interleave": Interleave.INTERLEAVE_16B},
            "RANK",
            "rank = 2: must be from 3 to 5 with interleave",
        ),
        ({"swizzle": 4}, "SWIZZLE", "= SWIZZLE_128B_ATOM_32B: .swizzle_atomicity needs"),
        ({"swizzle": "48B"}, "SWIZZLE", "swizzle = 48B: must be from 0 to 7, or one of NONE"),
        ({"l2_promotion": 4}, "L2_PROMOTION", "l2_promotion = 4: must be from 0 to 3"),
        ({"oob_fill": 2}, "OOB_FILL", "oob_fill = 2: must be from 0 to 1"),
        (
            {"data_type": DataType.INT32, "oob_fill": OobFill.NAN_REQUEST_ZERO_FMA},
            "OOB_FILL",
            "oob_fill = NAN_REQUEST_ZERO_FMA: needs a float type, not INT32",
        ),
        ({"global_dim": [], "global_strides": []}, "RANK", "rank = 0: must be from 1 to 5"),
        ({"global_address": 8}, "GLOBAL_ADDRESS", "global_address = 0x8: must be a multiple of 16"),
        ({"global_address": 1 << 64}, "GLOBAL_ADDRESS", "must be from 0 to 2**64 - 1"),
        ({"global_dim": [16, 0]}, "GLOBAL_DIM", "global_dim[1] = 0: must be from 1 to 2**32"),
        (
            {"global_strides": [40]},
            "GLOBAL_STRIDES",
            "global_strides[0] = 40: must be a multiple of 16",
        ),
        (
            {"global_strides": [1 << 40]},
            "GLOBAL_STRIDES",
            f"global_strides[0] = {1 << 40}: must be from 0 to 2**40 - 1",
        ),
        ({"global_strides": [32, 64]}, "LENGTH", "len(global_strides) = 2: must be 1"),
        (
            {"element_strides": [9, 1]},
            "ELEMENT_STRIDES",
            "element_strides[0] = 9: must be from 1 to 8",
        ),
        ({"box_dim": [16, 257]}, "BOX_DIM", "box_dim[1] = 257: must be from 1 to 256"),
        ({"box_dim": [16]}, "LENGTH", "len(box_dim) = 1: must be 2"),
        ({"box_dim": [12, 8]}, "INNER_ALIGN", "box_dim[0]*2 = 24 bytes: must be a multiple of 16"),
        (TOO_WIDE, "INNER_SPAN", "box_dim[0]*2 = 64 bytes: must be at most 32 with SWIZZLE_32B"),
        (
            {"box_dim": [256, 256], "data_type": DataType.FLOAT64},
            "BOX_BYTES",
            "box_dim = (256, 256), 524288 bytes: must be at most 233472 bytes of shared memory",
        ),
        (SUB_BYTE | {"box_dim": [64, 8]}, "SUB_BYTE", "box_dim[0] = 64: must be 128 with PACKED"),
        (
            {"swizzle": "96B", "arch": Arch.SM_103A, "interleave": 1}
            | {"global_dim": [16] * 3, "global_strides": [32] * 2, "box_dim": [8] * 3},
            "SWIZZLE",
            "interleave = INTERLEAVE_16B: must be NONE with SWIZZLE_96B",
        ),
    ],
)
def test_a_tiled_map_that_is_refused(changes, code, message):
    with pytest.raises(TmaError) as caught:
        TensorMap.tiled(**{**PLAIN, **changes})
    assert caught.value.code is ErrorCode[code]
    assert message in str(caught.value)
    assert f"[{code}, {caught.value.origin.value}]" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"global_dim": [64, 8], "global_strides": [128]}, "LENGTH", "len(lower_corner) = 2"),
        (
            {"global_dim": [64, 8], "global_strides": [128]}
            | {"lower_corner": [], "upper_corner": []},
            "RANK",
            "rank = 2: must be from 3 to 5 with im2col",
        ),
        ({"channels_per_pixel": 257}, "CHANNELS_PER_PIXEL", "= 257: must be from 1 to 256"),
        ({"channels_per_pixel": 60}, "INNER_ALIGN", "channels_per_pixel*2 = 120 bytes"),
        ({"pixels_per_column": 0}, "PIXELS_PER_COLUMN", "= 0: must be from 1 to 1024"),
        (
            {"lower_corner": [0, -129]},
            "CORNER",
            "lower_corner[1] = -129: must be from -128 to 127 with rank 4",
        ),
        (
            {"lower_corner": [4, 0], "upper_corner": [-4, 0]},
            "BOUNDING_BOX",
            "int32(global_dim[1] + upper_corner[0]) - lower_corner[0] = 0: must be positive",
        ),
        ({"global_dim": [64, 1 << 31, 8, 4]}, "BOUNDING_BOX", "must be positive"),
        (
            {"wide": True, "lower_corner": [0], "upper_corner": [0]},
            "VERSION",
            "im2col::w to .shared::cta needs",
        ),
    ],
)
def test_an_im2col_map_that_is_refused(changes, code, message):
    with pytest.raises(TmaError) as caught:
        TensorMap.im2col(**{**IM2COL, **changes})
    assert caught.value.code is ErrorCode[code]
    assert message in str(caught.value)


def test_attributes_of_an_error():
    with pytest.raises(TmaError) as caught:
        TensorMap.tiled(
            **{**PLAIN, "global_dim": [16, 16, 0], "global_strides": [32, 64]}
            | {"box_dim": [16, 8, 1]}
        )
    error = caught.value
    assert (error.parameter, error.dim, error.value) == ("global_dim[2]", 2, 0)
    assert error.limit == "must be from 1 to 2**32"


def test_descriptor_takes_any_words():
    fields = Descriptor((0xFFFFFFFF,) * 16)
    assert (fields.rank, fields.format, fields.data_type) == (8, 15, None)
    assert fields.interleave is None
    with pytest.raises(TmaError, match="data_type = code not assigned"):
        TensorMap.decode(bytes([0, 0, 0, 0, 0, 0, 0, 0]) + b"\xf0\xff" * 60)
    for bit, message in (
        (1, "version = 1: must be 0"),
        (19, "SWIZZLE_96B: the 96-byte swizzle needs SM_103A"),
    ):
        words = np.frombuffer(TensorMap.tiled(**PLAIN).encode(), "<u4").copy()
        words[2] |= 1 << bit
        with pytest.raises(TmaError, match=message):
            TensorMap.decode(words.tobytes())
    with pytest.raises(TmaError, match=r"len\(data\) = 32: must be 128 bytes, or at least the 64"):
        Descriptor.from_bytes(bytes(32))


def test_text_of_an_im2col_map():
    text = str(TensorMap.im2col(**IM2COL))
    assert text.splitlines()[0] == "rank-4 im2col map of FLOAT16"
    assert "pixels_per_column   32  = 4096 bytes of shared memory" in text


def test_with_address():
    tensor_map = TensorMap.tiled(**PLAIN)
    moved = tensor_map.with_address(1 << 20)
    assert moved == TensorMap.tiled(**{**PLAIN, "global_address": 1 << 20})
    for address in 8, 1 << 64:
        with pytest.raises(TmaError, match="global_address = 0x"):
            tensor_map.with_address(address)
