"""Split-K GEMM: two passes over C multiply a half of K each, and the unit adds them up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from golden import ReductionOp
from sim_tb.kernel import kernel
from sim_tb.kernels.gemm import F32, TILE_K, Gemm, Total

REDUCED_NAN = np.uint32(0x7FFF_FFFF).view(np.float32)
"""What a reduction in float32 makes of every sum that is not a number."""


@kernel("gemm_split_k")
@dataclass
class GemmSplitK(Gemm):
    """C += A @ B.T in two halves of K, each added to C by a reduction of the unit."""

    op: ClassVar[ReductionOp | None] = ReductionOp.ADD

    def passes(self) -> list[range]:
        """The halves; the second is left out if it has no steps."""
        steps = range(0, self.depth, TILE_K)
        half = -(-len(steps) // 2)
        return [part for part in (steps[:half], steps[half:]) if part]

    def combined(self, totals: Sequence[Total]) -> Total:
        """Their sum, one pass after the other."""
        c = np.zeros((self.rows, self.columns), F32)
        with np.errstate(over="ignore", invalid="ignore"):
            for total in totals:
                c += total
        c[np.isnan(c)] = REDUCED_NAN
        return c
