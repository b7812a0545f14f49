"""Arrays in memory, as a tensor map describes them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.enums import MAX_RANK, DataType
from golden.errors import ErrorCode, TmaError


def as_array(array: object) -> NDArray[Any]:
    """An array's memory, not a copy of it.

    Raises
    ------
    TmaError
        ARRAY, if ``array`` has no memory to share.
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
            limit = f"must be memory that NumPy can share: {error}"
            raise TmaError(ErrorCode.ARRAY, "array", 0, limit, shown=kind) from error
    limit = "must be an ndarray or have __array_interface__ or __dlpack__"
    raise TmaError(ErrorCode.ARRAY, "array", 0, limit, shown=kind)


def array_layout(
    source: object, data_type: DataType | int | str | None
) -> tuple[DataType, int, tuple[int, ...], tuple[int, ...]]:
    """Type, address, extents and strides of an array, innermost first."""
    array = as_array(source)

    def require(holds: bool, parameter: str, value: int, limit: str, shown: str = "") -> None:
        if not holds:
            raise TmaError(ErrorCode.ARRAY, parameter, value, limit, shown=shown)

    require(
        1 <= array.ndim <= MAX_RANK,
        "array.ndim",
        array.ndim,
        f"must be from 1 to {MAX_RANK}",
    )
    require(array.size > 0, "array.shape", 0, "must have no extent of 0", shown=str(array.shape))
    kind = DataType.of_dtype(array.dtype) if data_type is None else DataType.member(data_type)
    if kind is None:
        limit = "has no tensor map type: give data_type"
        raise TmaError(ErrorCode.ARRAY, "array.dtype", 0, limit, shown=str(array.dtype))
    item = array.itemsize
    require(
        kind.bits == 8 * item,
        "data_type",
        kind,
        f"must have elements of {item} bytes, as the array has",
        shown=kind.name,
    )
    require(
        array.shape[-1] == 1 or array.strides[-1] == item,
        "array.strides[-1]",
        array.strides[-1],
        f"must be {item}: elements of the last axis lie side by side",
    )
    # An axis of one element has no stride that matters; give it one that is legal.
    strides: list[int] = []
    packed = item * array.shape[-1]
    for extent, stride in zip(array.shape[-2::-1], array.strides[-2::-1], strict=True):
        strides.append(stride if extent > 1 else -(-packed // 32) * 32)
        packed = max(packed, strides[-1] * extent)
    address = int(array.__array_interface__["data"][0])
    return kind, address, array.shape[::-1], tuple(strides)
