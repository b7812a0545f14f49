"""Event recorder: gives events of several sources a time, and offers them as one stream."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.monitor import CLOCK_BITS, EventRecord
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue

EVENTS_WAITING = 16
"""Events that can wait for the output."""

STAMP_BITS = 6
"""Width of the part of its time that an event carries up to the queue: it is there soon."""

MOST_SOURCES = 32
"""Sources whose events are in the queue before a stamp comes again."""


class EventOffer(data.Struct):
    """An event that a source has in this clock.

    Members
    -------
    valid : there is an event
    event : the event; ``clock`` and ``gap`` do not count
    """

    valid: 1
    event: EventRecord


class EventRecorder(wiring.Component):
    """Records events, and never holds up their sources.

    Each source has a place for one event, which waits there until those of the other sources were
    taken in turn, one a clock. The events then wait in a queue for the output. An event is lost if
    the place of its source is taken, or if the queue is full. The next event in the queue then has
    ``gap``.

    Order: the events of a source stay in order. Those of different sources may be in any order
    within as many clocks as there are sources; ``clock`` is exact.

    Latency: three clocks. Throughput: an event a clock. Back-pressure: the output may wait as long
    as it likes. Errors: ``lost`` says how many events are lost in a clock.

    Parameters
    ----------
    sources : int

    Members
    -------
    i : In(EventOffer), one for each source
    o : Out(stream) of ``EventRecord``
    lost : Out(range(sources + 2))
    now : Out(32)
        Clocks since the reset.

    Raises
    ------
    ValueError
        If there are more than ``MOST_SOURCES``.
    """

    def __init__(self, sources: int) -> None:
        if not 1 <= sources <= MOST_SOURCES:
            raise ValueError(f"sources = {sources}: must be from 1 to {MOST_SOURCES}")
        self.sources = sources
        super().__init__(
            {
                "i": In(EventOffer).array(sources),
                "o": Out(stream.Signature(EventRecord)),
                "lost": Out(range(sources + 2)),
                "now": Out(CLOCK_BITS),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        now = self.now
        held_layout = data.StructLayout({"stamp": STAMP_BITS, "event": EventRecord})
        m.submodules.turns = turns = Arbiter(held_layout, self.sources)
        m.submodules.events = events = Queue(EventRecord, EVENTS_WAITING)
        connect(m, events.o, flipped(self.o))
        m.d.sync += now.eq(now + 1)
        m.d.comb += turns.o.ready.eq(1)

        losses = Signal(self.sources + 1)
        for number, (offer, turn) in enumerate(zip(self.i, turns.i, strict=True)):
            valid = Signal(name=f"held_valid_{number}")
            held = Signal(held_layout, name=f"held_{number}", reset_less=True)
            m.d.comb += [
                turn.valid.eq(valid),
                turn.p.eq(held),
                losses[number].eq(offer.valid & valid & ~turn.ready),
            ]
            with m.If(~valid | turn.ready):
                m.d.sync += [
                    valid.eq(offer.valid),
                    held.stamp.eq(now[:STAMP_BITS]),
                    held.event.eq(offer.event),
                ]

        # The chosen event passes a register, and gets its whole time.
        chosen_valid = Signal()
        chosen = Signal(held_layout, reset_less=True)
        gap = Signal()
        upper = now[STAMP_BITS:]
        m.d.sync += [chosen_valid.eq(turns.o.valid), chosen.eq(turns.o.p)]
        wrapped = chosen.stamp > now[:STAMP_BITS]
        m.d.comb += [
            losses[-1].eq(chosen_valid & ~events.i.ready),
            events.i.valid.eq(chosen_valid),
            *(
                events.i.p[name].eq(chosen.event[name])
                for name in EventRecord.as_shape().members
                if name not in ("clock", "gap")
            ),
            events.i.p.clock.eq(Cat(chosen.stamp, upper - wrapped)),
            events.i.p.gap.eq(gap),
            self.lost.eq(sum(losses)),
        ]
        m.d.sync += gap.eq(losses.any() | (gap & ~(chosen_valid & events.i.ready)))
        return m
