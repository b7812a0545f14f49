"""Multistage GEMM without specialization: the warps that multiply also issue the loads."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from sim_tb.kernels.gemm import CONSUMERS, F32, ROWS, TILE_N, GemmBase, half
from sim_tb.sm.kernel import kernel
from sim_tb.sm.sm import Role, Warp


@kernel("gemm_multistage")
@dataclass
class GemmMultistage(GemmBase):
    """C = A @ B.T in bf16: no producer; two warpgroups multiply, the first of them loads, too."""

    async def prologue(self, warp: Warp) -> None:
        """Barriers."""
        for full in self.ring.full:
            await warp.mbarrier_init(full, 1)

    def warps(self) -> Mapping[str, Role]:
        """Two warpgroups."""
        return {f"warpgroup {i}": partial(self.warpgroup, i) for i in range(CONSUMERS)}

    async def warpgroup(self, number: int, warp: Warp) -> None:
        """Multiply half of the rows; the first one loads what they need, at first all stages."""
        ring, loads, fill = self.ring.steps(), self.steps(), self.ring.steps()

        async def load() -> None:
            (s, _), step = next(fill), next(loads, None)
            if number == 0 and step is not None:
                (m, n, k), full = step, self.ring.full[s]
                await warp.mbarrier_arrive_expect_tx(full, self.stage_bytes)
                await warp.cp_async_bulk_tensor(self.tile_a[s], self.map_a, (k, m), full)
                await warp.cp_async_bulk_tensor(self.tile_b[s], self.map_b, (k, n), full)

        async def release(warp: Warp, _: int) -> None:
            await warp.bar_sync(1, CONSUMERS)  # the other one has read the stage, too
            await load()

        for _ in self.ring.full:
            await load()
        for m, n, steps in self.tiles():
            total = np.zeros((ROWS, TILE_N), F32)
            await self.mainloop(warp, ring, steps, half(number), total, release)
            await self.epilogue(warp, self.map_c, number, total, m + number * ROWS, n)
        await warp.wait_group(0)
