"""Row preparation: finds which rows of a walk may share a line, for the run walker."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.generate.short_row import lookup
from hw.layouts.isa import Packing
from hw.layouts.jobs import SHORT_ROW_BITS, in_channel, prepared_walk_layout, slot_walk_layout
from hw.params import DIMS, TmaParams


class RowPreparation(wiring.Component):
    """Finds the short rows of a walk, and how many of them fit in a line from each lane on.

    Rows are the steps of the innermost loop that has more than one step. They may share a line if
    each of them is a run, and if they are short and close to each other in both memories. Two rows
    of a store may share a line, as the store path reads each line in two parts. They must not
    overlap in global memory, because they are written in order; those of a type of six bits are
    packed one by one.

    Latency: one clock, behind the choice of the loop and in front of the tables. Throughput: a walk
    a clock. Back-pressure: none. Errors: none.

    Parameters
    ----------
    params : TmaParams
        With ``gathers_rows``.

    Members
    -------
    i : In(stream) of ``slot_walk_layout`` in a channel; always ready
    o : Out(stream) of ``prepared_walk_layout`` in a channel; always taken
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self._found = data.StructLayout(
            {"loop": DIMS - 1, "row_step": SHORT_ROW_BITS, "smem_step": SHORT_ROW_BITS}
        )
        walk, prepared = (
            in_channel(params, layout(params))
            for layout in (slot_walk_layout, prepared_walk_layout)
        )
        super().__init__(
            {
                "i": In(stream.Signature(walk, always_ready=True)),
                "o": Out(stream.Signature(prepared, always_ready=True)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        valid = Signal()
        job = Signal(self.i.payload.shape(), reset_less=True)
        found = Signal(self._found, reset_less=True)
        m.d.sync += [
            valid.eq(self.i.valid),
            job.eq(self.i.payload),
            found.eq(self._find_loop(m, self.i.p.walk)),
        ]
        m.d.comb += [
            self.o.valid.eq(valid),
            *(self.o.p[name].eq(job[name]) for name in job.shape().members),
        ]
        self._look_up(m, job.walk, found, self.o.p.rows)
        return m

    def _find_loop(self, m: Module, walk) -> Signal:
        """Return the loop whose steps are the rows, and the distances of its steps."""
        p = self.params
        found = Signal(self._found, name="found_d")
        store = walk.store if p.stores else Const(0, 1)
        is_innermost = walk.run == walk.row_pieces
        if p.stores and p.sub_byte:
            is_innermost &= ~(store & (walk.style.packing == Packing.BYTES_12))
        for level, loop in enumerate(walk.loops):
            steps = loop.global_step, loop.smem_step
            has_small_steps = Cat(step >> SHORT_ROW_BITS == 0 for step in steps).all()
            is_apart = ~store | (steps[0][:SHORT_ROW_BITS] >= walk.row_pieces)
            with m.If(is_innermost & (loop.last != 0) & has_small_steps & is_apart):
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

        def is_in_beat(lane: int) -> Value:
            """Return whether a row that begins at ``lane`` and the next one are in a beat each."""

            def fits(row: int, step: int) -> int:
                return int(step and all(n % lanes + row <= lanes for n in (lane, lane + step)))

            return lookup(walk.row_pieces, found.smem_step, fits, 1)

        # The pieces between two rows may be a gap, which is not written, or fill.
        between = Signal(lanes)
        has_fill = Signal()
        m.d.comb += [
            between.eq(lookup(walk.row_pieces, found.smem_step, pieces_between, lanes)),
            has_fill.eq((between & walk.row_mask).any()),
        ]
        in_line = [rows_behind(lane, found.row_step) for lane in range(lanes)]
        in_lanes = rows_behind(0, found.smem_step)
        m.d.comb += [
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
        if p.stores:
            with m.If(walk.store):
                m.d.comb += [count.eq(is_in_beat(n)) for n, count in enumerate(rows.rows_in_beat)]
