"""Shared memory of a kernel: its layout, and views of tiles that undo the swizzle."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from golden import Swizzle
from sim_tb.sm.errors import KernelError, described

PIECE_BYTES = 16
"""Bytes of a piece: the unit of a swizzle, and the width of a lane of the TMA."""

BANKS, BANK_BYTES = 32, 4
LANES = 32
"""Threads of a warp."""

MBARRIER_BYTES = 8
TILE_ALIGN = 128

Pieces = NDArray[np.int64]


class SmemError(ValueError):
    """A tile or a barrier does not fit into the kernel's shared memory."""


@dataclass(frozen=True)
class Tile:
    """Rows of elements in shared memory, swizzled or not, as a kernel's threads address them.

    Threads take the phase of the swizzle from the row of the tile, the unit takes it from the
    address. Both agree if ``origin`` is a multiple of ``swizzle.repeat``.

    Parameters
    ----------
    name : str
    origin : int
        Offset of the tile in shared memory, in bytes.
    shape : (rows, columns)
        Extents in elements. With a swizzle, a row is as long as the swizzle's span.
    dtype : numpy.dtype
    swizzle : Swizzle
    first_row : int
        Row of the whole tile at which this view begins.
    cta : int, optional
        CTA of the cluster that holds it, as ``mapa`` says. None: the CTA that uses it.
    """

    name: str
    origin: int
    shape: tuple[int, int]
    dtype: np.dtype[np.generic]
    swizzle: Swizzle = Swizzle.NONE
    first_row: int = 0
    cta: int | None = None

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
        """Offset of the view's first row in shared memory, in bytes."""
        return self.origin + self.first_row * self.row_bytes

    @cached_property
    def piece_range(self) -> slice:
        """Range of the pieces of shared memory that the view occupies."""
        return slice(self.address // PIECE_BYTES, -(-(self.address + self.nbytes) // PIECE_BYTES))

    def rows(self, start: int, stop: int) -> "Tile":
        """Return a view of rows ``start`` to ``stop`` - 1."""
        view = self._views.get((start, stop))
        if view is None:
            if not 0 <= start < stop <= self.shape[0]:
                raise SmemError(
                    f"{self.name}: there is no view of rows {start} to {stop}: the tile has "
                    f"{self.shape[0]} rows"
                )
            shape = (stop - start, self.shape[1])
            view = replace(self, shape=shape, first_row=self.first_row + start)
            self._views[start, stop] = view
        return view

    def at(self, cta: int) -> "Tile":
        """Return the tile at the same place of a CTA of the cluster."""
        return replace(self, cta=cta)

    @cached_property
    def _views(self) -> "dict[tuple[int, int], Tile]":
        return {}

    @cached_property
    def pieces(self) -> Pieces:
        """Numbers of the pieces in shared memory, of shape (rows, pieces per row)."""
        offset = self.first_row * self.row_bytes + np.arange(0, self.nbytes, PIECE_BYTES)
        offset ^= offset >> self.swizzle.shift & self.swizzle.mask
        return (self.origin + offset).reshape(self.shape[0], -1) // PIECE_BYTES

    @cached_property
    def matrix_wavefronts(self) -> int:
        """Clocks of ``ldmatrix`` or ``stmatrix``, which access one piece of 8 rows at a time."""
        rows = -(-self.shape[0] // 8) * 8
        padded = np.resize(self.pieces, (rows, self.pieces.shape[1]))
        groups = padded.reshape(rows // 8, 8, -1).transpose(0, 2, 1).reshape(-1, 8)
        lanes = groups[:, :, None] * PIECE_BYTES + np.arange(0, PIECE_BYTES, BANK_BYTES)
        return wavefronts(lanes.reshape(len(groups), -1))

    def access_wavefronts(self, *, columns: bool) -> int:
        """Return the clocks of accesses to all elements, 32 at a time along a row or a column."""
        return self._column_wavefronts if columns else self._row_wavefronts

    @cached_property
    def _row_wavefronts(self) -> int:
        return wavefronts(_by_lanes(self._addresses))

    @cached_property
    def _column_wavefronts(self) -> int:
        return wavefronts(_by_lanes(self._addresses.T))

    def addresses(self, size: int) -> Pieces:
        """Return the byte address of each ``size`` bytes, at most a piece, row by row."""
        inside = np.arange(0, min(PIECE_BYTES, self.row_bytes), size)
        return (self.pieces[:, :, None] * PIECE_BYTES + inside).reshape(-1)

    def check_values(self, about: str, values: NDArray[Any]) -> None:
        """Check that values have the shape and the type of the tile.

        ``about`` names the instruction.

        Raises
        ------
        KernelError
            If they have not.
        """
        if not isinstance(values, np.ndarray):
            raise KernelError(f"{about}: the values are {described(values)}: must be an array")
        if values.shape != self.shape or values.dtype != self.dtype:
            raise KernelError(
                f"{about}: a tile of shape {self.shape} and type {self.dtype} cannot take values "
                f"of shape {values.shape} and type {values.dtype}"
            )

    @property
    def _addresses(self) -> NDArray[np.int64]:
        """Byte address of each element."""
        return self.addresses(self.dtype.itemsize).reshape(self.shape[0], -1)


def _by_lanes(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one row per access of a warp. An incomplete access repeats its last address."""
    padded = np.pad(addresses, ((0, 0), (0, -addresses.shape[1] % LANES)), mode="edge")
    return padded.reshape(-1, LANES)


def wavefronts(addresses: NDArray[np.int64]) -> int:
    """Return the clocks that accesses to shared memory take.

    An access takes as many clocks as the most requested bank has different words to deliver.

    Parameters
    ----------
    addresses : array of shape (accesses, lanes)
        Byte addresses. Lanes that read the same word share it.
    """
    words = np.sort(addresses // BANK_BYTES, axis=1)
    is_new = np.ones(words.shape, bool)
    is_new[:, 1:] = words[:, 1:] != words[:, :-1]
    counts = np.zeros((len(words), BANKS), np.int64)
    access = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    np.add.at(counts, (access[is_new], words[is_new] % BANKS), 1)
    return int(counts.max(axis=1).sum())


@dataclass(frozen=True)
class Mbarrier:
    """An mbarrier in shared memory.

    Parameters
    ----------
    name : str
    address : int
        Offset in shared memory, in bytes.
    cta : int, optional
        CTA of the cluster that holds it, as ``mapa`` says. None: the CTA that uses it.
    """

    name: str
    address: int
    cta: int | None = None

    def at(self, cta: int) -> "Mbarrier":
        """Return the barrier at the same place of a CTA of the cluster."""
        return replace(self, cta=cta)


@dataclass(frozen=True)
class BarrierState:
    """State that an arrival returned: it names the phase for a test or a wait.

    Parameters
    ----------
    word : int
        The 64 bits, as the unit returns them.
    """

    word: int


@dataclass(frozen=True)
class Ring:
    """A ring of stages, each with two barriers.

    A phase of *full* completes when all bytes of the stage have arrived, a phase of *empty* when
    the stage may be overwritten.
    """

    name: str
    full: tuple[Mbarrier, ...]
    empty: tuple[Mbarrier, ...]

    def steps(self) -> Iterator[tuple[int, int]]:
        """Yield stage and parity of step 0, 1, and so on.

        A consumer waits for *full* with this parity, a producer for *empty* with the other one.
        The producer's wait for a barrier that was just initialised returns at once.
        """
        stages = len(self.full)
        for step in count():
            yield step % stages, step // stages % 2


class SmemLayout:
    """Allocator of the shared memory of a CTA. Each call takes the next free bytes.

    Parameters
    ----------
    limit : int
        Bytes of shared memory.

    Members
    -------
    bytes : int
        Bytes that are allocated.
    names : dict of int to str
        Names of the barriers by offset.
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
        """Allocate a tile. By default it is aligned to the repeat of its swizzle.

        Raises
        ------
        SmemError
            If the tile does not fit, or its rows are not as long as the swizzle's span.
        """
        element = np.dtype(dtype)
        row_bytes = shape[1] * element.itemsize
        if swizzle.span not in (None, row_bytes):
            raise SmemError(
                f"{name}: a row has {row_bytes} bytes: with swizzle {swizzle.short_names[0]} it "
                f"must have {swizzle.span}"
            )
        if align is None:
            align = max(swizzle.repeat, TILE_ALIGN)
        return Tile(name, self._take(name, shape[0] * row_bytes, align), shape, element, swizzle)

    def tiles(
        self,
        name: str,
        number: int,
        shape: tuple[int, int],
        dtype: DTypeLike,
        swizzle: Swizzle = Swizzle.NONE,
    ) -> list[Tile]:
        """Allocate ``number`` tiles, called ``name[0]`` and so on."""
        return [self.tile(f"{name}[{i}]", shape, dtype, swizzle) for i in range(number)]

    def mbarrier(self, name: str) -> Mbarrier:
        """Allocate a barrier."""
        address = self._take(name, MBARRIER_BYTES, MBARRIER_BYTES)
        self.names[address] = name
        return Mbarrier(name, address)

    def mbarriers(self, name: str, number: int) -> list[Mbarrier]:
        """Allocate ``number`` barriers, called ``name[0]`` and so on."""
        return [self.mbarrier(f"{name}[{i}]") for i in range(number)]

    def ring(self, name: str, stages: int) -> Ring:
        """Allocate the barriers of a ring, called ``name.full[0]``, ``name.empty[0]`` and so on."""
        prefix = f"{name}." if name else ""
        full, empty = (
            tuple(self.mbarriers(f"{prefix}{which}", stages)) for which in ("full", "empty")
        )
        self.rings.append(Ring(name, full, empty))
        return self.rings[-1]

    def name(self, address: int) -> str:
        """Return the name of the barrier at this offset."""
        return self.names.get(address, f"barrier at {address:#x}")

    def _take(self, name: str, size: int, align: int) -> int:
        start = -(-self.bytes // align) * align
        if start + size > self.limit:
            raise SmemError(
                f"shared memory: {name} would end at byte {start + size}: must be at most "
                f"{self.limit}"
            )
        self.bytes = start + size
        return start
