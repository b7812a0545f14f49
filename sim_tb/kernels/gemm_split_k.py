"""Split-K GEMM: two passes over C multiply half of K each, and the unit adds the results to C."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from golden import ReductionOp
from sim_tb.kernels.common import F32, Values
from sim_tb.kernels.gemm import TILE_K, Gemm
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import kernel

REDUCED_NAN = np.uint32(0x7FFF_FFFF).view(np.float32)
"""NaN that a reduction in float32 writes, whatever the operands were."""


@kernel("gemm_split_k")
@dataclass
class GemmSplitK(Gemm):
    """C += A @ B.T in two halves of K, each added to C by a reduction of the unit."""

    reduction: ClassVar[ReductionOp | None] = ReductionOp.ADD

    def host(self, device: Device) -> None:
        """Allocate the matrices and encode their maps. C starts as zeros."""
        super().host(device)
        self.c.array[...] = 0

    def passes(self) -> list[range]:
        """Return the two halves of K. The second one is left out if it has no steps."""
        k_steps = range(0, self.depth, TILE_K)
        half = -(-len(k_steps) // 2)
        return [part for part in (k_steps[:half], k_steps[half:]) if part]

    def combined(self, totals: Sequence[Values]) -> Values:
        """Return the sum of the passes, in their order."""
        c = np.zeros((self.rows, self.columns), F32)
        with np.errstate(over="ignore", invalid="ignore"):
            for total in totals:
                c += total
        c[np.isnan(c)] = REDUCED_NAN
        return c
