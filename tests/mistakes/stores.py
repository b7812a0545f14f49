"""Mistakes with stores, reductions and bulk groups."""

from golden import Reduce, ReductionOp, Store, TensorMap
from tests.mistakes.coordinates import MAP
from tests.mistakes.form import Group
from tests.mistakes.maps import MATRIX
from tests.mistakes.probe import Copy, StagedCopy

GROUP = Group("Stores and bulk groups")

COUNTS = TensorMap.tiled(**MATRIX | {"data_type": "u16"})
WIDE_COUNTS = TensorMap.tiled(
    **MATRIX | {"data_type": "u32", "global_dim": (512, 512), "box_dim": (32, 64)}
)
RAGGED = TensorMap.tiled(**MATRIX | {"global_dim": (1001, 512)})

GROUP.request(
    "negative-coordinate",
    "coords[1] = -1: must not be negative in a store or reduction",
    wrong=Store(MAP, (0, -1)),
    mended=Store(MAP, (0, 0)),
)
GROUP.request(
    "type-of-a-reduction",
    "op = ADD of UINT16: UINT16 has no reductions",
    wrong=Reduce(COUNTS, (0, 0), op=ReductionOp.ADD),
    mended=Reduce(WIDE_COUNTS, (0, 0), op=ReductionOp.ADD),
)
GROUP.request(
    "padding-of-rows",
    "global_dim[0] = 1001 elements end at byte 2002 of a row",
    "the store overwrites bytes 2002 to 2015",
    wrong=Store(RAGGED, (960, 0)),
    mended=Store(MAP, (960, 0)),
)


@GROUP.kernel(
    "source-changed",
    "consumer: stmatrix of out in cycle N overwrites",
    "before its release: a store of consumer reads the data",
    "the thread of consumer that issued it has not waited for its bulk group",
)
class SourceChanged(StagedCopy):
    """The next tile is written to the buffer while the store of the last one still reads it."""

    async def use(self, wg, stage, step):
        values = await wg.ldmatrix(stage.tile)
        if self.mended:
            await self.reclaim(wg)
        await wg.stmatrix(self.out, values)
        await self.publish(wg)
        await self.store_out(wg, step)


@GROUP.kernel(
    "groups-left-pending",
    "producer: cp.async.bulk.tensor of x",
    "overwrites",
    "before its release: a store of consumer reads the data",
    "the thread of consumer that issued it has not waited for its bulk group",
)
class GroupsLeftPending(Copy):
    """The stage is released when one store may still be pending: the one that reads it."""

    async def use(self, wg, stage, step):
        await wg.cp_async_bulk_tensor_store(self.map_y, (0, step * 16), stage.tile)
        await wg.commit_group()
        await wg.wait_group(1 if self.wrong else 0, read=True)


@GROUP.kernel(
    "store-without-commit",
    "producer: cp.async.bulk.tensor of x",
    "overwrites",
    "before its release: a store of consumer reads the data",
    "its group was never committed: a wait covers committed groups only",
)
class StoreWithoutCommit(Copy):
    """The wait finds no group: the store was never committed."""

    async def use(self, wg, stage, step):
        await wg.cp_async_bulk_tensor_store(self.map_y, (0, step * 16), stage.tile)
        if self.mended:
            await wg.commit_group()
        await wg.wait_group(0, read=True)


@GROUP.kernel(
    "group-of-another-thread",
    "producer: cp.async.bulk.tensor of x",
    "overwrites",
    "before its release: a store of consumer reads the data",
    "the thread of consumer that issued it has not waited for its bulk group",
    "call wait_group there",
)
class GroupOfAnotherThread(Copy):
    """The producer waits for bulk groups, but the consumer's thread issued the stores."""

    async def acquire(self, wg, stage):
        await super().acquire(wg, stage)
        await wg.wait_group(0, read=True)

    async def use(self, wg, stage, step):
        await wg.cp_async_bulk_tensor_store(self.map_y, (0, step * 16), stage.tile)
        await wg.commit_group()
        if self.mended:
            await wg.wait_group(0, read=True)


@GROUP.kernel(
    "wait-of-one-thread",
    "consumer: stmatrix of out in cycle N overwrites",
    "before its release: a store of consumer reads the data",
    "only the thread that has waited for its bulk group knows that",
    "let the warps meet",
)
class WaitOfOneThread(StagedCopy):
    """The thread that stored waits for its bulk group, and the other warps go on."""

    async def reclaim(self, wg):
        await wg.wait_group(0, read=True)
        if self.mended:
            await wg.bar_sync(2, 128)


@GROUP.kernel(
    "tile-stored-twice",
    "of y: request",
    "writes there, and the threads do not know that it is complete",
)
class TileStoredTwice(Copy):
    """Two roles store the same tile of y."""

    def roles(self):
        return {"producer": self.producer, "consumer": self.consumer, "helper": self.helper}

    async def init(self, wg):
        await super().init(wg, empty=2)

    async def helper(self, wg):
        for step in range(self.steps):
            await self.wait(wg, self.stage(step))
            if self.wrong:
                await self.use(wg, self.stage(step), step)
            await self.release(wg, self.stage(step))
        await wg.wait_group(0)


@GROUP.kernel(
    "store-at-the-end",
    "the CTA ends in cycle N while a store of consumer may still read the data",
    "wait for this read before the last role returns",
)
class StoreAtTheEnd(StagedCopy):
    """The last role returns while its store still reads shared memory."""

    async def consumer(self, wg):
        for step in range(self.steps):
            await self.wait(wg, self.stage(step))
            await self.use(wg, self.stage(step), step)
            await self.release(wg, self.stage(step))
        if self.mended:
            await wg.wait_group(0)
