"""Host side of a kernel: tensors in global memory, and their tensor maps."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from golden import AccessMode, Arch, DataType, Override, Plan, Swizzle, TensorMap
from golden.request import as_descriptor, moved_bytes
from sim_tb.sm.errors import KernelError, described
from sim_tb.sm.smem import PIECE_BYTES
from sim_tb.testbench.errors import CheckError

HEAP = 0x10_0000_0000
"""Address of the first tensor."""

TENSOR_ALIGN = 4096
LINE_BYTES = PITCH_ALIGN = 128
"""Each row of a tensor starts at a line, as with ``cudaMallocPitch``."""

GUARD_BYTES = 4096
"""Guard bytes before a tensor, and as many after it."""

UNTOUCHED = 0xA5
"""Initial value of the guard bytes, of the padding behind rows, and of ``Device.empty``."""


class Memory(Protocol):
    """Place for tensors and maps: a ``GlobalMemory``, or addresses without a simulator."""

    def place(self, address: int, array: NDArray[Any]) -> None:
        """Place the bytes of ``array`` at ``address``."""

    def place_map(self, words: NDArray[np.uint32]) -> int:
        """Place the words of a tensor map; return their address."""


@dataclass(frozen=True)
class Tensor:
    """An array in global memory, whose rows start at multiples of a pitch.

    Members
    -------
    name : str
    address : int
        Address of the first element.
    array : array
        View of the tensor. Python and the unit see each other's writes.
    raw : array of bytes
        The tensor with the padding of its rows and with the guard bytes around it.
    """

    name: str
    address: int
    array: NDArray[Any]
    raw: NDArray[np.uint8]

    def at(self, *index: int) -> "GlobalPointer":
        """Return a pointer to the element with this index; missing indices are 0.

        Raises
        ------
        KernelError
            If there are more indices than dimensions.
        """
        if len(index) > self.array.ndim:
            raise KernelError(
                f"{self.name}.at{index}: the tensor has {self.array.ndim} dimensions: give at most "
                "as many indices"
            )
        strides = self.array.strides[: len(index)]
        return GlobalPointer(
            self, sum(i * stride for i, stride in zip(index, strides, strict=True))
        )

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last row's pitch."""
        return int(self.array.strides[0] * self.array.shape[0])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row without its padding."""
        return int(self.array.shape[-1] * self.array.dtype.itemsize)

    @property
    def global_dim(self) -> tuple[int, ...]:
        """Extents in elements, innermost first."""
        return self.array.shape[::-1]

    @property
    def global_strides(self) -> tuple[int, ...]:
        """Strides in bytes, from dimension 1 on."""
        return tuple(self.array.strides[-2::-1])

    @property
    def encode_arguments(self) -> tuple[DataType, int, tuple[int, ...], tuple[int, ...]]:
        """First arguments of ``TensorMap.tiled`` and ``im2col``: type, address, extents, strides.

        Raises
        ------
        KernelError
            If tensor maps do not support the type of the elements.
        """
        data_type = DataType.of_dtype(self.array.dtype)
        if data_type is None:
            raise KernelError(f"{self.name}: tensor maps do not support type {self.array.dtype}")
        return data_type, self.address, self.global_dim, self.global_strides


@dataclass(frozen=True, eq=False)
class GlobalPointer:
    """Address of bytes of a tensor in global memory.

    Parameters
    ----------
    tensor : Tensor
    offset : int
        Bytes from the tensor's first element.
    """

    tensor: Tensor
    offset: int

    def __add__(self, size: int) -> "GlobalPointer":
        """Return the pointer ``size`` bytes behind this one."""
        return GlobalPointer(self.tensor, self.offset + size)

    @property
    def address(self) -> int:
        """Address in global memory."""
        return self.tensor.address + self.offset


@dataclass(frozen=True)
class TensorMapHandle:
    """A tensor map in global memory (``CUtensorMap``), as requests name it.

    Parameters
    ----------
    name : str
        Name of the tensor that it describes.
    address : int
    """

    name: str
    address: int


def _tensor(value: Tensor) -> Tensor:
    """Check that a tensor map is made of a tensor of the device."""
    if not isinstance(value, Tensor):
        raise KernelError(
            f"a tensor map of {described(value)}: must be of a Tensor, as device.tensor or "
            "device.empty returns it"
        )
    return value


def align_up(size: int, multiple: int) -> int:
    """Return the least multiple of ``multiple`` that is not below ``size``."""
    return -(-size // multiple) * multiple


class Device:
    """Global memory of a kernel.

    Parameters
    ----------
    gmem : Memory
    arch : Arch
        Architecture, which decides the access modes and types that requests may use.
    inputs : mapping, optional
        Arrays that take the place of the values of the tensors of these names.

    Members
    -------
    tensors : list of Tensor
        All tensors, by ascending address.
    maps : dict of int to array
        Tensor maps by address, 32 words each.
    freed : dict of int to str
        Maps that were freed, by address, and by what.
    """

    def __init__(
        self,
        gmem: Memory,
        arch: Arch = Arch.SM_90A,
        inputs: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self._inputs = dict(inputs or {})
        self._gmem = gmem
        self._arch = arch
        self.tensors: list[Tensor] = []
        self.maps: dict[int, NDArray[np.uint32]] = {}
        self.freed: dict[int, str] = {}
        self._plans: dict[tuple[int, AccessMode | None, bool], tuple[bytes, Plan]] = {}
        self._next_address = HEAP

    def tensor(self, name: str, values: NDArray[Any] | None = None) -> Tensor:
        """Copy an array to global memory; return the new tensor.

        Parameters
        ----------
        name : str
            Name of the tensor, and of the input that may replace the values.
        values : array, optional
            It is not used if the caller of ``sim_tb.run`` gave an input of this name. None: such
            an input must be given.

        Raises
        ------
        KernelError
            If there are neither values nor an input, or they are no array of at least one element.
        """
        values = self._inputs.get(name, values)
        if values is None:
            raise KernelError(
                f"device.tensor({name!r}): there is no input of this name: give it to sim_tb.run, "
                "or give device.tensor an array"
            )
        if not isinstance(values, np.ndarray) or not values.size or not values.ndim:
            raise KernelError(
                f"tensor {name}: {described(values)}: must be an array of at least one dimension "
                "and one element"
            )
        tensor = self.empty(name, values.shape, values.dtype)
        tensor.array[...] = values
        return tensor

    def empty(self, name: str, shape: Sequence[int], dtype: DTypeLike) -> Tensor:
        """Return a new tensor, whose bytes and guard bytes are all ``UNTOUCHED``."""
        element = np.dtype(dtype)
        pitch = align_up(shape[-1] * element.itemsize, PITCH_ALIGN)
        rows = int(np.prod(shape[:-1], dtype=np.int64))
        raw = np.full(GUARD_BYTES + rows * pitch + GUARD_BYTES, UNTOUCHED, np.uint8)
        inside = raw[GUARD_BYTES : GUARD_BYTES + rows * pitch].reshape(rows, pitch)
        strides = [element.itemsize, pitch]
        for extent in shape[-2:0:-1]:
            strides.append(strides[-1] * extent)
        strides = strides[: len(shape)]
        array: NDArray[Any] = np.ndarray(tuple(shape), element, inside, strides=strides[::-1])
        tensor = Tensor(name, self._next_address + GUARD_BYTES, array, raw)
        self._gmem.place(self._next_address, raw)
        self._next_address += align_up(raw.size, TENSOR_ALIGN)
        self.tensors.append(tensor)
        return tensor

    def tensor_map(
        self,
        tensor: Tensor,
        box_dim: Sequence[int],
        swizzle: Swizzle = Swizzle.NONE,
        **attributes: Any,
    ) -> TensorMapHandle:
        """Encode a tiled map (``cuTensorMapEncodeTiled``), and put it into global memory.

        ``box_dim`` is innermost first. ``attributes`` are further parameters of
        ``TensorMap.tiled``.
        """
        arguments = *_tensor(tensor).encode_arguments, box_dim
        return self.place_map(
            tensor.name, TensorMap.tiled(*arguments, swizzle=swizzle, **attributes)
        )

    def im2col_map(
        self,
        tensor: Tensor,
        corners: tuple[Sequence[int], Sequence[int]],
        box: tuple[int, int],
        swizzle: Swizzle = Swizzle.NONE,
        **attributes: Any,
    ) -> TensorMapHandle:
        """Encode an im2col map (``cuTensorMapEncodeIm2col``) of an NHWC tensor.

        Parameters
        ----------
        tensor : Tensor
            Activations.
        corners : (sequence, sequence) of int
            Lower and upper corner of the bounding box, W first.
        box : (int, int)
            Channels per pixel, and pixels per column.
        swizzle : Swizzle
            Swizzle of the tile in shared memory.
        attributes
            Further parameters of ``TensorMap.im2col``.
        """
        arguments = *_tensor(tensor).encode_arguments, *corners, *box
        return self.place_map(
            tensor.name, TensorMap.im2col(*arguments, swizzle=swizzle, **attributes)
        )

    def place_map(self, name: str, tensor_map: TensorMap) -> TensorMapHandle:
        """Put a map of the tensor called ``name`` into global memory."""
        words = np.frombuffer(tensor_map.encode(), np.uint32).copy()
        handle = TensorMapHandle(name, self._gmem.place_map(words))
        self.maps[handle.address] = words
        return handle

    def free_map(self, tensor_map: TensorMapHandle, by: str = "by the host") -> None:
        """Free a map (``cudaFree``). Requests must not use it from now on."""
        del self.maps[tensor_map.address]
        self.freed[tensor_map.address] = by

    def plan(
        self,
        tensor_map: TensorMapHandle,
        mode: AccessMode | None = None,
        override: Override | None = None,
        *,
        store: bool = False,
    ) -> Plan:
        """Return the golden model's plan of a request that uses this map.

        Plans of maps without an override are kept, because kernels use them again and again.
        """
        contents = self.maps[tensor_map.address].tobytes()
        if override is not None:
            made = override.applied(as_descriptor(contents))
            return Plan(made, mode, store=store, arch=self._arch)
        key = tensor_map.address, mode, store
        entry = self._plans.get(key)
        if entry is None or entry[0] != contents:
            plan = Plan(contents, mode, store=store, arch=self._arch)
            entry = self._plans[key] = contents, plan
        return entry[1]

    def check_inputs(self) -> None:
        """Check that all inputs were used.

        Raises
        ------
        KernelError
            If there is no tensor of the name of an input.
        """
        names = [tensor.name for tensor in self.tensors]
        for name in self._inputs:
            if name not in names:
                raise KernelError(
                    f"input {name!r}: the kernel has no tensor of this name; it has "
                    f"{', '.join(names) or 'none'}"
                )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of each tensor, by its name.

        Raises
        ------
        KernelError
            If two tensors have the same name.
        """
        made = {tensor.name: np.ascontiguousarray(tensor.array) for tensor in self.tensors}
        if len(made) < len(self.tensors):
            names = [tensor.name for tensor in self.tensors]
            twice = next(name for name in names if names.count(name) > 1)
            raise KernelError(f"two tensors are called {twice!r}: outputs need different names")
        return made

    def check_range(
        self, access: str, address: int, size: int, ignored: tuple[int, int] = (0, 0)
    ) -> None:
        """Check that the ``size`` bytes of a bulk copy at ``address`` lie inside of one tensor.

        ``access`` names instruction, role and cycle, for the message. ``ignored`` is how many bytes
        at the start and at the end need not exist (``.ignore_oob``).

        Raises
        ------
        KernelError
            If some of the bytes lie outside, or the unit does not copy all of them.
        """
        if (moved := moved_bytes(size)) != size:
            raise KernelError(
                f"{access}: the size must be a multiple of {PIECE_BYTES} below 2**20: only {moved} "
                "bytes are copied and counted"
            )
        address, size = address + ignored[0], size - sum(ignored)
        if size <= 0:
            return
        starts = [tensor.address for tensor in self.tensors]
        number = bisect_right(starts, address) - 1
        if number < 0:
            raise KernelError(f"{access}: there is no tensor at {address:#x}")
        tensor = self.tensors[number]
        beyond = address + size - tensor.address - tensor.nbytes
        if beyond > 0:
            raise KernelError(
                f"{access}: the last {min(beyond, size)} bytes are beyond the end of "
                f"{tensor.name}, which has {tensor.nbytes} bytes at {tensor.address:#x}; copy "
                "fewer bytes"
            )

    def check_guards(self) -> None:
        """Check that nothing was written around the tensors or behind the last piece of a row.

        Raises
        ------
        CheckError
            If such a byte was written: the unit is wrong.
        """
        for tensor in self.tensors:
            raw, row = tensor.raw, tensor.row_bytes
            rows = raw[GUARD_BYTES:-GUARD_BYTES].reshape(-1, align_up(row, PITCH_ALIGN))
            padding = rows[:, align_up(row, PIECE_BYTES) :]
            guards = raw[:GUARD_BYTES], raw[-GUARD_BYTES:], padding
            stray = sum(int((guard != UNTOUCHED).sum()) for guard in guards)
            if stray:
                raise CheckError(
                    f"{stray} bytes were written around {tensor.name}: the unit wrote before the "
                    "tensor, after it, or into the padding of its rows"
                )
