"""Transpose through swizzled tiles: rows come in, columns are read, rows go out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from golden import Swizzle
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Check, Kernel, equal, init_ring, kernel, option
from sim_tb.sm.sm import Role, Warp
from sim_tb.sm.smem import SmemLayout

TILE = 32
"""Rows and columns of a tile: a row is as long as the widest swizzle's span."""

BUFFERS = 2
"""Tiles on their way out."""

F32 = np.dtype(np.float32)
SWIZZLES = list(Swizzle)[:4]


@kernel("transpose")
@dataclass
class Transpose(Kernel):
    """out = in.T in float32, by swizzled tiles of 32 x 32: a producer and a warp that turns them.

    A warp that reads a column meets a bank 32 times over without swizzle, four times with 128B:
    eight rows then have their 16 bytes in different banks.
    """

    rows: int = option(200, "of the input")
    columns: int = option(136, "of the input")
    stages: int = option(4, "of the ring")
    swizzle: str = option("128B", "of the tiles: none, 32B, 64B or 128B")

    def validate(self) -> None:
        """See that there is such a swizzle, too."""
        super().validate()
        names = [swizzle.short_names[0] for swizzle in SWIZZLES]
        if self.swizzle.upper() not in names:
            raise ValueError(f"swizzle = {self.swizzle}: must be one of {', '.join(names)}")

    @property
    def width(self) -> int:
        """Columns of a box: a tile has as many boxes as its rows have spans."""
        return (Swizzle.member(self.swizzle).span or TILE * F32.itemsize) // F32.itemsize

    def host(self, device: Device) -> None:
        """Both matrices, their maps with boxes of a tile's rows."""
        values = self.rng("in").standard_normal((self.rows, self.columns)).astype(F32)
        self.source = device.tensor("in", values)
        self.result = device.empty("out", (self.columns, self.rows), F32)
        swizzle, box = Swizzle.member(self.swizzle), (self.width, TILE)
        self.map_in = device.tensor_map(self.source, box, swizzle)
        self.map_out = device.tensor_map(self.result, box, swizzle)

    def smem(self, smem: SmemLayout) -> None:
        """The boxes of each stage and of each buffer, the barriers."""
        swizzle, boxes, shape = Swizzle.member(self.swizzle), TILE // self.width, (TILE, self.width)
        self.tile_in = [
            smem.tiles(f"in {stage}", boxes, shape, F32, swizzle) for stage in range(self.stages)
        ]
        self.tile_out = [
            smem.tiles(f"out {buffer}", boxes, shape, F32, swizzle) for buffer in range(BUFFERS)
        ]
        self.ring = smem.ring("", self.stages)

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Row and column of each tile of the input."""
        return product(range(0, self.rows, TILE), range(0, self.columns, TILE))

    async def prologue(self, warp: Warp) -> None:
        """Barriers."""
        await init_ring(warp, self.ring, 1)

    def warps(self) -> Mapping[str, Role]:
        """One that loads, one that turns and stores."""
        return {"producer": self.producer, "turner": self.turner}

    async def producer(self, warp: Warp) -> None:
        """Keep the stages filled."""
        for (s, parity), (row, column) in zip(self.ring.steps(), self.tiles(), strict=False):
            full = self.ring.full[s]
            await warp.mbarrier_try_wait_parity(self.ring.empty[s], parity ^ 1)
            await warp.mbarrier_arrive_expect_tx(full, TILE * TILE * F32.itemsize)
            for box, tile in enumerate(self.tile_in[s]):
                coords = column + box * self.width, row
                await warp.cp_async_bulk_tensor(tile, self.map_in, coords, full)

    async def turner(self, warp: Warp) -> None:
        """Read the columns of a stage into registers, write them as rows of a buffer, store it."""
        for number, (row, column) in enumerate(self.tiles()):
            s, parity = number % self.stages, number // self.stages % 2
            await warp.mbarrier_try_wait_parity(self.ring.full[s], parity)
            parts = [await warp.ld_shared(tile, columns=True) for tile in self.tile_in[s]]
            await warp.mbarrier_arrive(self.ring.empty[s])
            turned = np.hstack(parts).T
            buffer = self.tile_out[number % BUFFERS]
            await warp.wait_group(BUFFERS - 1, read=True)
            for tile, values in zip(buffer, np.hsplit(turned, len(buffer)), strict=True):
                await warp.st_shared(tile, values)
            await warp.fence_proxy_async()
            for box, tile in enumerate(buffer):
                coords = row + box * self.width, column
                await warp.cp_async_bulk_tensor_store(self.map_out, coords, tile)
            await warp.commit_group()
        await warp.wait_group(0)

    def check(self) -> Check:
        """Bit for bit."""
        return equal("out", self.result.array, self.source.array.T)
