"""Crossbar: each receiver gets its own payloads, in order, within a bounded time, and no others."""

from functools import partial

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Array,
    Assert,
    Assume,
    Cat,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data

from hw.cluster.crossbar import Crossbar
from hw.lib.queue import Queue
from tests.formal.inside import Inside, inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer

PAYLOAD = data.StructLayout({"sender": 2, "mark": 1})
DEPTH = 2


class CrossbarSpec(Elaboratable):
    """Any one payload of ``sender`` for ``receiver`` is delivered once, behind those before it.

    It is the one of them with a mark. Senders put their number into their payloads. With
    ``steady``, receivers take always or, those of ``dead``, never, and ``sender`` sends the dead
    nothing; then the payload is delivered within ``2 * ctas`` clocks.
    """

    def __init__(self, ctas: int) -> None:
        self.ctas = ctas

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = Crossbar(PAYLOAD, self.ctas, depth=DEPTH)
        sender, receiver = AnyConst(2), AnyConst(2)
        steady, dead = AnyConst(1), AnyConst(self.ctas)
        m.d.comb += [
            Assume(~ResetSignal()),
            Assume((sender < self.ctas) & (receiver < self.ctas)),
        ]
        for cta, (i, o) in enumerate(zip(dut.i, dut.o, strict=True)):
            offer(m, i)
            m.d.comb += [
                o.ready.eq(AnySeq(1)),
                Assume(i.p.payload.sender == cta),
                Assume(~steady | (o.ready == ~dead[cta])),
                Assume(~steady | (sender != cta) | ~(i.p.mask & dead).any()),
            ]
            hold(m, i, f"i_{cta}", Assume)
            hold(m, o, f"o_{cta}", Assert)

        # Payloads that enter and leave. ``ahead`` counts those in front of the marked payload.
        mask = Array(i.p.mask for i in dut.i)[sender]
        mark = Array(i.p.payload.mark for i in dut.i)[sender]
        accepted = Array(i.valid & i.ready for i in dut.i)[sender]
        out = Array(o.p for o in dut.o)[receiver]
        delivered = Array(o.valid & o.ready for o in dut.o)[receiver]
        taken, given = Signal(), Signal()
        between, ahead = Signal(range(2 * DEPTH + 1)), Signal(range(2 * DEPTH + 1))
        was_marked, is_marked, age = Signal(), Signal(), Signal(range(2 * self.ctas + 3))
        m.d.comb += [
            taken.eq(accepted & mask.bit_select(receiver, 1)),
            given.eq(delivered & (out.sender == sender)),
            Assume(~(taken & mark & was_marked)),
            Assert(~given | (between != 0)),
        ]
        m.d.sync += [
            between.eq(between + taken - given),
            was_marked.eq(was_marked | (taken & mark)),
        ]
        with m.If(taken & mark):
            m.d.sync += [is_marked.eq(1), ahead.eq(between - given), age.eq(1)]
        with m.Elif(is_marked):
            m.d.sync += age.eq(age + 1)
            with m.If(given):
                m.d.comb += Assert(out.mark == (ahead == 0))
                m.d.sync += [ahead.eq(ahead - 1), is_marked.eq(ahead != 0)]
        with m.Elif(given):
            m.d.comb += Assert(~out.mark)
        # In the worst case one payload is in front of it, and each of both is the last in turn.
        m.d.comb += [
            Assert(~(steady & is_marked) | (age <= 2 * self.ctas)),
            Cover(steady & is_marked & (age == 2 * self.ctas)),
        ]

        masks = self._invariants(m, dut, sender, receiver, (between, ahead, was_marked, is_marked))
        for cta, mask in enumerate(masks):
            m.d.comb += Assert(~(steady & (sender == cta)) | ~(mask & dead).any())

        # The assumptions can be met: all send to all, and all is delivered while one is dead.
        crowded, deliveries = Signal(), Signal(2)
        with m.If(Cat(i.valid & i.ready & i.p.mask.all() for i in dut.i).all()):
            m.d.sync += crowded.eq(1)
        m.d.sync += deliveries.eq(deliveries + given)
        is_blocked = steady & (dead == 1) & (sender != 0) & ~dut.i[0].ready
        m.d.comb += [
            Cover(crowded & was_marked & ~is_marked & (between == 0)),
            Cover(is_blocked & was_marked & (deliveries == 3)),
        ]
        return m

    def _invariants(self, m: Module, dut: Crossbar, sender, receiver, known) -> list[Value]:
        """Assert where payloads are: in the queue of their sender, then in that of the receiver.

        Returns
        -------
        list[Value]
            The receivers of the payloads in each sender's queue.
        """
        between, ahead, was_marked, is_marked = known
        here = inside(dut)

        def waiting(queue: Queue, layout: data.Layout):
            """Return of each place of a queue, from the oldest on, if it is taken and by what."""
            state = inside(queue)
            m.d.comb += [
                Assert(queue.level <= DEPTH),
                Assert(state.produce == (state.consume + queue.level)[: len(state.produce)]),
            ]
            rows = [row(m, state.storage, number) for number in range(DEPTH)]
            return [
                (
                    queue.level > age,
                    data.View(layout, Mux(state.consume == age, rows[0], rows[1])),
                )
                for age in range(DEPTH)
            ]

        in_senders, in_receivers, all_masks = [], [], []
        for cta, queue in enumerate(here.array("sender_{}", self.ctas)):
            places = waiting(queue, queue.o.p.shape())
            got = here.signal(f"delivered_{cta}")
            masks = []
            for is_taken, entry in places:
                missing = entry.mask if masks else entry.mask & ~got
                masks.append(Mux(is_taken, entry.mask, 0))
                m.d.comb += Assert(~is_taken | ((entry.payload.sender == cta) & missing.any()))
                is_its = is_taken & missing.bit_select(receiver, 1) & (sender == cta)
                in_senders.append((is_its, entry.payload.mark))
            m.d.comb += Assert((got & ~masks[0]) == 0)
            all_masks.append(masks[0] | masks[1])
        for cta, queue in enumerate(here.array("receiver_{}", self.ctas)):
            for is_taken, payload in waiting(queue, PAYLOAD):
                is_its = is_taken & (payload.sender == sender) & (receiver == cta)
                in_receivers.append((is_its, payload.mark))
        path = in_receivers + in_senders
        marks = [is_its & mark for is_its, mark in path]
        m.d.comb += [
            Assert(between == sum(is_its for is_its, _ in path)),
            Assert(is_marked == sum(marks)),
            Assert(~is_marked | was_marked),
        ]
        for number, mark in enumerate(marks):
            m.d.comb += Assert(~mark | (ahead == sum(is_its for is_its, _ in path[:number])))
        return all_masks


