"""Mistakes with multicast, distributed shared memory, and clusters."""

import numpy as np

from golden import DsmemCopy, Load
from sim_tb.sm.check import equal
from sim_tb.sm.sanitizer import Scope
from tests.mistakes.coordinates import MAP
from tests.mistakes.form import Group
from tests.mistakes.probe import COLUMNS, ROWS, SWIZZLE, Copy

GROUP = Group("Multicast and clusters")

CTAS = 4
EVERYONE = (1 << CTAS) - 1

GROUP.request(
    "mask-beyond-the-cluster",
    "cta_mask = 0x14: must be from 0 to 0xf: the cluster has 4 CTAs",
    wrong=Load(MAP, (0, 0), cta_mask=0b10100),
    mended=Load(MAP, (0, 0), cta_mask=0b0101),
    ctas=CTAS,
)
GROUP.request(
    "rank-beyond-the-cluster",
    "dst_cta = 4: must be from 0 to 3: the cluster has 4 CTAs",
    wrong=DsmemCopy(dst_cta=4, dst_address=0, smem_address=1024, size=1024, mbarrier=2048),
    mended=DsmemCopy(dst_cta=3, dst_address=0, smem_address=1024, size=1024, mbarrier=2048),
    ctas=CTAS,
)


class Broadcast(Copy):
    """y = x: CTA 0 multicasts each tile to all CTAs, and each CTA stores every fourth tile.

    The consumers of all CTAs release a stage at the barriers of all CTAs.
    """

    steps = 4
    rows = steps * ROWS

    @property
    def ctas(self):
        return CTAS

    async def prologue(self, wg):
        await super().prologue(wg)
        await wg.cluster_sync()

    async def init(self, wg, full=1, empty=CTAS):
        await super().init(wg, full, empty)

    async def load(self, wg, stage, step):
        if wg.cta == 0:
            await wg.cp_async_bulk_tensor(
                stage.tile, self.map_x, (0, step * ROWS), stage.full, cta_mask=EVERYONE
            )

    async def use(self, wg, stage, step):
        if step % CTAS == wg.cta:
            await super().use(wg, stage, step)

    async def acquire(self, wg, stage):
        await wg.mbarrier_try_wait_parity(stage.empty, stage.parity ^ 1, scope=Scope.CLUSTER)

    async def release(self, wg, stage):
        for cta in range(CTAS):
            await wg.mbarrier_arrive(stage.empty, cta=cta, scope=Scope.CLUSTER)

    async def consumer(self, wg):
        await super().consumer(wg)
        await wg.cluster_sync()  # other CTAs arrive at the barriers of this one


@GROUP.kernel(
    "release-of-the-own-cta-only",
    "producer of CTA 0: cp.async.bulk.tensor of x at (0, 32) in cycle N",
    "signals full[0] of CTA 1, a barrier of another CTA",
    "arrive at a barrier of this CTA",
)
class ReleaseOfTheOwnCtaOnly(Broadcast):
    """A stage counts as empty when the consumer of the own CTA has released it."""

    async def init(self, wg):
        await super().init(wg, empty=1 if self.wrong else CTAS)

    async def release(self, wg, stage):
        if self.mended:
            await super().release(wg, stage)
        else:
            await wg.mbarrier_arrive(stage.empty)


@GROUP.kernel(
    "receiver-expects-nothing",
    "full[0] of CTA 1: expect_tx is 2048 bytes too small: expect_tx: none",
)
class ReceiverExpectsNothing(Broadcast):
    """Only the CTA that issues the multicast expects its bytes."""

    async def fill(self, wg, stage, step):
        if self.mended or wg.cta == 0:
            await wg.mbarrier_arrive_expect_tx(stage.full, stage.tile.nbytes)
        await self.load(wg, stage, step)


