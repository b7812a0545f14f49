"""Fill: every piece of a chain that is in no run is filled once, and each request ends once."""

from functools import partial

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data

from hw.generate.fill_collector import FillCollector
from hw.generate.fill_cutter import FillCutter
from hw.layouts.lines import fill_fields, fill_stretch_layout
from hw.params import TmaParams
from tests.formal.inside import Inside, inside
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer


class NarrowParams(TmaParams):
    """Parameters with few addresses, on which the proofs do not depend but their time."""

    smem_piece_bits = 6
    box_piece_bits = 6


class CollectorSpec(Elaboratable):
    """Each piece of fill leaves in one stretch, and each request ends as it must.

    The solver chooses a piece address and the steps of all chains. The runs of a chain follow each
    other in shared memory, and end within it. Whenever stretches are taken:

    - The piece is in a stretch of a chain if and only if it is fill of the chain, and then in one,
      with the slot of the request. The stretches of a chain leave before those of the next one.
    - No beat has fill in two stretches of a chain.
    - A request that has fill, or whose last step has no run, has one stretch marked ``last``,
      behind all its others. Other requests have none.
    - If stretches are taken at once, a step waits only while the end of a chain is emitted.
    """

    def __init__(self, line_bytes: int) -> None:
        self.params = NarrowParams(line_bytes=line_bytes, requests_in_flight=2)

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        bits, lane_bits = p.smem_piece_bits, p.lane_bits
        m.submodules.dut = dut = FillCollector(p)
        place_layout = data.StructLayout({"fill_from": bits, "mask": p.lanes})
        end_layout = data.StructLayout(
            {"place": place_layout, "to": bits, "last": 1, **fill_fields(p)}
        )
        here = inside(dut)
        place, end = here.view("place_q", place_layout), here.view("end", end_layout)
        offer(m, dut.i)
        m.d.comb += [dut.o.ready.eq(AnySeq(1)), Assume(~ResetSignal())]
        hold(m, dut.i, "i", Assume)
        hold(m, dut.o, "o", Assert)
        # The steps as they leave the first register, with what is known of each by itself.
        facts = here.view("facts", dut.facts_layout)
        step, stretch = facts.step, dut.o.p
        taken, given = here.fire, dut.o.valid & dut.o.ready

        # Steps form chains, and chains requests. Behind ``at`` the chain had no run yet.
        in_chain, in_request, slot, at_q = Signal(), Signal(), Signal(p.slot_bits), Signal(bits)
        at, run_end = Signal(bits), Signal(bits + 1)
        inner = step.inner_fill if p.gathers_rows else Const(0, p.lanes)
        m.d.comb += [
            at.eq(Mux(step.first_of_chain, step.chain_begin, at_q)),
            run_end.eq(Mux(step.has_run, step.start + step.extent, at)),
        ]
        with m.If(here.step_valid):
            m.d.comb += [
                Assume(step.first_of_chain == ~in_chain),
                Assume(~in_request | (step.slot == slot)),
                Assume(~step.last_of_request | step.last_of_chain),
                Assume(~step.has_run | ((step.start >= at) & (step.extent != 0))),
                Assume(step.has_run | (step.first_of_chain & step.last_of_chain)),
                Assume(run_end < 1 << bits),
                Assume(~step.last_of_chain | (step.chain_end >= run_end)),
            ]
            for number in range(p.lanes):
                in_beat = (step.start[:lane_bits] + number < p.lanes) & (number < step.extent)
                m.d.comb += Assume(~step.has_run | ~inner[number] | (in_beat & (number > 0)))
            self._check_facts(m, facts)
        with m.If(taken):
            m.d.sync += [
                in_chain.eq(~step.last_of_chain),
                in_request.eq(~step.last_of_request),
                slot.eq(step.slot),
                at_q.eq(run_end),
            ]

        # The chosen piece is owed from the step that makes it fill until its stretch leaves:
        # ``owed`` by the chain of the steps, ``ending`` by the one before it, whose end waits.
        piece = AnyConst(bits)
        owed, ending, end_slot, end_last = Signal(), Signal(), Signal(p.slot_bits), Signal()
        passed, remains = Signal(), Signal()  # the piece is fill in front of the run, behind it
        is_inner = (piece >= step.start) & (inner >> (piece - step.start)[:bits])[0]
        m.d.comb += [
            passed.eq(step.has_run & (((piece >= at) & (piece < step.start)) | is_inner)),
            remains.eq(step.last_of_chain & (piece >= run_end) & (piece < step.chain_end)),
        ]
        has_piece, has_beat = self._look_for(m, stretch, piece)
        at_end = here.end_valid
        owed_before = owed & ~step.first_of_chain
        owed_d = Signal()
        m.d.comb += owed_d.eq((owed_before | passed) & ~(given & ~at_end & has_piece))
        with m.If(given & at_end):
            m.d.comb += [Assert(has_piece == ending), Assert(stretch.slot == end_slot)]
            m.d.sync += [ending.eq(0), end_last.eq(0)]
        with m.Elif(given):
            m.d.comb += [
                Assert(taken & (~has_piece | owed_before | passed)),
                Assert(stretch.slot == step.slot),
            ]
        m.d.comb += [
            Assert(at_end | ~(ending | end_last)),
            Assert(~at_end | dut.o.valid),
            Assert(taken | ~here.step_valid | ~dut.o.ready | at_end),
            Assert(dut.i.ready == (taken | ~here.step_valid)),
        ]
        with m.If(taken):
            m.d.sync += owed.eq(owed_d & ~step.last_of_chain)
            with m.If(step.last_of_chain):
                m.d.sync += [ending.eq(owed_d | remains), end_slot.eq(step.slot)]

        # The beat of the piece has fill in one stretch of a chain.
        done, end_done = Signal(), Signal()
        done_before = done & ~step.first_of_chain
        done_d = done_before | (given & ~at_end & has_beat)
        with m.If(given & has_beat):
            m.d.comb += Assert(~Mux(at_end, end_done, done_before))
        with m.If(taken):
            m.d.sync += done.eq(done_d)
            with m.If(step.last_of_chain):
                m.d.sync += end_done.eq(done_d)

        # The end of a request.
        had_fill, has_fill, ends, ended = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            has_fill.eq(
                had_fill
                | (step.has_run & ((step.start != at) | inner.any()))
                | (step.last_of_chain & (step.chain_end != run_end))
            ),
            # The last stretch may come with the last step: then no end follows.
            ends.eq(given & ~at_end & stretch.last),
            Assert(~given | ~at_end | (stretch.last == end_last)),
            Assert(~ends | (step.last_of_request & has_fill & ~owed_d & ~remains)),
            Assert(~ended | ~at_end),
        ]
        m.d.sync += ended.eq(ends)
        with m.If(taken):
            m.d.sync += had_fill.eq(has_fill & ~step.last_of_request)
            with m.If(step.last_of_request):
                m.d.sync += end_last.eq((has_fill | ~step.has_run) & ~ends)

        # What is owed waits at the place where fill continues, or in the end of a chain.
        def is_below(place) -> Value:
            return (piece[lane_bits:] == place.fill_from[lane_bits:]) & (
                Const(0, 1)
                if not lane_bits
                else (place.mask >> piece[:lane_bits])[0] & (piece < place.fill_from)
            )

        for waits, name in ((in_chain, place), (at_end, end.place)):
            below = Cat(lane < name.fill_from[:lane_bits] for lane in range(p.lanes))
            m.d.comb += Assert(~waits | (name.mask & ~below == 0))
        behind = piece[lane_bits:] < place.fill_from[lane_bits:]
        behind_end = piece[lane_bits:] < end.place.fill_from[lane_bits:]
        m.d.comb += [
            Assert(~in_chain | (in_request & (place.fill_from == at_q))),
            Assert(owed == (in_chain & is_below(place))),
            Assert(~(in_chain & done) | behind),
            Assert(~in_chain | ~at_end),
            Assert(
                ending
                == (
                    at_end
                    & (((piece >= end.place.fill_from) & (piece < end.to)) | is_below(end.place))
                )
            ),
            Assert(~at_end | ((end.to >= end.place.fill_from) & (end.slot == end_slot))),
            Assert(~(at_end & end_done) | behind_end),
            Assert(~at_end | (end.last == end_last)),
            Assert(had_fill == (here.had_fill | (in_chain & place.mask.any()))),
            Assert(in_request | ~had_fill),
        ]

        # The assumptions can be met: the end of a chain leaves while the next chain begins.
        was_inner = Signal()
        with m.If(taken & (inner.any() if p.gathers_rows else 1)):
            m.d.sync += was_inner.eq(1)
        m.d.comb += Cover(was_inner & given & ending & taken & step.has_run & ~stretch.last)
        return m

    def _check_facts(self, m: Module, facts) -> None:
        """Assert that the facts of a step follow from it."""
        p = self.params
        step = facts.step
        run_end = Signal(p.smem_piece_bits)
        below = Cat(lane < step.start[: p.lane_bits] for lane in range(p.lanes))
        begins = Cat(lane >= step.chain_begin[: p.lane_bits] for lane in range(p.lanes))
        in_one_beat = step.chain_begin[p.lane_bits :] == step.start[p.lane_bits :]
        collected = (below | facts.inner_fill) & Mux(in_one_beat, begins, ~0)[: p.lanes]
        m.d.comb += [
            run_end.eq(step.start + step.extent),
            Assert(facts.run_end == run_end),
            Assert(facts.run_ends_early == (run_end != step.chain_end)),
            Assert(
                facts.crosses_beat == (step.start[: p.lane_bits] + step.extent)[p.lane_bits :].any()
            ),
            Assert(facts.chain_from_before == ~in_one_beat),
            Assert(
                facts.chain_has_stretch
                == (step.has_run & (~in_one_beat | (facts.crosses_beat & collected.any())))
            ),
        ]
        if p.gathers_rows:
            m.d.comb += Assert(
                facts.inner_fill == (step.inner_fill << step.start[: p.lane_bits])[: p.lanes]
            )

    def _look_for(self, m: Module, stretch, piece: Value) -> tuple[Signal, Signal]:
        """Return whether ``stretch`` has the piece, and whether it has a piece in its beat."""
        p = self.params
        beat = piece[p.lane_bits :]
        distance = Signal(p.smem_beat_bits)
        mask = Signal(p.lanes)
        has_piece, has_beat = Signal(), Signal()
        m.d.comb += [
            distance.eq(beat - stretch.beat),
            has_piece.eq((mask >> piece[: p.lane_bits])[0]),
            has_beat.eq(mask.any()),
        ]
        with m.If((beat >= stretch.beat) & (distance <= stretch.extra_beats)):
            with m.If(distance == 0):
                m.d.comb += mask.eq(stretch.mask)
            with m.Elif(distance == stretch.extra_beats):
                m.d.comb += mask.eq(stretch.last_mask)
            with m.Else():
                m.d.comb += mask.eq(~0)
        return has_piece, has_beat


