"""Fill collector: collects the fill between the runs of a box, as stretches of beats."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
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

    Latency: none from a step to the stretch in front of its run. Throughput: one step a clock; a
    step takes two clocks if it has a stretch to emit in the clock in which the end of the previous
    chain is emitted. Back-pressure: ``i.ready`` follows ``o.ready`` and depends on ``i.p``.

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

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        step = self.i.p
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

        chain_start = Signal(self._place)
        inner_fill = Signal(p.lanes)  # fill between rows of the run, in the beat of its start
        run_end = Signal(p.smem_piece_bits)
        crosses_beat = Signal()  # the run ends behind the beat in which it begins
        m.d.comb += [
            chain_start.fill_from.eq(step.chain_begin),
            start.eq(Mux(step.first_of_chain, chain_start, place_q)),
            run_end.eq(step.start + step.extent),
            crosses_beat.eq((step.start[: p.lane_bits] + step.extent)[p.lane_bits :].any()),
        ]
        if p.gathers_rows:
            m.d.comb += inner_fill.eq(step.inner_fill << step.start[: p.lane_bits])
        run_fill = inner_fill, crosses_beat
        collected, has_stretch = self._collect(m, "step", start, step, *run_fill)
        _, chain_has_stretch = self._collect(m, "chain", chain_start, step, *run_fill)
        m.d.comb += [
            place_d.fill_from.eq(Mux(step.has_run, run_end, start.fill_from)),
            place_d.mask.eq(Mux(step.has_run, Mux(crosses_beat, 0, collected), start.mask)),
        ]

        fire = Signal()
        fill_remains = Signal()  # between the run and the end of the chain
        m.d.comb += [
            fill_remains.eq((place_d.fill_from != step.chain_end) | place_d.mask.any()),
            # Behind the end of a chain, the step can only be the first one of another chain.
            self.i.ready.eq(self.o.ready & ~(end_valid & chain_has_stretch)),
            fire.eq(self.i.valid & self.i.ready),
            self.o.valid.eq(end_valid | (self.i.valid & has_stretch)),
            self.o.p.last.eq(Mux(end_valid, end.last, step.last_of_request & ~fill_remains)),
            *(self.o.p[name].eq(Mux(end_valid, end[name], step[name])) for name in fill_fields(p)),
        ]
        stretch_start = Signal(self._place)
        stretch_to = Signal(p.smem_piece_bits)
        m.d.comb += [
            stretch_start.eq(Mux(end_valid, end.place, start)),
            stretch_to.eq(Mux(end_valid, end.to, step.start)),
        ]
        includes_end = end_valid | crosses_beat
        self._emit(m, stretch_start, stretch_to, includes_end, Mux(end_valid, 0, inner_fill))

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

    def _collect(
        self, m: Module, name: str, start, step, inner_fill, crosses_beat
    ) -> tuple[Signal, Signal]:
        """Return the fill in the beat in which the step's run begins, and whether the step emits a
        stretch, if fill continues at the place ``start``.
        """
        p = self.params
        from_before = Signal(name=f"{name}_from_before")  # fill begins in an earlier beat
        collected = Signal(p.lanes, name=f"{name}_collected")
        has_stretch = Signal(name=f"{name}_has_stretch")
        m.d.comb += [
            from_before.eq(self._beat(start.fill_from) != self._beat(step.start)),
            collected.eq(
                (self._below(step.start) | inner_fill)
                & (self._fill_of_beat(start) | from_before.replicate(p.lanes))
            ),
            has_stretch.eq(step.has_run & (from_before | (crosses_beat & collected.any()))),
        ]
        return collected, has_stretch

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
