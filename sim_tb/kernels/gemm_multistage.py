"""Multistage GEMM without specialization: the warpgroups that multiply also issue the loads."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from sim_tb.kernels.gemm import CONSUMERS, ROWS, TILE_N, GemmBase, consumer_rows
from sim_tb.sm.kernel import kernel
from sim_tb.sm.pipeline import PipelineState
from sim_tb.sm.warps import Role, Warpgroup


@kernel("gemm_multistage")
@dataclass
class GemmMultistage(GemmBase):
    """C = A @ B.T in bf16 without a producer: two warpgroups multiply, the first one also loads."""

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers *full*. ``bar.sync`` replaces the barriers *empty*."""
        for full in self.pipeline.ring.full:
            await wg.mbarrier_init(full, 1)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return two warpgroups."""
        return {f"warpgroup {i}": partial(self.warpgroup, i) for i in range(CONSUMERS)}

    async def warpgroup(self, number: int, wg: Warpgroup) -> None:
        """Multiply half of the rows. The first warpgroup loads, at the start into all stages."""
        pipeline, k_loads = self.pipeline, self.steps()
        state, load_state = pipeline.consumer_state(), pipeline.producer_state()

        async def load_next() -> None:
            corner = next(k_loads, None)
            if number == 0 and corner is not None:
                full = pipeline.barrier(load_state)
                await wg.mbarrier_arrive_expect_tx(full, pipeline.tx_bytes)
                await self.load_stage(wg, load_state, self.map_a, self.map_b, corner)

        async def release(wg: Warpgroup, _: PipelineState) -> None:
            await wg.bar_sync(1, CONSUMERS * wg.threads)  # then both have read the stage
            await load_next()

        for _ in range(self.stages):
            await load_next()
        rows = consumer_rows(number)
        for m, n, k_steps in self.tiles():
            total = wg.accumulator(ROWS, TILE_N)
            await self.mainloop(wg, state, k_steps, rows, total, release=release)
            await self.epilogue(wg, self.map_c, number, total.values, (m + rows.start, n))
        await wg.wait_group(0)
