"""What travels between the blocks: every payload, field by field.

Fields are listed from bit 0 upwards. *Piece* is 16 aligned bytes, *line* is ``line_bytes`` aligned
bytes of global memory, *beat* is ``line_bytes`` aligned bytes of shared memory. A payload whose
widths follow from the parameters is made by a function of them.
"""

import types
from collections.abc import Iterable, Mapping
from functools import cache

from amaranth.hdl import Cat, Mux, Value, signed, unsigned
from amaranth.lib import data, enum

from golden.errors import ErrorCode as GoldenCode
from hw.params import DIMS, PIECE_BYTES, SMEM_OFFSET_BITS, WARP, TmaParams
from hw.short_row import SHORT_ROW_BITS

DESCRIPTOR_BITS = 512
"""The significant half of a tensor map: words w0 to w15."""

GLOBAL_ADDRESS_BITS = 64
"""Addresses in requests and tensor maps are CUDA's, whatever the memory port carries."""

BARRIER_COUNT_BITS = 21
"""A number of arrivals or of transaction bytes."""

CTA_FIELD_BITS = 8
"""A CTA's rank in a ``shared::cluster`` address, bits 31:24."""

BARRIER_TAG_BITS = 16
"""A thread's name for its barrier operation."""

PIECE_WORDS = PIECE_BYTES // 4
"""Words of a piece, which a write may leave out one by one."""

BARRIER_WORD_ADDRESS_BITS = SMEM_OFFSET_BITS - 3
"""A barrier's place in shared memory, in words of 64 bits."""

TIME_LIMIT_BITS = 32
"""Clocks that a thread may wait in the mbarrier unit."""

STEP_BITS = 40
"""A global step of a loop in pieces: an element stride times a tensor stride."""


def _error_code(namespace: dict[str, object]) -> None:
    namespace["__doc__"] = "Why a request was refused: ``golden.errors.ErrorCode`` below 32."
    namespace.update({code.name: code.value for code in GoldenCode if code < 32})


ErrorCode = types.new_class("ErrorCode", (enum.Enum,), {"shape": unsigned(5)}, _error_code)


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


class BarrierOp(enum.Enum, shape=4):
    """Operations of the mbarrier unit."""

    INIT = 0
    INVAL = 1
    ARRIVE = 2
    ARRIVE_EXPECT_TX = 3
    EXPECT_TX = 4
    COMPLETE_TX = 5
    TEST_WAIT_PARITY = 6
    TEST_WAIT = 7
    TRY_WAIT_PARITY = 8
    TRY_WAIT = 9
    ARRIVE_NO_COMPLETE = 10
    ARRIVE_DROP = 11
    ARRIVE_DROP_NO_COMPLETE = 12
    ARRIVE_DROP_EXPECT_TX = 13
    PENDING_COUNT = 14
    REPORT = 15


class BarrierFault(enum.Enum, shape=3):
    """Why a barrier operation was not done (MBAR_FAULT)."""

    NONE = 0
    LOCKED = 1
    UNINITIALISED = 2
    OVER_ARRIVAL = 3
    TX_RANGE = 4
    COUNT = 5
    COMPLETES = 6
    OPERATION = 7


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


