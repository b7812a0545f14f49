"""Enumerations of CUDA's driver API, with the properties that the unit derives from each member.

``member`` looks a member up by number, name or short name: ``Swizzle.member("128B")``. Members that
Hopper does not have are marked; ``golden.arch`` says which architectures have them. Their behaviour
is known from documents only.
"""

import enum
from typing import Any, Self

import ml_dtypes
import numpy as np

MAX_RANK = 5

SMEM_BYTES = 233472
"""Largest shared memory of a CTA, and largest tiled box, in bytes: 228 KiB (silicon)."""

PIECE = 16
"""Bytes of a piece, the unit of data movement: 16 aligned bytes."""

LINE = 128
"""Bytes of a line: 128 aligned bytes."""


class Named(enum.IntEnum):
    """An enumeration whose members can be looked up by name."""

    @classmethod
    def member(cls, value: int | str) -> Self:
        """Return the member with a number or a name, in upper or lower case.

        Raises
        ------
        ValueError
            If no member has it.
        """
        for member in cls:
            if isinstance(value, str):
                if value.upper() in (member.name, *member.short_names):
                    return member
            elif value == member:
                return member
        raise ValueError(f"{value}: must be one of {', '.join(member.name for member in cls)}")

    @property
    def short_names(self) -> tuple[str, ...]:
        """Other names, in capitals."""
        return ()


class Interleave(Named):
    """``CUtensorMapInterleave``: bytes of a slice of channels."""

    NONE = 0
    INTERLEAVE_16B = 1
    INTERLEAVE_32B = 2

    @property
    def short_names(self) -> tuple[str, ...]:
        """``16B``, ``32B``."""
        return (self.name.removeprefix("INTERLEAVE_"),)

    @property
    def align(self) -> int:
        """Alignment of address and strides, in bytes."""
        return 32 if self is Interleave.INTERLEAVE_32B else 16


