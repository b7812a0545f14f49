"""Fields of a `TensorMap`: each holds exactly the values that its bits can express."""

from dataclasses import fields, replace

import numpy as np
import pytest

from golden import Arch, Descriptor, ErrorCode, Load, TensorMap, TmaError, check

TILE = TensorMap.tiled("u8", 1 << 20, (64, 32, 8), (128, 4096), (32, 8, 2))
IM2COL = TensorMap.im2col(
    *("f16", 0, (64, 8, 8, 4), (128, 1024, 8192), (-1, 0), (0, 1), 64, 32), (1, 2, 1, 1)
)
WIDE = TensorMap.im2col(
    *("u8", 0, (64, 9, 9), (64, 576), (0,), (0,), 64, 32), wide=True, arch=Arch.SM_100A
)
MAPS = {"tile": TILE, "im2col": IM2COL, "wide": WIDE}

TUPLES = [
    ("tile", "global_dim", 1, 1 << 32, "from 1 to 2**32"),
    ("tile", "global_strides", 0, (1 << 40) - 16, "from 0 to 2**40 - 1"),
    ("tile", "element_strides", 1, 8, "from 1 to 8"),
    ("tile", "box_dim", 1, 256, "from 1 to 256"),
    ("im2col", "lower_corner", -128, 127, "from -128 to 127 with rank 4"),
    ("im2col", "upper_corner", -128, 127, "from -128 to 127 with rank 4"),
    ("wide", "lower_corner", -32768, 32767, "from -32768 to 32767 of a wide map"),
    ("wide", "upper_corner", -32768, 32767, "from -32768 to 32767 of a wide map"),
]
"""Map, field, lowest and highest value of an entry, and the limit in the message."""

INTEGERS = [
    ("tile", "global_address", 0, (1 << 64) - 1, "from 0 to 2**64 - 1"),
    ("im2col", "channels_per_pixel", 1, 256, "from 1 to 256"),
    ("im2col", "pixels_per_column", 1, 1024, "from 1 to 1024"),
]
ENUMERATIONS = [
    ("data_type", 15),
    ("interleave", 2),
    ("swizzle", 7),
    ("l2_promotion", 3),
    ("oob_fill", 1),
    ("mode", 1),
]
NO_INTEGERS = [2.0, np.float64(2), "2", True, np.True_, None, (2,), 2 + 0j]
CODES = {"lower_corner": "CORNER", "upper_corner": "CORNER", "mode": "MAP_MODE", "wide": "VERSION"}


def code_of(field: str) -> ErrorCode:
    return ErrorCode[CODES.get(field, field.upper())]


def refusal(tensor_map: TensorMap, **changes: object) -> TmaError:
    """Return the error of changed fields, which is the same in the constructor and ``replace``."""
    values = {field.name: getattr(tensor_map, field.name) for field in fields(tensor_map)}
    with pytest.raises(TmaError) as constructed:
        TensorMap(**values | changes)
    with pytest.raises(TmaError) as replaced:
        replace(tensor_map, **changes)
    assert str(constructed.value) == str(replaced.value)
    return replaced.value


def entry(values: tuple[int, ...], at: int, value: object) -> tuple[object, ...]:
    return (*values[:at], value, *values[at + 1 :])


def test_every_field_is_tested():
    tested = [field for _, field, *_ in TUPLES + INTEGERS] + [field for field, _ in ENUMERATIONS]
    assert {field.name for field in fields(TensorMap)} == {*tested, "wide", "oob_128k"}


@pytest.mark.parametrize(("name", "field", "low", "high", "limit"), TUPLES)
def test_entries_out_of_range(name, field, low, high, limit):
    values = getattr(MAPS[name], field)
    beyond = high + (16 if field == "global_strides" else 1)
    for at in range(len(values)):
        for value in (low - 1, beyond, -(1 << 70), 1 << 70):
            error = refusal(MAPS[name], **{field: entry(values, at, value)})
            assert (error.code, error.value) == (code_of(field), value)
            assert str(error).startswith(f"{field}[{at}] = {value}: must be {limit} [")
            first = 1 if field == "global_strides" or "corner" in field else 0
            assert error.dim == at + first


@pytest.mark.parametrize(("name", "field", "low", "high", "limit"), TUPLES)
def test_entries_of_another_type(name, field, low, high, limit):
    del low, high
    values = getattr(MAPS[name], field)
    for at in range(len(values)):
        for value in NO_INTEGERS:
            error = refusal(MAPS[name], **{field: entry(values, at, value)})
            assert error.code is code_of(field)
            expected = f"{field}[{at}] = {value!r}: must be an integer, {limit} ["
            assert str(error).startswith(expected)


