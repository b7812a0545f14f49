"""Limits of the walks of a column: the pixels of a walk, and what follows behind it."""

from amaranth.hdl import Cat, Const, Mux, Value

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


def rest_is_outside(params: TmaParams, column, counts, image, limits, left: Value) -> Value:
    """Return whether the pixels behind a walk are at most one row, and all outside the tensor
    because of their position in H, D or N; 0 if the column is ``grouped``.

    ``column``, ``counts``, ``limits``: see ``limits_of``; ``image``: counts of N at the walk's
    first pixel; ``left``: pixels of the column from there on.
    """

    def is_outside(counts, steps: int) -> Value:
        """Return whether a position is outside the tensor, ``steps`` pixels behind ``counts``."""
        return (counts.before > steps) | (counts.to_limit <= steps)

    wheels = [*(counts[number] for number in range(1, WHEELS)), image]
    outside = []
    steps = Const(1, 1)  # the wheels below wrap: this one takes a step
    for number, wheel in enumerate(wheels):
        behind_step = is_outside(wheel, 1)
        wraps = limits.wraps[number] if number < len(wheels) - 1 else Const(0, 1)
        if number < len(wheels) - 1:
            behind_step = Mux(wraps, is_outside(column.restart[number + 1], 0), behind_step)
        outside.append(Mux(steps, behind_step, is_outside(wheel, 0)))
        steps = steps & wraps
    is_one_row = ~limits.stays & (left - column.restart[0].to_wrap <= counts[0].to_wrap)
    is_grouped = column.grouped if params.im2col_w else Const(0, 1)
    return is_one_row & Cat(outside).any() & ~is_grouped