@cache
def request_layout(params: TmaParams) -> data.StructLayout:
    """A request, as one thread issues it.

    Members
    -------
    operation : which; others' members do not count
    request_id : the issuer's name for it; comes back in an error record
    global_address : of a tensor's map, a multiple of 64; of bulk bytes, of 16; of a DSMEM request
        the byte offset in the shared memory of ``dst_cta``
    size : of bulk bytes, a multiple of 16
    mode : of a tensor request
    rank : of a tensor request, the number of coordinates the instruction carries, 1 to 5
    coords : first element of the box, dimension 0 first; TILE_GATHER4: a column, four rows
    im2col_info : of loads and prefetches. IM2COL: offsets, W first; others: wHalo, wOffset
    cache_policy : 64 bits of ``.L2::cache_hint``, 0 without
    smem_address : byte offset in shared memory
    mbarrier : byte offset of the barrier that counts a load's bytes
    multicast, cta_mask : a load goes to all CTAs of the mask
    dst_cta : otherwise to this one, and a DSMEM request, too
    mbarrier_cta : the CTA that holds the barrier
    cta_group_2 : ``.cta_group::2``: the barrier may be the peer's
    reduction_op : of a reduction
    element_type : of a bulk reduction; a tensor's is in its map
    byte_mask : of a bulk store: byte i of each 16 is written where bit i is set
    thread : the issuer, for its bulk groups
    joins_group : a load is in the thread's bulk group until its tensor map is read; stores always
        are, until they are done
    groups : WAIT_GROUP and WAIT_GROUP_READ: so many of the youngest groups may be pending
    """
    return data.StructLayout(
        {
            "operation": Operation,
            "request_id": params.request_id_bits,
            "global_address": GLOBAL_ADDRESS_BITS,
            "size": 32,
            "mode": AccessMode,
            "rank": 3,
            "coords": data.ArrayLayout(signed(32), DIMS),
            "im2col_info": data.ArrayLayout(16, 3),
            "cache_policy": 64,
            "smem_address": SMEM_OFFSET_BITS,
            "mbarrier": SMEM_OFFSET_BITS,
            "multicast": 1,
            "cta_mask": 16,
            "dst_cta": CTA_FIELD_BITS,
            "mbarrier_cta": CTA_FIELD_BITS,
            "cta_group_2": 1,
            "reduction_op": ReductionOp,
            "element_type": ElementType,
            "byte_mask": PIECE_BYTES,
            "thread": params.thread_bits,
            "joins_group": 1,
            "groups": 8,
        }
    )


@cache
def group_layout(params: TmaParams) -> data.StructLayout:
    """The bulk group that a request is in: one of its thread's, if it has ``joined`` any."""
    return data.StructLayout(
        {"joined": 1, "thread": params.thread_bits, "index": params.group_bits}
    )


def stream_of(params: TmaParams, request) -> Value:
    """Return the stream of a request: that of its warp."""
    return request.thread[(WARP - 1).bit_length() :][: params.stream_bits]


def channel_of(params: TmaParams, operation, stream) -> Value:
    """Return the channel (see ``RequestQueue``) of a request: that of its stream, or of stores."""
    return Mux(is_store(operation), params.streams, stream) if params.stores else stream


