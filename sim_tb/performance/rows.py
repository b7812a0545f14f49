"""Boxes of rows of some width, somewhere in a line of memory: ours, and what silicon was asked."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from golden import Load, Plan, TensorMap
from golden.enums import LINE
from golden.model import operands_of
from golden.vectors import read
from sim_tb.performance.series import RECORDED, SILICON, load_of

BASE = 1 << 20
ROWS = 64
STRIDE = 4 * LINE
"""From a row to the next, where they are not dense."""

WIDTHS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
OFFSETS = range(0, LINE, 16)
FEWEST_ROWS = 4
"""Of a recorded box that counts as one of rows."""


@dataclass(frozen=True)
class Rows:
    """Rows of ``width`` bytes, the first ``offset`` bytes into a line; one behind the other, or
    each as far into a line of its own.
    """

    width: int
    offset: int
    dense: bool

    @property
    def load(self) -> Load:
        """A box of them, dense in shared memory."""
        stride = self.width if self.dense else STRIDE
        place = BASE + self.offset, (self.width, 4 * ROWS), (stride,)
        return Load(TensorMap.tiled("u8", *place, (self.width, ROWS)), (0, 0))


def every_row() -> list[Rows]:
    """Of every width and offset."""
    return [
        Rows(width, offset, dense)
        for dense in (True, False)
        for width in WIDTHS
        for offset in OFFSETS
    ]


def recorded() -> Iterator[tuple[Rows, float]]:
    """Recorded boxes of tiled rows, and the silicon's cycles over the floor. Rows of which any is
    off the line count as off it, by as much as the first of those is.
    """
    for name in RECORDED:
        table, _ = read(SILICON / f"{name}.npz")
        for row in table:
            load = load_of(row)
            plan = Plan(load.tensor_map)
            spread = plan.spread(load.smem_address, operands_of(load))
            starts = spread.gmem[spread.inside[:, 0] > 0, 0]
            tiled = not plan.mode.map_mode and not plan.interleaved
            if tiled and starts.size >= FEWEST_ROWS:
                off = starts[starts % LINE > 0] % LINE
                dense = bool((np.diff(starts) == plan.row_bytes).all())
                rows = Rows(plan.row_bytes, int(off[0]) if off.size else 0, dense)
                floor = max(int(row["lines"]), int(row["beats"]))
                yield rows, float(row["silicon_cycles"]) / floor
