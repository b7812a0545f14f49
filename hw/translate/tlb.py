"""TLB: finds the entry of each page, and has absent pages walked."""

from dataclasses import dataclass

from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.translation import (
    tlb_invalidate_layout,
    walk_request_layout,
    walk_response_layout,
)
from hw.lib.one_hot import index_of
from hw.lib.queue import Queue
from hw.params import TmaParams

READS, WRITES = 0, 1
"""Numbers of the ports."""

WALKS_WAITING = 2
"""Walks that can wait for the walker."""


class Lookup:
    """A port, and the page that was looked up there.

    Attributes
    ----------
    i : stream of pages
    o : stream of entries
    valid : a page was looked up, and its entry was not taken
    page : that page
    hit, entry : it has an entry, and which
    match : entries that the page at ``i`` has, one at most
    is_miss : the page has no entry
    used : the entry of the page, as a mask
    """

    def __init__(self, params: TmaParams, name: str, i, o) -> None:
        count = params.tlb_entries
        self.i = i
        self.o = o
        self.valid = Signal(name=f"{name}_valid")
        self.page = Signal(params.page_number_bits, name=f"{name}_page", reset_less=True)
        self.hit = Signal(name=f"{name}_hit")
        self.entry = Signal(params.tlb_entry_bits, name=f"{name}_entry", reset_less=True)
        self.match = Signal(count, name=f"{name}_match")
        self.is_miss = Signal(name=f"{name}_is_miss")
        self.used = Signal(count, name=f"{name}_used")


@dataclass(frozen=True)
class Entries:
    """State of the entries, a bit of a mask or an element for each.

    Attributes
    ----------
    pages : virtual page of each
    live : entries that a lookup may find
    walking : entries whose walk is under way
    """

    pages: list[Signal]
    live: Signal
    walking: Signal


@dataclass(frozen=True)
class Allocation:
    """A new entry: whether one is allocated in this clock, which (as a mask), and its page."""

    valid: Signal
    victim: Signal
    page: Signal


