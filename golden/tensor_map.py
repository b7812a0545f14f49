"""Tensor maps: the 128 bytes that CUDA's driver writes, and what it accepts.

Arrays are innermost dimension first; strides are in bytes. Everything here agrees with what the
driver did on silicon, also where its documentation says otherwise.
"""

import enum
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from golden.errors import TensorMapError

EnumT = TypeVar("EnumT", bound=enum.IntEnum)

MAX_RANK = 5
MAP_BYTES = 128
WORDS = MAP_BYTES // 4

SMEM_LIMIT = 233472
"""Bytes of the largest tiled box: 228 KiB (silicon)."""


class Interleave(enum.IntEnum):
    """``CUtensorMapInterleave``."""

    NONE = 0
    INTERLEAVE_16B = 1
    INTERLEAVE_32B = 2


class Swizzle(enum.IntEnum):
    """``CUtensorMapSwizzle``, as far as Hopper has it."""

    NONE = 0
    SWIZZLE_32B = 1
    SWIZZLE_64B = 2
    SWIZZLE_128B = 3

    @property
    def span(self) -> int | None:
        """Bytes from a row of shared memory to the next; None: rows are packed."""
        return 16 << self if self else None

    @property
    def mask(self) -> int:
        """Address bits 6:4 that change, by the bits three above them."""
        return ((1 << self) - 1) << 4


class L2Promotion(enum.IntEnum):
    """``CUtensorMapL2promotion``: a hint."""

    NONE = 0
    L2_64B = 1
    L2_128B = 2
    L2_256B = 3


class OobFill(enum.IntEnum):
    """``CUtensorMapFloatOOBfill``."""

    NONE = 0
    NAN_REQUEST_ZERO_FMA = 1


class Mode(enum.IntEnum):
    """How the box is given."""

    TILE = 0
    IM2COL = 1


