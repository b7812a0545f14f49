"""Fill: what lies between the runs of a box in shared memory.

FillCollector  collects it beat by beat, and gives what is complete as stretches of beats
FillCutter     gives the beats of a stretch
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.jobs import remote_field
from hw.layouts.lines import fill_beat_layout, fill_fields, fill_step_layout, fill_stretch_layout
from hw.lib.remainder import modulo_3
from hw.params import TmaParams


class FillCollector(wiring.Component):
    """Collects the fill in front of each run, so that a beat is given once.

    What lies in the beat in which a run begins, also between its rows, stays here as long as
    further runs begin there. What lies behind the last run of a chain is given a clock after, while
    the next chain begins.

    A step a clock, but two where a step has something to give in the clock in which the end of the
    chain before is given: such a chain has two beats. No latency to ``o``. ``i.ready`` follows
    ``o.ready`` and depends on ``i.p``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``fill_step_layout``
    o : Out(stream) of ``fill_stretch_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(fill_step_layout(params))),
                "o": Out(stream.Signature(fill_stretch_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        step, out = self.i.p, self.o.p
        # Fill goes on at ``since``; ``mask`` is what there is of that beat so far.
        place = data.StructLayout({"since": p.smem_piece_bits, "mask": p.lanes})
        now = Signal(place)
        start = Signal(place)
        after = Signal(place)
        ending = Signal()
        end = Signal(
            data.StructLayout(
                {"place": place, "to": p.smem_piece_bits, "last": 1, **fill_fields(p)}
            ),
            reset_less=True,
        )

        begin = Signal(place)  # of a chain
        between = Signal(p.lanes)  # rows of the run, in the beat in which it begins
        run_end = Signal(p.smem_piece_bits)
        leaves = Signal()  # the run, the beat in which it begins
        m.d.comb += [
            begin.since.eq(step.chain_begin),
            start.eq(Mux(step.first_of_chain, begin, now)),
            run_end.eq(step.start + step.extent),
            leaves.eq((step.start[: p.lane_bits] + step.extent)[p.lane_bits :].any()),
        ]
        if p.gathers_rows:
            m.d.comb += between.eq(step.inner_fill << step.start[: p.lane_bits])
        collected, gives = self._collect(m, "step", start, step, between, leaves)
        _, begins_with = self._collect(m, "begin", begin, step, between, leaves)
        m.d.comb += [
            after.since.eq(Mux(step.has_run, run_end, start.since)),
            after.mask.eq(Mux(step.has_run, Mux(leaves, 0, collected), start.mask)),
        ]

        taken = Signal()
        m.d.comb += [
            # Behind the end of a chain comes the beginning of another.
            self.i.ready.eq(self.o.ready & ~(ending & begins_with)),
            taken.eq(self.i.valid & self.i.ready),
            self.o.valid.eq(ending | (self.i.valid & gives)),
            out.last.eq(ending & end.last),
            *(out[name].eq(Mux(ending, end[name], step[name])) for name in fill_fields(p)),
        ]
        given_from = Signal(place)
        to = Signal(p.smem_piece_bits)
        m.d.comb += [
            given_from.eq(Mux(ending, end.place, start)),
            to.eq(Mux(ending, end.to, step.start)),
        ]
        self._give(m, given_from, to, ending | leaves, Mux(ending, 0, between))

        # Whoever counts fill must see its end: where a request has had some, or nothing at all.
        any_fill = Signal()
        remains = Signal()
        m.d.comb += remains.eq((after.since != step.chain_end) | after.mask.any())
        with m.If(self.o.ready):
            m.d.sync += ending.eq(0)
        with m.If(taken):
            m.d.sync += [
                now.eq(after),
                end.place.eq(after),
                end.to.eq(step.chain_end),
                end.last.eq(step.last_of_request),
                *(end[name].eq(step[name]) for name in fill_fields(p)),
                any_fill.eq(
                    ~step.last_of_request & (any_fill | gives | (step.last_of_chain & remains))
                ),
            ]
            with m.If(step.last_of_chain):
                m.d.sync += ending.eq(
                    remains | (step.last_of_request & (any_fill | gives | ~step.has_run))
                )
        return m

    def _collect(self, m: Module, name: str, start, step, between, leaves) -> tuple:
        """Return what fill there is in front of the step's run and ``between`` its rows, in its
        beat, if fill goes on at ``start``; and whether some is complete.
        """
        p = self.params
        crosses = Signal(name=f"{name}_crosses")  # into the beat in which the run begins
        collected = Signal(p.lanes, name=f"{name}_collected")
        gives = Signal(name=f"{name}_gives")
        m.d.comb += [
            crosses.eq(self._beat(start.since) != self._beat(step.start)),
            collected.eq(
                (self._below(step.start) | between)
                & (self._open(start) | crosses.replicate(p.lanes))
            ),
            gives.eq(step.has_run & (crosses | (leaves & collected.any()))),
        ]
        return collected, gives

    def _give(self, m: Module, start, to, complete, between) -> None:
        """Give the beats from ``start`` up to ``to``; if ``complete``, the beat of ``to``, too, of
        which pieces ``between`` rows are fill.
        """
        p = self.params
        out = self.o.p
        beats = Signal(p.box_piece_bits - p.lane_bits)
        below = self._below(to) | between
        whole = Signal()  # the last beat
        m.d.comb += [
            beats.eq(self._beat(to) - self._beat(start.since)),
            whole.eq(~(complete & below.any())),
            out.beat.eq(self._beat(start.since)),
            out.mask.eq(self._open(start) & Mux(beats == 0, below, ~0)),
            out.extra_beats.eq(beats - (whole & (beats != 0))),
            out.last_mask.eq(Mux(whole, ~0, below)),
        ]

    def _open(self, place):
        """Return the pieces of its beat that are fill, were there no run any more."""
        return place.mask | ~self._below(place.since)

    def _beat(self, piece):
        return piece[self.params.lane_bits :]

    def _below(self, piece):
        """Return the lanes in front of ``piece`` in its beat."""
        at = piece[: self.params.lane_bits]
        return Cat(lane < at for lane in range(self.params.lanes))


class FillCutter(wiring.Component):
    """Gives the beats of stretches, one a clock and no clock lost between stretches.

    Latency one clock. ``i.ready`` follows ``o.ready`` when a stretch's last beat is offered.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``fill_stretch_layout``
    o : Out(stream) of ``fill_beat_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(fill_stretch_layout(params))),
                "o": Out(stream.Signature(fill_beat_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        busy = Signal()
        left = Signal(fill_stretch_layout(p), reset_less=True)
        last = Signal()
        row_mask = Signal(8)  # of these 128 bytes
        in_rows = Signal(p.lanes)  # of this beat
        piece = Cat(Const(0, p.lane_bits), left.beat)
        if p.row_mask_bits == 8:
            m.d.comb += row_mask.eq(left.row_mask)
        else:
            third = modulo_3(m, piece[3:], "third")
            m.d.comb += row_mask.eq(left.row_mask.word_select(third, 8))
        beat = self.o.p
        m.d.comb += [
            last.eq(left.extra_beats == 0),
            in_rows.eq(row_mask.word_select(piece[p.lane_bits : 3], p.lanes)),
            self.i.ready.eq(~busy | (self.o.ready & last)),
            self.o.valid.eq(busy),
            beat.slot.eq(left.slot),
            beat.style.eq(left.style),
            beat.beat.eq(left.beat),
            beat.valid.eq(left.mask & in_rows),
            beat.last.eq(last & left.last),
            *(beat[name].eq(left[name]) for name in remote_field(p)),
        ]
        with m.If(self.i.ready):
            m.d.sync += [busy.eq(self.i.valid), left.eq(self.i.p)]
        with m.Elif(self.o.ready):
            m.d.sync += [
                left.beat.eq(left.beat + 1),
                left.extra_beats.eq(left.extra_beats - 1),
                left.mask.eq(Mux(left.extra_beats == 1, left.last_mask, ~0)),
            ]
        return m
