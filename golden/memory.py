"""Global memory, as the golden model reads it."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Addresses = NDArray[np.uint64]


class Memory(Protocol):
    """Anything that has a byte at each address it is asked for."""

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape."""
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
    """Every byte is a function of its address: memory that need not be stored."""

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape."""
        return hashed(addresses)


class ArrayMemory:
    """An array at an address. Reads outside of it are errors.

    Parameters
    ----------
    array : ndarray
        C-contiguous; shared, not copied.
    base : int
        Address of its first byte.
    """

    def __init__(self, array: NDArray[np.generic], base: int = 0) -> None:
        self.base = base
        self.bytes: Bytes = array.reshape(-1).view(np.uint8)

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape.

        Raises
        ------
        IndexError
            For an address outside the array.
        """
        offsets = addresses - np.uint64(self.base)  # wraps to huge below the base
        if offsets.size and offsets.max() >= self.bytes.size:
            bad = int(addresses.flat[int(offsets.argmax())])
            end = self.base + self.bytes.size
            raise IndexError(f"read of {bad:#x}: memory is {self.base:#x} to {end:#x}")
        return self.bytes[offsets]