@cache
def directed_request_layout(params: TmaParams) -> data.StructLayout:
    """A request of which it is known where it writes.

    Members
    -------
    misdirected : CTAs that there are not (MASK, DST_CTA), with the value that says so
    delivery : where a load or DSMEM request writes; in a cluster
    """
    operands = "multicast", "cta_mask", "dst_cta", "mbarrier_cta"
    fields = request_layout(params).members
    misdirected = data.StructLayout({"mask": 1, "cta": 1, "value": 16})
    return data.StructLayout(
        {
            **{name: shape for name, shape in fields.items() if name not in operands},
            "misdirected": misdirected,
            **({"delivery": delivery_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def queued_request_layout(params: TmaParams) -> data.StructLayout:
    """A request that moves data, and the bulk group that it is in."""
    fields = dict(directed_request_layout(params).members)
    if params.stores:
        fields["group"] = group_layout(params)
    return data.StructLayout(fields)


@cache
def group_result_layout(params: TmaParams) -> data.StructLayout:
    """The wait of this thread, which it issued as ``request_id``, is over."""
    return data.StructLayout({"thread": params.thread_bits, "request_id": params.request_id_bits})


def is_reducible(pairs: Mapping[ElementType, Iterable[ReductionOp]], element_type, op) -> Value:
    """Return whether ``op`` is there for ``element_type``."""
    return Cat(
        (element_type == kind) & Cat(op == other for other in ops).any()
        for kind, ops in pairs.items()
    ).any()


SECTOR_BYTES = 32
"""What memory reduces at a time."""


@cache
def reduction_request_layout(params: TmaParams) -> data.StructLayout:
    """A part of a line that memory is to combine with what it holds.

    ``sector`` is the global address divided by 32; ``pieces`` says which of its two pieces of 16
    bytes take part; ``tag`` comes back.
    """
    return data.StructLayout(
        {
            "tag": params.tag_bits,
            "sector": params.address_bits - 5,
            "op": ReductionOp,
            "element_type": ElementType,
            "pieces": SECTOR_BYTES // PIECE_BYTES,
            "data": SECTOR_BYTES * 8,
        }
    )


def issuer(params: TmaParams) -> dict[str, int]:
    """The field that names the CTA of a request, where there are several."""
    return {"cta": params.cta_bits} if params.ctas > 1 else {}


@cache
def error_layout(params: TmaParams) -> data.StructLayout:
    """The answer to a refused or failed request.

    Members
    -------
    request_id : of the request
    code : the first cause that applies
    dim : the dimension it was found in, or 0; of MBAR_FAULT, the ``BarrierFault``
    value : the offending value (two's complement where the field is signed)
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "code": ErrorCode,
            "dim": 3,
            "value": GLOBAL_ADDRESS_BITS,
        }
    )


@cache
def error_record_layout(params: TmaParams) -> data.StructLayout:
    """An error as the SM gets it; in a cluster ``cta`` issued the request: a fault of a barrier is
    told where the barrier is.
    """
    return data.StructLayout({**error_layout(params).members, **issuer(params)})


class DescriptorInvalidate(data.Struct):
    """``fence.proxy.tensormap`` acquire of one address, or of everything at kernel start."""

    address: GLOBAL_ADDRESS_BITS
    all: 1


class DescriptorFill(data.Struct):
    """Words w0 to w15 of a tensor map, or word that they cannot be read."""

    words: data.ArrayLayout(32, 16)
    error: 1


@cache
def gnic_request_layout(params: TmaParams) -> data.StructLayout:
    """A read of one line. ``line`` is the global address divided by ``line_bytes``.

    With ``prefetch`` the line is wanted in L2 only: there is no answer, and ``tag`` means nothing.
    """
    return data.StructLayout(
        {
            "tag": params.tag_bits,
            "line": params.line_address_bits,
            "prefetch": 1,
            "attributes": MemoryAttributes,
        }
    )


@cache
def gnic_response_layout(params: TmaParams) -> data.StructLayout:
    """The line that the request of this tag asked for, byte 0 first; ``error``: unreadable."""
    return data.StructLayout({"tag": params.tag_bits, "error": 1, "data": params.line_bytes * 8})


@cache
def smem_write_layout(params: TmaParams) -> data.ArrayLayout:
    """One clock of the shared-memory port: each lane writes 16 bytes at its own beat.

    Lane ``i`` holds bytes 16 * i to 16 * i + 15 of every beat. ``beat`` is the byte offset divided
    by ``line_bytes``. ``words`` says which groups of 4 bytes are written: all, but of packed types.
    """
    lane = data.StructLayout(
        {"valid": 1, "words": PIECE_WORDS, "beat": params.smem_beat_bits, "data": PIECE_BYTES * 8}
    )
    return data.ArrayLayout(lane, params.lanes)


class BarrierCommand(data.Struct):
    """One mbarrier operation of a thread.

    ``count``: arrivals of INIT and the arrivals, bytes of the tx operations, the parity of the
    waits by parity, the report of REPORT. ARRIVE_EXPECT_TX and ARRIVE_DROP_EXPECT_TX are one
    arrival and ``count`` bytes. ``state``: of TEST_WAIT, TRY_WAIT and PENDING_COUNT.
    ``time_limit``: clocks that a TRY_WAIT waits, 0 for none. ``v1``: of INIT, the layout; of the
    waits, for the conditional phase. ``tag`` comes back.
    """

    op: BarrierOp
    address: SMEM_OFFSET_BITS
    count: BARRIER_COUNT_BITS
    state: 64
    time_limit: TIME_LIMIT_BITS
    v1: 1
    tag: BARRIER_TAG_BITS


class BarrierResult(data.Struct):
    """The answer to a command, in the order of the commands.

    ``done``: a test found the phase complete. ``waits``: a TRY_WAIT did not, and is answered by a
    ``BarrierWake``. ``fault``: why the operation was not done. ``state``: the word before the
    operation; of PENDING_COUNT, the count.
    """

    tag: BARRIER_TAG_BITS
    done: 1
    waits: 1
    fault: BarrierFault
    state: 64


class BarrierWake(data.Struct):
    """The end of a TRY_WAIT that had to wait.

    ``done``: the phase is complete; else its time is over, or there is a ``fault``.
    """

    tag: BARRIER_TAG_BITS
    done: 1
    fault: BarrierFault


@cache
def barrier_completion_layout(params: TmaParams) -> data.StructLayout:
    """Bytes of a request that are in shared memory, for the barrier that counts them.

    In a cluster, ``cta`` issued the request and ``holder`` holds the barrier.
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            **issuer(params),
            **({"holder": params.cta_bits} if params.ctas > 1 else {}),
            "address": SMEM_OFFSET_BITS,
            "tx_bytes": BARRIER_COUNT_BITS,
        }
    )


@cache
def barrier_update_layout(params: TmaParams) -> data.StructLayout:
    """An operation on a barrier that has no result: COMPLETE_TX, or one of another CTA's threads.

    ``count`` as in ``BarrierCommand``. ``request_id`` and ``cta`` come back in the record of a
    fault.
    """
    return data.StructLayout(
        {
            "op": BarrierOp,
            "address": SMEM_OFFSET_BITS,
            "count": BARRIER_COUNT_BITS,
            "request_id": params.request_id_bits,
            **issuer(params),
        }
    )


@cache
def barrier_fault_layout(params: TmaParams) -> data.StructLayout:
    """An update that the barrier at ``address`` could not take."""
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            **issuer(params),
            "address": SMEM_OFFSET_BITS,
            "fault": BarrierFault,
        }
    )


