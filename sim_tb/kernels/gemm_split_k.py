"""Split-K GEMM: two passes over C multiply a half of K each, and the unit adds them up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from golden import ReductionOp
from sim_tb.kernels.gemm import F32, TILE_K, Gemm, Total
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import kernel
from sim_tb.sm.sm import Warp
from sim_tb.sm.smem import Tile

REDUCED_NAN = np.uint32(0x7FFF_FFFF).view(np.float32)
"""What a reduction in float32 makes of every sum that is not a number."""


@kernel("gemm_split_k")
@dataclass
class GemmSplitK(Gemm):
    """C += A @ B.T in two halves of K, each added to C by a reduction of the unit."""

    def host(self, device: Device) -> None:
        """C begins with zeros."""
        super().host(device)
        self.c.array[...] = 0

    async def move(self, warp: Warp, map_c: int, coords: tuple[int, int], tile: Tile) -> None:
        """A box of results is added to C."""
        await warp.cp_reduce_async_bulk_tensor(map_c, coords, tile, ReductionOp.ADD)

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
