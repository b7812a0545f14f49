"""Enumerations of instruction operands and tensor-map fields, named as in PTX and CUDA."""

from collections.abc import Iterable, Mapping
from functools import cache

from amaranth.hdl import Cat, Value
from amaranth.lib import data, enum

from hw.params import PIECE_BYTES, TmaParams

DESCRIPTOR_BITS = 512
"""Bits of a tensor map that the unit reads: words w0 to w15, the first half of its 128 bytes."""


GLOBAL_ADDRESS_BITS = 64
"""Width of a global address in requests and tensor maps. The memory port may carry fewer bits."""


CTA_FIELD_BITS = 8
"""Width of the CTA rank in a ``shared::cluster`` address (bits 31:24)."""


BULK_SIZE_BITS = 20
"""Width of the size of a bulk copy. Bits 3:0 and 31:20 of the operand are ignored."""


PIECE_WORDS = PIECE_BYTES // 4
"""Words of 4 bytes in a piece. A write to shared memory has one mask bit per word."""


class ErrorCode(enum.Enum, shape=5):
    """Cause of a refused or failed request, or of a dropped answer, numbered as in error records.

    ``golden.errors`` has the same names and numbers; a test compares the two lists.
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
    WRONG_TAG = 17


class Swizzle(enum.Enum, shape=2):
    """Swizzle mode: the span of shared memory in which 16-byte units are permuted (w2[14:13])."""

    NONE = 0
    SPAN_32B = 1
    SPAN_64B = 2
    SPAN_128B = 3


class Fill(enum.Enum, shape=1):
    """Value that a load writes for elements outside the tensor (tensor map w2[15])."""

    ZERO = 0
    NAN = 1


class SwizzleAtom(enum.Enum, shape=2):
    """Unit that the 128-byte swizzle permutes (tensor map w2[20:19])."""

    ATOM_16B = 0
    ATOM_32B = 1
    ATOM_32B_FLIP_8B = 2
    ATOM_64B = 3


class Packing(enum.Enum, shape=2):
    """Bytes of every 16 in shared memory that hold elements of a padded 4-bit or 6-bit type.

    A load does not write the other bytes. NONE: the elements fill all 16 bytes.
    """

    NONE = 0
    BYTES_8 = 1
    BYTES_12 = 2


class L2Promotion(enum.Enum, shape=2):
    """Hint: bytes that L2 fetches when a line misses (tensor map w2[18:17])."""

    NONE = 0
    L2_64B = 1
    L2_128B = 2
    L2_256B = 3


class MemoryAttributes(data.Struct):
    """Cache hints that accompany each line at the memory port.

    Members
    -------
    l2_promotion : bytes that L2 fetches when the line misses
    cache_policy : operand of ``.L2::cache_hint``; 0 if the instruction has none
    """

    l2_promotion: L2Promotion
    cache_policy: 64


class ReportMechanism(enum.Enum, shape=3):
    """Pattern that a load reports to its barriers: ``.mbarrier::report::validity``.

    PER_16BYTES: the first element of each aligned 16 bytes of global memory has the value of the
    name, in hexadecimal; an element has as many digits. PER_ELEMENT_FF: a byte is FF. Codes that
    are not listed report nothing.
    """

    DISABLED = 0
    PER_16BYTES_80000000 = 1
    PER_16BYTES_8000 = 2
    PER_16BYTES_80 = 3
    PER_16BYTES_8 = 4
    PER_ELEMENT_FF = 5


@cache
def map_style_layout(params: TmaParams) -> data.StructLayout:
    """Format of data in shared memory that a tensor map gives.

    Members
    -------
    swizzle : swizzle mode
    fill : value of elements outside the tensor
    round_tf32 : 1 if float32 elements are rounded to tf32
    atom : unit of the 128-byte swizzle; present with ``swizzle_atoms``
    packing : bytes of every 16 that hold elements; present with ``sub_byte``
    short_rows : 1 if rows of 6-bit elements have 64 bytes instead of 128; does not count for other
        elements; present with ``b6p2x16_64``
    """
    style = {"swizzle": Swizzle, "fill": Fill, "round_tf32": 1}
    if params.swizzle_atoms:
        style["atom"] = SwizzleAtom
    if params.sub_byte:
        style["packing"] = Packing
    if params.b6p2x16_64:
        style["short_rows"] = 1
    return data.StructLayout(style)


@cache
def data_style_layout(params: TmaParams) -> data.StructLayout:
    """Style of a request's data, equal for all of its pieces.

    Members
    -------
    swizzle, fill, round_tf32, atom, packing, short_rows : as in ``map_style_layout``
    report : pattern in the data that a load reports; present with ``report_mechanism``
    """
    report = {"report": ReportMechanism} if params.report_mechanism else {}
    return data.StructLayout({**map_style_layout(params).members, **report})


class Operation(enum.Enum, shape=4):
    """Operation of a request.

    The bits classify the operations that move data. Bit 0 is 1 for bulk copies, which use no tensor
    map. Bit 2 is 1 if the source is shared memory; then bit 1 is 1 for a reduction, and bit 3 is 1
    if the destination is shared memory of another CTA, 0 if it is global memory.

    A prefetch brings lines to L2, and its end is not reported. COMMIT_GROUP, WAIT_GROUP and
    WAIT_GROUP_READ move no data: they act on the bulk groups of the thread that issues them.
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
    """Return 1 if ``operation`` loads global memory into shared memory; a prefetch does not."""
    return Cat(operation == load for load in (Operation.TENSOR_LOAD, Operation.BULK_LOAD)).any()