class CutterSpec(Elaboratable):
    """Stretches leave beat by beat, in order, without the gaps between rows.

    The beats of a stretch leave one a clock, and no clock is lost between stretches. ``last`` is
    that of the stretch, on its last beat.
    """

    def __init__(self, line_bytes: int, **changes) -> None:
        self.params = NarrowParams(line_bytes=line_bytes, requests_in_flight=2, **changes)

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.dut = dut = FillCutter(p)
        offer(m, dut.i)
        m.d.comb += [dut.o.ready.eq(AnySeq(1)), Assume(~ResetSignal())]
        hold(m, dut.i, "i", Assume)
        hold(m, dut.o, "o", Assert)
        taken, given = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        has_stretch = Signal()
        stretch = Signal(fill_stretch_layout(p))
        number = Signal.like(stretch.extra_beats)  # of the beat
        is_last = number == stretch.extra_beats
        beat = dut.o.p
        with m.If(taken):
            m.d.sync += [has_stretch.eq(1), stretch.eq(dut.i.payload), number.eq(0)]
        with m.Elif(given):
            m.d.sync += [has_stretch.eq(~is_last), number.eq(number + 1)]
        m.d.comb += [
            Assert(dut.o.valid == has_stretch),
            Assert(dut.i.ready == (~has_stretch | (dut.o.ready & is_last))),
        ]
        with m.If(has_stretch):
            mask = Mux(number == 0, stretch.mask, Mux(is_last, stretch.last_mask, ~0))
            m.d.comb += [
                Assert(beat.beat == (stretch.beat + number)[: len(beat.beat)]),
                Assert(beat.last == (is_last & stretch.last)),
                Assert(beat.slot == stretch.slot),
                Assert(beat.style == stretch.style),
            ]
            for lane in range(p.lanes):
                at = (beat.beat * p.lanes + lane) % p.row_mask_bits
                m.d.comb += Assert(beat.valid[lane] == (mask[lane] & (stretch.row_mask >> at)[0]))

        # What is not emitted of the stretch.
        cutter = inside(dut)
        left = cutter.view("stretch", fill_stretch_layout(p))
        with m.If(has_stretch):
            same = {"slot", "style", "row_mask", "last_mask", "last"}
            m.d.comb += [
                *(Assert(left[name] == stretch[name]) for name in sorted(same)),
                Assert(number <= stretch.extra_beats),
                Assert(left.beat == (stretch.beat + number)[: len(left.beat)]),
                Assert(left.extra_beats == stretch.extra_beats - number),
                Assert(cutter.last_beat == (left.extra_beats == 0)),
                Assert(
                    left.mask
                    == Mux(number == 0, stretch.mask, Mux(is_last, stretch.last_mask, ~0))[
                        : p.lanes
                    ]
                ),
            ]

        # The assumptions can be met: a stretch of three beats follows another one at once.
        followed = Signal()
        with m.If(taken):
            m.d.sync += followed.eq(has_stretch)
        m.d.comb += Cover(followed & given & is_last & (number == 2) & ~beat.valid.all())
        return m


