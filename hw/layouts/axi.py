"""Payloads of the five channels of AXI4, with the names of its signals."""

from functools import cache

from amaranth.hdl import Mux, Value
from amaranth.lib import data, enum

from hw.layouts.isa import ElementType, MemoryAttributes, ReductionOp
from hw.layouts.ports import gnic_write_layout
from hw.params import TmaParams


class Burst(enum.Enum, shape=2):
    """AxBURST."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class Response(enum.Enum, shape=2):
    """RRESP and BRESP."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


WORD_BYTES = 4
"""Bytes of the smallest element that an AtomicStore combines."""

ATOMIC_STORE = 0b010_000
"""AWATOP of an AtomicStore whose elements are little-endian, without its operation."""


class AtomicOp(enum.Enum, shape=3):
    """Operation of an AtomicStore: how memory combines its bytes with those that are written.

    CLR clears the bits that are 1, SET sets them, and EOR inverts them.
    """

    ADD = 0
    CLR = 1
    EOR = 2
    SET = 3
    SMAX = 4
    SMIN = 5
    UMAX = 6
    UMIN = 7


_WIDE = ElementType.U64, ElementType.S64
_SIGNED = ElementType.S32, ElementType.S64
_INTEGERS = ElementType.U32, ElementType.U64, *_SIGNED


def is_wide(reduction: data.View) -> Value:
    """Return whether the elements of a ``Reduction`` of integers have 8 bytes, not 4."""
    return reduction.element_type.as_value().matches(*_WIDE)


def is_atomic(reduction: data.View) -> Value:
    """Return whether an AtomicStore can perform a ``Reduction``: INC, DEC and floats have none."""
    counts = reduction.op.as_value().matches(ReductionOp.INC, ReductionOp.DEC)
    return reduction.element_type.as_value().matches(*_INTEGERS) & ~counts


def atomic_op(reduction: data.View) -> Value:
    """Return the `AtomicOp` of a ``Reduction`` that ``is_atomic``.

    AND is CLR of the inverted bytes.
    """
    is_signed = reduction.element_type.as_value().matches(*_SIGNED)
    result = Mux(is_signed, AtomicOp.SMAX, AtomicOp.UMAX)
    for op, atomic in (
        (ReductionOp.MIN, Mux(is_signed, AtomicOp.SMIN, AtomicOp.UMIN)),
        (ReductionOp.AND, AtomicOp.CLR),
        (ReductionOp.OR, AtomicOp.SET),
        (ReductionOp.XOR, AtomicOp.EOR),
        (ReductionOp.ADD, AtomicOp.ADD),
    ):
        result = Mux(reduction.op == op, atomic, result)
    return result


def _address_layout(params: TmaParams, id_bits: int) -> data.StructLayout:
    return data.StructLayout(
        {
            "id": id_bits,
            "addr": params.address_bits,
            "len": 8,
            "size": 3,
            "burst": Burst,
            "cache": 4,
            "prot": 3,
            "user": MemoryAttributes,
        }
    )


@cache
def ar_layout(params: TmaParams) -> data.StructLayout:
    """AR: a read.

    Members
    -------
    id : tag of a line; ``tags`` and the number of a reduction; or with the highest bit, 0 in the
        others for a tensor map, 1 for a prefetch
    addr : address of the first byte
    len : beats, less one
    size : bytes of a beat, as a power of two
    burst : INCR
    cache, prot : ``axi_cache`` and ``axi_prot``
    user : cache hints; 0 of a tensor map
    """
    return _address_layout(params, params.axi_read_id_bits)


@cache
def r_layout(params: TmaParams) -> data.StructLayout:
    """R: a beat of a read.

    Members
    -------
    id : ``id`` of the read
    data : bytes, each in the lane of its address
    resp : SLVERR or DECERR if the beat could not be read
    last : 1 in the last beat of a read
    """
    return data.StructLayout(
        {"id": params.axi_read_id_bits, "data": params.axi_data_bits, "resp": Response, "last": 1}
    )


@cache
def aw_layout(params: TmaParams) -> data.StructLayout:
    """AW: a write. The members are those of ``ar_layout``, and with ``axi_atomics`` ``atop``.

    ``id`` is the tag of a line, or with the highest bit the completion records of a host. ``atop``
    is 0, or `ATOMIC_STORE` and an `AtomicOp`.
    """
    address = _address_layout(params, params.axi_write_id_bits)
    atomics = {"atop": 6} if params.axi_atomics else {}
    return data.StructLayout({**address.members, **atomics})


