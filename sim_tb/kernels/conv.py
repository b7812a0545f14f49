"""Convolution as an implicit GEMM of pixels and filters (CUTLASS's fprop), with im2col loads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from sim_tb.arithmetic.tensor_cores import BF16
from sim_tb.kernels.common import F32, SWIZZLE, multiply_stages, staging_buffers, store_tile
from sim_tb.sm.check import Check, equal
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Kernel, kernel, specialized
from sim_tb.sm.options import OptionError, option
from sim_tb.sm.pipeline import PipelineTmaAsync
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import Role, Warpgroup

TILE_M, TILE_N, TILE_K = 128, 64, 64
CONSUMERS = 2
ROWS = TILE_M // CONSUMERS
BOX_COLUMNS = 32
"""Columns of a box of the output: as long as the swizzle's span, so a tile has two boxes."""

LEAST_CORNER = -128
"""Least coordinate of a corner in an im2col map of four dimensions."""

GREATEST_INPUT = 4
"""Greatest magnitude of the inputs, which are integers.

With the limits on the options no sum exceeds 2**24, so all sums are exact in float32 in any order.
"""


@kernel("conv")
@dataclass
class Conv(Kernel):
    """Convolution of NHWC activations with KRSC filters, bf16 to float32: an im2col GEMM."""

    n: int = option(2, "images")
    h: int = option(14, "height")
    w: int = option(14, "width")
    c: int = option(64, "channels", 1, 4096)
    filters: int = option(80, "output channels")
    r: int = option(3, "height of a filter", 1, 16)
    s: int = option(3, "width of a filter", 1, 16)
    stride: int = option(
        1, "input pixels from one output pixel to the next, in both directions", 1, 8
    )
    padding: int = option(1, "zero pixels on each side", 0, 127)
    dilation: int = option(
        1, "input pixels from one tap of a filter to the next, in both directions"
    )
    stages: int = option(4, "stages of the ring")

    @property
    def p(self) -> int:
        """Height of the output."""
        return self._output_extent(self.h, self.r)

    @property
    def q(self) -> int:
        """Width of the output."""
        return self._output_extent(self.w, self.s)

    def _output_extent(self, extent: int, taps: int) -> int:
        return (extent + 2 * self.padding - (taps - 1) * self.dilation - 1) // self.stride + 1

    @property
    def flops(self) -> int:
        """Floating-point operations of the GEMM, those with padding included."""
        return 2 * self.n * self.p * self.q * self.filters * self.r * self.s * self.c

    def validate(self) -> None:
        """Check the limits, that the output is not empty, and that the corners fit into the map."""
        super().validate()
        for extent, taps in (("h", "r"), ("w", "s")):
            reach = (getattr(self, taps) - 1) * self.dilation
            padded = getattr(self, extent) + 2 * self.padding
            if padded <= reach:
                raise OptionError(
                    extent,
                    padded - 2 * self.padding,
                    f"the filter covers {reach + 1} pixels, but with padding there are only "
                    f"{padded}: must be at least {reach + 1 - 2 * self.padding}",
                )
            if self.padding - reach < LEAST_CORNER:
                most = (self.padding - LEAST_CORNER) // (getattr(self, taps) - 1)
                raise OptionError(
                    "dilation",
                    self.dilation,
                    f"the upper corner, padding - ({taps} - 1) * dilation, is "
                    f"{self.padding - reach}, below {LEAST_CORNER}: must be at most {most}",
                )

    def host(self, device: Device) -> None:
        """Allocate the tensors and encode their maps.

        The bounding box of the activations holds all positions of a filter's first tap.
        """
        shapes = (self.n, self.h, self.w, self.c), (self.filters, self.r, self.s, self.c)
        self.x, self.f = (
            self.rng(name).integers(-GREATEST_INPUT, GREATEST_INPUT, shape, endpoint=True)
            for name, shape in zip("xf", shapes, strict=True)
        )
        x, f = device.tensor("X", self.x.astype(BF16)), device.tensor("F", self.f.astype(BF16))
        corners = (
            (-self.padding, -self.padding),
            tuple(self.padding - (taps - 1) * self.dilation for taps in (self.s, self.r)),
        )
        steps = 1, self.stride, self.stride, 1
        box = TILE_K, TILE_M
        self.map_x = device.im2col_map(x, corners, box, SWIZZLE, element_strides=steps)
        self.map_f = device.tensor_map(f, (TILE_K, 1, 1, TILE_N), SWIZZLE)
        self.y = device.empty("Y", (self.n * self.p * self.q, self.filters), F32)
        self.map_y = device.tensor_map(self.y, (BOX_COLUMNS, ROWS), SWIZZLE)

    def smem(self, smem: SmemLayout) -> None:
        """Allocate the stages, a staging buffer for each consumer, and the barriers."""
        self.tile_x = smem.tiles("X", self.stages, (TILE_M, TILE_K), BF16, SWIZZLE)
        self.tile_f = smem.tiles("F", self.stages, (TILE_N, TILE_K), BF16, SWIZZLE)
        boxes = TILE_N // BOX_COLUMNS
        self.staging = staging_buffers(smem, CONSUMERS, boxes, (ROWS, BOX_COLUMNS), F32)
        stage_bytes = self.tile_x[0].nbytes + self.tile_f[0].nbytes
        self.pipeline = PipelineTmaAsync(smem.ring("", self.stages), stage_bytes)

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Yield the first pixel and the first filter of each tile of the output."""
        return product(range(0, self.n * self.p * self.q, TILE_M), range(0, self.filters, TILE_N))

    def k_steps(self) -> list[tuple[int, int, int]]:
        """Return row and column of the tap, and the first channel, of each step of k."""
        return list(product(range(self.r), range(self.s), range(0, self.c, TILE_K)))

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers of the pipeline."""
        await self.pipeline.init(wg, CONSUMERS)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return one producer and two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, wg: Warpgroup) -> None:
        """Keep the stages filled. Coordinates give the first pixel, im2col offsets give the tap."""
        await wg.setmaxnreg(40)
        pipeline, state = self.pipeline, self.pipeline.producer_state()
        for pixel, k in self.tiles():
            row, q = divmod(pixel, self.q)
            image, p = divmod(row, self.p)
            w, h = q * self.stride - self.padding, p * self.stride - self.padding
            for r, s, c in self.k_steps():
                await pipeline.producer_acquire(wg, state)
                full, stage = pipeline.barrier(state), state.index
                x, f = self.tile_x[stage], self.tile_f[stage]
                tap = s * self.dilation, r * self.dilation
                at = c, w, h, image
                await wg.cp_async_bulk_tensor(x, self.map_x, at, full, im2col_offsets=tap)
                await wg.cp_async_bulk_tensor(f, self.map_f, (c, s, r, k), full)
                state.advance()

    async def consumer(self, number: int, wg: Warpgroup) -> None:
        """Multiply half of the pixels of each tile, release the stages, and store."""
        await wg.setmaxnreg(232)
        pipeline, state = self.pipeline, self.pipeline.consumer_state()
        steps, first = len(self.k_steps()), number * ROWS
        operands = [
            (x.rows(first, first + ROWS), f) for x, f in zip(self.tile_x, self.tile_f, strict=True)
        ]
        for pixel, k in self.tiles():
            total = wg.accumulator(ROWS, TILE_N)
            await multiply_stages(wg, pipeline, operands, state, steps, total)
            values = total.values
            await store_tile(wg, self.staging[number], values, self.map_y, (k, pixel + first))
        await wg.wait_group(0)

    def check(self) -> Check:
        """Compare Y with a direct convolution in integers, tap by tap."""
        around = (0, 0), (self.padding,) * 2, (self.padding,) * 2, (0, 0)
        padded = np.pad(self.x, around)
        y = np.zeros((self.n, self.p, self.q, self.filters), np.int64)
        for r, s in product(range(self.r), range(self.s)):
            rows = r * self.dilation + self.stride * np.arange(self.p)
            columns = s * self.dilation + self.stride * np.arange(self.q)
            y += padded[:, rows][:, :, columns] @ self.f[:, r, s].T
        return equal("Y", self.y.array, y.reshape(self.y.array.shape))