def is_store(operation) -> Value:
    """Return 1 if ``operation``, which moves data, reads its source from shared memory."""
    return operation.as_value()[2]


def is_dsmem(operation) -> Value:
    """Return 1 if ``operation`` writes shared memory of another CTA."""
    return operation.as_value()[2:4].all()


def is_reduction(operation) -> Value:
    """Return 1 if ``operation``, which moves data, is a reduction."""
    return operation.as_value()[1:3].all()


class ReductionOp(enum.Enum, shape=3):
    """Operation of a reduction: how memory combines its operand with the source operand."""

    ADD = 0
    MIN = 1
    MAX = 2
    INC = 3
    DEC = 4
    AND = 5
    OR = 6
    XOR = 7


class ElementType(enum.Enum, shape=4):
    """Element type, numbered as in tensor maps (w2[10:7])."""

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
"""Operations of tensor reductions for each element type."""


BULK_REDUCTIONS = {
    **{kind: ops for kind, ops in REDUCTIONS.items() if kind != ElementType.F32_FTZ},
    ElementType.S64: (ReductionOp.MIN, ReductionOp.MAX, *_BITWISE),
}
"""Operations of bulk reductions to global memory for each element type."""


DSMEM_REDUCTIONS = {
    ElementType.U32: REDUCTIONS[ElementType.U32],
    ElementType.S32: REDUCTIONS[ElementType.S32],
    ElementType.U64: (ReductionOp.ADD,),
}
"""Operations of DSMEM reductions for each element type."""


ASYNC_REDUCTIONS = {**DSMEM_REDUCTIONS, ElementType.S64: (ReductionOp.ADD,)}
"""Operations of ``red.async`` for each element type."""


class AccessMode(enum.Enum, shape=3):
    """Access mode of a tensor request: the load mode of the PTX instruction."""

    TILE = 0
    IM2COL = 1
    TILE_GATHER4 = 2
    TILE_SCATTER4 = 3
    IM2COL_W = 4
    IM2COL_W_128 = 5


def is_reducible(pairs: Mapping[ElementType, Iterable[ReductionOp]], element_type, op) -> Value:
    """Return 1 if ``pairs`` has the operation ``op`` for ``element_type``."""
    return Cat(
        (element_type == kind) & Cat(op == other for other in ops).any()
        for kind, ops in pairs.items()
    ).any()


class Reduction(data.Struct):
    """Reduction that memory performs with the elements of a write.

    Members
    -------
    enabled : 1 if memory combines the written elements with those it holds, 0 for a plain write
    op, element_type : operation and element type; ignored unless ``enabled``
    """

    enabled: 1
    op: ReductionOp
    element_type: ElementType
