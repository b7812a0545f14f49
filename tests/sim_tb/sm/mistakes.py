"""A right kernel with one of the mistakes that are about messages, and in no catalogue.

The catalogue of mistakes with TMA is ``tests/mistakes``.
"""

from dataclasses import dataclass, replace

from sim_tb.sm.check import equal
from sim_tb.sm.options import option
from sim_tb.sm.smem import Tile
from tests.mistakes import probe
from tests.mistakes.probe import F16, ROWS


@dataclass
class StagedCopy(probe.StagedCopy):
    """y = x. The consumer copies each stage to another tile and stores that."""

    name = "staged_copy"

    mistake: str = option("", "name of the mistake")

    def has(self, mistake: str) -> bool:
        return self.mistake == mistake

    def smem(self, smem):
        super().smem(smem)
        if self.has("overlap"):
            self.out = replace(self.out, origin=self.tiles[1].origin)

    async def acquire(self, wg, stage):
        if self.has("overwritten before its release"):
            await wg.mbarrier_try_wait_parity(stage.full, stage.parity ^ 1)
            await wg.issue(80)
        else:
            await super().acquire(wg, stage)

    async def fill(self, wg, stage, step):
        extra = 512 if self.has("too large") else 0
        await wg.mbarrier_arrive_expect_tx(stage.full, stage.tile.nbytes + extra)
        barrier = stage.full
        if self.has("barrier misaligned"):
            barrier = replace(barrier, address=barrier.address + 4)
        coords = 4 if self.has("refused") else 0, step * ROWS
        await wg.cp_async_bulk_tensor(stage.tile, self.map_x, coords, barrier)
        if self.has("copy beyond shared memory"):
            far = Tile("far", wg.sm.layout.bytes // 16 * 16, (1, 64), F16)
            await wg.cp_async_bulk(far, self.x.at(), 128, stage.full)

    async def use(self, wg, stage, step):
        if self.has("error of Python") and step == 1:
            stage = self.stages_of[step]
        await super().use(wg, stage, step)

    def check(self):
        if self.has("error in check"):
            return equal("y", self.y.array[1:], self.x.array)
        return super().check()
