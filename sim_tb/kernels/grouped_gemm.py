"""Grouped GEMM: products of different sizes in one kernel, which patches its tensor maps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from golden import L2Promotion
from sim_tb.arithmetic.tensor_cores import BF16
from sim_tb.kernels.common import F32, SWIZZLE
from sim_tb.kernels.gemm import (
    BOX_COLUMNS,
    CONSUMERS,
    ROWS,
    TILE_K,
    TILE_M,
    TILE_N,
    GemmTiles,
    consumer_rows,
    product_of,
)
from sim_tb.sm.check import Check, equal
from sim_tb.sm.device import Device, Tensor, TensorMapHandle
from sim_tb.sm.kernel import kernel, specialized
from sim_tb.sm.options import OptionError, option
from sim_tb.sm.pipeline import PipelineAsync
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import Role, Warpgroup

MAP_SETS = 2
"""Sets of tensor maps. One set is patched while requests use the other one."""


@dataclass(frozen=True)
class Group:
    """Tensors of one product, C = A @ B.T."""

    a: Tensor
    b: Tensor
    c: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """A, B and C, in the order of their maps in a set."""
        return self.a, self.b, self.c

    @property
    def k_steps(self) -> range:
        """Steps of k."""
        return range(0, self.a.array.shape[1], TILE_K)

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Yield row and column of each tile of C."""
        rows, columns = self.c.array.shape
        return product(range(0, rows, TILE_M), range(0, columns, TILE_N))


@kernel("grouped_gemm")
@dataclass
class GroupedGemm(GemmTiles):
    """C = A @ B.T in bf16 for groups of different sizes: the maps are patched for each group.

    The producer patches a set of maps when the consumers have released it, that is, when all loads
    and stores of the group that used the set are complete. Each role acquires the maps that it
    uses.
    """

    sizes: str = option("200,72x136x264,130", "M, MxN or MxNxK of each group")
    n: int = option(200, "rows of B and columns of C, of groups without N")
    k: int = option(136, "columns of A and B, of groups without K")

    @cached_property
    def shapes(self) -> list[tuple[int, int, int]]:
        """M, N and K of each group."""
        shapes = []
        for text in self.sizes.split(","):
            extents = text.split("x")
            if len(extents) > 3 or not all(part.isdecimal() and int(part) for part in extents):
                raise OptionError("sizes", self.sizes, f"{text!r}: must be M, MxN or MxNxK")
            m, n, k = [*map(int, extents), *(self.n, self.k)[len(extents) - 1 :]]
            shapes.append((m, n, k))
        return shapes

    @property
    def flops(self) -> int:
        """Floating-point operations of all products."""
        return sum(2 * m * n * k for m, n, k in self.shapes)

    def validate(self) -> None:
        """Check the limits, and that the rows of A and B are a legal stride of a tensor map."""
        super().validate()
        for m, n, k in self.shapes:
            if k % 8:
                raise OptionError(
                    "sizes",
                    self.sizes,
                    f"group {m}x{n}x{k}: K must be a multiple of 8, because strides of a tensor "
                    "map are multiples of 16 bytes",
                )

    def host(self, device: Device) -> None:
        """Allocate the groups, and encode the sets of maps for the first group."""
        self.groups = []
        for number, (m, n, k) in enumerate(self.shapes):
            a, b = (
                self.rng(f"{name}{number}").standard_normal((rows, k)).astype(BF16)
                for name, rows in (("a", m), ("b", n))
            )
            tensors = device.tensor(f"A{number}", a), device.tensor(f"B{number}", b)
            self.groups.append(Group(*tensors, device.empty(f"C{number}", (m, n), F32)))
        promotion = L2Promotion.L2_128B
        a_rows, b_rows = (TILE_K, TILE_M), (TILE_K, TILE_N)
        first = self.groups[0]
        self.maps = [
            (
                device.tensor_map(first.a, a_rows, SWIZZLE, l2_promotion=promotion),
                device.tensor_map(first.b, b_rows, SWIZZLE, l2_promotion=promotion),
                device.tensor_map(first.c, (BOX_COLUMNS, ROWS), SWIZZLE),
            )
            for _ in range(MAP_SETS)
        ]

    def smem(self, smem: SmemLayout) -> None:
        """Allocate the memory of a GEMM, and a ring of barriers for the sets of maps."""
        super().smem(smem)
        self.map_pipeline = PipelineAsync(smem.ring("maps", MAP_SETS))

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers of both pipelines."""
        for pipeline in (self.pipeline, self.map_pipeline):
            await pipeline.init(wg, CONSUMERS)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return one producer and two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, wg: Warpgroup) -> None:
        """Patch a set of maps for each group, and load the tiles of the group."""
        await wg.setmaxnreg(40)
        state, map_state = self.pipeline.producer_state(), self.map_pipeline.producer_state()
        for group in self.groups:
            map_a, map_b, _ = maps = self.maps[map_state.index]
            await self.map_pipeline.producer_acquire(wg, map_state)
            for tensor_map, tensor in zip(maps, group.tensors, strict=True):
                await self.patch(wg, tensor_map, tensor)
            await wg.fence_proxy_tensormap_release()
            await self.map_pipeline.producer_commit(wg, map_state)
            map_state.advance()
            await wg.fence_proxy_tensormap(map_a)
            await wg.fence_proxy_tensormap(map_b)
            for (m, n), k in product(group.tiles(), group.k_steps):
                await self.pipeline.producer_acquire(wg, state)
                await self.load_stage(wg, state, map_a, map_b, (m, n, k))

    async def patch(self, wg: Warpgroup, tensor_map: TensorMapHandle, tensor: Tensor) -> None:
        """Change a map so that it describes another matrix of the same type, box and swizzle."""
        await wg.tensormap_replace(tensor_map, "global_address", tensor.address)
        for dim, extent in enumerate(tensor.global_dim):
            await wg.tensormap_replace(tensor_map, "global_dim", extent, dim)
        await wg.tensormap_replace(tensor_map, "global_stride", tensor.global_strides[0], 0)

    async def consumer(self, number: int, wg: Warpgroup) -> None:
        """Multiply half of the rows of each tile, and store them with the map of the group."""
        await wg.setmaxnreg(232)
        state, map_state = self.pipeline.consumer_state(), self.map_pipeline.consumer_state()
        rows = consumer_rows(number)
        for group in self.groups:
            _, _, map_c = self.maps[map_state.index]
            await self.map_pipeline.consumer_wait(wg, map_state)
            await wg.fence_proxy_tensormap(map_c)
            for m, n in group.tiles():
                total = wg.accumulator(ROWS, TILE_N)
                await self.mainloop(wg, state, group.k_steps, rows, total)
                await self.epilogue(wg, map_c, number, total.values, (m + rows.start, n))
            await wg.wait_group(0)
            await self.map_pipeline.consumer_release(wg, map_state)
            map_state.advance()

    def check(self) -> Check:
        """Compare C of each group; return the first wrong one, or one check for all groups."""
        checks = [
            equal(
                group.c.name, group.c.array, product_of(group.a.array, group.b.array, group.k_steps)
            )
            for group in self.groups
        ]
        wrong = [check for check in checks if check.wrong]
        elements = sum(check.elements for check in checks)
        return wrong[0] if wrong else Check("C of every group", elements, 0.0, 0.0)
