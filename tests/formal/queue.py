"""Queue: no payload is lost, added, reordered or withdrawn."""

from functools import partial

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

QUEUES = {1: (4, 0), 3: (4, 2), 4: (WIDE, 0)}
"""Width of a payload, and bits kept near, in the queue of each depth. A wide queue has a register
more."""

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
        self.width, self.near = QUEUES[depth]

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = Queue(self.width, self.depth, near_bits=self.near)
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
        if self.near:
            for name in ("produce", "consume"):
                behind = state.signal(name) + 1
                m.d.comb += Assert(
                    state.signal(f"near_{name}") == Mux(behind < self.depth, behind, 0)
                )

        def place(age):
            behind = state.consume + age
            return Mux(behind < self.depth, behind, behind - self.depth)

        age = (n - outs)[:COUNT]
        for number in range(self.depth):
            with m.If((age < dut.level) & (place(age) == number)):
                m.d.comb += Assert(row(m, state.storage, number) == want[self.near :])
                if self.near:  # a row further
                    near = row(m, state.near, (number + 1) % self.depth)
                    m.d.comb += Assert(near == want[: self.near])

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
