"""Mistakes with the initialisation and the invalidation of barriers."""

import numpy as np

from sim_tb.sm.smem import Tile
from tests.mistakes.form import Group
from tests.mistakes.probe import F16, Copy

GROUP = Group("Initialisation and invalidation")


@GROUP.kernel(
    "never-initialised",
    "producer: mbarrier.try_wait.parity on empty[1] in cycle N",
    "this barrier was never initialised; call mbarrier_init",
)
class NeverInitialised(Copy):
    """Only the barriers of the first stage are initialised."""

    async def init(self, wg):
        stages = 1 if self.wrong else self.stages
        for step in range(stages):
            await wg.mbarrier_init(self.stage(step).full, 1)
            await wg.mbarrier_init(self.stage(step).empty, 1)


@GROUP.kernel(
    "initialised-twice",
    "mbarrier.init of 1 on full[0] in cycle N: this barrier is already initialised",
    "initialise it once",
)
class InitialisedTwice(Copy):
    """Each warp of the first warpgroup initialises the barriers; one thread should."""

    async def init(self, wg):
        for _ in range(4 if self.wrong else 1):
            await super().init(wg)


@GROUP.kernel(
    "count-of-zero",
    "mbarrier.init of 0 on full[0] in cycle N: the count must be from 1 to 1048575",
)
class CountOfZero(Copy):
    """The barrier expects no arrival, because only bytes shall complete its phase."""

    async def init(self, wg):
        await super().init(wg, full=0 if self.wrong else 1)


@GROUP.kernel(
    "used-after-invalidation",
    "on full[1] in cycle N: this barrier was invalidated by prologue in cycle N",
    "call mbarrier_init before it is used again",
)
class UsedAfterInvalidation(Copy):
    """A barrier is used again after ``mbarrier.inval``, without a new ``mbarrier.init``."""

    async def init(self, wg):
        await super().init(wg)
        await wg.mbarrier_inval(self.ring.full[1])
        if self.mended:
            await wg.mbarrier_init(self.ring.full[1], 1)


@GROUP.kernel(
    "invalidated-in-use",
    "producer: mbarrier.inval on full[0] in cycle N: phase 2 has begun",
    "wait for this phase first",
)
class InvalidatedInUse(Copy):
    """The producer invalidates the barriers when it has issued its last load."""

    async def producer(self, wg):
        await super().producer(wg)
        stage = self.stage(self.steps - 1)
        if self.mended:
            await wg.mbarrier_try_wait_parity(stage.empty, stage.parity)
        await wg.mbarrier_inval(stage.full)


@GROUP.kernel(
    "one-arrival-of-a-warp",
    "full[0]: 31 of 32 arrivals are missing in phase 0; arrived: producer",
    "add the missing arrivals, or lower the count of mbarrier_init",
)
class OneArrivalOfAWarp(Copy):
    """The count is that of a warp, and its elected lane arrives alone."""

    async def init(self, wg):
        await super().init(wg, full=32 if self.wrong else 1)


@GROUP.kernel(
    "arrivals-of-all-lanes",
    "consumer: 32 arrivals at empty[0] in cycle N, where 1 are expected per phase",
    "each of the 32 lanes arrives; let one elected lane arrive, or initialise the barrier with 32",
)
class ArrivalsOfAllLanes(Copy):
    """The count is one, and all lanes of a warp arrive."""

    async def release(self, wg, stage):
        lanes = wg.select(1) if self.wrong else wg.elected
        await wg.mbarrier_arrive(stage.empty, threads=lanes)


@GROUP.kernel(
    "initialisation-without-a-fence",
    "producer: cp.async.bulk.tensor of x at (0, 0) on full[0] in cycle N: this barrier was "
    "initialised by prologue in cycle N, without fence.mbarrier_init",
    "call fence_mbarrier_init after mbarrier_init",
)
class InitialisationWithoutAFence(Copy):
    """Threads initialise the barrier, and the unit signals it, with no fence between."""

    async def prologue(self, wg):
        await self.init(wg)
        if self.mended:
            await wg.fence_mbarrier_init()


@GROUP.kernel(
    "storage-used-again",
    "accesses 0x1000 of shared memory, where full[0] is a live barrier",
    "call mbarrier_inval before its bytes are used again",
)
class StorageUsedAgain(Copy):
    """The epilogue writes to the bytes of the barriers, which are no longer needed."""

    async def consumer(self, wg):
        await super().consumer(wg)
        if self.mended:
            for step in range(self.stages):
                await wg.mbarrier_inval(self.stage(step).full)
                await wg.mbarrier_inval(self.stage(step).empty)
            await wg.bar_sync(2, 128)
        origin = self.ring.full[0].address
        tile = Tile("sums", origin, (1, 16), F16)
        await wg.stmatrix(tile, np.zeros((1, 16), F16))
