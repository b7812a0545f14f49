"""Parameters of a tensor map for an array in memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.enums import MAX_RANK, DataType
from golden.errors import ErrorCode, TmaError, require
from golden.fields import member


def as_array(array: object) -> NDArray[Any]:
    """Return an ndarray that shares the memory of ``array``.

    Raises
    ------
    TmaError
        ARRAY, if NumPy cannot share the memory.
    """
    if isinstance(array, np.ndarray):
        return array
    kind = type(array).__name__
    if hasattr(array, "__array_interface__"):
        return np.asarray(array)
    if hasattr(array, "__dlpack__"):
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError) as error:
            limit = f"must be in memory that NumPy can share: {error}"
            raise TmaError(ErrorCode.ARRAY, "array", 0, limit, shown=kind) from error
    limit = "must be an ndarray or have __array_interface__ or __dlpack__"
    raise TmaError(ErrorCode.ARRAY, "array", 0, limit, shown=kind)


def array_layout(
    source: object, data_type: DataType | int | str | None
) -> tuple[DataType, int, tuple[int, ...], tuple[int, ...]]:
    """Return the type, address, extents and strides of an array for a tensor map.

    Parameters
    ----------
    source : array_like
        An ndarray, or an object with ``__array_interface__`` or DLPack.
    data_type : DataType or int or str or None
        Type of the map's elements; None: the type that the array's dtype corresponds to.

    Returns
    -------
    data_type : DataType
    address : int
        Byte address of element 0 of every axis.
    extents : tuple of int
        Elements, innermost first.
    strides : tuple of int
        Bytes, from dimension 1.

    Raises
    ------
    TmaError
        ARRAY, if no tensor map can express the array.
    """
    array = as_array(source)
    code, item = ErrorCode.ARRAY, array.itemsize
    limit = f"must be from 1 to {MAX_RANK}"
    require(1 <= array.ndim <= MAX_RANK, code, "array.ndim", array.ndim, limit)
    limit = "must have no extent of 0"
    require(array.size > 0, code, "array.shape", 0, limit, shown=str(array.shape))
    kind = DataType.of_dtype(array.dtype)
    if data_type is not None:
        kind = member(DataType, ErrorCode.DATA_TYPE, "data_type", data_type)
    elif kind is None:
        limit = "must be a type that a tensor map has, or data_type must be given"
        raise TmaError(code, "array.dtype", 0, limit, shown=str(array.dtype))
    limit = f"must have elements of {item} bytes, as the array has"
    require(kind.bits == 8 * item, code, "data_type", kind, limit, shown=kind.name)
    inner_stride = array.strides[-1]
    limit = f"must be {item}, the size of an element: the last axis must be contiguous"
    contiguous = array.shape[-1] == 1 or inner_stride == item
    require(contiguous, code, "array.strides[-1]", inner_stride, limit)
    # The stride of an axis of one element is never used: replace it by a legal one.
    strides: list[int] = []
    packed = item * array.shape[-1]
    for extent, stride in zip(array.shape[-2::-1], array.strides[-2::-1], strict=True):
        strides.append(stride if extent > 1 else -(-packed // 32) * 32)
        packed = max(packed, strides[-1] * extent)
    address = int(array.__array_interface__["data"][0])
    return kind, address, array.shape[::-1], tuple(strides)
