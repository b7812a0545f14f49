"""GEMM, warp-specialized and persistent: one producer, two consumers that share each tile of C."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from golden import L2Promotion, ReductionOp
from sim_tb.arithmetic.tensor_cores import BF16, multiply_accumulate
from sim_tb.kernels.common import (
    F32,
    SWIZZLE,
    Cue,
    Release,
    Values,
    multiply_stages,
    staging_buffers,
    store_tile,
)
from sim_tb.sm.accumulators import Accumulator
from sim_tb.sm.check import Check, equal
from sim_tb.sm.device import Device, Tensor, TensorMapHandle
from sim_tb.sm.kernel import Kernel, kernel, specialized
from sim_tb.sm.options import OptionError, option
from sim_tb.sm.pipeline import PipelineState, PipelineTmaAsync
from sim_tb.sm.sanitizer import Scope
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import Role, Warpgroup

TILE_M, TILE_N, TILE_K = 128, 128, 64
CONSUMERS = 2
ROWS = TILE_M // CONSUMERS
"""Rows of a tile of C per consumer."""

BOX_COLUMNS = 32
"""Columns of a box of C: its rows are as long as the swizzle's span, so a tile has four boxes."""

DEFAULT_M, DEFAULT_N, DEFAULT_K = 328, 200, 456
MOST_CTAS = 16


@dataclass(frozen=True)
class Grid:
    """CTAs of a cluster in rows and columns. Ranks go along the rows."""

    rows: int = 1
    columns: int = 1

    @classmethod
    def parse(cls, text: str) -> "Grid":
        """Return the grid of a text such as ``2x1``: two rows and one column.

        Raises
        ------
        OptionError
            If the text has another form, or the tiles cannot be shared evenly.
        """
        rows, _, columns = text.partition("x")
        if not (rows.isdecimal() and columns.isdecimal()):
            raise OptionError("cluster", text, "must be ROWSxCOLUMNS, such as 2x1")
        grid = cls(int(rows), int(columns))
        sizes = 1, 2, 4, 8
        if grid.rows not in sizes or grid.columns not in sizes or grid.ctas > MOST_CTAS:
            raise OptionError(
                "cluster",
                text,
                f"must be of 1, 2, 4 or 8 rows and columns, and of at most {MOST_CTAS} CTAs",
            )
        return grid

    @property
    def ctas(self) -> int:
        """Number of CTAs."""
        return self.rows * self.columns

    def place(self, cta: int) -> tuple[int, int]:
        """Return row and column of a rank."""
        return divmod(cta, self.columns)

    def of_row(self, cta: int) -> list[int]:
        """Return the ranks of the CTAs in the same row, itself included."""
        row, _ = self.place(cta)
        return [row * self.columns + column for column in range(self.columns)]

    def of_column(self, cta: int) -> list[int]:
        """Return the ranks of the CTAs in the same column, itself included."""
        _, column = self.place(cta)
        return [row * self.columns + column for row in range(self.rows)]

    def partners(self, cta: int) -> list[int]:
        """Return the ranks of the CTAs that share tiles with it, itself included."""
        return sorted({*self.of_row(cta), *self.of_column(cta)})


def consumer_rows(number: int) -> slice:
    """Return the rows of a tile that belong to consumer ``number``."""
    return slice(number * ROWS, (number + 1) * ROWS)


def mask_of(ctas: Sequence[int]) -> int | None:
    """Return the multicast mask of these ranks, or None for a single one."""
    return sum(1 << cta for cta in ctas) if len(ctas) > 1 else None


def matrix(name: str, path: str, shape: tuple[int | None, int | None]) -> NDArray[np.generic]:
    """Load a matrix from an .npy file, and convert it to bf16. None in ``shape``: any extent.

    Raises
    ------
    OptionError
        If the file holds no matrix of floats, or one of another shape.
    """
    try:
        with Path(path).open("rb") as file:
            values = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise OptionError(name, path, f"{error.strerror}") from error
    except (ValueError, MemoryError) as error:
        reason = "must be an .npy file with one matrix of floats, as numpy.save writes it"
        raise OptionError(name, path, reason) from error
    if values.dtype.kind == "V" and values.dtype.itemsize == BF16.itemsize:
        values = values.view(BF16)  # NumPy loads an array of an ml_dtypes type as raw bytes
    if values.ndim != 2 or not (values.dtype == BF16 or values.dtype.kind == "f"):
        found = f"a {values.dtype} array of shape {values.shape}"
        raise OptionError(name, path, f"{found}: must be a matrix of floats")
    for axis, (got, wanted) in enumerate(zip(values.shape, shape, strict=True)):
        if not got or wanted not in (None, got):
            limit = "at least 1" if wanted is None else wanted
            raise OptionError(name, path, f"shape {values.shape}: axis {axis} must be {limit}")
    return np.ascontiguousarray(values.astype(BF16))


