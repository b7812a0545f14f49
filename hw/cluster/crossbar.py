"""Crossbar: delivers payloads from each CTA to any number of CTAs."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.lib.one_hot import lowest_bit
from hw.lib.queue import Queue


def addressed_layout(shape: ShapeLike, ctas: int) -> data.StructLayout:
    """Payload with its receivers.

    Members
    -------
    mask : receivers, one bit per CTA rank
    payload : payload of shape ``shape``
    """
    return data.StructLayout({"mask": ctas, "payload": shape})


class Crossbar(wiring.Component):
    """Delivers each payload once to every receiver of its mask.

    Order: a receiver gets the payloads of one sender in order; there is no other order. Each
    receiver chooses among the senders whose oldest payload is for it, round robin. So the oldest
    payload of a sender waits at a receiver for at most one payload of each other sender. The
    receivers of one payload take it independently, and it leaves the queue of its sender when the
    last of them has taken it. A payload of mask 0 is accepted and dropped.

    Latency: two clocks from ``i`` to ``o`` without contention. Throughput: one payload per clock at
    every receiver while the oldest payload of some sender is for it: from one sender to all, from
    each sender to another receiver, or from all senders to all. Back-pressure: a receiver that
    takes nothing fills its queue of ``depth`` payloads. It then stalls the senders whose oldest
    payload is for it, with the payloads behind it; that payload is still delivered to its other
    receivers. No other sender or receiver waits. No input drives an output in the same clock.
    Errors: none.

    Parameters
    ----------
    shape : ShapeLike
        Shape of the payload.
    ctas : int
        Number of senders and of receivers.
    depth : int
        Entries of each sender's queue and of each receiver's queue. With depth 1, a queue passes
        one payload every two clocks.

    Members
    -------
    i : In(stream.Signature(addressed_layout(shape, ctas))).array(ctas)
        Payloads of each sender.
    o : Out(stream.Signature(shape)).array(ctas)
        Payloads for each receiver.
    """

    def __init__(self, shape: ShapeLike, ctas: int, *, depth: int = 2) -> None:
        self.shape = shape
        self.ctas = ctas
        self.depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(addressed_layout(shape, ctas))).array(ctas),
                "o": Out(stream.Signature(shape)).array(ctas),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        ctas = range(self.ctas)
        senders = self._senders(m)
        receivers = [Queue(self.shape, self.depth) for _ in ctas]

        # Masks of receivers, for the oldest payload of each sender; ``takes`` are masks of senders.
        delivered = [Signal(self.ctas, name=f"delivered_{cta}") for cta in ctas]
        undelivered = [Signal(self.ctas, name=f"undelivered_{cta}") for cta in ctas]
        takes = [Signal(self.ctas, name=f"takes_{cta}") for cta in ctas]
        for cta, sender in enumerate(senders):
            delivers = Signal(self.ctas, name=f"delivers_{cta}")
            m.d.comb += [
                undelivered[cta].eq(
                    sender.o.p.mask & ~delivered[cta] & sender.o.valid.replicate(self.ctas)
                ),
                delivers.eq(Cat(mask[cta] for mask in takes)),
                sender.o.ready.eq(~(undelivered[cta] & ~delivers).any()),
            ]
            with m.If(sender.o.ready):
                m.d.sync += delivered[cta].eq(0)
            with m.Else():
                m.d.sync += delivered[cta].eq(delivered[cta] | delivers)

        for cta, receiver in enumerate(receivers):
            m.submodules[f"receiver_{cta}"] = receiver
            connect(m, receiver.o, flipped(self.o[cta]))
            requests = Cat(mask[cta] for mask in undelivered)
            chosen = self._choose(m, cta, requests, takes[cta])
            # Payloads are wide: a one-hot choice costs one AND and one OR per bit.
            width = Shape.cast(self.shape).width
            payloads = [Value.cast(sender.o.p.payload) for sender in senders]
            m.d.comb += [
                takes[cta].eq(chosen & receiver.i.ready.replicate(self.ctas)),
                receiver.i.valid.eq(chosen.any()),
                Value.cast(receiver.i.payload).eq(
                    reduce(
                        or_, (p & c.replicate(width) for p, c in zip(payloads, chosen, strict=True))
                    )
                ),
            ]
        return m

    def _senders(self, m: Module) -> list[Queue]:
        """Return the queues of the senders. A payload of mask 0 does not enter its queue."""
        queues = [Queue(addressed_layout(self.shape, self.ctas), self.depth) for _ in self.i]
        for cta, (port, queue) in enumerate(zip(self.i, queues, strict=True)):
            m.submodules[f"sender_{cta}"] = queue
            m.d.comb += [
                queue.i.valid.eq(port.valid & port.p.mask.any()),
                queue.i.payload.eq(port.payload),
                port.ready.eq(queue.i.ready),
            ]
        return queues

    def _choose(self, m: Module, cta: int, requests: Value, taken: Value) -> Signal:
        """Choose one of ``requests`` round robin: the first above the last one ``taken``."""
        above_last = Signal(self.ctas, name=f"above_last_{cta}")
        later = Signal(self.ctas, name=f"later_{cta}")
        chosen = Signal(self.ctas, name=f"chosen_{cta}")
        m.d.comb += later.eq(requests & above_last)
        with m.If(later.any()):
            m.d.comb += chosen.eq(lowest_bit(later))
        with m.Else():
            m.d.comb += chosen.eq(lowest_bit(requests))
        with m.If(taken.any()):
            m.d.sync += above_last.eq(~(taken | (taken - 1)))
        return chosen
