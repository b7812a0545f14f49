"""Tensor maps: the driver's bytes, the driver's verdicts, and errors that name what is wrong."""

from pathlib import Path

import numpy as np
import pytest

from golden import DataType, Interleave, OobFill, Swizzle, TensorMap, TensorMapError
from golden.conformance import check_encoding
from golden.tensor_map import Descriptor
from golden.vectors import read_cases
from tests.golden.random_loads import random_load

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
    assert "the driver rejects it" in (check_encoding(case) or "")


def test_words_of_a_plain_map():
    """The worked example of the word map."""
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


@pytest.mark.parametrize("seed", range(3))
def test_round_trip(seed):
    rng = np.random.default_rng(seed)
    for _ in range(200):
        tensor_map = random_load(rng, interleaved=bool(rng.integers(2))).tensor_map
        assert TensorMap.decode(tensor_map.encode()) == tensor_map


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_type": 13}, "data_type = 13: must be from 0 to 12"),
        ({"interleave": 3}, "interleave = 3: must be from 0 to 2"),
        ({"interleave": Interleave.INTERLEAVE_16B}, "rank = 2: must be from 3 to 5"),
        ({"swizzle": 4}, "swizzle = 4: must be from 0 to 3"),
        ({"l2_promotion": 4}, "l2_promotion = 4: must be from 0 to 3"),
        ({"oob_fill": 2}, "oob_fill = 2: must be from 0 to 1"),
        (
            {"data_type": DataType.INT32, "oob_fill": OobFill.NAN_REQUEST_ZERO_FMA},
            "oob_fill = NAN_REQUEST_ZERO_FMA: needs a float type, not INT32",
        ),
        ({"global_dim": [], "global_strides": []}, "rank = 0: must be from 1 to 5"),
        ({"global_address": 8}, "global_address = 0x8: must be a multiple of 16"),
        ({"global_dim": [16, 0]}, "global_dim[1] = 0: must be from 1 to 2**32"),
        ({"global_strides": [40]}, "global_strides[0] = 40: must be a multiple of 16"),
        ({"global_strides": [1 << 40]}, f"global_strides[0] = {1 << 40}: must be below 2**40"),
        ({"global_strides": [32, 64]}, "len(global_strides) = 2: must be 1"),
        ({"element_strides": [9, 1]}, "element_strides[0] = 9: must be from 1 to 8"),
        ({"box_dim": [16, 257]}, "box_dim[1] = 257: must be from 1 to 256"),
        ({"box_dim": [16]}, "len(box_dim) = 1: must be 2"),
        ({"box_dim": [12, 8]}, "box_dim[0]*2 = 24 bytes: must be a multiple of 16"),
        (
            {"box_dim": [32, 8], "swizzle": Swizzle.SWIZZLE_32B},
            "box_dim[0]*2 = 64 bytes: must be at most 32 with SWIZZLE_32B",
        ),
        (
            {"box_dim": [256, 256], "data_type": DataType.FLOAT64},
            "the box = 524288 bytes: must be at most 233472 bytes of shared memory",
        ),
    ],
)
def test_error_names_parameter_value_and_limit(changes, message):
    with pytest.raises(TensorMapError) as caught:
        TensorMap.tiled(**{**PLAIN, **changes})
    assert str(caught.value) == message


def test_descriptor_takes_what_the_encoder_never_writes():
    fields = Descriptor((0xFFFFFFFF,) * 16)
    assert (fields.rank, fields.format, fields.data_type, fields.interleave) == (8, 15, None, 3)
    with pytest.raises(TensorMapError, match="format = 15"):
        TensorMap.decode(b"\xff" * 128)
    for bit, message in (1, "version = 1: must be 0"), (19, "swizzle atom = 1: must be 0"):
        words = np.frombuffer(TensorMap.tiled(**PLAIN).encode(), "<u4").copy()
        words[2] |= 1 << bit
        with pytest.raises(TensorMapError, match=message):
            TensorMap.decode(words.tobytes())
    with pytest.raises(ValueError, match="32 bytes"):
        Descriptor.from_bytes(bytes(32))
