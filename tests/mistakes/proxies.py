"""Mistakes between the generic proxy of threads and the async proxy of the unit."""

import numpy as np

from sim_tb.sm.warps import warps
from tests.mistakes.form import Group
from tests.mistakes.probe import COLUMNS, F16, ROWS, SWIZZLE, Copy, StagedCopy

GROUP = Group("Proxies and fences")


@GROUP.kernel(
    "store-without-a-fence",
    "consumer: cp.async.bulk.tensor to y at (0, 0) in cycle N, at 0x",
    "without fence.proxy.async, the unit may not see an earlier write (stmatrix of out by consumer",
    "call fence_proxy_async after the write and before the request",
)
class StoreWithoutAFence(StagedCopy):
    """Threads write a tile and meet at a barrier, and a store reads it, with no fence between."""

    async def publish(self, wg):
        if self.mended:
            await wg.fence_proxy_async()
        await wg.bar_sync(2, 128)


@GROUP.kernel(
    "fence-before-the-write",
    "consumer: cp.async.bulk.tensor to y at (0, 0) in cycle N, at 0x",
    "without fence.proxy.async, the unit may not see an earlier write (stmatrix of out by consumer",
)
class FenceBeforeTheWrite(StagedCopy):
    """The fence precedes the write that it shall publish."""

    async def use(self, wg, stage, step):
        values = await wg.ldmatrix(stage.tile)
        await self.reclaim(wg)
        if self.wrong:
            await wg.fence_proxy_async()
        await wg.stmatrix(self.out, values)
        if self.mended:
            await wg.fence_proxy_async()
        await wg.bar_sync(2, 128)
        await self.store_out(wg, step)


@GROUP.kernel(
    "read-before-the-wait",
    "consumer: ldmatrix of stage[0] in cycle N, at 0x0 of shared memory: request 0",
    "writes there and signals full[0], and the warpgroup has not waited for that phase",
    "it has never waited for this barrier",
)
class ReadBeforeTheWait(StagedCopy):
    """The consumer knows by other means that the load was issued, and does not wait for it."""

    async def prologue(self, wg):
        await super().prologue(wg)
        await self.fill(wg, self.stage(0), 0)

    async def producer(self, wg):
        for step in range(1, self.steps):
            await self.acquire(wg, self.stage(step))
            await self.fill(wg, self.stage(step), step)

    async def consumer(self, wg):
        for step in range(self.steps):
            if step or self.mended:
                await self.wait(wg, self.stage(step))
            await self.use(wg, self.stage(step), step)
            await self.release(wg, self.stage(step))
        await wg.wait_group(0)


@GROUP.kernel(
    "warps-that-do-not-meet",
    "consumer: cp.async.bulk.tensor to y at (0, 0) in cycle N, at 0x",
    "nothing orders it behind stmatrix of out by consumer in cycle N, by warp 1 of consumer",
    "let them meet at a named barrier (bar_sync) after the write",
)
class WarpsThatDoNotMeet(StagedCopy):
    """One thread stores what four warps have written; the others may not be done."""

    async def publish(self, wg):
        await wg.fence_proxy_async()
        if self.mended:
            await wg.bar_sync(2, 128)


@GROUP.kernel(
    "refill-behind-a-read",
    "copier: cp.async.bulk.tensor of x at (0, 16) in cycle N overwrites 0x",
    "nothing but the order of the program stands between this read and the write by the async "
    "proxy; call fence_proxy_async, or let threads meet at a barrier",
)
class RefillBehindARead(StagedCopy):
    """A warp reads a stage, and then lets the unit fill it again."""

    stages = 1

    def roles(self):
        return {"copier": warps(1)(self.copier)}

    async def copier(self, wg):
        for step in range(self.steps):
            stage = self.stage(step)
            await self.load(wg, stage, step)
            await wg.mbarrier_arrive_expect_tx(stage.full, stage.tile.nbytes)
            await self.wait(wg, stage._replace(parity=step % 2))
            await wg.ldmatrix(stage.tile)
            if self.mended:
                await wg.fence_proxy_async()

    def check(self):
        return None


