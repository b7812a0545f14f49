"""Shared memory of a kernel: what lies where, and views of tiles that undo the swizzle."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import DTypeLike, NDArray

from golden import Swizzle

PIECE_BYTES = 16
"""What a swizzle moves as a whole, and what a lane of the unit writes."""

BANKS, BANK_BYTES = 32, 4
LANES = 32
"""Threads of a warp."""

MBARRIER_BYTES = 8
TILE_ALIGN = 128

Pieces = NDArray[np.int64]


class SmemError(ValueError):
    """A kernel's shared memory cannot be laid out."""


@dataclass(frozen=True)
class Tile:
    """Rows of elements in shared memory, swizzled or not, as a kernel's threads address them.

    Threads take the swizzle's phase from the row of the tile, the unit takes it from the address:
    they agree where ``origin`` is a multiple of ``swizzle.repeat``.

    Parameters
    ----------
    name : str
    origin : int
        Offset of the tile in shared memory.
    shape : (rows, columns)
        In elements; with a swizzle, a row is as long as the swizzle's span.
    dtype : numpy.dtype
    swizzle : Swizzle
    first : int
        Row at which this view of the tile begins.
    """

    name: str
    origin: int
    shape: tuple[int, int]
    dtype: np.dtype[np.generic]
    swizzle: Swizzle = Swizzle.NONE
    first: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.shape[1] * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.shape[0] * self.row_bytes

    @property
    def address(self) -> int:
        """Where its first row is."""
        return self.origin + self.first * self.row_bytes

    @cached_property
    def span(self) -> slice:
        """The pieces of shared memory that it lies in."""
        return slice(self.address // PIECE_BYTES, -(-(self.address + self.nbytes) // PIECE_BYTES))

    def rows(self, start: int, stop: int) -> "Tile":
        """A view of rows ``start`` to ``stop`` - 1."""
        found = self._views.get((start, stop))
        if found is None:
            if not 0 <= start < stop <= self.shape[0]:
                raise SmemError(f"{self.name}: rows {start} to {stop}: it has {self.shape[0]}")
            shape = (stop - start, self.shape[1])
            found = replace(self, shape=shape, first=self.first + start)
            self._views[start, stop] = found
        return found

    @cached_property
    def _views(self) -> "dict[tuple[int, int], Tile]":
        return {}

    @cached_property
    def pieces(self) -> Pieces:
        """Numbers of its pieces of 16 bytes, of shape (rows, pieces of a row)."""
        offset = self.first * self.row_bytes + np.arange(0, self.nbytes, PIECE_BYTES)
        offset ^= offset >> self.swizzle.shift & self.swizzle.mask
        return (self.origin + offset).reshape(self.shape[0], -1) // PIECE_BYTES

    @cached_property
    def matrix_wavefronts(self) -> int:
        """Clocks that ``ldmatrix`` or ``stmatrix`` takes: 8 rows of a piece at once."""
        rows = -(-self.shape[0] // 8) * 8
        padded = np.resize(self.pieces, (rows, self.pieces.shape[1]))
        groups = padded.reshape(rows // 8, 8, -1).transpose(0, 2, 1).reshape(-1, 8)
        lanes = groups[:, :, None] * PIECE_BYTES + np.arange(0, PIECE_BYTES, BANK_BYTES)
        return wavefronts(lanes.reshape(len(groups), -1))

    def access_wavefronts(self, *, columns: bool) -> int:
        """Clocks that all elements take, a warp of 32 threads each along a row or a column."""
        return self._column_wavefronts if columns else self._row_wavefronts

    @cached_property
    def _row_wavefronts(self) -> int:
        return wavefronts(_by_lanes(self._addresses))

    @cached_property
    def _column_wavefronts(self) -> int:
        return wavefronts(_by_lanes(self._addresses.T))

    @property
    def _addresses(self) -> NDArray[np.int64]:
        """Byte address of each element."""
        item = self.dtype.itemsize
        inside = np.arange(0, PIECE_BYTES, item)
        return (self.pieces[:, :, None] * PIECE_BYTES + inside).reshape(self.shape[0], -1)


def _by_lanes(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """A row for each access of a warp; what is left over repeats its last address."""
    padded = np.pad(addresses, ((0, 0), (0, -addresses.shape[1] % LANES)), mode="edge")
    return padded.reshape(-1, LANES)


def wavefronts(addresses: NDArray[np.int64]) -> int:
    """Clocks that accesses take: of each, the most different words that one bank has to give.

    Parameters
    ----------
    addresses : array of shape (accesses, lanes)
        Byte addresses; lanes that want the same word share it.
    """
    words = np.sort(addresses // BANK_BYTES, axis=1)
    new = np.ones(words.shape, bool)
    new[:, 1:] = words[:, 1:] != words[:, :-1]
    counts = np.zeros((len(words), BANKS), np.int64)
    access = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    np.add.at(counts, (access[new], words[new] % BANKS), 1)
    return int(counts.max(axis=1).sum())


@dataclass(frozen=True)
class Ring:
    """A ring of stages, each with two barriers.

    *full* completes when the stage's bytes are there, *empty* when it may be overwritten.
    """

    name: str
    full: tuple[int, ...]
    empty: tuple[int, ...]

    def steps(self) -> Iterator[tuple[int, int]]:
        """Stage and parity of step 0, 1, and so on.

        Who waits for *full* waits for the parity, who waits for *empty* for the other one: a fresh
        barrier lets the latter pass.
        """
        stages = len(self.full)
        for step in count():
            yield step % stages, step // stages % 2


class SmemLayout:
    """Lays out the shared memory of a CTA, in the order of the calls.

    Parameters
    ----------
    limit : int
        Bytes that there are.

    Members
    -------
    bytes : int
        How many are taken.
    names : dict of int to str
        Barriers by offset.
    rings : list of Ring
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.names: dict[int, str] = {}
        self.rings: list[Ring] = []

    def tile(
        self,
        name: str,
        shape: tuple[int, int],
        dtype: DTypeLike,
        swizzle: Swizzle = Swizzle.NONE,
        *,
        align: int | None = None,
    ) -> Tile:
        """A tile, aligned so that its swizzle begins with it, unless ``align`` says otherwise.

        Raises
        ------
        SmemError
            If it does not fit, or its rows are not as long as the swizzle's span.
        """
        kind = np.dtype(dtype)
        if swizzle.span not in (None, shape[1] * kind.itemsize):
            raise SmemError(
                f"{name}: rows of {shape[1] * kind.itemsize} bytes: with swizzle "
                f"{swizzle.short_names[0]} they must have {swizzle.span}"
            )
        if align is None:
            align = max(swizzle.repeat, TILE_ALIGN)
        size = shape[0] * shape[1] * kind.itemsize
        return Tile(name, self._take(name, size, align), shape, kind, swizzle)

    def tiles(
        self,
        name: str,
        number: int,
        shape: tuple[int, int],
        dtype: DTypeLike,
        swizzle: Swizzle = Swizzle.NONE,
    ) -> list[Tile]:
        """Several, called ``name[0]`` and so on."""
        return [self.tile(f"{name}[{i}]", shape, dtype, swizzle) for i in range(number)]

    def mbarrier(self, name: str) -> int:
        """Offset of a barrier."""
        address = self._take(name, MBARRIER_BYTES, MBARRIER_BYTES)
        self.names[address] = name
        return address

    def mbarriers(self, name: str, number: int) -> list[int]:
        """Several, called ``name[0]`` and so on."""
        return [self.mbarrier(f"{name}[{i}]") for i in range(number)]

    def ring(self, name: str, stages: int) -> Ring:
        """The barriers of a ring."""
        prefix = f"{name}." if name else ""
        full, empty = (
            tuple(self.mbarriers(f"{prefix}{which}", stages)) for which in ("full", "empty")
        )
        self.rings.append(Ring(name, full, empty))
        return self.rings[-1]

    def name(self, barrier: int) -> str:
        """What a barrier is called."""
        return self.names.get(barrier, f"barrier at {barrier:#x}")

    def _take(self, name: str, size: int, align: int) -> int:
        start = -(-self.bytes // align) * align
        if start + size > self.limit:
            raise SmemError(
                f"shared memory: {name} would end at byte {start + size}: must be at most "
                f"{self.limit}"
            )
        self.bytes = start + size
        return start