def _emits_a_beat_with_each_run(collector: FillCollector, inner: Inside) -> None:
    facts = inner.view("facts", collector.facts_layout)
    collected = facts.inner_fill.any() | (facts.step.start[: collector.params.lane_bits] != 0)
    inner.module.d.comb += inner.has_stretch.eq(facts.step.has_run & collected)


def _forgets_fill_of_earlier_chains(collector: FillCollector, inner: Inside) -> None:
    facts = inner.view("facts", collector.facts_layout)
    with inner.module.If(inner.step_valid & facts.step.first_of_chain):
        inner.module.d.sync += inner.had_fill.eq(0)


def _overtakes_the_end(collector: FillCollector, inner: Inside) -> None:
    inner.module.d.comb += inner.fire.eq(inner.step_valid & collector.o.ready)


def _fills_the_gaps(_cutter: FillCutter, inner: Inside) -> None:
    inner.module.d.comb += inner.in_rows.eq(~0)


def _loses_a_clock_between_stretches(cutter: FillCutter, inner: Inside) -> None:
    inner.module.d.comb += cutter.i.ready.eq(~inner.busy)


PROOFS = [
    *(
        Proof(
            f"fill collector, lines of {line_bytes} bytes: fill once, one end",
            partial(CollectorSpec, line_bytes),
            depth=1,
            cover=8,
            bugs=(
                Bug(
                    "a beat with each run that begins in it",
                    FillCollector,
                    _emits_a_beat_with_each_run,
                    depth=4,
                ),
                Bug(
                    "a request that forgets the fill of its first chain",
                    FillCollector,
                    _forgets_fill_of_earlier_chains,
                    depth=5,
                ),
                Bug(
                    "a step that is taken in front of the last end",
                    FillCollector,
                    _overtakes_the_end,
                    depth=4,
                ),
            )[: 3 if line_bytes == 64 else 2],
            unbounded=True,
        )
        for line_bytes in (32, 64)
    ),
    *(
        Proof(
            f"fill cutter, {name}: beats in order, no gap between rows filled",
            partial(CutterSpec, 64, **changes),
            depth=1,
            cover=8,
            bugs=(
                Bug("gaps that are filled", FillCutter, _fills_the_gaps, depth=4),
                Bug(
                    "a clock lost between stretches",
                    FillCutter,
                    _loses_a_clock_between_stretches,
                    depth=4,
                ),
            ),
            unbounded=True,
        )
        for name, changes in (
            ("rows of 128 bytes", {}),
            ("rows of 96 bytes", {"swizzle_96b": True}),
        )
    ),
]
