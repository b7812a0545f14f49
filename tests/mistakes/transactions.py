"""Mistakes with the bytes that a barrier expects and counts."""

from golden import Swizzle
from tests.mistakes.form import Group
from tests.mistakes.probe import COLUMNS, ROWS, Copy

GROUP = Group("Transaction counts")


@GROUP.kernel(
    "more-expected-than-loaded",
    "the kernel hangs",
    "full[0]: expect_tx is 2048 bytes too large: expect_tx: 4096 bytes by producer",
    "expect the bytes of all loads that signal the barrier in this phase",
)
class MoreExpectedThanLoaded(Copy):
    """The producer expects the bytes of two operands, and loads one of them."""

    async def fill(self, wg, stage, step):
        operands = 2 if self.wrong else 1
        await wg.mbarrier_arrive_expect_tx(stage.full, operands * stage.tile.nbytes)
        await self.load(wg, stage, step)


@GROUP.kernel(
    "less-expected-than-loaded",
    "full[0]: phase 0 has all of its arrivals in cycle N, but expect_tx is 1024 bytes too small",
    "the phase may end at a part, before all bytes have come",
)
class LessExpectedThanLoaded(Copy):
    """The producer loads two boxes, and expects the bytes of one."""

    def host(self, device):
        super().host(device)
        self.map_x = device.tensor_map(self.x, (COLUMNS, ROWS // 2), Swizzle.SWIZZLE_128B)

    async def fill(self, wg, stage, step):
        boxes = 1 if self.wrong else 2
        await wg.mbarrier_arrive_expect_tx(stage.full, boxes * stage.tile.nbytes // 2)
        await self.load(wg, stage, step)

    async def load(self, wg, stage, step):
        for row in (0, ROWS // 2):
            half = stage.tile.rows(row, row + ROWS // 2)
            await wg.cp_async_bulk_tensor(half, self.map_x, (0, step * ROWS + row), stage.full)


@GROUP.kernel(
    "clipped-box",
    "full[0]: phase 2 has all of its arrivals in cycle N, but expect_tx is 1024 bytes too small",
)
class ClippedBox(Copy):
    """The producer expects only the bytes inside the tensor of a box at its end."""

    rows = 72

    async def fill(self, wg, stage, step):
        inside = min(ROWS, self.rows - step * ROWS)
        expected = stage.tile.nbytes
        if self.wrong:
            expected = expected * inside // ROWS
        await wg.mbarrier_arrive_expect_tx(stage.full, expected)
        await self.load(wg, stage, step)


@GROUP.kernel(
    "gaps-of-narrow-rows",
    "full[0]: expect_tx is 1024 bytes too large: expect_tx: 2048 bytes by producer",
)
class GapsOfNarrowRows(Copy):
    """Rows of 64 bytes lie 128 bytes apart with the swizzle; the gaps are not counted."""

    def host(self, device):
        super().host(device)
        self.map_x = device.tensor_map(self.x, (COLUMNS // 2, ROWS), Swizzle.SWIZZLE_128B)
        self.map_y = device.tensor_map(self.y, (COLUMNS // 2, ROWS), Swizzle.SWIZZLE_128B)
        self.x.array[:, COLUMNS // 2 :] = self.y.array[:, COLUMNS // 2 :]

    async def fill(self, wg, stage, step):
        expected = stage.tile.nbytes if self.wrong else stage.tile.nbytes // 2
        await wg.mbarrier_arrive_expect_tx(stage.full, expected)
        await self.load(wg, stage, step)


@GROUP.kernel(
    "load-by-every-warp",
    "full[0]: phase 0 has all of its arrivals in cycle N, but expect_tx is 2048 bytes too small",
    "loads: request 0 (cp.async.bulk.tensor of x at (0, 0)",
    "request (cp.async.bulk.tensor of x at (0, 0)",
)
class LoadByEveryWarp(Copy):
    """An elected lane of each of four warps issues the load; one warp should."""

    async def load(self, wg, stage, step):
        for _ in range(4 if self.wrong else 1):
            await super().load(wg, stage, step)


@GROUP.kernel(
    "arrival-without-bytes",
    "full[0]",
    "expect_tx is 2048 bytes too small: expect_tx: none",
)
class ArrivalWithoutBytes(Copy):
    """The producer arrives, and nobody says how many bytes the phase waits for."""

    async def fill(self, wg, stage, step):
        if self.wrong:
            await wg.mbarrier_arrive(stage.full)
        else:
            await wg.mbarrier_arrive_expect_tx(stage.full, stage.tile.nbytes)
        await self.load(wg, stage, step)


@GROUP.kernel(
    "bytes-without-arrival",
    "full[0]: 1 of 1 arrivals are missing in phase 0; arrived: nobody",
    "producer announced 2048 bytes and did not arrive: use mbarrier_arrive_expect_tx",
)
class BytesWithoutArrival(Copy):
    """``mbarrier.expect_tx`` alone is no arrival."""

    async def fill(self, wg, stage, step):
        expect = wg.mbarrier_expect_tx if self.wrong else wg.mbarrier_arrive_expect_tx
        await expect(stage.full, stage.tile.nbytes)
        await self.load(wg, stage, step)


@GROUP.kernel(
    "count-out-of-range",
    "producer: mbarrier.arrive.expect_tx of 1048592 on full[0] in cycle N",
)
class CountOutOfRange(Copy):
    """One phase waits for more bytes than the transaction count can hold."""

    async def fill(self, wg, stage, step):
        extra = (1 << 20) + 16 - stage.tile.nbytes if self.wrong else 0
        await wg.mbarrier_arrive_expect_tx(stage.full, stage.tile.nbytes + extra)
        await self.load(wg, stage, step)


@GROUP.kernel(
    "barrier-shared-by-two-stages",
    "one arrival too many at full[0] in cycle N: phase 0 already has all of its 1 arrivals",
)
class BarrierSharedByTwoStages(Copy):
    """Two stages in flight signal one barrier."""

    async def fill(self, wg, stage, step):
        if self.wrong:
            stage = stage._replace(full=self.ring.full[0])
        await super().fill(wg, stage, step)


@GROUP.kernel(
    "bytes-expected-by-every-lane",
    "full[0]: expect_tx is 63488 bytes too large: expect_tx: 65536 bytes by producer",
)
class BytesExpectedByEveryLane(Copy):
    """Each of 32 lanes expects the bytes of the load, and the count has an arrival for each."""

    async def init(self, wg):
        await super().init(wg, full=32)

    async def fill(self, wg, stage, step):
        lanes = wg.select(1)
        if self.wrong:
            await wg.mbarrier_arrive_expect_tx(stage.full, stage.tile.nbytes, threads=lanes)
        else:
            await wg.mbarrier_expect_tx(stage.full, stage.tile.nbytes)
            await wg.mbarrier_arrive(stage.full, threads=lanes)
        await self.load(wg, stage, step)
