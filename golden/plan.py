"""Tensor requests, vectorised: a plan is made once of a map, and applied at any coordinates.

Everything is a matter of 16-byte pieces: base, strides, rows and the start of a box are multiples
of 16 bytes, so each piece of shared memory is one piece of global memory (of fewer bytes for packed
types), and the swizzle moves whole pieces. A plan keeps the places of all pieces relative to where
the box starts, one set for each way in which it meets the tensor's edges.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from golden import walk
from golden.checks import SMEM_ALIGN, Operands, check_pair, check_tensor
from golden.descriptor import Descriptor, as_descriptor
from golden.enums import (
    LINE,
    PIECE,
    AccessMode,
    Arch,
    DataType,
    MapMode,
    OobFill,
    ReductionOp,
    Swizzle,
)
from golden.errors import ErrorCode, TmaError
from golden.map_rules import check_map, require, row_bytes
from golden.memory import PIECE_DTYPE, ArrayMemory, Bytes, Memory, Pieces
from golden.reduction import TENSOR_PAIRS, reduced
from golden.request import AnyMap

ADDRESSES = 1 << 64

_PLACEMENTS = 512
_NAN_FILL = 0x7FF7

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Spread:
    """All pieces of a request, arrays of shape (rows, pieces in a row).

    ``gmem``, ``smem``: byte addresses, in shared memory after the swizzle. ``inside``: how many
    bytes of the piece are inside the tensor.
    """

    gmem: NDArray[np.uint64]
    smem: NDArray[np.int64]
    inside: NDArray[np.int64]


@dataclass(frozen=True)
class Placement:
    """Where the pieces of a box lie, relative to its start in both memories, in row order.

    ``gmem``: bytes from ``low`` to pieces that are all inside; ``smem``: their pieces in shared
    memory. ``fill``: pieces of shared memory that are all outside. ``tail_gmem``, ``tail_smem``:
    pieces of which ``tail_bytes`` are inside. ``dense``, of loads: all of shared memory from the
    first to the last piece is inside, and the pieces are sorted by it. ``low``, ``span``: bytes
    from the start to the lowest byte of global memory, and from it to the highest.
    """

    gmem: Indices
    smem: Indices
    fill: Indices
    tail_gmem: Indices
    tail_smem: Indices
    tail_bytes: int
    dense: bool
    low: int
    span: int

    @cached_property
    def size(self) -> int:
        """Bytes of shared memory that are inside."""
        return self.smem.size * PIECE

    @cached_property
    def pieces(self) -> Indices:
        """``gmem`` in pieces."""
        return self.gmem // PIECE

    def only(self, part: Indices) -> "Placement":
        """Some of the pieces that are inside."""
        return replace(self, gmem=self.gmem[part], smem=self.smem[part])

    @cached_property
    def rounds(self) -> list[Indices | slice]:
        """Sets of pieces, none of which has the same global address twice, in order."""
        order = np.argsort(self.gmem, kind="stable")
        ordered = self.gmem[order]
        new = np.ones(ordered.size, bool)
        new[1:] = ordered[1:] != ordered[:-1]
        if new.all():
            return [slice(None)]
        starts = np.maximum.accumulate(np.where(new, np.arange(new.size), 0))
        repeats = np.empty_like(order)
        repeats[order] = np.arange(new.size) - starts
        return [np.flatnonzero(repeats == n) for n in range(int(repeats.max()) + 1)]


def _placement(
    gmem: Indices, smem: Indices, inside: NDArray[np.int64], piece_bytes: int, keep_order: bool
) -> Placement:
    """Sort pieces, arrays of shape (rows, pieces), by how much of them is inside."""
    whole = inside == piece_bytes
    tail = (inside > 0) & ~whole
    tail_bytes = int(inside[tail].max(initial=0))
    dense = not keep_order and bool(whole.all()) and smem.size == int(smem.max()) + 1
    parts = gmem[whole], gmem[tail]
    low = min((int(part.min()) for part in parts if part.size), default=0)
    ends = zip(parts, (piece_bytes, tail_bytes), strict=True)
    high = max((int(part.max()) + size for part, size in ends if part.size), default=low)
    order = np.argsort(smem.ravel()) if dense else slice(None)
    return Placement(
        gmem=parts[0][order] - low,
        smem=smem[whole][order],
        fill=smem[inside == 0],
        tail_gmem=parts[1] - low,
        tail_smem=smem[tail],
        tail_bytes=tail_bytes,
        dense=dense,
        low=low,
        span=high - low,
    )


def _addresses(start: int, offsets: Indices, count: int) -> NDArray[np.uint64]:
    """Byte addresses of ``count`` bytes each at offsets from ``start``, modulo 2**64."""
    byte: NDArray[np.uint64] = np.arange(count, dtype=np.uint64)
    first: NDArray[np.uint64] = offsets.view(np.uint64) + np.uint64(start % ADDRESSES)
    return np.add.outer(first, byte)


def swizzled(addresses: NDArray[np.int64], swizzle: Swizzle) -> NDArray[np.int64]:
    """Shared-memory byte addresses after the swizzle (modes 0 to 3: silicon; others: PTX ISA)."""
    moved = addresses ^ (addresses >> swizzle.shift & swizzle.mask)
    return moved ^ (addresses >> 4 & 8) if swizzle.flips else moved


def round_tf32(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Round binary32 words to tf32, to nearest even; any NaN becomes 0x7FFFE000 (silicon)."""
    odd = words >> np.uint32(13) & np.uint32(1)
    rounded = (words + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)
    magnitude = words & np.uint32(0x7FFFFFFF)
    special = magnitude >= np.uint32(0x7F800000)
    if special.any():
        rounded = np.where(special, words, rounded)
        rounded = np.where(magnitude > 0x7F800000, np.uint32(0x7FFFE000), rounded)
    return rounded