class DataType(enum.IntEnum):
    """``CUtensorMapDataType``: the types that Hopper has."""

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    INT32 = 3
    UINT64 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT32_FTZ = 10
    TFLOAT32 = 11
    TFLOAT32_FTZ = 12

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of an element in memory."""
        return _DTYPES[self]

    @property
    def format(self) -> int:
        """Code in word w2 of a tensor map."""
        return _FORMATS[self]

    @property
    def rounds(self) -> bool:
        """Loads round float32 to tf32."""
        return self in (DataType.TFLOAT32, DataType.TFLOAT32_FTZ)

    @property
    def is_float(self) -> bool:
        """NaN fill is allowed."""
        return self >= DataType.FLOAT16


_DTYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(item)
    for item in (
        *(np.uint8, np.uint16, np.uint32, np.int32, np.uint64, np.int64),
        *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16),
        *(np.float32, np.float32, np.float32),
    )
)
_FORMATS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 7, 8)
_TYPES = {(item.format, item.rounds): item for item in DataType}
_CORNER_BITS = {3: 16, 4: 8, 5: 5}
_SPAN_WORDS = (0x10, 0x100, 0x200, 0x400)


@dataclass(frozen=True)
class Descriptor:
    """The fields of a tensor map as they stand in its words w0 to w15: anything 512 bits can say.

    ``global_strides``, ``global_dim``, ``box_dim`` and ``element_strides`` always have their full
    length of 4 or 5. For im2col ``box_dim[0]`` is the channels per pixel.
    """

    words: tuple[int, ...]

    @classmethod
    def from_bytes(cls, data: bytes) -> "Descriptor":
        """Take words w0 to w15 of ``data``, 64 bytes or more."""
        if len(data) < 64:
            raise ValueError(f"{len(data)} bytes: a tensor map has 64 that count")
        return cls(struct.unpack_from("<16I", data))

    def _bits(self, word: int, low: int, count: int) -> int:
        return self.words[word] >> low & ((1 << count) - 1)

    @property
    def global_address(self) -> int:
        """Byte address of the tensor."""
        return self.words[0] | self.words[1] << 32

    @property
    def mode(self) -> Mode:
        """Tile or im2col."""
        return Mode(self._bits(2, 0, 1))

    @property
    def version(self) -> int:
        """0 in every map of the driver; the unit ignores it."""
        return self._bits(2, 1, 3)

    @property
    def rank(self) -> int:
        """1 to 8; above 5 is refused."""
        return self._bits(2, 4, 3) + 1

    @property
    def format(self) -> int:
        """0 to 15; above 10 is refused."""
        return self._bits(2, 7, 4)

    @property
    def data_type(self) -> DataType | None:
        """None for a format that does not exist. The tf32 bit counts for binary32 formats only."""
        rounds = bool(self._bits(2, 16, 1)) and self.format in (7, 8)
        return _TYPES.get((self.format, rounds))

    @property
    def interleave(self) -> int:
        """``Interleave``, or 3, which is refused."""
        return self._bits(2, 11, 2)

    @property
    def swizzle(self) -> Swizzle:
        """Of shared memory."""
        return Swizzle(self._bits(2, 13, 2))

    @property
    def oob_fill(self) -> OobFill:
        """What elements outside read as."""
        return OobFill(self._bits(2, 15, 1))

    @property
    def l2_promotion(self) -> L2Promotion:
        """A hint."""
        return L2Promotion(self._bits(2, 17, 2))

    @property
    def swizzle_atom(self) -> int:
        """0 on Hopper."""
        return self._bits(2, 19, 2)

    @property
    def global_strides(self) -> tuple[int, ...]:
        """Of dimensions 1 to 4, in bytes."""
        return tuple((self.words[3 + i] | self._bits(7, 4 * i, 4) << 32) << 4 for i in range(4))

    @property
    def global_dim(self) -> tuple[int, ...]:
        """Extents of dimensions 0 to 4."""
        return tuple(self.words[8 + i] + 1 for i in range(MAX_RANK))

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Of dimensions 0 to 4."""
        return tuple(self._bits(13, 3 * i, 3) + 1 for i in range(MAX_RANK))

    @property
    def box_dim(self) -> tuple[int, ...]:
        """Of a tiled map."""
        return (self._bits(13, 24, 8) + 1, *(self._bits(14, 8 * i, 8) + 1 for i in range(4)))

    @property
    def channels_per_pixel(self) -> int:
        """Of an im2col map."""
        return self._bits(13, 24, 8) + 1

    @property
    def pixels_per_column(self) -> int:
        """Of an im2col map."""
        return self._bits(15, 0, 10) + 1

    def _corner(self, base: int) -> tuple[int, ...]:
        bits = _CORNER_BITS[self.rank]
        raw = (self._bits(14, base + bits * j, bits) for j in range(self.rank - 2))
        return tuple(value - (value >> (bits - 1) << bits) for value in raw)

    @property
    def lower_corner(self) -> tuple[int, ...]:
        """W first; im2col of rank 3 to 5 only."""
        return self._corner(0)

    @property
    def upper_corner(self) -> tuple[int, ...]:
        """W first; im2col of rank 3 to 5 only."""
        return self._corner(16)


def _check(holds: bool, parameter: str, value: object, rule: str) -> None:
    if not holds:
        raise TensorMapError(parameter, value, rule)


def _enumeration(kind: type[EnumT], parameter: str, value: int) -> EnumT:
    numbers = [int(item) for item in kind]
    _check(value in numbers, parameter, value, f"must be from 0 to {max(numbers)}")
    return kind(value)


