"""Smallest kernel: y = x, through a ring of two stages."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from golden import Swizzle
from sim_tb.sm.check import Check, equal
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Kernel, kernel
from sim_tb.sm.options import option
from sim_tb.sm.pipeline import PipelineTmaAsync
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import Role, Warpgroup

F32 = np.dtype(np.float32)


@kernel("copy")
@dataclass
class Copy(Kernel):
    """y = x, tile by tile. The threads only issue loads and stores."""

    rows: int = option(200, "rows of x and y")

    def host(self, device: Device) -> None:
        """Allocate the tensors and encode their maps."""
        x = self.rng("x").standard_normal((self.rows, 32)).astype(F32)
        self.x, self.y = device.tensor("x", x), device.empty("y", x.shape, F32)
        self.map_x = device.tensor_map(self.x, (32, 64), Swizzle.SWIZZLE_128B)
        self.map_y = device.tensor_map(self.y, (32, 64), Swizzle.SWIZZLE_128B)

    def smem(self, smem: SmemLayout) -> None:
        """Allocate two stages."""
        self.tile = smem.tiles("tile", 2, (64, 32), F32, Swizzle.SWIZZLE_128B)
        self.pipeline = PipelineTmaAsync(smem.ring("", 2), self.tile[0].nbytes)

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers of the pipeline."""
        await self.pipeline.init(wg, 1)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return one role that loads and one that stores."""
        return {"producer": self.producer, "consumer": self.consumer}

    async def producer(self, wg: Warpgroup) -> None:
        """Fill each stage when it is empty."""
        pipeline, state = self.pipeline, self.pipeline.producer_state()
        for row in range(0, self.rows, 64):
            await pipeline.producer_acquire(wg, state)
            tile, full = self.tile[state.index], pipeline.barrier(state)
            await wg.cp_async_bulk_tensor(tile, self.map_x, (0, row), full)
            state.advance()

    async def consumer(self, wg: Warpgroup) -> None:
        """Store each stage when it is full, and release it when the store has read it."""
        state = self.pipeline.consumer_state()
        for row in range(0, self.rows, 64):
            await self.pipeline.consumer_wait(wg, state)
            await wg.cp_async_bulk_tensor_store(self.map_y, (0, row), self.tile[state.index])
            await wg.commit_group()
            await wg.wait_group(0, read=True)
            await self.pipeline.consumer_release(wg, state)
            state.advance()
        await wg.wait_group(0)

    def check(self) -> Check:
        """Compare y with x, bit for bit."""
        return equal("y", self.y.array, self.x.array)
