"""Short rows: how they share lines of global memory, by tables."""

from collections.abc import Callable
from functools import cache

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from hw.layouts.jobs import SHORT_ROW_BITS
from hw.params import DIMS, TmaParams


@cache
def rows_layout(params: TmaParams) -> data.StructLayout:
    """The rows of a walk that may share a line.

    Members
    -------
    loop : whose steps they are, a bit for each; none if there are no such rows
    apart, pitch : pieces from one to the next, in global and in shared memory
    fill : which pieces, from the first one's first on, are fill between rows
    in_line, in_beat : for so many more there is room behind a row that begins at that piece of a
        line, or of a beat of shared memory
    """
    room = data.ArrayLayout(params.lane_bits, params.lanes)
    return data.StructLayout(
        {
            "loop": DIMS - 1,
            "row_step": SHORT_ROW_BITS,
            "smem_step": SHORT_ROW_BITS,
            "fill": params.lanes,
            "rows_in_line": room,
            "rows_in_beat": room,
        }
    )


def of_row(pieces, number, function: Callable[[int, int], int], width: int) -> Value:
    """Return ``function(pieces, number)`` of a short row's pieces and a number, from a table; 0 of
    no pieces.
    """
    table = [
        Const(function(i, n) if i else 0, width)
        for i in range(1 << len(pieces))
        for n in range(1 << len(number))
    ]
    return Array(table)[Cat(number, pieces)]


def rows_of(m: Module, params: TmaParams, walk, rows) -> list:
    """Return the assignments to ``rows`` that describe those of a walk."""
    lanes = params.lanes

    # The steps of the innermost loop that has some.
    gathers = Signal(len(walk.loops))
    apart, pitch = Signal(SHORT_ROW_BITS), Signal(SHORT_ROW_BITS)
    innermost = Const(1, 1)
    for level, loop in enumerate(walk.loops):
        steps = loop.global_step, loop.smem_step
        short = Cat(step >> SHORT_ROW_BITS == 0 for step in steps).all()
        with m.If(innermost & (loop.last != 0) & short):
            m.d.comb += [gathers[level].eq(1), apart.eq(steps[0]), pitch.eq(steps[1])]
        innermost = innermost & (loop.last == 0)

    def behind(first: int, distance) -> Value:
        """How many rows find room in as many pieces as a line has, behind one from the ``first``
        of them.
        """

        def room(row: int, distance: int) -> int:
            return max(lanes - first - row, 0) // distance if distance else 0

        return of_row(walk.row_pieces, distance, room, params.lane_bits)

    def behind_rows(row: int, pitch: int) -> int:
        return sum(1 << piece for piece in range(lanes) if pitch and piece % pitch >= row)

    # Where what lies between two of them is fill, and no gap, they share a beat, too.
    between, has_fill = Signal(lanes), Signal()
    m.d.comb += [
        between.eq(of_row(walk.row_pieces, pitch, behind_rows, lanes)),
        has_fill.eq((between & walk.row_mask).any()),
    ]
    anywhere = behind(0, pitch)
    return [
        rows.loop.eq(gathers),
        rows.row_step.eq(apart),
        rows.smem_step.eq(pitch),
        rows.fill.eq(Mux(has_fill, between, 0)),
        *(rows.rows_in_line[at].eq(behind(at, apart)) for at in range(lanes)),
        *(
            rows.rows_in_beat[at].eq(Mux(has_fill, behind(at, pitch), anywhere))
            for at in range(lanes)
        ),
    ]
