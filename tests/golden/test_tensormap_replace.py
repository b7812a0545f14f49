"""``tensormap.replace``: every field, and illegal operands."""

from dataclasses import replace

import pytest

from golden import Arch, DataType, Descriptor, Swizzle, TensorMap, TmaError, tensormap_replace

MAP = TensorMap.tiled(
    "bf16", 1 << 32, (64, 32, 8), (128, 4096), (32, 8, 2), (1, 2, 1), swizzle="64B"
)


@pytest.mark.parametrize(
    ("field", "index", "value", "changes"),
    [
        ("global_address", None, 0x7F_0000_0010, {"global_address": 0x7F_0000_0010}),
        ("box_dim", 0, 16, {"box_dim": (16, 8, 2)}),
        ("box_dim", 2, 5, {"box_dim": (32, 8, 5)}),
        ("global_dim", 1, 1 << 32, {"global_dim": (64, 1 << 32, 8)}),
        ("global_stride", 1, 5 << 36, {"global_strides": (128, 5 << 36)}),
        ("global_stride", 0, 0, {"global_strides": (0, 4096)}),
        ("element_stride", 2, 8, {"element_strides": (1, 2, 8)}),
        ("elemtype", None, 6, {"data_type": DataType.FLOAT16}),
        ("interleave_layout", None, 1, {"interleave": 1}),
        ("swizzle_mode", None, 3, {"swizzle": Swizzle.SWIZZLE_128B}),
        ("fill_mode", None, 1, {"oob_fill": 1}),
    ],
)
def test_one_field_changes(field, index, value, changes):
    edited = tensormap_replace(MAP.encode(), field, value, index)
    assert TensorMap.decode(edited) == replace(MAP, **changes)
    # Metadata is unchanged.
    assert edited[64:] == MAP.encode()[64:]


@pytest.mark.parametrize("kind", DataType)
def test_every_type(kind):
    arch = Arch.SM_100A
    edited = tensormap_replace(MAP.encode(), "elemtype", kind.replace_code, arch=arch)
    assert Descriptor.from_bytes(edited).data_type is kind


@pytest.mark.parametrize("swizzle", Swizzle)
def test_every_swizzle_and_back(swizzle):
    data = MAP.encode()
    if swizzle is Swizzle.SWIZZLE_96B:
        with pytest.raises(TmaError, match="96-byte swizzle needs SM_103A or SM_107A, not SM_100A"):
            tensormap_replace(data, "swizzle_mode", 4, arch=Arch.SM_100A)
        data = tensormap_replace(data, "swizzle_mode", 4, arch=Arch.SM_103A)
    else:
        data = tensormap_replace(data, "swizzle_mode", swizzle.fields[0])
        atom = swizzle.fields[1]
        data = tensormap_replace(data, "swizzle_atomicity", atom, arch=Arch.SM_100A)
    assert Descriptor.from_bytes(data).swizzle is swizzle
    if swizzle is Swizzle.SWIZZLE_96B:
        data = tensormap_replace(data, "swizzle_mode", 1)
        data = tensormap_replace(data, "swizzle_atomicity", 0, arch=Arch.SM_103A)
        assert Descriptor.from_bytes(data).swizzle is Swizzle.SWIZZLE_32B


@pytest.mark.parametrize(
    ("field", "index", "value", "like"),
    [
        ("rank", None, 0xC, 4),
        ("box_dim", 2, 0x604199D7, 0xD7),
        ("box_dim", 0, 0, 256),
        ("global_dim", 1, 0, 1 << 32),
        ("global_stride", 0, 0x78D43BFA1C4A237B, 0xFA1C4A2370),
        ("element_stride", 1, 0x7DAB6CAB, 3),
    ],
)
def test_a_value_that_does_not_fit_is_masked(field, index, value, like):
    masked, fitting = (tensormap_replace(MAP.encode(), field, n, index) for n in (value, like))
    assert masked == fitting


def test_a_map_that_rounds_goes_on_rounding():
    """No type clears w2[16], so that a tf32 map made f32 still rounds."""
    data = tensormap_replace(MAP.encode(), "elemtype", DataType.TFLOAT32.replace_code)
    data = tensormap_replace(data, "elemtype", DataType.FLOAT32.replace_code)
    assert Descriptor.from_bytes(data).data_type is DataType.TFLOAT32


def test_a_map_built_from_zeros():
    data = bytes(128)
    steps = [
        ("global_address", None, 1 << 20),
        ("rank", None, 1),
        ("elemtype", None, DataType.FLOAT32.replace_code),
        ("global_dim", 0, 100),
        ("global_dim", 1, 50),
        ("global_stride", 0, 400),
        ("box_dim", 0, 32),
        ("box_dim", 1, 16),
        ("element_stride", 0, 1),
        ("swizzle_mode", None, 3),
    ]
    for field, index, value in steps:
        data = tensormap_replace(data, field, value, index)
    expected = TensorMap.tiled("f32", 1 << 20, (100, 50), (400,), (32, 16), swizzle="128B")
    assert TensorMap.decode(data) == expected


@pytest.mark.parametrize(
    ("field", "index", "value", "text"),
    [
        ("box", None, 1, "field = box: must be one of global_address"),
        ("box_dim", None, 1, "index = None: must be from 0 to 4 for box_dim"),
        ("box_dim", 5, 1, "index = 5: must be from 0 to 4"),
        ("global_stride", 4, 16, "index = 4: must be from 0 to 3"),
        ("rank", 0, 1, "index = 0: must be None for rank"),
        ("rank", None, 1 << 32, "rank = 4294967296: must be from 0 to 4294967295 on SM_90A"),
        ("box_dim", 0, -1, "box_dim = -1: must be from 0 to 4294967295"),
        ("global_stride", 0, 1 << 64, "must be from 0 to 18446744073709551615"),
        ("swizzle_atomicity", None, 1, ".swizzle_atomicity needs SM_100A"),
        ("swizzle_atomicity", None, 0, ".swizzle_atomicity needs SM_100A"),
        ("elemtype", None, 16, "elemtype = 16: must be from 0 to 12 on SM_90A"),
        ("elemtype", None, 13, "elemtype = 13: a type of 4 or 6 bits needs SM_100A"),
    ],
)
def test_illegal_operands(field, index, value, text):
    with pytest.raises(TmaError) as caught:
        tensormap_replace(MAP.encode(), field, value, index)
    assert text in str(caught.value)


def test_the_map_must_have_128_bytes():
    with pytest.raises(TmaError, match=r"len\(data\) = 64: must be 128"):
        tensormap_replace(bytes(64), "rank", 1)
