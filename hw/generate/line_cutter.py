"""Line cutter: cuts runs at the lines of global memory."""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.generate.short_row import lookup
from hw.layouts.jobs import SHORT_ROW_BITS, remote_field
from hw.layouts.lines import line_request_layout, run_layout, store_line_layout
from hw.layouts.monitor import marks_field
from hw.params import TmaParams


class LineCutter(wiring.Component):
    """Cuts each run into lines of global memory.

    Rows that are gathered (``gather`` of ``run_layout``) are one line. Of a load, the use of such a
    line is numbered by the pieces of shared memory, and ``source`` says which piece of the line
    moves to each of them. Of a store, it has a second row.

    Latency: two clocks. Throughput: one line a clock, no clock lost between runs. Back-pressure:
    ``i.ready`` follows ``o.ready`` when the last line of a run goes to the output register.

    Parameters
    ----------
    params : TmaParams
    store : bool
        True: for stores. False: for loads and prefetches.

    Members
    -------
    i : In(stream) of ``run_layout``
    o : Out(stream) of ``line_request_layout``; for stores of ``store_line_layout``
    """

    def __init__(self, params: TmaParams, *, store: bool = False) -> None:
        self.params = params
        self.store = store
        line = store_line_layout(params) if store else line_request_layout(params)
        super().__init__(
            {"i": In(stream.Signature(run_layout(params, store))), "o": Out(stream.Signature(line))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        busy = Signal()
        run = Signal(run_layout(p, self.store), reset_less=True)
        # What is not emitted of the run.
        first_lane = Signal(p.lane_bits, reset_less=True)  # in this line
        number = Signal(p.line_address_bits, reset_less=True)  # of this line
        origin = Signal(p.smem_piece_bits, reset_less=True)  # of this line in shared memory
        end_piece = Signal(len(run.pieces) + 1, reset_less=True)  # counted from lane 0
        last_line = Signal(reset_less=True)
        end_lane = Signal(p.lane_bits + 1)  # lane behind the run's last piece, in its last line
        line = Signal(self.o.payload.shape(), name="line")
        use = line if self.store else line.use
        line_valid = Signal()
        line_q = Signal(self.o.payload.shape(), reset_less=True)
        advance = Signal()
        pieces = [
            (first_lane <= lane) & (~last_line | (lane < end_lane)) for lane in range(p.lanes)
        ]
        m.d.comb += [
            end_lane.eq(end_piece),
            advance.eq(~line_valid | self.o.ready),
            self.i.ready.eq(~busy | (advance & last_line)),
            self.o.valid.eq(line_valid),
            self.o.p.eq(line_q),
            line.attributes.eq(run.attributes),
            line.line.eq(number),
            use.slot.eq(run.slot),
            use.style.eq(run.style),
            use.origin.eq(origin),
            use.valid.eq(Cat(pieces)),
        ]
        if self.store:
            m.d.comb += [line.last.eq(last_line & run.last), line.write_mode.eq(run.write_mode)]
        else:
            m.d.comb += [
                line.prefetch.eq(run.prefetch),
                use.tail_bytes.eq(run.tail_bytes),
                *(use[name].eq(run[name]) for name in remote_field(p)),
            ]
            last_piece = Cat(lane + 1 == end_lane for lane in range(p.lanes))
            self._mark_tails(m, run, use, last_line, last_piece, advance)
        if self.params.gathers_rows and self.store:
            m.d.comb += self._gather_stored(run, line, first_lane)
            m.d.comb += use.valid.eq(Cat(pieces) | line.second)
        elif self.params.gathers_rows:
            self._gather_loaded(m, run, use, first_lane)
        if marks_field(p):
            self._mark(m, run.marks, line.marks, last_line, advance)

        with m.If(advance):
            m.d.sync += [line_valid.eq(busy), line_q.eq(line)]
        start_lane = self.i.p.start[: p.lane_bits]
        gathers = Const(0, 1)
        if self.params.gathers_rows and not self.store:  # numbered by shared memory
            gathers = self.i.p.gather.extra_rows != 0
        lines_behind = end_piece[p.lane_bits :]  # and the pieces of a line that is not full
        with m.If(self.i.ready):
            m.d.sync += [
                busy.eq(self.i.valid),
                run.eq(self.i.p),
                first_lane.eq(start_lane),
                number.eq(self.i.p.start[p.lane_bits :]),
                origin.eq(self.i.p.smem - Mux(gathers, 0, start_lane)),
                end_piece.eq(start_lane + self.i.p.pieces),
                last_line.eq(self.i.p.pieces <= p.lanes - start_lane),
            ]
        with m.Elif(advance):
            m.d.sync += [
                first_lane.eq(0),
                number.eq(number + 1),
                origin.eq(origin + p.lanes),
                end_piece.eq(end_piece - p.lanes),
                last_line.eq(
                    (lines_behind == 1) | ((lines_behind == 2) & (end_piece[: p.lane_bits] == 0))
                ),
            ]
        return m

    def _mark(self, m: Module, run_marks, line_marks, last_line, advance) -> None:
        """Mark the first line of the first run of a request, and the last one of its last run."""
        first_line = Signal(reset_less=True)  # of the run
        m.d.comb += [
            line_marks.first.eq(first_line & run_marks.first),
            line_marks.last.eq(last_line & run_marks.last),
        ]
        with m.If(self.i.ready | advance):
            m.d.sync += first_line.eq(self.i.ready)

    def _mark_tails(self, m: Module, run, use, last_line, last_piece, advance) -> None:
        """Mark the pieces that end rows: of short rows each one, otherwise the run's last piece."""
        lanes = self.params.lanes
        phase = Signal(SHORT_ROW_BITS, reset_less=True)  # piece of its row that is at lane 0
        row_ends = Signal(lanes, reset_less=True)  # lanes of pieces that end a row

        def row_ends_of(row: int, phase: int) -> int:
            return sum(1 << lane for lane in range(lanes) if (phase + lane) % row == row - 1)

        with m.If(run.row_pieces != 0):
            m.d.comb += use.tail.eq(row_ends & use.valid)
        with m.Elif(last_line):
            m.d.comb += use.tail.eq(last_piece)

        def set_phase(row, number, phase_of: Callable[[int, int], int]) -> list:
            """Return the assignments for a line with the phase ``phase_of(row, number)``."""
            return [
                phase.eq(lookup(row, number, phase_of, SHORT_ROW_BITS)),
                row_ends.eq(
                    lookup(row, number, lambda r, n: row_ends_of(r, phase_of(r, n)), lanes)
                ),
            ]

        with m.If(self.i.ready):
            first_lane = self.i.p.start[: self.params.lane_bits]
            m.d.sync += set_phase(self.i.p.row_pieces, first_lane, lambda row, n: -n % row)
        with m.Elif(advance):
            m.d.sync += set_phase(run.row_pieces, phase, lambda row, n: (n + lanes) % row)

    def _gather_stored(self, run, line, first_lane) -> list:
        """Return the assignments for the second row of a line."""
        gather = run.gather
        begin = first_lane + gather.row_step
        end = begin + run.pieces[:SHORT_ROW_BITS]
        has_row = gather.extra_rows != 0
        return [
            line.second_origin.eq(line.origin + gather.smem_step - gather.row_step),
            *(
                second.eq(has_row & (lane >= begin) & (lane < end))
                for lane, second in enumerate(line.second)
            ),
        ]

    def _gather_loaded(self, m: Module, run, use, first_lane) -> None:
        """Number the places of gathered rows by shared memory, and set each place's ``source``.

        Their ``origin`` is the first piece of the first row.
        """
        gather, row_pieces = run.gather, run.row_pieces
        m.d.comb += [source.eq(place) for place, source in enumerate(use.source)]
        with m.If(gather.extra_rows != 0):
            with m.Switch(gather.smem_step):
                for smem_step in range(1, 1 << SHORT_ROW_BITS):
                    with m.Case(smem_step):
                        for place, source in enumerate(use.source):
                            row, piece = divmod(place, smem_step)
                            has_row = row <= gather.extra_rows
                            m.d.comb += [
                                use.valid[place].eq(has_row & (piece < row_pieces)),
                                use.tail[place].eq(has_row & (piece + 1 == row_pieces)),
                                source.eq(first_lane + row * gather.row_step + piece),
                            ]
