"""Global memory, as the golden model reads and writes it."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from golden.enums import PIECE
from golden.errors import ErrorCode, TmaError

Bytes = NDArray[np.uint8]
Addresses = NDArray[np.uint64]
Pieces = NDArray[np.void]

ADDRESSES = 1 << 64

PIECE_DTYPE = np.dtype(f"V{PIECE}")


class Memory(Protocol):
    """Anything that has a byte at each address it is asked for."""

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape."""
        ...

    def write(self, addresses: Addresses, data: Bytes) -> None:
        """Put ``data`` at ``addresses``, of the same shape; of equal addresses the last counts."""
        ...


def hashed(addresses: Addresses) -> Bytes:
    """Return a byte that depends on its address only: 32-bit multiply and xor-shift."""
    x = addresses.astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x.astype(np.uint8)


class HashedMemory:
    """Every byte is a function of its address: memory that need not be stored, and only read."""

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape."""
        return hashed(addresses)

    def write(self, addresses: Addresses, data: Bytes) -> None:
        """Refuse.

        Raises
        ------
        TmaError
            GMEM_FAULT.
        """
        del data
        if addresses.size:
            bad = int(addresses.min())
            limit = "must be writable memory"
            raise TmaError(ErrorCode.GMEM_FAULT, "address", bad, limit, shown=hex(bad))


class ArrayMemory:
    """An array at an address, and nothing elsewhere.

    Parameters
    ----------
    array : ndarray
        C-contiguous; shared, not copied.
    base : int
        Address of its first byte.

    Examples
    --------
    >>> import numpy as np
    >>> memory = ArrayMemory(np.arange(64, dtype=np.uint8), base=0x100)
    >>> memory.read(np.array([0x102, 0x13F], np.uint64)).tolist()
    [2, 63]
    """

    def __init__(self, array: NDArray[np.generic], base: int = 0) -> None:
        if not array.flags.c_contiguous:
            raise ValueError("the array must be C-contiguous: it is shared, not copied")
        self.base = base
        self.bytes: Bytes = array.reshape(-1).view(np.uint8)
        whole = self.bytes.size // PIECE * PIECE if base % PIECE == 0 else 0
        self.pieces: Pieces = self.bytes[:whole].view(PIECE_DTYPE)
        self.piece_bytes = whole

    @classmethod
    def of(cls, array: NDArray[Any]) -> "ArrayMemory":
        """The memory of an array of any strides, at its own address, as ``TensorMap.from_array``.

        Examples
        --------
        >>> import numpy as np
        >>> array = np.arange(64, dtype=np.uint8).reshape(4, 16)
        >>> memory = ArrayMemory.of(array[::2])
        >>> memory.read(np.array([memory.base + 32], np.uint64)).tolist()
        [32]
        """
        low, high = np.lib.array_utils.byte_bounds(array)
        # One byte at the lowest address, then as many as the array spans.
        lowest = tuple(slice(-1, None) if stride < 0 else slice(0, 1) for stride in array.strides)
        first = array[lowest].view(np.uint8).reshape(-1)
        return cls(np.lib.stride_tricks.as_strided(first, (high - low,), (1,)), low)

    def at(self, address: int, span: int) -> Pieces | None:
        """The pieces from ``address`` on, unless fewer than ``span`` bytes are there."""
        first = (address - self.base) % ADDRESSES
        return self.pieces[first >> 4 :] if first + span <= self.piece_bytes else None

    def holds(self, addresses: Addresses) -> NDArray[np.bool_]:
        """Which of ``addresses`` are in the array, in their shape."""
        # Below the base the difference wraps to something huge.
        inside: NDArray[np.bool_] = addresses - np.uint64(self.base) < np.uint64(self.bytes.size)
        return inside

    def _offsets(self, addresses: Addresses, what: str) -> NDArray[np.int64]:
        outside = addresses[~self.holds(addresses)]
        if outside.size:
            bad, end = int(outside.min()), self.base + self.bytes.size
            limit = f"must be from {self.base:#x} to {end - 1:#x}, where memory is"
            raise TmaError(ErrorCode.GMEM_FAULT, what, bad, limit, shown=hex(bad))
        return (addresses - np.uint64(self.base)).astype(np.int64)

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape.

        Raises
        ------
        TmaError
            GMEM_FAULT, with the lowest address that is outside the array.
        """
        return np.take(self.bytes, self._offsets(addresses, "address of a read"))

    def write(self, addresses: Addresses, data: Bytes) -> None:
        """Put ``data`` at ``addresses``; nothing is written if one of them is outside.

        Raises
        ------
        TmaError
            GMEM_FAULT, with the lowest address that is outside the array.
        """
        self.bytes[self._offsets(addresses, "address of a write")] = data


class LayeredMemory:
    """Arrays that lie over another memory; where arrays overlap, the last is seen.

    Parameters
    ----------
    below : Memory
    arrays : mapping from address to ndarray
        As for `ArrayMemory`.
    """

    def __init__(self, below: Memory, arrays: Mapping[int, NDArray[np.generic]]) -> None:
        self.below = below
        self.layers = [ArrayMemory(array, base) for base, array in arrays.items()]

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape."""
        data = np.empty(addresses.shape, np.uint8)
        missing = np.ones(addresses.shape, np.bool_)
        for layer in reversed(self.layers):
            here = missing & layer.holds(addresses)
            data[here] = layer.read(addresses[here])
            missing &= ~here
        if missing.any():
            data[missing] = self.below.read(addresses[missing])
        return data

    def write(self, addresses: Addresses, data: Bytes) -> None:
        """Put ``data`` at ``addresses``, each in the layer that is seen there."""
        missing = np.ones(addresses.shape, np.bool_)
        for layer in reversed(self.layers):
            here = missing & layer.holds(addresses)
            layer.write(addresses[here], data[here])
            missing &= ~here
        if missing.any():
            self.below.write(addresses[missing], data[missing])
