"""Accesses of threads to memory, the fences between proxies, and edits of tensor maps."""

import numpy as np

from golden import tensormap_replace
from sim_tb.sm.device import TensorMapHandle
from sim_tb.sm.pipes import SMEM_BYTES_PER_CLOCK
from sim_tb.sm.sm import Array, Issuer
from sim_tb.sm.smem import Tile


class MemoryInstructions(Issuer):
    """The part of ``Warps`` that is about memory."""

    async def fence_proxy_async(self, *, shared_cta: bool = False) -> None:
        """``fence.proxy.async``: the unit sees all writes that the warpgroup knows of.

        With ``shared_cta`` the instruction has ``.shared::cta``: it holds for shared memory of the
        own CTA only, which is all that threads write in this simulation, and takes less time.

        In this simulation the unit sees all writes at once, and the fence only takes its time. A
        kernel without it is wrong on silicon, and the sanitizer reports it.
        """
        costs = self.sm.costs
        cost = costs.fence_async_shared if shared_cta else costs.fence_async
        await self._execute("fence.proxy.async", cost)
        self.sm.sanitizer.fence_async(self.tracked.all, global_memory=not shared_cta)

    async def tensormap_replace(
        self, tensor_map: TensorMapHandle, field: str, value: int, index: int | None = None
    ) -> None:
        """``tensormap.replace.tile`` on a map in global memory."""
        self.require("tensormap.replace", tensor_map=(tensor_map, TensorMapHandle))
        await self._execute("tensormap.replace", self.sm.costs.replace(field))
        text = f"tensormap.replace of {field} by {self.role} in cycle {self.sm.env.cycle}"
        self.sm.sanitizer.replace_map(self.tracked.elected, tensor_map.address, text)
        words = self.sm.device.maps[tensor_map.address]
        words[:] = np.frombuffer(tensormap_replace(words.tobytes(), field, value, index), np.uint32)

    async def fence_proxy_tensormap(self, tensor_map: TensorMapHandle) -> None:
        """``fence.proxy.tensormap::generic.acquire``: the descriptor cache drops the map."""
        self.require("fence.proxy.tensormap", tensor_map=(tensor_map, TensorMapHandle))
        await self.issue(self.sm.costs.fence_tensormap.slots)
        least = self.sm.env.not_before + self.sm.costs.fence_tensormap.clocks
        with self.span("wait fence.proxy.tensormap"):
            await self.sm.until(self.ready_cycle)
            await self.sm.env.descriptors.invalidate(tensor_map.address)
            await self.sm.until(least)
        self.sm.sanitizer.acquire_map(self.tracked.all, tensor_map.address)

    async def fence_proxy_tensormap_release(self) -> None:
        """``fence.proxy.tensormap::generic.release.gpu``: others may acquire the changed maps."""
        await self.issue(self.sm.costs.fence_tensormap.slots)
        self.sm.sanitizer.release_map(self.tracked.elected)

    # Shared memory

    async def ldmatrix(self, tile: Tile) -> Array:
        """``ldmatrix`` of a whole tile; return its rows without the swizzle."""
        self.require("ldmatrix", tile=(tile, Tile))
        self.require_own("ldmatrix", tile)
        await self._smem("ldmatrix", tile, tile.matrix_wavefronts)
        return self._read("ldmatrix", tile)

    async def ld_shared(self, tile: Tile, *, columns: bool = False) -> Array:
        """``ld.shared`` of a whole tile; return its rows. A warp reads along a row or a column.

        After ``mapa`` it is ``ld.shared::cluster`` of another CTA.
        """
        self.require("ld.shared", tile=(tile, Tile))
        await self._smem("ld.shared", tile, tile.access_wavefronts(columns=columns))
        if tile.cta not in (None, self.cta):
            ready = self.sm.env.not_before + self.sm.costs.cluster_load
            with self.span("wait ld.shared::cluster"):
                await self.sm.until(ready)
        return self._read("ld.shared", tile, columns=columns)

    async def stmatrix(self, tile: Tile, values: Array) -> None:
        """``stmatrix`` of a whole tile. ``values`` are its rows without the swizzle."""
        self.require("stmatrix", tile=(tile, Tile))
        self.require_own("stmatrix", tile)
        self.sm.sanitizer.thread_write(self.all, "stmatrix", tile, self.sm.env.cycle)
        await self._smem("stmatrix", tile, tile.matrix_wavefronts)
        self.sm.write(tile, values)

    async def st_shared(self, tile: Tile, values: Array, *, columns: bool = False) -> None:
        """``st.shared`` of a whole tile. A warp writes along a row or a column.

        After ``mapa`` it is ``st.shared::cluster`` of another CTA.
        """
        self.require("st.shared", tile=(tile, Tile))
        cycle = self.sm.env.cycle
        self.sm.sanitizer.thread_write(
            self.all, "st.shared", tile, cycle, columns=columns, cta=tile.cta
        )
        await self._smem("st.shared", tile, tile.access_wavefronts(columns=columns))
        self.sm.of(tile.cta).write(tile, values)

    async def _smem(self, name: str, tile: Tile, wavefronts: int) -> None:
        ideal = -(-tile.nbytes // SMEM_BYTES_PER_CLOCK)
        self.sm.counters.bank_conflicts += max(0, wavefronts - ideal)
        await self._use(self.sm.smem_port, wavefronts, name)

    def _read(self, instruction: str, tile: Tile, *, columns: bool = False) -> Array:
        self.sm.sanitizer.thread_read(
            self.all, instruction, tile, self.sm.env.cycle, columns=columns, cta=tile.cta
        )
        self.sm.sanitizer.registers_written(self.all)
        return self.sm.of(tile.cta).read(tile)