def product_of(a: NDArray[np.generic], b: NDArray[np.generic], k_steps: range) -> Values:
    """Return a @ b.T over these steps of k.

    Sums are those of the tensor cores, which depend on the order of the steps. NumPy finds them,
    not the function with which a simulator multiplies.
    """
    total = np.zeros((len(a), len(b)), F32)
    for k in k_steps:
        part = slice(k, k + TILE_K)
        total = multiply_accumulate(a[:, part], b[:, part], total, compiled=False)
    return total


@dataclass
class GemmTiles(Kernel):
    """Shared memory, main loop and epilogue of all GEMMs.

    Members
    -------
    reduction : ReductionOp, optional
        Operation that combines a tile with C. None: the tile overwrites C.
    scope : Scope
        Scope at which stages are released.
    """

    reduction: ClassVar[ReductionOp | None] = None
    scope: ClassVar[Scope] = Scope.CTA

    stages: int = option(4, "stages of the ring")
    promotion: int = option(
        0, "instructions on each accumulator in each step, as kernels promote sums of FP8", 0
    )

    def smem(self, smem: SmemLayout) -> None:
        """Allocate the stages, a staging buffer for each consumer, and the barriers."""
        self.tile_a = smem.tiles("A", self.stages, (TILE_M, TILE_K), BF16, SWIZZLE)
        self.tile_b = smem.tiles("B", self.stages, (TILE_N, TILE_K), BF16, SWIZZLE)
        boxes = TILE_N // BOX_COLUMNS
        self.staging = staging_buffers(smem, CONSUMERS, boxes, (ROWS, BOX_COLUMNS), F32)
        stage_bytes = self.tile_a[0].nbytes + self.tile_b[0].nbytes
        self.pipeline = PipelineTmaAsync(smem.ring("", self.stages), stage_bytes, self.scope)

    async def load_stage(
        self,
        wg: Warpgroup,
        state: PipelineState,
        map_a: TensorMapHandle,
        map_b: TensorMapHandle,
        corner: tuple[int, int, int],
    ) -> None:
        """Load the tiles of A and B at row, column and k of ``corner`` into the next stage."""
        m, n, k = corner
        s, full = state.index, self.pipeline.barrier(state)
        await wg.cp_async_bulk_tensor(self.tile_a[s], map_a, (k, m), full)
        await wg.cp_async_bulk_tensor(self.tile_b[s], map_b, (k, n), full)
        state.advance()

    async def mainloop(
        self,
        wg: Warpgroup,
        state: PipelineState,
        k_steps: range,
        rows: slice,
        accumulator: Accumulator,
        *,
        release: Release | None = None,
        cue: Cue | None = None,
    ) -> None:
        """Multiply ``rows`` of the tiles of each step, and release the stages.

        ``cue`` is called when the last product has been issued, ``release`` when a stage has been
        read, in place of the pipeline's.

        One product may be in flight while the next is issued, unless there is only one stage, or
        the accumulators are promoted after each step.
        """
        await multiply_stages(
            wg,
            self.pipeline,
            [
                (a.rows(rows.start, rows.stop), b)
                for a, b in zip(self.tile_a, self.tile_b, strict=True)
            ],
            state,
            len(k_steps),
            accumulator,
            release=release,
            cue=cue,
            in_flight=0 if self.promotion else min(1, self.stages - 1),
            promotion=self.promotion,
        )

    async def epilogue(
        self,
        wg: Warpgroup,
        map_c: TensorMapHandle,
        number: int,
        rows: Values,
        corner: tuple[int, int],
    ) -> None:
        """Store rows of C from row and column ``corner`` on, through staging buffer ``number``."""
        m, n = corner
        await store_tile(wg, self.staging[number], rows, map_c, (n, m), self.reduction)


