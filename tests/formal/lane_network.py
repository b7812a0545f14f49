"""Lane network: no line and no fill is reported before all of its pieces are written."""

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

from hw.layouts.isa import Fill
from hw.load.lane_network import LaneNetwork
from hw.params import TmaParams
from tests.formal.inside import Inside
from tests.formal.proof import Bug, Proof
from tests.formal.streams import offer

COUNT = 4
"""Width of the counters of lines, beats and requests; fewer enter in the clocks of the search."""

MARK = 3
"""A bit of a piece that is 1 for the line that is followed, and 0 in zeros and in NaN."""


class NarrowParams(TmaParams):
    """Parameters with few addresses, on which the proof does not depend but its time."""

    smem_piece_bits = 6
    box_piece_bits = 5


class ReportSpec(Elaboratable):
    """A line, or the fill of a request, is reported in the clock after its last write, or later.

    The solver chooses the lines and the beats of fill, when they come, and when the outputs are
    taken. ``followed`` is "line" or "fill":

    - "line": lines are reported in order, each with its slot and its number of pieces. Of a chosen
      line n, alone, all pieces are marked. When it is reported, the marked pieces that were written
      are as many as it has.
    - "fill": a request's fill is reported once, in the order of the last beats. Of all beats, only
      a chosen beat n is filled with NaN. When its request is reported, the pieces of NaN that were
      written are as many as the beat has.
    """

    def __init__(self, followed: str, lane_depth: int) -> None:
        self.followed = followed
        self.params = NarrowParams(
            line_bytes=32, requests_in_flight=2, lane_depth=lane_depth, streams=1, reductions=False
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = LaneNetwork(self.params)
        m.d.comb += Assume(~ResetSignal())
        for port in (dut.line, dut.fill):
            offer(m, port)
        for port in (dut.smem_write, dut.written, dut.filled):
            m.d.comb += port.ready.eq(AnySeq(1))
        # The assumptions can be met: what is followed has two pieces, and is not the first one.
        m.d.comb += Cover(
            self._follow_a_line(m, dut) if self.followed == "line" else self._follow_fill(m, dut)
        )
        return m

    def _count(self, m: Module, name: str, event: Value) -> Signal:
        """Return how often ``event`` was in the clocks before."""
        count = Signal(COUNT, name=name)
        m.d.sync += count.eq(count + event)
        return count

    def _count_pieces(self, m: Module, dut: LaneNetwork, name: str, marks: list) -> Signal:
        """Return how many pieces with a mark were written in the clocks before."""
        count = Signal(self.params.lane_bits + 2, name=name)
        fire = dut.smem_write.valid & dut.smem_write.ready
        written = sum(out.valid & mark for out, mark in zip(dut.smem_write.p, marks, strict=True))
        m.d.sync += count.eq(count + Mux(fire, written, 0))
        return count

    def _follow_a_line(self, m: Module, dut: LaneNetwork) -> Value:
        """Follow the pieces of line n; return whether it is reported, has two, and is not first."""
        number, line, report = AnyConst(COUNT), dut.line, dut.written
        taken, given = line.valid & line.ready, report.valid & report.ready
        lines = self._count(m, "lines", taken)
        reports = self._count(m, "reports", given)
        is_it = lines == number
        m.d.comb += [Assume(piece[MARK] == is_it) for piece in line.p.data]
        pieces, slot, stands_for = Signal(2), Signal.like(line.p.slot), Signal.like(line.p.pieces)
        with m.If(taken & is_it):
            m.d.sync += [
                pieces.eq(sum(line.p.valid)),
                slot.eq(line.p.slot),
                stands_for.eq(line.p.pieces),
            ]
        marks = [out.data[MARK] for out in dut.smem_write.p]
        written = self._count_pieces(m, dut, "marked", marks)
        with m.If(report.valid & (reports == number)):
            m.d.comb += [
                Assert(lines > number),
                Assert(written == pieces),
                Assert(report.p.slot == slot),
                Assert(report.p.pieces == stands_for),
            ]
        return given & (reports == number) & (number != 0) & (pieces > 1)

    def _follow_fill(self, m: Module, dut: LaneNetwork) -> Value:
        """Follow the pieces of beat n of fill; return whether its request is reported, and the beat
        has two, and is not the first.
        """
        number, fill, report = AnyConst(COUNT), dut.fill, dut.filled
        taken, given = fill.valid & fill.ready, report.valid & report.ready
        beats = self._count(m, "beats", taken)
        ends = self._count(m, "ends", taken & fill.p.last)
        reports = self._count(m, "fill_reports", given)
        is_it = beats == number
        m.d.comb += Assume((fill.p.style.fill == Fill.NAN) == is_it)
        pieces, slot, request = Signal(2), Signal.like(fill.p.slot), Signal(COUNT)
        with m.If(taken & is_it):
            m.d.sync += [pieces.eq(sum(fill.p.valid)), slot.eq(fill.p.slot), request.eq(ends)]
        # The beats of one request have its slot.
        in_request, slot_before = Signal(), Signal.like(slot)
        with m.If(taken):
            m.d.sync += [in_request.eq(~fill.p.last), slot_before.eq(fill.p.slot)]
        m.d.comb += Assume(~(fill.valid & in_request) | (fill.p.slot == slot_before))
        # Only NaN is written with its lowest bit.
        marks = [out.data[0] for out in dut.smem_write.p]
        m.d.comb += [Assume(~piece[0]) for piece in dut.line.p.data]
        written = self._count_pieces(m, dut, "nans", marks)
        with m.If(report.valid):
            m.d.comb += Assert(reports < ends)
        with m.If(report.valid & (beats > number) & (reports == request)):
            m.d.comb += [Assert(written == pieces), Assert(report.p.slot == slot)]
        return given & (beats > number) & (reports == request) & (number != 0) & (pieces > 1)


def _compares_with_the_ticket_before(_network: LaneNetwork, inner: Inside) -> None:
    inner.module.d.sync += inner.line_fired.eq(0)


def _compares_fill_with_the_ticket_before(_network: LaneNetwork, inner: Inside) -> None:
    inner.module.d.sync += inner.fill_fired.eq(0)


PROOFS = [
    Proof(
        f"lane network: no {followed} reported before it is written",
        partial(ReportSpec, followed, lane_depth),
        depth=10,
        cover=9,
        bugs=(Bug(f"{followed} compared with the ticket before", LaneNetwork, change, 9),),
    )
    # In queues of two pieces fill does not wait for a line within these clocks.
    for followed, lane_depth, change in (
        ("line", 2, _compares_with_the_ticket_before),
        ("fill", 4, _compares_fill_with_the_ticket_before),
    )
]
