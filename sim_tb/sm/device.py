"""A kernel's host side: tensors in global memory, and their tensor maps."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from golden import AccessMode, Arch, DataType, Plan, Swizzle, TensorMap
from sim_tb.sm.sanitizer import KernelError
from sim_tb.sm.smem import PIECE_BYTES
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.global_memory import GlobalMemory

HEAP = 0x10_0000_0000
"""Where tensors begin."""

TENSOR_ALIGN, PITCH_ALIGN = 4096, 128
"""Rows start at lines, as ``cudaMallocPitch`` would have it."""

GUARD_BYTES = 4096
UNTOUCHED = 0xA5
"""What is around a tensor, and behind its rows."""


@dataclass(frozen=True)
class Tensor:
    """An array in global memory, rows behind each other at a pitch.

    Members
    -------
    name : str
    address : int
    array : array
        A view of it: what Python writes is read by the unit, and back.
    raw : array of bytes
        It, and what is around it.
    """

    name: str
    address: int
    array: NDArray[Any]
    raw: NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """From the first element to the end of the last row's pitch."""
        return int(self.array.strides[0] * self.array.shape[0])

    @property
    def row_bytes(self) -> int:
        """Of a row, without what is behind it."""
        return int(self.array.shape[-1] * self.array.dtype.itemsize)

    @property
    def global_dim(self) -> tuple[int, ...]:
        """Extents, innermost first."""
        return self.array.shape[::-1]

    @property
    def global_strides(self) -> tuple[int, ...]:
        """Bytes, from dimension 1 on."""
        return tuple(self.array.strides[-2::-1])

    @property
    def described(self) -> tuple[DataType, int, tuple[int, ...], tuple[int, ...]]:
        """Type, address, extents and strides, as the encoders of tensor maps take them.

        Raises
        ------
        KernelError
            If no tensor map has elements of this type.
        """
        data_type = DataType.of_dtype(self.array.dtype)
        if data_type is None:
            raise KernelError(f"{self.name}: no tensor map has elements of {self.array.dtype}")
        return data_type, self.address, self.global_dim, self.global_strides


