"""All-gather: the CTAs of a cluster pass their shards around a ring through DSMEM."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sim_tb.sm.check import Check, equal
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Kernel, kernel
from sim_tb.sm.options import OptionError, option
from sim_tb.sm.smem import PIECE_BYTES, SmemLayout
from sim_tb.sm.warps import Role, Warpgroup

MOST_CTAS = 16


@kernel("all_gather")
@dataclass
class AllGather(Kernel):
    """Each CTA collects the shards of all CTAs: bulk copies to the right neighbour, in a ring.

    Shards go around the ring in chunks. A CTA has a slot in shared memory for the chunk of each
    shard. In step t it receives the shard of the CTA t places to its left. Each step has a barrier,
    which counts the received bytes.
    """

    size: int = option(5040, "bytes of a shard, a multiple of 16", PIECE_BYTES)
    chunk: int = option(2048, "bytes of a chunk, a multiple of 16", PIECE_BYTES)
    cluster: int = option(4, "CTAs of the cluster", 2, MOST_CTAS)

    @property
    def ctas(self) -> int:
        """CTAs of the cluster."""
        return self.cluster

    def validate(self) -> None:
        """Check the limits, and that copies consist of whole pieces."""
        super().validate()
        for name, value in (("size", self.size), ("chunk", self.chunk)):
            if value % PIECE_BYTES:
                raise OptionError(name, value, f"must be a multiple of {PIECE_BYTES}")

    def host(self, device: Device) -> None:
        """Allocate the shards, and a row of the output for each CTA."""
        values = self.rng("in").integers(0, 256, (self.ctas, self.size), np.uint8)
        self.source = device.tensor("in", values)
        self.result = device.empty("out", (self.ctas, self.ctas, self.size), np.uint8)

    def smem(self, smem: SmemLayout) -> None:
        """Allocate a slot for each shard and a barrier for each step."""
        shape = self.chunk // PIECE_BYTES, PIECE_BYTES
        self.slots = smem.tiles("shard", self.ctas, shape, np.uint8)
        self.arrived = smem.mbarriers("arrived", self.ctas)

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers of the steps."""
        for barrier in self.arrived:
            await wg.mbarrier_init(barrier, 1)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return the only role."""
        return {"ring": self.ring}

    async def ring(self, wg: Warpgroup) -> None:
        """Pass each chunk on to the right neighbour, and store it.

        A ``barrier.cluster`` precedes each chunk: after it, all slots may be overwritten and all
        barriers expect their bytes. Another one at the end keeps each CTA alive while its
        neighbour reads its shared memory.
        """
        for number, start in enumerate(range(0, self.size, self.chunk)):
            size = min(self.chunk, self.size - start)
            for barrier in self.arrived:
                await wg.mbarrier_arrive_expect_tx(barrier, size)
            await wg.cluster_sync()
            await self.pass_chunk(wg, start, size, number % 2)
            await wg.wait_group(0, read=True)
        await wg.wait_group(0)
        await wg.cluster_sync()

    async def pass_chunk(self, wg: Warpgroup, start: int, size: int, parity: int) -> None:
        """Pass a chunk of all shards around the ring.

        Step 0 loads the CTA's own chunk. Each later step receives a chunk from the left neighbour.
        """
        own = self.source.at(wg.cta, start)
        await wg.cp_async_bulk(self.slots[wg.cta], own, size, self.arrived[0])
        for step in range(self.ctas):
            shard = (wg.cta - step) % self.ctas
            slot = self.slots[shard].rows(0, size // PIECE_BYTES)
            await wg.mbarrier_try_wait_parity(self.arrived[step], parity)
            if step + 1 < self.ctas:
                right = (wg.cta + 1) % self.ctas
                await wg.cp_async_bulk_dsmem(right, slot, slot, self.arrived[step + 1])
            target = self.result.at(wg.cta, shard, start)
            await wg.cp_async_bulk_store(target, slot, size)
        await wg.commit_group()

    def check(self) -> Check:
        """Compare the result with NumPy's, bit for bit."""
        expected = np.broadcast_to(self.source.array, self.result.array.shape)
        return equal("out", self.result.array, expected)