@pytest.mark.parametrize(("name", "field"), [row[:2] for row in TUPLES])
def test_wrong_lengths(name, field):
    values = getattr(MAPS[name], field)
    for wrong in (values[:-1], (*values, values[-1]), (), values * 6):
        error = refusal(MAPS[name], **{field: wrong})
        if field == "global_dim":  # it sets the rank
            short = {0: ErrorCode.RANK, 18: ErrorCode.RANK}
            assert error.code is short.get(len(wrong), ErrorCode.LENGTH)
            continue
        assert (error.code, error.value) == (ErrorCode.LENGTH, len(wrong))
        assert str(error).startswith(f"len({field}) = {len(wrong)}: must be {len(values)}")


@pytest.mark.parametrize(("name", "field"), [row[:2] for row in TUPLES])
def test_values_that_are_no_sequence(name, field):
    for wrong in (None, 3, 2.5, "16", b"\x10\x10", {16, 32}, np.array(3), iter((1, 2))):
        error = refusal(MAPS[name], **{field: wrong})
        assert error.code is ErrorCode.LENGTH
        assert str(error).startswith(f"{field} = {wrong!r}: must be a sequence of integers [")


@pytest.mark.parametrize(("name", "field", "low", "high", "limit"), INTEGERS)
def test_integers_that_do_not_fit(name, field, low, high, limit):
    for value in (low - 1, high + 1, -(1 << 70), 1 << 70):
        error = refusal(MAPS[name], **{field: value})
        shown = hex(value) if field == "global_address" else value
        assert (error.code, error.value) == (code_of(field), value)
        assert str(error).startswith(f"{field} = {shown}: must be {limit} [")
    for value in NO_INTEGERS:
        error = refusal(MAPS[name], **{field: value})
        assert error.code is code_of(field)
        assert str(error).startswith(f"{field} = {value!r}: must be an integer, {limit} [")


@pytest.mark.parametrize(("field", "last"), ENUMERATIONS)
def test_values_that_are_no_member(field, last):
    for value in (-1, last + 1, 1 << 70, 1.0, "nothing", "", True, np.True_, None, (1,)):
        error = refusal(TILE, **{field: value})
        assert error.code is code_of(field)
        shown = "''" if value == "" else value
        assert str(error).startswith(f"{field} = {shown}: must be from 0 to {last}, or one of ")


@pytest.mark.parametrize("name", ["wide", "oob_128k"])
def test_a_flag_is_true_or_false(name):
    for value in (0, 1, 2.0, "wide", None):
        error = refusal(WIDE, **{name: value})
        assert error.code is ErrorCode.VERSION
        assert str(error).startswith(f"{name} = {value!r}: must be True or False [")
    assert getattr(replace(WIDE, **{name: np.True_}), name) is True


@pytest.mark.parametrize("stride", [1, 8, 24])
def test_strides_whose_low_bits_the_map_does_not_have(stride):
    error = refusal(TILE, global_strides=(128, stride))
    assert (error.code, error.dim) == (ErrorCode.GLOBAL_STRIDES, 2)
    assert str(error).startswith(f"global_strides[1] = {stride}: must be a multiple of 16 [")


@pytest.mark.parametrize(
    ("tensor_map", "changes", "text"),
    [
        (TILE, {"lower_corner": (0,)}, "len(lower_corner) = 1: must be 0 with mode TILE"),
        (TILE, {"upper_corner": (0,)}, "len(upper_corner) = 1: must be 0 with mode TILE"),
        (TILE, {"channels_per_pixel": 1}, "channels_per_pixel = 1: must be 0 with mode TILE"),
        (TILE, {"pixels_per_column": 1}, "pixels_per_column = 1: must be 0 with mode TILE"),
        (TILE, {"mode": "im2col"}, "len(box_dim) = 3: must be 0 with mode IM2COL"),
        (IM2COL, {"box_dim": (1,) * 4}, "len(box_dim) = 4: must be 0 with mode IM2COL"),
        (IM2COL, {"mode": 0}, "len(box_dim) = 0: must be 4"),
        (IM2COL, {"wide": True}, "len(lower_corner) = 2: must be 1 of a wide map"),
        (WIDE, {"wide": False, "global_dim": (64, 9, 9, 9)}, "len(global_strides) = 2: must be 3"),
        (
            WIDE,
            {"global_dim": (64, 9), "global_strides": (64,), "element_strides": (1, 1)},
            "rank = 2: must be from 3 to 5 with im2col",
        ),
    ],
)
def test_fields_of_the_other_mode(tensor_map, changes, text):
    assert str(refusal(tensor_map, **changes)).startswith(text)