@cache
def barrier_message_layout(params: TmaParams) -> data.StructLayout:
    """An update on its way to the CTA ``holder``."""
    return data.StructLayout({"holder": params.cta_bits, "update": barrier_update_layout(params)})


@cache
def refusal_layout(params: TmaParams) -> data.StructLayout:
    """An error record, and the channel and the bulk group that its request was in."""
    fields = dict(error_layout(params).members) | {"channel": params.channel_bits}
    if params.stores:
        fields["group"] = group_layout(params)
    return data.StructLayout(fields)


class Reduction(data.Struct):
    """How memory takes what is written: if ``enabled``, combined with what it holds."""

    enabled: 1
    op: ReductionOp
    element_type: ElementType


@cache
def gnic_write_layout(params: TmaParams) -> data.StructLayout:
    """A write to a line, or a reduction.

    ``strobe`` has a bit for each byte of ``data`` that counts; a reduction's comes in wholes of 16.
    The answer carries ``tag``.
    """
    return data.StructLayout(
        {
            "tag": params.tag_bits,
            "line": params.line_address_bits,
            "attributes": MemoryAttributes,
            "reduction": Reduction,
            "strobe": params.line_bytes,
            "data": params.line_bytes * 8,
        }
    )


@cache
def gnic_ack_layout(params: TmaParams) -> data.StructLayout:
    """The write of this tag is performed; ``error``: it failed, and nothing of it happened."""
    return data.StructLayout({"tag": params.tag_bits, "error": 1})


@cache
def smem_read_layout(params: TmaParams) -> data.ArrayLayout:
    """One clock of the reading port: each lane reads 16 bytes of its own beat."""
    lane = data.StructLayout({"valid": 1, "beat": params.smem_beat_bits})
    return data.ArrayLayout(lane, params.lanes)


class SignalTo(enum.Enum, shape=2):
    """Which CTA's barrier counts what arrives at a receiver."""

    RECEIVER = 0
    PAIR = 1
    """The one of the receiver's pair with the parity of ``signal_cta``."""
    CTA = 2
    """``signal_cta``."""


@cache
def delivery_layout(params: TmaParams) -> data.StructLayout:
    """Where a request writes: with ``remote``, the shared memories of all CTAs of ``mask``."""
    return data.StructLayout(
        {
            "remote": 1,
            "mask": params.ctas,
            "signal": SignalTo,
            "signal_cta": params.cta_bits,
        }
    )


