"""Gather: rows of a matrix by a list of indices, four a request (Blackwell's gather4)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import AccessMode, Swizzle
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Check, Kernel, equal, init_ring, kernel, option
from sim_tb.sm.sm import Role, Warp
from sim_tb.sm.smem import SmemLayout

TILE_ROWS, TILE_COLUMNS = 32, 32
ROWS = 4
"""Of a request."""

NOWHERE = -1
"""The index of no row: zeros come of it."""

F32, INDEX = np.dtype(np.float32), np.dtype(np.int32)
SWIZZLE = Swizzle.SWIZZLE_128B
MOST_INDICES = 4096


@kernel("gather")
@dataclass
class Gather(Kernel):
    """out[i] = in[indices[i]] in float32, zeros where there is no such row: gather4 and store."""

    rows: int = option(500, "of the matrix")
    columns: int = option(72, "of the matrix")
    indices: int = option(150, "how many; the last four are outside", ROWS, MOST_INDICES)
    stages: int = option(4, "of the ring")

    @property
    def unit(self) -> Mapping[str, Any]:
        """A mode that Hopper does not have."""
        return {"gather4": True}

    @cached_property
    def index(self) -> NDArray[np.int32]:
        """The list, with repeats, and in no order."""
        index = self.rng("index").integers(0, self.rows, self.indices, INDEX)
        index[-ROWS:] = NOWHERE, self.rows, NOWHERE, self.rows + 1
        return index

    @property
    def padded(self) -> int:
        """Length of the list in whole tiles."""
        return -(-self.indices // TILE_ROWS) * TILE_ROWS

    def host(self, device: Device) -> None:
        """The matrix, the list in whole tiles, the result, the maps."""
        values = self.rng("in").standard_normal((self.rows, self.columns)).astype(F32)
        whole = np.full(self.padded, NOWHERE, INDEX)
        whole[: self.indices] = self.index
        self.source, self.list = device.tensor("in", values), device.tensor("indices", whole)
        self.result = device.empty("out", (self.indices, self.columns), F32)
        self.map_in = device.tensor_map(self.source, (TILE_COLUMNS, 1), SWIZZLE)
        self.map_out = device.tensor_map(self.result, (TILE_COLUMNS, TILE_ROWS), SWIZZLE)

    def smem(self, smem: SmemLayout) -> None:
        """The list, the stages, the barriers."""
        self.index_tile = smem.tile("indices", (1, self.padded), INDEX)
        self.tiles = smem.tiles("rows", self.stages, (TILE_ROWS, TILE_COLUMNS), F32, SWIZZLE)
        self.ring = smem.ring("", self.stages)
        self.listed = smem.mbarrier("listed")

    def corners(self) -> Iterator[tuple[int, int]]:
        """First row and column of each tile of the result."""
        return product(range(0, self.indices, TILE_ROWS), range(0, self.columns, TILE_COLUMNS))

    async def prologue(self, warp: Warp) -> None:
        """Barriers."""
        await warp.mbarrier_init(self.listed, 1)
        await init_ring(warp, self.ring, 1)

    def warps(self) -> Mapping[str, Role]:
        """One that gathers, one that stores."""
        return {"producer": self.producer, "storer": self.storer}

    async def producer(self, warp: Warp) -> None:
        """Fetch the list, and keep the stages filled with the rows that it names."""
        size = self.index_tile.nbytes
        await warp.mbarrier_arrive_expect_tx(self.listed, size)
        await warp.cp_async_bulk(self.index_tile, self.list.address, size, self.listed)
        await warp.mbarrier_try_wait_parity(self.listed, 0)
        (index,) = await warp.ld_shared(self.index_tile)
        for (s, parity), (row, column) in zip(self.ring.steps(), self.corners(), strict=False):
            tile, full = self.tiles[s], self.ring.full[s]
            await warp.mbarrier_try_wait_parity(self.ring.empty[s], parity ^ 1)
            await warp.mbarrier_arrive_expect_tx(full, tile.nbytes)
            for i in range(0, TILE_ROWS, ROWS):
                coords = column, *(int(n) for n in index[row + i : row + i + ROWS])
                four = tile.rows(i, i + ROWS)
                await warp.cp_async_bulk_tensor(
                    four, self.map_in, coords, full, mode=AccessMode.TILE_GATHER4
                )

    async def storer(self, warp: Warp) -> None:
        """Store each stage as it is, and release it when it was read: with one store in flight."""
        for number, (row, column) in enumerate(self.corners()):
            s, parity = number % self.stages, number // self.stages % 2
            await warp.mbarrier_try_wait_parity(self.ring.full[s], parity)
            await warp.cp_async_bulk_tensor_store(self.map_out, (column, row), self.tiles[s])
            await warp.commit_group()
            in_flight = min(1, self.stages - 1)
            await warp.wait_group(in_flight, read=True)
            if number >= in_flight:
                await warp.mbarrier_arrive(self.ring.empty[(number - in_flight) % self.stages])
        await warp.wait_group(0)

    def check(self) -> Check:
        """Bit for bit."""
        inside = (self.index >= 0) & (self.index < self.rows)
        expected = np.where(inside[:, None], self.source.array[self.index * inside], F32.type(0))
        return equal("out", self.result.array, expected)