class Swizzle(Named):
    """``CUtensorMapSwizzle``: which bits of a shared-memory byte address are changed by XOR.

    Members 0 to 3 are recorded on silicon. Members 4 to 7 are later than Hopper (PTX ISA). The
    driver cannot encode 96B: its number, and its code in a map, are this project's (choice).
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
        """Row pitch in shared memory, in bytes, which is also the longest legal row.

        None if rows are packed.
        """
        return (None, 32, 64, 128, 128, 128, 128, 96)[self]

    @property
    def shift(self) -> int:
        """Distance from the address bits that are changed up to the bits they are XORed with."""
        return (3, 3, 3, 3, 2, 2, 1, 3)[self]

    @property
    def mask(self) -> int:
        """Address bits that are changed."""
        return (0, 0x10, 0x30, 0x70, 0x60, 0x60, 0x40, 0x10)[self]

    @property
    def flips(self) -> bool:
        """True if address bit 3 is also changed, by XOR with bit 7."""
        return self is Swizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B

    @property
    def repeat(self) -> int:
        """Period of the pattern, in bytes."""
        return (PIECE, 256, 512, 1024, 512, 512, 256, 256)[self]

    @property
    def block(self) -> int:
        """Size of the aligned blocks within which the swizzle moves bytes, in bytes."""
        return (PIECE, 32, 64, 128, 128, 128, 128, 32)[self]

    @property
    def fields(self) -> tuple[int, int]:
        """Codes in a tensor map: of the span, w2[14:13], and of the atom, w2[20:19]."""
        if self is Swizzle.SWIZZLE_96B:
            return 0, 1
        return min(self, 3), max(self - 3, 0)


class L2Promotion(Named):
    """``CUtensorMapL2promotion``: a hint, without effect on results."""

    NONE = 0
    L2_64B = 1
    L2_128B = 2
    L2_256B = 3

    @property
    def short_names(self) -> tuple[str, ...]:
        """``64B`` and so on."""
        return (self.name.removeprefix("L2_"),)


class OobFill(Named):
    """``CUtensorMapFloatOOBfill``: value of elements outside the tensor."""

    NONE = 0
    NAN_REQUEST_ZERO_FMA = 1

    @property
    def short_names(self) -> tuple[str, ...]:
        """``ZERO``, ``NAN``."""
        return (("ZERO",), ("NAN",))[self]


class MapMode(Named):
    """Mode of a tensor map, w2[0]: how it describes its box."""

    TILE = 0
    IM2COL = 1


class DataType(Named):
    """``CUtensorMapDataType``: 0 to 12 are recorded on silicon, 13 to 15 are later than Hopper."""

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
        """Bits of an element in shared memory."""
        return 8 if self > DataType.PACKED_16U4_ALIGN8B else self.bits

    @property
    def is_sub_byte(self) -> bool:
        """True if elements are packed, with less than a byte each."""
        return self >= DataType.PACKED_16U4_ALIGN8B

    @property
    def itemsize(self) -> int:
        """Bytes of an element, 1 for sub-byte types."""
        return max(self.bits // 8, 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy type of an element in memory; uint8 for sub-byte types."""
        return _DTYPES[self]

    @property
    def format(self) -> int:
        """Code in word w2 of a tensor map (silicon; sub-byte types: report)."""
        return _FORMATS[self]

    @property
    def replace_code(self) -> int:
        """Code in ``tensormap.replace`` (PTX ISA)."""
        return _REPLACE_CODES[self]

    @property
    def rounds(self) -> bool:
        """True if loads round float32 to tf32."""
        return self in (DataType.TFLOAT32, DataType.TFLOAT32_FTZ)

    @property
    def flushes(self) -> bool:
        """True if additions treat subnormals as zero; loads and stores do not."""
        return self in (DataType.FLOAT32_FTZ, DataType.TFLOAT32_FTZ)

    @property
    def is_float(self) -> bool:
        """True if the type is a floating-point type, for which NaN fill is legal."""
        return DataType.FLOAT16 <= self <= DataType.TFLOAT32_FTZ

    @classmethod
    def of_dtype(cls, dtype: np.dtype[Any]) -> "DataType | None":
        """Return the type for elements of ``dtype``; None if there is none.

        All 8-bit types are ``UINT8`` to the unit, 16-bit integers are ``UINT16``.

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
    """Load and store mode of an instruction in PTX: the order in which it visits a tensor.

    TILE and IM2COL (in stores ``im2col_no_offs``) are recorded on silicon; the other modes are
    later than Hopper (PTX ISA).
    """

    TILE = 0
    IM2COL = 1
    TILE_GATHER4 = 2
    TILE_SCATTER4 = 3
    IM2COL_W = 4
    IM2COL_W_128 = 5

    @property
    def map_mode(self) -> MapMode:
        """Mode of the tensor maps that the access mode requires."""
        im2col = (AccessMode.IM2COL, AccessMode.IM2COL_W, AccessMode.IM2COL_W_128)
        return MapMode.IM2COL if self in im2col else MapMode.TILE


class Ordering(Named):
    """Qualifiers ``.sem`` and ``.scope`` of bulk requests: how other threads see the accesses.

    They have no effect on the data. With ``.relaxed``, each 16 bytes are one access (``.b128``).
    """

    WEAK = 0
    RELAXED_CTA = 1
    RELAXED_CLUSTER = 2
    RELAXED_GPU = 3
    RELAXED_SYS = 4


class ReportMechanism(Named):
    """Qualifier ``.report_mechanism`` of loads: the pattern that marks data as not valid (PTX ISA).

    PER_16BYTES mechanisms inspect one element of each aligned 16 bytes of global memory for a
    negative zero. PTX leaves open which one: here it is the first (choice). PER_ELEMENT_FF inspects
    each byte. Filled elements are not inspected.
    """

    DISABLED = 0
    PER_16BYTES_80000000 = 1
    PER_16BYTES_8000 = 2
    PER_16BYTES_80 = 3
    PER_16BYTES_8 = 4
    PER_ELEMENT_FF = 5

    @property
    def pattern(self) -> bytes:
        """Bytes of an element that match, in the order of memory."""
        return (b"", b"\0\0\0\x80", b"\0\x80", b"\x80", b"\x08", b"\xff")[self]

    @property
    def mask(self) -> int:
        """Bits of each byte of the pattern that are compared."""
        return 0x0F if self is ReportMechanism.PER_16BYTES_8 else 0xFF

    @property
    def spacing(self) -> int:
        """Bytes of global memory from an inspected element to the next."""
        return 1 if self is ReportMechanism.PER_ELEMENT_FF else PIECE


class ReductionOp(Named):
    """Operation of a reduction; its codes are those of reports about the unit's interface."""

    ADD = 0
    MIN = 1
    MAX = 2
    INC = 3
    DEC = 4
    AND = 5
    OR = 6
    XOR = 7
