"""GEMM, warp-specialized and persistent: one producer, two consumers that share each tile of C."""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from golden import L2Promotion, Swizzle
from sim_tb.sm.device import Device, Tensor
from sim_tb.sm.kernel import Check, Kernel, equal, init_ring, kernel, option, specialized
from sim_tb.sm.sm import BF16, Array, Role, Warp, wide
from sim_tb.sm.smem import SmemLayout, Tile

TILE_M, TILE_N, TILE_K = 128, 128, 64
CONSUMERS = 2
ROWS = TILE_M // CONSUMERS
SWIZZLE = Swizzle.SWIZZLE_128B
F32 = np.dtype(np.float32)
BOX_COLUMNS = 32
"""Of a box of C: its rows are as long as the swizzle's span, so a tile of C has several boxes."""

DEFAULT_M, DEFAULT_N, DEFAULT_K = 328, 200, 456
MOST_CTAS = 16

Total = NDArray[np.float32]
Steps = Iterator[tuple[int, int]]
Release = Callable[[Warp, int], Coroutine[None, None, None]]


@dataclass(frozen=True)
class Grid:
    """CTAs of a cluster in rows and columns; ranks go along the rows."""

    rows: int = 1
    columns: int = 1

    @classmethod
    def parse(cls, text: str) -> "Grid":
        """``2x1`` is two rows of one.

        Raises
        ------
        ValueError
            If it is nothing like that, or tiles cannot be shared evenly.
        """
        rows, _, columns = text.partition("x")
        if not (rows.isdecimal() and columns.isdecimal()):
            raise ValueError(f"cluster = {text}: must be ROWSxCOLUMNS, such as 2x1")
        grid = cls(int(rows), int(columns))
        sizes = 1, 2, 4, 8
        if grid.rows not in sizes or grid.columns not in sizes or grid.ctas > MOST_CTAS:
            raise ValueError(
                f"cluster = {text}: must be of 1, 2, 4 or 8 rows and columns, and of at most "
                f"{MOST_CTAS} CTAs"
            )
        return grid

    @property
    def ctas(self) -> int:
        """All of them."""
        return self.rows * self.columns

    def place(self, cta: int) -> tuple[int, int]:
        """Row and column of a rank."""
        return divmod(cta, self.columns)

    def of_row(self, cta: int) -> list[int]:
        """Ranks of the CTAs in its row, itself included."""
        row, _ = self.place(cta)
        return [row * self.columns + column for column in range(self.columns)]

    def of_column(self, cta: int) -> list[int]:
        """Ranks of the CTAs in its column, itself included."""
        _, column = self.place(cta)
        return [row * self.columns + column for row in range(self.rows)]

    def partners(self, cta: int) -> list[int]:
        """Ranks of the CTAs that share tiles with it, itself included."""
        return sorted({*self.of_row(cta), *self.of_column(cta)})


def half(number: int) -> slice:
    """The rows of a tile that a consumer has."""
    return slice(number * ROWS, (number + 1) * ROWS)


async def stage_boxes(warp: Warp, staging: Sequence[Tile], values: Array) -> None:
    """Put values into a staging buffer, box by box, when the unit has read what was in it."""
    await warp.wait_group(0, read=True)
    for box, tile in enumerate(staging):
        columns = tile.shape[1]
        await warp.stmatrix(tile, values[:, box * columns : (box + 1) * columns])
    await warp.fence_proxy_async()


def mask_of(ctas: Sequence[int]) -> int | None:
    """The multicast mask of these ranks; none of one alone."""
    return sum(1 << cta for cta in ctas) if len(ctas) > 1 else None


def matrix(name: str, path: str, shape: tuple[int | None, int | None]) -> NDArray[np.generic]:
    """A matrix in bf16 from a file; None of ``shape`` is any extent.

    Raises
    ------
    ValueError
        If the file is no matrix of floats, or of another shape than asked for.
    """
    try:
        values = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{name} = {path}: {error}") from error
    if values.dtype.kind == "V" and values.dtype.itemsize == BF16.itemsize:
        values = values.view(BF16)  # how NumPy loads what it saved of ml_dtypes
    if values.ndim != 2 or not (values.dtype == BF16 or values.dtype.kind == "f"):
        raise ValueError(
            f"{name} = {path}: a {values.dtype} array of shape {values.shape}: must be a matrix "
            "of floats"
        )
    for axis, (got, wanted) in enumerate(zip(values.shape, shape, strict=True)):
        if wanted is not None and got != wanted:
            raise ValueError(f"{name} = {path}: shape {values.shape}: axis {axis} must be {wanted}")
    return np.ascontiguousarray(values.astype(BF16))


