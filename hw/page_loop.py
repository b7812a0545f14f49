"""Page loop: a unit with virtual addresses, between a page walker and a memory without pages."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.axi_top import AxiLoop
from hw.layouts.translation import (
    tlb_invalidate_layout,
    walk_request_layout,
    walk_response_layout,
)
from hw.lib.arbiter import Arbiter
from hw.lib.pass_port import pass_port
from hw.params import TmaParams
from hw.top import Tma, tma_ports
from hw.translate.translation import walker_ports

ABSENT = 0xBA60_0000
"""Virtual address of the page that does not exist. Random requests of units with 32 or 33 bits of
address do not reach it: their tensors lie in the lowest quarter, the maps in the highest one.
"""

READ_ONLY = 0xBAA0_0000
"""Virtual address of the page that cannot be written; see ``ABSENT``."""

WALKS = 4
"""Walks that take their time together."""

TAPS = 0xB400
"""Taps of a linear feedback shift register of 16 bits, with all 65,535 states."""


def physical_page(page: Value) -> Value:
    """Return the physical page of a virtual one: its bits reversed, and every second inverted."""
    return Cat(page[::-1]) ^ Const(0x5555_5555_5555_5555, len(page))


def virtual_page(page: Value) -> Value:
    """Return the virtual page of a physical one."""
    return Cat((page ^ Const(0x5555_5555_5555_5555, len(page)))[::-1])


def with_page(params: TmaParams, address: Value, low: int, change: Any) -> Value:
    """Return ``address`` with another page. ``low``: width of the part below the page."""
    width = low + params.page_number_bits
    return Cat(address[:low], change(address[low:width]), address[width:])


class PageWalker(wiring.Component):
    """Answers walks after random times, in any order, and invalidates pages now and then.

    All pages exist and can be written, but those of ``ABSENT`` and ``READ_ONLY``. An invalidation
    is of the page that was asked for last, or of all pages.

    Latency: 1 to 32 clocks. Throughput: ``WALKS`` walks in that time. Back-pressure: questions wait
    while ``WALKS`` are under way.

    Parameters
    ----------
    params : TmaParams
        With ``tlb_entries``.

    Members
    -------
    request : In(stream) of ``walk_request_layout``
    response : Out(stream) of ``walk_response_layout``
    invalidate : Out(stream) of ``tlb_invalidate_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "request": In(stream.Signature(walk_request_layout(params))),
                "response": Out(stream.Signature(walk_response_layout(params))),
                "invalidate": Out(stream.Signature(tlb_invalidate_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.responses = responses = Arbiter(walk_response_layout(p), WALKS)
        connect(m, responses.o, flipped(self.response))
        noise = Signal(16, init=1)
        m.d.sync += noise.eq((noise >> 1) ^ Mux(noise[0], TAPS, 0))
        is_taken: Value = Const(0)
        for number, answer in enumerate(responses.i):
            busy = Signal(name=f"busy_{number}")
            clocks = Signal(5, name=f"clocks_{number}", reset_less=True)
            walk = Signal(walk_request_layout(p), name=f"walk_{number}", reset_less=True)
            translation = answer.p.translation
            m.d.comb += [
                answer.valid.eq(busy & (clocks == 0)),
                answer.p.id.eq(walk.id),
                translation.page.eq(physical_page(walk.page)),
                translation.present.eq(walk.page != ABSENT >> p.tlb_page_bits),
                translation.writable.eq(walk.page != READ_ONLY >> p.tlb_page_bits),
            ]
            with m.If(~busy & ~is_taken):
                m.d.sync += [busy.eq(self.request.valid), walk.eq(self.request.p), clocks.eq(noise)]
            with m.Elif(busy):
                m.d.sync += [
                    clocks.eq(clocks - (clocks != 0)),
                    busy.eq(~(answer.valid & answer.ready)),
                ]
            is_taken |= ~busy
        m.d.comb += self.request.ready.eq(is_taken)

        last = Signal(p.page_number_bits, reset_less=True)
        invalidates = Signal()
        everything = Signal(reset_less=True)
        page = Signal(p.page_number_bits, reset_less=True)
        m.d.comb += [
            self.invalidate.valid.eq(invalidates),
            self.invalidate.p.page.eq(page),
            self.invalidate.p.all.eq(everything),
        ]
        with m.If(self.request.valid):
            m.d.sync += last.eq(self.request.p.page)
        with m.If(~invalidates | self.invalidate.ready):
            m.d.sync += [
                invalidates.eq(noise[:6] == 0),
                everything.eq(noise[6:8] == 0),
                page.eq(last),
            ]
        return m


class PageLoop(wiring.Component):
    """A unit whose addresses are translated, and back at its ports to memory.

    It stands in for a ``Tma`` in simulations: every test of the unit is then one of its TLB. The
    pages of the unit are mixed by ``physical_page``, and the ports to memory have the pages that
    the unit was asked for. With ``axi_data_bits``, the unit is an ``AxiLoop``.

    Parameters
    ----------
    params : TmaParams
        With ``tlb_entries``.

    Members
    -------
    request and so on : the ports of ``Tma``; there is nothing at those of the TLB
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(tma_ports(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.unit = unit = AxiLoop(p) if p.axi_data_bits else Tma(p)
        m.submodules.page_walker = walker = PageWalker(p)
        connect(m, unit.walk_request, walker.request)
        connect(m, walker.response, unit.walk_response)
        connect(m, walker.invalidate, unit.tlb_invalidate)
        mixed = ("descriptor_request", "gnic_request", *(("gnic_write",) if p.stores else ()))
        for name in self.signature.members:
            if name not in (*mixed, *walker_ports(p)):
                pass_port(m, name, unit, self)
        for name in mixed:
            inner, outer = getattr(unit, name), getattr(self, name)
            m.d.comb += [
                outer.valid.eq(inner.valid),
                inner.ready.eq(outer.ready),
                outer.p.eq(inner.p),
            ]
            if name == "descriptor_request":
                m.d.comb += outer.p.eq(with_page(p, inner.p, p.tlb_page_bits, virtual_page))
            else:
                line = with_page(p, inner.p.line, p.page_line_bits, virtual_page)
                m.d.comb += outer.p.line.eq(line)
        return m
