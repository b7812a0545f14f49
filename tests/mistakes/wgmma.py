"""Mistakes with wgmma and with registers."""

import numpy as np

from golden import Swizzle
from sim_tb.sm.check import equal
from tests.mistakes.form import Group
from tests.mistakes.probe import COLUMNS, F16, ROWS, SWIZZLE, Copy

GROUP = Group("wgmma and registers")

TILE = 64


class Product(Copy):
    """y = x x^T, summed over the tiles of 64 columns: wgmma reads each stage twice."""

    steps = 4

    def host(self, device):
        values = self.rng("x").integers(-2, 3, (TILE, self.steps * TILE)).astype(F16)
        self.x = device.tensor("x", values)
        self.y = device.empty("y", (TILE, TILE), np.float32)
        self.map_x = device.tensor_map(self.x, (TILE, TILE), Swizzle.SWIZZLE_128B)
        self.map_y = device.tensor_map(self.y, (TILE // 2, TILE), Swizzle.SWIZZLE_128B)

    def smem(self, smem):
        swizzle = Swizzle.SWIZZLE_128B
        self.tiles = smem.tiles("stage", self.stages, (TILE, TILE), F16, swizzle)
        self.out = smem.tiles("out", 2, (TILE, TILE // 2), np.float32, swizzle)
        self.ring = smem.ring("", self.stages)

    async def load(self, wg, stage, step):
        await wg.cp_async_bulk_tensor(stage.tile, self.map_x, (step * TILE, 0), stage.full)

    async def consumer(self, wg):
        self.sums = wg.accumulator(TILE, TILE)
        for step in range(self.steps):
            await self.wait(wg, self.stage(step))
            await self.use(wg, self.stage(step), step)
            await self.release(wg, self.stage(step))
        await self.collect(wg)
        values = self.sums.values
        for half, tile in enumerate(self.out):
            await wg.stmatrix(tile, values[:, half * TILE // 2 : (half + 1) * TILE // 2])
        await wg.fence_proxy_async()
        await wg.bar_sync(2, 128)
        for half, tile in enumerate(self.out):
            await wg.cp_async_bulk_tensor_store(self.map_y, (half * TILE // 2, 0), tile)
        await wg.commit_group()
        await wg.wait_group(0)

    async def collect(self, wg):
        await wg.wgmma_wait_group(0)

    async def use(self, wg, stage, _):
        await wg.wgmma_fence()
        await wg.wgmma(self.sums, stage.tile, stage.tile)
        await wg.wgmma_commit_group()
        await wg.wgmma_wait_group(0)

    def check(self):
        x = self.x.array.astype(np.float32)
        return equal("y", self.y.array, x @ x.T)


@GROUP.kernel(
    "release-before-the-product-ends",
    "producer: cp.async.bulk.tensor of x",
    "overwrites",
    "before its release: a wgmma of consumer reads the data",
    "no wait covers its group; call wgmma_wait_group before the release",
)
class ReleaseBeforeTheProductEnds(Product):
    """The stage is released when the product has been issued, not when it has read the stage."""

    async def use(self, wg, stage, _):
        await wg.wgmma_fence()
        await wg.wgmma(self.sums, stage.tile, stage.tile)
        await wg.wgmma_commit_group()
        if self.mended:
            await wg.wgmma_wait_group(0)


@GROUP.kernel(
    "product-without-commit",
    "producer: cp.async.bulk.tensor of x",
    "overwrites",
    "before its release: a wgmma of consumer reads the data",
    "its group was never committed: a wait covers committed groups only",
)
class ProductWithoutCommit(Product):
    """The wait finds no group: the product was never committed."""

    async def use(self, wg, stage, _):
        await wg.wgmma_fence()
        await wg.wgmma(self.sums, stage.tile, stage.tile)
        if self.mended:
            await wg.wgmma_commit_group()
        await wg.wgmma_wait_group(0)


@GROUP.kernel(
    "one-release-for-two-readers",
    "producer: cp.async.bulk.tensor of x",
    "overwrites",
    "before its release: a store of consumer",
)
class OneReleaseForTwoReaders(Copy):
    """Two consumers read each stage, and the first that is done releases it."""

    async def init(self, wg):
        await super().init(wg, empty=1 if self.wrong else 2)

    def roles(self):
        return {"producer": self.producer, "consumer 0": self.consumer, "consumer 1": self.slow}

    def host(self, device):
        super().host(device)
        self.z = device.empty("z", self.x.array.shape, F16)
        self.map_z = device.tensor_map(self.z, (COLUMNS, ROWS), SWIZZLE)

    async def slow(self, wg):
        for step in range(self.steps):
            await self.wait(wg, self.stage(step))
            await self.store(wg, self.map_z, self.stage(step), step)
            if self.mended:
                await self.release(wg, self.stage(step))
        await wg.wait_group(0)


@GROUP.kernel(
    "operand-of-setmaxnreg",
    "consumer: setmaxnreg 250 in cycle N: the number must be a multiple of 8 from 24 to 256",
)
class OperandOfSetmaxnreg(Copy):
    """The number of registers is no multiple of eight."""

    async def consumer(self, wg):
        await wg.setmaxnreg(250 if self.wrong else 240)
        await super().consumer(wg)


@GROUP.kernel(
    "more-registers-than-there-are",
    "setmaxnreg waits for registers: the warpgroups hold",
    "let another role release more of them, or ask for fewer",
)
class MoreRegistersThanThereAre(Copy):
    """Two consumers ask for 240 registers, and no producer gives any back."""

    def roles(self):
        return {"producer": self.producer, "consumer": self.consumer, "helper": self.helper}

    async def producer(self, wg):
        if self.mended:
            await wg.setmaxnreg(24)
        await super().producer(wg)

    async def consumer(self, wg):
        await wg.setmaxnreg(240)
        await super().consumer(wg)

    async def helper(self, wg):
        await wg.setmaxnreg(240)


@GROUP.kernel(
    "accumulator-read-in-flight",
    "consumer reads an accumulator of a wgmma whose group may be in flight",
    "call wgmma_commit_group and wgmma_wait_group first",
)
class AccumulatorReadInFlight(Product):
    """The epilogue reads the registers while one group is still pending."""

    async def collect(self, wg):
        await wg.wgmma_wait_group(1 if self.wrong else 0)

    async def use(self, wg, stage, _):
        await wg.wgmma_fence()
        await wg.wgmma(self.sums, stage.tile, stage.tile)
        await wg.wgmma_commit_group()

    async def release(self, wg, stage):
        """Release nothing: there are as many stages as steps."""

    stages = 4


@GROUP.kernel(
    "accumulator-without-a-fence",
    "consumer: wgmma in cycle N adds to an accumulator that threads wrote at first, without "
    "wgmma.fence",
    "call wgmma_fence after the write and before the first wgmma",
)
class AccumulatorWithoutAFence(Product):
    """Threads set the accumulators to zero, and the products follow at once."""

    async def use(self, wg, stage, _):
        if self.mended:
            await wg.wgmma_fence()
        await wg.wgmma(self.sums, stage.tile, stage.tile)
        await wg.wgmma_commit_group()
        await wg.wgmma_wait_group(0)


@GROUP.kernel(
    "operand-in-registers-without-a-fence",
    "consumer: wgmma in cycle N reads A from registers that threads may have written",
    "call wgmma_fence after the last instruction that writes A",
)
class OperandInRegistersWithoutAFence(Product):
    """A is loaded to registers behind the fence."""

    async def use(self, wg, stage, _):
        if self.wrong:
            await wg.wgmma_fence()
        a = await wg.ldmatrix(stage.tile)
        await wg.bar_sync(2, 128)
        if self.mended:
            await wg.wgmma_fence()
        await wg.wgmma(self.sums, a, stage.tile)
        await wg.wgmma_commit_group()
        await wg.wgmma_wait_group(0)
