"""The enumerations of CUDA's driver API, with what each member means to the unit.

Members can be had by number, by name, or by a short name: ``Swizzle.member("128B")``. What Hopper
does not have is marked by ``Arch.SM_100A`` and rests on documents alone.
"""

import enum
from typing import Any, Self

import ml_dtypes
import numpy as np

MAX_RANK = 5

SMEM_BYTES = 233472
"""A CTA's shared memory at most, and the bytes of the largest tiled box: 228 KiB (silicon)."""

PIECE = 16
"""Bytes that move together: a piece is 16 aligned bytes."""

LINE = 128
"""Bytes of a line: 128 aligned bytes."""


class Named(enum.IntEnum):
    """An enumeration whose members can be had by name."""

    @classmethod
    def member(cls, value: int | str) -> Self:
        """The member of this number or name; upper or lower case.

        Raises
        ------
        ValueError
            If there is none.
        """
        if not isinstance(value, str):
            return cls(value)
        for member in cls:
            if value.upper() in (member.name, *member.short_names):
                return member
        raise ValueError(f"{value}: not one of {', '.join(member.name for member in cls)}")

    @property
    def short_names(self) -> tuple[str, ...]:
        """Other names, in capitals."""
        return ()


class Arch(enum.IntEnum):
    """Target architecture: what a tensor map and a request may use."""

    SM_90A = 90
    SM_100A = 100


class Interleave(Named):
    """``CUtensorMapInterleave``: the bytes of a slice of channels."""

    NONE = 0
    INTERLEAVE_16B = 1
    INTERLEAVE_32B = 2

    @property
    def short_names(self) -> tuple[str, ...]:
        """``16B``, ``32B``."""
        return (self.name.removeprefix("INTERLEAVE_"),)

    @property
    def align(self) -> int:
        """What address and strides are multiples of, in bytes."""
        return 32 if self is Interleave.INTERLEAVE_32B else 16


class Swizzle(Named):
    """``CUtensorMapSwizzle``: which bits of a shared-memory byte address are exchanged by XOR.

    0 to 3 are recorded on silicon. 4 to 6 are of ``Arch.SM_100A`` (PTX ISA), and so is 96B, which
    the driver cannot encode: its number, and its place in a map, are this project's (choice).
    """

    NONE = 0
    SWIZZLE_32B = 1
    SWIZZLE_64B = 2
    SWIZZLE_128B = 3
    SWIZZLE_128B_ATOM_32B = 4
    SWIZZLE_128B_ATOM_32B_FLIP_8B = 5
    SWIZZLE_128B_ATOM_64B = 6
    SWIZZLE_96B = 7

    @property
    def short_names(self) -> tuple[str, ...]:
        """``128B`` and so on."""
        return (self.name.removeprefix("SWIZZLE_"),)

    @property
    def span(self) -> int | None:
        """Bytes from a row of shared memory to the next, and the most of a row; None: packed."""
        return (None, 32, 64, 128, 128, 128, 128, 96)[self]

    @property
    def shift(self) -> int:
        """How far above the bits that change those stand that change them."""
        return (3, 3, 3, 3, 2, 2, 1, 3)[self]

    @property
    def mask(self) -> int:
        """Address bits that change."""
        return (0, 0x10, 0x30, 0x70, 0x60, 0x60, 0x40, 0x10)[self]

    @property
    def flips(self) -> bool:
        """Address bit 3 changes too, by bit 7."""
        return self is Swizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats."""
        return (PIECE, 256, 512, 1024, 512, 512, 256, 256)[self]

    @property
    def block(self) -> int:
        """Bytes, aligned, that the swizzle permutes among themselves."""
        return (PIECE, 32, 64, 128, 128, 128, 128, 32)[self]

    @property
    def fields(self) -> tuple[int, int]:
        """Codes in a tensor map: w2[14:13] and the atom's, w2[20:19]."""
        if self is Swizzle.SWIZZLE_96B:
            return 0, 1
        return min(self, 3), max(self - 3, 0)


class L2Promotion(Named):
    """``CUtensorMapL2promotion``: a hint."""

    NONE = 0
    L2_64B = 1
    L2_128B = 2
    L2_256B = 3

    @property
    def short_names(self) -> tuple[str, ...]:
        """``64B`` and so on."""
        return (self.name.removeprefix("L2_"),)


class OobFill(Named):
    """``CUtensorMapFloatOOBfill``: what elements outside the tensor read as."""

    NONE = 0
    NAN_REQUEST_ZERO_FMA = 1

    @property
    def short_names(self) -> tuple[str, ...]:
        """``ZERO``, ``NAN``."""
        return (("ZERO",), ("NAN",))[self]


class MapMode(Named):
    """What a tensor map says of its box: mode of the encoding, w2[0]."""

    TILE = 0
    IM2COL = 1


