"""Kernels that the wrong kernels of the catalogue derive from. They are right as they are."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from golden import Swizzle
from sim_tb.sm.check import equal
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.smem import Mbarrier, Tile

ROWS, COLUMNS = 16, 64
SWIZZLE = Swizzle.SWIZZLE_128B
F16 = np.dtype(np.float16)


class Stage(NamedTuple):
    """Tile and barriers of a stage, and the parity with which a consumer waits for ``full``."""

    tile: Tile
    full: Mbarrier
    empty: Mbarrier
    parity: int


@dataclass
class Copy(Kernel):
    """y = x, tile by tile, through a ring of two stages. Threads only issue loads and stores.

    A wrong kernel overrides what it does in another way, unless it is ``mended``.
    """

    name = "copy"
    steps: ClassVar[int] = 5
    stages: ClassVar[int] = 2
    rows: ClassVar[int] = 80

    mended: bool = False

    @property
    def wrong(self):
        return not self.mended

    def host(self, device):
        shape = (self.rows, COLUMNS)
        self.x = device.tensor("x", self.rng("x").standard_normal(shape).astype(F16))
        self.y = device.empty("y", shape, F16)
        self.map_x = device.tensor_map(self.x, (COLUMNS, ROWS), SWIZZLE)
        self.map_y = device.tensor_map(self.y, (COLUMNS, ROWS), SWIZZLE)

    def smem(self, smem):
        self.tiles = smem.tiles("stage", self.stages, (ROWS, COLUMNS), F16, SWIZZLE)
        self.ring = smem.ring("", self.stages)

    def stage(self, step):
        number = step % self.stages
        parity = step // self.stages % 2
        return Stage(self.tiles[number], self.ring.full[number], self.ring.empty[number], parity)

    async def prologue(self, wg):
        await self.init(wg)
        await wg.fence_mbarrier_init()

    async def init(self, wg, full=1, empty=1):
        """Initialise the barriers of the ring with these counts."""
        for step in range(self.stages):
            await wg.mbarrier_init(self.stage(step).full, full)
            await wg.mbarrier_init(self.stage(step).empty, empty)

    def roles(self):
        return {"producer": self.producer, "consumer": self.consumer}

    async def producer(self, wg):
        for step in range(self.steps):
            await self.acquire(wg, self.stage(step))
            await self.fill(wg, self.stage(step), step)

    async def acquire(self, wg, stage):
        await wg.mbarrier_try_wait_parity(stage.empty, stage.parity ^ 1)

    async def fill(self, wg, stage, step):
        await wg.mbarrier_arrive_expect_tx(stage.full, stage.tile.nbytes)
        await self.load(wg, stage, step)

    async def load(self, wg, stage, step):
        await wg.cp_async_bulk_tensor(stage.tile, self.map_x, (0, step * ROWS), stage.full)

    async def consumer(self, wg):
        for step in range(self.steps):
            await self.wait(wg, self.stage(step))
            await self.use(wg, self.stage(step), step)
            await self.release(wg, self.stage(step))
        await wg.wait_group(0)

    async def wait(self, wg, stage):
        await wg.mbarrier_try_wait_parity(stage.full, stage.parity)

    async def use(self, wg, stage, step):
        await self.store(wg, self.map_y, stage, step)

    async def store(self, wg, tensor_map, stage, step):
        """Store a stage, and wait until it is read."""
        await wg.cp_async_bulk_tensor_store(tensor_map, (0, step * ROWS), stage.tile)
        await wg.commit_group()
        await wg.wait_group(0, read=True)

    async def release(self, wg, stage):
        await wg.mbarrier_arrive(stage.empty)

    def check(self):
        return equal("y", self.y.array, self.x.array)


@dataclass
class StagedCopy(Copy):
    """y = x. The consumer copies each stage to another tile, and stores that one."""

    name = "staged_copy"

    def smem(self, smem):
        super().smem(smem)
        self.out = smem.tile("out", (ROWS, COLUMNS), F16, SWIZZLE)

    async def use(self, wg, stage, step):
        values = await wg.ldmatrix(stage.tile)
        await self.reclaim(wg)
        await wg.stmatrix(self.out, values)
        await self.publish(wg)
        await self.store_out(wg, step)

    async def reclaim(self, wg):
        """Wait until the store before has read its tile, in all warps."""
        await wg.wait_group(0, read=True)
        await wg.bar_sync(2, 128)

    async def publish(self, wg):
        """Show the unit what all warps have written."""
        await wg.fence_proxy_async()
        await wg.bar_sync(2, 128)

    async def store_out(self, wg, step):
        await wg.cp_async_bulk_tensor_store(self.map_y, (0, step * ROWS), self.out)
        await wg.commit_group()
