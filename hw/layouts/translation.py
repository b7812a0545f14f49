"""Payloads of the translation of addresses: walks, invalidations, and answers with page faults."""

from functools import cache

from amaranth.hdl import Const, Mux, ShapeLike, Value
from amaranth.lib import data, enum

from hw.layouts.axi import Response
from hw.layouts.isa import MemoryAttributes
from hw.layouts.ports import (
    decode_field,
    descriptor_fill_layout,
    gnic_ack_layout,
    gnic_response_layout,
)
from hw.params import TmaParams


class PageFault(enum.Enum, shape=3):
    """Cause why an address has no translation; ``dim`` of the error record."""

    NONE = 0
    ABSENT = 4
    READ_ONLY = 5


def cause_field(params: TmaParams) -> dict[str, ShapeLike]:
    """Return the fields that tell why an access failed; they count beside an error.

    ``decode`` is that of `decode_field`. ``page`` is present with a TLB, and is the `PageFault` of
    an access that did not get to memory.
    """
    return decode_field(params) | ({"page": PageFault} if params.tlb_entries else {})


def cause_of(params: TmaParams, fault: data.View) -> Value:
    """Return ``dim`` of the error record of a failed access; ``fault`` has ``cause_field``.

    It is the `PageFault`, or with an AXI4 port the response, and 0 without both.
    """
    cause: Value = Const(0)
    if params.axi_data_bits:
        cause = Mux(fault.decode, Response.DECERR, Response.SLVERR)
    if params.tlb_entries:
        cause = Mux(fault.page == PageFault.NONE, cause, fault.page)
    return cause


def _with_cause(layout: data.StructLayout, params: TmaParams) -> data.StructLayout:
    """Return the layout of an answer of memory, with the fields of ``cause_field``."""
    members = {}
    for name, shape in layout.members.items():
        members[name] = shape
        if name == "error":
            members |= cause_field(params)
    return data.StructLayout(members)


@cache
def translated_response_layout(params: TmaParams) -> data.StructLayout:
    """Response to a read of a line at a virtual address.

    Members
    -------
    page : see `cause_field`
    tag, error, decode, data : as in ``gnic_response_layout``
    """
    return _with_cause(gnic_response_layout(params), params)


@cache
def translated_ack_layout(params: TmaParams) -> data.StructLayout:
    """Answer to a write of a line at a virtual address.

    Members
    -------
    page : see `cause_field`
    tag, error, decode : as in ``gnic_ack_layout``
    """
    return _with_cause(gnic_ack_layout(params), params)


@cache
def translated_fill_layout(params: TmaParams) -> data.StructLayout:
    """Answer to a read of a tensor map at a virtual address.

    Members
    -------
    page : see `cause_field`
    words, error, decode : as in ``descriptor_fill_layout``
    """
    return _with_cause(descriptor_fill_layout(params), params)


@cache
def translation_layout(params: TmaParams) -> data.StructLayout:
    """Translation of a page.

    Members
    -------
    page : number of the physical page: a physical address divided by the size of a page
    present : 1 if the page exists; else the other members have no meaning
    writable : 1 if the page may be written
    """
    return data.StructLayout({"page": params.page_number_bits, "present": 1, "writable": 1})


def _page_read_layout(params: TmaParams, **more: int) -> data.StructLayout:
    return data.StructLayout(
        {
            "is_map": 1,
            "tag": params.tag_bits,
            "prefetch": 1,
            "attributes": MemoryAttributes,
            "line": params.page_line_bits,
            **more,
        }
    )


@cache
def page_read_layout(params: TmaParams) -> data.StructLayout:
    """Read in a page.

    Members
    -------
    is_map : the read is that of a tensor map; the other members have no meaning
    tag, prefetch, attributes : as in ``gnic_request_layout``
    line : number of the line in its page
    """
    return _page_read_layout(params)


@cache
def paged_read_layout(params: TmaParams) -> data.StructLayout:
    """Read, and ``page``, the number of its page; the other members are of `page_read_layout`."""
    return _page_read_layout(params, page=params.page_number_bits)


@cache
def waiting_read_layout(params: TmaParams) -> data.StructLayout:
    """Read, and ``entry``, that of its page in the TLB; the others are of `page_read_layout`."""
    return _page_read_layout(params, entry=params.tlb_entry_bits)


@cache
def walk_request_layout(params: TmaParams) -> data.StructLayout:
    """Question to the page walker.

    Members
    -------
    id : number of the walk, unique among the walks under way; the answer returns it
    page : number of the virtual page: an address divided by the size of a page
    """
    return data.StructLayout({"id": params.tlb_entry_bits, "page": params.page_number_bits})


@cache
def walk_response_layout(params: TmaParams) -> data.StructLayout:
    """Answer of the page walker; answers may come in any order.

    Members
    -------
    id : ``id`` of the question
    translation : see ``translation_layout``
    """
    return data.StructLayout(
        {"id": params.tlb_entry_bits, "translation": translation_layout(params)}
    )


@cache
def tlb_invalidate_layout(params: TmaParams) -> data.StructLayout:
    """Invalidation of translations.

    Members
    -------
    page : number of the virtual page whose translation is dropped
    all : 1 if all translations are dropped, and ``page`` is ignored
    """
    return data.StructLayout({"page": params.page_number_bits, "all": 1})