@GROUP.kernel(
    "share-of-a-multicast",
    "full[0] of CTA 0: phase 0 has all of its arrivals in cycle N",
    "expect_tx is 1536 bytes too small: expect_tx: 512 bytes by producer of CTA 0",
)
class ShareOfAMulticast(Broadcast):
    """Each CTA expects a quarter of the tile, as if the bytes were divided among the receivers."""

    async def fill(self, wg, stage, step):
        size = stage.tile.nbytes
        await wg.mbarrier_arrive_expect_tx(stage.full, size // CTAS if self.wrong else size)
        await self.load(wg, stage, step)


@GROUP.kernel(
    "cluster-barrier-of-some-ctas",
    "barrier.cluster: 256 of 1024 threads have arrived: producer of CTA 0, consumer of CTA 0",
)
class ClusterBarrierOfSomeCtas(Broadcast):
    """The CTA that loads waits at the barrier of the cluster, and the others for its loads."""

    async def producer(self, wg):
        await self.meet(wg)
        await super().producer(wg)

    async def consumer(self, wg):
        await self.meet(wg)
        await super().consumer(wg)

    async def meet(self, wg):
        if self.mended or wg.cta == 0:
            await wg.cluster_sync()


@GROUP.kernel(
    "leave-before-the-others",
    "the CTA ends in cycle N while the arrival by consumer of CTA",
    "may still come: the shared memory of a CTA that has ended must not be accessed",
    "let all CTAs meet at a barrier.cluster",
)
class LeaveBeforeTheOthers(Broadcast):
    """A CTA ends while the consumers of others still arrive at its barriers."""

    async def consumer(self, wg):
        await Copy.consumer(self, wg)
        if self.mended:
            await wg.cluster_sync()


@GROUP.kernel(
    "use-before-the-cluster-has-met",
    "full[0] of CTA 1",
    "initialised by prologue of CTA 1",
    "nothing orders this operation behind that; let both meet at",
)
class UseBeforeTheClusterHasMet(Broadcast):
    """CTA 0 multicasts to CTAs that may not have initialised their barriers."""

    async def prologue(self, wg):
        await Copy.prologue(self, wg)
        if self.mended:
            await wg.cluster_sync()


@GROUP.kernel(
    "arrival-at-the-own-barrier",
    "empty[0] of CTA 0: 3 of 4 arrivals are missing in phase 0; arrived: consumer of CTA 0",
    "producer of CTA 0 waits with parity 0",
)
class ArrivalAtTheOwnBarrier(Broadcast):
    """The consumers arrive at the barrier at the same offset of their own CTA."""

    async def producer(self, wg):
        if wg.cta == 0:
            await super().producer(wg)

    async def wait(self, wg, stage):
        if wg.cta > 0:
            await wg.mbarrier_arrive_expect_tx(stage.full, stage.tile.nbytes)
        await super().wait(wg, stage)

    async def release(self, wg, stage):
        empty = stage.empty if self.wrong else await wg.mapa(stage.empty, 0)
        await wg.mbarrier_arrive(empty, scope=Scope.CLUSTER)


@GROUP.kernel(
    "wait-at-a-barrier-of-another-cta",
    "producer of CTA 1: mbarrier.try_wait.parity in cycle N: empty[0] is that of CTA 0",
    "must be in shared memory of the own CTA, 1",
)
class WaitAtABarrierOfAnotherCta(Broadcast):
    """Producers wait at the barrier of CTA 0, at which all consumers arrive, too."""

    async def acquire(self, wg, stage):
        await super().acquire(wg, stage)
        if self.wrong:
            stage = stage._replace(empty=await wg.mapa(stage.empty, 0))
            await super().acquire(wg, stage)


class Exchange(Broadcast):
    """Each CTA writes a tile, and stores that of the next CTA in y."""

    def smem(self, smem):
        super().smem(smem)
        self.tile = smem.tile("tile", (ROWS, COLUMNS), np.dtype(np.float16), SWIZZLE)
        self.out = smem.tile("out", (ROWS, COLUMNS), np.dtype(np.float16), SWIZZLE)

    def roles(self):
        return {"role": self.role}

    async def role(self, wg):
        own = slice(wg.cta * ROWS, (wg.cta + 1) * ROWS)
        await wg.stmatrix(self.tile, self.x.array[own])
        await self.meet(wg)
        await self.take(wg)
        await wg.fence_proxy_async()
        await wg.bar_sync(1, 128)
        await wg.cp_async_bulk_tensor_store(self.map_y, (0, wg.cta * ROWS), self.out)
        await wg.commit_group()
        await wg.wait_group(0)
        await wg.cluster_sync()  # others read the tile of this CTA

    async def meet(self, wg):
        await wg.cluster_sync()

    async def take(self, wg):
        """Copy the tile of the next CTA to ``out``."""
        tile = await wg.mapa(self.tile, (wg.cta + 1) % CTAS)
        await wg.stmatrix(self.out, await wg.ld_shared(tile))

    def check(self):
        return equal("y", self.y.array, np.roll(self.x.array, -ROWS, axis=0))


@GROUP.kernel(
    "tile-of-another-cta",
    "role of CTA 0: ld.shared of tile in cycle N, at 0x1400 of shared memory of CTA 1",
    "nothing orders it behind stmatrix of tile by role of CTA 1",
)
class TileOfAnotherCta(Exchange):
    """A CTA reads what another one writes, and only its own warps meet."""

    async def meet(self, wg):
        if self.wrong:
            await wg.bar_sync(1, 128)
        else:
            await super().meet(wg)


@GROUP.kernel(
    "relaxed-cluster-barrier",
    "role of CTA 0: ld.shared of tile in cycle N, at 0x1400 of shared memory of CTA 1",
    "the only synchronisation between them is too narrow: the arrival at barrier.cluster by role",
    "is relaxed; use scope .cluster, with release and acquire",
)
class RelaxedClusterBarrier(Exchange):
    """The CTAs meet by a relaxed arrival, which does not publish what they have written."""

    async def meet(self, wg):
        await wg.cluster_wait(await wg.cluster_arrive(relaxed=self.wrong))


@GROUP.kernel(
    "remote-stores-not-expected",
    "full[0] of CTA 3: phase 0 has all of its arrivals",
    "expect_tx is 2048 bytes too small: expect_tx: none; loads: request (st.async to out of CTA 3",
)
class RemoteStoresNotExpected(Exchange):
    """``st.async`` counts its bytes at a barrier of the receiver, which expects none."""

    async def take(self, wg):
        full = self.ring.full[0]
        if self.wrong:
            await wg.mbarrier_arrive(full)
        else:
            await wg.mbarrier_arrive_expect_tx(full, self.out.nbytes)
        own = await wg.ld_shared(self.tile)
        await wg.st_async((wg.cta - 1) % CTAS, self.out, own, full)
        await wg.mbarrier_try_wait_parity(full, 0, scope=Scope.CLUSTER)
