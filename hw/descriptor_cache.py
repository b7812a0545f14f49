"""Gives each request its tensor map, from a small cache of maps tagged by address."""

from functools import cache

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hw.layouts import (
    GLOBAL_ADDRESS_BITS,
    DescriptorFill,
    DescriptorInvalidate,
    queued_request_layout,
)
from hw.params import TmaParams
from hw.queue import Queue

MAP_ALIGN_BITS = 6
"""A map starts at a multiple of 64 bytes; the address bits above are its tag."""

LOOK_AHEAD = 2
"""Requests between lookup and output: one waits for its fill, the next is already looked up."""

FETCHES_WAITING = 2
"""Fetches that wait for the fetch port before lookups have to."""


@cache
def described_request_layout(params: TmaParams) -> data.StructLayout:
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


def _number(one_hot: Value) -> Value:
    """The number of the set bit."""
    return Cat(
        Cat(bit for number, bit in enumerate(one_hot) if number >> place & 1).any()
        for place in range(ceil_log2(len(one_hot)))
    )


class DescriptorCache(wiring.Component):
    """Looks up the tensor map of each request, fetches what is missing, and answers in order.

    Fully associative; an entry is the whole of w0 to w15 and its tag the address of the map (bits
    63:6, the others are ignored). One lookup a clock, for the first of these that waits:

    1. *Invalidation*, of one address or of all. No later lookup uses what the entry holds, nor a
       fill in flight; requests looked up before keep theirs.
    2. *Request*. A hit, also on a fill in flight, joins it; a miss issues a fetch into a free
       entry. Waits while ``LOOK_AHEAD`` requests are between lookup and output, while no entry is
       free (each has a fill in flight or a request that waits for it), or while the fetch port is
       backed up.
    3. *Prefetch*. The same without an output. Waits as a request does, and behind requests that
       can be looked up.

    A request therefore never gets a mix of two fills, nor a copy older than the last invalidation
    that was accepted before it was. A fill with ``error`` goes to the requests that wait for it and
    is not kept.

    Latency: a hit is offered two clocks after the request was accepted; a miss is offered to the
    fetch port one clock after, and the request two clocks after the fill. Throughput: a request a
    clock on hits; two misses overlap. Back-pressure: an invalidation is accepted at once, whatever
    the other ports do; a fill is accepted whenever a fetch is out; requests are delayed by a clock
    for each invalidation, prefetches for as long as requests come. ``i.ready`` depends on
    ``i.payload`` and not on ``o.ready``.

    Replacement: an entry that holds nothing valid before the others, in rotation.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(queued_request_layout(params)))
    o : Out(stream.Signature(described_request_layout(params)))
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
                "o": Out(stream.Signature(described_request_layout(params))),
                "prefetch": In(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "invalidate": In(stream.Signature(DescriptorInvalidate)),
                "fetch": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "fill": In(stream.Signature(DescriptorFill)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        entries = self.params.descriptor_cache_entries
        tag_bits = GLOBAL_ADDRESS_BITS - MAP_ALIGN_BITS
        request = queued_request_layout(self.params)
        waiting = data.StructLayout({"request": request, "entry": entries})

        m.submodules.ahead = ahead = Queue(waiting, LOOK_AHEAD)
        m.submodules.fetches = fetches = Queue(tag_bits, FETCHES_WAITING)
        m.submodules.fills = fills = Queue(entries, entries)
        m.submodules.maps = maps = Memory(shape=DescriptorFill, depth=entries, init=[])

        # Entries are selected one-hot throughout; a mask has a bit for each.
        tags = [Signal(tag_bits, name=f"tag_{n}", reset_less=True) for n in range(entries)]
        live = Signal(entries)  # lookups may hit
        filling = Signal(entries)  # a fetch is out
        awaited = Signal(entries)  # a request between lookup and output uses it

        # Lookup.
        can_join = Signal()
        tag = Signal(tag_bits)
        hit = Signal(entries)
        usable = Signal()
        with m.If(self.invalidate.valid):
            m.d.comb += tag.eq(self.invalidate.payload.address[MAP_ALIGN_BITS:])
        with m.Elif(can_join):
            m.d.comb += tag.eq(self.i.payload.global_address[MAP_ALIGN_BITS:])
        with m.Else():
            m.d.comb += tag.eq(self.prefetch.payload[MAP_ALIGN_BITS:])
        m.d.comb += [
            can_join.eq(self.i.valid & ahead.i.ready),
            hit.eq(live & Cat(tag == known for known in tags)),
            self.invalidate.ready.eq(1),
            self.i.ready.eq(can_join & usable & ~self.invalidate.valid),
            self.prefetch.ready.eq(~can_join & usable & ~self.invalidate.valid),
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
            free.eq(~(filling | awaited)),
            candidates.eq(Mux((free & ~live).any(), free & ~live, free)),
            first.eq(twice & ~(twice - turn)[: 2 * entries]),
            victim.eq(first[:entries] | first[entries:]),
        ]

        # Miss.
        miss = Signal()
        looked_up = (self.i.valid & self.i.ready) | (self.prefetch.valid & self.prefetch.ready)
        m.d.comb += [
            usable.eq(hit.any() | (free.any() & fetches.i.ready)),
            miss.eq(looked_up & ~hit.any()),
            fetches.i.valid.eq(miss),
            fetches.i.payload.eq(tag),
            fills.i.valid.eq(miss),
            fills.i.payload.eq(victim),
            self.fetch.valid.eq(fetches.o.valid),
            self.fetch.payload.eq(Cat(Const(0, MAP_ALIGN_BITS), fetches.o.payload)),
            fetches.o.ready.eq(self.fetch.ready),
        ]
        with m.If(miss):
            m.d.sync += turn.eq(victim.rotate_left(1))
            for number, known in enumerate(tags):
                with m.If(victim[number]):
                    m.d.sync += known.eq(tag)

        # Fill.
        filled = Signal(entries)
        write = maps.write_port()
        m.d.comb += [
            self.fill.ready.eq(fills.o.valid),
            fills.o.ready.eq(self.fill.valid),
            filled.eq(Mux(self.fill.valid & fills.o.valid, fills.o.payload, 0)),
            write.addr.eq(_number(fills.o.payload)),
            write.data.eq(self.fill.payload),
            write.en.eq(filled.any()),
        ]

        # What an entry is after this clock: a fill that fails or is overtaken is never live again.
        allocated = Mux(miss, victim, 0)
        failed = Mux(self.fill.payload.error, filled, 0)
        dropped = Mux(
            self.invalidate.valid, hit | self.invalidate.payload.all.replicate(entries), 0
        )
        m.d.sync += [
            live.eq((live | allocated) & ~failed & ~dropped),
            filling.eq((filling | allocated) & ~filled),
        ]

        # Output. The entries of the last two lookups, as many of them as still wait, are awaited.
        entry = hit | allocated
        last = Signal(entries, reset_less=True)
        second_last = Signal(entries, reset_less=True)
        m.d.comb += [
            ahead.i.valid.eq(self.i.valid & self.i.ready),
            ahead.i.payload.request.eq(self.i.payload),
            ahead.i.payload.entry.eq(entry),
            awaited.eq(
                Mux(ahead.level != 0, last, 0) | Mux(ahead.level == LOOK_AHEAD, second_last, 0)
            ),
        ]
        with m.If(ahead.i.valid):
            m.d.sync += [last.eq(entry), second_last.eq(last)]

        step = Signal()
        read = maps.read_port()
        held = Signal(request, reset_less=True)
        m.d.comb += [
            ahead.o.ready.eq(
                (~self.o.valid | self.o.ready) & ~(filling & ahead.o.payload.entry).any()
            ),
            step.eq(ahead.o.valid & ahead.o.ready),
            read.addr.eq(_number(ahead.o.payload.entry)),
            read.en.eq(step),
            self.o.payload.request.eq(held),
            self.o.payload.words.eq(read.data.words),
            self.o.payload.fault.eq(read.data.error),
        ]
        with m.If(step):
            m.d.sync += [held.eq(ahead.o.payload.request), self.o.valid.eq(1)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        m.d.sync += [
            Assert((hit & (hit - 1)) == 0, "descriptor cache: two live entries of one address\n"),
            Assert(~miss | fills.i.ready, "descriptor cache: more fetches out than entries\n"),
            Assert(~self.fill.valid | filling.any(), "descriptor cache: a fill without a fetch\n"),
            Assert(
                (filled & ~filling) == 0, "descriptor cache: a fill for an entry that awaits none\n"
            ),
        ]
        return m