def product_of(a: NDArray[np.generic], b: NDArray[np.generic], steps: range) -> Total:
    """Sum up a @ b.T over these steps of k, each in double and rounded once, as the tensor cores
    do.
    """
    wide_a, wide_b = wide(a), wide(b)
    total = np.zeros((len(a), len(b)), F32)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in steps:
            part = slice(k, k + TILE_K)
            np.add(total, wide_a[:, part] @ wide_b[:, part].T, out=total, casting="same_kind")
    return total


@dataclass
class GemmTiles(Kernel):
    """The shared memory of every GEMM here, its main loop, and its epilogue."""

    stages: int = option(4, "of the ring")
    promotion: int = option(
        0, "instructions on each accumulator in each step, as where FP8 sums are promoted", 0
    )

    def smem(self, smem: SmemLayout) -> None:
        """The stages, a staging buffer for each consumer, the barriers."""
        self.tile_a = smem.tiles("A", self.stages, (TILE_M, TILE_K), BF16, SWIZZLE)
        self.tile_b = smem.tiles("B", self.stages, (TILE_N, TILE_K), BF16, SWIZZLE)
        boxes = TILE_N // BOX_COLUMNS
        self.staging = [
            smem.tiles(f"staging {consumer}", boxes, (ROWS, BOX_COLUMNS), F32, SWIZZLE)
            for consumer in range(CONSUMERS)
        ]
        self.ring = smem.ring("", self.stages)

    @property
    def stage_bytes(self) -> int:
        """What the loads of a stage bring."""
        return self.tile_a[0].nbytes + self.tile_b[0].nbytes

    async def mainloop(
        self, warp: Warp, ring: Steps, steps: range, rows: slice, total: Total, release: Release
    ) -> None:
        """Multiply ``rows`` of each step's tiles, and release its stage when that is over: with the
        next product in flight, if there is another stage and nothing has to be done between.
        """
        held, in_flight = deque[int](), 0 if self.promotion else min(1, self.stages - 1)
        for _ in steps:
            s, parity = next(ring)
            await warp.mbarrier_try_wait_parity(self.ring.full[s], parity)
            await warp.wgmma(total, self.tile_a[s].rows(rows.start, rows.stop), self.tile_b[s])
            await warp.wgmma_commit_group()
            held.append(s)
            if len(held) > in_flight:
                await warp.wgmma_wait_group(in_flight)
                await release(warp, held.popleft())
            await warp.alu(total.size, self.promotion)
        await warp.wgmma_wait_group(0)
        for s in held:
            await release(warp, s)

    async def epilogue(
        self, warp: Warp, map_c: int, buffer: int, total: Total, m: int, n: int
    ) -> None:
        """Put ``total`` into a staging buffer, and have the unit move it to C."""
        await stage_boxes(warp, self.staging[buffer], total)
        for box, tile in enumerate(self.staging[buffer]):
            await self.move(warp, map_c, (n + box * BOX_COLUMNS, m), tile)
        await warp.commit_group()

    async def move(self, warp: Warp, map_c: int, coords: tuple[int, int], tile: Tile) -> None:
        """A box of results to C."""
        await warp.cp_async_bulk_tensor_store(map_c, coords, tile)


