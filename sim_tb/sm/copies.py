"""Requests to the unit: copies and reductions of tensors and of bytes, and their bulk groups."""

from collections.abc import Sequence

from golden import AccessMode, DataType, ReductionOp
from sim_tb.sm.device import GlobalPointer, TensorMapHandle
from sim_tb.sm.sanitizer import TrackedRequest
from sim_tb.sm.sm import Issuer
from sim_tb.sm.smem import Mbarrier, Tile


class CopyInstructions(Issuer):
    """The part of ``Warps`` that is about requests to the unit."""

    async def cp_async_bulk_tensor(
        self,
        tile: Tile,
        tensor_map: TensorMapHandle,
        coords: Sequence[int],
        barrier: Mbarrier,
        *,
        mode: AccessMode | None = None,
        im2col_offsets: Sequence[int] = (),
        cta_mask: int | None = None,
    ) -> None:
        """``cp.async.bulk.tensor``, global to shared memory.

        The box is written from the start of ``tile`` on. With ``cta_mask`` the instruction has
        ``.multicast::cluster``.
        """
        self.require(
            "cp.async.bulk.tensor",
            tile=(tile, Tile),
            tensor_map=(tensor_map, TensorMapHandle),
            barrier=(barrier, Mbarrier),
        )
        await self.issue(self.sm.costs.tma)
        sm, address = self.sm, tile.address
        text = f"cp.async.bulk.tensor of {tensor_map.name} at {tuple(coords)}"
        sm.sanitizer.use_map(self.tracked.elected, text, tensor_map.address, sm.env.not_before)
        plan = sm.device.plan(tensor_map, mode)
        receivers = [self.cta] if cta_mask is None else bits(cta_mask)
        request = self._request(text, plan.bytes(), tensor_map.address)
        sm.sanitizer.load(
            self.tracked.elected,
            request,
            receivers,
            address,
            plan.footprint,
            plan.descriptor.swizzle,
            barrier.address,
            sm.sanitizer.box(plan, coords, im2col_offsets),
        )
        request.number = sm.env.requests.load(
            tensor_map.address,
            coords,
            address,
            barrier.address,
            mode=plan.mode.name,
            im2col_info=im2col_offsets,
            cta_mask=cta_mask,
        )
        sm.load_bytes += plan.bytes() * len(receivers)

    async def cp_async_bulk(
        self, tile: Tile, source: GlobalPointer, size: int, barrier: Mbarrier
    ) -> None:
        """``cp.async.bulk``: ``size`` bytes from global memory to the start of ``tile``."""
        self.require(
            "cp.async.bulk",
            tile=(tile, Tile),
            source=(source, GlobalPointer),
            barrier=(barrier, Mbarrier),
        )
        await self.issue(self.sm.costs.tma)
        text = f"cp.async.bulk of {size} bytes at {source.address:#x}"
        self._check_range(text, source.address, size)
        request = self._request(text, size)
        self.sm.sanitizer.load(
            self.tracked.elected,
            request,
            [self.cta],
            tile.address,
            size,
            None,
            barrier.address,
            self.sm.sanitizer.bytes(source.address, size),
        )
        request.number = self.sm.env.requests.bulk_load(
            source.address, tile.address, size, barrier.address
        )
        self.sm.load_bytes += size

    async def cp_async_bulk_dsmem(
        self, cta: int, target: Tile, source: Tile, barrier: Mbarrier
    ) -> None:
        """``cp.async.bulk.shared::cluster.shared::cta``: ``source`` to ``target`` of another CTA.

        ``barrier`` is a barrier of the other CTA, which counts the bytes.
        """
        self.require(
            "cp.async.bulk.shared::cluster",
            target=(target, Tile),
            source=(source, Tile),
            barrier=(barrier, Mbarrier),
        )
        await self.issue(self.sm.costs.tma)
        size = source.nbytes
        text = f"cp.async.bulk of {source.name} to {target.name} of CTA {cta}"
        request = self._request(text, size)
        sanitizer, threads = self.sm.sanitizer, self.tracked.elected
        tracked = sanitizer.barrier_at(threads, text, cta, barrier.address, request.cycle)
        sanitizer.store(threads, request, source.address, size, None, tracked)
        sanitizer.load(threads, request, [cta], target.address, size, None, barrier.address)
        request.number = self.sm.env.requests.dsmem_copy(
            cta, target.address, source.address, size, barrier.address
        )

    async def prefetch_tensormap(self, tensor_map: TensorMapHandle) -> None:
        """``prefetch.tensormap``."""
        self.require("prefetch.tensormap", tensor_map=(tensor_map, TensorMapHandle))
        await self.issue(self.sm.costs.tma)
        await self.sm.until(self.ready_cycle)
        await self.sm.env.descriptors.prefetch(tensor_map.address)

    # Stores

    async def cp_async_bulk_tensor_store(
        self,
        tensor_map: TensorMapHandle,
        coords: Sequence[int],
        tile: Tile,
        *,
        mode: AccessMode | None = None,
    ) -> None:
        """``cp.async.bulk.tensor``, shared to global memory, ``.bulk_group``."""
        await self._store("cp.async.bulk.tensor", tensor_map, coords, tile, mode, None)

    async def cp_reduce_async_bulk_tensor(
        self,
        tensor_map: TensorMapHandle,
        coords: Sequence[int],
        tile: Tile,
        op: ReductionOp,
        *,
        mode: AccessMode | None = None,
    ) -> None:
        """``cp.reduce.async.bulk.tensor``."""
        await self._store("cp.reduce.async.bulk.tensor", tensor_map, coords, tile, mode, op)

    async def _store(
        self,
        instruction: str,
        tensor_map: TensorMapHandle,
        coords: Sequence[int],
        tile: Tile,
        mode: AccessMode | None,
        op: ReductionOp | None,
    ) -> None:
        self.require(instruction, tensor_map=(tensor_map, TensorMapHandle), tile=(tile, Tile))
        await self.issue(self.sm.costs.tma)
        sm = self.sm
        text = f"{instruction} to {tensor_map.name} at {tuple(coords)}"
        sm.sanitizer.use_map(self.tracked.elected, text, tensor_map.address, sm.env.not_before)
        plan = sm.device.plan(tensor_map, mode, store=True)
        request = self._request(text, tensor_map=tensor_map.address)
        sm.sanitizer.store(
            self.tracked.elected,
            request,
            tile.address,
            plan.footprint,
            plan.descriptor.swizzle,
            target=sm.sanitizer.box(plan, coords),
            reduces=op is not None,
        )
        request.number = sm.env.requests.store(
            tensor_map.address, coords, tile.address, mode=plan.mode.name, op=op, thread=self.thread
        )

    async def cp_async_bulk_store(self, target: GlobalPointer, tile: Tile, size: int) -> None:
        """``cp.async.bulk``, shared to global memory: ``size`` bytes from the start of ``tile``."""
        await self._bulk_store("cp.async.bulk", target, tile, size, None)

    async def cp_reduce_async_bulk(
        self, target: GlobalPointer, tile: Tile, size: int, data_type: DataType, op: ReductionOp
    ) -> None:
        """``cp.reduce.async.bulk``."""
        await self._bulk_store("cp.reduce.async.bulk", target, tile, size, (data_type, op))

    async def _bulk_store(
        self,
        instruction: str,
        target: GlobalPointer,
        tile: Tile,
        size: int,
        reduction: tuple[DataType, ReductionOp] | None,
    ) -> None:
        self.require(instruction, target=(target, GlobalPointer), tile=(tile, Tile))
        await self.issue(self.sm.costs.tma)
        text = f"{instruction} of {size} bytes to {target.address:#x}"
        self._check_range(text, target.address, size)
        request = self._request(text)
        self.sm.sanitizer.store(
            self.tracked.elected,
            request,
            tile.address,
            size,
            None,
            target=self.sm.sanitizer.bytes(target.address, size),
            reduces=reduction is not None,
        )
        request.number = self.sm.env.requests.bulk_store(
            target.address, tile.address, size, reduction=reduction, thread=self.thread
        )

    async def commit_group(self) -> None:
        """``cp.async.bulk.commit_group``."""
        self.sm.sanitizer.commit(self.tracked.elected)
        self.sm.env.not_before = self.ready_cycle
        self.sm.env.requests.commit_group(self.thread)

    async def wait_group(self, groups: int, *, read: bool = False) -> None:
        """``cp.async.bulk.wait_group``, with ``read`` ``.wait_group.read``."""
        self.sm.env.not_before = self.ready_cycle
        with self.span("wait read" if read else "wait group"):
            await self.sm.env.requests.wait_group(
                groups, read=read, thread=self.thread, timeout=None
            )
            await self.sm.until(self.ready_cycle)
        self.sm.sanitizer.group_wait_returned(
            self.tracked.elected, groups, self.sm.env.cycle, read=read
        )

    def _request(
        self, text: str, tx_bytes: int = 0, tensor_map: int | None = None
    ) -> TrackedRequest:
        cycle = self.sm.env.not_before
        request = TrackedRequest(None, text, self.cta, self.role, cycle, tx_bytes, tensor_map)
        self.sm.cluster.requests.append(request)
        return request

    def _check_range(self, text: str, address: int, size: int) -> None:
        access = f"{self.role}: {text} in cycle {self.sm.env.not_before}"
        self.sm.device.check_range(access, address, size)


def bits(mask: int) -> list[int]:
    """Return the numbers of the bits that are set."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]
