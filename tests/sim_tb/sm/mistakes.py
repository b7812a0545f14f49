"""A small kernel, right or with one of the mistakes that hang or corrupt on silicon."""

from dataclasses import dataclass, replace

import numpy as np

from golden import Swizzle
from sim_tb.sm.kernel import Kernel, equal, option
from sim_tb.sm.smem import Tile

ROWS, COLUMNS = 16, 64
SWIZZLE = Swizzle.SWIZZLE_128B
F16 = np.dtype(np.float16)


@dataclass
class Twice(Kernel):
    """y = x, and x once more: two boxes a stage, read by one warp and stored from a third tile."""

    name = "twice"

    mistake: str = option("", "what is wrong")
    steps: int = option(5, "tiles of x")
    stages: int = option(2, "of the ring")

    def is_(self, mistake: str) -> bool:
        return self.mistake == mistake

    def host(self, device):
        shape = (self.steps * ROWS, COLUMNS)
        self.x = device.tensor("x", self.rng("x").standard_normal(shape).astype(F16))
        self.y = device.empty("y", shape, F16)
        self.map_x = device.tensor_map(self.x, (COLUMNS, ROWS // 2), SWIZZLE)
        self.map_y = device.tensor_map(self.y, (COLUMNS, ROWS), SWIZZLE)

    def smem(self, smem):
        if self.is_("phase of the swizzle"):
            smem.tile("pad", (1, 64), F16)
            tile = smem.tile("stage[0]", (ROWS, COLUMNS), F16, SWIZZLE, align=128)
            self.tiles = [tile, smem.tile("stage[1]", (ROWS, COLUMNS), F16, SWIZZLE)]
        else:
            self.tiles = smem.tiles("stage", self.stages, (ROWS, COLUMNS), F16, SWIZZLE)
        self.out = smem.tile("out", (ROWS, COLUMNS), F16, SWIZZLE)
        if self.is_("overlap"):
            self.out = replace(self.out, origin=self.tiles[1].origin)
        self.ring = smem.ring("", self.stages)

    async def prologue(self, warp):
        for full, empty in zip(self.ring.full, self.ring.empty, strict=True):
            if not (self.is_("never initialised") and full == self.ring.full[1]):
                await warp.mbarrier_init(full, 1)
            await warp.mbarrier_init(empty, 2 if self.is_("arrival missing") else 1)

    def warps(self):
        return {"producer": self.producer, "consumer": self.consumer}

    async def producer(self, warp):
        for step, (s, parity) in zip(range(self.steps), self.ring.steps(), strict=False):
            full, tile = self.ring.full[s], self.tiles[s]
            if self.is_("overwritten before its release"):
                await warp.mbarrier_try_wait_parity(full, parity ^ 1)
                await warp.issue(step * 40)
            elif not self.is_("arrival twice"):
                wrong = self.is_("producer waits for the wrong phase")
                await warp.mbarrier_try_wait_parity(self.ring.empty[s], parity ^ (not wrong))
            extra = {"too large": 512, "too small": -512, "half": -tile.nbytes // 2}
            await warp.mbarrier_arrive_expect_tx(full, tile.nbytes + extra.get(self.mistake, 0))
            if self.is_("map patched") or (self.is_("map patched in use") and step):
                await warp.tensormap_replace(self.map_x, "global_address", self.x.address)
            for row in (0, ROWS // 2):
                half = tile.rows(row, row + ROWS // 2)
                barrier = full + 4 if self.is_("refused") else full
                if self.is_("refused"):
                    warp.sm.sanitizer.init(warp.watched, barrier, 1)
                await warp.cp_async_bulk_tensor(half, self.map_x, (0, step * ROWS + row), barrier)
        if self.is_("copy beyond the tensor"):
            await warp.cp_async_bulk(self.tiles[0], self.x.address + self.x.nbytes - 64, 128, full)
        if self.is_("copy beyond shared memory"):
            far = Tile("far", warp.sm.layout.bytes // 16 * 16, (1, 64), F16)
            await warp.cp_async_bulk(far, self.x.address, 128, full)
        if self.is_("load at the end"):
            await warp.bar_sync(1, 2)
            await warp.mbarrier_try_wait_parity(self.ring.empty[s], parity)
            await warp.mbarrier_arrive_expect_tx(full, tile.nbytes // 2)
            await warp.cp_async_bulk_tensor(tile, self.map_x, (0, 0), full)

    async def consumer(self, warp):
        if self.is_("registers"):
            await warp.setmaxnreg(250)
        if self.is_("nothing written"):
            await warp.ldmatrix(self.out)
        for step, (s, parity) in zip(range(self.steps), self.ring.steps(), strict=False):
            early = self.is_("consumer waits for the wrong phase")
            await warp.mbarrier_try_wait_parity(self.ring.full[s], parity ^ early)
            tile = self.tiles[s]
            if self.is_("another swizzle"):
                tile = replace(tile, swizzle=Swizzle.NONE)
            values = await warp.ldmatrix(tile)
            if not self.is_("source changed"):
                await warp.wait_group(0, read=True)
            if self.is_("overlap"):
                await warp.mbarrier_arrive(self.ring.empty[s])
            await warp.stmatrix(self.out, values)
            if not self.is_("fence"):
                await warp.fence_proxy_async()
            await warp.cp_async_bulk_tensor_store(self.map_y, (0, step * ROWS), self.out)
            await warp.commit_group()
            if not self.is_("overlap"):
                await warp.mbarrier_arrive(self.ring.empty[s])
        if not self.is_("store at the end"):
            await warp.wait_group(0)
        if self.is_("load at the end"):
            await warp.bar_sync(1, 2)

    def check(self):
        return equal("y", self.y.array, self.x.array)
