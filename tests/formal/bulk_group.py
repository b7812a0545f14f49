"""Bulk groups: no wait ends while a request that it covers is pending."""

from functools import partial

from amaranth.asserts import AnySeq
from amaranth.hdl import (
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

from hw.front.bulk_group import BulkGroups
from hw.layouts.isa import Operation
from hw.params import TmaParams
from tests.formal.inside import Inside
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold

COUNT = 4
"""Width of counters of requests and commits; the search is too short to overflow them."""
TOKENS = "source_read", "complete", "released"


class WaitSpec(Elaboratable):
    """Any one request of thread 0 is complete, or its source read, when a wait for it is over.

    The solver chooses the request. It is known by what happened to it, not by an index: how often
    its thread committed since, and which tokens were its own. Threads go on while they wait, and
    tokens come in any order: none of that makes a wait shorter.
    """

    def __init__(self, threads: int) -> None:
        self.params = TmaParams(
            threads=threads,
            streams=1,
            bulk_groups=4,
            requests_in_flight=2,
            request_queue_depth=2,
            request_id_bits=1,
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.dut = dut = BulkGroups(p)
        tokens = {name: getattr(dut, name) for name in TOKENS}
        for name, port in {"i": dut.i, **tokens}.items():
            m.d.comb += [
                port.valid.eq(AnySeq(1)),
                port.payload.eq(AnySeq(len(Value.cast(port.payload)))),
            ]
            hold(m, port, name, Assume)
        for name, port in {"o": dut.o, "result": dut.result}.items():
            m.d.comb += port.ready.eq(AnySeq(1))
            hold(m, port, name, Assert)
        m.d.comb += Assume(~ResetSignal())
        operation = dut.i.p.operation
        m.d.comb += Assume(Value.cast(operation) <= Operation.WAIT_GROUP_READ.value)

        # The request.
        given = dut.o.valid & dut.o.ready & dut.o.p.group.joined
        chosen, was_chosen = Signal(), Signal()
        index = Signal(p.group_bits)
        unread, incomplete = Signal(), Signal()
        m.d.comb += chosen.eq(AnySeq(1) & given & (dut.o.p.thread == 0) & ~was_chosen)
        with m.If(chosen):
            m.d.sync += [
                was_chosen.eq(1),
                index.eq(dut.o.p.group.index),
                unread.eq(1),
                incomplete.eq(1),
            ]

        # Tokens are its own, or of others of which there are as many under their index.
        own = {name: Signal(name=f"{name}_is_own") for name in TOKENS}
        for name, port in tokens.items():
            m.d.comb += own[name].eq(AnySeq(1) & port.valid & port.p.joined & (port.p.thread == 0))
            m.d.comb += Assume(~own[name] | (port.p.index == index))
        for kind, pending in (("source_read", unread), ("complete", incomplete)):
            names = kind, "released"
            ends = Cat(own[name] & tokens[name].ready for name in names).any()
            with m.If(ends):
                m.d.sync += pending.eq(0)
            m.d.comb += [
                *(Assume(~own[name] | pending) for name in names),
                Assume(~(own[kind] & own["released"])),
            ]
            for number in range(p.threads * p.bulk_groups):
                others = Signal(COUNT, name=f"{kind}_{number}")

                def is_here(group, number=number):
                    return Cat(group.index, group.thread) == number

                offered = [
                    tokens[name].valid
                    & tokens[name].p.joined
                    & is_here(tokens[name].p)
                    & ~own[name]
                    for name in names
                ]
                taken = [
                    offer & tokens[name].ready for offer, name in zip(offered, names, strict=True)
                ]
                joined = given & ~chosen & is_here(dut.o.p.group)
                m.d.comb += Assume(offered[0] + offered[1] <= others)
                m.d.sync += others.eq(others + joined - taken[0] - taken[1])

        # A request that leaves ``o`` in this clock is in front of the one that ``i`` accepts.
        accepted = dut.i.valid & dut.i.ready & (dut.i.p.thread == 0)
        age = Signal(COUNT)  # commits after the request
        waiting, covered, of_source = Signal(), Signal(), Signal()
        is_wait = (operation == Operation.WAIT_GROUP) | (operation == Operation.WAIT_GROUP_READ)
        over = dut.result.valid & (dut.result.p.thread == 0)
        with m.If(accepted & (operation == Operation.COMMIT_GROUP) & (was_chosen | chosen)):
            m.d.sync += age.eq(age + 1)
        m.d.comb += Assume(~(accepted & is_wait & waiting))
        with m.If(accepted & is_wait):
            m.d.sync += [
                waiting.eq(1),
                covered.eq(age > dut.i.p.groups),
                of_source.eq(operation == Operation.WAIT_GROUP_READ),
            ]
        with m.Elif(over & dut.result.ready):
            m.d.sync += waiting.eq(0)
        with m.If(over):
            # A request whose writes are performed has read its source.
            m.d.comb += [
                Assert(waiting),
                Assert(~covered | ~incomplete | (of_source & ~unread)),
            ]

        # The assumptions can be met: a wait that had to wait ends while a younger group is pending.
        had_to_wait = Signal()
        with m.If(waiting & covered & incomplete):
            m.d.sync += had_to_wait.eq(1)
        m.d.comb += Cover(over & covered & had_to_wait & ~of_source & (age == 2))
        return m


def _waits_for_sources_only(_groups: BulkGroups, inner: Inside) -> None:
    (look,) = inner.sources_read_1.read_ports
    inner.module.d.comb += inner.counted.eq(look.data)


def _ignores_conflicts(_groups: BulkGroups, inner: Inside) -> None:
    inner.module.d.comb += inner.conflicts.eq(0)


def _misses_last_update(_groups: BulkGroups, inner: Inside) -> None:
    (read,) = inner.issue_0.read_ports
    inner.module.d.comb += inner.row.eq(read.data)


DEPTH = 13
"""Clocks in which four commits and a wait can go wrong."""

PROOFS = [
    Proof(
        "bulk groups: no wait ends early",
        partial(WaitSpec, 2),
        depth=9,
        cover=15,
        bugs=(
            Bug("waits for sources only", BulkGroups, _waits_for_sources_only, depth=9),
            Bug("a row that lacks the last update", BulkGroups, _misses_last_update, depth=DEPTH),
            Bug("commits that do not wait", BulkGroups, _ignores_conflicts, depth=DEPTH),
        ),
    )
]
