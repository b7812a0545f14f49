"""Mistakes between the generic proxy of threads and the async proxy of the unit."""

from tests.mistakes.form import Group
from tests.mistakes.probe import StagedCopy

GROUP = Group("Proxies and fences")


@GROUP.kernel(
    "store-without-a-fence",
    "consumer: cp.async.bulk.tensor to y at (0, 0) in cycle N, at 0x",
    "without fence.proxy.async, the unit may not see an earlier write (stmatrix of out by consumer",
    "call fence_proxy_async after the write and before the request",
)
class StoreWithoutAFence(StagedCopy):
    """Threads write a tile, and a store reads it, with no fence between."""

    async def use(self, wg, stage, step):
        values = await wg.ldmatrix(stage.tile)
        await wg.wait_group(0, read=True)
        await wg.stmatrix(self.out, values)
        if self.mended:
            await wg.fence_proxy_async()
        await self.store(wg, step)


@GROUP.kernel(
    "fence-before-the-write",
    "consumer: cp.async.bulk.tensor to y at (0, 0) in cycle N, at 0x",
    "without fence.proxy.async, the unit may not see an earlier write (stmatrix of out by consumer",
)
class FenceBeforeTheWrite(StagedCopy):
    """The fence precedes the write that it shall publish."""

    async def use(self, wg, stage, step):
        values = await wg.ldmatrix(stage.tile)
        await wg.wait_group(0, read=True)
        if self.wrong:
            await wg.fence_proxy_async()
        await wg.stmatrix(self.out, values)
        if self.mended:
            await wg.fence_proxy_async()
        await self.store(wg, step)


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
