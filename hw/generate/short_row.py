"""Short rows: tables that say how several of them share a line of global memory."""

from collections.abc import Callable
from functools import cache

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from hw.layouts.jobs import SHORT_ROW_BITS
from hw.params import DIMS, TmaParams


@cache
def rows_layout(params: TmaParams) -> data.StructLayout:
    """Short rows of a walk that may share a line.

    Members
    -------
    loop : the loop whose steps are the rows, one-hot; 0: no rows of the walk can share a line
    row_step : pieces of global memory from one row to the next
    smem_step : pieces of shared memory from one row to the next
    fill : pieces between rows that are fill; bit i stands for piece i behind a row's first piece
    rows_in_line : for each lane, how many more rows fit in the line behind a row that begins there
    rows_in_beat : the same in shared memory. If there is fill between the rows, the rows must fit
        in the beat; otherwise they must fit in as many pieces as a beat has.
    """
    row_counts = data.ArrayLayout(params.lane_bits, params.lanes)
    return data.StructLayout(
        {
            "loop": DIMS - 1,
            "row_step": SHORT_ROW_BITS,
            "smem_step": SHORT_ROW_BITS,
            "fill": params.lanes,
            "rows_in_line": row_counts,
            "rows_in_beat": row_counts,
        }
    )


def lookup(pieces, number, function: Callable[[int, int], int], width: int) -> Value:
    """Return ``function(pieces, number)`` from a table with one entry for each pair.

    Parameters
    ----------
    pieces : Value
        Pieces of a short row; where it is 0, the result is 0.
    number : Value
        Second argument of ``function``.
    function : Callable[[int, int], int]
        Called for all values of ``pieces`` but 0, and all values of ``number``.
    width : int
        Bits of the result.
    """
    table = [
        Const(function(i, n) if i else 0, width)
        for i in range(1 << len(pieces))
        for n in range(1 << len(number))
    ]
    return Array(table)[Cat(number, pieces)]


def find_rows(m: Module, params: TmaParams, walk, rows) -> list:
    """Return the assignments to ``rows``, of ``rows_layout``, for a walk of ``walk_layout``."""
    lanes = params.lanes

    # The rows are the steps of the innermost loop that has more than one step.
    loop_is_gathered = Signal(len(walk.loops))
    row_step = Signal(SHORT_ROW_BITS)
    smem_step = Signal(SHORT_ROW_BITS)
    is_innermost = Const(1, 1)
    for level, loop in enumerate(walk.loops):
        steps = loop.global_step, loop.smem_step
        has_small_steps = Cat(step >> SHORT_ROW_BITS == 0 for step in steps).all()
        with m.If(is_innermost & (loop.last != 0) & has_small_steps):
            m.d.comb += [
                loop_is_gathered[level].eq(1),
                row_step.eq(steps[0]),
                smem_step.eq(steps[1]),
            ]
        is_innermost = is_innermost & (loop.last == 0)

    def rows_behind(lane: int, step) -> Value:
        """Return how many rows fit behind one that begins at ``lane``, up to the last lane."""

        def count(row: int, step: int) -> int:
            return max(lanes - lane - row, 0) // step if step else 0

        return lookup(walk.row_pieces, step, count, params.lane_bits)

    def pieces_between(row: int, step: int) -> int:
        return sum(1 << piece for piece in range(lanes) if step and piece % step >= row)

    # The pieces between two rows may be a gap, which is not written, or fill.
    between = Signal(lanes)
    has_fill = Signal()
    m.d.comb += [
        between.eq(lookup(walk.row_pieces, smem_step, pieces_between, lanes)),
        has_fill.eq((between & walk.row_mask).any()),
    ]
    rows_in_lanes = rows_behind(0, smem_step)
    return [
        rows.loop.eq(loop_is_gathered),
        rows.row_step.eq(row_step),
        rows.smem_step.eq(smem_step),
        rows.fill.eq(Mux(has_fill, between, 0)),
        *(rows.rows_in_line[lane].eq(rows_behind(lane, row_step)) for lane in range(lanes)),
        *(
            rows.rows_in_beat[lane].eq(Mux(has_fill, rows_behind(lane, smem_step), rows_in_lanes))
            for lane in range(lanes)
        ),
    ]