@dataclass
class GemmBase(GemmTiles):
    """C = A @ B.T: the host side, and the order of the work."""

    m: int | None = option(None, f"rows of A and C [{DEFAULT_M}]")
    n: int | None = option(None, f"rows of B, columns of C [{DEFAULT_N}]")
    k: int | None = option(None, f"columns of A and B [{DEFAULT_K}]")
    a: str = option("", "an .npy file with A")
    b: str = option("", "an .npy file with B")

    @property
    def flops(self) -> int:
        """Of the product."""
        return 2 * self.rows * self.columns * self.depth

    @property
    def rows(self) -> int:
        """Of C."""
        return int(self.operands[0].shape[0])

    @property
    def columns(self) -> int:
        """Of C."""
        return int(self.operands[1].shape[0])

    @property
    def depth(self) -> int:
        """The products that each element of C sums up."""
        return int(self.operands[0].shape[1])

    @cached_property
    def operands(self) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """A and B, from files or random."""
        k = self.k
        a = matrix("a", self.a, (self.m, k)) if self.a else None
        if a is not None:
            k = a.shape[1]
        b = matrix("b", self.b, (self.n, k)) if self.b else None
        if b is not None:
            k = b.shape[1]
        if a is None:
            a = self.rng("a").standard_normal((self.m or DEFAULT_M, k or DEFAULT_K)).astype(BF16)
        if b is None:
            b = self.rng("b").standard_normal((self.n or DEFAULT_N, k or DEFAULT_K)).astype(BF16)
        return a, b

    def validate(self) -> None:
        """See that rows are whole pieces, too."""
        super().validate()
        if self.depth % 8:
            raise ValueError(
                f"k = {self.depth}: a row has {2 * self.depth} bytes, and a tensor map's strides "
                "must be multiples of 16: k must be one of 8"
            )

    def host(self, device: Device) -> None:
        """Matrices and maps."""
        a, b = self.operands
        self.tensor_a, self.tensor_b = device.tensor("A", a), device.tensor("B", b)
        self.c = device.empty("C", (self.rows, self.columns), F32)
        grid = self.grid
        # In a cluster a CTA loads its share of a tile, and its share goes to all.
        self.share_a, self.share_b = TILE_M // grid.columns, TILE_N // grid.rows
        self.map_a = self._operand_map(device, self.tensor_a, self.share_a)
        self.map_b = self._operand_map(device, self.tensor_b, self.share_b)
        self.map_c = device.tensor_map(self.c, (BOX_COLUMNS, ROWS), SWIZZLE)

    @staticmethod
    def _operand_map(device: Device, tensor: Tensor, rows: int) -> int:
        promotion = L2Promotion.L2_128B
        return device.tensor_map(tensor, (TILE_K, rows), SWIZZLE, l2_promotion=promotion)

    @property
    def grid(self) -> Grid:
        """CTAs of the cluster."""
        return Grid()

    def passes(self) -> list[range]:
        """Steps of k, for each pass over C."""
        return [range(0, self.depth, TILE_K)]

    def tiles(self, cta: int = 0) -> Iterator[tuple[int, int, range]]:
        """Row and column of each tile of C that a CTA computes, and its steps of k."""
        grid = self.grid
        row, column = grid.place(cta)
        corners = product(
            range(0, self.rows, grid.rows * TILE_M), range(0, self.columns, grid.columns * TILE_N)
        )
        for steps, (m, n) in product(self.passes(), list(corners)):
            yield m + row * TILE_M, n + column * TILE_N, steps

    def steps(self, cta: int = 0) -> Iterator[tuple[int, int, int]]:
        """Row, column and k of each step."""
        return ((m, n, k) for m, n, steps in self.tiles(cta) for k in steps)

    def check(self) -> Check:
        """Of what the passes become."""
        totals = [product_of(*self.operands, steps) for steps in self.passes()]
        return equal("C", self.c.array, self.combined(totals))

    def combined(self, totals: Sequence[Total]) -> Total:
        """What becomes of the passes."""
        return totals[0]


@kernel("gemm")
@dataclass
class Gemm(GemmBase):
    """C = A @ B.T in bf16: one producer, two consumers with half of each tile's rows."""

    cluster: str = option("1x1", "ROWSxCOLUMNS of CTAs, which share tiles by multicast")

    @property
    def grid(self) -> Grid:
        """CTAs of the cluster."""
        return Grid.parse(self.cluster)

    @property
    def ctas(self) -> int:
        """Of its cluster."""
        return self.grid.ctas

    async def prologue(self, warp: Warp) -> None:
        """Barriers."""
        await init_ring(warp, self.ring, CONSUMERS * len(self.grid.partners(warp.cta)))

    def warps(self) -> Mapping[str, Role]:
        """One producer, two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, warp: Warp) -> None:
        """Keep the stages filled, those of the partners too."""
        await warp.setmaxnreg(40)
        row, column = self.grid.of_row(warp.cta), self.grid.of_column(warp.cta)
        at_a, at_b = row.index(warp.cta) * self.share_a, column.index(warp.cta) * self.share_b
        for (s, parity), (m, n, k) in zip(self.ring.steps(), self.steps(warp.cta), strict=False):
            full = self.ring.full[s]
            await warp.mbarrier_try_wait_parity(self.ring.empty[s], parity ^ 1)
            await warp.mbarrier_arrive_expect_tx(full, self.stage_bytes)
            a = self.tile_a[s].rows(at_a, at_a + self.share_a)
            b = self.tile_b[s].rows(at_b, at_b + self.share_b)
            coords_a, coords_b = (k, m + at_a), (k, n + at_b)
            await warp.cp_async_bulk_tensor(a, self.map_a, coords_a, full, cta_mask=mask_of(row))
            await warp.cp_async_bulk_tensor(b, self.map_b, coords_b, full, cta_mask=mask_of(column))

    async def consumer(self, number: int, warp: Warp) -> None:
        """Multiply half of the rows of each tile, release the stages, and store."""
        await warp.setmaxnreg(232)
        ring = self.ring.steps()
        for m, n, steps in self.tiles(warp.cta):
            total = np.zeros((ROWS, TILE_N), F32)
            await self.mainloop(warp, ring, steps, half(number), total, self.release)
            await self.epilogue(warp, self.map_c, number, total, m + number * ROWS, n)
        await warp.wait_group(0)

    async def release(self, warp: Warp, s: int) -> None:
        """The stage may be overwritten, by the partners too."""
        for cta in self.grid.partners(warp.cta):
            await warp.mbarrier_arrive(self.ring.empty[s], cta=cta)
