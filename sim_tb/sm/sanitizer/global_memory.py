"""Shadows of global memory, one per tensor, and the bytes of it that requests touch."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import Plan, TmaError
from sim_tb.sm.device import Device
from sim_tb.sm.sanitizer.shadow import WORD, Shadow, Words, byte_range, distinct, scattered
from sim_tb.sm.smem import PIECE_BYTES

MOST_PLACEMENTS = 1024


@dataclass(frozen=True)
class GlobalBytes:
    """Words of one tensor that a request or an instruction touches."""

    shadow: Shadow
    words: Words


class GlobalMemory:
    """Shadows of all tensors of a device.

    Words outside of all tensors are not followed: requests and threads that touch them are
    refused, or fail, elsewhere.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._shadows: dict[int, Shadow] = {}
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._words: dict[int, tuple[Any, NDArray[np.int64]]] = {}

    def __iter__(self) -> Any:
        """Iterate over the shadows in use."""
        return iter(self._shadows.values())

    def bytes(self, address: int, size: int) -> GlobalBytes | None:
        """Return the words of a range; None if it is outside of all tensors."""
        found = self._tensor(address)
        if found is None:
            return None
        start, length = found
        words = byte_range(address - start, min(size, start + length - address))
        return GlobalBytes(self._shadow(start, length), words)

    def scattered(
        self, addresses: NDArray[np.int64], size: int
    ) -> tuple[GlobalBytes | None, int | None]:
        """Return the words at several addresses, and an address that occurs twice.

        They are those of the tensor of the first address.
        """
        found = self._tensor(int(addresses[0])) if addresses.size else None
        if found is None:
            return None, None
        start, length = found
        inside = addresses[(addresses >= start) & (addresses + size <= start + length)] - start
        words, repeated = scattered(inside, size)
        again = None if repeated is None else repeated + start
        return GlobalBytes(self._shadow(start, length), words), again

    def box(
        self,
        plan: Plan,
        coords: Sequence[int],
        offsets: Sequence[int] = (),
        halo: Sequence[int] = (),
    ) -> GlobalBytes | None:
        """Return the words that a tensor request touches.

        None if it is refused, touches nothing, or the map describes no tensor of the device.
        """
        found = self._tensor(plan.descriptor.global_address)
        if found is None:
            return None
        first, length = found
        if plan.is_gather and not plan.data_type.is_sub_byte:
            words = _rows_words(plan, coords, first)
            inside = words[(words >= 0) & (words < length // WORD)]
            return GlobalBytes(self._shadow(first, length), inside)
        try:
            start, placement = plan.gmem_pieces(coords, offsets, *halo)
        except (TmaError, ValueError):
            return None
        if not (placement.gmem.size or placement.tail_gmem.size):
            return None
        entry = self._words.get(id(placement))
        if entry is None:
            pieces = np.concatenate([placement.gmem, placement.tail_gmem]) // PIECE_BYTES
            words = distinct(pieces)[:, None] * (PIECE_BYTES // WORD) + np.arange(4)
            if len(self._words) >= MOST_PLACEMENTS:
                self._words.clear()
            entry = self._words[id(placement)] = placement, words.ravel()
        by = (start + placement.low - first) // WORD
        words = entry[1] + by
        if words[0] < 0 or words[-1] >= length // WORD:
            words = words[(words >= 0) & (words < length // WORD)]
        return GlobalBytes(self._shadow(first, length), words)

    def _tensor(self, address: int) -> tuple[int, int] | None:
        """Return start and size of the tensor around an address."""
        tensors = self._device.tensors
        if len(tensors) != len(self._starts):
            self._starts = [tensor.address for tensor in tensors]
            self._sizes = [tensor.nbytes for tensor in tensors]
        number = bisect_right(self._starts, address) - 1
        if number < 0 or address >= self._starts[number] + self._sizes[number]:
            return None
        return self._starts[number], self._sizes[number]

    def _shadow(self, start: int, size: int) -> Shadow:
        shadow = self._shadows.get(start)
        if shadow is None:
            name = next(each.name for each in self._device.tensors if each.address == start)

            def where(word: int) -> str:
                return f"{start + word * WORD:#x} of {name}"

            shadow = self._shadows[start] = Shadow(-(-size // WORD), where, is_written=True)
        return shadow


def _rows_words(plan: Plan, coords: Sequence[int], start: int) -> NDArray[np.int64]:
    """Return the words of the rows that a gather4 or scatter4 names, relative to a tensor's start.

    Each list of rows is another placement of the golden model; this is quicker.
    """
    d, item = plan.descriptor, plan.data_type.itemsize
    column, *rows = coords
    low, high = max(column, 0), min(column + d.box_dim[0], d.global_dim[0])
    inside = sorted({row for row in rows if 0 <= row < d.global_dim[1]})
    in_row = np.arange(low * item // WORD, -(-high * item // WORD))
    at = (d.global_address - start + np.array(inside, np.int64) * d.global_strides[0]) // WORD
    return (at[:, None] + in_row).ravel()