@GROUP.kernel(
    "operand-without-a-fence",
    "consumer: wgmma of out in cycle N, at 0x",
    "without fence.proxy.async, the tensor cores may not see an earlier write (stmatrix of out",
)
class OperandWithoutAFence(StagedCopy):
    """Threads convert an operand in shared memory, and wgmma reads it."""

    async def consumer(self, wg):
        self.sums = wg.accumulator(ROWS, ROWS)
        await super().consumer(wg)
        await wg.wgmma_wait_group(0)

    async def publish(self, wg):
        if self.mended:
            await wg.fence_proxy_async()
        await wg.bar_sync(2, 128)

    async def store_out(self, wg, _):
        await wg.wgmma_fence()
        await wg.wgmma(self.sums, self.out, self.out)
        await wg.wgmma_commit_group()
        await wg.wgmma_wait_group(0)

    def check(self):
        return None


class Written(Copy):
    """Threads write x in global memory, and the unit loads it."""

    async def producer(self, wg):
        rows = range(0, self.rows, wg.threads // COLUMNS)
        for row in rows:
            places = row * COLUMNS + np.arange(wg.threads)
            await wg.st_global(self.x, places, np.arange(wg.threads))
        await self.publish(wg)
        await super().producer(wg)


@GROUP.kernel(
    "global-write-without-a-fence",
    "producer: cp.async.bulk.tensor of x at (0, 0) in cycle N, at 0x1000001000 of x: without "
    "fence.proxy.async, the unit may not see an earlier write (st.global of x by producer",
)
class GlobalWriteWithoutAFence(Written):
    """The warps meet behind their writes, which is not enough for the unit."""

    async def publish(self, wg):
        if self.mended:
            await wg.fence_proxy_async()
        await wg.bar_sync(2, wg.threads)


@GROUP.kernel(
    "fence-of-the-wrong-memory",
    "producer: cp.async.bulk.tensor of x at (0, 0) in cycle N, at 0x1000001000 of x",
    "fence.proxy.async.shared::cta covers shared memory only, and the unit may not see an earlier "
    "write (st.global of x by producer",
)
class FenceOfTheWrongMemory(Written):
    """The fence has ``.shared::cta``, and the writes are to global memory."""

    async def publish(self, wg):
        await wg.fence_proxy_async(shared_cta=self.wrong)
        await wg.bar_sync(2, wg.threads)


@GROUP.kernel(
    "read-of-what-was-just-stored",
    "consumer: ld.global of y in cycle N, at 0x",
    "the threads do not know that it is complete; let its thread wait for the bulk group "
    "(wait_group, not .read)",
)
class ReadOfWhatWasJustStored(Copy):
    """Threads read y when its stores have read shared memory, not when they have written."""

    async def consumer(self, wg):
        for step in range(self.steps):
            await self.wait(wg, self.stage(step))
            await self.use(wg, self.stage(step), step)
            await self.release(wg, self.stage(step))
        await wg.wait_group(0, read=self.wrong)
        await wg.bar_sync(2, wg.threads)
        await wg.ld_global(self.y, np.arange(wg.threads))
        await wg.wait_group(0)


@GROUP.kernel(
    "load-of-what-was-just-stored",
    "of y: request",
    "the threads do not know that it is complete; let its thread wait for the bulk group "
    "(wait_group, not .read)",
)
class LoadOfWhatWasJustStored(Copy):
    """y is loaded again when its stores have read shared memory, not when they have written."""

    def smem(self, smem):
        super().smem(smem)
        self.again = smem.tile("again", (ROWS, COLUMNS), F16, SWIZZLE)
        self.loaded = smem.mbarrier("loaded")

    async def init(self, wg):
        await super().init(wg)
        await wg.mbarrier_init(self.loaded, 1)

    async def consumer(self, wg):
        for step in range(self.steps):
            await self.wait(wg, self.stage(step))
            await self.use(wg, self.stage(step), step)
            await self.release(wg, self.stage(step))
        await wg.wait_group(0, read=self.wrong)
        await wg.mbarrier_arrive_expect_tx(self.loaded, self.again.nbytes)
        await wg.cp_async_bulk_tensor(self.again, self.map_y, (0, 0), self.loaded)
        await wg.mbarrier_try_wait_parity(self.loaded, 0)
        await wg.wait_group(0)


@GROUP.kernel(
    "read-of-unwritten-memory",
    "consumer: ldmatrix of out in cycle N reads 0x",
    "of shared memory, which nobody has written",
)
class ReadOfUnwrittenMemory(StagedCopy):
    """The consumer accumulates in a tile that nobody has set to zero."""

    async def consumer(self, wg):
        if self.mended:
            await wg.stmatrix(self.out, self.y.array[:16] * 0)
        await wg.ldmatrix(self.out)
        await super().consumer(wg)
