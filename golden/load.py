"""Tensor loads, vectorised: whole boxes as arrays of addresses.

``check`` refuses what the unit refuses; ``load`` then moves the bytes. Written apart from
``golden.definition``, which says the same element by element.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.errors import Cause, Refusal
from golden.memory import Bytes, Memory
from golden.tensor_map import (
    MAX_RANK,
    SMEM_LIMIT,
    DataType,
    Descriptor,
    Interleave,
    Mode,
    OobFill,
    TensorMap,
)

LINE = 128
SMEM_ALIGN = 128
BARRIER_BYTES = 8


def swizzle(addresses: NDArray[np.int64], mask: int) -> NDArray[np.int64]:
    """Shared-memory addresses after the swizzle; its own inverse (silicon)."""
    return addresses ^ (addresses >> 3 & mask)


def round_tf32(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Round binary32 words to tf32, to nearest even; any NaN becomes 0x7FFFE000 (silicon)."""
    odd = words >> np.uint32(13) & np.uint32(1)
    rounded = (words + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)
    magnitude = words & np.uint32(0x7FFFFFFF)
    rounded = np.where(magnitude == 0x7F800000, words, rounded)
    return np.where(magnitude > 0x7F800000, np.uint32(0x7FFFE000), rounded).astype(np.uint32)


