"""Global memory of the golden model."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from golden.enums import PIECE
from golden.errors import ErrorCode, TmaError
from golden.fields import integer, shown

Bytes = NDArray[np.uint8]
Addresses = NDArray[np.uint64]
Pieces = NDArray[np.void]

ADDRESSES = 1 << 64

PIECE_DTYPE = np.dtype(f"V{PIECE}")


class Memory(Protocol):
    """Interface of a global memory, which is read and written byte by byte."""

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape."""
        ...

    def write(self, addresses: Addresses, data: Bytes) -> None:
        """Write ``data`` at ``addresses``, of the same shape; the last of equal addresses wins."""
        ...


def require_memory(name: str, memory: object) -> None:
    """Refuse an object that is no `Memory`, such as a plain array."""
    if not (hasattr(memory, "read") and hasattr(memory, "write")):
        limit = "must be a memory, such as ArrayMemory.of(array)"
        raise TmaError(ErrorCode.ARRAY, name, 0, limit, shown=shown(memory))


def _require_array(name: str, array: object) -> None:
    """Refuse an object that is no NumPy array."""
    if not isinstance(array, np.ndarray):
        raise TmaError(ErrorCode.ARRAY, name, 0, "must be an ndarray", shown=shown(array))


def hash_words(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return a hash of each 32-bit word, in a new array: multiply and xor-shift."""
    x = words.copy()
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


def hashed(addresses: Addresses) -> Bytes:
    """Return a byte for each address, the low byte of the hash of its low 32 bits."""
    return hash_words(addresses.astype(np.uint32)).astype(np.uint8)


class HashedMemory:
    """Read-only memory in which each byte is a hash of its address, so that nothing is stored."""

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape."""
        return hashed(addresses)

    def write(self, addresses: Addresses, data: Bytes) -> None:
        """Refuse every write.

        Raises
        ------
        TmaError
            GMEM_FAULT, with the lowest address.
        """
        del data
        if addresses.size:
            bad = int(addresses.min())
            limit = "must be in writable memory"
            raise TmaError(ErrorCode.GMEM_FAULT, "address", bad, limit, shown=hex(bad))


class ArrayMemory:
    """Memory that consists of one array.

    Parameters
    ----------
    array : ndarray
        C-contiguous array; it is shared, not copied.
    base : int
        Address of the array's first byte.

    Raises
    ------
    ValueError
        If the array is not C-contiguous.
    TmaError
        If ``array`` is no array or ``base`` no address.

    Examples
    --------
    >>> import numpy as np
    >>> memory = ArrayMemory(np.arange(64, dtype=np.uint8), base=0x100)
    >>> memory.read(np.array([0x102, 0x13F], np.uint64)).tolist()
    [2, 63]
    """

    def __init__(self, array: NDArray[np.generic], base: int = 0) -> None:
        _require_array("array", array)
        base = integer(ErrorCode.GLOBAL_ADDRESS, "base", base, 0, ADDRESSES - 1)
        if not array.flags.c_contiguous:
            raise ValueError("the array must be C-contiguous: it is shared, not copied")
        self.base = base
        self.bytes: Bytes = array.reshape(-1).view(np.uint8)
        whole = self.bytes.size // PIECE * PIECE if base % PIECE == 0 else 0
        self.pieces: Pieces = self.bytes[:whole].view(PIECE_DTYPE)
        self.piece_bytes = whole

    @classmethod
    def of(cls, array: NDArray[Any]) -> "ArrayMemory":
        """Return the memory of an array of any strides, at the array's own address.

        `TensorMap.from_array` uses the same address.

        Examples
        --------
        >>> import numpy as np
        >>> array = np.arange(64, dtype=np.uint8).reshape(4, 16)
        >>> memory = ArrayMemory.of(array[::2])
        >>> memory.read(np.array([memory.base + 32], np.uint64)).tolist()
        [32]
        """
        _require_array("array", array)
        low, high = np.lib.array_utils.byte_bounds(array)
        # One byte at the lowest address, then as many as the array spans.
        lowest = tuple(slice(-1, None) if stride < 0 else slice(0, 1) for stride in array.strides)
        first = array[lowest].view(np.uint8).reshape(-1)
        return cls(np.lib.stride_tricks.as_strided(first, (high - low,), (1,)), low)

    def at(self, address: int, span: int) -> Pieces | None:
        """Return the pieces from ``address`` on; None if fewer than ``span`` bytes follow."""
        first = (address - self.base) % ADDRESSES
        return self.pieces[first >> 4 :] if first + span <= self.piece_bytes else None

    def holds(self, addresses: Addresses) -> NDArray[np.bool_]:
        """Return for each of ``addresses`` whether it is in the array."""
        # For an address below the base the unsigned difference wraps to a large number.
        inside: NDArray[np.bool_] = addresses - np.uint64(self.base) < np.uint64(self.bytes.size)
        return inside

    def _offsets(self, addresses: Addresses, parameter: str) -> NDArray[np.int64]:
        """Return offsets in the array; refuse addresses outside."""
        outside = addresses[~self.holds(addresses)]
        if outside.size:
            bad, end = int(outside.min()), self.base + self.bytes.size
            limit = f"must be from {self.base:#x} to {end - 1:#x}, the addresses of the array"
            raise TmaError(ErrorCode.GMEM_FAULT, parameter, bad, limit, shown=hex(bad))
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
        """Write ``data`` at ``addresses``; nothing is written if one of them is outside.

        Raises
        ------
        TmaError
            GMEM_FAULT, with the lowest address that is outside the array.
        """
        self.bytes[self._offsets(addresses, "address of a write")] = data


class LayeredMemory:
    """Memory in which arrays hide parts of another memory.

    Parameters
    ----------
    below : Memory
        Memory at all other addresses.
    arrays : mapping from address to ndarray
        C-contiguous arrays, by the address of their first byte. Where arrays overlap, the last one
        is read and written.
    """

    def __init__(self, below: Memory, arrays: Mapping[int, NDArray[np.generic]]) -> None:
        require_memory("below", below)
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
        """Write ``data`` at ``addresses``, each byte to the topmost array there."""
        missing = np.ones(addresses.shape, np.bool_)
        for layer in reversed(self.layers):
            here = missing & layer.holds(addresses)
            layer.write(addresses[here], data[here])
            missing &= ~here
        if missing.any():
            self.below.write(addresses[missing], data[missing])