@pytest.mark.parametrize(("name", "field", "low", "high", "_limit"), TUPLES)
def test_the_bytes_express_the_extreme_entries(name, field, low, high, _limit):
    values = getattr(MAPS[name], field)
    for value in (low, high):
        for at in range(len(values)):
            changed = entry(values, at, value)
            d = Descriptor.from_bytes(replace(MAPS[name], **{field: changed}).encode())
            assert getattr(d, field)[: len(values)] == changed


@pytest.mark.parametrize(("name", "field", "low", "high", "_limit"), INTEGERS)
def test_the_bytes_express_the_extreme_integers(name, field, low, high, _limit):
    for value in (low, high):
        d = Descriptor.from_bytes(replace(MAPS[name], **{field: value}).encode())
        assert getattr(d, field) == value


@pytest.mark.parametrize(("field", "last"), ENUMERATIONS[:-1])
def test_the_bytes_express_every_member(field, last):
    for value in range(last + 1):
        d = Descriptor.from_bytes(replace(TILE, **{field: value}).encode())
        assert getattr(d, field) == value


@pytest.mark.parametrize(
    "kind", [np.int64, np.uint64, np.int32, np.uint16, lambda value: np.array(value, np.int64)]
)
def test_numpy_integers_become_int(kind):
    for name, field, *_ in TUPLES:
        values = getattr(MAPS[name], field)
        if min(values) < 0 and kind in (np.uint64, np.uint16):
            continue
        for sequence in (tuple, list, np.array):
            changed = replace(MAPS[name], **{field: sequence([kind(value) for value in values])})
            assert (changed, hash(changed)) == (MAPS[name], hash(MAPS[name]))
            assert all(type(value) is int for value in getattr(changed, field))
            assert changed.encode() == MAPS[name].encode()
    for _, field, *_ in INTEGERS[1:]:
        changed = replace(IM2COL, **{field: kind(getattr(IM2COL, field))})
        assert changed == IM2COL
        assert type(getattr(changed, field)) is int


def test_enumerations_become_members():
    for field, last in ENUMERATIONS[:-1]:
        kind = type(getattr(TILE, field))
        for value in (last, np.int64(last), kind(last).name, kind(last).name.lower(), kind(last)):
            assert getattr(replace(TILE, **{field: value}), field) is kind(last)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"swizzle": "32B", "box_dim": (64, 8, 2)}, "INNER_SPAN"),
        ({"box_dim": (33, 8, 2)}, "INNER_ALIGN"),
        ({"data_type": 15}, "DATA_TYPE"),
        ({"oob_fill": "nan"}, "OOB_FILL"),
        ({"global_address": 8}, "GLOBAL_ADDRESS"),
    ],
)
def test_a_map_that_the_bytes_express_and_the_unit_refuses(changes, rule):
    """Such a map can exist; requests with it are refused with MAP_FIELD."""
    tensor_map = replace(TILE, **changes)
    with pytest.raises(TmaError) as decoded:
        TensorMap.decode(tensor_map.encode())
    assert decoded.value.code is ErrorCode[rule]
    with pytest.raises(TmaError) as checked:
        check(Load(tensor_map, (0, 0, 0)))
    assert (checked.value.code, checked.value.detail) == (ErrorCode.MAP_FIELD, ErrorCode[rule])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({"swizzle": "128B_ATOM_64B"}, "SWIZZLE"), ({"wide": True}, "VERSION")],
)
def test_a_map_whose_reserved_bits_the_unit_ignores(changes, rule):
    """The driver writes no such map, and Hopper's unit reads no such bits."""
    tensor_map = replace(TILE, **changes)
    with pytest.raises(TmaError) as decoded:
        TensorMap.decode(tensor_map.encode())
    assert decoded.value.code is ErrorCode[rule]
    check(Load(tensor_map, (0, 0, 0)))


@pytest.mark.parametrize("make", [TensorMap.tiled, TensorMap.im2col])
def test_the_encoders_refuse_other_types_too(make):
    box = ((32, 8, 2),) if make == TensorMap.tiled else ((0,), (0,), 32, 16)
    arguments = ["u8", 0, (64, 32, 8), (128, 4096), *box, (1, 1, 1)]
    make(*arguments)
    for at, field in ((1, "global_address"), (2, "global_dim"), (3, "global_strides")):
        for wrong in (None, 2.5, "16"):
            with pytest.raises(TmaError, match=field):
                make(*arguments[:at], wrong, *arguments[at + 1 :])
    for wrong in (2.5, "16", 8):
        with pytest.raises(TmaError, match=r"element_strides = .*: must be a sequence"):
            make(*arguments[:-1], wrong)


def test_a_box_of_an_array_must_be_a_sequence():
    with pytest.raises(TmaError, match="box = 16: must be a sequence of integers"):
        TensorMap.from_array(np.zeros((16, 16), np.float32), 16)
