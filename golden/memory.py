"""Global memory, as the golden model reads it."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from golden.errors import Cause, Refusal

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
    """An array at an address, and nothing elsewhere.

    Parameters
    ----------
    array : ndarray
        C-contiguous; shared, not copied.
    base : int
        Address of its first byte.
    """

    def __init__(self, array: NDArray[np.generic], base: int = 0) -> None:
        if not array.flags.c_contiguous:
            raise ValueError("the array must be C-contiguous: it is shared, not copied")
        self.base = base
        self.bytes: Bytes = array.reshape(-1).view(np.uint8)

    def holds(self, addresses: Addresses) -> NDArray[np.bool_]:
        """Which of ``addresses`` are in the array, in their shape."""
        # Below the base the difference wraps to something huge.
        inside: NDArray[np.bool_] = addresses - np.uint64(self.base) < np.uint64(self.bytes.size)
        return inside

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, in their shape.

        Raises
        ------
        Refusal
            GMEM_FAULT, with the lowest address that is outside the array.
        """
        outside = addresses[~self.holds(addresses)]
        if outside.size:
            bad, end = int(outside.min()), self.base + self.bytes.size
            message = f"read of {bad:#x}: memory is {self.base:#x} to {end:#x} (PTX ISA)"
            raise Refusal(Cause.GMEM_FAULT, 0, bad, message)
        return np.take(self.bytes, (addresses - np.uint64(self.base)).astype(np.int64))


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
