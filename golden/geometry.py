"""Bounds, addresses and layout of a tensor request, from its tensor map and access mode.

All data moves in pieces of 16 bytes: base, strides, rows and the start of a box are multiples of 16
bytes. So each piece of shared memory is one piece of global memory (of fewer bytes for packed
types), and the swizzle moves whole pieces.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from golden import walk
from golden.arch import Arch, Feature
from golden.enums import LINE, PIECE, AccessMode, DataType, MapMode, Named, Swizzle
from golden.errors import ErrorCode, TmaError, missing_feature, require
from golden.fields import member, require_arch
from golden.map_rules import check_map, row_bytes
from golden.memory import ADDRESSES
from golden.request import AnyMap, as_descriptor


@dataclass(frozen=True)
class Operands:
    """Start of a tensor request: coordinates and im2col operands, as in ``golden.request``."""

    coords: tuple[int, ...]
    offsets: tuple[int, ...] = ()
    w_halo: int = 0
    w_offset: int = 0


@dataclass(frozen=True)
class Spread:
    """All pieces of a request, as arrays of shape (rows, pieces in a row).

    Parameters
    ----------
    gmem : array of uint64
        Byte addresses in global memory.
    smem : array of int64
        Byte addresses in shared memory, after the swizzle.
    inside : array of int64
        Bytes of the piece that are inside the tensor.
    """

    gmem: NDArray[np.uint64]
    smem: NDArray[np.int64]
    inside: NDArray[np.int64]


def swizzled(addresses: NDArray[np.int64], swizzle: Swizzle) -> NDArray[np.int64]:
    """Return shared-memory addresses after the swizzle (modes 0 to 3: silicon; else PTX ISA)."""
    result = addresses ^ (addresses >> swizzle.shift & swizzle.mask)
    return result ^ (addresses >> 4 & 8) if swizzle.flips else result


_LOAD_FEATURES = {
    AccessMode.TILE_GATHER4: Feature.GATHER4_CTA,
    AccessMode.TILE_SCATTER4: Feature.SCATTER4,
    AccessMode.IM2COL_W: Feature.IM2COL_W_CTA,
    AccessMode.IM2COL_W_128: Feature.IM2COL_W_128,
}
HALO_ROWS = {AccessMode.IM2COL_W: 1, AccessMode.IM2COL_W_128: 4}
"""Rows in shared memory of a pixel of the halo. Other modes have no halo."""

_STORE_FEATURES = {AccessMode.IM2COL_W: Feature.IM2COL_NO_OFFS_W}
"""Features that a mode needs; a store with any other mode needs that of a load."""


class Geometry:
    """Geometry of all requests with one tensor map, access mode and direction.

    Parameters
    ----------
    tensor_map : TensorMap or Descriptor or bytes
        Tensor map, legal or not.
    mode : AccessMode, optional
        Access mode; by default the map's own, tile or im2col.
    store : bool
        True for stores and reductions, which write whole pieces in dimension 0 (silicon).
    arch : Arch
        Architecture whose features the request may use.

    Attributes
    ----------
    descriptor : Descriptor
    arch : Arch
    mode : AccessMode
    data_type : DataType
    swizzle : Swizzle
    interleaved, is_store : bool
    coord_count : int
        Number of coordinates of the instruction.
    coord_align : int
        Alignment of ``coords[0]``, in elements (silicon; packed types: PTX ISA).
    row_bytes : int
        Bytes of a row in shared memory, without the gap behind it.
    row_elements : int
        Elements of a row; 1 for a slice of an interleaved map.
    pitch : int
        Row pitch in shared memory, in bytes.
    piece_bytes : int
        Bytes of global memory that correspond to a piece of shared memory.
    steps : tuple of int
        Bytes of global memory from a position to the next, in each dimension; 0 if less than 1.
    limits : tuple of int
        First position outside in each dimension; stores round dimension 0 up to pieces (silicon).
    bounded : range
        Dimensions in which a whole row is either inside or outside.

    Raises
    ------
    TmaError
        MAP_FIELD, if the map is illegal; MAP_MODE, if it does not match mode and direction.
    """

    def __init__(
        self,
        tensor_map: AnyMap,
        mode: AccessMode | None = None,
        *,
        store: bool = False,
        arch: Arch = Arch.SM_90A,
    ) -> None:
        given = as_descriptor(tensor_map)
        self.descriptor = d = given.for_arch(arch)
        self.is_store = store
        require_arch(arch)
        self.arch = arch
        try:
            check_map(d, arch, store)
        except TmaError as error:
            raise error.as_map_field(given.words[2]) from None
        wanted = int(d.mode) if mode is None else mode
        self.mode = member(AccessMode, ErrorCode.MAP_MODE, "mode", wanted)
        assert d.data_type is not None
        assert d.interleave is not None
        assert d.swizzle is not None
        self.data_type: DataType = d.data_type
        self.swizzle: Swizzle = d.swizzle
        self.interleaved = bool(d.interleave)
        self._check_direction()
        self._check_mode()
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
        self.coord_count = 5 if self.is_gather else rank
        self.coord_align = self._coord_alignment()
        self.bounded = range(0 if self.interleaved else 1, rank)
        self._rows = self._rows_without_halo()

    @property
    def is_gather(self) -> bool:
        """True for ``gather4`` and ``scatter4``."""
        return self.mode in (AccessMode.TILE_GATHER4, AccessMode.TILE_SCATTER4)

    @property
    def is_wide(self) -> bool:
        """True for ``im2col::w`` and ``im2col::w::128``."""
        return self.mode in (AccessMode.IM2COL_W, AccessMode.IM2COL_W_128)

    @property
    def is_b6p2x16(self) -> bool:
        """True for stores of 6-bit elements."""
        return self.is_store and self.data_type is DataType.PACKED_16U6_ALIGN16B

    def _check_mode(self) -> None:
        """Refuse a mode that does not match the map, the direction or the architecture.

        A load may have a destination for which the architecture has fewer modes.
        """
        d, mode = self.descriptor, self.mode

        shown = f"{mode.name} with a rank-{d.rank} {d.mode.name} map"

        def require_mode(holds: bool, limit: str) -> None:
            require(holds, ErrorCode.MAP_MODE, "mode", mode, limit, shown=shown)

        feature = _STORE_FEATURES.get(mode) if self.is_store else None
        feature = feature or _LOAD_FEATURES.get(mode)
        if feature and not self.arch.has(feature):
            code = ErrorCode.MAP_MODE
            raise missing_feature(code, feature, self.arch, "mode", mode, shown=shown)
        require_mode(mode.map_mode is d.mode, "must be the mode of the map")
        require_mode(d.wide == self.is_wide, "must be im2col::w if the map is wide, and only then")
        if self.is_gather:
            require_mode(d.rank == 2, "needs a map of rank 2")
            flat = not d.interleave and d.box_dim[1] == 1
            require_mode(flat, "needs box_dim[1] = 1 and no interleave")
        if self.is_store:
            loads_only = mode in (AccessMode.TILE_GATHER4, AccessMode.IM2COL_W_128)
            require_mode(not loads_only, "is allowed in loads only")
        else:
            require_mode(mode is not AccessMode.TILE_SCATTER4, "is allowed in stores only")
        if self.is_wide:
            require_mode(not d.interleave, "needs interleave NONE")
            refused = (Swizzle.NONE, Swizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B)
            require_mode(d.swizzle not in refused, f"needs a swizzle other than {refused[1].name}")
        if mode is AccessMode.IM2COL_W_128:
            is_96b = d.swizzle is Swizzle.SWIZZLE_96B
            require_mode(not is_96b, f"needs a swizzle other than {Swizzle.SWIZZLE_96B.name}")

    def _check_direction(self) -> None:
        """Refuse types and swizzles that only the other direction has (PTX ISA)."""

        def refuse_if(broken: bool, field: Named) -> None:
            if broken:
                limit = f"is allowed in {'loads' if self.is_store else 'stores'} only"
                code = ErrorCode.SWIZZLE if field is swizzle else ErrorCode.DATA_TYPE
                error = TmaError(code, code.name.lower(), field, limit, shown=field.name)
                raise error.as_map_field(self.descriptor.words[2])

        kind, swizzle = self.data_type, self.swizzle
        flip = swizzle is Swizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B
        refuse_if(self.is_store and flip, swizzle)
        refuse_if(self.is_store and kind is DataType.PACKED_16U4_ALIGN16B, kind)
        wide_atom = swizzle is Swizzle.SWIZZLE_128B_ATOM_64B
        packed = kind is DataType.PACKED_16U6_ALIGN16B
        refuse_if(not self.is_store and packed and wide_atom, swizzle)

    def _coord_alignment(self) -> int:
        """Return the alignment of ``coords[0]``, in elements."""
        if self.interleaved:
            return 1
        if self.data_type > DataType.PACKED_16U4_ALIGN8B:
            return 64 if self.is_b6p2x16 and self.arch.has(Feature.B6P2X16_START) else 128
        return self._per_piece

    def rows(self, w_halo: int = 0) -> int:
        """Return the rows of a request in shared memory."""
        return self._rows + w_halo * HALO_ROWS.get(self.mode, 0)

    def _rows_without_halo(self) -> int:
        """Return the rows of a request that has no halo."""
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
        """Return the bytes of shared memory from the first to the last that a request may access.

        If rows are packed and end inside a block of the swizzle, the swizzle spreads them over the
        whole block.
        """
        block = self.swizzle.block
        return -(-self.rows(w_halo) * self.pitch // block) * block

    @cached_property
    def footprint(self) -> int:
        """Extent of a request without halo, in bytes."""
        return self.extent()

    def bytes(self, w_halo: int = 0) -> int:
        """Return the bytes that ``complete_tx`` counts.

        Fill counts, gaps between rows do not (silicon). Packed elements count as in global memory.
        """
        return self.rows(w_halo) * self.row_bytes // PIECE * self.piece_bytes

    def positions(self, operands: Operands) -> walk.Positions:
        """Return the start position of each row in the tensor: an array of shape (rank, rows)."""
        d, coords = self.descriptor, operands.coords
        if self.mode is AccessMode.TILE:
            return walk.tile(d, coords)
        if self.is_gather:
            return walk.gather4(coords)
        if self.mode is AccessMode.IM2COL:
            return walk.im2col(d, coords, operands.offsets)
        return walk.im2col_w(d, coords, self.mode, operands.w_halo, operands.w_offset)

    def columns(self, start: int) -> tuple[int, int, int]:
        """Return the pieces of a row that are inside in dimension 0.

        Parameters
        ----------
        start : int
            Coordinate 0 of the box.

        Returns
        -------
        first, last : int
            The pieces from ``first`` to ``last - 1`` are completely inside.
        tail_bytes : int
            Bytes of piece ``last`` that are inside.
        """
        if self.interleaved:
            return 0, self.row_bytes // PIECE, 0
        per = self._per_piece
        low = min(max(0, -start), self.row_elements)
        high = min(max(low, self.limits[0] - start), self.row_elements)
        last, rest = divmod(high, per)
        return low // per, max(last, low // per), rest * self.data_type.bits // 8

    def spread(self, smem_address: int, operands: Operands) -> Spread:
        """Return the addresses of all pieces of a request, which must be legal.

        Parameters
        ----------
        smem_address : int
            Byte offset in shared memory.
        operands : Operands
            Start of the box.
        """
        d = self.descriptor
        positions = self.positions(operands)
        inside = np.ones(positions.shape[1], bool)
        for i in self.bounded:
            inside &= (positions[i] >= 0) & (positions[i] < self.limits[i])
        if self.is_store and self.is_wide:
            inside = np.logical_and.accumulate(inside)  # the store stops at the first pixel outside
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
        """Return the lines that a request accesses in both memories.

        Parameters
        ----------
        smem_address : int
            Byte offset in shared memory.
        coords, offsets : sequence of int
            Start of the box and im2col offsets.
        line_bytes : int
            Bytes of a line.

        Returns
        -------
        gmem, smem : array
            Addresses of distinct lines, divided by ``line_bytes``, in ascending order.
        """
        spread = self.spread(smem_address, Operands(tuple(coords), tuple(offsets)))
        inside = spread.inside > 0
        first = spread.gmem[inside]
        last = first + (spread.inside[inside] - 1).astype(np.uint64)
        gmem = np.concatenate([first, last]) // np.uint64(line_bytes)
        smem = spread.smem[inside] if self.is_store else spread.smem  # a load also writes fill
        return np.unique(gmem), np.unique(smem // line_bytes)