@dataclass
class GemmBase(GemmTiles):
    """C = A @ B.T: the host side, and the order of the tiles."""

    m: int | None = option(None, f"rows of A and C [{DEFAULT_M}]")
    n: int | None = option(None, f"rows of B, columns of C [{DEFAULT_N}]")
    k: int | None = option(None, f"columns of A and B [{DEFAULT_K}]")
    a: str = option("", "an .npy file with A")
    b: str = option("", "an .npy file with B")

    @property
    def options(self) -> dict[str, Any]:
        """Options by name, with M, N and K also where files or defaults decide them."""
        return {**super().options, "m": self.rows, "n": self.columns, "k": self.depth}

    @property
    def flops(self) -> int:
        """Floating-point operations of the whole product."""
        return 2 * self.rows * self.columns * self.depth

    @property
    def rows(self) -> int:
        """Rows of C."""
        return int(self.operands[0].shape[0])

    @property
    def columns(self) -> int:
        """Columns of C."""
        return int(self.operands[1].shape[0])

    @property
    def depth(self) -> int:
        """Columns of A and of B: the products per element of C."""
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
        """Check the limits, and that the rows of A and B are a legal stride of a tensor map."""
        super().validate()
        if self.depth % 8:
            name = "a" if self.a else "b" if self.b else "k"
            reason = (
                f"a row has {2 * self.depth} bytes, but strides of a tensor map are multiples of "
                "16 bytes: K must be a multiple of 8"
            )
            raise OptionError(name, getattr(self, name), reason)

    def host(self, device: Device) -> None:
        """Allocate the matrices and encode their maps."""
        a, b = self.operands
        self.tensor_a, self.tensor_b = device.tensor("A", a), device.tensor("B", b)
        self.c = device.empty("C", (self.rows, self.columns), F32)
        grid = self.grid
        # In a cluster, a CTA loads its share of a tile and multicasts it to the partners.
        self.share_a, self.share_b = TILE_M // grid.columns, TILE_N // grid.rows
        self.map_a = self._operand_map(device, self.tensor_a, self.share_a)
        self.map_b = self._operand_map(device, self.tensor_b, self.share_b)
        self.map_c = device.tensor_map(self.c, (BOX_COLUMNS, ROWS), SWIZZLE)

    @staticmethod
    def _operand_map(device: Device, tensor: Tensor, rows: int) -> TensorMapHandle:
        promotion = L2Promotion.L2_128B
        return device.tensor_map(tensor, (TILE_K, rows), SWIZZLE, l2_promotion=promotion)

    @property
    def grid(self) -> Grid:
        """Grid of the CTAs."""
        return Grid()

    def passes(self) -> list[range]:
        """Return the steps of k of each pass over C."""
        return [range(0, self.depth, TILE_K)]

    def tiles(self, cta: int = 0) -> Iterator[tuple[int, int, range]]:
        """Yield row, column and steps of k of each tile of C that a CTA computes."""
        grid = self.grid
        row, column = grid.place(cta)
        corners = product(
            range(0, self.rows, grid.rows * TILE_M), range(0, self.columns, grid.columns * TILE_N)
        )
        for k_steps, (m, n) in product(self.passes(), list(corners)):
            yield m + row * TILE_M, n + column * TILE_N, k_steps

    def steps(self, cta: int = 0) -> Iterator[tuple[int, int, int]]:
        """Yield row, column and k of each step of a CTA."""
        return ((m, n, k) for m, n, k_steps in self.tiles(cta) for k in k_steps)

    def check(self) -> Check:
        """Compare C with the combined results of the passes, bit for bit."""
        totals = [product_of(*self.operands, k_steps) for k_steps in self.passes()]
        return equal("C", self.c.array, self.combined(totals))

    def combined(self, totals: Sequence[Values]) -> Values:
        """Return C from the results of the passes."""
        return totals[0]


@kernel("gemm")
@dataclass
class Gemm(GemmBase):
    """C = A @ B.T in bf16: one producer, two consumers with half of each tile's rows."""

    scope: ClassVar[Scope] = Scope.CLUSTER

    cluster: str = option("1x1", "ROWSxCOLUMNS of CTAs, which share tiles by multicast")

    @property
    def grid(self) -> Grid:
        """Grid of the CTAs."""
        return Grid.parse(self.cluster)

    @property
    def ctas(self) -> int:
        """CTAs of the cluster."""
        return self.grid.ctas

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the pipeline: the consumers of all partners release a stage."""
        await self.pipeline.init(wg, CONSUMERS * len(self.grid.partners(wg.cta)))
        await wg.fence_mbarrier_init()
        await wg.cluster_sync()

    def roles(self) -> Mapping[str, Role]:
        """Return one producer and two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, wg: Warpgroup) -> None:
        """Load the CTA's share of each tile into the stages of all partners."""
        await wg.setmaxnreg(40)
        row, column = self.grid.of_row(wg.cta), self.grid.of_column(wg.cta)
        at_a, at_b = row.index(wg.cta) * self.share_a, column.index(wg.cta) * self.share_b
        pipeline, state = self.pipeline, self.pipeline.producer_state()
        for m, n, k in self.steps(wg.cta):
            await pipeline.producer_acquire(wg, state)
            s, full = state.index, pipeline.barrier(state)
            a = self.tile_a[s].rows(at_a, at_a + self.share_a)
            b = self.tile_b[s].rows(at_b, at_b + self.share_b)
            coords_a, coords_b = (k, m + at_a), (k, n + at_b)
            await wg.cp_async_bulk_tensor(a, self.map_a, coords_a, full, cta_mask=mask_of(row))
            await wg.cp_async_bulk_tensor(b, self.map_b, coords_b, full, cta_mask=mask_of(column))
            state.advance()
        await pipeline.producer_tail(wg, state)

    async def consumer(self, number: int, wg: Warpgroup) -> None:
        """Multiply half of the rows of each tile, release the stages, and store."""
        await wg.setmaxnreg(232)
        state, partners = self.pipeline.consumer_state(), self.grid.partners(wg.cta)

        async def release(wg: Warpgroup, state: PipelineState) -> None:
            await self.pipeline.consumer_release(wg, state, partners)

        for m, n, k_steps in self.tiles(wg.cta):
            total = wg.accumulator(ROWS, TILE_N)
            rows = consumer_rows(number)
            await self.mainloop(wg, state, k_steps, rows, total, release=release)
            await self.epilogue(wg, self.map_c, number, total.values, (m + rows.start, n))
        await wg.wait_group(0)
