"""Roles that wait for each other."""

import numpy as np

from golden import ReductionOp
from sim_tb.sm.global_memory import Order
from tests.mistakes.form import Group
from tests.mistakes.probe import Copy

GROUP = Group("Deadlock between roles")


@GROUP.kernel(
    "stage-never-released",
    "empty[0]: 1 of 1 arrivals are missing in phase 0; arrived: nobody",
    "consumer has waited for phase 0 of full[0], and now waits for phase 1 of full[0]",
    "let each consumer call mbarrier_arrive when it has read the stage",
    "circle: producer waits for phase 0 of empty[0], which consumer completes; consumer waits for "
    "phase 1 of full[0], which producer completes",
)
class StageNeverReleased(Copy):
    """The consumer does not arrive at ``empty``."""

    async def release(self, wg, stage):
        if self.mended:
            await super().release(wg, stage)


@GROUP.kernel(
    "count-above-the-arrivals",
    "empty[0]: 1 of 2 arrivals are missing in phase 0; arrived: consumer",
    "add the missing arrivals, or lower the count of mbarrier_init",
)
class CountAboveTheArrivals(Copy):
    """The count of ``empty`` is that of two consumers, and there is one."""

    async def init(self, wg):
        await super().init(wg, empty=2 if self.wrong else 1)


@GROUP.kernel(
    "loop-that-is-too-long",
    "full[1]: 1 of 1 arrivals are missing in phase 2; arrived: nobody; consumer waits",
    "producer arrived in phases before, and has returned",
)
class LoopThatIsTooLong(Copy):
    """The consumer takes one step more than the producer."""

    async def consumer(self, wg):
        await super().consumer(wg)
        if self.wrong:
            await self.wait(wg, self.stage(self.steps))


@GROUP.kernel(
    "loop-that-is-too-short",
    "the CTA ends in cycle N while request",
    "may still write to its shared memory: nobody of the CTA has waited for phase 2 of full[0]",
)
class LoopThatIsTooShort(Copy):
    """The consumer takes one step less than the producer."""

    async def consumer(self, wg):
        for step in range(self.steps - self.wrong):
            await self.wait(wg, self.stage(step))
            await self.use(wg, self.stage(step), step)
            await self.release(wg, self.stage(step))
        await wg.wait_group(0)


@GROUP.kernel(
    "roles-that-wait-in-a-circle",
    "circle: producer waits for phase 1 of empty[0], which consumer completes; consumer waits for "
    "phase 1 of permit[0], which producer completes",
)
class RolesThatWaitInACircle(Copy):
    """In the second round the consumer keeps a stage until the producer has loaded the next one."""

    def smem(self, smem):
        super().smem(smem)
        self.permits = smem.mbarriers("permit", self.stages)

    async def init(self, wg):
        await super().init(wg)
        for permit in self.permits:
            await wg.mbarrier_init(permit, 1)

    async def producer(self, wg):
        for step in range(self.steps):
            await self.acquire(wg, self.stage(step))
            await self.fill(wg, self.stage(step), step)
            if self.mended or step < self.stages:
                await wg.mbarrier_arrive(self.permits[step % self.stages])

    async def use(self, wg, stage, step):
        await wg.mbarrier_try_wait_parity(self.permits[step % self.stages], stage.parity)
        await super().use(wg, stage, step)


@GROUP.kernel(
    "named-barrier-of-too-many",
    "bar.sync 1: 256 of 384 threads have arrived: producer, consumer",
    "let the others arrive, or lower the number",
)
class NamedBarrierOfTooMany(Copy):
    """A named barrier counts a warpgroup that never comes to it."""

    async def producer(self, wg):
        await wg.bar_sync(1, 384 if self.wrong else 256)
        await super().producer(wg)

    async def consumer(self, wg):
        await wg.bar_sync(1, 384 if self.wrong else 256)
        await super().consumer(wg)


@GROUP.kernel(
    "role-that-returns-early",
    "lost: producer waits for phase 1 of empty[0], which consumer could complete, but consumer "
    "has returned",
)
class RoleThatReturnsEarly(Copy):
    """The consumer returns after the tiles that it needs, and the producer loads all of them."""

    needed = 2

    async def consumer(self, wg):
        for step in range(self.needed if self.wrong else self.steps):
            await self.wait(wg, self.stage(step))
            await self.use(wg, self.stage(step), step)
            await self.release(wg, self.stage(step))
        await wg.wait_group(0)


@GROUP.kernel(
    "grid-barrier-of-waves",
    "consumer: repeats ld.acquire.global of count since cycle N",
    "1 of 2 CTAs of the grid have not started, as no SM is free",
)
class GridBarrierOfWaves(Copy):
    """All CTAs of a grid wait for each other, and not all of them fit on the SMs."""

    @property
    def grid_dim(self):
        return (2, 1, 1) if self.wrong else (1, 1, 1)

    def host(self, device):
        super().host(device)
        self.count = device.tensor("count", np.zeros(1, np.int32))

    async def consumer(self, wg):
        first = np.arange(wg.threads) == 0
        order = Order.ACQ_REL
        await wg.atom_global(self.count, 0, 1, ReductionOp.ADD, where=first, order=order)
        while await self.reads(wg) < self.grid_dim[0]:
            pass
        await super().consumer(wg)

    async def reads(self, wg):
        return (await wg.ld_global(self.count, 0, order=Order.ACQUIRE)).max()
