"""Adds up completions that wait for the same barrier."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.barriers import BARRIER_COUNT_BITS, barrier_completion_layout
from hw.params import TmaParams

MOST_BYTES_BITS = BARRIER_COUNT_BITS - 1
MOST_BYTES = (1 << MOST_BYTES_BITS) - 1
"""Most bytes of one ``complete_tx``."""


class TxCoalescer(wiring.Component):
    """Turns completions that wait for one barrier into one with the sum of their bytes.

    It is legal: PTX leaves open into how many ``complete_tx`` the bytes of a request are split and
    does not order requests, so no program can tell one ``complete_tx`` of the sum from several. Nor
    do phases mix: a request for the next one is issued when this one is complete, and then no
    completion of this one waits. A sum stays within the bytes that one can have; where it would be
    more, what comes later waits in an entry of its own.

    A completion is added to one that waits in an entry, if that is for the same ``address`` (and
    ``holder``) and the sum is at most ``MOST_BYTES``; it leaves with the ``request_id`` (and
    ``cta``) of the last one added. Entries leave in the order of their first completions. What is
    offered at ``o`` is not added to: it may not change. So of N for one barrier, while ``o`` is
    held up, the first leaves alone and the others as one.

    Latency: none while nothing waits, the input is the output. Throughput: a completion a clock in
    and out. Back-pressure: ``i`` waits while all of the ``completions_waiting`` entries are taken;
    no input drives ``i.ready`` in the same clock. What was offered to ``o`` in the clock of its
    arrival and not taken is in the first entry from the next clock on. Without entries the ports
    are connected.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(barrier_completion_layout(params)))
    o : Out(stream.Signature(barrier_completion_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        completion = stream.Signature(barrier_completion_layout(params))
        super().__init__({"i": In(completion), "o": Out(completion)})

    def elaborate(self, platform) -> Module:
        m = Module()
        count = self.params.completions_waiting
        if not count:
            connect(m, flipped(self.i), flipped(self.o))
            return m
        layout = barrier_completion_layout(self.params)
        barrier = [name for name in ("holder", "address") if name in layout.members]

        # Entries are taken from the first on, which is at ``o``.
        taken = Signal(count)
        entries = [Signal(layout, name=f"entry_{n}", reset_less=True) for n in range(count)]
        fits = Signal(count)
        adds = Signal(count)
        leaves = Signal()
        m.d.comb += [
            adds.eq(Mux(self.i.valid & self.i.ready, fits & -fits, 0)),
            leaves.eq(taken[0] & self.o.ready),
            self.i.ready.eq(~taken[-1]),
            self.o.valid.eq(taken[0] | self.i.valid),
        ]
        with m.If(taken[0]):
            m.d.comb += self.o.payload.eq(entries[0])
        with m.Else():
            m.d.comb += self.o.payload.eq(self.i.payload)

        # Add to one that waits, but not to the one at ``o``.
        summed = entries[:1]
        for number in range(1, count):
            entry = entries[number]
            total = Signal(BARRIER_COUNT_BITS + 1, name=f"total_{number}")
            after = Signal(layout, name=f"after_{number}")
            same = Cat(self.i.p[name] == entry[name] for name in barrier).all()
            m.d.comb += [
                total.eq(entry.tx_bytes + self.i.p.tx_bytes),
                fits[number].eq(taken[number] & same & ~total[MOST_BYTES_BITS:].any()),
            ]
            with m.If(adds[number]):
                m.d.comb += [after.eq(self.i.payload), after.tx_bytes.eq(total)]
            with m.Else():
                m.d.comb += after.eq(entry)
            summed.append(after)

        # Move up, and take a new one behind the others.
        kept = Signal(count)
        place = Signal(count)
        m.d.comb += kept.eq(Mux(leaves, taken[1:], taken))
        with m.If(self.i.valid & self.i.ready & ~fits.any() & (taken[0] | ~self.o.ready)):
            m.d.comb += place.eq(~kept & Cat(1, kept))
        m.d.sync += taken.eq(kept | place)
        for number, entry in enumerate(entries):
            with m.If(place[number]):
                m.d.sync += entry.eq(self.i.payload)
            with m.Elif(leaves):
                if number + 1 < count:
                    m.d.sync += entry.eq(summed[number + 1])
            with m.Else():
                m.d.sync += entry.eq(summed[number])
        return m