@cache
def packet_layout(params: TmaParams) -> data.StructLayout:
    """Up to a beat for the shared memory of another CTA, and its barrier.

    Members
    -------
    request_id, cta : of the request, and who issued it
    mbarrier, signal, signal_cta : the barrier that counts ...
    tx_words : ... so many words of 4 bytes
    reduction : how shared memory takes it
    style, beat, boundary, valid, words, data : as in ``rotated_line_layout``
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "cta": params.cta_bits,
            "mbarrier": SMEM_OFFSET_BITS,
            "signal": SignalTo,
            "signal_cta": params.cta_bits,
            "tx_words": params.lane_bits + 3,
            **({"reduction": Reduction} if params.reductions else {}),
            "style": data_style_layout(params),
            "beat": params.smem_beat_bits,
            "boundary": params.lane_bits,
            "valid": params.lanes,
            "words": data.ArrayLayout(PIECE_WORDS, params.lanes),
            "data": lanes_layout(params),
        }
    )


@cache
def remote_store_layout(params: TmaParams) -> data.StructLayout:
    """``st.async`` or ``red.async`` of a thread: ``words`` of the 16 bytes at ``address``.

    ``address`` is a multiple of 16; ``data`` its 16 bytes. ``mbarrier`` is in the same CTA.
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "dst_cta": CTA_FIELD_BITS,
            "address": SMEM_OFFSET_BITS,
            "mbarrier": SMEM_OFFSET_BITS,
            "reduction": Reduction,
            "words": PIECE_WORDS,
            "data": PIECE_BYTES * 8,
        }
    )


@cache
def receipt_layout(params: TmaParams) -> data.StructLayout:
    """What a received packet tells its barrier, which ``holder`` holds; else ``received`` is 0.

    ``reduced``: it was combined with what was there.
    """
    return data.StructLayout(
        {
            "received": 1,
            "request_id": params.request_id_bits,
            "cta": params.cta_bits,
            "holder": params.cta_bits,
            "mbarrier": SMEM_OFFSET_BITS,
            "tx_words": params.lane_bits + 3,
            "reduced": 1,
        }
    )


