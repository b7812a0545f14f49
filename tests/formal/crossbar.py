"""A crossbar delivers to each receiver what is for it: in order, soon, and nothing else."""

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
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data

from hw.crossbar import Crossbar
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold

COUNT = 5  # bits of the transfer counters, which wrap after more clocks than are searched


class CrossbarSpec(Elaboratable):
    """Payload number ``n`` of ``sender`` for ``receiver`` carries ``mark``, and is delivered.

    Senders put their number into their payloads. With ``steady``, receivers take always or, those
    of ``dead``, never, and ``sender`` sends the dead nothing.
    """

    def __init__(self, ctas: int) -> None:
        self.ctas = ctas

    def elaborate(self, _platform) -> Module:
        m = Module()
        number = (self.ctas - 1).bit_length()
        payload = data.StructLayout({"sender": number, "mark": 1})
        m.submodules.dut = dut = Crossbar(payload, self.ctas)
        sender, receiver = AnyConst(number), AnyConst(number)
        n, mark = AnyConst(COUNT), AnyConst(1)
        steady, dead = AnyConst(1), AnyConst(self.ctas)
        m.d.comb += [
            Assume(~ResetSignal()),
            Assume((sender < self.ctas) & (receiver < self.ctas)),
        ]
        for cta, (i, o) in enumerate(zip(dut.i, dut.o, strict=True)):
            m.d.comb += [
                i.valid.eq(AnySeq(1)),
                Value.cast(i.payload).eq(AnySeq(len(Value.cast(i.payload)))),
                o.ready.eq(AnySeq(1)),
                Assume(i.p.payload.sender == cta),
                Assume(~steady | (o.ready == ~dead[cta])),
                Assume(~steady | (sender != cta) | ~(i.p.mask & dead).any()),
                Assert(~o.valid | (o.p.sender < self.ctas)),
            ]
            hold(m, i, f"i_{cta}", Assume)
            hold(m, o, f"o_{cta}", Assert)

        # Number n goes in, and comes out.
        pick = {
            "mask": Array(i.p.mask for i in dut.i)[sender],
            "mark": Array(i.p.payload.mark for i in dut.i)[sender],
            "taken": Array(i.valid & i.ready for i in dut.i)[sender],
            "from": Array(o.p.sender for o in dut.o)[receiver],
            "given": Array(o.valid & o.ready for o in dut.o)[receiver],
            "out": Array(o.p.mark for o in dut.o)[receiver],
        }
        taken = pick["taken"] & pick["mask"].bit_select(receiver, 1)
        given = pick["given"] & (pick["from"] == sender)
        ins, outs, age = Signal(COUNT), Signal(COUNT), Signal(COUNT)
        inside = Signal()
        m.d.sync += [ins.eq(ins + taken), outs.eq(outs + given)]
        with m.If(taken & (ins == n)):
            m.d.comb += Assume(pick["mark"] == mark)
            m.d.sync += [inside.eq(1), age.eq(1)]
        with m.If(given & (outs == n)):
            m.d.comb += [Assert(inside), Assert(pick["out"] == mark)]
            m.d.sync += inside.eq(0)
        with m.If(inside):
            m.d.sync += age.eq(age + 1)

        # At worst one payload is in front of it, and each is the last in turn.
        m.d.comb += Assert(~(steady & inside) | (age <= 2 * self.ctas))

        # The search is not empty: all send to all, and all is delivered while one is dead.
        crowded = Signal()
        all_to_all = Cat(i.valid & i.ready & i.p.mask.all() for i in dut.i).all()
        with m.If(all_to_all & (ins == 0)):
            m.d.sync += crowded.eq(1)
        blocked = Signal()
        with m.If(steady & (dead == 1)):
            m.d.comb += blocked.eq(~dut.i[0].ready & (sender != 0) & (outs == 3) & (ins == 3))
        m.d.comb += [
            Cover(~steady & crowded & (outs == 2) & (ins == 2) & (n == 1)),
            Cover(blocked),
            Cover(steady & inside & (age == 2 * self.ctas)),
        ]
        return m


PROOFS = [
    Proof(
        f"crossbar of {ctas}: order, nothing lost, turns",
        partial(CrossbarSpec, ctas),
        depth=depth,
        cover=14,
        bugs=(
            Bug(
                "a payload that leaves with its first receiver",
                "hw.crossbar",
                "sender.o.ready.eq(~(missing[cta] & ~gets).any())",
                "sender.o.ready.eq(~missing[cta].any() | gets.any())",
                depth=6,
            ),
            Bug(
                "a receiver that takes no turns",
                "hw.crossbar",
                "later.eq(wanted & behind)",
                "later.eq(wanted)",
                depth=10,
            ),
        ),
    )
    for ctas, depth in ((2, 12), (3, 10))
]
