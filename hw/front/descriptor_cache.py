"""Descriptor cache: keeps tensor maps by address, and brings each request its map."""

from dataclasses import dataclass

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.jobs import queued_request_layout, request_with_map_layout
from hw.layouts.monitor import MapUse
from hw.layouts.ports import DescriptorInvalidate
from hw.layouts.translation import cause_field, translated_fill_layout
from hw.lib.memory import RowMemory
from hw.lib.one_hot import index_of
from hw.lib.queue import Queue
from hw.lib.register_slice import SingleBuffer, SkidBuffer
from hw.params import TmaParams

MAP_ALIGN_BITS = 6
"""log2 of the alignment of a tensor map; the address bits above are its tag."""

FETCHES_WAITING = 2
"""Fetches that can wait for the fetch port before a miss has to wait."""

REQUESTS_WAITING = 2
"""Requests in the cache: one has its entry, and one waits for its lookup."""


class CacheEntries:
    """Registers of the entries. Masks have a bit for each entry; entries are selected one-hot.

    Parameters
    ----------
    count, tag_bits : int

    Attributes
    ----------
    tags : list[Signal]
    live : Signal
        Mask of the entries that lookups may hit: with a map, or with a fetch that is not
        invalidated.
    filling : Signal
        Mask of the entries with a fetch in flight.
    """

    def __init__(self, count: int, tag_bits: int) -> None:
        self.tags = [Signal(tag_bits, name=f"tag_{n}", reset_less=True) for n in range(count)]
        self.live = Signal(count)
        self.filling = Signal(count)


@dataclass(frozen=True)
class Lookup:
    """Results of the lookups of a clock.

    ``hit`` is the mask of the request's entry, ``other_hit`` that of the invalidation or the
    prefetch. ``missed``: a lookup of the clock before missed, and ``missed_tag`` is its tag;
    ``is_request``: the lookup of this clock is that of a request.
    """

    hit: Signal
    other_hit: Signal
    missed: Signal
    missed_tag: Signal
    is_request: Signal