class DataType(Named):
    """``CUtensorMapDataType``: 0 to 12 recorded on silicon, 13 to 15 of ``Arch.SM_100A``."""

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
    PACKED_16U4_ALIGN8B = 13
    PACKED_16U4_ALIGN16B = 14
    PACKED_16U6_ALIGN16B = 15

    @property
    def short_names(self) -> tuple[str, ...]:
        """``U8``, ``BF16`` and so on."""
        return _SHORT_NAMES[self]

    @property
    def bits(self) -> int:
        """Bits of an element in global memory."""
        return _BITS[self]

    @property
    def smem_bits(self) -> int:
        """Bits that an element takes up in shared memory."""
        return 8 if self > DataType.PACKED_16U4_ALIGN8B else self.bits

    @property
    def is_sub_byte(self) -> bool:
        """Elements are packed, less than a byte each."""
        return self >= DataType.PACKED_16U4_ALIGN8B

    @property
    def itemsize(self) -> int:
        """Bytes of an element; a sub-byte type's elements take up a byte of shared memory."""
        return max(self.bits // 8, 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of an element in memory; of sub-byte types, of the bytes."""
        return _DTYPES[self]

    @property
    def format(self) -> int:
        """Code in word w2 of a tensor map (silicon; sub-byte: report)."""
        return _FORMATS[self]

    @property
    def replace_code(self) -> int:
        """Code in ``tensormap.replace`` (PTX ISA)."""
        return _REPLACE_CODES[self]

    @property
    def rounds(self) -> bool:
        """Loads round float32 to tf32."""
        return self in (DataType.TFLOAT32, DataType.TFLOAT32_FTZ)

    @property
    def flushes(self) -> bool:
        """Additions read and write subnormals as zero; loads and stores do not."""
        return self in (DataType.FLOAT32_FTZ, DataType.TFLOAT32_FTZ)

    @property
    def is_float(self) -> bool:
        """NaN fill is allowed."""
        return DataType.FLOAT16 <= self <= DataType.TFLOAT32_FTZ

    @classmethod
    def of_dtype(cls, dtype: np.dtype[Any]) -> "DataType | None":
        """The type that holds elements of ``dtype``, or None if there is none.

        8-bit floats and integers are bytes to the unit, 16-bit integers are ``UINT16``.

        Examples
        --------
        >>> DataType.of_dtype(np.dtype(ml_dtypes.float8_e4m3fn)).name
        'UINT8'
        """
        return _OF_DTYPE.get(np.dtype(dtype))


_SHORT_NAMES: tuple[tuple[str, ...], ...] = (
    *(("U8",), ("U16",), ("U32",), ("S32",), ("U64",), ("S64",)),
    *(("F16",), ("F32",), ("F64",), ("BF16",), ("F32_FTZ",), ("TF32",), ("TF32_FTZ",)),
    *(("16U4_ALIGN8B",), ("16U4_ALIGN16B",), ("16U6_ALIGN16B",)),
)
_BITS = (8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6)
_DTYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(item)
    for item in (
        *(np.uint8, np.uint16, np.uint32, np.int32, np.uint64, np.int64),
        *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16),
        *(np.float32, np.float32, np.float32),
        *(np.uint8, np.uint8, np.uint8),
    )
)
_FORMATS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 7, 8, 11, 12, 13)
_REPLACE_CODES = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 11, 12, 13, 14, 15)
_OF_DTYPE: dict[np.dtype[Any], DataType] = {
    **{_DTYPES[kind]: kind for kind in DataType if kind <= DataType.BFLOAT16},
    **{
        np.dtype(item): DataType.UINT8
        for item in (
            *(np.int8, np.bool_),
            *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu),
            *(ml_dtypes.float8_e4m3, ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3b11fnuz),
            *(ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz),
        )
    },
    np.dtype(np.int16): DataType.UINT16,
    np.dtype(np.complex64): DataType.UINT64,
}


class AccessMode(Named):
    """How an instruction walks a tensor: PTX's load and store modes.

    TILE and IM2COL (stores: ``im2col_no_offs``) are recorded on silicon; the rest is of
    ``Arch.SM_100A`` (PTX ISA).
    """

    TILE = 0
    IM2COL = 1
    TILE_GATHER4 = 2
    TILE_SCATTER4 = 3
    IM2COL_W = 4
    IM2COL_W_128 = 5

    @property
    def map_mode(self) -> MapMode:
        """The mode of the tensor maps that it takes."""
        im2col = (AccessMode.IM2COL, AccessMode.IM2COL_W, AccessMode.IM2COL_W_128)
        return MapMode.IM2COL if self in im2col else MapMode.TILE


class ReductionOp(Named):
    """The operation of a reduction; codes as in reports of the unit's interface."""

    ADD = 0
    MIN = 1
    MAX = 2
    INC = 3
    DEC = 4
    AND = 5
    OR = 6
    XOR = 7
