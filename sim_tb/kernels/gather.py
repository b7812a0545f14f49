"""Gather: rows of a matrix by a list of indices, four per request (Blackwell's gather4)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import AccessMode, Swizzle
from sim_tb.sm.check import Check, equal
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Kernel, kernel
from sim_tb.sm.options import option
from sim_tb.sm.pipeline import PipelineTmaAsync
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import Role, Warpgroup

TILE_ROWS, TILE_COLUMNS = 32, 32
ROWS = 4
"""Rows per request."""

OUTSIDE = -1
"""An index outside of the matrix. The unit fills this row with zeros."""

F32, INDEX = np.dtype(np.float32), np.dtype(np.int32)
SWIZZLE = Swizzle.SWIZZLE_128B
MOST_INDICES = 4096


@kernel("gather")
@dataclass
class Gather(Kernel):
    """out[i] = in[indices[i]] in float32 by gather4; zeros if there is no such row."""

    rows: int = option(500, "rows of the matrix")
    columns: int = option(72, "columns of the matrix")
    indices: int = option(
        150, "number of indices; the last four are outside of the matrix", ROWS, MOST_INDICES
    )
    stages: int = option(4, "stages of the ring")

    @property
    def unit_params(self) -> Mapping[str, Any]:
        """The gather4 mode, which Hopper does not have."""
        return {"gather4": True}

    @cached_property
    def index(self) -> NDArray[np.int32]:
        """List of indices: random, with repeats, the last four outside of the matrix."""
        index = self.rng("index").integers(0, self.rows, self.indices, INDEX)
        index[-ROWS:] = OUTSIDE, self.rows, OUTSIDE, self.rows + 1
        return index

    @property
    def padded(self) -> int:
        """Number of indices, rounded up to whole tiles."""
        return -(-self.indices // TILE_ROWS) * TILE_ROWS

    def host(self, device: Device) -> None:
        """Allocate the matrix, the padded list and the result, and encode the maps."""
        values = self.rng("in").standard_normal((self.rows, self.columns)).astype(F32)
        whole = np.full(self.padded, OUTSIDE, INDEX)
        whole[: self.indices] = self.index
        self.source, self.list = device.tensor("in", values), device.tensor("indices", whole)
        self.result = device.empty("out", (self.indices, self.columns), F32)
        self.map_in = device.tensor_map(self.source, (TILE_COLUMNS, 1), SWIZZLE)
        self.map_out = device.tensor_map(self.result, (TILE_COLUMNS, TILE_ROWS), SWIZZLE)

    def smem(self, smem: SmemLayout) -> None:
        """Allocate the list, the stages and the barriers."""
        self.index_tile = smem.tile("indices", (1, self.padded), INDEX)
        self.tiles = smem.tiles("rows", self.stages, (TILE_ROWS, TILE_COLUMNS), F32, SWIZZLE)
        self.pipeline = PipelineTmaAsync(smem.ring("", self.stages), self.tiles[0].nbytes)
        self.listed = smem.mbarrier("listed")

    def corners(self) -> Iterator[tuple[int, int]]:
        """Yield the first row and column of each tile of the result."""
        return product(range(0, self.indices, TILE_ROWS), range(0, self.columns, TILE_COLUMNS))

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers of the list and of the pipeline."""
        await wg.mbarrier_init(self.listed, 1)
        await self.pipeline.init(wg, 1)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return one role that gathers and one that stores."""
        return {"producer": self.producer, "storer": self.storer}

    async def producer(self, wg: Warpgroup) -> None:
        """Load the list of indices, and keep the stages filled with the rows that it names."""
        size = self.index_tile.nbytes
        await wg.mbarrier_arrive_expect_tx(self.listed, size)
        await wg.cp_async_bulk(self.index_tile, self.list.at(), size, self.listed)
        await wg.mbarrier_try_wait_parity(self.listed, 0)
        (index,) = await wg.ld_shared(self.index_tile)
        pipeline, state = self.pipeline, self.pipeline.producer_state()
        for row, column in self.corners():
            await pipeline.producer_acquire(wg, state)
            tile, full = self.tiles[state.index], pipeline.barrier(state)
            for i in range(0, TILE_ROWS, ROWS):
                coords = column, *(int(n) for n in index[row + i : row + i + ROWS])
                target = tile.rows(i, i + ROWS)
                await wg.cp_async_bulk_tensor(
                    target, self.map_in, coords, full, mode=AccessMode.TILE_GATHER4
                )
            state.advance()

    async def storer(self, wg: Warpgroup) -> None:
        """Store each stage, with one store in flight, and release it when the store has read it."""
        pipeline, state = self.pipeline, self.pipeline.consumer_state()
        released, in_flight = pipeline.consumer_state(), min(1, self.stages - 1)
        for row, column in self.corners():
            await pipeline.consumer_wait(wg, state)
            tile = self.tiles[state.index]
            await wg.cp_async_bulk_tensor_store(self.map_out, (column, row), tile)
            await wg.commit_group()
            state.advance()
            await wg.wait_group(in_flight, read=True)
            if state.count > in_flight:
                await pipeline.consumer_release(wg, released)
                released.advance()
        await wg.wait_group(0)

    def check(self) -> Check:
        """Compare the result with NumPy's, bit for bit."""
        inside = (self.index >= 0) & (self.index < self.rows)
        expected = np.where(inside[:, None], self.source.array[self.index * inside], F32.type(0))
        return equal("out", self.result.array, expected)
