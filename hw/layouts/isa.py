"""Enumerations of the instructions and of the tensor map, in PTX's and CUDA's terms."""

from collections.abc import Iterable, Mapping
from functools import cache

from amaranth.hdl import Cat, Value
from amaranth.lib import data, enum

from hw.params import PIECE_BYTES, TmaParams

DESCRIPTOR_BITS = 512
"""The significant half of a tensor map: words w0 to w15."""


GLOBAL_ADDRESS_BITS = 64
"""Addresses in requests and tensor maps are CUDA's, whatever the memory port carries."""


CTA_FIELD_BITS = 8
"""A CTA's rank in a ``shared::cluster`` address, bits 31:24."""


PIECE_WORDS = PIECE_BYTES // 4
"""Words of a piece, which a write may leave out one by one."""


class ErrorCode(enum.Enum, shape=5):
    """Cause of a refused or failed request, numbered as in error records.

    ``golden.errors`` has the same names and numbers; a test compares both.
    """

    NONE = 0
    MAP_FIELD = 1
    MAP_MODE = 2
    SMEM_ALIGN = 3
    SMEM_RANGE = 4
    COORD_ALIGN = 5
    COORD_NEG = 6
    IM2COL_START = 7
    IM2COL_CORNER = 8
    IM2COL_OFFSET = 9
    RED_TYPE = 10
    BULK_ALIGN = 11
    MASK = 12
    DST_CTA = 13
    MBAR_ALIGN = 14
    MBAR_FAULT = 15
    GMEM_FAULT = 16


class Swizzle(enum.Enum, shape=2):
    """Which bits of a shared-memory address are permuted (tensor map w2[14:13])."""

    NONE = 0
    SPAN_32B = 1
    SPAN_64B = 2
    SPAN_128B = 3


class Fill(enum.Enum, shape=1):
    """What elements outside the tensor read as (tensor map w2[15])."""

    ZERO = 0
    NAN = 1


class SwizzleAtom(enum.Enum, shape=2):
    """What the 128-byte swizzle exchanges (tensor map w2[20:19])."""

    ATOM_16B = 0
    ATOM_32B = 1
    ATOM_32B_FLIP_8B = 2
    ATOM_64B = 3


class Packing(enum.Enum, shape=2):
    """Bytes of each 16 in shared memory that hold elements of 4 or 6 bits; the rest is left."""

    NONE = 0
    BYTES_8 = 1
    BYTES_12 = 2


class L2Promotion(enum.Enum, shape=2):
    """How much L2 is to fetch around a line (tensor map w2[18:17]); a hint."""

    NONE = 0
    L2_64B = 1
    L2_128B = 2
    L2_256B = 3


class MemoryAttributes(data.Struct):
    """Hints that go to the memory port with each line.

    ``cache_policy`` is the 64 bits of ``.L2::cache_hint``, 0 without.
    """

    l2_promotion: L2Promotion
    cache_policy: 64


@cache
def data_style_layout(params: TmaParams) -> data.StructLayout:
    """How the bytes of a request look in shared memory; the same for all of its pieces."""
    style = {"swizzle": Swizzle, "fill": Fill, "round_tf32": 1}
    if params.swizzle_atoms:
        style["atom"] = SwizzleAtom
    if params.sub_byte:
        style["packing"] = Packing
    return data.StructLayout(style)


class Operation(enum.Enum, shape=4):
    """What a request asks for. Of those that move data, bit 0: without a tensor map; bit 2: to
    global memory, with bit 1 as a reduction; with bits 2 and 3 to shared memory of another CTA.

    A prefetch brings lines to L2; nothing tells of its end. COMMIT_GROUP and the waits are about
    the bulk groups of the thread that issues them.
    """

    TENSOR_LOAD = 0
    BULK_LOAD = 1
    TENSOR_PREFETCH = 2
    BULK_PREFETCH = 3
    TENSOR_STORE = 4
    BULK_STORE = 5
    TENSOR_REDUCE = 6
    BULK_REDUCE = 7
    COMMIT_GROUP = 8
    WAIT_GROUP = 9
    WAIT_GROUP_READ = 10
    DSMEM_COPY = 13
    DSMEM_REDUCE = 15


