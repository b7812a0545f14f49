"""Grouped GEMM: products of any sizes in one kernel, which patches its tensor maps on the way."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from golden import L2Promotion
from sim_tb.kernels.gemm import (
    BOX_COLUMNS,
    CONSUMERS,
    F32,
    ROWS,
    SWIZZLE,
    TILE_K,
    TILE_M,
    TILE_N,
    GemmTiles,
    half,
    product_of,
)
from sim_tb.sm.device import Device, Tensor
from sim_tb.sm.kernel import Check, equal, init_ring, kernel, option, specialized
from sim_tb.sm.sm import BF16, Role, Warp
from sim_tb.sm.smem import SmemLayout

MAP_SETS = 2
"""Sets of tensor maps: one is patched while requests that use the other are in flight."""


@dataclass(frozen=True)
class Group:
    """One product, C = A @ B.T."""

    a: Tensor
    b: Tensor
    c: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """In the order of their maps."""
        return self.a, self.b, self.c

    @property
    def steps(self) -> range:
        """Of k."""
        return range(0, self.a.array.shape[1], TILE_K)

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Row and column of each tile of C."""
        rows, columns = self.c.array.shape
        return product(range(0, rows, TILE_M), range(0, columns, TILE_N))


@kernel("grouped_gemm")
@dataclass
class GroupedGemm(GemmTiles):
    """C = A @ B.T in bf16 for groups of sizes of their own: maps are patched from group to group.

    Whoever patches a set of maps waits until the consumers are done with the group that had it
    before, and so its loads and stores; who uses a map acquires it.
    """

    sizes: str = option("200,72x136x264,130", "M, MxN or MxNxK of each group")
    n: int = option(200, "rows of B, columns of C, where a group does not say")
    k: int = option(136, "columns of A and B, where a group does not say")

    @cached_property
    def shapes(self) -> list[tuple[int, int, int]]:
        """M, N and K of each group."""
        shapes = []
        for text in self.sizes.split(","):
            given = text.split("x")
            if len(given) > 3 or not all(part.isdecimal() and int(part) for part in given):
                raise ValueError(f"sizes = {self.sizes}: {text!r} must be M, MxN or MxNxK")
            m, n, k = [*map(int, given), *(self.n, self.k)[len(given) - 1 :]]
            shapes.append((m, n, k))
        return shapes

    @property
    def flops(self) -> int:
        """Of all products."""
        return sum(2 * m * n * k for m, n, k in self.shapes)

    def validate(self) -> None:
        """See that rows are whole pieces, too."""
        super().validate()
        for m, n, k in self.shapes:
            if k % 8:
                raise ValueError(
                    f"sizes = {self.sizes}: group {m}x{n}x{k}: a tensor map's strides must be "
                    "multiples of 16 bytes: K must be one of 8"
                )

    def host(self, device: Device) -> None:
        """The groups, and sets of maps that are whole but for what is patched."""
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
        """That of a GEMM, and the barriers of the maps."""
        super().smem(smem)
        self.map_ring = smem.ring("maps", MAP_SETS)

    async def prologue(self, warp: Warp) -> None:
        """Barriers."""
        for ring in (self.ring, self.map_ring):
            await init_ring(warp, ring, CONSUMERS)

    def warps(self) -> Mapping[str, Role]:
        """One producer, two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, warp: Warp) -> None:
        """Patch the maps for each group, and load its tiles."""
        await warp.setmaxnreg(40)
        ring = self.ring.steps()
        for (i, parity), group in zip(self.map_ring.steps(), self.groups, strict=False):
            map_a, map_b, _ = self.maps[i]
            await warp.mbarrier_try_wait_parity(self.map_ring.empty[i], parity ^ 1)
            for tensor_map, tensor in zip(self.maps[i], group.tensors, strict=True):
                await self.patch(warp, tensor_map, tensor)
            await warp.mbarrier_arrive(self.map_ring.full[i])
            await warp.fence_proxy_tensormap(map_a)
            await warp.fence_proxy_tensormap(map_b)
            for (m, n), k in product(group.tiles(), group.steps):
                s, stage_parity = next(ring)
                full = self.ring.full[s]
                await warp.mbarrier_try_wait_parity(self.ring.empty[s], stage_parity ^ 1)
                await warp.mbarrier_arrive_expect_tx(full, self.stage_bytes)
                await warp.cp_async_bulk_tensor(self.tile_a[s], map_a, (k, m), full)
                await warp.cp_async_bulk_tensor(self.tile_b[s], map_b, (k, n), full)

    async def patch(self, warp: Warp, tensor_map: int, tensor: Tensor) -> None:
        """Let a map describe another matrix; type, box and swizzle stay."""
        await warp.tensormap_replace(tensor_map, "global_address", tensor.address)
        for dim, extent in enumerate(tensor.global_dim):
            await warp.tensormap_replace(tensor_map, "global_dim", extent, dim)
        await warp.tensormap_replace(tensor_map, "global_stride", tensor.global_strides[0], 0)

    async def consumer(self, number: int, warp: Warp) -> None:
        """Multiply half of the rows of each tile, and store them with the group's map."""
        await warp.setmaxnreg(232)
        ring = self.ring.steps()
        for (i, parity), group in zip(self.map_ring.steps(), self.groups, strict=False):
            _, _, map_c = self.maps[i]
            await warp.mbarrier_try_wait_parity(self.map_ring.full[i], parity)
            await warp.fence_proxy_tensormap(map_c)
            for m, n in group.tiles():
                total = np.zeros((ROWS, TILE_N), F32)
                await self.mainloop(warp, ring, group.steps, half(number), total, self.release)
                await self.epilogue(warp, map_c, number, total, m + number * ROWS, n)
            await warp.wait_group(0)
            await warp.mbarrier_arrive(self.map_ring.empty[i])

    async def release(self, warp: Warp, s: int) -> None:
        """The stage may be overwritten."""
        await warp.mbarrier_arrive(self.ring.empty[s])

    def check(self) -> Check:
        """All groups: the first that is wrong, or all of them."""
        checks = [
            equal(
                group.c.name, group.c.array, product_of(group.a.array, group.b.array, group.steps)
            )
            for group in self.groups
        ]
        wrong = [check for check in checks if check.wrong]
        elements = sum(check.elements for check in checks)
        return wrong[0] if wrong else Check("C of every group", elements, 0.0, 0.0)