def _leaves_with_its_first_receiver(crossbar: Crossbar, inner: Inside) -> None:
    for cta in range(crossbar.ctas):
        missing, gets = inner.signal(f"undelivered_{cta}"), inner.signal(f"delivers_{cta}")
        sender = getattr(inner, f"sender_{cta}")
        inner.module.d.comb += sender.o.ready.eq(~missing.any() | gets.any())


def _takes_no_turns(crossbar: Crossbar, inner: Inside) -> None:
    for cta in range(crossbar.ctas):
        wanted = Cat(missing[cta] for missing in inner.array("undelivered_{}", crossbar.ctas))
        inner.module.d.comb += inner.signal(f"later_{cta}").eq(wanted)


PROOFS = [
    Proof(
        f"crossbar of {ctas}: order, nothing lost, turns",
        partial(CrossbarSpec, ctas),
        depth=2 * ctas + 2,
        cover=12,
        bugs=(
            Bug(
                "a payload that leaves with its first receiver",
                Crossbar,
                _leaves_with_its_first_receiver,
                depth=6,
            ),
            Bug(
                "a receiver that takes no turns",
                Crossbar,
                _takes_no_turns,
                depth=2 * ctas + 5,
            ),
        ),
        unbounded=True,
    )
    for ctas in (2, 3)
]