@dataclass(frozen=True)
class TensorMap:
    """A tensor map that the driver's encoder accepts; make it with ``tiled`` or ``im2col``.

    Tuples have ``rank`` entries, ``global_strides`` one less, corners two less (W first).
    """

    data_type: DataType
    global_address: int
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = Interleave.NONE
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: L2Promotion = L2Promotion.NONE
    oob_fill: OobFill = OobFill.NONE
    mode: Mode = Mode.TILE
    box_dim: tuple[int, ...] = ()
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()
    channels_per_pixel: int = 0
    pixels_per_column: int = 0

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.global_dim)

    @classmethod
    def tiled(
        cls,
        data_type: int,
        global_address: int,
        global_dim: Sequence[int],
        global_strides: Sequence[int],
        box_dim: Sequence[int],
        element_strides: Sequence[int] | None = None,
        *,
        interleave: int = Interleave.NONE,
        swizzle: int = Swizzle.NONE,
        l2_promotion: int = L2Promotion.NONE,
        oob_fill: int = OobFill.NONE,
    ) -> "TensorMap":
        """Check as ``cuTensorMapEncodeTiled`` does (silicon).

        Parameters
        ----------
        data_type : DataType
            One of Hopper's.
        global_address : int
            Byte address of the tensor, a multiple of 16 (32 with 32-byte interleave).
        global_dim : sequence of 1 to 5
            Elements, each 1 to 2**32.
        global_strides : sequence, one shorter
            Bytes from an index of dimension 1, 2, ... to the next; multiples of 16, below 2**40.
        box_dim : sequence
            Elements, each 1 to 256.
        element_strides : sequence
            1 to 8; default 1.
        interleave : Interleave
            Slices of channels; of rank 3 and more.
        swizzle : Swizzle
            Limits the row of a map without interleave to its span.
        l2_promotion : L2Promotion
            A hint.
        oob_fill : OobFill
            NaN with float types only.

        Raises
        ------
        TensorMapError
            Where the driver answers with an invalid value.
        """
        tensor_map = cls._common(
            Mode.TILE, data_type, global_address, global_dim, global_strides, element_strides,
            interleave, swizzle, l2_promotion, oob_fill, box_dim=tuple(map(int, box_dim)),
        )  # fmt: skip
        box, item = tensor_map.box_dim, tensor_map.data_type.itemsize
        _check(len(box) == tensor_map.rank, "len(box_dim)", len(box), f"must be {tensor_map.rank}")
        for i, extent in enumerate(box):
            _check(1 <= extent <= 256, f"box_dim[{i}]", extent, "must be from 1 to 256")
        tensor_map._check_inner("box_dim[0]", box[0])
        steps = zip(box, tensor_map.element_strides, strict=True)
        size = item * math.prod(extent // stride for extent, stride in steps)
        _check(
            size <= SMEM_LIMIT,
            "the box",
            f"{size} bytes",
            f"must be at most {SMEM_LIMIT} bytes of shared memory",
        )
        return tensor_map

    @classmethod
    def im2col(
        cls,
        data_type: int,
        global_address: int,
        global_dim: Sequence[int],
        global_strides: Sequence[int],
        lower_corner: Sequence[int],
        upper_corner: Sequence[int],
        channels_per_pixel: int,
        pixels_per_column: int,
        element_strides: Sequence[int] | None = None,
        *,
        interleave: int = Interleave.NONE,
        swizzle: int = Swizzle.NONE,
        l2_promotion: int = L2Promotion.NONE,
        oob_fill: int = OobFill.NONE,
    ) -> "TensorMap":
        """Check as ``cuTensorMapEncodeIm2col`` does (silicon).

        Parameters as of ``tiled``, and:

        lower_corner, upper_corner : sequences of rank - 2, W first
            The bounding box of start positions relative to the tensor.
        channels_per_pixel : int
            1 to 256.
        pixels_per_column : int
            1 to 1024.

        Raises
        ------
        TensorMapError
            Where the driver answers with an invalid value.
        """
        tensor_map = cls._common(
            Mode.IM2COL, data_type, global_address, global_dim, global_strides, element_strides,
            interleave, swizzle, l2_promotion, oob_fill,
            lower_corner=tuple(map(int, lower_corner)),
            upper_corner=tuple(map(int, upper_corner)),
            channels_per_pixel=int(channels_per_pixel),
            pixels_per_column=int(pixels_per_column),
        )  # fmt: skip
        channels, pixels = tensor_map.channels_per_pixel, tensor_map.pixels_per_column
        _check(1 <= channels <= 256, "channels_per_pixel", channels, "must be from 1 to 256")
        _check(1 <= pixels <= 1024, "pixels_per_column", pixels, "must be from 1 to 1024")
        tensor_map._check_inner("channels_per_pixel", channels)
        spatial = tensor_map.rank - 2
        first = 0 if tensor_map.interleave else 1
        low = -(1 << (_CORNER_BITS[tensor_map.rank] - 1))
        for name in ("lower_corner", "upper_corner"):
            corner = getattr(tensor_map, name)
            _check(len(corner) == spatial, f"len({name})", len(corner), f"must be {spatial}")
            for j, value in enumerate(corner):
                rule = f"must be from {low} to {~low}"
                _check(low <= value <= ~low, f"{name}[{j}]", value, rule)
        corners = zip(tensor_map.lower_corner, tensor_map.upper_corner, strict=True)
        for j, (lower, upper) in enumerate(corners):
            # The driver adds in 32 bits.
            end = (tensor_map.global_dim[first + j] + upper + (1 << 31)) % (1 << 32) - (1 << 31)
            _check(
                end - lower > 0,
                f"bounding box of spatial dimension {j}",
                end - lower,
                "must be positive: int32(global_dim + upper_corner) - lower_corner",
            )
        return tensor_map

    @classmethod
    def _common(
        cls,
        mode: Mode,
        data_type: int,
        global_address: int,
        global_dim: Sequence[int],
        global_strides: Sequence[int],
        element_strides: Sequence[int] | None,
        interleave: int,
        swizzle: int,
        l2_promotion: int,
        oob_fill: int,
        **rest: Any,
    ) -> "TensorMap":
        """The rules that both encoders share."""
        kind = _enumeration(DataType, "data_type", data_type)
        layout = _enumeration(Interleave, "interleave", interleave)
        rank = len(global_dim)
        least = 3 if layout or mode is Mode.IM2COL else 1
        _check(least <= rank <= MAX_RANK, "rank", rank, f"must be from {least} to {MAX_RANK}")
        if element_strides is None:
            element_strides = (1,) * rank
        fill = _enumeration(OobFill, "oob_fill", oob_fill)
        if fill:
            _check(kind.is_float, "oob_fill", fill.name, f"needs a float type, not {kind.name}")
        align = 32 if layout is Interleave.INTERLEAVE_32B else 16
        aligned = f"must be a multiple of {align}"
        _check(0 <= global_address < 1 << 64, "global_address", global_address, "must be 64 bits")
        _check(global_address % align == 0, "global_address", hex(global_address), aligned)
        for i, extent in enumerate(global_dim):
            _check(1 <= extent <= 1 << 32, f"global_dim[{i}]", extent, "must be from 1 to 2**32")
        for name, values, length in (
            ("global_strides", global_strides, rank - 1),
            ("element_strides", element_strides, rank),
        ):
            _check(len(values) == length, f"len({name})", len(values), f"must be {length}")
        for i, stride in enumerate(global_strides):
            _check(0 <= stride < 1 << 40, f"global_strides[{i}]", stride, "must be below 2**40")
            _check(stride % align == 0, f"global_strides[{i}]", stride, aligned)
        for i, stride in enumerate(element_strides):
            _check(1 <= stride <= 8, f"element_strides[{i}]", stride, "must be from 1 to 8")
        return cls(
            data_type=kind,
            global_address=int(global_address),
            global_dim=tuple(map(int, global_dim)),
            global_strides=tuple(map(int, global_strides)),
            element_strides=tuple(map(int, element_strides)),
            interleave=layout,
            swizzle=_enumeration(Swizzle, "swizzle", swizzle),
            l2_promotion=_enumeration(L2Promotion, "l2_promotion", l2_promotion),
            oob_fill=fill,
            mode=mode,
            **rest,
        )

    def _check_inner(self, name: str, extent: int) -> None:
        inner = extent * self.data_type.itemsize
        what = f"{name}*{self.data_type.itemsize}"
        _check(inner % 16 == 0, what, f"{inner} bytes", "must be a multiple of 16")
        span = self.swizzle.span
        if span and not self.interleave:
            rule = f"must be at most {span} with {self.swizzle.name}"
            _check(inner <= span, what, f"{inner} bytes", rule)

    def encode(self) -> bytes:
        """The 128 bytes that the driver writes (silicon)."""
        words = [0] * WORDS
        words[0] = self.global_address & 0xFFFFFFFF
        words[1] = self.global_address >> 32
        words[2] = (
            self.mode
            | (self.rank - 1) << 4
            | self.data_type.format << 7
            | self.interleave << 11
            | self.swizzle << 13
            | self.oob_fill << 15
            | self.data_type.rounds << 16
            | self.l2_promotion << 17
        )
        for i, stride in enumerate(self.global_strides):
            words[3 + i] = stride >> 4 & 0xFFFFFFFF
            words[7] |= stride >> 36 << 4 * i
        for i in range(self.rank):
            words[8 + i] = self.global_dim[i] - 1
            words[13] |= (self.element_strides[i] - 1) << 3 * i
        if self.mode is Mode.TILE:
            words[13] |= (self.box_dim[0] - 1) << 24
            for i, extent in enumerate(self.box_dim[1:]):
                words[14] |= (extent - 1) << 8 * i
            steps = zip(self.box_dim, self.element_strides, strict=True)
            elements = math.prod(extent // stride for extent, stride in steps)
        else:
            words[13] |= (self.channels_per_pixel - 1) << 24
            bits = _CORNER_BITS[self.rank]
            for j, (lower, upper) in enumerate(
                zip(self.lower_corner, self.upper_corner, strict=True)
            ):
                mask = (1 << bits) - 1
                words[14] |= (lower & mask) << bits * j | (upper & mask) << (16 + bits * j)
            words[15] = self.pixels_per_column - 1
            elements = self.channels_per_pixel * self.pixels_per_column
        # Metadata that the unit does not read.
        words[16] = elements * self.data_type.itemsize & 0xFFFFFFFF
        words[18] = _SPAN_WORDS[self.swizzle]
        return struct.pack(f"<{WORDS}I", *words)

    @classmethod
    def decode(cls, data: bytes) -> "TensorMap":
        """The map that ``data`` holds: ``decode(encode(x)) == x``.

        Raises
        ------
        TensorMapError
            If the encoder would not have written it. ``Descriptor`` takes anything.
        """
        fields = Descriptor.from_bytes(data)
        kind = fields.data_type
        if kind is None:
            raise TensorMapError("format", fields.format, "must be from 0 to 10")
        _check(fields.version == 0, "version", fields.version, "must be 0")
        _check(fields.swizzle_atom == 0, "swizzle atom", fields.swizzle_atom, "must be 0 on Hopper")
        rank = fields.rank
        _check(rank <= MAX_RANK, "rank", rank, f"must be from 1 to {MAX_RANK}")
        shared: dict[str, Any] = {
            "data_type": kind,
            "global_address": fields.global_address,
            "global_dim": fields.global_dim[:rank],
            "global_strides": fields.global_strides[: rank - 1],
            "element_strides": fields.element_strides[:rank],
            "interleave": fields.interleave,
            "swizzle": fields.swizzle,
            "l2_promotion": fields.l2_promotion,
            "oob_fill": fields.oob_fill,
        }
        if fields.mode is Mode.TILE:
            return cls.tiled(**shared, box_dim=fields.box_dim[:rank])
        _check(rank >= 3, "rank", rank, "must be at least 3 for im2col")
        return cls.im2col(
            **shared,
            lower_corner=fields.lower_corner,
            upper_corner=fields.upper_corner,
            channels_per_pixel=fields.channels_per_pixel,
            pixels_per_column=fields.pixels_per_column,
        )
