"""Ping-pong GEMM: two consumers with a tile of C each; one multiplies while the other stores."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from sim_tb.kernels.gemm import CONSUMERS, F32, ROWS, TILE_M, TILE_N, GemmBase
from sim_tb.sm.kernel import init_ring, kernel, specialized
from sim_tb.sm.sm import Role, Warp
from sim_tb.sm.smem import SmemLayout


@kernel("gemm_pingpong")
@dataclass
class GemmPingPong(GemmBase):
    """C = A @ B.T in bf16: consumers take tiles of C in turns, and the tensor cores too."""

    def smem(self, smem: SmemLayout) -> None:
        """And the order in which the consumers multiply."""
        super().smem(smem)
        self.turn = smem.mbarriers("turn", CONSUMERS)

    async def prologue(self, warp: Warp) -> None:
        """Barriers; the first consumer begins."""
        await init_ring(warp, self.ring, 1)
        for turn in self.turn:
            await warp.mbarrier_init(turn, 1)
        await warp.mbarrier_arrive(self.turn[0])

    def warps(self) -> Mapping[str, Role]:
        """One producer, two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, warp: Warp) -> None:
        """Keep the stages filled."""
        await warp.setmaxnreg(40)
        for (s, parity), (m, n, k) in zip(self.ring.steps(), self.steps(), strict=False):
            full = self.ring.full[s]
            await warp.mbarrier_try_wait_parity(self.ring.empty[s], parity ^ 1)
            await warp.mbarrier_arrive_expect_tx(full, self.stage_bytes)
            await warp.cp_async_bulk_tensor(self.tile_a[s], self.map_a, (k, m), full)
            await warp.cp_async_bulk_tensor(self.tile_b[s], self.map_b, (k, n), full)

    async def consumer(self, number: int, warp: Warp) -> None:
        """Every other tile of C: multiply when it is its turn, then store while the other does."""
        await warp.setmaxnreg(232)
        ring, other = self.ring.steps(), self.turn[1 - number]
        for tile, (m, n, steps) in enumerate(self.tiles()):
            if tile % CONSUMERS != number:
                next(islice(ring, len(steps), len(steps)), None)
                continue
            total = np.zeros((TILE_M, TILE_N), F32)
            await warp.mbarrier_try_wait_parity(self.turn[number], tile // CONSUMERS % 2)
            await self.mainloop(warp, ring, steps, slice(0, TILE_M), total, self.release)
            await warp.mbarrier_arrive(other)
            for half in range(0, TILE_M, ROWS):
                await self.epilogue(
                    warp, self.map_c, number, total[half : half + ROWS], m + half, n
                )
        await warp.wait_group(0)

    async def release(self, warp: Warp, s: int) -> None:
        """The stage may be overwritten."""
        await warp.mbarrier_arrive(self.ring.empty[s])