class DescriptorCache(wiring.Component):
    """Looks up the tensor map of each request, fetches it if it is missing, and answers in order.

    The cache is fully associative. An entry holds words w0 to w15. Its tag is the address of the
    map from bit 6 up to the width of a global address; other address bits are ignored. Requests and
    prefetches wait in queues for their lookup. There is one lookup a clock, for the first of these
    that waits:

    1. *Invalidation* of one address or of all. No later lookup uses what the entry holds, nor a
       fill in flight. Requests that have their entry keep their map.
    2. *Request*. It gets the entry that it hits, also one with a fill in flight, if the request
       before it has left or leaves. A miss fetches the map into a free entry, and the request is
       looked up again. The miss waits while no entry is free (each has a fill in flight or belongs
       to the request at ``o``), and while the fetch port is backed up.
    3. *Prefetch*. It is a lookup as that of a request, without an output. It has priority over a
       request that was looked up in the clock before and still waits.

    So a request never gets a mix of two fills, and never a map that was read before the last
    invalidation in front of it.

    Replacement: the next free entry in rotation; free entries without a valid map come first.

    Latency: a request is looked up in the clock in which it is accepted; a hit is offered in the
    next one. A miss is offered to the fetch port two clocks after its lookup, and the request two
    clocks after the fill. Throughput: a request a clock on hits; the miss of a request overlaps
    with the miss of the request before it. Back-pressure: ``i.ready`` is high while no request
    waits for its lookup, ``prefetch.ready`` while no prefetch waits. An invalidation is accepted at
    once, whatever the other ports do, and so is a fill. A lookup is delayed by one clock for each
    invalidation, and that of a prefetch while requests hit.

    Errors: a fill with ``error`` is delivered as ``fault``, with its cause, to the requests that
    wait for it, and is not kept. A fill while no fetch is in flight is dropped.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(queued_request_layout(params)))
    o : Out(stream.Signature(request_with_map_layout(params)))
    prefetch : In(stream.Signature(64))
        Address of a map that will be used soon.
    invalidate : In(stream.Signature(DescriptorInvalidate))
    fetch : Out(stream.Signature(64))
        Address of a map to read, a multiple of 64.
    fill : In(stream.Signature(translated_fill_layout(params)))
        The maps, in the order of the fetches.
    busy : Out(1)
        A prefetch waits, or a map is on its way.
    use : Out(MapUse)
        Present with ``counters``.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(queued_request_layout(params))),
                "o": Out(stream.Signature(request_with_map_layout(params))),
                "prefetch": In(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "invalidate": In(stream.Signature(DescriptorInvalidate)),
                "fetch": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "fill": In(stream.Signature(translated_fill_layout(params))),
                "busy": Out(1),
                **({"use": Out(MapUse)} if params.counters else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        count = self.params.descriptor_cache_entries
        tag_bits = self.params.address_bits - MAP_ALIGN_BITS
        m.submodules.fetches = fetches = Queue(tag_bits, FETCHES_WAITING)
        m.submodules.fills = fills = Queue(count, count)
        m.submodules.maps = maps = RowMemory(translated_fill_layout(self.params), count)
        entries = CacheEntries(count, tag_bits)

        # The request at ``o`` has its entry, and perhaps its map.
        busy = Signal()

        requests, looked_up, prefetches = self._wait(m, tag_bits)

        map_valid = Signal()
        entry = Signal(count, reset_less=True)
        may_accept = Signal()
        m.d.comb += [
            may_accept.eq(~busy | (map_valid & self.o.ready)),
            requests.o.ready.eq(busy & map_valid & self.o.ready),
        ]

        lookup = self._look_up(m, entries, looked_up, prefetches.o, may_accept)
        allocates, victim = self._allocate(m, entries, Mux(busy, entry, 0), lookup, fetches, fills)
        filled = self._fill(m, entries, fills, maps)

        # A fill that failed, or was invalidated while it was in flight, is not live.
        allocated = Mux(allocates, victim, 0)
        failed = Mux(self.fill.payload.error, filled, 0)
        invalidated = Mux(
            self.invalidate.valid,
            lookup.other_hit | self.invalidate.payload.all.replicate(count),
            0,
        )
        m.d.sync += [
            entries.live.eq((entries.live | allocated) & ~failed & ~invalidated),
            entries.filling.eq((entries.filling | allocated) & ~filled),
        ]

        # The map is read in the clock of the lookup, and again until it is there.
        read_entry = Signal(count)
        read = maps.read_port()
        m.d.comb += [
            read_entry.eq(Mux(may_accept, lookup.hit, entry)),
            read.addr.eq(index_of(read_entry)),
            self.o.valid.eq(busy & map_valid),
            self.o.payload.request.eq(requests.o.payload),
            self.o.payload.words.eq(read.data.words),
            self.o.payload.fault.eq(read.data.error),
            *(self.o.payload[name].eq(read.data[name]) for name in cause_field(self.params)),
            self.busy.eq(prefetches.o.valid | entries.filling.any()),
        ]
        # The choice follows the registers: in front of them the mapping would share it with the
        # address of the read, which leads to all bits of the maps.
        accepted = Signal()
        hit_filled, entry_filled = Signal(reset_less=True), Signal(reset_less=True)
        filled_entries = ~entries.filling
        m.d.sync += [
            accepted.eq(may_accept),
            hit_filled.eq((lookup.hit & filled_entries).any()),
            entry_filled.eq((entry & filled_entries).any()),
        ]
        m.d.comb += map_valid.eq(Mux(accepted, hit_filled, entry_filled))
        with m.If(may_accept):
            m.d.sync += [busy.eq(looked_up.valid & looked_up.ready), entry.eq(lookup.hit)]
        if self.params.counters:
            self._watch(m, lookup, looked_up, may_accept, busy & ~map_valid)

        hit, filling = lookup.hit, entries.filling
        m.d.sync += [
            Assert(
                ~looked_up.valid | ((hit & (hit - 1)) == 0),
                "descriptor_cache: two live entries of one address\n",
            ),
            Assert(~allocates | fills.i.ready, "descriptor_cache: more fetches than entries\n"),
            Assert(
                (filled & ~filling) == 0, "descriptor_cache: a fill for an entry without a fetch\n"
            ),
        ]
        return m

    def _watch(
        self, m: Module, lookup: Lookup, request: stream.Interface, may_accept: Value, waits: Value
    ) -> None:
        """Say whether a request ``waits`` for its map, and whether the one at ``o`` missed.

        A request that missed is looked up again, two clocks later at the earliest.
        """
        was_request, was_accepted, has_missed = Signal(), Signal(), Signal()
        misses, missed = Signal(), Signal(reset_less=True)
        m.d.comb += [
            misses.eq(has_missed & ~was_accepted),
            self.use.waits.eq(waits | misses),
            self.use.missed.eq(missed),
        ]
        m.d.sync += [
            was_request.eq(lookup.is_request),
            was_accepted.eq(request.valid & request.ready),
            has_missed.eq((lookup.missed & was_request) | misses),
        ]
        with m.If(may_accept):
            m.d.sync += missed.eq(misses)

    def _wait(self, m: Module, tag_bits: int) -> tuple[Queue, stream.Interface, SingleBuffer]:
        """Let requests and prefetches wait for their lookup.

        A request waits in a queue until it leaves. Its tag is kept apart, because it is looked up
        while the request before it is at ``o``. Return the queue of requests, the stream of tags to
        look up, and the buffer of prefetches.
        """
        layout = queued_request_layout(self.params)
        m.submodules.requests = requests = Queue(layout, REQUESTS_WAITING)
        m.submodules.tags = tags = SkidBuffer(tag_bits)
        m.submodules.prefetches = prefetches = SingleBuffer(tag_bits)
        m.d.comb += [
            self.i.ready.eq(tags.i.ready),
            requests.i.valid.eq(self.i.valid & tags.i.ready),
            requests.i.payload.eq(self.i.payload),
            tags.i.valid.eq(self.i.valid),
            tags.i.payload.eq(self.i.payload.global_address[MAP_ALIGN_BITS:]),
            self.prefetch.ready.eq(prefetches.i.ready),
            prefetches.i.valid.eq(self.prefetch.valid),
            prefetches.i.payload.eq(self.prefetch.payload[MAP_ALIGN_BITS:]),
        ]
        m.d.sync += Assert(
            ~requests.i.valid | requests.i.ready,
            "descriptor_cache: more requests than have their entry or wait for their lookup\n",
        )
        return requests, tags.o, prefetches

    def _look_up(
        self,
        m: Module,
        entries: CacheEntries,
        request: stream.Interface,
        prefetch: stream.Interface,
        may_accept: Value,
    ) -> Lookup:
        """Look up the tag of a request, and beside it the invalidation or the tag of a prefetch.

        The two comparisons are apart, so that the request's path is short. No lookup counts in the
        clock after a miss, in which the miss gets its entry.
        """
        count, tag_bits = len(entries.tags), len(entries.tags[0])
        missed = Signal()
        missed_tag = Signal(tag_bits, reset_less=True)
        request_waits = Signal()  # it was looked up in the clock before
        is_request = Signal()  # the lookup is that of a request
        lookup_valid = Signal()
        other_tag = Signal(tag_bits)
        hit = Signal(count)
        other_hit = Signal(count)
        tag = request.payload
        invalidated_tag = self.invalidate.payload.address[MAP_ALIGN_BITS:]
        m.d.comb += [
            is_request.eq(request.valid & ~(request_waits & prefetch.valid)),
            lookup_valid.eq(~self.invalidate.valid & ~missed),
            other_tag.eq(Mux(self.invalidate.valid, invalidated_tag, prefetch.payload)),
            hit.eq(entries.live & Cat(tag == entry_tag for entry_tag in entries.tags)),
            other_hit.eq(entries.live & Cat(other_tag == entry_tag for entry_tag in entries.tags)),
            self.invalidate.ready.eq(1),
            request.ready.eq(is_request & lookup_valid & hit.any() & may_accept),
            prefetch.ready.eq(~is_request & lookup_valid & other_hit.any()),
        ]
        prefetch_misses = prefetch.valid & ~other_hit.any()
        m.d.sync += [
            request_waits.eq(is_request & lookup_valid),
            missed.eq(lookup_valid & Mux(is_request, ~hit.any(), prefetch_misses)),
            missed_tag.eq(Mux(is_request, tag, other_tag)),
        ]
        return Lookup(hit, other_hit, missed, missed_tag, is_request)

    def _allocate(
        self,
        m: Module,
        entries: CacheEntries,
        used: Value,
        lookup: Lookup,
        fetches: Queue,
        fills: Queue,
    ) -> tuple[Signal, Signal]:
        """Give a miss its entry, and fetch the map.

        ``used`` is the entry of the request at ``o``. Return whether an entry is allocated in this
        clock, and which.
        """
        # ``turn`` marks the entry whose turn it is. The victim is the first candidate from there
        # on: the lowest set bit at or above ``turn`` in two copies of the candidates.
        count = len(entries.tags)
        free = Signal(count)
        candidates = Signal(count)
        turn = Signal(count, init=1)
        victim = Signal(count)
        two_copies = Cat(candidates, candidates)
        first = Signal(2 * count)
        m.d.comb += [
            free.eq(~(entries.filling | used)),
            candidates.eq(Mux((free & ~entries.live).any(), free & ~entries.live, free)),
            first.eq(two_copies & ~(two_copies - turn)[: 2 * count]),
            victim.eq(first[:count] | first[count:]),
        ]

        allocates = Signal()
        m.d.comb += [
            allocates.eq(lookup.missed & free.any() & fetches.i.ready),
            fetches.i.valid.eq(allocates),
            fetches.i.payload.eq(lookup.missed_tag),
            fills.i.valid.eq(allocates),
            fills.i.payload.eq(victim),
            self.fetch.valid.eq(fetches.o.valid),
            self.fetch.payload.eq(Cat(Const(0, MAP_ALIGN_BITS), fetches.o.payload)),
            fetches.o.ready.eq(self.fetch.ready),
        ]
        with m.If(allocates):
            m.d.sync += turn.eq(victim.rotate_left(1))
            for number, entry_tag in enumerate(entries.tags):
                with m.If(victim[number]):
                    m.d.sync += entry_tag.eq(lookup.missed_tag)
        return allocates, victim

    def _fill(self, m: Module, entries: CacheEntries, fills: Queue, maps: RowMemory) -> Signal:
        """Write a fill into the entry of the oldest fetch; return the entry, or 0 without a
        fill. While there is no fetch, a fill is dropped.
        """
        filled = Signal(self.params.descriptor_cache_entries)
        write = maps.write_port()
        m.d.comb += [
            self.fill.ready.eq(fills.o.valid | ~entries.filling.any()),
            fills.o.ready.eq(self.fill.valid),
            filled.eq(Mux(self.fill.valid & fills.o.valid, fills.o.payload, 0)),
            write.addr.eq(index_of(fills.o.payload)),
            write.data.eq(self.fill.payload),
            write.en.eq(filled.any()),
        ]
        return filled