@cache
def transfer_layout(params: TmaParams) -> data.StructLayout:
    """What completes a request: ``pieces`` written, then ``complete_tx`` at ``mbarrier``."""
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            "mbarrier": SMEM_OFFSET_BITS,
            "pieces": params.box_piece_bits,
            **({"delivery": delivery_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def writing_layout(params: TmaParams) -> data.StructLayout:
    """How the lines of a store are written.

    ``byte_mask``: which bytes of each piece. ``remote``: to shared memory of another CTA.
    """
    writing = {}
    if params.ctas > 1:
        writing["remote"] = 1
    if params.reductions:
        writing["reduction"] = Reduction
    if params.cp_mask:
        writing["byte_mask"] = PIECE_BYTES
    return data.StructLayout(writing)


def remote_layout(params: TmaParams) -> dict[str, int]:
    """The field by which all parts of a load say that they go to other CTAs, in a cluster."""
    return {"remote": 1} if params.ctas > 1 else {}


def write_as(params: TmaParams, writing, request, element_type) -> list:
    """Return what makes ``writing`` that of ``request``."""
    made = []
    if params.ctas > 1:
        made.append(writing.remote.eq(is_dsmem(request.operation)))
    if params.reductions:
        reduction = writing.reduction
        made += [
            reduction.enabled.eq(is_reduction(request.operation)),
            reduction.op.eq(request.reduction_op),
            reduction.element_type.eq(element_type),
        ]
    if params.cp_mask:
        all_bytes = (1 << PIECE_BYTES) - 1
        masked = request.operation == Operation.BULK_STORE
        made.append(writing.byte_mask.eq(Mux(masked, request.byte_mask, all_bytes)))
    return made


@cache
def walk_layout(params: TmaParams) -> data.StructLayout:
    """A box, or a part of it, ready to be walked by adding and comparing.

    What is inside the tensor is a set of equal *runs*, contiguous in both memories; up to four
    nested loops, innermost first, lead from one to the next. What lies between the runs in shared
    memory is fill. A box in several walks is a *chain*: fill goes on from one to the next.

    Members
    -------
    prefetch : only the lines are wanted, in L2
    store : from shared to global memory, and how; there is no fill
    remote : a load whose lines and fill go to shared memory of other CTAs
    attributes : of every line
    style : of every piece
    first, last : of its chain
    has_data : something is inside the tensor
    start : global piece address of the first run
    run : pieces in a run
    tail_bytes : bytes of a row's last piece that are inside the tensor; 0: all 16
    row_pieces : of each of the run's rows that is inside the tensor, if these are short; 0: of the
        run only the last piece is a row's
    smem_begin, smem_end : the chain in shared memory, in pieces; ``smem_begin`` counts where it
        begins, ``smem_end`` where it ends
    smem_start : shared-memory piece address of the first run
    smem_extent : from the start of a run to where fill may begin; skips the gap behind a row
    row_mask : which pieces of 128 aligned bytes belong to rows, not to gaps; with swizzle 96B, of
        384 bytes
    loops : repetitions less one, and what a repetition adds to both addresses
    """
    loop = data.StructLayout(
        {
            "last": 8,
            "global_step": STEP_BITS,
            "smem_step": params.box_piece_bits,
        }
    )
    return data.StructLayout(
        {
            "prefetch": 1,
            **({"store": 1, "writing": writing_layout(params)} if params.stores else {}),
            **remote_layout(params),
            "attributes": MemoryAttributes,
            "style": data_style_layout(params),
            "first": 1,
            "last": 1,
            "has_data": 1,
            "start": params.piece_address_bits,
            "run": params.run_bits,
            "tail_bytes": 4,
            "row_pieces": SHORT_ROW_BITS,
            "smem_begin": params.smem_piece_bits,
            "smem_end": params.smem_piece_bits,
            "smem_start": params.smem_piece_bits,
            "smem_extent": params.box_piece_bits,
            "row_mask": params.row_mask_bits,
            "loops": data.ArrayLayout(loop, DIMS - 1),
        }
    )


POSITION_BITS = 36
"""A position in a tensor, signed: extent, coordinate, corner and offset added up."""


@cache
def level_layout(params: TmaParams) -> data.StructLayout:
    """A dimension of an image as an odometer's wheel, in positions and in piece addresses.

    Members
    -------
    absent : there is no such dimension: it wraps at each step
    position : where the column starts
    restart : where a wrapped wheel goes on; its address is relative to the level above
    last : behind it, the wheel wraps
    limit : last position in the tensor
    by_less_one, step : from one position to the next
    address : of the column's start, levels above included
    """
    return data.StructLayout(
        {
            "absent": 1,
            "position": signed(POSITION_BITS),
            "restart": signed(POSITION_BITS),
            "last": signed(POSITION_BITS),
            "limit": 32,
            "by_less_one": 3,
            "step": STEP_BITS,
            "address": params.piece_address_bits,
            "restart_address": params.piece_address_bits,
        }
    )


@cache
def column_layout(params: TmaParams) -> data.StructLayout:
    """A column of pixels of an image: what the im2col walker makes walks of. The walk that it comes
    with holds what they have in common.

    Members
    -------
    enabled : it is one; otherwise the walk is ready
    stops : the first pixel outside and all behind it are left out
    pixels : rows of the column; with ``grouped``, of its first part
    grouped : ``im2col::w::128``: after each 32 pixels, ``halo`` more that the walk does not count
    pitch : pieces of shared memory from a pixel to the next
    row_low : pieces of a pixel in front of the tensor's first channel
    dense : pixels side by side are contiguous in both memories
    row_log2 : of so many pieces each; in a ``compact`` unit, where only such are ``dense``
    levels : W, H, D, N
    """
    return data.StructLayout(
        {
            "enabled": 1,
            **({"stops": 1} if params.im2col_w and params.stores else {}),
            "pixels": params.pixel_bits,
            "grouped": 1,
            "halo": 5,
            "pitch": 8,
            "row_low": 8,
            "dense": 1,
            **({"row_log2": 2} if params.compact else {}),
            "levels": data.ArrayLayout(level_layout(params), DIMS - 1),
        }
    )


def _part(params: TmaParams) -> dict[str, data.StructLayout]:
    """The part of a box that a job is: a walk, or in a unit with im2col a column of them."""
    column = {"column": column_layout(params)} if params.im2col else {}
    return {"walk": walk_layout(params), **column}


@cache
def walk_job_layout(params: TmaParams) -> data.StructLayout:
    """One of the parts of a request, ``first`` to ``last``, and what completes the request."""
    return data.StructLayout(
        {
            "first": 1,
            "last": 1,
            "stream": params.stream_bits,
            **({"group": group_layout(params)} if params.stores else {}),
            "transfer": transfer_layout(params),
            **_part(params),
        }
    )


@cache
def generator_job_layout(params: TmaParams) -> data.StructLayout:
    """A part of a request whose completion is tracked under ``slot``; ``last``: of its request."""
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "last": 1,
            "stream": params.stream_bits,
            **_part(params),
        }
    )


@cache
def slot_walk_layout(params: TmaParams) -> data.StructLayout:
    """A walk of the request under ``slot``; ``last``: its last one."""
    return data.StructLayout({"slot": params.slot_bits, "last": 1, "walk": walk_layout(params)})


