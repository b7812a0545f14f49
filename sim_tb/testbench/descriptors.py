"""Tensor maps in global memory, and the fences and prefetches of the unit's descriptor cache."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from golden import TensorMap
from sim_tb.testbench.bridge import Bridge, EventKind
from sim_tb.testbench.events import TIMEOUT, Events
from sim_tb.testbench.global_memory import GlobalMemory


class Descriptors:
    """Tensor maps of one SM's requests."""

    def __init__(self, bridge: Bridge, events: Events, gmem: GlobalMemory) -> None:
        self._bridge = bridge
        self._events = events
        self._gmem = gmem

    def place(self, words: NDArray[np.uint32] | TensorMap, address: int | None = None) -> int:
        """Place a tensor map in global memory; return its address.

        Parameters
        ----------
        words : array or TensorMap
            An array is shared, not copied: the next fetch sees changes of it.
        address : int, optional
            Default: an address that was never used.
        """
        if isinstance(words, TensorMap):
            words = np.frombuffer(words.encode(), np.uint32).copy()
        if address is None:
            return self._gmem.place_map(words)
        self._gmem.place(address, words)
        return address

    def call_prefetch(self, address: int, answer: Callable[[int], None]) -> None:
        """Queue ``prefetch.tensormap``; ``answer`` is called with the cycle of its acceptance."""
        number = self._events.new_number()
        self._events.call(EventKind.FENCE_ACCEPTED, number, lambda event: answer(int(event.cycle)))
        self._bridge.prefetch(address, number)

    def call_invalidate(self, address: int, answer: Callable[[int], None]) -> None:
        """Queue an invalidation of ``address``; ``answer`` is called as in ``call_prefetch``."""
        number = self._events.new_number()
        self._events.call(EventKind.FENCE_ACCEPTED, number, lambda event: answer(int(event.cycle)))
        self._bridge.invalidate(address, False, number)

    async def prefetch(self, address: int, timeout: int = TIMEOUT) -> None:
        """Carry out ``prefetch.tensormap``; return when the unit has accepted it."""
        number = self._events.new_number()
        self._bridge.prefetch(address, number)
        what = f"prefetch of 0x{address:x}"
        await self._events.wait_for(EventKind.FENCE_ACCEPTED, number, what, timeout)

    async def invalidate(self, address: int | None = None, timeout: int = TIMEOUT) -> None:
        """Carry out ``fence.proxy.tensormap`` acquire of ``address``, by default of all addresses.

        Return when the unit has accepted it. Requests submitted afterwards see the new tensor map.
        """
        number = self._events.new_number()
        self._bridge.invalidate(address or 0, address is None, number)
        what = "an invalidation"
        await self._events.wait_for(EventKind.FENCE_ACCEPTED, number, what, timeout)
