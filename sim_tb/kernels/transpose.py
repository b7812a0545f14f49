"""Transpose through swizzled tiles: load rows, read columns, write and store them as rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from golden import Swizzle
from sim_tb.kernels.common import meet
from sim_tb.sm.check import Check, equal
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Kernel, kernel
from sim_tb.sm.options import OptionError, option
from sim_tb.sm.pipeline import PipelineTmaAsync
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import Role, Warpgroup

TILE = 32
"""Rows and columns of a tile. A row is as long as the span of the widest swizzle."""

BUFFERS = 2
"""Buffers for tiles that are being stored."""

F32 = np.dtype(np.float32)
SWIZZLES = list(Swizzle)[:4]


@kernel("transpose")
@dataclass
class Transpose(Kernel):
    """out = in.T in float32, by swizzled tiles of 32 x 32: one role loads, one transposes.

    A warp that reads a column without a swizzle accesses one bank 32 times. With swizzle 128B it
    accesses eight banks, each four times: the pieces of eight consecutive rows are in different
    banks.
    """

    rows: int = option(200, "rows of the input")
    columns: int = option(136, "columns of the input")
    stages: int = option(4, "stages of the ring")
    swizzle: str = option("128B", "swizzle of the tiles: none, 32B, 64B or 128B")

    def validate(self) -> None:
        """Check the limits, and the name of the swizzle."""
        super().validate()
        names = [swizzle.short_names[0] for swizzle in SWIZZLES]
        if self.swizzle.upper() not in names:
            raise OptionError("swizzle", self.swizzle, f"must be one of {', '.join(names)}")

    @property
    def width(self) -> int:
        """Columns of a box, whose rows are as long as the span of the swizzle."""
        return (Swizzle.member(self.swizzle).span or TILE * F32.itemsize) // F32.itemsize

    def host(self, device: Device) -> None:
        """Allocate both matrices and encode their maps."""
        values = self.rng("in").standard_normal((self.rows, self.columns)).astype(F32)
        self.source = device.tensor("in", values)
        self.result = device.empty("out", (self.columns, self.rows), F32)
        swizzle, box = Swizzle.member(self.swizzle), (self.width, TILE)
        self.map_in = device.tensor_map(self.source, box, swizzle)
        self.map_out = device.tensor_map(self.result, box, swizzle)

    def smem(self, smem: SmemLayout) -> None:
        """Allocate the boxes of each stage and of each buffer, and the barriers."""
        swizzle, boxes, shape = Swizzle.member(self.swizzle), TILE // self.width, (TILE, self.width)
        self.tile_in = [
            smem.tiles(f"in {stage}", boxes, shape, F32, swizzle) for stage in range(self.stages)
        ]
        self.tile_out = [
            smem.tiles(f"out {buffer}", boxes, shape, F32, swizzle) for buffer in range(BUFFERS)
        ]
        stage_bytes = TILE * TILE * F32.itemsize
        self.pipeline = PipelineTmaAsync(smem.ring("", self.stages), stage_bytes)

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Yield row and column of each tile of the input."""
        return product(range(0, self.rows, TILE), range(0, self.columns, TILE))

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers of the pipeline."""
        await self.pipeline.init(wg, 1)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return one role that loads and one that transposes and stores."""
        return {"producer": self.producer, "transposer": self.transposer}

    async def producer(self, wg: Warpgroup) -> None:
        """Keep the stages filled."""
        state = self.pipeline.producer_state()
        for row, column in self.tiles():
            await self.pipeline.producer_acquire(wg, state)
            full = self.pipeline.barrier(state)
            for box, tile in enumerate(self.tile_in[state.index]):
                coords = column + box * self.width, row
                await wg.cp_async_bulk_tensor(tile, self.map_in, coords, full)
            state.advance()

    async def transposer(self, wg: Warpgroup) -> None:
        """Read the columns of a stage, write them as rows of a buffer, and store the buffer."""
        state = self.pipeline.consumer_state()
        for row, column in self.tiles():
            await self.pipeline.consumer_wait(wg, state)
            stage = self.tile_in[state.index]
            parts = [await wg.ld_shared(tile, columns=True) for tile in stage]
            transposed = np.hstack(parts).T
            buffer = self.tile_out[state.count % BUFFERS]
            await wg.wait_group(BUFFERS - 1, read=True)
            await meet(wg)  # all warps have read the stage, and the buffer is free
            await self.pipeline.consumer_release(wg, state)
            state.advance()
            for tile, values in zip(buffer, np.hsplit(transposed, len(buffer)), strict=True):
                await wg.st_shared(tile, values)
            await wg.fence_proxy_async(shared_cta=True)
            await meet(wg)
            for box, tile in enumerate(buffer):
                coords = row + box * self.width, column
                await wg.cp_async_bulk_tensor_store(self.map_out, coords, tile)
            await wg.commit_group()
        await wg.wait_group(0)

    def check(self) -> Check:
        """Compare the result with NumPy's, bit for bit."""
        return equal("out", self.result.array, self.source.array.T)
