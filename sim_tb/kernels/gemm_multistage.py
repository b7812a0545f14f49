"""Multistage GEMM without specialization: the warpgroups that multiply also issue the loads."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from sim_tb.kernels.gemm import CONSUMERS, ROWS, TILE_N, GemmBase, consumer_rows
from sim_tb.sm.kernel import kernel
from sim_tb.sm.warps import Role, Warpgroup


@kernel("gemm_multistage")
@dataclass
class GemmMultistage(GemmBase):
    """C = A @ B.T in bf16 without a producer: two warpgroups multiply, the first one also loads."""

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers *full*. ``bar.sync`` replaces the barriers *empty*."""
        for full in self.ring.full:
            await wg.mbarrier_init(full, 1)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return two warpgroups."""
        return {f"warpgroup {i}": partial(self.warpgroup, i) for i in range(CONSUMERS)}

    async def warpgroup(self, number: int, wg: Warpgroup) -> None:
        """Multiply half of the rows. The first warpgroup loads, at the start into all stages."""
        ring_steps, k_loads, load_steps = self.ring.steps(), self.steps(), self.ring.steps()

        async def load_next() -> None:
            (s, _), corner = next(load_steps), next(k_loads, None)
            if number == 0 and corner is not None:
                await self.load_stage(wg, s, self.map_a, self.map_b, corner)

        async def release(wg: Warpgroup, _: int) -> None:
            await wg.bar_sync(1, CONSUMERS * wg.threads)  # then both have read the stage
            await load_next()

        for _ in self.ring.full:
            await load_next()
        rows = consumer_rows(number)
        for m, n, k_steps in self.tiles():
            total = wg.accumulator(ROWS, TILE_N)
            await self.mainloop(wg, ring_steps, k_steps, rows, total, release)
            await self.epilogue(wg, self.map_c, number, total.values, (m + rows.start, n))
        await wg.wait_group(0)
