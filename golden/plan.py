"""Tensor requests, vectorised: a plan is made once of a map, and applied at any coordinates.

A plan keeps the places of all pieces relative to where the box starts, one set for each way in
which it meets the tensor's edges and the swizzle's pattern.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from golden import walk
from golden.checks import SMEM_ALIGN, check_pair, check_tensor
from golden.descriptor import Descriptor
from golden.enums import PIECE, AccessMode, Arch, DataType, OobFill, ReductionOp
from golden.geometry import Geometry, Operands
from golden.memory import ADDRESSES, PIECE_DTYPE, ArrayMemory, Bytes, Memory, Pieces
from golden.reduction import TENSOR_PAIRS, has_nan, operation
from golden.request import AnyMap

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_REMEMBERED = 512
_NAN_FILL = 0x7FF7

Indices = NDArray[np.int64]


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


def _remember(cache: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> None:
    """Add to a cache, at the expense of its oldest entry if it is full."""
    if len(cache) >= _REMEMBERED:
        del cache[next(iter(cache))]
    cache[key] = value


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


def round_tf32(
    words: NDArray[np.uint32], out: NDArray[np.uint32] | None = None
) -> NDArray[np.uint32]:
    """Round binary32 words to tf32, to nearest even; any NaN becomes 0x7FFFE000 (silicon).

    ``out``, which may be ``words``, takes the result.
    """
    values = words.view(np.float32)
    nan = np.isnan(values) if has_nan(values) else None
    rounded: NDArray[np.uint32] = words >> np.uint32(13)
    rounded &= np.uint32(1)
    rounded += words
    rounded += np.uint32(0xFFF)
    # Infinities come out as they were.
    rounded = np.bitwise_and(rounded, np.uint32(0xFFFFE000), out=out)
    if nan is not None:
        rounded[nan] = 0x7FFFE000
    return rounded


class Plan(Geometry):
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
        super().__init__(tensor_map, mode, store=store, arch=arch)
        d = self.descriptor
        self._base = d.global_address
        self._counts, self._strides = walk.steps_of(d), walk.strides_of(d)
        self._moves = self._translations()
        self._tops = self._last_starts()
        # Coordinates of a request that may go the fast way; starts of less than a byte may not.
        quick = self.mode is AccessMode.TILE and not self.data_type.is_sub_byte
        self._quick = self.coords if quick else -1
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
        self._seen: dict[tuple[object, ...], tuple[Placement, int]] = {}

    def _translations(self) -> tuple[int, ...]:
        """Bytes of global memory by which a start coordinate moves the whole box.

        0 where it makes another placement instead.
        """
        if self.mode is AccessMode.TILE:
            return self.steps
        if self.is_gather:
            return (self.steps[0], 0, 0, 0, 0)
        first = self.bounded.start
        spatial = range(first, first + self.descriptor.rank - 2)
        return tuple(0 if i in spatial else step for i, step in enumerate(self.steps))

    def _last_starts(self) -> tuple[int, ...]:
        """The greatest start coordinates of a tiled box that is inside; empty for other modes."""
        if self.mode is not AccessMode.TILE:
            return ()
        edges = zip(self.limits, self._counts, self._strides, strict=True)
        return tuple(limit - 1 - (count - 1) * by for limit, count, by in edges)

    @cached_property
    def _period(self) -> int:
        """Positions that a walk of im2col has in an image."""
        d, first = self.descriptor, self.bounded.start
        walked = zip(
            *(d.global_dim[first:], d.element_strides[first:], d.lower_corner, d.upper_corner),
            strict=False,  # there are no more corners than dimensions that are walked
        )
        counts = ((extent - 1 + upper - lower) // by + 1 for extent, by, lower, upper in walked)
        return math.prod(max(count, 1) for count in counts)

    def _start(self, coords: Sequence[int]) -> int:
        """Address of the start of the box, as far as placements are relative to it."""
        start = self._base
        if self.data_type.is_sub_byte:
            start += coords[0] * self.data_type.bits // 8
            coords = (0, *coords[1:])
        start += sum(c * step for c, step in zip(coords, self._moves, strict=True))
        return start % ADDRESSES

    def _key(self, operands: Operands, phase: int) -> tuple[object, ...]:
        """What of the operands a placement depends on: how the box meets the tensor's edges."""
        coords = operands.coords
        columns = self.columns(coords[0])
        if self.mode is AccessMode.TILE:
            key: list[object] = [phase, columns]
            for i in self.bounded:
                start, by, count = coords[i], self._strides[i], self._counts[i]
                if not 0 <= start <= self._tops[i]:
                    low = min(max(0, -(start // by)), count)
                    high = min(max(low, -((start - self.limits[i]) // by)), count)
                    key.append((i, low, high))
            return tuple(key)
        if self.is_gather:
            return (phase, columns, coords[1:])
        image = coords[-1]
        # At most so many images follow the first.
        last = image + self._strides[-1] * (self.rows(operands.w_halo) // self._period + 1)
        at: object = image if image < 0 or last >= self.limits[-1] else None
        fixed = coords[self.bounded.start : -1]
        more = (operands.offsets, operands.w_halo, operands.w_offset)
        return (phase, columns, at, fixed, *more)

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
            placement = self._place(operands, phase)
            _remember(self._placements, key, placement)
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
        if (
            len(coords) == self._quick
            and not smem_address % SMEM_ALIGN
            and 0 <= smem_address <= smem.size - self.footprint
            and not coords[0] % self.coord_align
            and not offsets
        ):
            start = self._base
            for coord, top, step in zip(coords, self._tops, self._moves):  # noqa: B905 - is slow
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
        seen = (smem_address, smem.size, tuple(coords), tuple(offsets), w_halo, w_offset)
        found = self._seen.get(seen)
        if found is None:
            operands = Operands(*seen[2:])
            check_tensor(self, operands, smem_address, smem.size)
            found = self._find(operands, smem_address)
            _remember(self._seen, seen, found)
        return found

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
        if self.is_store:
            raise ValueError("this plan was made for stores: Plan(..., store=False) loads")
        placement, start = self._locate(smem, smem_address, coords, offsets, w_halo, w_offset)
        if not self._plain:
            self._load_bytes(placement, start, gmem, smem, smem_address)
            return self.bytes(w_halo)
        if placement.dense:
            size = placement.size
            out = smem[smem_address : smem_address + size].view(PIECE_DTYPE)
            self._gathered(gmem, start, placement, self._window(gmem, start, placement), out)
            if self._rounds:
                self._converted(out)
            return size
        size = self.extent(w_halo) if w_halo else self.footprint
        pieces = smem[smem_address : smem_address + size].view(PIECE_DTYPE)
        inside = self._gathered(gmem, start, placement, self._window(gmem, start, placement))
        if self._rounds:
            self._converted(inside)
        tails = self._tails(gmem, start, placement)
        pieces[placement.fill] = self._fill
        pieces[placement.smem] = inside
        if tails is not None:
            pieces[placement.tail_smem] = tails
        return self.bytes(w_halo)

    def _window(self, gmem: Memory, start: int, placement: Placement) -> Pieces | None:
        """The pieces of an array from the lowest on that a request touches: the fast way."""
        if isinstance(gmem, ArrayMemory) and self.piece_bytes == PIECE:
            return gmem.at(start + placement.low, placement.span)
        return None

    def _gathered(
        self,
        gmem: Memory,
        start: int,
        placement: Placement,
        window: Pieces | None,
        out: Pieces | None = None,
    ) -> Pieces:
        """Read all pieces that are inside."""
        if not placement.gmem.size:
            return np.empty(0, PIECE_DTYPE)
        if window is not None:
            # Clipping does nothing here; raising would make a copy.
            return window.take(placement.pieces, None, out, "clip")
        found = gmem.read(_addresses(start + placement.low, placement.gmem, PIECE))
        data = np.ascontiguousarray(found).view(PIECE_DTYPE).reshape(-1)
        if out is not None:
            out[:] = data
        return data

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

    def _converted(self, pieces: Pieces) -> None:
        """Round in place."""
        words = pieces.view(np.uint32)
        round_tf32(words, out=words)

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

    def _stored(
        self, smem: Bytes, smem_address: int, coords: Sequence[int]
    ) -> tuple[Placement, int]:
        if not self.is_store:
            raise ValueError("this plan was made for loads: Plan(..., store=True) stores")
        return self._locate(smem, smem_address, coords, (), 0, 0)

    def store(self, gmem: Memory, smem: Bytes, smem_address: int, coords: Sequence[int]) -> None:
        """Store the box at ``coords``; what is outside the tensor is dropped (silicon).

        Parameters as for ``load``. Where rows of global memory overlap, the last row is left.

        Raises
        ------
        TmaError
            If the unit refuses the request. Nothing is written.
        """
        placement, start = self._stored(smem, smem_address, coords)
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

        Parameters as for ``load``, and the operation.

        Raises
        ------
        TmaError
            If the unit refuses the request. Nothing is written.
        """
        placement, start = self._stored(smem, smem_address, coords)
        combine = self._operations[op]
        if combine is None:
            check_pair(self.data_type, op, TENSOR_PAIRS)
        if combine is None or not placement.gmem.size:
            return
        source = smem[smem_address : smem_address + self.footprint].view(PIECE_DTYPE)
        operands = source.take(placement.smem)
        word = self._word
        for part in placement.rounds:
            some = placement if isinstance(part, slice) else placement.only(part)
            window = self._window(gmem, start, some)
            memory = self._gathered(gmem, start, some, window)
            result = combine(memory.view(word), operands[part].view(word)).view(PIECE_DTYPE)
            self._scatter(gmem, start, some, window, result)

    def _scatter(
        self, gmem: Memory, start: int, placement: Placement, window: Pieces | None, data: Pieces
    ) -> None:
        """Write all pieces that are inside."""
        if window is not None:
            window[placement.pieces] = data
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
