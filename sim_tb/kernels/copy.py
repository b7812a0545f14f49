"""The smallest kernel: y = x, through a ring of two stages."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from golden import Swizzle
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Check, Kernel, equal, kernel, option
from sim_tb.sm.sm import Role, Warp
from sim_tb.sm.smem import SmemLayout

F32 = np.dtype(np.float32)


@kernel("copy")
@dataclass
class Copy(Kernel):
    """y = x, tile by tile, without a thread that touches the data."""

    rows: int = option(200, "of x and y")

    def host(self, device: Device) -> None:
        """Tensors and maps."""
        x = self.rng("x").standard_normal((self.rows, 32)).astype(F32)
        self.x, self.y = device.tensor("x", x), device.empty("y", x.shape, F32)
        self.map_x = device.tensor_map(self.x, (32, 64), Swizzle.SWIZZLE_128B)
        self.map_y = device.tensor_map(self.y, (32, 64), Swizzle.SWIZZLE_128B)

    def smem(self, smem: SmemLayout) -> None:
        """Two stages."""
        self.tile = smem.tiles("tile", 2, (64, 32), F32, Swizzle.SWIZZLE_128B)
        self.ring = smem.ring("", 2)

    async def prologue(self, warp: Warp) -> None:
        """Barriers."""
        for barrier in (*self.ring.full, *self.ring.empty):
            await warp.mbarrier_init(barrier, 1)

    def warps(self) -> Mapping[str, Role]:
        """One loads, one stores."""
        return {"producer": self.producer, "consumer": self.consumer}

    async def producer(self, warp: Warp) -> None:
        """Fill stages that are empty."""
        for row, (s, parity) in zip(range(0, self.rows, 64), self.ring.steps(), strict=False):
            await warp.mbarrier_try_wait_parity(self.ring.empty[s], parity ^ 1)
            await warp.mbarrier_arrive_expect_tx(self.ring.full[s], self.tile[s].nbytes)
            await warp.cp_async_bulk_tensor(self.tile[s], self.map_x, (0, row), self.ring.full[s])

    async def consumer(self, warp: Warp) -> None:
        """Store stages that are full, and release them when they are read."""
        for row, (s, parity) in zip(range(0, self.rows, 64), self.ring.steps(), strict=False):
            await warp.mbarrier_try_wait_parity(self.ring.full[s], parity)
            await warp.cp_async_bulk_tensor_store(self.map_y, (0, row), self.tile[s])
            await warp.commit_group()
            await warp.wait_group(0, read=True)
            await warp.mbarrier_arrive(self.ring.empty[s])
        await warp.wait_group(0)

    def check(self) -> Check:
        """Bit for bit."""
        return equal("y", self.y.array, self.x.array)
