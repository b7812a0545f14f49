"""Limits of the walks of a column: the pixels of a walk, and the wheels that wrap behind it."""

from amaranth.hdl import Cat, Const, Mux

from hw.layouts.columns import WHEELS
from hw.params import TmaParams

GROUP = 32
"""Pixels of a group of ``im2col::w::128``."""

GROUPS = 4
"""Groups of a column of ``im2col::w::128``."""

LEAP_LOG2 = 5
LEAP = 1 << LEAP_LOG2
"""Most pixels of a walk that are not dense; from first to last they span at most 256 positions."""


def limits_of(params: TmaParams, column, counts, limits) -> list:
    """Return the assignments to ``limits`` of a walk outside a halo, but for ``is_outside``.

    ``column``: of ``prepared_column_layout``; ``counts``: of the wheels at the walk's first pixel;
    ``limits``: of ``walk_limits_layout``.
    """
    to_wrap = counts[0].to_wrap
    is_single = column.grouped & ~column.dense if params.im2col_w else Const(0, 1)
    is_far = ~column.dense & (to_wrap > LEAP)
    return [
        limits.most.eq(Mux(is_single, 1, Mux(is_far, LEAP, to_wrap))),
        limits.stays.eq(Mux(is_single, to_wrap != 1, is_far)),
        limits.wraps.eq(Cat(counts[number].to_wrap == 1 for number in range(1, WHEELS))),
    ]
