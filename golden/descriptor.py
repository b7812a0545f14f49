"""Fields of the 128 bytes of a tensor map, legal or not."""

import math
import struct
from dataclasses import dataclass

from golden.arch import Arch, Feature
from golden.enums import (
    MAX_RANK,
    DataType,
    Interleave,
    L2Promotion,
    MapMode,
    OobFill,
    Swizzle,
)
from golden.errors import ErrorCode, require
from golden.fields import integers, raw_bytes

MAP_BYTES = 128
READ_BYTES = 64
"""Bytes of a tensor map that the unit reads, from its start."""

WORDS = MAP_BYTES // 4
_SPAN_WORDS = (0x10, 0x100, 0x200, 0x400)

CORNER_BITS = {3: 16, 4: 8, 5: 5}
"""Bits of an im2col corner for each rank."""

_ATOM, _OOB_128K, _WIDE = 3 << 19, 1 << 21, 1 << 22
"""Bits of w2 that Hopper ignores."""

_TYPES = {(item.format, item.rounds): item for item in DataType}
_SWIZZLES = {item.fields: item for item in Swizzle}


@dataclass(frozen=True)
class Descriptor:
    """Fields of a tensor map, read from any words w0 to w15.

    ``global_dim``, ``box_dim`` and ``element_strides`` always have 5 entries, ``global_strides``
    has 4. In an im2col map ``box_dim[0]`` is the number of channels per pixel.

    Raises
    ------
    TmaError
        LENGTH or MAP_BYTES, if ``words`` is not 16 integers of 32 bits.
    """

    words: tuple[int, ...]

    def __post_init__(self) -> None:
        code, count = ErrorCode.MAP_BYTES, READ_BYTES // 4
        words = integers(code, "words", self.words, count, 0, (1 << 32) - 1)
        object.__setattr__(self, "words", words)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Descriptor":
        """Return the descriptor in the first 64 bytes of ``data``, any buffer.

        Raises
        ------
        TmaError
            MAP_BYTES, if ``data`` is no buffer, or has fewer than 64 or more than 128 bytes.
        """
        data = raw_bytes("data", data)
        limit = f"must be {MAP_BYTES} bytes, or at least the {READ_BYTES} that the unit reads"
        holds = READ_BYTES <= len(data) <= MAP_BYTES
        require(holds, ErrorCode.MAP_BYTES, "len(data)", len(data), limit)
        return cls(struct.unpack_from("<16I", data))

    def for_arch(self, arch: Arch) -> "Descriptor":
        """Return the descriptor as a unit of this architecture reads it.

        Hopper ignores w2[22:19] (silicon). Later architectures have the atom of the swizzle there,
        ``oob_128k``, and the bit of ``wide``.
        """
        if not self._bits(2, 19, 4):
            return self
        read = (
            (arch.has(Feature.SWIZZLE_ATOMS) or arch.has(Feature.SWIZZLE_96B)) * _ATOM
            | (arch is not Arch.SM_90A) * _OOB_128K
            | arch.has(Feature.IM2COL_W_CTA) * _WIDE
        )
        words = list(self.words)
        words[2] &= ~(_ATOM | _OOB_128K | _WIDE) | read
        return Descriptor(tuple(words))

    def _bits(self, word: int, low: int, count: int) -> int:
        return self.words[word] >> low & ((1 << count) - 1)

    @property
    def global_address(self) -> int:
        """Byte address of the tensor."""
        return self.words[0] | self.words[1] << 32

    @property
    def mode(self) -> MapMode:
        """Mode of the map: tile or im2col."""
        return MapMode(self._bits(2, 0, 1))

    @property
    def version(self) -> int:
        """Version of the layout: 0 in every map of the driver; the unit ignores it."""
        return self._bits(2, 1, 3)

    @property
    def rank(self) -> int:
        """Number of dimensions, 1 to 8; the unit refuses more than 5."""
        return self._bits(2, 4, 3) + 1

    @property
    def format(self) -> int:
        """Code of the data type, 0 to 15; 14 and 15 are not assigned."""
        return self._bits(2, 7, 4)

    @property
    def data_type(self) -> DataType | None:
        """Data type; None for a code that is not assigned. Only binary32 codes use the tf32 bit."""
        rounds = bool(self._bits(2, 16, 1)) and self.format in (7, 8)
        return _TYPES.get((self.format, rounds))

    @property
    def interleave(self) -> Interleave | None:
        """Interleave; None for code 3, which is not assigned."""
        code = self._bits(2, 11, 2)
        return Interleave(code) if code < 3 else None

    @property
    def swizzle(self) -> Swizzle | None:
        """Swizzle of shared memory; None if the codes of span and atom do not match."""
        return _SWIZZLES.get((self._bits(2, 13, 2), self._bits(2, 19, 2)))

    @property
    def oob_fill(self) -> OobFill:
        """Fill for elements outside the tensor."""
        return OobFill(self._bits(2, 15, 1))

    @property
    def l2_promotion(self) -> L2Promotion:
        """L2 promotion, a hint."""
        return L2Promotion(self._bits(2, 17, 2))

    @property
    def global_strides(self) -> tuple[int, ...]:
        """Strides of dimensions 1 to 4, in bytes."""
        return tuple((self.words[3 + i] | self._bits(7, 4 * i, 4) << 32) << 4 for i in range(4))

    @property
    def global_dim(self) -> tuple[int, ...]:
        """Extents of dimensions 0 to 4, in elements."""
        return tuple(self.words[8 + i] + 1 for i in range(MAX_RANK))

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Element strides of dimensions 0 to 4."""
        return tuple(self._bits(13, 3 * i, 3) + 1 for i in range(MAX_RANK))

    @property
    def box_dim(self) -> tuple[int, ...]:
        """Box of a tiled map, in elements."""
        return (self._bits(13, 24, 8) + 1, *(self._bits(14, 8 * i, 8) + 1 for i in range(4)))

    @property
    def channels_per_pixel(self) -> int:
        """Channels per pixel of an im2col map."""
        return self._bits(13, 24, 8) + 1

    @property
    def pixels_per_column(self) -> int:
        """Pixels per column of an im2col map."""
        return self._bits(15, 0, 10) + 1

    @property
    def oob_128k(self) -> bool:
        """True if the tensor has 128 KiB or more: w2[21], a bit that Hopper ignores.

        With it, the unit may generate any address of the 128 KiB from the base for elements outside
        the tensor (NVIDIA's drivers and CUTLASS). They have no effect on data, but must exist.
        """
        return bool(self._bits(2, 21, 1))

    @property
    def wide(self) -> bool:
        """True if the map is for ``im2col::w``: only W has corners, of 16 bits (w2[22]: choice)."""
        return bool(self._bits(2, 22, 1))

    def metadata(self) -> dict[int, int]:
        """Return the words from w16 on that the encoder does not write as 0 (silicon).

        w16 is the number of bytes of a box, whose extents are divided by the element strides and
        rounded down; w18 has a code of the swizzle. The unit does not read them.
        """
        if self.mode is MapMode.IM2COL:
            elements = self.channels_per_pixel * self.pixels_per_column
        else:
            steps = zip(self.box_dim, self.element_strides, strict=True)
            elements = math.prod(box // by for box, by in [*steps][: self.rank])
        bits = 0 if self.data_type is None else self.data_type.bits
        return {16: elements * bits // 8 & 0xFFFFFFFF, 18: _SPAN_WORDS[self._bits(2, 13, 2)]}

    def _corner(self, base: int) -> tuple[int, ...]:
        bits = 16 if self.wide else CORNER_BITS[self.rank]
        count = 1 if self.wide else self.rank - 2
        raw = (self._bits(14, base + bits * j, bits) for j in range(count))
        return tuple(value - (value >> (bits - 1) << bits) for value in raw)

    @property
    def lower_corner(self) -> tuple[int, ...]:
        """Lower corner of an im2col map of rank 3 to 5, W first."""
        return self._corner(0)

    @property
    def upper_corner(self) -> tuple[int, ...]:
        """Upper corner of an im2col map of rank 3 to 5, W first."""
        return self._corner(16)