class Plan:
    """A tensor map, an access mode and a direction, made ready to be applied many times.

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

    Raises
    ------
    TmaError
        MAP_FIELD or MAP_MODE.

    Examples
    --------
    >>> import ml_dtypes, numpy as np
    >>> from golden import ArrayMemory, TensorMap
    >>> array = np.arange(256 * 256).astype(ml_dtypes.bfloat16).reshape(256, 256)
    >>> plan = Plan(TensorMap.from_array(array, box=(64, 128), swizzle="128B"))
    >>> smem = np.zeros(plan.footprint, np.uint8)
    >>> plan.load(ArrayMemory.of(array), smem, 0, (64, 0))
    16384
    >>> row0 = smem.view(ml_dtypes.bfloat16)[:64]  # not moved by the swizzle
    >>> bool((row0 == array[0, 64:128]).all())
    True
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
        self.mode = AccessMode(int(d.mode)) if mode is None else mode
        self._check_mode(arch)
        assert d.data_type is not None
        assert d.interleave is not None
        assert d.swizzle is not None
        self.data_type: DataType = d.data_type
        self.swizzle: Swizzle = d.swizzle
        self.interleaved = bool(d.interleave)
        self._check_direction()
        rank = d.rank
        extent = d.channels_per_pixel if d.mode is MapMode.IM2COL else d.box_dim[0]
        unit = PIECE * d.interleave
        self.row_bytes = unit or row_bytes(self.data_type, extent)
        """Bytes that a row takes up in shared memory, without a gap behind it."""
        self.elements_per_piece = PIECE * 8 // self.data_type.smem_bits
        self.piece_bytes = self.elements_per_piece * self.data_type.bits // 8
        """Bytes of global memory for a piece of shared memory."""
        self.row_elements = 1 if self.interleaved else extent
        span = None if self.interleaved else d.swizzle.span
        self.pitch = span or self.row_bytes
        self.steps = (unit, *d.global_strides[: rank - 1])
        """Bytes of global memory of a position in each dimension; entry 0 with interleave only."""
        self._limits = [*d.global_dim[:rank]]
        if store and not self.interleaved:
            pieces = -(-self._limits[0] // self.elements_per_piece)
            self._limits[0] = pieces * self.elements_per_piece
        self.coords = 5 if self._is_gather else rank
        """Coordinates that the instruction has."""
        self._base = d.global_address
        self._bounded = range(0 if self.interleaved else 1, rank)
        """Dimensions in which a row is inside or outside as a whole."""
        self._counts, self._strides = walk.steps_of(d), walk.strides_of(d)
        self._translations = self._moves()
        self._tops = self._interior()
        self.coord_align = self._coord_alignment()
        self._rounds = self.data_type.rounds and not store
        self._fill = np.frombuffer(
            np.full(8, _NAN_FILL, "<u2").tobytes()
            if d.oob_fill is OobFill.NAN_REQUEST_ZERO_FMA
            else bytes(PIECE),
            PIECE_DTYPE,
        )[0]
        self._repeat = self.swizzle.repeat
        self._placements: dict[tuple[object, ...], Placement] = {}
        self._inside: dict[int, Placement] = {}
        self._plain = self.piece_bytes == PIECE and not self.swizzle.flips

    # What is fixed by the map

    @property
    def _is_gather(self) -> bool:
        return self.mode in (AccessMode.TILE_GATHER4, AccessMode.TILE_SCATTER4)

    @property
    def _is_wide(self) -> bool:
        return self.mode in (AccessMode.IM2COL_W, AccessMode.IM2COL_W_128)

    def _check_mode(self, arch: Arch) -> None:
        d, mode = self.descriptor, self.mode

        def must(holds: bool, limit: str) -> None:
            shown = f"{mode.name} with a rank-{d.rank} {d.mode.name} map"
            require(holds, ErrorCode.MAP_MODE, "mode", d.rank, limit, shown=shown)

        must(mode.map_mode is d.mode, "must be the mode of the map")
        must(d.wide == self._is_wide, "must be im2col::w with a map for it, and with no other")
        if mode > AccessMode.IM2COL:
            must(arch >= Arch.SM_100A, "must be TILE or IM2COL on SM_90A")
        if self._is_gather:
            must(d.rank == 2, "must be of rank 2")
            must(not d.interleave and d.box_dim[1] == 1, "needs box_dim[1] = 1 and no interleave")
        scatter = mode is AccessMode.TILE_SCATTER4
        must(scatter <= self.is_store, "is a store")
        must(not (self.is_store and mode is AccessMode.TILE_GATHER4), "is a load")
        must(not (self.is_store and mode is AccessMode.IM2COL_W_128), "is a load")
        if self._is_wide:
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

    def _moves(self) -> tuple[int, ...]:
        """Bytes of global memory by which a start coordinate moves the whole box.

        0 where it makes another placement instead. Entry 0 is of a piece, if of less than a byte.
        """
        steps = [self.data_type.bits // 8, *self.steps[1:]]
        if self.interleaved:
            steps[0] = self.steps[0]
        if self.mode is AccessMode.TILE:
            return tuple(steps)
        if self._is_gather:
            return (steps[0], 0, 0, 0, 0)
        first = 0 if self.interleaved else 1
        for i in range(first, first + self.descriptor.rank - 2):
            steps[i] = 0
        return tuple(steps)

    def _interior(self) -> tuple[int, ...]:
        """The greatest start coordinates of a tiled box that is inside; empty: look closer."""
        if self.mode is not AccessMode.TILE or self.data_type.is_sub_byte:
            return ()
        edges = zip(self._limits, self._counts, self._strides, strict=True)
        return tuple(limit - 1 - (count - 1) * by for limit, count, by in edges)

    def _coord_alignment(self) -> int:
        """What ``coords[0]`` is a multiple of (silicon; packed types: PTX ISA)."""
        if self.interleaved:
            return 1
        if self.data_type > DataType.PACKED_16U4_ALIGN8B:
            return 128
        return self.elements_per_piece

    def rows(self, w_halo: int = 0) -> int:
        """Rows of shared memory."""
        d = self.descriptor
        match self.mode:
            case AccessMode.TILE:
                return math.prod(self._counts[self._bounded.start :])
            case AccessMode.TILE_GATHER4 | AccessMode.TILE_SCATTER4:
                return 4
            case AccessMode.IM2COL_W_128:
                return walk.PIXELS_W_128 + 4 * w_halo
        return d.pixels_per_column + w_halo

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

    # What depends on the request

    def positions(self, operands: Operands) -> walk.Positions:
        """Where each row starts in the tensor: an array of shape (rank, rows)."""
        d, coords = self.descriptor, operands.coords
        if self.mode is AccessMode.TILE:
            return walk.tile(d, coords)
        if self._is_gather:
            return walk.gather4(coords)
        if self.mode is AccessMode.IM2COL:
            return walk.im2col(d, coords, operands.offsets)
        return walk.im2col_w(d, coords, self.mode, operands.w_halo, operands.w_offset)

    def _columns(self, start: int) -> tuple[int, int, int]:
        """Pieces of a row from the first inside to the first that is not all inside, and the bytes
        that are inside of that one.
        """
        if self.interleaved:
            return 0, self.row_bytes // PIECE, 0
        per = self.elements_per_piece
        low = min(max(0, -start), self.row_elements)
        high = min(max(low, self._limits[0] - start), self.row_elements)
        last, rest = divmod(high, per)
        return low // per, max(last, low // per), rest * self.data_type.bits // 8

    def _start(self, coords: Sequence[int]) -> int:
        """Address of the start of the box, as far as placements are relative to it."""
        start = self._base
        if self.data_type.is_sub_byte:
            start += coords[0] * self.data_type.bits // 8
            coords = (0, *coords[1:])
        start += sum(c * step for c, step in zip(coords, self._translations, strict=True))
        return start % ADDRESSES

    def _images(self, rows: int) -> int:
        """Most images that a walk of im2col goes on by."""
        d = self.descriptor
        if self._is_wide:
            extents = [d.global_dim[1]]
            strides = [d.element_strides[1]]
        else:
            first = 0 if self.interleaved else 1
            extents = list(d.global_dim[first : d.rank - 1])
            strides = list(d.element_strides[first : d.rank - 1])
        period = 1
        for extent, by, lower, upper in zip(
            extents, strides, d.lower_corner, d.upper_corner, strict=False
        ):
            period *= max((extent - 1 + upper - lower) // by + 1, 1)
        return rows // period + 1

    def _key(self, operands: Operands, phase: int) -> tuple[object, ...]:
        """What of the operands a placement depends on: how the box meets the tensor's edges."""
        coords, d = operands.coords, self.descriptor
        columns = self._columns(coords[0])
        if self.mode is AccessMode.TILE:
            key: list[object] = [phase, columns]
            for i in self._bounded:
                start, by, count = coords[i], self._strides[i], self._counts[i]
                if start < 0 or start > self._limits[i] - 1 - (count - 1) * by:
                    low = min(max(0, -(start // by)), count)
                    high = min(max(low, -((start - self._limits[i]) // by)), count)
                    key.append((i, low, high))
            return tuple(key)
        if self._is_gather:
            return (phase, columns, coords[1:])
        image, by = coords[-1], d.element_strides[d.rank - 1]
        last = image + by * self._images(self.rows(operands.w_halo))
        at: object = image if image < 0 or last >= d.global_dim[d.rank - 1] else None
        fixed = coords[: d.rank - 1] if self.interleaved else coords[1 : d.rank - 1]
        more = (operands.offsets, operands.w_halo, operands.w_offset)
        return (phase, columns, at, fixed, *more)

    def spread(self, smem_address: int, operands: Operands) -> Spread:
        """Where every piece of a request lies in both memories, and how much of it is inside.

        The request is taken to be legal.
        """
        d = self.descriptor
        positions = self.positions(operands)
        inside = np.ones(positions.shape[1], bool)
        for i in self._bounded:
            inside &= (positions[i] >= 0) & (positions[i] < self._limits[i])
        if self.is_store and self._is_wide:
            inside = np.logical_and.accumulate(inside)  # stops at the first pixel outside
        start = d.global_address
        if not self.interleaved:
            start += operands.coords[0] * self.data_type.bits // 8
        rows = np.full(inside.size, start % ADDRESSES, np.uint64)
        for i in self._bounded:
            rows += positions[i].astype(np.uint64) * np.uint64(self.steps[i])  # modulo 2**64
        column = np.arange(self.row_bytes // PIECE, dtype=np.int64)
        row = np.arange(inside.size, dtype=np.int64)[:, None]
        first, last, tail_bytes = self._columns(operands.coords[0])
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
        return np.unique(gmem), np.unique(spread.smem // line_bytes)

    def _place(self, operands: Operands, phase: int) -> Placement:
        """Where the pieces lie, relative to a start that is ``phase`` into the pattern."""
        spread = self.spread(phase, operands)
        start = np.uint64(self._start(operands.coords))
        gmem = (spread.gmem - start).view(np.int64)
        smem = (spread.smem - phase) // PIECE
        return _placement(gmem, smem, spread.inside, self.piece_bytes, self.is_store)

    def _find(self, operands: Operands, smem_address: int) -> tuple[Placement, int]:
        """The placement of a request that was checked, and the address that it is relative to."""
        phase = smem_address % self._repeat
        key = self._key(operands, phase)
        placement = self._placements.get(key)
        if placement is None:
            if len(self._placements) >= _PLACEMENTS:
                del self._placements[next(iter(self._placements))]
            placement = self._placements[key] = self._place(operands, phase)
        return placement, self._start(operands.coords)

    def _locate(
        self,
        smem: Bytes,
        smem_address: int,
        coords: Sequence[int],
        offsets: Sequence[int],
        w_halo: int,
        w_offset: int,
    ) -> tuple[Placement, int]:
        """Check a request and find its placement; at once for a tiled box that is all inside."""
        tops = self._tops
        if (
            len(coords) == len(tops)
            and not smem_address % SMEM_ALIGN
            and 0 <= smem_address <= smem.size - self.footprint
            and not coords[0] % self.coord_align
            and not offsets
        ):
            start = self._base
            for coord, top, step in zip(coords, tops, self._translations):  # noqa: B905 - is slow
                if not 0 <= coord <= top:
                    break
                start += coord * step
            else:
                phase = smem_address % self._repeat
                placement = self._inside.get(phase)
                if placement is None:
                    operands = Operands(tuple(coords))
                    placement = self._inside[phase] = self._find(operands, smem_address)[0]
                return placement, start % ADDRESSES
        operands = Operands(tuple(coords), tuple(offsets), w_halo, w_offset)
        check_tensor(self, operands, smem_address, smem.size)
        return self._find(operands, smem_address)

    def load(
        self,
        gmem: Memory,
        smem: Bytes,
        smem_address: int,
        coords: Sequence[int],
        offsets: Sequence[int] = (),
        w_halo: int = 0,
        w_offset: int = 0,
    ) -> int:
        """Load the box at ``coords`` (tile and im2col: silicon; other modes: PTX ISA).

        Parameters
        ----------
        gmem : Memory
            Read inside the tensor only.
        smem : ndarray
            The shared-memory window, contiguous, of uint8; its length is the limit.
        smem_address : int
            Byte offset, a multiple of 128.
        coords : sequence of int
            Innermost first, in elements, any int32. What is outside the tensor is filled.
        offsets : sequence of int
            Of im2col, W first; none is zeros.
        w_halo, w_offset : int
            Of ``im2col::w``.

        Returns
        -------
        int
            The bytes that ``complete_tx`` counts.

        Raises
        ------
        TmaError
            If the unit refuses the request. Nothing is written.
        """
        placement, start = self._locate(smem, smem_address, coords, offsets, w_halo, w_offset)
        if not self._plain:
            self._load_bytes(placement, start, gmem, smem, smem_address)
            return self.bytes(w_halo)
        if placement.dense:
            size = placement.size
            out = smem[smem_address : smem_address + size].view(PIECE_DTYPE)
            self._converted(self._gathered(gmem, start, placement, out))
            return size
        size = self.extent(w_halo) if w_halo else self.footprint
        pieces = smem[smem_address : smem_address + size].view(PIECE_DTYPE)
        inside = self._converted(self._gathered(gmem, start, placement))
        tails = self._tails(gmem, start, placement)
        pieces[placement.fill] = self._fill
        pieces[placement.smem] = inside
        if tails is not None:
            pieces[placement.tail_smem] = tails
        return self.bytes(w_halo)

    def _gathered(
        self, gmem: Memory, start: int, placement: Placement, out: Pieces | None = None
    ) -> Pieces:
        """Read all pieces that are inside."""
        if isinstance(gmem, ArrayMemory):
            first = (start + placement.low - gmem.base) % ADDRESSES
            if first + placement.span <= gmem.pieces.nbytes:
                # Clipping does nothing here; raising would make a copy.
                return gmem.pieces[first // PIECE :].take(placement.pieces, out=out, mode="clip")
        found = gmem.read(_addresses(start + placement.low, placement.gmem, PIECE))
        pieces = np.ascontiguousarray(found).view(PIECE_DTYPE).reshape(-1)
        if out is not None:
            out[:] = pieces
            return out
        return pieces

    def _tails(self, gmem: Memory, start: int, placement: Placement) -> Pieces | None:
        """Read the pieces that are partly inside, and fill the rest of them."""
        count = placement.tail_gmem.size
        if not count:
            return None
        tails = np.full(count, self._fill, PIECE_DTYPE)
        some = placement.tail_bytes
        found = gmem.read(_addresses(start + placement.low, placement.tail_gmem, some))
        if self._rounds:
            found = round_tf32(np.ascontiguousarray(found).view(np.uint32)).view(np.uint8)
        tails.view(np.uint8).reshape(count, PIECE)[:, :some] = found
        return tails

    def _converted(self, pieces: Pieces) -> Pieces:
        """Round in place what is rounded."""
        if self._rounds:
            words = pieces.view(np.uint32)
            words[:] = round_tf32(words)
        return pieces

    def _smem_bytes(self, address: int, pieces: Indices, count: int) -> Indices:
        """Byte addresses of the first ``count`` bytes of each piece, an array (pieces, count)."""
        byte = np.arange(count, dtype=np.int64)
        start = address + pieces[:, None] * PIECE
        return start + (byte ^ (start >> 4 & 8) if self.swizzle.flips else byte)

    def _load_bytes(
        self, p: Placement, start: int, gmem: Memory, smem: Bytes, address: int
    ) -> None:
        """Load pieces that have fewer bytes in global memory, or whose halves change places."""
        some = self.piece_bytes
        inside = gmem.read(_addresses(start + p.low, p.gmem, some))
        tails = self._tails(gmem, start, p)
        if self._rounds:
            inside = round_tf32(np.ascontiguousarray(inside).view(np.uint32)).view(np.uint8)
        fill = np.frombuffer(self._fill.tobytes(), np.uint8)[:some]
        smem[self._smem_bytes(address, p.fill, some)] = fill
        smem[self._smem_bytes(address, p.smem, some)] = inside
        if tails is not None:
            data = tails.view(np.uint8).reshape(-1, PIECE)
            smem[self._smem_bytes(address, p.tail_smem, PIECE)] = data

    def store(self, gmem: Memory, smem: Bytes, smem_address: int, coords: Sequence[int]) -> None:
        """Store the box at ``coords``; what is outside the tensor is dropped (silicon).

        Parameters as for ``load``. Where rows of global memory overlap, the last row is left.

        Raises
        ------
        TmaError
            If the unit refuses the request. Nothing is written.
        """
        placement, start = self._locate(smem, smem_address, coords, (), 0, 0)
        source = smem[smem_address : smem_address + self.footprint].view(PIECE_DTYPE)
        self._scatter(gmem, start, placement, source.take(placement.smem))

    def reduce(
        self,
        op: ReductionOp,
        gmem: Memory,
        smem: Bytes,
        smem_address: int,
        coords: Sequence[int],
    ) -> None:
        """Reduce the box at ``coords`` into global memory, element by element (silicon).

        Parameters as for ``load``, and the operation.

        Raises
        ------
        TmaError
            If the unit refuses the request. Nothing is written.
        """
        placement, start = self._locate(smem, smem_address, coords, (), 0, 0)
        check_pair(self.data_type, op, TENSOR_PAIRS)
        source = smem[smem_address : smem_address + self.footprint].view(PIECE_DTYPE)
        operands = source.take(placement.smem)
        word = f"u{self.data_type.itemsize}"
        for part in placement.rounds:
            some = placement if isinstance(part, slice) else placement.only(part)
            memory = self._gathered(gmem, start, some).view(word)
            result = reduced(op, self.data_type, memory, operands[part].view(word))
            self._scatter(gmem, start, some, result.view(PIECE_DTYPE))

    def _scatter(self, gmem: Memory, start: int, placement: Placement, data: Pieces) -> None:
        """Write all pieces that are inside."""
        if self.piece_bytes == PIECE and isinstance(gmem, ArrayMemory):
            first = (start + placement.low - gmem.base) % ADDRESSES
            if first + placement.span <= gmem.pieces.nbytes:
                gmem.pieces[first // PIECE :][placement.pieces] = data
                return
        some = self.piece_bytes
        found = data.view(np.uint8).reshape(-1, PIECE)
        if self.data_type is DataType.PACKED_16U6_ALIGN16B:
            bits = np.unpackbits(found, axis=1, bitorder="little").reshape(-1, PIECE, 8)
            found = np.packbits(bits[:, :, :6].reshape(-1, PIECE * 6), axis=1, bitorder="little")
        gmem.write(_addresses(start + placement.low, placement.gmem, some), found)


@lru_cache(maxsize=256)
def plan_of(descriptor: Descriptor, mode: AccessMode | None, store: bool, arch: Arch) -> Plan:
    """The plan of a map's words, made once."""
    return Plan(descriptor, mode, store=store, arch=arch)
