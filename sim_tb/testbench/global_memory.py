"""Global memory of a simulation: NumPy arrays in the address space of the units."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim_tb.testbench.bridge import Bridge, Bytes, pointer
from sim_tb.testbench.models import BACKGROUNDS

MAPS = 0x7E00_0000_0000
"""First address of ``GlobalMemory.place_map``, far from the addresses of recorded vectors. With
narrower addresses, the upper quarter is for tensor maps.
"""

MAP_BYTES = 128


class GlobalMemory:
    """Arrays in the address space of the units, over a background.

    The background applies outside all arrays. ``"hash"``: each byte is a function of its address,
    the one that recorded test vectors assume. ``"fault"``: a read fails if it touches no array.
    ``"void"``: as ``"hash"``, but writes are accepted and dropped. Over the other two backgrounds a
    write outside all arrays fails. Behind AXI4, what fails is answered with DECERR, and with SLVERR
    what touches a range of ``refuse``. Arrays are shared, not copied: the units read what Python
    writes from the next clock on. Where arrays overlap, the one placed last is visible.

    Parameters
    ----------
    address_bits : int
        Width of the units' addresses.

    Attributes
    ----------
    maps : int
        First address of ``place_map``.
    """

    def __init__(self, address_bits: int = 64) -> None:
        self.maps = min(MAPS, 3 << (address_bits - 2))
        self._bridge = Bridge()
        self._regions: dict[int, Bytes | None] = {}
        self._next_map = self.maps

    def background(self, kind: str) -> None:
        """Choose the background: ``"hash"``, ``"fault"`` or ``"void"``."""
        self._bridge.background(BACKGROUNDS.index(kind))

    def place(self, address: int, array: NDArray[Any]) -> None:
        """Place the bytes of ``array`` at ``address``, and remove an array placed there before.

        Raises
        ------
        ValueError
            If the array is not contiguous and writable.
        """
        self.remove(address)
        flat = array.reshape(-1).view(np.uint8)
        if flat.size and not np.shares_memory(flat, array):
            raise ValueError("the array must be contiguous")
        self._regions[address] = flat
        self._bridge.region(address, flat.size, pointer(flat))

    def place_map(self, words: NDArray[np.uint32]) -> int:
        """Place the words of a tensor map at an address that was never used; return the address."""
        address = self._next_map
        self._next_map += MAP_BYTES
        self.place(address, words)
        return address

    def refuse(self, address: int, size: int) -> None:
        """Let all accesses to ``size`` bytes at ``address`` fail, and remove an array there."""
        self.remove(address)
        self._regions[address] = None
        self._bridge.region(address, size, None)

    def remove(self, address: int) -> None:
        """Remove the array, or the refused range, that begins at ``address``, if there is one."""
        if address in self._regions:
            del self._regions[address]
            self._bridge.remove(address)

    def clear(self) -> None:
        """Release all arrays; the C++ side has been started anew."""
        self._regions.clear()
