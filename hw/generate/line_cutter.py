"""Line cutter: a run, cut at the lines of global memory."""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.generate.short_row import of_row
from hw.layouts.jobs import SHORT_ROW_BITS, remote_field
from hw.layouts.lines import line_request_layout, run_layout, store_line_layout
from hw.params import TmaParams


class LineCutter(wiring.Component):
    """Cuts runs into lines of global memory, one a clock and no clock lost between runs.

    Rows to ``gather`` are one line: its use is told from where they are in shared memory, and of
    each place which piece of the line moves there.

    Latency one clock. ``i.ready`` follows ``o.ready`` when a run's last line is offered.

    Parameters
    ----------
    params : TmaParams
    store : bool
        For stores; else for loads and prefetches.

    Members
    -------
    i : In(stream) of ``run_layout``
    o : Out(stream) of ``line_request_layout``, for stores of ``store_line_layout``
    """

    def __init__(self, params: TmaParams, *, store: bool = False):
        self.params = params
        self.store = store
        line = store_line_layout(params) if store else line_request_layout(params)
        super().__init__(
            {"i": In(stream.Signature(run_layout(params, store))), "o": Out(stream.Signature(line))}
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        busy = Signal()
        run = Signal(run_layout(p, self.store), reset_less=True)

        first = Signal(p.lane_bits)
        room = Signal(p.lane_bits + 1)
        last = Signal(reset_less=True)
        end = Signal(p.lane_bits + 2)  # of a run that ends in this line
        left = Signal.like(run.pieces)
        line = self.o.p
        use = line if self.store else line.use
        m.d.comb += [
            first.eq(run.start[: p.lane_bits]),
            room.eq(p.lanes - first),
            left.eq(run.pieces - room),
            end.eq(first + run.pieces[: p.lane_bits + 1]),
            self.i.ready.eq(~busy | (self.o.ready & last)),
            self.o.valid.eq(busy),
            line.attributes.eq(run.attributes),
            line.line.eq(run.start[p.lane_bits :]),
            use.slot.eq(run.slot),
            use.style.eq(run.style),
            use.origin.eq(run.smem - first),
            use.valid.eq(Cat((first <= lane) & (~last | (lane < end)) for lane in range(p.lanes))),
        ]
        if self.store:
            m.d.comb += [line.last.eq(last & run.last), line.write_mode.eq(run.write_mode)]
        else:
            m.d.comb += [
                line.prefetch.eq(run.prefetch),
                use.tail_bytes.eq(run.tail_bytes),
                *(use[name].eq(run[name]) for name in remote_field(p)),
            ]
            self._tails(m, run, use, last, Cat(lane + 1 == end for lane in range(p.lanes)))
        if not self.store and p.gathers_rows:
            self._gather(m, run, use, first)

        with m.If(self.i.ready):
            m.d.sync += [
                busy.eq(self.i.valid),
                run.eq(self.i.p),
                last.eq(self.i.p.pieces <= p.lanes - self.i.p.start[: p.lane_bits]),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += [
                run.start.eq(run.start + room),
                run.smem.eq(run.smem + room),
                run.pieces.eq(left),
                last.eq(left <= p.lanes),
            ]
        return m

    def _tails(self, m: Module, run, use, last, run_end) -> None:
        """Find the pieces that end rows: the run's last one, or each row's of several."""
        lanes = self.params.lanes
        phase = Signal(SHORT_ROW_BITS, reset_less=True)  # the number in its row of the line's first
        ends = Signal(lanes, reset_less=True)  # rows

        def row_ends(of: int, number: int) -> int:
            return sum(1 << i for i in range(lanes) if (number + i) % of == of - 1)

        with m.If(run.row_pieces != 0):
            m.d.comb += use.tail.eq(ends & use.valid)
        with m.Elif(last):
            m.d.comb += use.tail.eq(run_end)

        def begin(pieces, number, function: Callable[[int, int], int]) -> list:
            """A line whose first piece has a number in its row that follows from ``number``."""
            return [
                phase.eq(of_row(pieces, number, function, SHORT_ROW_BITS)),
                ends.eq(of_row(pieces, number, lambda of, n: row_ends(of, function(of, n)), lanes)),
            ]

        with m.If(self.i.ready):
            first = self.i.p.start[: self.params.lane_bits]
            m.d.sync += begin(self.i.p.row_pieces, first, lambda of, n: -n % of)
        with m.Elif(self.o.ready):
            m.d.sync += begin(run.row_pieces, phase, lambda of, n: (n + lanes) % of)

    def _gather(self, m: Module, run, use, first) -> None:
        """Find the places of rows that share a line, and the pieces that move there."""
        gather, row = run.gather, run.row_pieces
        m.d.comb += [move.eq(place) for place, move in enumerate(use.source)]
        with m.If(gather.extra_rows != 0):
            m.d.comb += use.origin.eq(run.smem)
            with m.Switch(gather.smem_step):
                for pitch in range(1, 1 << SHORT_ROW_BITS):
                    with m.Case(pitch):
                        for place, move in enumerate(use.source):
                            number, piece = divmod(place, pitch)
                            is_row = number <= gather.extra_rows
                            m.d.comb += [
                                use.valid[place].eq(is_row & (piece < row)),
                                use.tail[place].eq(is_row & (piece + 1 == row)),
                                move.eq(first + number * gather.row_step + piece),
                            ]
