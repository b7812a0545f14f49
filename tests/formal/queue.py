"""Queue: no payload is lost, added, reordered or withdrawn."""

from functools import partial
from itertools import accumulate

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)

from hw.lib.queue import WIDE, Queue
from tests.formal.inside import Inside, inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold

QUEUES: dict[int, tuple[int, list[int]]] = {1: (4, []), 3: (4, [2, 1]), 4: (WIDE, [])}
"""Width of a payload, and widths of its parts, in the queue of each depth. A wide queue has a
register more."""

COUNT = 5
"""Width of the transfer counters; fewer payloads wait than they count."""


def follow_the_level(m: Module, queue: Queue) -> Inside:
    """Assert where ``queue`` writes and reads, by its level. Return access to its inside."""
    state = inside(queue)
    written = state.consume + queue.level
    m.d.comb += [
        Assert(queue.level <= queue.depth),
        Assert(state.consume < queue.depth),
        Assert(state.produce == Mux(written < queue.depth, written, written - queue.depth)),
    ]
    if len(Value.cast(queue.i.payload)) >= WIDE:
        m.d.comb += Assert(state.has_room == queue.i.ready)
    return state


class QueueSpec(Elaboratable):
    """Transfer number ``n`` brings ``want`` in, and delivers it."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.width, self.parts = QUEUES[depth]

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = Queue(self.width, self.depth, parts=self.parts)
        m.d.comb += [
            dut.i.valid.eq(AnySeq(1)),
            dut.i.payload.eq(AnySeq(self.width)),
            dut.o.ready.eq(AnySeq(1)),
            Assume(~ResetSignal()),
        ]
        hold(m, dut.i, "i", Assume)
        hold(m, dut.o, "o", Assert)

        taken = dut.i.valid & dut.i.ready
        given = dut.o.valid & dut.o.ready
        n, want = AnyConst(COUNT), AnyConst(self.width)
        ins, outs = Signal(COUNT), Signal(COUNT)
        m.d.sync += [ins.eq(ins + taken), outs.eq(outs + given)]
        with m.If(taken & (ins == n)):
            m.d.comb += Assume(dut.i.payload == want)
        with m.If(given & (outs == n)):
            m.d.comb += Assert(dut.o.payload == want)
        m.d.comb += [
            Assert(dut.level == (ins - outs)[:COUNT]),
            Assert(dut.o.valid == (dut.level != 0)),
            Assert(dut.i.ready == (dut.level != self.depth)),
        ]

        # The place of the payload in the queue.
        state = follow_the_level(m, dut)

        def place(age):
            behind = state.consume + age
            return Mux(behind < self.depth, behind, behind - self.depth)

        # Part ``n`` is ``n + 1`` rows further than what is behind all parts.
        further = [(part, (part + 1) % self.depth) for part in range(len(self.parts))]
        for part, rows in further:
            for name in ("produce", "consume"):
                at = state.signal(name) + rows
                m.d.comb += Assert(
                    state.signal(f"{name}_{part}") == Mux(at < self.depth, at, at - self.depth)
                )
        age = (n - outs)[:COUNT]
        ends = list(accumulate(self.parts, initial=0))
        for number in range(self.depth):
            with m.If((age < dut.level) & (place(age) == number)):
                m.d.comb += Assert(row(m, state.storage, number) == want[ends[-1] :])
                for part, rows in further:
                    storage = getattr(state, f"storage_{part}")
                    m.d.comb += Assert(
                        row(m, storage, (number + rows) % self.depth)
                        == want[ends[part] : ends[part + 1]]
                    )

        # The assumptions can be met: the queue fills, and its last entry leaves.
        was_full = Signal()
        with m.If(dut.level == self.depth):
            m.d.sync += was_full.eq(1)
        m.d.comb += Cover(was_full & (dut.level == 0) & (outs == self.depth + 1))
        return m


def _accepts_when_full(queue: Queue, inner: Inside) -> None:
    inner.module.d.comb += queue.i.ready.eq((inner.level != queue.depth) | queue.o.ready)


PROOFS = [
    Proof(
        f"queue of {depth}: order, nothing lost",
        partial(QueueSpec, depth),
        depth=2,
        cover=14,
        bugs=(
            Bug(
                "a full queue that accepts and loses",
                Queue,
                _accepts_when_full,
                depth=6,
            ),
        ),
        unbounded=True,
    )
    for depth in QUEUES
]