@cache
def w_layout(params: TmaParams) -> data.StructLayout:
    """W: a beat of a write, in the order of the writes.

    Members
    -------
    data : bytes, each in the lane of its address
    strb : bytes that are written
    last : 1 in the last beat of a write
    """
    return data.StructLayout(
        {"data": params.axi_data_bits, "strb": params.axi_data_bits // 8, "last": 1}
    )


@cache
def b_layout(params: TmaParams) -> data.StructLayout:
    """B: a write is performed.

    Members
    -------
    id : ``id`` of the write
    resp : SLVERR or DECERR if it failed
    """
    return data.StructLayout({"id": params.axi_write_id_bits, "resp": Response})


def axi_write_names(params: TmaParams) -> tuple[str, ...]:
    """Return the members of ``axi_write_layout`` that are those of ``gnic_write_layout``."""
    reduction = ("reduction",) if params.axi_atomics else ()
    return "line", "attributes", *reduction, "strobe", "data"


@cache
def axi_write_layout(params: TmaParams) -> data.StructLayout:
    """Write to a line of global memory.

    Members
    -------
    id : AWID
    line, attributes, reduction, strobe, data : as in ``gnic_write_layout``; a reduction is that
        of one element
    """
    write = gnic_write_layout(params).members
    names = axi_write_names(params)
    return data.StructLayout(
        {"id": params.axi_write_id_bits, **{name: write[name] for name in names}}
    )


@cache
def line_beat_layout(params: TmaParams) -> data.StructLayout:
    """A beat of a line that was read.

    Members
    -------
    id : number of the line
    error : 1 if the beat could not be read
    decode : the response was DECERR
    data : as in ``r_layout``
    """
    return data.StructLayout(
        {"id": params.axi_line_bits, "error": 1, "decode": 1, "data": params.axi_data_bits}
    )


@cache
def axi_line_layout(params: TmaParams) -> data.StructLayout:
    """A line that was read: the members of ``line_beat_layout``, with all bytes of the line."""
    bits = params.line_bytes * 8
    return data.StructLayout({"id": params.axi_line_bits, "error": 1, "decode": 1, "data": bits})


def _reduction_bits(params: TmaParams) -> int:
    """Return the width of the number of a reduction."""
    return (params.axi_reductions - 1).bit_length()


@cache
def reduction_read_layout(params: TmaParams) -> data.StructLayout:
    """Read of a line that is to be reduced.

    Members
    -------
    number : number of the reduction
    line : global address divided by ``line_bytes``
    attributes : cache hints
    """
    return data.StructLayout(
        {
            "number": _reduction_bits(params),
            "line": params.line_address_bits,
            "attributes": MemoryAttributes,
        }
    )


@cache
def reduced_line_layout(params: TmaParams) -> data.StructLayout:
    """A line that is to be reduced.

    Members
    -------
    number : number of the reduction
    error : 1 if the line could not be read
    decode : the response was DECERR
    data : bytes of the line, byte 0 first
    """
    return data.StructLayout(
        {
            "number": _reduction_bits(params),
            "error": 1,
            "decode": 1,
            "data": params.line_bytes * 8,
        }
    )


def is_error(resp: data.View) -> Value:
    """Return 1 if a response is SLVERR or DECERR."""
    return resp.as_value()[1]


def map_id(params: TmaParams) -> int:
    """Return the id of the reads of tensor maps."""
    return 1 << params.axi_line_bits


def prefetch_id(params: TmaParams) -> int:
    """Return the id of prefetches."""
    return map_id(params) | 1


def beats_of(params: TmaParams, size: int) -> tuple[int, int]:
    """Return AxLEN and AxSIZE of an access to ``size`` aligned bytes."""
    beat = min(size, params.axi_bytes)
    return size // beat - 1, (beat - 1).bit_length()


def place_bits(params: TmaParams, size: int) -> int:
    """Return the width of the place of ``size`` bytes in a beat; 0 if they fill it."""
    return (max(params.axi_bytes // size, 1) - 1).bit_length()


def place_of(params: TmaParams, address: Value, size: int) -> Value:
    """Return the place of ``size`` bytes at ``address`` in their beat."""
    return (address >> (size - 1).bit_length())[: place_bits(params, size)]
