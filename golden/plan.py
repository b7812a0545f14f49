"""Vectorised tensor requests: a plan is built once for a map and applied at any coordinates.

A plan caches *placements*: the places of all pieces relative to the start of the box. Boxes share a
placement if they meet the tensor's edges and the swizzle's pattern in the same way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from golden import walk
from golden.arch import Arch
from golden.checks import SMEM_ALIGN, check_pair, check_tensor
from golden.descriptor import Descriptor
from golden.enums import PIECE, AccessMode, DataType, OobFill, ReductionOp
from golden.geometry import Geometry, Operands
from golden.memory import ADDRESSES, PIECE_DTYPE, ArrayMemory, Bytes, Memory, Pieces
from golden.reduction import TENSOR_PAIRS, has_nan, operation
from golden.request import AnyMap

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_CACHE_ENTRIES = 512
_NAN_FILL = 0x7FF7

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Placement:
    """Places of the pieces of a box, relative to its start in both memories, in row order.

    *Whole* pieces are completely inside the tensor, *tail* pieces in part, *fill* pieces not at
    all. Offsets in global memory are in bytes from ``low``, in shared memory in pieces.

    Parameters
    ----------
    gmem, smem : array of int64
        Offsets of the whole pieces.
    fill : array of int64
        Offsets of the fill pieces in shared memory.
    tail_gmem, tail_smem : array of int64
        Offsets of the tail pieces.
    tail_bytes : int
        Bytes of each tail piece that are inside.
    dense : bool
        True for a load whose whole pieces cover its shared memory without gaps; they are then
        sorted by their place in shared memory.
    low : int
        Bytes from the start of the box to its lowest byte of global memory.
    span : int
        Bytes from the lowest byte of global memory to the end of the highest piece.
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
        """Bytes of the whole pieces."""
        return self.smem.size * PIECE

    @cached_property
    def pieces(self) -> Indices:
        """Offsets ``gmem``, in pieces."""
        return self.gmem // PIECE

    def subset(self, part: Indices) -> "Placement":
        """Return a placement with only some of the whole pieces."""
        return replace(self, gmem=self.gmem[part], smem=self.smem[part])

    @cached_property
    def rounds(self) -> list[Indices | slice]:
        """Sets of whole pieces, in order; within a set all global addresses are distinct."""
        order = np.argsort(self.gmem, kind="stable")
        ordered = self.gmem[order]
        is_first = np.ones(ordered.size, bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        if is_first.all():
            return [slice(None)]
        index = np.arange(ordered.size)
        starts = np.maximum.accumulate(np.where(is_first, index, 0))
        repeats = np.empty_like(order)
        repeats[order] = index - starts
        return [np.flatnonzero(repeats == n) for n in range(int(repeats.max()) + 1)]


def _remember(cache: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> None:
    """Add an entry to a cache; a full cache loses its oldest entry."""
    if len(cache) >= _CACHE_ENTRIES:
        del cache[next(iter(cache))]
    cache[key] = value


def _placement(
    gmem: Indices, smem: Indices, inside: NDArray[np.int64], piece_bytes: int, keep_order: bool
) -> Placement:
    """Divide pieces, arrays of shape (rows, pieces), into whole, tail and fill pieces."""
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
    """Return the addresses, modulo 2**64, of ``count`` bytes from each offset from ``start``."""
    byte: NDArray[np.uint64] = np.arange(count, dtype=np.uint64)
    first: NDArray[np.uint64] = offsets.view(np.uint64) + np.uint64(start % ADDRESSES)
    return np.add.outer(first, byte)


def round_tf32(
    words: NDArray[np.uint32], out: NDArray[np.uint32] | None = None
) -> NDArray[np.uint32]:
    """Round binary32 words to tf32, to nearest even; any NaN becomes 0x7FFFE000 (silicon).

    The result is written to ``out``, which may be ``words``, or to a new array.
    """
    values = words.view(np.float32)
    nan = np.isnan(values) if has_nan(values) else None
    rounded: NDArray[np.uint32] = words >> np.uint32(13)
    rounded &= np.uint32(1)
    rounded += words
    rounded += np.uint32(0xFFF)
    # Infinities stay unchanged.
    rounded = np.bitwise_and(rounded, np.uint32(0xFFFFE000), out=out)
    if nan is not None:
        rounded[nan] = 0x7FFFE000
    return rounded


class Plan(Geometry):
    """Requests with one tensor map, access mode and direction, prepared for repeated use.

    Parameters and errors are those of `Geometry`.

    Examples
    --------
    >>> import ml_dtypes, numpy as np
    >>> from golden import ArrayMemory, TensorMap
    >>> array = np.arange(256 * 256).astype(ml_dtypes.bfloat16).reshape(256, 256)
    >>> plan = Plan(TensorMap.from_array(array, box=(64, 128), swizzle="128B"))
    >>> smem = np.zeros(plan.footprint, np.uint8)
    >>> plan.load(ArrayMemory.of(array), smem, 0, (64, 0))
    16384
    >>> row0 = smem.view(ml_dtypes.bfloat16)[:64]  # row 0 is unchanged by the swizzle
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
        super().__init__(tensor_map, mode, store=store, arch=arch)
        d = self.descriptor
        self._base = d.global_address
        self._counts, self._strides = walk.steps_of(d), walk.strides_of(d)
        self._start_steps = self._translations()
        self._last_inside = self._last_starts()
        # Number of coordinates of a request that may use the fast path, which needs whole bytes.
        has_fast_path = self.mode is AccessMode.TILE and not self.data_type.is_sub_byte
        self._fast_coord_count = self.coord_count if has_fast_path else -1
        self._rounds = self.data_type.rounds and not store
        self._plain = self.piece_bytes == PIECE and not self.swizzle.flips
        self._operations = [
            operation(op, self.data_type) if (self.data_type, op) in TENSOR_PAIRS else None
            for op in ReductionOp
        ]
        self._word = f"u{self.data_type.itemsize}"
        nan = d.oob_fill is OobFill.NAN_REQUEST_ZERO_FMA
        fill = np.full(PIECE // 2, _NAN_FILL if nan else 0, np.uint16)
        self._fill = fill.view(PIECE_DTYPE)[0]
        self._repeat = self.swizzle.repeat
        self._inside: dict[int, Placement] = {}
        self._placements: dict[tuple[object, ...], Placement] = {}
        self._located: dict[tuple[object, ...], tuple[Placement, int]] = {}

    def _translations(self) -> tuple[int, ...]:
        """Return the bytes of global memory by which each start coordinate moves the whole box.

        0 for a coordinate that selects another placement instead.
        """
        if self.mode is AccessMode.TILE:
            return self.steps
        if self.is_gather:
            return (self.steps[0], 0, 0, 0, 0)
        first = self.bounded.start
        spatial = range(first, first + self.descriptor.rank - 2)
        return tuple(0 if i in spatial else step for i, step in enumerate(self.steps))

    def _last_starts(self) -> tuple[int, ...]:
        """Return the largest start coordinates of a tiled box inside; empty for other modes."""
        if self.mode is not AccessMode.TILE:
            return ()
        edges = zip(self.limits, self._counts, self._strides, strict=True)
        return tuple(limit - 1 - (count - 1) * by for limit, count, by in edges)

    @cached_property
    def _period(self) -> int:
        """Number of positions of an im2col walk in one image."""
        d, first = self.descriptor, self.bounded.start
        walked = zip(
            *(d.global_dim[first:], d.element_strides[first:], d.lower_corner, d.upper_corner),
            strict=False,  # the corners, which only spatial dimensions have, are the shortest
        )
        counts = ((extent - 1 + upper - lower) // by + 1 for extent, by, lower, upper in walked)
        return math.prod(max(count, 1) for count in counts)

    def _start(self, coords: Sequence[int]) -> int:
        """Return the global address that the placement of a box is relative to."""
        start = self._base
        if self.data_type.is_sub_byte:
            start += coords[0] * self.data_type.bits // 8
            coords = (0, *coords[1:])
        start += sum(c * step for c, step in zip(coords, self._start_steps, strict=True))
        return start % ADDRESSES

    def _key(self, operands: Operands, phase: int) -> tuple[object, ...]:
        """Return the key of a placement: how the box meets the tensor's edges, and ``phase``."""
        coords = operands.coords
        columns = self.columns(coords[0])
        if self.mode is AccessMode.TILE:
            key: list[object] = [phase, columns]
            for i in self.bounded:
                start, by, count = coords[i], self._strides[i], self._counts[i]
                if not 0 <= start <= self._last_inside[i]:
                    low = min(max(0, -(start // by)), count)
                    high = min(max(low, -((start - self.limits[i]) // by)), count)
                    key.append((i, low, high))
            return tuple(key)
        if self.is_gather:
            return (phase, columns, coords[1:])
        image = coords[-1]
        # No walk goes beyond this image.
        last = image + self._strides[-1] * (self.rows(operands.w_halo) // self._period + 1)
        edge_image = image if image < 0 or last >= self.limits[-1] else None
        inner = coords[self.bounded.start : -1]
        walk_operands = (operands.offsets, operands.w_halo, operands.w_offset)
        return (phase, columns, edge_image, inner, *walk_operands)

    def _place(self, operands: Operands, phase: int) -> Placement:
        """Return the placement of a box that starts ``phase`` bytes into the swizzle's pattern."""
        spread = self.spread(phase, operands)
        start = np.uint64(self._start(operands.coords))
        gmem = (spread.gmem - start).view(np.int64)
        smem = (spread.smem - phase) // PIECE
        return _placement(gmem, smem, spread.inside, self.piece_bytes, self.is_store)

    def _placed(self, operands: Operands, smem_address: int) -> tuple[Placement, int]:
        """Return the placement of a legal request, and the address that it is relative to."""
        phase = smem_address % self._repeat
        key = self._key(operands, phase)
        placement = self._placements.get(key)
        if placement is None:
            placement = self._place(operands, phase)
            _remember(self._placements, key, placement)
        return placement, self._start(operands.coords)

    def gmem_pieces(
        self, coords: Sequence[int], offsets: Sequence[int] = (), w_halo: int = 0, w_offset: int = 0
    ) -> tuple[int, Placement]:
        """Return which pieces of global memory a request touches, without a check of its operands.

        Returns
        -------
        start : int
            Address that the placement is relative to.
        placement : Placement
            ``gmem`` and ``tail_gmem`` are offsets in bytes from ``start`` + ``low``.
        """
        operands = Operands(tuple(coords), tuple(offsets), w_halo, w_offset)
        placement, start = self._placed(operands, 0)
        return start, placement

    def _locate(
        self,
        smem: Bytes,
        smem_address: int,
        coords: Sequence[int],
        offsets: Sequence[int],
        w_halo: int,
        w_offset: int,
    ) -> tuple[Placement, int]:
        """Check a request; return its placement and start. A tiled box inside takes a fast path."""
        if (
            len(coords) == self._fast_coord_count
            and not smem_address % SMEM_ALIGN
            and 0 <= smem_address <= smem.size - self.footprint
            and not coords[0] % self.coord_align
            and not offsets
        ):
            start = self._base
            for coord, last, step in zip(coords, self._last_inside, self._start_steps):  # noqa: B905 - strict is slow
                if not 0 <= coord <= last:
                    break
                start += coord * step
            else:
                phase = smem_address % self._repeat
                placement = self._inside.get(phase)
                if placement is None:
                    operands = Operands(tuple(coords))
                    placement = self._inside[phase] = self._placed(operands, smem_address)[0]
                return placement, start % ADDRESSES
        key = (smem_address, smem.size, tuple(coords), tuple(offsets), w_halo, w_offset)
        located = self._located.get(key)
        if located is None:
            operands = Operands(*key[2:])
            check_tensor(self, operands, smem_address, smem.size)
            located = self._placed(operands, smem_address)
            _remember(self._located, key, located)
        return located

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
            Global memory; it is read only inside the tensor.
        smem : ndarray
            The CTA's shared-memory window: contiguous, of uint8.
        smem_address : int
            Byte offset in ``smem``, a multiple of 128.
        coords : sequence of int
            Start of the box, in elements, innermost first; any int32. Elements of the box outside
            the tensor are filled.
        offsets : sequence of int
            im2col offsets, W first; an empty sequence is zeros.
        w_halo, w_offset : int
            Halo and offset of ``im2col::w``.

        Returns
        -------
        int
            Number of bytes that ``complete_tx`` counts.

        Raises
        ------
        TmaError
            If the unit refuses the request. Nothing is written.
        ValueError
            If the plan is for stores.
        """
        if self.is_store:
            raise ValueError("this plan was made for stores: a load needs Plan(..., store=False)")
        placement, start = self._locate(smem, smem_address, coords, offsets, w_halo, w_offset)
        if not self._plain:
            self._load_bytes(placement, start, gmem, smem, smem_address)
            return self.bytes(w_halo)
        if placement.dense:
            size = placement.size
            out = smem[smem_address : smem_address + size].view(PIECE_DTYPE)
            self._gather(gmem, start, placement, self._window(gmem, start, placement), out)
            if self._rounds:
                self._round_in_place(out)
            return size
        size = self.extent(w_halo) if w_halo else self.footprint
        pieces = smem[smem_address : smem_address + size].view(PIECE_DTYPE)
        inside = self._gather(gmem, start, placement, self._window(gmem, start, placement))
        if self._rounds:
            self._round_in_place(inside)
        tails = self._tails(gmem, start, placement)
        pieces[placement.fill] = self._fill
        pieces[placement.smem] = inside
        if tails is not None:
            pieces[placement.tail_smem] = tails
        return self.bytes(w_halo)

    def _window(self, gmem: Memory, start: int, placement: Placement) -> Pieces | None:
        """Return a view of the array's pieces from the lowest one of a box; None: no fast path."""
        if isinstance(gmem, ArrayMemory) and self.piece_bytes == PIECE:
            return gmem.at(start + placement.low, placement.span)
        return None

    def _gather(
        self,
        gmem: Memory,
        start: int,
        placement: Placement,
        window: Pieces | None,
        out: Pieces | None = None,
    ) -> Pieces:
        """Read all whole pieces."""
        if not placement.gmem.size:
            return np.empty(0, PIECE_DTYPE)
        if window is not None:
            # No index is out of range; "clip" avoids the copy that "raise" makes.
            return window.take(placement.pieces, None, out, "clip")
        read = gmem.read(_addresses(start + placement.low, placement.gmem, PIECE))
        data = np.ascontiguousarray(read).view(PIECE_DTYPE).reshape(-1)
        if out is not None:
            out[:] = data
        return data

    def _tails(self, gmem: Memory, start: int, placement: Placement) -> Pieces | None:
        """Read the tail pieces and fill the rest of each; None if there are none."""
        count = placement.tail_gmem.size
        if not count:
            return None
        tails = np.full(count, self._fill, PIECE_DTYPE)
        size = placement.tail_bytes
        read = gmem.read(_addresses(start + placement.low, placement.tail_gmem, size))
        if self._rounds:
            read = round_tf32(np.ascontiguousarray(read).view(np.uint32)).view(np.uint8)
        tails.view(np.uint8).reshape(count, PIECE)[:, :size] = read
        return tails

    def _round_in_place(self, pieces: Pieces) -> None:
        """Round pieces to tf32."""
        words = pieces.view(np.uint32)
        round_tf32(words, out=words)

    def _smem_bytes(self, address: int, pieces: Indices, count: int) -> Indices:
        """Return the addresses of the first ``count`` bytes of each piece: (pieces, count)."""
        byte = np.arange(count, dtype=np.int64)
        start = address + pieces[:, None] * PIECE
        return start + (byte ^ (start >> 4 & 8) if self.swizzle.flips else byte)

    def _load_bytes(
        self, p: Placement, start: int, gmem: Memory, smem: Bytes, address: int
    ) -> None:
        """Load byte by byte: packed types, and swizzles that exchange the halves of a piece."""
        size = self.piece_bytes
        inside = gmem.read(_addresses(start + p.low, p.gmem, size))
        tails = self._tails(gmem, start, p)
        if self._rounds:
            inside = round_tf32(np.ascontiguousarray(inside).view(np.uint32)).view(np.uint8)
        fill = np.frombuffer(self._fill.tobytes(), np.uint8)[:size]
        smem[self._smem_bytes(address, p.fill, size)] = fill
        smem[self._smem_bytes(address, p.smem, size)] = inside
        if tails is not None:
            data = tails.view(np.uint8).reshape(-1, PIECE)
            smem[self._smem_bytes(address, p.tail_smem, PIECE)] = data

    def _locate_store(
        self, smem: Bytes, smem_address: int, coords: Sequence[int]
    ) -> tuple[Placement, int]:
        """Check a store or reduction; return its placement and start."""
        if not self.is_store:
            raise ValueError("this plan was made for loads: a store needs Plan(..., store=True)")
        return self._locate(smem, smem_address, coords, (), 0, 0)

    def store(self, gmem: Memory, smem: Bytes, smem_address: int, coords: Sequence[int]) -> None:
        """Store the box at ``coords``; elements outside the tensor are dropped (silicon).

        Parameters are those of ``load``. Where rows of global memory overlap, the last row wins.

        Raises
        ------
        TmaError
            If the unit refuses the request. Nothing is written.
        ValueError
            If the plan is for loads.
        """
        placement, start = self._locate_store(smem, smem_address, coords)
        source = smem[smem_address : smem_address + self.footprint].view(PIECE_DTYPE)
        window = self._window(gmem, start, placement)
        self._scatter(gmem, start, placement, window, source.take(placement.smem))

    def reduce(
        self,
        op: ReductionOp,
        gmem: Memory,
        smem: Bytes,
        smem_address: int,
        coords: Sequence[int],
    ) -> None:
        """Reduce the box at ``coords`` into global memory, element by element (silicon).

        Parameters are the operation and those of ``load``.

        Raises
        ------
        TmaError
            If the unit refuses the request. Nothing is written.
        ValueError
            If the plan is for loads.
        """
        placement, start = self._locate_store(smem, smem_address, coords)
        combine = self._operations[op]
        if combine is None:
            check_pair(self.data_type, op, TENSOR_PAIRS)
        if combine is None or not placement.gmem.size:
            return
        source = smem[smem_address : smem_address + self.footprint].view(PIECE_DTYPE)
        operands = source.take(placement.smem)
        word = self._word
        for part in placement.rounds:
            pieces = placement if isinstance(part, slice) else placement.subset(part)
            window = self._window(gmem, start, pieces)
            memory = self._gather(gmem, start, pieces, window)
            result = combine(memory.view(word), operands[part].view(word)).view(PIECE_DTYPE)
            self._scatter(gmem, start, pieces, window, result)

    def _scatter(
        self, gmem: Memory, start: int, placement: Placement, window: Pieces | None, data: Pieces
    ) -> None:
        """Write all whole pieces."""
        if window is not None:
            window[placement.pieces] = data
            return
        size = self.piece_bytes
        written = data.view(np.uint8).reshape(-1, PIECE)
        if self.data_type is DataType.PACKED_16U6_ALIGN16B:
            bits = np.unpackbits(written, axis=1, bitorder="little").reshape(-1, PIECE, 8)
            written = np.packbits(bits[:, :, :6].reshape(-1, PIECE * 6), axis=1, bitorder="little")
        gmem.write(_addresses(start + placement.low, placement.gmem, size), written)


@lru_cache(maxsize=256)
def plan_of(descriptor: Descriptor, mode: AccessMode | None, store: bool, arch: Arch) -> Plan:
    """Return the plan of a map; equal arguments share one plan."""
    return Plan(descriptor, mode, store=store, arch=arch)