def gather_layout(params: TmaParams) -> dict:
    """The fields of rows that are read with one line."""
    if not params.gathers_rows:
        return {}
    rows = {"more": params.lane_bits, "step": SHORT_ROW_BITS, "pitch": SHORT_ROW_BITS}
    return {"gather": data.StructLayout(rows)}


@cache
def run_layout(params: TmaParams, store: bool = False) -> data.StructLayout:
    """Pieces that are contiguous in both memories.

    ``tail_bytes`` and ``row_pieces`` as in ``walk_layout``. ``last``: of a store, which may end
    with a run of no pieces. ``gather``: so many more rows of ``pieces`` in the same line, each
    ``step`` pieces behind the one before, and ``pitch`` in shared memory.
    """
    if store:
        way = {"last": 1, "writing": writing_layout(params)}
    else:
        row = {"tail_bytes": 4, "row_pieces": SHORT_ROW_BITS}
        way = {"prefetch": 1, **row, **gather_layout(params), **remote_layout(params)}
    return data.StructLayout(
        {
            **way,
            "attributes": MemoryAttributes,
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "start": params.piece_address_bits,
            "smem": params.smem_piece_bits,
            "pieces": params.box_piece_bits if store else params.run_bits,
        }
    )


def fill_style(params: TmaParams) -> dict:
    """The fields that all fill of a request has: whose it is, and which pieces are not in gaps."""
    return {
        "slot": params.slot_bits,
        "style": data_style_layout(params),
        "row_mask": params.row_mask_bits,
        **remote_layout(params),
    }


@cache
def fill_step_layout(params: TmaParams) -> data.StructLayout:
    """A step of a walk, by what there is to be filled in front of its run, and behind a chain.

    Members
    -------
    first : of its chain, which begins at ``begin``
    has_run : otherwise the walk has none, and this is its only step
    start, extent : of the run, as in ``walk_layout``
    between : from its start on, the fill between rows that are one run, all in one beat
    ends : the chain, at ``end``
    last : of its request
    """
    return data.StructLayout(
        {
            **fill_style(params),
            "first": 1,
            "begin": params.smem_piece_bits,
            "has_run": 1,
            "start": params.smem_piece_bits,
            "extent": params.box_piece_bits,
            **({"between": params.lanes} if params.gathers_rows else {}),
            "ends": 1,
            "end": params.smem_piece_bits,
            "last": 1,
        }
    )


@cache
def fill_stretch_layout(params: TmaParams) -> data.StructLayout:
    """Beats to be filled, gaps between rows excepted.

    Members
    -------
    beat, mask : the first, and which of its pieces
    more, last_mask : so many more, all pieces of them but in the last
    last : no more fill for this request; such a stretch may have no pieces
    """
    return data.StructLayout(
        {
            **fill_style(params),
            "beat": params.smem_beat_bits,
            "mask": params.lanes,
            "more": params.box_piece_bits - params.lane_bits,
            "last_mask": params.lanes,
            "last": 1,
        }
    )


def moves_layout(params: TmaParams) -> dict:
    """Where the pieces of gathered rows are in their line."""
    moves = {"moves": data.ArrayLayout(params.lane_bits, params.lanes)}
    return moves if params.gathers_rows else {}


