"""Ticket list: says when all pieces of a line or of a beat of fill have left the lanes' queues."""

from amaranth.hdl import Module, ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.lib.queue import Queue


class TicketList(wiring.Component):
    """Gives each entry a ticket, a number that its pieces carry into the queues of the lanes.

    Tickets are counted modulo twice the ``depth``, as ``hw.lib.oldest_first`` needs them.

    The queues are in order. So once all older entries are gone, the oldest entry is gone as soon as
    no queue has its ticket at the head. The owner checks that, and then takes the entry from ``o``.

    Latency: that of the list as a queue. Throughput: one entry in and one out a clock.
    Back-pressure: ``i`` waits while ``depth`` entries are in the list.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an entry.
    depth : int
        Entries that the list can hold; a power of two.

    Members
    -------
    i : In(stream)
        Entries.
    o : Out(stream)
        The oldest entry.
    ticket : Out
        Ticket that the next entry of ``i`` gets.
    oldest : Out
        Ticket of ``o``.
    second : Out
        Ticket of the entry behind ``o``.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        self.queue = Queue(shape, depth, latency=2)
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "ticket": Out(range(2 * depth)),
                "oldest": Out(range(2 * depth)),
                "second": Out(range(2 * depth), init=1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = self.queue
        connect(m, flipped(self.i), queue.i)
        connect(m, queue.o, flipped(self.o))
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += self.ticket.eq(self.ticket + 1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [self.oldest.eq(self.second), self.second.eq(self.second + 1)]
        return m