def is_load(operation) -> Value:
    """Return whether a request loads: prefetches do not."""
    return Cat(operation == load for load in (Operation.TENSOR_LOAD, Operation.BULK_LOAD)).any()


def is_store(operation) -> Value:
    """Return whether a request that moves data reads shared memory."""
    return operation.as_value()[2]


def is_dsmem(operation) -> Value:
    """Return whether it writes shared memory of another CTA."""
    return operation.as_value()[2:4].all()


def is_reduction(operation) -> Value:
    """Return whether such a request is combined with what is where it writes."""
    return operation.as_value()[1:3].all()


class ReductionOp(enum.Enum, shape=3):
    """How memory combines what it holds with what a reduction brings."""

    ADD = 0
    MIN = 1
    MAX = 2
    INC = 3
    DEC = 4
    AND = 5
    OR = 6
    XOR = 7


class ElementType(enum.Enum, shape=4):
    """Type of an element, numbered as in tensor maps (w2[10:7])."""

    U8 = 0
    U16 = 1
    U32 = 2
    S32 = 3
    U64 = 4
    S64 = 5
    F16 = 6
    F32 = 7
    F32_FTZ = 8
    F64 = 9
    BF16 = 10


_ARITHMETIC = ReductionOp.ADD, ReductionOp.MIN, ReductionOp.MAX


_COUNTING = ReductionOp.INC, ReductionOp.DEC


_BITWISE = ReductionOp.AND, ReductionOp.OR, ReductionOp.XOR


REDUCTIONS = {
    ElementType.U32: (*_ARITHMETIC, *_COUNTING, *_BITWISE),
    ElementType.S32: (*_ARITHMETIC, *_BITWISE),
    ElementType.U64: (*_ARITHMETIC, *_BITWISE),
    ElementType.S64: (ReductionOp.MIN, ReductionOp.MAX),
    ElementType.F16: _ARITHMETIC,
    ElementType.F32: (ReductionOp.ADD,),
    ElementType.F32_FTZ: (ReductionOp.ADD,),
    ElementType.F64: (ReductionOp.ADD,),
    ElementType.BF16: _ARITHMETIC,
}
"""What there is of each type for tensor reductions."""


BULK_REDUCTIONS = {
    **{kind: ops for kind, ops in REDUCTIONS.items() if kind != ElementType.F32_FTZ},
    ElementType.S64: (ReductionOp.MIN, ReductionOp.MAX, *_BITWISE),
}
"""What there is for bulk reductions."""


DSMEM_REDUCTIONS = {
    ElementType.U32: REDUCTIONS[ElementType.U32],
    ElementType.S32: REDUCTIONS[ElementType.S32],
    ElementType.U64: (ReductionOp.ADD,),
}
"""What there is where the destination is shared memory."""


class AccessMode(enum.Enum, shape=3):
    """How a tensor request walks the tensor: PTX's load modes."""

    TILE = 0
    IM2COL = 1
    TILE_GATHER4 = 2
    TILE_SCATTER4 = 3
    IM2COL_W = 4
    IM2COL_W_128 = 5


def is_reducible(pairs: Mapping[ElementType, Iterable[ReductionOp]], element_type, op) -> Value:
    """Return whether ``op`` is there for ``element_type``."""
    return Cat(
        (element_type == kind) & Cat(op == other for other in ops).any()
        for kind, ops in pairs.items()
    ).any()


class Reduction(data.Struct):
    """How memory takes what is written: if ``enabled``, combined with what it holds."""

    enabled: 1
    op: ReductionOp
    element_type: ElementType
