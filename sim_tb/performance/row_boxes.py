"""Boxes of equal rows at an offset in a line: those of the benchmark, and those of the silicon."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from golden import Load, Plan, TensorMap
from golden.enums import LINE
from golden.model import operands_of
from golden.vectors import read_timings
from sim_tb.performance.series import RECORDED, SILICON, load_of, work_of

GLOBAL_BASE = 1 << 20
ROWS = 64
SPARSE_STRIDE = 4 * LINE
"""Bytes from a row to the next in global memory, if the rows are not dense."""

WIDTHS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
"""Bytes per row."""

OFFSETS = range(0, LINE, 16)
"""Bytes from the start of a line to the first row."""

MIN_ROWS = 4
"""Fewest rows of a recorded box that is shown in the plot."""


@dataclass(frozen=True)
class RowBox:
    """A box of rows.

    Parameters
    ----------
    width : int
        Bytes per row.
    offset : int
        Bytes from the start of a line to the first row.
    dense : bool
        If true, each row follows the row before in global memory. If false, all rows have the same
        offset in lines of their own.
    """

    width: int
    offset: int
    dense: bool

    @property
    def load(self) -> Load:
        """A load of the box; its rows are dense in shared memory."""
        stride = self.width if self.dense else SPARSE_STRIDE
        tensor = GLOBAL_BASE + self.offset, (self.width, 4 * ROWS), (stride,)
        return Load(TensorMap.tiled("u8", *tensor, (self.width, ROWS)), (0, 0))


def some_row_boxes() -> list[RowBox]:
    """Return a dense and a sparse box of every width; together they have every offset."""
    dense = [RowBox(width, OFFSETS[i % 8], True) for i, width in enumerate(WIDTHS)]
    return dense + [RowBox(width, OFFSETS[3 * i % 8], False) for i, width in enumerate(WIDTHS)]


def every_row_box() -> list[RowBox]:
    """Return a box of every width and offset, dense and not."""
    return [
        RowBox(width, offset, dense)
        for dense in (True, False)
        for width in WIDTHS
        for offset in OFFSETS
    ]


def recorded() -> Iterator[tuple[RowBox, float]]:
    """Yield the recorded tiled boxes of rows, and the silicon's cycles over their floor.

    A box counts as off the line if any of its rows is; its offset is that of the first such row.
    """
    for name in RECORDED:
        for record in read_timings(SILICON / f"{name}.npz"):
            load = load_of(record)
            plan = Plan(load.tensor_map)
            spread = plan.spread(load.smem_address, operands_of(load))
            starts = spread.gmem[spread.inside[:, 0] > 0, 0]
            is_tiled = not plan.mode.map_mode and not plan.interleaved
            if is_tiled and starts.size >= MIN_ROWS:
                offsets = starts[starts % LINE > 0] % LINE
                dense = bool((np.diff(starts) == plan.row_bytes).all())
                box = RowBox(plan.row_bytes, int(offsets[0]) if offsets.size else 0, dense)
                yield box, float(record["silicon_cycles"]) / work_of(load).floor
