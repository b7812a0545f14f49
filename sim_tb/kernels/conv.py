"""Convolution as an implicit GEMM, like CUTLASS's fprop: pixels x filters, through im2col loads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from golden import Swizzle
from sim_tb.kernels.gemm import F32, stage_boxes
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Check, Kernel, equal, init_ring, kernel, option, specialized
from sim_tb.sm.sm import BF16, Role, Warp
from sim_tb.sm.smem import SmemLayout

TILE_M, TILE_N, TILE_K = 128, 64, 64
CONSUMERS = 2
ROWS = TILE_M // CONSUMERS
SWIZZLE = Swizzle.SWIZZLE_128B
BOX_COLUMNS = 32
"""Of a box of the output: its rows are as long as the swizzle's span, so a tile has two."""

LEAST_CORNER = -128
"""Of an im2col map of four dimensions."""

GREATEST = 4
"""Inputs are integers up to here: with the limits on the options no sum exceeds 2**24, and all are
exact in float32, in whatever order."""


@kernel("conv")
@dataclass
class Conv(Kernel):
    """Convolution of NHWC activations and KRSC filters, bf16 to float32: GEMM through im2col."""

    n: int = option(2, "images")
    h: int = option(14, "height")
    w: int = option(14, "width")
    c: int = option(64, "channels", 1, 4096)
    filters: int = option(80, "output channels")
    r: int = option(3, "height of a filter", 1, 16)
    s: int = option(3, "width of a filter", 1, 16)
    stride: int = option(1, "pixels from an output to the next, both ways", 1, 8)
    padding: int = option(1, "zeros on each side", 0, 127)
    dilation: int = option(1, "pixels from a filter's tap to the next, both ways")
    stages: int = option(4, "of the ring")

    @property
    def p(self) -> int:
        """Height of the output."""
        return self._output(self.h, self.r)

    @property
    def q(self) -> int:
        """Width of the output."""
        return self._output(self.w, self.s)

    def _output(self, extent: int, taps: int) -> int:
        return (extent + 2 * self.padding - (taps - 1) * self.dilation - 1) // self.stride + 1

    @property
    def flops(self) -> int:
        """Of the GEMM, padding included."""
        return 2 * self.n * self.p * self.q * self.filters * self.r * self.s * self.c

    def validate(self) -> None:
        """See that there is an output, and that the map's corners can say where taps begin."""
        super().validate()
        for extent, taps in (("h", "r"), ("w", "s")):
            reach = (getattr(self, taps) - 1) * self.dilation
            padded = getattr(self, extent) + 2 * self.padding
            if padded <= reach:
                raise ValueError(
                    f"{extent} = {padded - 2 * self.padding}: with padding it has {padded}, and "
                    f"the filter reaches over {reach + 1}"
                )
            if self.padding - reach < LEAST_CORNER:
                raise ValueError(
                    f"dilation = {self.dilation}: the upper corner, padding - ({taps} - 1) * "
                    f"dilation, is {self.padding - reach}: must be at least {LEAST_CORNER}"
                )

    def host(self, device: Device) -> None:
        """Tensors and maps; the box of the activations goes where a filter's first tap can be."""
        shapes = (self.n, self.h, self.w, self.c), (self.filters, self.r, self.s, self.c)
        self.x, self.f = (
            self.rng(name).integers(-GREATEST, GREATEST, shape, endpoint=True)
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
        """The stages, a staging buffer for each consumer, the barriers."""
        self.tile_x = smem.tiles("X", self.stages, (TILE_M, TILE_K), BF16, SWIZZLE)
        self.tile_f = smem.tiles("F", self.stages, (TILE_N, TILE_K), BF16, SWIZZLE)
        boxes = TILE_N // BOX_COLUMNS
        self.staging = [
            smem.tiles(f"staging {i}", boxes, (ROWS, BOX_COLUMNS), F32, SWIZZLE)
            for i in range(CONSUMERS)
        ]
        self.ring = smem.ring("", self.stages)

    def tiles(self) -> Iterator[tuple[int, int]]:
        """First pixel and first filter of each tile of the output."""
        return product(range(0, self.n * self.p * self.q, TILE_M), range(0, self.filters, TILE_N))

    def taps(self) -> Iterator[tuple[int, int, int]]:
        """Row, column and first channel of each step of k."""
        return product(range(self.r), range(self.s), range(0, self.c, TILE_K))

    async def prologue(self, warp: Warp) -> None:
        """Barriers."""
        await init_ring(warp, self.ring, CONSUMERS)

    def warps(self) -> Mapping[str, Role]:
        """One producer, two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, warp: Warp) -> None:
        """Keep the stages filled: the coordinates say where pixels begin, the offsets which tap."""
        await warp.setmaxnreg(40)
        ring = self.ring.steps()
        for pixel, k in self.tiles():
            row, q = divmod(pixel, self.q)
            image, p = divmod(row, self.p)
            w, h = q * self.stride - self.padding, p * self.stride - self.padding
            for (r, s, c), (stage, parity) in zip(self.taps(), ring, strict=False):
                x, f, full = self.tile_x[stage], self.tile_f[stage], self.ring.full[stage]
                tap = s * self.dilation, r * self.dilation
                await warp.mbarrier_try_wait_parity(self.ring.empty[stage], parity ^ 1)
                await warp.mbarrier_arrive_expect_tx(full, x.nbytes + f.nbytes)
                at = c, w, h, image
                await warp.cp_async_bulk_tensor(x, self.map_x, at, full, im2col_offsets=tap)
                await warp.cp_async_bulk_tensor(f, self.map_f, (c, s, r, k), full)

    async def consumer(self, number: int, warp: Warp) -> None:
        """Multiply half of the pixels of each tile, release the stages, and store."""
        await warp.setmaxnreg(232)
        ring, first = self.ring.steps(), number * ROWS
        for pixel, k in self.tiles():
            total = np.zeros((ROWS, TILE_N), F32)
            for _, (stage, parity) in zip(self.taps(), ring, strict=False):
                x, f = self.tile_x[stage].rows(first, first + ROWS), self.tile_f[stage]
                await warp.mbarrier_try_wait_parity(self.ring.full[stage], parity)
                await warp.wgmma(total, x, f)
                await warp.wgmma_commit_group()
                await warp.wgmma_wait_group(0)
                await warp.mbarrier_arrive(self.ring.empty[stage])
            await stage_boxes(warp, self.staging[number], total)
            for box, tile in enumerate(self.staging[number]):
                at = k + box * BOX_COLUMNS, pixel + first
                await warp.cp_async_bulk_tensor_store(self.map_y, at, tile)
            await warp.commit_group()
        await warp.wait_group(0)

    def check(self) -> Check:
        """Directly, in integers: for each tap, the pixels that it meets in the padded images."""
        around = (0, 0), (self.padding,) * 2, (self.padding,) * 2, (0, 0)
        padded = np.pad(self.x, around)
        y = np.zeros((self.n, self.p, self.q, self.filters), np.int64)
        for r, s in product(range(self.r), range(self.s)):
            rows = r * self.dilation + self.stride * np.arange(self.p)
            columns = s * self.dilation + self.stride * np.arange(self.q)
            y += padded[:, rows][:, :, columns] @ self.f[:, r, s].T
        return equal("Y", self.y.array, y.reshape(self.y.array.shape))
