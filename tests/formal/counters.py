"""Event counters: no event is lost and none counts twice, whatever stops and clears them."""

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from amaranth.lib import enum

from hw.monitor.event_counters import PIPELINE, EventCounters
from tests.formal.inside import Inside, copied_row, inside
from tests.formal.proof import Bug, Proof

BITS = 6
"""Width of a count: the halves of a wider one are added in the same way."""


class Number(enum.Enum, shape=2):
    """Numbers of the counters; there is none of number 2."""

    FIRST = 0
    SECOND = 1
    LAST = 3


WIDTHS = {"first": 2, "last": 1}
"""Widths of the amounts. SECOND is a counter that the unit does not have."""


class CountersSpec(Elaboratable):
    """Each count is the sum of all amounts since it was cleared, without those of clocks in which
    the counters were stopped: in the memory, on the way there, and in its remainder.

    Once the counters have settled, the sum is the value that was selected.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = EventCounters(WIDTHS, Number, BITS)
        here = inside(dut)
        port = dut.port
        m.d.comb += [
            Assume(~ResetSignal()),
            *(dut.amounts[name].eq(AnySeq(width)) for name, width in WIDTHS.items()),
            port.select.eq(AnySeq(2)),
            port.freeze.eq(AnySeq(1)),
            port.clear.eq(AnySeq(1)),
        ]
        stale, since, row = here.stale, here.since, here.row
        selected = Signal.like(port.select)
        m.d.sync += selected.eq(port.select)
        begun = Signal(range(PIPELINE + 1))  # clocks since the reset
        m.d.sync += begun.eq(Mux(begun == PIPELINE, begun, begun + 1))
        m.d.comb += [
            Assert((stale <= dut.rows) & (since <= dut.settle_clocks)),
            Assert((stale == 0) | (stale + since <= dut.rows)),
            *(Assert(here.valid[n] == (begun > n)) for n in range(PIPELINE)),
            *(
                Assert(~here.valid[n] | (here.signal(f"row_{n + 1}") == (row - n - 1)[:2]))
                for n in range(PIPELINE)
            ),
            Assert((begun == PIPELINE) | (row == begun)),
        ]
        for number in Number:
            self._check_count(m, dut, here, number, selected)
        total = sum(dut.amounts[name] for name in WIDTHS)
        covered = Signal()
        m.d.comb += covered.eq(port.settled & (port.value == (1 << BITS // 2)) & (total != 0))
        m.d.sync += Cover(covered)
        return m

    def _check_count(
        self, m: Module, dut: EventCounters, here: Inside, number: Number, selected: Signal
    ) -> None:
        name = number.name.lower()
        width = WIDTHS.get(name, 0)
        truth = Signal(BITS, name=f"truth_{name}")
        if width:
            amount = Mux(dut.port.freeze, 0, dut.amounts[name])
            m.d.sync += truth.eq(Mux(dut.port.clear, 0, truth + amount))
            remainder = here.signal(f"remainder_{name}")
        else:
            remainder = Signal(name=f"no_remainder_{name}")

        # Clocks since the last visit, from 1 on.
        ago = Signal(range(dut.rows + 1), name=f"ago_{name}")
        behind = Signal(2, name=f"behind_{name}")
        m.d.comb += [
            behind.eq(here.row - number.value),
            ago.eq(Mux(behind == 0, dut.rows, behind)),
            Assert(remainder <= ago * ((1 << width) - 1)),
            Assert((here.since < ago) | (remainder == 0)),
        ]

        # What the memory has, and what is on its way there.
        old = Signal(BITS, name=f"old_{name}")
        new = Signal(BITS, name=f"new_{name}")
        kept = Signal(BITS, name=f"kept_{name}")
        is_added = here.valid[0] & (behind == 1)
        is_written = here.valid[1] & (behind == 2)
        half = BITS // 2
        m.d.comb += [
            old.eq(copied_row(m, here, "counts", number.value)),
            new[:half].eq(here.low),
            new[half:].eq(here.high + here.low[half]),
            kept.eq(old),
        ]
        read = here.counts_0.read_ports[0].data
        with m.If(is_added):
            m.d.comb += [
                Assert(here.is_stale | (read == old)),
                Assert((here.since < dut.rows + 1) | (here.addend == 0)),
                kept.eq(Mux(here.is_stale, 0, old) + here.addend),
            ]
        with m.Elif(is_written):
            m.d.comb += kept.eq(new)
        # The rows that are visited next count as 0.
        is_stale = (number.value - here.row)[:2] < here.stale
        with m.If(is_stale):
            m.d.comb += kept.eq(0)
        m.d.comb += Assert(truth == (kept + remainder)[:BITS])
        is_read = dut.port.settled & (selected == number)
        m.d.comb += Assert(~is_read | (dut.port.value == truth))


def _loses_events_of_a_visit(_counters: EventCounters, inner: Inside) -> None:
    with inner.module.If(inner.row == Number.FIRST.value):
        inner.module.d.sync += inner.remainder_first.eq(0)


def _loses_carries(_counters: EventCounters, inner: Inside) -> None:
    inner.module.d.sync += inner.low[BITS // 2].eq(0)


def _keeps_old_counts(_counters: EventCounters, inner: Inside) -> None:
    with inner.module.If(inner.stale == 1):
        inner.module.d.sync += inner.is_stale.eq(0)


def _settles_early(counters: EventCounters, inner: Inside) -> None:
    with inner.module.If(inner.since == PIPELINE):
        inner.module.d.sync += inner.since.eq(counters.settle_clocks)


PROOFS = [
    Proof(
        "event counters: each event counts once, and no other",
        CountersSpec,
        depth=3,
        cover=30,
        bugs=(
            Bug("lost events of a visit", EventCounters, _loses_events_of_a_visit, depth=12),
            Bug("lost carries", EventCounters, _loses_carries, depth=24),
            Bug("a count that is not cleared", EventCounters, _keeps_old_counts, depth=16),
            Bug("values that are read too early", EventCounters, _settles_early, depth=12),
        ),
        unbounded=True,
    )
]
