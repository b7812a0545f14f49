"""Gives each request its tensor map, from a small cache of maps tagged by address."""

from functools import cache

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.jobs import queued_request_layout
from hw.layouts.ports import DescriptorFill, DescriptorInvalidate
from hw.lib.one_hot import bit_index
from hw.lib.queue import Queue
from hw.params import TmaParams

MAP_ALIGN_BITS = 6
"""A map starts at a multiple of 64 bytes; the address bits above are its tag."""

FETCHES_WAITING = 2
"""Fetches that wait for the fetch port before lookups have to."""


@cache
def request_with_map_layout(params: TmaParams) -> data.StructLayout:
    """A request with its tensor map.

    Members
    -------
    request : as issued
    words : w0 to w15 of the tensor map, all of one fill
    fault : the map could not be read, and ``words`` mean nothing
    """
    return data.StructLayout(
        {
            "request": queued_request_layout(params),
            "words": data.ArrayLayout(32, 16),
            "fault": 1,
        }
    )


class DescriptorCache(wiring.Component):
    """Looks up the tensor map of each request, fetches what is missing, and answers in order.

    Fully associative; an entry is the whole of w0 to w15 and its tag the address of the map, from
    bit 6 up to the width of a global address; other bits are ignored. One lookup a clock, for the
    first of these that waits:

    1. *Invalidation*, of one address or of all. No later lookup uses what the entry holds, nor a
       fill in flight; requests accepted before keep theirs.
    2. *Request*. It is accepted when it hits, also on a fill in flight, and the one before it has
       left or leaves. A miss issues a fetch into a free entry and is looked up again. It waits
       while no entry is free (each has a fill in flight or the request that was accepted), or while
       the fetch port is backed up.
    3. *Prefetch*. The same without an output. It goes behind requests, but before one that was just
       looked up and has to wait.

    A request therefore never gets a mix of two fills, nor a copy older than the last invalidation
    that was accepted before it was. A fill with ``error`` goes to the requests that wait for it and
    is not kept.

    Latency: a hit is offered a clock after the request was accepted; a miss is offered to the fetch
    port two clocks after it was looked up, and the request two clocks after the fill. Throughput: a
    request a clock on hits; the miss of a request overlaps that of the one before. Back-pressure:
    an invalidation is accepted at once, whatever the other ports do; a fill is accepted whenever a
    fetch is out; requests are delayed by a clock for each invalidation, prefetches for as long as
    requests are accepted. ``i.ready`` follows ``i.payload`` and ``o.ready``.

    Replacement: an entry that holds nothing valid before the others, in rotation.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(queued_request_layout(params)))
    o : Out(stream.Signature(request_with_map_layout(params)))
    prefetch : In(stream.Signature(64))
        Address of a map that will be used.
    invalidate : In(stream.Signature(DescriptorInvalidate))
    fetch : Out(stream.Signature(64))
        Address of a map to read, a multiple of 64.
    fill : In(stream.Signature(DescriptorFill))
        The maps, in the order of the fetches.
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
                "fill": In(stream.Signature(DescriptorFill)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        entries = self.params.descriptor_cache_entries
        tag_bits = self.params.address_bits - MAP_ALIGN_BITS
        request = queued_request_layout(self.params)

        m.submodules.fetches = fetches = Queue(tag_bits, FETCHES_WAITING)
        m.submodules.fills = fills = Queue(entries, entries)
        m.submodules.maps = maps = Memory(shape=DescriptorFill, depth=entries, init=[])

        # Entries are selected one-hot throughout; a mask has a bit for each.
        tags = [Signal(tag_bits, name=f"tag_{n}", reset_less=True) for n in range(entries)]
        live = Signal(entries)  # lookups may hit
        filling = Signal(entries)  # a fetch is out

        # The request that was accepted, and its entry.
        busy = Signal()
        present = Signal(reset_less=True)
        held = Signal(request, reset_less=True)
        entry = Signal(entries, reset_less=True)
        room = Signal()
        m.d.comb += room.eq(~busy | (present & self.o.ready))

        # Lookup, of a request and of what else there is apart: the first is in a hurry. None counts
        # in the clock after a miss, in which that gets its entry.
        missed = Signal()
        missed_tag = Signal(tag_bits, reset_less=True)
        yields = Signal()  # the request was just looked up
        looks = Signal()  # at the request
        counts = Signal()
        tag, other_tag = Signal(tag_bits), Signal(tag_bits)
        hit, other_hit = Signal(entries), Signal(entries)
        other = Mux(self.invalidate.valid, self.invalidate.payload.address, self.prefetch.payload)
        m.d.comb += [
            looks.eq(self.i.valid & ~(yields & self.prefetch.valid)),
            counts.eq(~self.invalidate.valid & ~missed),
            tag.eq(self.i.payload.global_address[MAP_ALIGN_BITS:]),
            other_tag.eq(other[MAP_ALIGN_BITS:]),
            hit.eq(live & Cat(tag == known for known in tags)),
            other_hit.eq(live & Cat(other_tag == known for known in tags)),
            self.invalidate.ready.eq(1),
            self.i.ready.eq(looks & counts & hit.any() & room),
            self.prefetch.ready.eq(~looks & counts & other_hit.any()),
        ]
        m.d.sync += [
            yields.eq(looks & counts),
            missed.eq(counts & Mux(looks, ~hit.any(), self.prefetch.valid & ~other_hit.any())),
            missed_tag.eq(Mux(looks, tag, other_tag)),
        ]

        # Replacement. ``turn`` marks the entry whose turn it is: the first candidate from there on
        # is the lowest set bit at or above it, in two copies of the candidates side by side.
        free = Signal(entries)
        candidates = Signal(entries)
        turn = Signal(entries, init=1)
        victim = Signal(entries)
        twice = Cat(candidates, candidates)
        first = Signal(2 * entries)
        m.d.comb += [
            free.eq(~(filling | Mux(busy, entry, 0))),
            candidates.eq(Mux((free & ~live).any(), free & ~live, free)),
            first.eq(twice & ~(twice - turn)[: 2 * entries]),
            victim.eq(first[:entries] | first[entries:]),
        ]

        # Miss.
        allocates = Signal()
        m.d.comb += [
            allocates.eq(missed & free.any() & fetches.i.ready),
            fetches.i.valid.eq(allocates),
            fetches.i.payload.eq(missed_tag),
            fills.i.valid.eq(allocates),
            fills.i.payload.eq(victim),
            self.fetch.valid.eq(fetches.o.valid),
            self.fetch.payload.eq(Cat(Const(0, MAP_ALIGN_BITS), fetches.o.payload)),
            fetches.o.ready.eq(self.fetch.ready),
        ]
        with m.If(allocates):
            m.d.sync += turn.eq(victim.rotate_left(1))
            for number, known in enumerate(tags):
                with m.If(victim[number]):
                    m.d.sync += known.eq(missed_tag)

        # Fill.
        filled = Signal(entries)
        write = maps.write_port()
        m.d.comb += [
            self.fill.ready.eq(fills.o.valid),
            fills.o.ready.eq(self.fill.valid),
            filled.eq(Mux(self.fill.valid & fills.o.valid, fills.o.payload, 0)),
            write.addr.eq(bit_index(fills.o.payload)),
            write.data.eq(self.fill.payload),
            write.en.eq(filled.any()),
        ]

        # What an entry is after this clock: a fill that fails or is overtaken is never live again.
        allocated = Mux(allocates, victim, 0)
        failed = Mux(self.fill.payload.error, filled, 0)
        dropped = Mux(
            self.invalidate.valid, other_hit | self.invalidate.payload.all.replicate(entries), 0
        )
        m.d.sync += [
            live.eq((live | allocated) & ~failed & ~dropped),
            filling.eq((filling | allocated) & ~filled),
        ]

        # Output: the map is read as the request is accepted, and then until it is there.
        reads = Signal(entries)
        read = maps.read_port()
        m.d.comb += [
            reads.eq(Mux(room, hit, entry)),
            read.addr.eq(bit_index(reads)),
            self.o.valid.eq(busy & present),
            self.o.payload.request.eq(held),
            self.o.payload.words.eq(read.data.words),
            self.o.payload.fault.eq(read.data.error),
        ]
        m.d.sync += present.eq(~(filling & reads).any())
        with m.If(room):
            m.d.sync += [busy.eq(self.i.valid & self.i.ready), entry.eq(hit)]
            m.d.sync += held.eq(self.i.payload)

        m.d.sync += [
            Assert((hit & (hit - 1)) == 0, "descriptor cache: two live entries of one address\n"),
            Assert(~allocates | fills.i.ready, "descriptor cache: more fetches out than entries\n"),
            Assert(~self.fill.valid | filling.any(), "descriptor cache: a fill without a fetch\n"),
            Assert(
                (filled & ~filling) == 0, "descriptor cache: a fill for an entry that awaits none\n"
            ),
        ]
        return m
