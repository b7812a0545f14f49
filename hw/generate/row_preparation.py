"""Row preparation: finds which rows of a walk may share a line, for the run walker."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.generate.short_row import lookup
from hw.layouts.jobs import SHORT_ROW_BITS, prepared_walk_layout, slot_walk_layout
from hw.params import DIMS, TmaParams


class RowPreparation(wiring.Component):
    """Finds the short rows of a walk, and how many of them fit in a line from each lane on.

    Rows are the steps of the innermost loop that has more than one step. They may share a line if
    each of them is a run, and if they are short and close to each other in both memories.

    Latency: two clocks: the loop, and the tables. Throughput: a walk a clock. Back-pressure: both
    stages wait while the second one is not taken. Errors: none.

    Parameters
    ----------
    params : TmaParams
        With ``gathers_rows``.

    Members
    -------
    i : In(stream) of ``slot_walk_layout``
    o : Out(stream) of ``prepared_walk_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self._found = data.StructLayout(
            {"loop": DIMS - 1, "row_step": SHORT_ROW_BITS, "smem_step": SHORT_ROW_BITS}
        )
        super().__init__(
            {
                "i": In(stream.Signature(slot_walk_layout(params))),
                "o": Out(stream.Signature(prepared_walk_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        first_valid, second_valid = Signal(), Signal()
        first = Signal(slot_walk_layout(p), reset_less=True)
        second = Signal(prepared_walk_layout(p), reset_less=True)
        found = Signal(self._found, reset_less=True)
        advance = Signal()
        m.d.comb += [
            advance.eq(~second_valid | self.o.ready),
            self.i.ready.eq(advance),
            self.o.valid.eq(second_valid),
            self.o.payload.eq(second),
        ]
        loop = self._find_loop(m, self.i.p.walk)
        with m.If(advance):
            m.d.sync += [
                first_valid.eq(self.i.valid),
                second_valid.eq(first_valid),
                first.eq(self.i.payload),
                found.eq(loop),
                *(second[name].eq(first[name]) for name in first.shape().members),
            ]
            self._look_up(m, first.walk, found, second.rows)
        return m

    def _find_loop(self, m: Module, walk) -> Signal:
        """Return the loop whose steps are the rows, and the distances of its steps."""
        found = Signal(self._found, name="found_d")
        is_innermost = walk.run == walk.row_pieces
        for level, loop in enumerate(walk.loops):
            steps = loop.global_step, loop.smem_step
            has_small_steps = Cat(step >> SHORT_ROW_BITS == 0 for step in steps).all()
            with m.If(is_innermost & (loop.last != 0) & has_small_steps):
                m.d.comb += [
                    found.loop[level].eq(1),
                    found.row_step.eq(steps[0]),
                    found.smem_step.eq(steps[1]),
                ]
            is_innermost = is_innermost & (loop.last == 0)
        return found

    def _look_up(self, m: Module, walk, found, rows) -> None:
        """Look up what lies between the rows, and how many of them fit behind each lane."""
        p = self.params
        lanes = p.lanes

        def rows_behind(lane: int, step: Value) -> Value:
            """Return how many rows fit behind one that begins at ``lane``, up to the last lane."""

            def count(row: int, step: int) -> int:
                return max(lanes - lane - row, 0) // step if step else 0

            return lookup(walk.row_pieces, step, count, p.lane_bits)

        def pieces_between(row: int, step: int) -> int:
            return sum(1 << piece for piece in range(lanes) if step and piece % step >= row)

        # The pieces between two rows may be a gap, which is not written, or fill.
        between = Signal(lanes)
        has_fill = Signal()
        m.d.comb += [
            between.eq(lookup(walk.row_pieces, found.smem_step, pieces_between, lanes)),
            has_fill.eq((between & walk.row_mask).any()),
        ]
        in_line = [rows_behind(lane, found.row_step) for lane in range(lanes)]
        in_lanes = rows_behind(0, found.smem_step)
        m.d.sync += [
            *(rows[name].eq(found[name]) for name in self._found.members),
            rows.fill.eq(Mux(has_fill, between, Const(0, lanes))),
            *(rows.rows_in_line[lane].eq(in_line[lane]) for lane in range(lanes)),
            *(
                rows.rows_in_beat[lane].eq(
                    Mux(has_fill, rows_behind(lane, found.smem_step), in_lanes)
                )
                for lane in range(lanes)
            ),
        ]
