"""Tensor maps of the driver in C: those of CUDA's driver, in every byte and every refusal."""

import ctypes

import pytest

from golden import TensorMap
from golden.enums import DataType, Swizzle
from golden.errors import ErrorCode, TmaError
from golden.vectors import Case, read_cases
from hw.flow.cache import ROOT
from tests.examples.driver import MAP_WORDS, array, library, tensor

RECORDINGS = ROOT / "tests" / "silicon"


def fields(case: Case, name: str, count: int) -> tuple[int, ...]:
    """Return the first entries of a recorded field."""
    return tuple(int(value) for value in case.fields[name][:count])


def encoded(case: Case) -> tuple[int, bytes]:
    """Return status and map of the driver in C for a recorded case."""
    f, rank = case.fields, case.rank
    made = tensor(
        rank=rank,
        data_type=int(f["dtype"]),
        global_address=case.global_address,
        global_dim=fields(case, "global_dim", rank),
        global_strides=fields(case, "global_strides", max(rank - 1, 0)),
        element_strides=fields(case, "element_strides", rank),
        interleave=int(f["interleave"]),
        swizzle=int(f["swizzle"]),
        l2_promotion=int(f["l2_promotion"]),
        oob_fill=int(f["oob_fill"]),
    )
    words = (ctypes.c_uint32 * MAP_WORDS)()
    if case.mode == "tile":
        box = array(ctypes.c_uint32, fields(case, "box_dim", rank))
        return library().tma_encode_tiled(words, made, box), bytes(words)
    corners = (
        array(ctypes.c_int32, fields(case, name, max(rank - 2, 0)))
        for name in ("lower_corner", "upper_corner")
    )
    extents = int(f["channels_per_pixel"]), int(f["pixels_per_column"])
    return library().tma_encode_im2col(words, made, *corners, *extents), bytes(words)


def test_all_recorded_maps():
    """A refused map has the code that the golden model gives it.

    Types and swizzles later than Hopper are refused first in C, and last in the golden model.
    """
    counts = {True: 0, False: 0}
    for case in read_cases(RECORDINGS / "tensor_maps.npz"):
        status, words = encoded(case)
        assert bool(status) == bool(case.encode_status), f"{case}: {status}"
        if status:
            with pytest.raises(TmaError) as caught:
                case.tensor_map()
            codes = {caught.value.code}
            if DataType.TFLOAT32_FTZ < case.fields["dtype"] <= max(DataType):
                codes.add(ErrorCode.DATA_TYPE)
            if Swizzle.SWIZZLE_128B < case.fields["swizzle"] <= max(Swizzle):
                codes.add(ErrorCode.SWIZZLE)
            assert ErrorCode(status) in codes, f"{case}: {caught.value}"
        else:
            assert words == case.descriptor, str(case)
        counts[bool(status)] += 1
    assert counts == {False: 2051, True: 2749}


@pytest.mark.parametrize("name", ["transfers.npz", "workloads.npz"])
def test_maps_of_recorded_requests(name):
    cases = [case for case in read_cases(RECORDINGS / name) if case.mode != "bulk"]
    assert len(cases) > 100
    for case in cases:
        assert encoded(case) == (0, case.descriptor), str(case)


def test_a_refusal_leaves_the_map_as_it_is():
    words = (ctypes.c_uint32 * MAP_WORDS)(*[7] * MAP_WORDS)
    box = array(ctypes.c_uint32, (15,))
    made = tensor(rank=1, data_type=0, global_dim=(64,))
    assert library().tma_encode_tiled(words, made, box) == ErrorCode.INNER_ALIGN
    assert [*words] == [7] * MAP_WORDS


def test_every_status_has_a_text():
    text = library().tma_status_text
    statuses = [*range(6), *range(ErrorCode.DATA_TYPE, ErrorCode.BOUNDING_BOX + 1)]
    texts = {text(status).decode() for status in statuses}
    assert len(texts) == len(statuses)
    assert text(99) == b"unknown status"
    for code in ErrorCode:
        if ErrorCode.DATA_TYPE <= code <= ErrorCode.BOUNDING_BOX:
            assert "must" in text(code).decode()


def test_the_map_of_an_example():
    box = array(ctypes.c_uint32, (16, 8))
    made = tensor(
        rank=2,
        data_type=6,
        global_address=0x7F0000000000,
        global_dim=(16, 16),
        global_strides=(32,),
    )
    words = (ctypes.c_uint32 * MAP_WORDS)()
    assert library().tma_encode_tiled(words, made, box) == 0
    expected = TensorMap.tiled("f16", 0x7F0000000000, (16, 16), (32,), (16, 8)).encode()
    assert bytes(words) == expected