class Tlb(wiring.Component):
    """Finds the entry of each page that is looked up. A page without one gets a free entry, and is
    walked; its entry is given at once, and ``walked`` when the walk has ended.

    It is fully associative, and has a port for reads and one for writes. An entry is not replaced
    while it is offered at ``found``, while it is one of ``waited_for``, or while its walk is under
    way. Of the others, those that no lookup finds go first, and else each in turn.

    A page that does not exist is not kept: a later lookup has it walked again. An invalidation
    counts from its acceptance on. Lookups before it still use the entries that they found, also
    those whose walks are under way. Later lookups have the page walked again.

    Latency: one clock; one more for a page without an entry. Throughput: a lookup a clock at each
    port, but none at both in the clock in which a page gets its entry, and none at ``reads`` in the
    clock of an invalidation. Back-pressure: a lookup waits while the one before it is at ``found``.
    A page without an entry waits for an entry that may be replaced, and for ``walk_request``.
    ``walk_response`` and ``invalidate`` are always ready.

    Errors: a response with the number of no walk under way is dropped.

    Parameters
    ----------
    params : TmaParams
        With ``tlb_entries``.

    Members
    -------
    lookup : In(stream) of numbers of virtual pages, array of 2: ``READS`` and ``WRITES``
    found : Out(stream) of numbers of entries, array of 2; in the order of ``lookup``
    walked : Out; entries whose walk has ended
    filled : Out(stream) of ``walk_response_layout``; translations of entries, always taken
    waited_for : In; entries for which somebody waits who took them from ``found``
    walk_request : Out(stream) of ``walk_request_layout``
    walk_response : In(stream) of ``walk_response_layout``
    invalidate : In(stream) of ``tlb_invalidate_layout``
    busy : Out; a lookup or a walk is under way
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        walked = stream.Signature(walk_response_layout(params))
        super().__init__(
            {
                "lookup": In(stream.Signature(params.page_number_bits)).array(2),
                "found": Out(stream.Signature(params.tlb_entry_bits)).array(2),
                "walked": Out(params.tlb_entries),
                "filled": Out(stream.Signature(walk_response_layout(params), always_ready=True)),
                "waited_for": In(params.tlb_entries),
                "walk_request": Out(stream.Signature(walk_request_layout(params))),
                "walk_response": In(walked),
                "invalidate": In(stream.Signature(tlb_invalidate_layout(params))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        count = p.tlb_entries
        entries = Entries(
            [Signal(p.page_number_bits, name=f"page_{n}", reset_less=True) for n in range(count)],
            Signal(count, name="live"),
            Signal(count, name="walking"),
        )
        ports = [
            Lookup(p, name, i, o)
            for name, i, o in zip(("read", "write"), self.lookup, self.found, strict=True)
        ]
        allocation = self._allocate(m, entries, ports)
        for port in ports:
            self._look_up(m, entries, port, allocation)

        # The comparison of the reads is that of an invalidation, if there is one.
        invalidation = self.invalidate.p
        dropped = ports[READS].match | invalidation.all.replicate(count)
        response = self.walk_response.p
        ended = Signal(count)
        allocated = Mux(allocation.valid, allocation.victim, 0)
        m.d.comb += [
            self.invalidate.ready.eq(1),
            self.walk_response.ready.eq(1),
            ended.eq(
                Cat(
                    self.walk_response.valid & (response.id == number) & entries.walking[number]
                    for number in range(count)
                )
            ),
            self.filled.valid.eq(ended.any()),
            self.filled.p.eq(response),
            self.walked.eq(~entries.walking),
            self.busy.eq(entries.walking.any() | Cat(port.valid for port in ports).any()),
        ]
        absent = Mux(response.translation.present, 0, ended)
        m.d.sync += [
            entries.walking.eq((entries.walking | allocated) & ~ended),
            entries.live.eq(
                (entries.live & ~absent & ~Mux(self.invalidate.valid, dropped, 0)) | allocated
            ),
        ]
        for port in ports:
            m.d.sync += Assert(
                (port.match & (port.match - 1))[:count] == 0,
                "tlb: two live entries of one page\n",
            )
        return m

    def _look_up(self, m: Module, entries: Entries, port: Lookup, new: Allocation) -> None:
        """Compare a page with those of all entries; give a page without an entry the new one."""
        page = port.i.payload
        may_look_up = ~new.valid
        if port.i is self.lookup[READS]:
            page = Mux(self.invalidate.valid, self.invalidate.p.page, page)
            may_look_up &= ~self.invalidate.valid
        leaves = port.o.valid & port.o.ready
        fire = port.i.valid & port.i.ready
        # Both ports may lack the same page, which gets one entry.
        is_allocated = new.valid & port.is_miss & (port.page == new.page)
        m.d.comb += [
            port.match.eq(entries.live & Cat(page == other for other in entries.pages)),
            port.is_miss.eq(port.valid & ~port.hit),
            port.used.eq(
                Cat(
                    port.valid & port.hit & (port.entry == number)
                    for number in range(len(entries.pages))
                )
            ),
            port.o.valid.eq(port.valid & port.hit),
            port.o.payload.eq(port.entry),
            port.i.ready.eq((~port.valid | leaves) & may_look_up),
        ]
        with m.If(leaves):
            m.d.sync += port.valid.eq(0)
        with m.If(is_allocated):
            m.d.sync += [port.hit.eq(1), port.entry.eq(index_of(new.victim))]
        with m.If(fire):
            m.d.sync += [
                port.valid.eq(1),
                port.page.eq(port.i.payload),
                port.hit.eq(port.match.any()),
                port.entry.eq(index_of(port.match)),
            ]

    def _allocate(self, m: Module, entries: Entries, ports: list[Lookup]) -> Allocation:
        """Give a page without an entry one, and have it walked; the ports take turns."""
        p = self.params
        count = p.tlb_entries
        m.submodules.walks = walks = Queue(walk_request_layout(p), WALKS_WAITING)
        connect(m, walks.o, flipped(self.walk_request))

        # ``turn`` marks the entry whose turn it is. The victim is the first candidate from there
        # on: the lowest set bit at or above ``turn`` in two copies of the candidates.
        free = Signal(count)
        candidates = Signal(count)
        turn = Signal(count, init=1)
        victim = Signal(count)
        two_copies = Cat(candidates, candidates)
        first = Signal(2 * count)
        allocates = Signal()
        writes_turn = Signal()
        is_write = Signal()
        walk_page = Signal(p.page_number_bits)
        reads, writes = ports
        m.d.comb += [
            free.eq(~(entries.walking | self.waited_for | reads.used | writes.used)),
            candidates.eq(Mux((free & ~entries.live).any(), free & ~entries.live, free)),
            first.eq(two_copies & ~(two_copies - turn)[: 2 * count]),
            victim.eq(first[:count] | first[count:]),
            is_write.eq(writes.is_miss & (writes_turn | ~reads.is_miss)),
            walk_page.eq(Mux(is_write, writes.page, reads.page)),
            allocates.eq((reads.is_miss | writes.is_miss) & free.any() & walks.i.ready),
            walks.i.valid.eq(allocates),
            walks.i.p.id.eq(index_of(victim)),
            walks.i.p.page.eq(walk_page),
        ]
        with m.If(allocates):
            m.d.sync += [turn.eq(victim.rotate_left(1)), writes_turn.eq(~is_write)]
            for number, page in enumerate(entries.pages):
                with m.If(victim[number]):
                    m.d.sync += page.eq(walk_page)
        return Allocation(allocates, victim, walk_page)
