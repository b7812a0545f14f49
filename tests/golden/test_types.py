"""Arguments of wrong types: each is an error of the project that names the argument."""

from dataclasses import fields, replace
from typing import get_args

import numpy as np
import pytest

from golden import (
    Arch,
    ArrayMemory,
    BulkLoad,
    BulkReduce,
    Cluster,
    DataType,
    Descriptor,
    DsmemReduce,
    ErrorCode,
    HashedMemory,
    LayeredMemory,
    Load,
    Plan,
    ReductionOp,
    Request,
    Store,
    Swizzle,
    TensorMap,
    TmaError,
    advice,
    check,
    execute,
    tensormap_replace,
)

MAP = TensorMap.tiled("u32", 0, (64, 64), (256,), (32, 8))
DATA = MAP.encode()
ARRAY = np.zeros((64, 64), np.float32)
SMEM = [np.zeros(1 << 16, np.uint8)]
WRONG = ["1", 1.5, None, (1,), [2], {}, b"x", object(), np.float64(1.5), np.zeros((2, 2))]


def legal(kind: type) -> Request:
    """Return a request of a class whose operands have the right types."""
    given = {"tensor_map": MAP, "coords": (0, 0), "data_type": DataType.UINT32}
    given |= {"op": ReductionOp.ADD, "gmem_address": 0, "smem_address": 0, "size": 16}
    given |= {"dst_cta": 1, "dst_address": 0}
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in given.items() if name in names})


@pytest.mark.parametrize("kind", get_args(Request))
def test_operands_of_requests(kind):
    request, arch = legal(kind), Arch.SM_107A
    check(request, ctas=2, arch=arch)
    for field in fields(kind):
        for wrong in WRONG:
            if field.name in ("coords", "im2col_offsets") and isinstance(wrong, list | tuple):
                continue
            if wrong is None and "None" in str(field.type):
                continue
            with pytest.raises(TmaError) as caught:
                check(replace(request, **{field.name: wrong}), ctas=2, arch=arch)
            message = str(caught.value)
            assert message.startswith((field.name, f"len({field.name})", "len(data)")), message
            assert "\n" not in message


EQUAL = {"w_halo": 0.0, "w_offset": False, "cta_group": 1.0, "multicast_32b": 0, "report": 0}


@pytest.mark.parametrize("name", EQUAL)
def test_operands_that_equal_their_default(name):
    with pytest.raises(TmaError) as caught:
        execute(Load(MAP, (0, 0), **{name: EQUAL[name]}), ArrayMemory(ARRAY), SMEM)
    assert str(caught.value).startswith(f"{name} = {EQUAL[name]!r}: must be ")


@pytest.mark.parametrize("entry", ["1", 1.5, None, True, np.float64(1)])
@pytest.mark.parametrize("name", ["coords", "im2col_offsets"])
def test_entries_of_sequences(name, entry):
    with pytest.raises(TmaError) as caught:
        replace(legal(Load), **{name: (0, entry)})
    assert str(caught.value).startswith(f"{name}[1] = {entry!r}: must be an integer [")


def test_sequences_of_any_type_are_the_same_request():
    for coords in ([32, 8], np.array([32, 8]), (np.int64(32), np.uint8(8)), range(32, 7, -24)):
        request = Load(MAP, coords)
        assert request == Load(MAP, (32, 8))
        assert hash(request) == hash(Load(MAP, (32, 8)))
        check(request)
    for data in (bytearray(DATA), memoryview(DATA), np.frombuffer(DATA, "<u4")):
        assert Store(data, (0, 0)) == Store(DATA, (0, 0))


@pytest.mark.parametrize("data", ["aa" * 64, "aa" * 128, None, 5, list(DATA), (1,) * 32])
def test_decoders_take_bytes(data):
    for decode in (
        TensorMap.decode,
        Descriptor.from_bytes,
        Plan,
        lambda data: tensormap_replace(data, "rank", 1),
    ):
        with pytest.raises(TmaError, match=r"must be bytes: bytes\.fromhex turns") as caught:
            decode(data)
        assert caught.value.code is ErrorCode.MAP_BYTES
        assert len(str(caught.value)) < 200


def test_decoders_take_any_buffer():
    words = np.frombuffer(DATA, "<u4")
    for data in (bytearray(DATA), memoryview(DATA), words, words.view("<u8")):
        assert TensorMap.decode(data) == MAP
        assert tensormap_replace(data, "rank", 1) == DATA


@pytest.mark.parametrize("words", [None, "a" * 16, (0,) * 15, (0.0,) * 16, (1 << 32,) * 16])
def test_words_of_a_descriptor(words):
    with pytest.raises(TmaError, match="words"):
        Descriptor(words)