@dataclass(frozen=True)
class Geometry:
    """The shape of a tiled box, independent of where it starts.

    ``unit`` bytes make one step of dimension 0; ``steps``, ``strides`` (in positions) and
    ``pitches`` (global bytes of a position) have an entry for each dimension.
    """

    data_type: DataType
    unit: int
    steps: tuple[int, ...]
    strides: tuple[int, ...]
    pitches: tuple[int, ...]
    row_pitch: int

    @classmethod
    def of(cls, d: Descriptor) -> "Geometry":
        """Of a tiled map with fields that the unit accepts (silicon)."""
        data_type = d.data_type
        assert data_type is not None
        rank = d.rank
        unit = data_type.itemsize if d.interleave == Interleave.NONE else 16 * d.interleave
        strides = d.element_strides[:rank]
        if d.interleave == Interleave.NONE:
            strides = (1, *strides[1:])
        steps = [-(-extent // by) for extent, by in zip(d.box_dim, strides, strict=False)]
        if d.interleave != Interleave.NONE:
            steps[rank - 2] = 1
        packed = steps[0] * unit
        spread = d.swizzle.span if d.interleave == Interleave.NONE else None
        return cls(
            data_type, unit, tuple(steps), strides, (unit, *d.global_strides[: rank - 1]),
            spread or packed,
        )  # fmt: skip

    @property
    def bytes(self) -> int:
        """What ``complete_tx`` counts: fill included, gaps not (silicon)."""
        return self.unit * math.prod(self.steps)

    @property
    def footprint(self) -> int:
        """Bytes of shared memory from the first to the end of the last row."""
        return self.row_pitch * math.prod(self.steps[1:])


def as_descriptor(tensor_map: "TensorMap | Descriptor | bytes") -> Descriptor:
    """The words of a tensor map, whatever it comes as."""
    if isinstance(tensor_map, Descriptor):
        return tensor_map
    data = tensor_map.encode() if isinstance(tensor_map, TensorMap) else tensor_map
    return Descriptor.from_bytes(data)


def _map_fault(d: Descriptor) -> str | None:
    """What is wrong with the fields of a map, in words; None if the unit takes them."""
    if d.format > 10 or d.data_type is None:
        return f"format {d.format}: must be from 0 to 10"
    if d.interleave > Interleave.INTERLEAVE_32B:
        return f"interleave {d.interleave}: must be from 0 to 2"
    if d.rank > MAX_RANK:
        return f"rank {d.rank}: must be from 1 to {MAX_RANK}"
    if d.swizzle_atom:
        return f"swizzle atom {d.swizzle_atom}: Hopper has 0 only"
    if d.rank < 3 and (d.interleave or d.mode is Mode.IM2COL):
        return f"rank {d.rank}: interleave and im2col need 3 or more"
    if d.oob_fill is OobFill.NAN_REQUEST_ZERO_FMA and not d.data_type.is_float:
        return f"NaN fill needs a float type, not {d.data_type.name}"
    inner = d.box_dim[0] * d.data_type.itemsize
    if inner % 16:
        return f"box_dim[0]*{d.data_type.itemsize} = {inner} bytes: must be a multiple of 16"
    span = d.swizzle.span
    if span and not d.interleave and inner > span:
        return f"box_dim[0]*{d.data_type.itemsize} = {inner} bytes: at most {span} when swizzled so"
    align = 32 if d.interleave == Interleave.INTERLEAVE_32B else 16
    if d.global_address % align:
        return f"global_address = {d.global_address:#x}: must be a multiple of {align}"
    for i, stride in enumerate(d.global_strides[: d.rank - 1]):
        if stride % align:
            return f"global_strides[{i}] = {stride}: must be a multiple of {align}"
    return None


def check(
    tensor_map: "TensorMap | Descriptor | bytes",
    smem_address: int,
    coords: Sequence[int],
    *,
    mbarrier: int = 0,
    smem_bytes: int = SMEM_LIMIT,
) -> Geometry:
    """Refuse a tiled load that the unit refuses; ``coords`` are as many as the instruction's rank.

    Raises
    ------
    Refusal
        With the first cause of ``Cause`` that applies.
    """
    d = as_descriptor(tensor_map)
    fault = _map_fault(d)
    if fault:
        raise Refusal(Cause.MAP_FIELD, 0, d.words[2], f"{fault} (silicon)")
    if d.mode is Mode.IM2COL or len(coords) != d.rank:
        raise Refusal(
            Cause.MAP_MODE,
            0,
            len(coords),
            f"rank {len(coords)} tiled load with a rank {d.rank} {d.mode.name} map (PTX ISA)",
        )
    geometry = Geometry.of(d)
    if smem_address % SMEM_ALIGN:
        rule = f"must be a multiple of {SMEM_ALIGN} (PTX ISA)"
        raise Refusal(Cause.SMEM_ALIGN, 0, smem_address, f"smem_address = {smem_address}: {rule}")
    if not 0 <= smem_address <= smem_bytes - geometry.footprint:
        raise Refusal(
            Cause.SMEM_RANGE,
            0,
            smem_address,
            f"{geometry.footprint} bytes at {smem_address}: shared memory ends at {smem_bytes}"
            " (choice)",
        )
    if not 0 <= mbarrier <= smem_bytes - BARRIER_BYTES:
        rule = f"shared memory has {smem_bytes} bytes (choice)"
        raise Refusal(Cause.SMEM_RANGE, 0, mbarrier, f"mbarrier = {mbarrier}: {rule}")
    start = coords[0] * geometry.data_type.itemsize
    if not d.interleave and start % 16:
        raise Refusal(
            Cause.COORD_ALIGN,
            0,
            coords[0],
            f"coords[0] = {coords[0]} starts at byte {start}: must be a multiple of 16 (silicon)",
        )
    if mbarrier % BARRIER_BYTES:
        rule = f"must be a multiple of {BARRIER_BYTES} (PTX ISA)"
        raise Refusal(Cause.MBAR_ALIGN, 0, mbarrier, f"mbarrier = {mbarrier}: {rule}")
    return geometry


@dataclass(frozen=True)
class Elements:
    """A box spread out, one entry for each unit of dimension 0, in row order.

    ``smem``: byte address before the swizzle. ``gmem``: byte address, where ``inside``.
    """

    smem: NDArray[np.int64]
    gmem: NDArray[np.uint64]
    inside: NDArray[np.bool_]


def spread(d: Descriptor, geometry: Geometry, smem_address: int, coords: Sequence[int]) -> Elements:
    """Every unit of the box at ``coords`` (silicon)."""
    shape = tuple(reversed(geometry.steps))
    inside = np.ones(shape, bool)
    gmem = np.full(shape, d.global_address, np.uint64)
    rows = np.zeros(shape, np.int64)
    weight = 1
    for i, steps in enumerate(geometry.steps):
        k = np.arange(steps, dtype=np.int64)
        position = coords[i] + k * geometry.strides[i]
        along = [1] * len(shape)
        along[len(shape) - 1 - i] = steps
        inside &= ((position >= 0) & (position < d.global_dim[i])).reshape(along)
        step = position.astype(np.uint64) * np.uint64(geometry.pitches[i])  # modulo 2**64
        gmem += step.reshape(along)
        if i > 0:
            rows += (k * weight).reshape(along)
            weight *= steps
    columns = np.arange(geometry.steps[0], dtype=np.int64) * geometry.unit
    smem = smem_address + rows * geometry.row_pitch + columns
    return Elements(smem.ravel(), gmem.ravel(), inside.ravel())


def load(
    tensor_map: "TensorMap | Descriptor | bytes",
    gmem: Memory,
    smem: Bytes,
    smem_address: int,
    coords: Sequence[int],
    *,
    mbarrier: int = 0,
) -> int:
    """Load the box at ``coords`` into ``smem`` (``cp.async.bulk.tensor`` of a tiled map).

    Parameters
    ----------
    tensor_map : TensorMap or Descriptor or bytes
        Legal or not.
    gmem : Memory
        Read inside the tensor only.
    smem : ndarray
        The shared-memory window, of uint8; its length is the limit.
    smem_address : int
        Byte offset, a multiple of 128.
    coords : sequence of int
        One for each dimension, innermost first; in elements, any int32. Elements outside the
        tensor are filled.
    mbarrier : int
        Byte offset of the barrier, for the checks.

    Returns
    -------
    int
        The bytes that ``complete_tx`` counts.

    Raises
    ------
    Refusal
        If the unit refuses the request. Nothing is written.
    """
    d = as_descriptor(tensor_map)
    geometry = check(d, smem_address, coords, mbarrier=mbarrier, smem_bytes=smem.size)
    elements = spread(d, geometry, smem_address, coords)
    unit = geometry.unit
    offsets = np.arange(unit, dtype=np.int64)
    data = np.zeros((elements.smem.size, unit), np.uint8)
    if d.oob_fill is OobFill.NAN_REQUEST_ZERO_FMA:
        data.reshape(-1).view(np.uint16)[:] = 0x7FF7
    if elements.inside.any():
        addresses = elements.gmem[elements.inside][:, None] + offsets.astype(np.uint64)
        inside = gmem.read(addresses)
        if geometry.data_type.rounds:
            words = np.ascontiguousarray(inside).view(np.uint32)
            inside = round_tf32(words).view(np.uint8)
        data[elements.inside] = inside
    smem[swizzle(elements.smem[:, None] + offsets, d.swizzle.mask)] = data
    return geometry.bytes


def lines_touched(
    tensor_map: "TensorMap | Descriptor | bytes", smem_address: int, coords: Sequence[int]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Distinct 128-byte lines of global memory that a load reads, and of shared memory it writes.

    Returns
    -------
    The addresses of the lines, divided by 128, in order.
    """
    d = as_descriptor(tensor_map)
    geometry = check(d, smem_address, coords, smem_bytes=1 << 24)
    elements = spread(d, geometry, smem_address, coords)
    last = geometry.unit - 1
    start = elements.gmem[elements.inside]
    gmem = np.concatenate([start, start + np.uint64(last)]) // np.uint64(LINE)
    smem = np.concatenate([elements.smem, elements.smem + last]) // LINE
    return np.unique(gmem), np.unique(smem)
