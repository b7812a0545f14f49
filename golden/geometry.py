"""What a tensor map and an access mode make of a request: bounds, addresses and layout.

Everything is a matter of 16-byte pieces: base, strides, rows and the start of a box are multiples
of 16 bytes, so each piece of shared memory is one piece of global memory (of fewer bytes for packed
types), and the swizzle moves whole pieces.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from golden import walk
from golden.enums import LINE, PIECE, AccessMode, Arch, DataType, MapMode, Swizzle
from golden.errors import ErrorCode, TmaError, require
from golden.map_rules import check_map, row_bytes
from golden.memory import ADDRESSES
from golden.request import AnyMap, as_descriptor


@dataclass(frozen=True)
class Operands:
    """Where a tensor request starts, in all its parts; as in ``golden.request``."""

    coords: tuple[int, ...]
    offsets: tuple[int, ...] = ()
    w_halo: int = 0
    w_offset: int = 0


@dataclass(frozen=True)
class Spread:
    """All pieces of a request, arrays of shape (rows, pieces in a row).

    ``gmem``, ``smem``: byte addresses, in shared memory after the swizzle. ``inside``: how many
    bytes of the piece are inside the tensor.
    """

    gmem: NDArray[np.uint64]
    smem: NDArray[np.int64]
    inside: NDArray[np.int64]


def swizzled(addresses: NDArray[np.int64], swizzle: Swizzle) -> NDArray[np.int64]:
    """Shared-memory byte addresses after the swizzle (modes 0 to 3: silicon; others: PTX ISA)."""
    moved = addresses ^ (addresses >> swizzle.shift & swizzle.mask)
    return moved ^ (addresses >> 4 & 8) if swizzle.flips else moved


class Geometry:
    """A tensor map, an access mode and a direction.

    Parameters
    ----------
    tensor_map : TensorMap or Descriptor or bytes
        Legal or not.
    mode : AccessMode, optional
        The map's own, tile or im2col, if not given.
    store : bool
        For stores and reductions, which treat dimension 0 in whole pieces (silicon).
    arch : Arch
        What is there to be used.

    Attributes
    ----------
    descriptor : Descriptor
    mode : AccessMode
    data_type : DataType
    swizzle : Swizzle
    interleaved, is_store : bool
    coords : int
        Coordinates that the instruction has.
    coord_align : int
        What ``coords[0]`` is a multiple of (silicon; packed types: PTX ISA).
    row_bytes : int
        Bytes that a row takes up in shared memory, without a gap behind it.
    row_elements : int
        Elements of a row; 1 for a slice of an interleaved map.
    pitch : int
        Bytes from a row of shared memory to the next.
    piece_bytes : int
        Bytes of global memory for a piece of shared memory.
    steps : tuple of int
        Bytes of global memory of a position in each dimension; 0 if less than one.
    limits : tuple of int
        First positions outside; dimension 0 of a store counts whole pieces (silicon).
    bounded : range
        Dimensions in which a row is inside or outside as a whole.

    Raises
    ------
    TmaError
        MAP_FIELD or MAP_MODE.
    """

    def __init__(
        self,
        tensor_map: AnyMap,
        mode: AccessMode | None = None,
        *,
        store: bool = False,
        arch: Arch = Arch.SM_90A,
    ) -> None:
        self.descriptor = d = as_descriptor(tensor_map)
        self.is_store = store
        try:
            check_map(d, arch)
        except TmaError as error:
            raise error.as_map_field(d.words[2]) from None
        self.mode = AccessMode(int(d.mode) if mode is None else mode)
        assert d.data_type is not None
        assert d.interleave is not None
        assert d.swizzle is not None
        self.data_type: DataType = d.data_type
        self.swizzle: Swizzle = d.swizzle
        self.interleaved = bool(d.interleave)
        self._check_direction()
        self._check_mode(arch)
        rank, unit = d.rank, PIECE * d.interleave
        extent = d.channels_per_pixel if d.mode is MapMode.IM2COL else d.box_dim[0]
        self.row_bytes = unit or row_bytes(self.data_type, extent)
        self.row_elements = 1 if self.interleaved else extent
        self.pitch = (None if self.interleaved else d.swizzle.span) or self.row_bytes
        self._per_piece = PIECE * 8 // self.data_type.smem_bits
        self.piece_bytes = self._per_piece * self.data_type.bits // 8
        self.steps = (unit or self.data_type.bits // 8, *d.global_strides[: rank - 1])
        limits = [*d.global_dim[:rank]]
        if store and not self.interleaved:
            limits[0] = -(-limits[0] // self._per_piece) * self._per_piece
        self.limits = tuple(limits)
        self.coords = 5 if self.is_gather else rank
        self.coord_align = self._coord_alignment()
        self.bounded = range(0 if self.interleaved else 1, rank)
        self._rows = self._rows_without_halo()

    @property
    def is_gather(self) -> bool:
        """``gather4`` or ``scatter4``."""
        return self.mode in (AccessMode.TILE_GATHER4, AccessMode.TILE_SCATTER4)

    @property
    def is_wide(self) -> bool:
        """``im2col::w`` or ``im2col::w::128``."""
        return self.mode in (AccessMode.IM2COL_W, AccessMode.IM2COL_W_128)

    def _check_mode(self, arch: Arch) -> None:
        d, mode = self.descriptor, self.mode

        def must(holds: bool, limit: str) -> None:
            shown = f"{mode.name} with a rank-{d.rank} {d.mode.name} map"
            require(holds, ErrorCode.MAP_MODE, "mode", mode, limit, shown=shown)

        must(mode.map_mode is d.mode, "must be the mode of the map")
        must(d.wide == self.is_wide, "must be im2col::w with a map for it, and with no other")
        if mode > AccessMode.IM2COL:
            must(arch >= Arch.SM_100A, "must be TILE or IM2COL on SM_90A")
        if self.is_gather:
            must(d.rank == 2, "must be of rank 2")
            must(not d.interleave and d.box_dim[1] == 1, "needs box_dim[1] = 1 and no interleave")
        scatter = mode is AccessMode.TILE_SCATTER4
        must(scatter <= self.is_store, "is a store")
        must(not (self.is_store and mode is AccessMode.TILE_GATHER4), "is a load")
        must(not (self.is_store and mode is AccessMode.IM2COL_W_128), "is a load")
        if self.is_wide:
            must(not d.interleave, "needs interleave NONE")
            swizzled_ = d.swizzle not in (Swizzle.NONE, Swizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B)
            must(swizzled_, "needs a swizzle, but not FLIP_8B")

    def _check_direction(self) -> None:
        """Fields that go with loads or with stores only (PTX ISA)."""

        def must(holds: bool, code: ErrorCode, name: str, value: int, shown: str) -> None:
            if not holds:
                limit = f"is for {'loads' if self.is_store else 'stores'} only"
                error = TmaError(code, name, value, limit, shown=shown)
                raise error.as_map_field(self.descriptor.words[2])

        kind, swizzle = self.data_type, self.swizzle
        flip = swizzle is Swizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B
        must(not (self.is_store and flip), ErrorCode.SWIZZLE, "swizzle", swizzle, swizzle.name)
        packed = kind is DataType.PACKED_16U4_ALIGN16B
        must(not (self.is_store and packed), ErrorCode.DATA_TYPE, "data_type", kind, kind.name)
        if kind is DataType.PACKED_16U6_ALIGN16B and not self.is_store:
            atom = swizzle is Swizzle.SWIZZLE_128B_ATOM_64B
            must(not atom, ErrorCode.SWIZZLE, "swizzle", swizzle, swizzle.name)

    def _coord_alignment(self) -> int:
        if self.interleaved:
            return 1
        if self.data_type > DataType.PACKED_16U4_ALIGN8B:
            return 128
        return self._per_piece

    def rows(self, w_halo: int = 0) -> int:
        """Rows of shared memory."""
        return self._rows + w_halo * (4 if self.mode is AccessMode.IM2COL_W_128 else 1)

    def _rows_without_halo(self) -> int:
        d = self.descriptor
        match self.mode:
            case AccessMode.TILE:
                return math.prod(walk.steps_of(d)[self.bounded.start :])
            case AccessMode.TILE_GATHER4 | AccessMode.TILE_SCATTER4:
                return 4
            case AccessMode.IM2COL_W_128:
                return walk.PIXELS_W_128
        return d.pixels_per_column

    def extent(self, w_halo: int = 0) -> int:
        """Bytes of shared memory from the first to the last that may be touched.

        Packed rows that end inside of a block of the swizzle are moved all over that block.
        """
        block = self.swizzle.block
        return -(-self.rows(w_halo) * self.pitch // block) * block

    @cached_property
    def footprint(self) -> int:
        """``extent`` without a halo."""
        return self.extent()

    def bytes(self, w_halo: int = 0) -> int:
        """What ``complete_tx`` counts: fill included, gaps not (silicon); packed: as in memory."""
        return self.rows(w_halo) * self.row_bytes // PIECE * self.piece_bytes

    def positions(self, operands: Operands) -> walk.Positions:
        """Where each row starts in the tensor: an array of shape (rank, rows)."""
        d, coords = self.descriptor, operands.coords
        if self.mode is AccessMode.TILE:
            return walk.tile(d, coords)
        if self.is_gather:
            return walk.gather4(coords)
        if self.mode is AccessMode.IM2COL:
            return walk.im2col(d, coords, operands.offsets)
        return walk.im2col_w(d, coords, self.mode, operands.w_halo, operands.w_offset)

    def columns(self, start: int) -> tuple[int, int, int]:
        """Pieces of a row from the first inside to the first that is not all inside, and the bytes
        that are inside of that one.
        """
        if self.interleaved:
            return 0, self.row_bytes // PIECE, 0
        per = self._per_piece
        low = min(max(0, -start), self.row_elements)
        high = min(max(low, self.limits[0] - start), self.row_elements)
        last, rest = divmod(high, per)
        return low // per, max(last, low // per), rest * self.data_type.bits // 8

    def spread(self, smem_address: int, operands: Operands) -> Spread:
        """Where every piece of a request lies in both memories, and how much of it is inside.

        The request is taken to be legal.
        """
        d = self.descriptor
        positions = self.positions(operands)
        inside = np.ones(positions.shape[1], bool)
        for i in self.bounded:
            inside &= (positions[i] >= 0) & (positions[i] < self.limits[i])
        if self.is_store and self.is_wide:
            inside = np.logical_and.accumulate(inside)  # stops at the first pixel outside
        start = d.global_address
        if not self.interleaved:
            start += operands.coords[0] * self.data_type.bits // 8
        rows = np.full(inside.size, start % ADDRESSES, np.uint64)
        for i in self.bounded:
            rows += positions[i].astype(np.uint64) * np.uint64(self.steps[i])  # modulo 2**64
        column = np.arange(self.row_bytes // PIECE, dtype=np.int64)
        row = np.arange(inside.size, dtype=np.int64)[:, None]
        first, last, tail_bytes = self.columns(operands.coords[0])
        whole = np.where((first <= column) & (column < last), self.piece_bytes, 0)
        whole[column == last] = tail_bytes
        return Spread(
            gmem=rows[:, None] + (column * self.piece_bytes).astype(np.uint64),
            smem=swizzled(smem_address + row * self.pitch + column * PIECE, self.swizzle),
            inside=inside[:, None] * whole,
        )

    def touched(
        self,
        smem_address: int,
        coords: Sequence[int],
        offsets: Sequence[int] = (),
        *,
        line_bytes: int = LINE,
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Distinct lines of global memory that a request accesses, and of shared memory.

        Returns
        -------
        The addresses of the lines, divided by ``line_bytes``, in order.
        """
        spread = self.spread(smem_address, Operands(tuple(coords), tuple(offsets)))
        inside = spread.inside > 0
        first = spread.gmem[inside]
        last = first + (spread.inside[inside] - 1).astype(np.uint64)
        gmem = np.concatenate([first, last]) // np.uint64(line_bytes)
        smem = spread.smem[inside] if self.is_store else spread.smem  # a load fills the rest
        return np.unique(gmem), np.unique(smem // line_bytes)
