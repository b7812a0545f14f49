"""Fill collector: collects the fill between the runs of a box, as stretches of beats."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.lines import fill_fields, fill_step_layout, fill_stretch_layout
from hw.params import TmaParams


class FillCollector(wiring.Component):
    """Collects the fill of each request so that every beat of it is emitted once.

    Fill is what lies in shared memory between the end of a run and the start of the next one,
    including the beginning and the end of a chain. Fill in the beat in which a run begins is kept
    here as long as further runs begin in that beat. Fill behind the last run of a chain is emitted
    one clock after that run, while the next chain may begin.

    A request that had fill, or whose last step has no run, ends with a stretch marked ``last``: the
    lane network needs it to report the fill of a request. If the fill ends in front of the last
    step, that stretch has no pieces.

    Latency: one clock from a step to the stretch in front of its run. Throughput: one step a clock;
    a step takes two clocks if it has a stretch to emit in the clock in which the end of the
    previous chain is emitted. Back-pressure: ``i.ready`` follows ``o.ready``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``fill_step_layout``
    o : Out(stream) of ``fill_stretch_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(fill_step_layout(params))),
                "o": Out(stream.Signature(fill_stretch_layout(params))),
            }
        )
        # Fill continues at ``fill_from``. ``mask`` is the fill in front of it in the same beat,
        # which is not emitted yet.
        self._place = data.StructLayout({"fill_from": params.smem_piece_bits, "mask": params.lanes})
        # What is known of a step by itself. ``run_ends_early``: its run does not reach the end of
        # the chain. ``crosses_beat``: the run ends behind the beat in which it begins.
        # ``inner_fill``: fill between rows of the run, in the beat of its start.
        # ``chain_from_before``, ``chain_has_stretch``: if the step is the first one of its chain,
        # the chain begins in an earlier beat than the run, and the step emits a stretch.
        self.facts_layout = data.StructLayout(
            {
                "step": fill_step_layout(params),
                "run_end": params.smem_piece_bits,
                "run_ends_early": 1,
                "crosses_beat": 1,
                "inner_fill": params.lanes,
                "chain_from_before": 1,
                "chain_has_stretch": 1,
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        place_q = Signal(self._place)
        start = Signal(self._place)
        place_d = Signal(self._place)
        end_valid = Signal()
        end = Signal(
            data.StructLayout(
                {"place": self._place, "to": p.smem_piece_bits, "last": 1, **fill_fields(p)}
            ),
            reset_less=True,
        )

        fire = Signal()
        step_valid, facts = self._find_facts(m, fire)
        step = facts.step
        from_before = Signal()  # fill begins in an earlier beat than the run
        has_stretch = Signal()  # the step emits a stretch
        fill_remains = Signal()  # between the run and the end of the chain
        collected = self._collected(start, facts, from_before)
        # A long path begins here: the choice between the two places of the start comes last.
        continues_before = Signal()
        continued = self._collected(place_q, facts, continues_before)
        m.d.comb += [
            start.eq(Mux(step.first_of_chain, self._chain_start(step), place_q)),
            continues_before.eq(self._beat(place_q.fill_from) != self._beat(step.start)),
            from_before.eq(Mux(step.first_of_chain, facts.chain_from_before, continues_before)),
            has_stretch.eq(
                step.has_run
                & Mux(
                    step.first_of_chain,
                    facts.chain_has_stretch,
                    continues_before | (facts.crosses_beat & continued.any()),
                )
            ),
            place_d.fill_from.eq(Mux(step.has_run, facts.run_end, start.fill_from)),
            place_d.mask.eq(Mux(step.has_run, Mux(facts.crosses_beat, 0, collected), start.mask)),
            fill_remains.eq(
                Mux(step.has_run, facts.run_ends_early, start.fill_from != step.chain_end)
                | place_d.mask.any()
            ),
            # Behind the end of a chain, the step can only be the first one of another chain.
            fire.eq(step_valid & self.o.ready & ~(end_valid & facts.chain_has_stretch)),
            self.o.valid.eq(end_valid | (step_valid & has_stretch)),
            self.o.p.last.eq(Mux(end_valid, end.last, step.last_of_request & ~fill_remains)),
            *(self.o.p[name].eq(Mux(end_valid, end[name], step[name])) for name in fill_fields(p)),
        ]
        stretch_start = Signal(self._place)
        stretch_to = Signal(p.smem_piece_bits)
        m.d.comb += [
            stretch_start.eq(Mux(end_valid, end.place, start)),
            stretch_to.eq(Mux(end_valid, end.to, step.start)),
        ]
        includes_end = end_valid | facts.crosses_beat
        inner_fill = Mux(end_valid, 0, facts.inner_fill)
        self._emit(m, stretch_start, stretch_to, includes_end, inner_fill)

        had_fill = Signal()  # the request has had a stretch
        with m.If(self.o.ready):
            m.d.sync += end_valid.eq(0)
        with m.If(fire):
            m.d.sync += [
                place_q.eq(place_d),
                end.place.eq(place_d),
                end.to.eq(step.chain_end),
                end.last.eq(step.last_of_request),
                *(end[name].eq(step[name]) for name in fill_fields(p)),
                had_fill.eq(
                    ~step.last_of_request
                    & (had_fill | has_stretch | (step.last_of_chain & fill_remains))
                ),
            ]
            with m.If(step.last_of_chain):
                m.d.sync += end_valid.eq(
                    fill_remains
                    | (step.last_of_request & ~has_stretch & (had_fill | ~step.has_run))
                )
        return m

    def _find_facts(self, m: Module, fire: Signal) -> tuple[Signal, Signal]:
        """Take a step, and find what does not depend on the steps before it.

        Return whether there is a step, and its facts, from registers that move on with ``fire``.
        """
        p = self.params
        step = self.i.p
        facts = Signal(self.facts_layout, reset_less=True)
        valid = Signal(name="step_valid")
        chain_start = self._chain_start(step)
        facts_d = Signal(self.facts_layout)
        m.d.comb += [
            self.i.ready.eq(~valid | fire),
            facts_d.step.eq(step),
            facts_d.run_end.eq(step.start + step.extent),
            facts_d.run_ends_early.eq(facts_d.run_end != step.chain_end),
            facts_d.crosses_beat.eq((step.start[: p.lane_bits] + step.extent)[p.lane_bits :].any()),
            facts_d.chain_from_before.eq(self._beat(step.chain_begin) != self._beat(step.start)),
            facts_d.chain_has_stretch.eq(
                step.has_run
                & (
                    facts_d.chain_from_before
                    | (
                        facts_d.crosses_beat
                        & self._collected(chain_start, facts_d, facts_d.chain_from_before).any()
                    )
                )
            ),
        ]
        if p.gathers_rows:
            m.d.comb += facts_d.inner_fill.eq(step.inner_fill << step.start[: p.lane_bits])
        with m.If(self.i.ready):
            m.d.sync += [valid.eq(self.i.valid), facts.eq(facts_d)]
        return valid, facts

    def _chain_start(self, step) -> Value:
        """Return the place at which the chain of a step begins."""
        return Cat(step.chain_begin, Const(0, self.params.lanes))

    def _collected(self, start, facts, from_before) -> Value:
        """Return the fill in the beat in which the step's run begins, if fill continues at the
        place ``start``, which is in that beat or, if ``from_before``, in front of it.
        """
        start = data.View(self._place, start)
        return (self._below(facts.step.start) | facts.inner_fill) & (
            self._fill_of_beat(start) | from_before.replicate(self.params.lanes)
        )

    def _emit(self, m: Module, start, to, includes_end, inner_fill) -> None:
        """Offer the beats from the place ``start`` up to the piece address ``to``.

        With ``includes_end`` the stretch includes the beat of ``to``: its pieces below ``to``, and
        ``inner_fill``.
        """
        p = self.params
        out = self.o.p
        beats = Signal(p.box_piece_bits - p.lane_bits)
        below = self._below(to) | inner_fill
        ends_whole = Signal()  # the stretch ends in front of the beat of ``to``
        m.d.comb += [
            beats.eq(self._beat(to) - self._beat(start.fill_from)),
            ends_whole.eq(~(includes_end & below.any())),
            out.beat.eq(self._beat(start.fill_from)),
            out.mask.eq(self._fill_of_beat(start) & Mux(beats == 0, below, ~0)),
            out.extra_beats.eq(beats - (ends_whole & (beats != 0))),
            out.last_mask.eq(Mux(ends_whole, ~0, below)),
        ]

    def _fill_of_beat(self, place) -> Value:
        """Return the pieces of the beat of ``place`` that are fill if no run follows there."""
        return place.mask | ~self._below(place.fill_from)

    def _beat(self, piece) -> Value:
        """Return the beat address of a piece address."""
        return piece[self.params.lane_bits :]

    def _below(self, piece) -> Value:
        """Return the lanes below ``piece`` in its beat."""
        at = piece[: self.params.lane_bits]
        return Cat(lane < at for lane in range(self.params.lanes))
