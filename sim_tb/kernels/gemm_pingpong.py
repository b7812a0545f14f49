"""Ping-pong GEMM: two consumers with a tile of C each; one multiplies while the other stores."""

from collections.abc import Mapping
from dataclasses import dataclass

from sim_tb.kernels.gemm import CONSUMERS, TILE_M, TILE_N, GemmBase, consumer_rows
from sim_tb.sm.kernel import kernel, specialized
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import Role, Warpgroup


@kernel("gemm_pingpong")
@dataclass
class GemmPingPong(GemmBase):
    """C = A @ B.T in bf16: consumers take turns with the tiles of C and with the tensor cores."""

    def smem(self, smem: SmemLayout) -> None:
        """Allocate the memory of a GEMM, and a barrier for each consumer's turn to multiply."""
        super().smem(smem)
        self.turn = smem.mbarriers("turn", CONSUMERS)

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers. The first turn belongs to the first consumer."""
        await self.pipeline.init(wg, 1)
        for turn in self.turn:
            await wg.mbarrier_init(turn, 1)
        await wg.fence_mbarrier_init()
        await wg.mbarrier_arrive(self.turn[0])

    def roles(self) -> Mapping[str, Role]:
        """Return one producer and two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, wg: Warpgroup) -> None:
        """Keep the stages filled."""
        await wg.setmaxnreg(40)
        state = self.pipeline.producer_state()
        for corner in self.steps():
            await self.pipeline.producer_acquire(wg, state)
            await self.load_stage(wg, state, self.map_a, self.map_b, corner)

    async def consumer(self, number: int, wg: Warpgroup) -> None:
        """Compute every other tile of C: multiply in its own turn, store in the other's turn.

        The other consumer gets its turn when the last product has been issued, so that its first
        product follows at once.
        """
        await wg.setmaxnreg(232)
        state, other_turn = self.pipeline.consumer_state(), self.turn[1 - number]

        async def cue(wg: Warpgroup) -> None:
            await wg.mbarrier_arrive(other_turn)

        for tile, (m, n, k_steps) in enumerate(self.tiles()):
            if tile % CONSUMERS != number:
                state.advance(len(k_steps))  # the stages of the other consumer
                continue
            total = wg.accumulator(TILE_M, TILE_N)
            await wg.mbarrier_try_wait_parity(self.turn[number], tile // CONSUMERS % 2)
            whole = slice(0, TILE_M)
            await self.mainloop(wg, state, k_steps, whole, total, cue=cue)
            for rows in map(consumer_rows, range(CONSUMERS)):
                corner = m + rows.start, n
                await self.epilogue(wg, self.map_c, number, total.values[rows], corner)
        await wg.wait_group(0)