@cache
def line_use_layout(params: TmaParams) -> data.StructLayout:
    """What becomes of a line when it arrives.

    Members
    -------
    slot, style : of the request
    origin : shared-memory piece address that the line's piece 0 has, were it used
    valid : which pieces are used
    moves : which piece of the line takes the place of each; those above are of the places
    tail : the last pieces of rows, of which ...
    tail_bytes : ... so many bytes count and the rest is fill; 0: all 16 count
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "origin": params.smem_piece_bits,
            "valid": params.lanes,
            "tail": params.lanes,
            "tail_bytes": 4,
            **moves_layout(params),
            **remote_layout(params),
        }
    )


@cache
def store_line_layout(params: TmaParams) -> data.StructLayout:
    """A line to write, and where its bytes are.

    Members
    -------
    last : of the request, which may end with a line without valid pieces
    writing, attributes, slot, style : of the request
    line : global address divided by ``line_bytes``
    origin, valid : as in ``line_use_layout``
    """
    return data.StructLayout(
        {
            "last": 1,
            "writing": writing_layout(params),
            "attributes": MemoryAttributes,
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "line": params.line_address_bits,
            "origin": params.smem_piece_bits,
            "valid": params.lanes,
        }
    )


@cache
def write_line_layout(params: TmaParams) -> data.StructLayout:
    """A line of a store with its bytes; ``last`` and ``valid`` as in ``store_line_layout``."""
    return data.StructLayout(
        {
            "last": 1,
            "writing": writing_layout(params),
            "attributes": MemoryAttributes,
            "slot": params.slot_bits,
            "line": params.line_address_bits,
            "valid": params.lanes,
            "data": lanes_layout(params),
        }
    )


@cache
def performed_layout(params: TmaParams) -> data.StructLayout:
    """News of a store.

    Members
    -------
    slot : of the request
    counted : a line of it was answered
    failed, line : a line could not be written
    gone : because its receiver, the CTA ``line``, does not run
    ends, lines : it is known now that there are so many lines
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "counted": 1,
            "failed": 1,
            **({"gone": 1} if params.ctas > 1 else {}),
            "line": params.line_address_bits,
            "ends": 1,
            "lines": params.box_piece_bits,
        }
    )


@cache
def line_request_layout(params: TmaParams) -> data.StructLayout:
    """A line to read and its use; of a ``prefetch`` there is none."""
    return data.StructLayout(
        {
            "prefetch": 1,
            "attributes": MemoryAttributes,
            "line": params.line_address_bits,
            "use": line_use_layout(params),
        }
    )


@cache
def lanes_layout(params: TmaParams) -> data.ArrayLayout:
    """A line or beat as pieces."""
    return data.ArrayLayout(PIECE_BYTES * 8, params.lanes)


@cache
def line_arrival_layout(params: TmaParams) -> data.StructLayout:
    """A line that arrived, and its use; ``failed``: it could not be read, ``data`` is void."""
    return data.StructLayout(
        {"use": line_use_layout(params), "failed": 1, "data": lanes_layout(params)}
    )


@cache
def rotated_line_layout(params: TmaParams) -> data.StructLayout:
    """A line whose pieces stand in the lane of their shared-memory address before swizzling.

    Lanes from ``boundary`` on belong to ``beat``, those below it to the next beat. The request has
    ``pieces`` of its pieces in the line, even where none is to be written. ``words`` as in
    ``smem_write_layout``. In a cluster a line may be ``remote``, or one that was received.
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "beat": params.smem_beat_bits,
            "boundary": params.lane_bits,
            "pieces": params.lane_bits + 1,
            "valid": params.lanes,
            "data": lanes_layout(params),
            **({"words": data.ArrayLayout(PIECE_WORDS, params.lanes)} if params.word_masks else {}),
            **remote_layout(params),
            **({"receipt": receipt_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def fill_beat_layout(params: TmaParams) -> data.StructLayout:
    """Pieces of one beat to be filled, before swizzling; ``last`` as in ``fill_stretch_layout``.

    Beats of a stream come request by request; those of several streams in any order.
    """
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "style": data_style_layout(params),
            "beat": params.smem_beat_bits,
            "valid": params.lanes,
            "last": 1,
            **remote_layout(params),
            "stream": params.stream_bits,
        }
    )


@cache
def written_layout(params: TmaParams) -> data.StructLayout:
    """So many more pieces of a request are in shared memory, or what was received is."""
    return data.StructLayout(
        {
            "slot": params.slot_bits,
            "pieces": params.box_piece_bits,
            **({"receipt": receipt_layout(params)} if params.ctas > 1 else {}),
        }
    )


@cache
def gone_layout(params: TmaParams) -> data.StructLayout:
    """A receiver of a request that does not run."""
    return data.StructLayout({"slot": params.slot_bits, "receiver": params.cta_bits})


@cache
def opened_layout(params: TmaParams) -> data.StructLayout:
    """What a request is whose slot was opened: there is one if ``valid``."""
    return data.StructLayout(
        {"valid": 1, "slot": params.slot_bits, "transfer": transfer_layout(params)}
    )


@cache
def read_fault_layout(params: TmaParams) -> data.StructLayout:
    """A line of a request that could not be read."""
    return data.StructLayout({"slot": params.slot_bits, "line": params.line_address_bits})
