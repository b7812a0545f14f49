"""All-gather: the CTAs of a cluster pass their shards around a ring, through DSMEM."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Check, Kernel, equal, kernel, option
from sim_tb.sm.sm import Role, Warp
from sim_tb.sm.smem import PIECE_BYTES, SmemLayout

MOST_CTAS = 16


@kernel("all_gather")
@dataclass
class AllGather(Kernel):
    """Each CTA's row of the output gets the shards of all: a ring of bulk copies to the right.

    Shards go around in chunks. Of each chunk a CTA has a slot for every shard; that of step t came
    from the CTA t places to its left. A barrier a step counts what comes.
    """

    size: int = option(5040, "bytes of a shard, a multiple of 16", PIECE_BYTES)
    chunk: int = option(2048, "bytes of a shard that go around at once", PIECE_BYTES)
    cluster: int = option(4, "CTAs", 2, MOST_CTAS)

    @property
    def ctas(self) -> int:
        """Of its cluster."""
        return self.cluster

    def validate(self) -> None:
        """See that copies are whole pieces, too."""
        super().validate()
        for name, value in (("size", self.size), ("chunk", self.chunk)):
            if value % PIECE_BYTES:
                raise ValueError(f"{name} = {value}: must be a multiple of {PIECE_BYTES}")

    def host(self, device: Device) -> None:
        """The shards, and a row for each CTA."""
        values = self.rng("in").integers(0, 256, (self.ctas, self.size), np.uint8)
        self.source = device.tensor("in", values)
        self.result = device.empty("out", (self.ctas, self.ctas, self.size), np.uint8)

    def smem(self, smem: SmemLayout) -> None:
        """A slot for each shard, a barrier for each step."""
        shape = self.chunk // PIECE_BYTES, PIECE_BYTES
        self.slots = smem.tiles("shard", self.ctas, shape, np.uint8)
        self.arrived = smem.mbarriers("arrived", self.ctas)

    async def prologue(self, warp: Warp) -> None:
        """Barriers."""
        for barrier in self.arrived:
            await warp.mbarrier_init(barrier, 1)

    def warps(self) -> Mapping[str, Role]:
        """One."""
        return {"ring": self.ring}

    async def ring(self, warp: Warp) -> None:
        """Pass each chunk on to the right, and store it.

        ``barrier.cluster`` opens a chunk: all slots may be overwritten, all barriers expect their
        bytes. The last one keeps a CTA from leaving while its neighbour reads.
        """
        for number, start in enumerate(range(0, self.size, self.chunk)):
            size = min(self.chunk, self.size - start)
            for barrier in self.arrived:
                await warp.mbarrier_arrive_expect_tx(barrier, size)
            await warp.cluster_sync()
            await self.turn(warp, start, size, number % 2)
            await warp.wait_group(0, read=True)
        await warp.wait_group(0)
        await warp.cluster_sync()

    async def turn(self, warp: Warp, start: int, size: int, parity: int) -> None:
        """Once around: step 0 loads the own chunk, step t gets one from the left."""
        own = self.source.address + warp.cta * self.source.array.strides[0] + start
        await warp.cp_async_bulk(self.slots[warp.cta], own, size, self.arrived[0])
        for step in range(self.ctas):
            shard = (warp.cta - step) % self.ctas
            slot = self.slots[shard].rows(0, size // PIECE_BYTES)
            await warp.mbarrier_try_wait_parity(self.arrived[step], parity)
            if step + 1 < self.ctas:
                right = (warp.cta + 1) % self.ctas
                await warp.cp_async_bulk_dsmem(right, slot, slot, self.arrived[step + 1])
            row, column, _ = self.result.array.strides
            target = self.result.address + warp.cta * row + shard * column + start
            await warp.cp_async_bulk_store(target, slot, size)
        await warp.commit_group()

    def check(self) -> Check:
        """Bit for bit."""
        expected = np.broadcast_to(self.source.array, self.result.array.shape)
        return equal("out", self.result.array, expected)
