"""Crossbar: what CTAs send each other, each payload to any number of them."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.lib.one_hot import lowest_bit
from hw.lib.queue import Queue


def addressed_layout(shape: ShapeLike, ctas: int) -> data.StructLayout:
    """A payload for every CTA of ``mask``."""
    return data.StructLayout({"mask": ctas, "payload": shape})


class Crossbar(wiring.Component):
    """Delivers each payload once to every receiver of its mask.

    What a sender gives to a receiver arrives in that order; nothing else is ordered. Each receiver
    takes from the senders whose oldest payload is still for it in turn: the next one after the last
    it took from. So the oldest payload of a sender waits at a receiver for one payload of each
    other sender at most, and receivers of one payload need not take it at once. A payload leaves
    its sender's queue with its last receiver. One of mask 0 is accepted and dropped.

    Latency: offered at ``o`` two clocks after it was accepted at ``i``, where nothing is in its
    way. Throughput: a payload a clock at every receiver while a sender's oldest payload is for it:
    one sender to all, each sender to a receiver of its own, all senders to all. Back-pressure: a
    receiver that does not take stalls, once ``depth`` payloads wait for it, those senders whose
    oldest payload is for it, with all that is behind it in their queues; that payload still goes to
    its other receivers. No other sender and no other receiver waits. No input drives an output in
    the same clock. Errors: there are none.

    Parameters
    ----------
    shape : ShapeLike
        The payload.
    ctas : int
        Senders and receivers.
    depth : int
        Places in the queue of each sender and in that of each receiver; with less than 2 they pass
        a payload every second clock.

    Members
    -------
    i : In(stream) of ``addressed_layout``, one for each CTA
    o : Out(stream) of ``shape``, one for each CTA
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

        # Who still is to get each sender's oldest payload, and who gets it now.
        got = [Signal(self.ctas, name=f"got_{cta}") for cta in ctas]
        missing = [Signal(self.ctas, name=f"missing_{cta}") for cta in ctas]
        takes = [Signal(self.ctas, name=f"takes_{cta}") for cta in ctas]  # by receiver
        for cta, sender in enumerate(senders):
            gets = Signal(self.ctas, name=f"gets_{cta}")
            m.d.comb += [
                missing[cta].eq(sender.o.p.mask & ~got[cta] & sender.o.valid.replicate(self.ctas)),
                gets.eq(Cat(took[cta] for took in takes)),
                sender.o.ready.eq(~(missing[cta] & ~gets).any()),
            ]
            with m.If(sender.o.ready):
                m.d.sync += got[cta].eq(0)
            with m.Else():
                m.d.sync += got[cta].eq(got[cta] | gets)

        for cta, receiver in enumerate(receivers):
            m.submodules[f"receiver_{cta}"] = receiver
            connect(m, receiver.o, flipped(self.o[cta]))
            chosen = self._turn(m, cta, Cat(wanted[cta] for wanted in missing), takes[cta])
            # Wide payloads: the choice is one-hot, so that each bit takes an AND and an OR.
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
        """Queue what is for anyone."""
        queues = [Queue(addressed_layout(self.shape, self.ctas), self.depth) for _ in self.i]
        for cta, (port, queue) in enumerate(zip(self.i, queues, strict=True)):
            m.submodules[f"sender_{cta}"] = queue
            m.d.comb += [
                queue.i.valid.eq(port.valid & port.p.mask.any()),
                queue.i.payload.eq(port.payload),
                port.ready.eq(queue.i.ready),
            ]
        return queues

    def _turn(self, m: Module, cta: int, wanted: Value, taken: Value) -> Signal:
        """Choose one of those ``wanted``: the first behind the last one ``taken``."""
        behind = Signal(self.ctas, name=f"behind_{cta}")
        later = Signal(self.ctas, name=f"later_{cta}")
        chosen = Signal(self.ctas, name=f"chosen_{cta}")
        m.d.comb += later.eq(wanted & behind)
        with m.If(later.any()):
            m.d.comb += chosen.eq(lowest_bit(later))
        with m.Else():
            m.d.comb += chosen.eq(lowest_bit(wanted))
        with m.If(taken.any()):
            m.d.sync += behind.eq(~(taken | (taken - 1)))
        return chosen