def aligned(size: int, to: int) -> int:
    """The next multiple."""
    return -(-size // to) * to


class Device:
    """Global memory of a kernel.

    Parameters
    ----------
    gmem : GlobalMemory
    arch : Arch
        What requests may use.

    Members
    -------
    tensors : list of Tensor
    maps : dict of int to array
        Tensor maps by address, 32 words each.
    """

    def __init__(self, gmem: GlobalMemory, arch: Arch = Arch.SM_90A) -> None:
        self._gmem = gmem
        self._arch = arch
        self.tensors: list[Tensor] = []
        self.maps: dict[int, NDArray[np.uint32]] = {}
        self._names: dict[int, str] = {}
        self._plans: dict[tuple[int, AccessMode | None, bool], tuple[bytes, Plan]] = {}
        self._next = HEAP

    def tensor(self, name: str, values: NDArray[Any]) -> Tensor:
        """Copy an array to global memory."""
        made = self.empty(name, values.shape, values.dtype)
        made.array[...] = values
        return made

    def empty(self, name: str, shape: Sequence[int], dtype: DTypeLike) -> Tensor:
        """A tensor whose bytes are all ``UNTOUCHED``, as are those around it."""
        kind = np.dtype(dtype)
        pitch = aligned(shape[-1] * kind.itemsize, PITCH_ALIGN)
        rows = int(np.prod(shape[:-1], dtype=np.int64))
        raw = np.full(GUARD_BYTES + rows * pitch + GUARD_BYTES, UNTOUCHED, np.uint8)
        inside = raw[GUARD_BYTES : GUARD_BYTES + rows * pitch].reshape(rows, pitch)
        strides = [kind.itemsize, pitch]
        for extent in shape[-2:0:-1]:
            strides.append(strides[-1] * extent)
        strides = strides[: len(shape)]
        array: NDArray[Any] = np.ndarray(tuple(shape), kind, inside, strides=strides[::-1])
        tensor = Tensor(name, self._next + GUARD_BYTES, array, raw)
        self._gmem.place(self._next, raw)
        self._next += aligned(raw.size, TENSOR_ALIGN)
        self.tensors.append(tensor)
        return tensor

    def tensor_map(
        self, tensor: Tensor, box_dim: Sequence[int], swizzle: Swizzle = Swizzle.NONE, **more: Any
    ) -> int:
        """``cuTensorMapEncodeTiled`` of a tensor, ``box_dim`` innermost first; return its address.

        ``more`` is of ``TensorMap.tiled``.
        """
        return self.place_map(
            tensor.name, TensorMap.tiled(*tensor.described, box_dim, swizzle=swizzle, **more)
        )

    def im2col_map(
        self,
        tensor: Tensor,
        corners: tuple[Sequence[int], Sequence[int]],
        box: tuple[int, int],
        swizzle: Swizzle = Swizzle.NONE,
        **more: Any,
    ) -> int:
        """``cuTensorMapEncodeIm2col`` of a tensor in NHWC or alike; return its address.

        ``corners`` are the lower and the upper one, W first; a ``box`` has so many channels of so
        many pixels; ``more`` is of ``TensorMap.im2col``.
        """
        where = *tensor.described, *corners
        return self.place_map(tensor.name, TensorMap.im2col(*where, *box, swizzle=swizzle, **more))

    def place_map(self, name: str, tensor_map: TensorMap) -> int:
        """Put a tensor map of the tensor called ``name`` into global memory; return its address."""
        words = np.frombuffer(tensor_map.encode(), np.uint32).copy()
        address = self._gmem.place_map(words)
        self.maps[address] = words
        self._names[address] = name
        return address

    def name(self, tensor_map: int) -> str:
        """What the tensor of a map is called."""
        return self._names.get(tensor_map, f"the map at {tensor_map:#x}")

    def plan(self, tensor_map: int, mode: AccessMode | None = None, *, store: bool = False) -> Plan:
        """What a request with this map moves.

        Raises
        ------
        KernelError
            If there is no map.
        """
        words = self.maps.get(tensor_map)
        if words is None:
            raise KernelError(f"there is no tensor map at {tensor_map:#x}")
        contents = words.tobytes()
        key = tensor_map, mode, store
        known = self._plans.get(key)
        if known is None or known[0] != contents:
            plan = Plan(contents, mode, store=store, arch=self._arch)
            known = self._plans[key] = contents, plan
        return known[1]

    def check_range(self, what: str, address: int, size: int) -> None:
        """See that bytes that an instruction moves are inside of one tensor.

        Raises
        ------
        KernelError
            If they are not.
        """
        starts = [tensor.address for tensor in self.tensors]
        number = bisect_right(starts, address) - 1
        if number < 0:
            raise KernelError(f"{what}: there is no tensor at {address:#x}")
        tensor = self.tensors[number]
        beyond = address + size - tensor.address - tensor.nbytes
        if beyond > 0:
            raise KernelError(
                f"{what}: {min(beyond, size)} bytes beyond the end of {tensor.name}, which has "
                f"{tensor.nbytes} bytes at {tensor.address:#x}"
            )

    def check_guards(self) -> None:
        """See that nothing was written around the tensors or behind the last piece of their rows.

        Raises
        ------
        CheckError
            If anything was: the unit is wrong.
        """
        for tensor in self.tensors:
            raw, row = tensor.raw, tensor.row_bytes
            rows = raw[GUARD_BYTES:-GUARD_BYTES].reshape(-1, aligned(row, PITCH_ALIGN))
            behind = rows[:, aligned(row, PIECE_BYTES) :]
            guards = raw[:GUARD_BYTES], raw[-GUARD_BYTES:], behind
            stray = sum(int((guard != UNTOUCHED).sum()) for guard in guards)
            if stray:
                raise CheckError(f"{stray} bytes were written around {tensor.name}")
