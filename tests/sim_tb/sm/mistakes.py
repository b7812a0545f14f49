"""A small kernel, without a mistake or with one that hangs or corrupts data on silicon."""

from dataclasses import dataclass, replace

import numpy as np

from golden import Swizzle
from sim_tb.sm.check import equal
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.options import option
from sim_tb.sm.smem import Tile

ROWS, COLUMNS = 16, 64
SWIZZLE = Swizzle.SWIZZLE_128B
F16 = np.dtype(np.float16)


@dataclass
class StagedCopy(Kernel):
    """y = x. A stage has two boxes; a consumer copies it to another tile and stores that."""

    name = "staged_copy"

    mistake: str = option("", "name of the mistake")
    steps: int = option(5, "tiles of x")
    stages: int = option(2, "stages of the ring")

    def has(self, mistake: str) -> bool:
        return self.mistake == mistake

    def host(self, device):
        shape = (self.steps * ROWS, COLUMNS)
        self.x = device.tensor("x", self.rng("x").standard_normal(shape).astype(F16))
        self.y = device.empty("y", shape, F16)
        self.map_x = device.tensor_map(self.x, (COLUMNS, ROWS // 2), SWIZZLE)
        self.map_y = device.tensor_map(self.y, (COLUMNS, ROWS), SWIZZLE)

    def smem(self, smem):
        if self.has("phase of the swizzle"):
            smem.tile("pad", (1, 64), F16)
            tile = smem.tile("stage[0]", (ROWS, COLUMNS), F16, SWIZZLE, align=128)
            self.tiles = [tile, smem.tile("stage[1]", (ROWS, COLUMNS), F16, SWIZZLE)]
        else:
            self.tiles = smem.tiles("stage", self.stages, (ROWS, COLUMNS), F16, SWIZZLE)
        self.out = smem.tile("out", (ROWS, COLUMNS), F16, SWIZZLE)
        if self.has("overlap"):
            self.out = replace(self.out, origin=self.tiles[1].origin)
        self.ring = smem.ring("", self.stages)

    async def prologue(self, wg):
        for full, empty in zip(self.ring.full, self.ring.empty, strict=True):
            if not (self.has("never initialised") and full == self.ring.full[1]):
                await wg.mbarrier_init(full, 1)
            await wg.mbarrier_init(empty, 2 if self.has("arrival missing") else 1)
        if not self.has("init without a fence"):
            await wg.fence_mbarrier_init()
        if self.has("initialised twice"):
            await wg.mbarrier_init(self.ring.full[1], 1)
        if self.has("no arrivals"):
            await wg.mbarrier_inval(self.ring.full[0])
            await wg.mbarrier_init(self.ring.full[0], 0)
        if self.has("used after inval"):
            await wg.mbarrier_inval(self.ring.full[1])

    def roles(self):
        return {"producer": self.producer, "consumer": self.consumer}

    async def producer(self, wg):
        for step, (s, parity) in zip(range(self.steps), self.ring.steps(), strict=False):
            full, tile = self.ring.full[s], self.tiles[s]
            if self.has("overwritten before its release"):
                await wg.mbarrier_try_wait_parity(full, parity ^ 1)
                await wg.issue(step * 40)
            elif self.has("parity never changes"):
                await wg.issue(step * 2000)  # until the consumer has released the stage
                await wg.mbarrier_try_wait_parity(self.ring.empty[s], 1)
            elif not self.has("arrival twice"):
                wrong = self.has("producer waits for the wrong phase")
                await wg.mbarrier_try_wait_parity(self.ring.empty[s], parity ^ (not wrong))
            extra = {"too large": 512, "too small": -512, "half": -tile.nbytes // 2}
            expect = wg.mbarrier_arrive_expect_tx
            if self.has("bytes without an arrival"):
                expect = wg.mbarrier_expect_tx
            await expect(full, tile.nbytes + extra.get(self.mistake, 0))
            if self.has("map patched") or (self.has("map patched in use") and step):
                await wg.tensormap_replace(self.map_x, "global_address", self.x.address)
            for row in (0, ROWS // 2):
                half = tile.rows(row, row + ROWS // 2)
                barrier = full
                if self.has("barrier misaligned"):
                    barrier = replace(full, address=full.address + 4)
                column = 4 if self.has("refused") else 0
                coords = column, step * ROWS + row
                await wg.cp_async_bulk_tensor(half, self.map_x, coords, barrier)
            if self.has("inval in use"):
                await wg.mbarrier_inval(full)
        if self.has("copy beyond the tensor"):
            await wg.cp_async_bulk(self.tiles[0], self.x.at() + (self.x.nbytes - 64), 128, full)
        if self.has("copy beyond shared memory"):
            far = Tile("far", wg.sm.layout.bytes // 16 * 16, (1, 64), F16)
            await wg.cp_async_bulk(far, self.x.at(), 128, full)
        if self.has("load at the end"):
            await wg.bar_sync(1, 256)
            await wg.mbarrier_try_wait_parity(self.ring.empty[s], parity)
            await wg.mbarrier_arrive_expect_tx(full, tile.nbytes // 2)
            await wg.cp_async_bulk_tensor(tile, self.map_x, (0, 0), full)

    async def consumer(self, wg):
        if self.has("registers"):
            await wg.setmaxnreg(250)
        if self.has("registers that are taken"):
            wg.sm.warpgroups[0].registers = 400
            await wg.setmaxnreg(240)
        if self.has("nothing written"):
            await wg.ldmatrix(self.out)
        if self.has("too few at bar.sync"):
            await wg.bar_sync(1, 384)
        for step, (s, parity) in zip(range(self.steps), self.ring.steps(), strict=False):
            early = self.has("consumer waits for the wrong phase")
            await wg.mbarrier_try_wait_parity(self.ring.full[s], parity ^ early)
            tile = self.tiles[s]
            if self.has("error of Python") and step == 1:
                tile = self.tyles[s]
            if self.has("another swizzle"):
                tile = replace(tile, swizzle=Swizzle.NONE)
            values = await wg.ldmatrix(tile)
            if not self.has("source changed"):
                await wg.wait_group(0, read=True)
            if self.has("overlap"):
                await wg.mbarrier_arrive(self.ring.empty[s])
            if not self.has("wait of one thread"):
                await wg.bar_sync(2, 128)
            await wg.stmatrix(self.out, values)
            if not self.has("fence"):
                await wg.fence_proxy_async()
            if not self.has("warps that race"):
                await wg.bar_sync(2, 128)
            await wg.cp_async_bulk_tensor_store(self.map_y, (0, step * ROWS), self.out)
            await wg.commit_group()
            if not self.has("overlap") and not self.has("no release"):
                await wg.mbarrier_arrive(self.ring.empty[s])
        if not self.has("store at the end"):
            await wg.wait_group(0)
        if self.has("load at the end"):
            await wg.bar_sync(1, 256)

    def check(self):
        if self.has("error in check"):
            return equal("y", self.y.array[1:], self.x.array)
        return equal("y", self.y.array, self.x.array)
