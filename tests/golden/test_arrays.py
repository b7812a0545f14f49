"""Tensor maps of arrays: views, types, and objects with an array interface."""

import ml_dtypes
import numpy as np
import pytest

from golden import ArrayMemory, DataType, ErrorCode, Plan, TensorMap, TmaError


def loaded(array, tensor_map, coords):
    """Return the loaded box as an array of the same type, outermost axis first."""
    smem = np.zeros(Plan(tensor_map).footprint, np.uint8)
    Plan(tensor_map).load(ArrayMemory.of(array), smem, 0, coords)
    return smem.view(array.dtype).reshape(tensor_map.box_dim[::-1])


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a,
        lambda a: a[::2],
        lambda a: a[3:, 64:192],
        lambda a: a[5:6],
        lambda a: a.reshape(8, 8, 256)[:, ::2, 32:],
        lambda a: a.reshape(2, 4, 2, 4, 256)[:, 1:, :, ::3],
        lambda a: a.reshape(8, 8, 256).transpose(1, 0, 2),
    ],
)
@pytest.mark.parametrize(
    "dtype", [np.uint8, np.float16, ml_dtypes.bfloat16, np.float32, ml_dtypes.float8_e5m2]
)
def test_views(dtype, view):
    whole = np.arange(64 * 256).reshape(64, 256).astype(np.uint8).astype(dtype)
    array = view(whole)
    box = (16, *(min(n, 3) for n in array.shape[-2::-1]))
    tensor_map = TensorMap.from_array(array, box)
    start = (16, *(0 for _ in box[1:]))
    expected = array[(*(slice(n) for n in box[:0:-1]), slice(16, 32))]
    bits = f"u{array.itemsize}"
    assert np.array_equal(loaded(array, tensor_map, start).view(bits), expected.copy().view(bits))


def test_vectors_and_other_addresses():
    array = np.arange(100, dtype=np.int32)
    tensor_map = TensorMap.from_array(array, (16,), global_address=0x1000)
    assert (tensor_map.global_address, tensor_map.global_dim) == (0x1000, (100,))
    assert (tensor_map.data_type, tensor_map.global_strides) == (DataType.INT32, ())


def test_another_type_of_the_same_size():
    array = np.zeros((4, 16), np.float32)
    assert TensorMap.from_array(array, (16, 4), data_type="tf32").data_type is DataType.TFLOAT32


class Interface:
    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Dlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [Interface, Dlpack])
def test_array_interface_and_dlpack(wrap):
    array = np.zeros((64, 64), np.float32)[:, 16:]
    assert TensorMap.from_array(wrap(array), (16, 8)) == TensorMap.from_array(array, (16, 8))


class Elsewhere(Dlpack):
    def __dlpack__(self, **options):
        raise BufferError("the memory of a device")


@pytest.mark.parametrize(
    ("array", "options", "text"),
    [
        ([1, 2], {}, "array = list: must be an ndarray or have"),
        (np.zeros((2,) * 6, np.uint8), {}, "array.ndim = 6: must be from 1 to 5"),
        (np.zeros((), np.uint8), {}, "array.ndim = 0"),
        (np.zeros((0, 16), np.uint8), {}, "array.shape = (0, 16): must have no extent of 0"),
        (np.zeros((16, 16), np.float32).T, {}, "array.strides[-1] = 64: must be 4"),
        (np.zeros((16, 16), np.longdouble), {}, "array.dtype = "),
        (np.zeros((16, 16), np.float32), {"data_type": "bf16"}, "must have elements of 4 bytes"),
        (
            Elsewhere(np.zeros((16, 16), np.float32)),
            {},
            "array = Elsewhere: must be in memory that NumPy can share: the memory",
        ),
    ],
)
def test_arrays_that_no_map_can_express(array, options, text):
    with pytest.raises(TmaError) as caught:
        TensorMap.from_array(array, (16, 16), **options)
    assert caught.value.code is ErrorCode.ARRAY
    assert text in str(caught.value)


def test_rows_that_are_not_aligned():
    with pytest.raises(TmaError, match=r"global_strides\[0\] = 200: must be a multiple of 16"):
        TensorMap.from_array(np.zeros((16, 100), np.uint16), (16, 16))
    with pytest.raises(TmaError, match=r"global_strides\[0\] = -256: must be from 0"):
        TensorMap.from_array(np.zeros((16, 64), np.float32)[::-1], (16, 16))


def test_a_reversed_box_adds_a_note_to_the_error():
    array = np.zeros((512, 1024), ml_dtypes.bfloat16)
    with pytest.raises(TmaError, match="at most 128 with SWIZZLE_128B") as caught:
        TensorMap.from_array(array, (128, 64), swizzle="128B")
    assert caught.value.__notes__ == ["box is innermost first: (64, 128) would be accepted"]


def test_memory_of_a_reversed_view_covers_its_bytes():
    array = np.arange(64, dtype=np.uint8).reshape(4, 16)
    memory = ArrayMemory.of(array[::-1, 4:])
    assert memory.base == ArrayMemory.of(array).base + 4
    assert memory.bytes.tolist() == list(range(4, 64))
