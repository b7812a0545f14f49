"""Limits of the walks of a column: the pixels of a walk, and what follows behind it."""

from dataclasses import dataclass

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


def has_one_step(params: TmaParams, column) -> Value:
    """Return whether a job has one step. ``column``: of ``prepared_column_layout``."""
    if params.im2col_w:
        return column.ends & ~(column.enabled & column.grouped)
    return column.ends


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


@dataclass(frozen=True)
class Wheel:
    """A position in H, D or N, as ``rest_is_outside`` needs it.

    ``outside``, ``outside_behind``: it is outside the tensor; it is so behind its next step.
    ``wraps``: it wraps at that step.
    """

    outside: Value
    outside_behind: Value
    wraps: Value


def is_outside(counts, steps: int) -> Value:
    """Return whether a position is outside the tensor, ``steps`` pixels behind ``counts``."""
    return (counts.before > steps) | (counts.to_limit <= steps)


def wheels_at(counts, image, limits) -> list[Wheel]:
    """Return the wheels H, D and N with the ``counts`` and ``limits`` of a walk's first pixel, and
    the counts ``image`` of N.
    """
    positions = [*(counts[number] for number in range(1, WHEELS)), image]
    wraps = [*limits.wraps, Const(0, 1)]
    return [
        Wheel(is_outside(position, 0), is_outside(position, 1), wrap)
        for position, wrap in zip(positions, wraps, strict=True)
    ]


def rest_is_outside(
    params: TmaParams, column, row: tuple[Value, Value, Value], wheels: list[Wheel]
) -> Value:
    """Return whether the pixels behind a walk are all outside the tensor because of their position
    in H, D or N; 0 if the column is ``grouped``.

    They are at most one row that is outside, or they are behind the last image of the tensor.

    ``row``: the walk ends with its row; if it does, the pixels behind it are at most one row; the
    row is in the last image. ``wheels``: at the walk's first pixel.
    """
    ends_row, is_one_row, in_last_image = row
    outside = []
    steps = Const(1, 1)  # the wheels below wrap: this one takes a step
    for number, wheel in enumerate(wheels):
        behind_step = wheel.outside_behind
        if number < len(wheels) - 1:
            restart = is_outside(column.restart[number + 1], 0)
            behind_step = Mux(wheel.wraps, restart, behind_step)
        outside.append(Mux(steps, behind_step, wheel.outside))
        ends_image, steps = steps, steps & wheel.wraps
    rest = is_one_row & Cat(outside).any() | ends_image & in_last_image
    is_grouped = column.grouped if params.im2col_w else Const(0, 1)
    return ends_row & rest & ~is_grouped