@pytest.mark.parametrize("value", ["x", 1.5, None, (1,), True])
@pytest.mark.parametrize(
    "field", ["rank", "box_dim", "global_dim", "global_stride", "elemtype", "global_address"]
)
def test_values_of_replace(field, value):
    index = 0 if field in ("box_dim", "global_dim", "global_stride") else None
    with pytest.raises(TmaError) as caught:
        tensormap_replace(DATA, field, value, index)
    assert str(caught.value).startswith(f"{field} = {value!r}: must be an integer [REPLACE")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((DATA, None, 1), "field = None: must be one of global_address, rank"),
        ((DATA, "", 1), "field = '': must be one of global_address, rank"),
        ((DATA, "box_dim", 1, "0"), "index = '0': must be an integer"),
    ],
)
def test_fields_of_replace(arguments, text):
    with pytest.raises(TmaError) as caught:
        tensormap_replace(*arguments)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("arch", [90, "sm_90a", None, "SM_100A"])
def test_architectures_are_members(arch):
    """An architecture of another type used to be taken for the newest one."""
    array = TensorMap.from_array
    for use in (
        lambda: TensorMap.tiled("u8", 0, (64,), (), (64,), arch=arch),
        lambda: array(ARRAY, (16, 16), arch=arch),
        lambda: TensorMap.decode(DATA, arch=arch),
        lambda: Plan(MAP, arch=arch),
        lambda: check(Load(MAP, (0, 0)), arch=arch),
        lambda: check(BulkLoad(0, 0, 16), arch=arch),
        lambda: tensormap_replace(DATA, "rank", 1, arch=arch),
        lambda: Cluster(HashedMemory(), arch=arch),
    ):
        with pytest.raises(TmaError) as caught:
            use()
        text = f"arch = {arch!r}: must be Arch.SM_90A, Arch.SM_100A, Arch.SM_103A, Arch.SM_107A or "
        assert str(caught.value) == f"{text}Arch.SM_120A [ARCH, choice]"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: MAP.with_address(None), "global_address = None: must be an integer, from 0 to"),
        (
            lambda: TensorMap.from_array(ARRAY, (16, 16), global_address="0"),
            "global_address = '0': must be an integer",
        ),
        (
            lambda: TensorMap.from_array(ARRAY, (16, 16), data_type="f99"),
            "data_type = f99: must be from 0 to 15, or one of UINT8",
        ),
        (lambda: TensorMap.from_array(ARRAY, None), "box = None: must be a sequence"),
        (lambda: TensorMap.tiled("u8", None, (64,), (), (64,)), "global_address = None: must be"),
        (lambda: Plan(MAP, "gather5"), "mode = gather5: must be from 0 to 5, or one of TILE"),
        (lambda: Plan(MAP, 2.0), "mode = 2.0: must be from 0 to 5, or one of TILE"),
        (lambda: ArrayMemory([1, 2]), "array = [1, 2]: must be an ndarray"),
        (lambda: ArrayMemory(ARRAY, None), "base = None: must be an integer"),
        (lambda: ArrayMemory(ARRAY, -1), "base = -0x1: must be from 0 to 2**64 - 1"),
        (lambda: ArrayMemory.of(None), "array = None: must be an ndarray"),
        (lambda: LayeredMemory(None, {}), "below = None: must be a memory, such as ArrayMemory"),
        (lambda: LayeredMemory(HashedMemory(), {0: [1]}), "array = [1]: must be an ndarray"),
        (lambda: Cluster(ARRAY), "gmem = array([[0., 0., 0., "),
        (lambda: Cluster(HashedMemory(), "2"), "ctas = '2': must be an integer, from 1 to 16"),
        (lambda: Cluster(HashedMemory(), smem_bytes=-1), "smem_bytes = -1: must be from 0 to"),
        (lambda: check("load"), "request = 'load': must be a request, such as Load"),
        (lambda: check(None), "request = None: must be a request, such as Load"),
        (lambda: execute(Load(MAP, (0, 0)), ARRAY, SMEM), "gmem = array([[0., 0., 0., "),
        (lambda: execute(Load(MAP, (0, 0)), HashedMemory(), SMEM[0]), "smem[0] = np.uint8(0): "),
        (lambda: execute(Load(MAP, (0, 0)), HashedMemory(), [ARRAY]), "smem[0] = array([[0., "),
        (lambda: execute(Load(MAP, (0, 0)), HashedMemory(), SMEM, cta=1), "cta = 1: must be from"),
        (lambda: execute(Load(MAP, (0, 0)), HashedMemory(), SMEM, cta="0"), "cta = '0': must be"),
    ],
)
def test_other_arguments(make, text):
    with pytest.raises(TmaError) as caught:
        make()
    assert str(caught.value).startswith(text)
    assert len(str(caught.value)) < 400


def test_names_of_members():
    for wrong in (None, 1.5, 99, "99B", (1,)):
        with pytest.raises(ValueError, match="must be one of NONE, SWIZZLE_32B"):
            Swizzle.member(wrong)
    assert Swizzle.member(3) is Swizzle.SWIZZLE_128B


def test_operands_that_are_no_members():
    """The number of an operation would be taken, and the message of a refusal would fail."""
    with pytest.raises(TmaError, match="op = 0: must be a member of ReductionOp"):
        check(BulkReduce(0, 0, 16, DataType.UINT32, 0))
    with pytest.raises(TmaError, match="data_type = 'u32': must be a member of DataType"):
        check(DsmemReduce(1, 0, 0, 16, data_type="u32"), ctas=2)
    assert advice(BulkLoad(0, 0, 16)) == []
