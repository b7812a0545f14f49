"""Instructions on shared memory of other CTAs: ``mapa``, copies, ``st.async`` and ``red.async``."""

from typing import TypeVar

import numpy as np

from golden import DataType, ReductionOp
from sim_tb.sm.errors import KernelError, described
from sim_tb.sm.sm import Array, Issuer
from sim_tb.sm.smem import PIECE_BYTES, Mbarrier, Tile

STORE_BYTES = 4, 8, PIECE_BYTES
"""Bytes that ``st.async`` stores: ``.b32``, ``.b64`` and ``.v4.b32``."""

Handle = TypeVar("Handle", Tile, Mbarrier)


class ClusterInstructions(Issuer):
    """The part of ``Warps`` that is about shared memory of other CTAs of the cluster."""

    async def mapa(self, handle: Handle, cta: int) -> Handle:
        """``mapa``: return the tile or barrier at the same place of another CTA.

        Raises
        ------
        KernelError
            If the cluster has no such CTA.
        """
        if not 0 <= cta < self.sm.cluster.ctas:
            raise KernelError(
                f"{self.role}: mapa of {handle.name} in cycle {self.sm.env.cycle}: CTA {cta}: must "
                f"be from 0 to {self.sm.cluster.ctas - 1}, a rank in the cluster"
            )
        await self.issue(self.sm.costs.mapa)
        return handle.at(cta)

    async def cp_async_bulk_dsmem(
        self, cta: int, target: Tile, source: Tile, barrier: Mbarrier
    ) -> None:
        """``cp.async.bulk.shared::cluster.shared::cta``: ``source`` to ``target`` of another CTA.

        ``barrier`` is a barrier of the other CTA, which counts the bytes.
        """
        await self._dsmem("cp.async.bulk", cta, target, source, barrier, None)

    async def cp_reduce_async_bulk_dsmem(
        self,
        cta: int,
        target: Tile,
        source: Tile,
        barrier: Mbarrier,
        data_type: DataType,
        op: ReductionOp,
    ) -> None:
        """``cp.reduce.async.bulk.shared::cluster.shared::cta``: ``target`` = ``op`` with it."""
        instruction = "cp.reduce.async.bulk"
        await self._dsmem(instruction, cta, target, source, barrier, (data_type, op))

    async def _dsmem(
        self,
        instruction: str,
        cta: int,
        target: Tile,
        source: Tile,
        barrier: Mbarrier,
        reduction: tuple[DataType, ReductionOp] | None,
    ) -> None:
        self.require(
            f"{instruction}.shared::cluster",
            target=(target, Tile),
            source=(source, Tile),
            barrier=(barrier, Mbarrier),
        )
        self.require_own(instruction, source)
        self._require_reduction(instruction, reduction)
        await self.issue(self.sm.costs.tma)
        size, sanitizer = source.nbytes, self.sm.sanitizer
        text = f"{instruction} of {source.name} to {target.name} of CTA {cta}"
        request = self._request(text, size)
        tracked = sanitizer.barrier_at(self.elected, text, cta, barrier.address, request.cycle)
        sanitizer.store(self.elected, request, source.address, size, None, tracked)
        sanitizer.load(
            self.elected,
            request,
            [cta],
            target.address,
            size,
            None,
            barrier.address,
            reduces=reduction is not None,
        )
        request.number = self.sm.env.requests.dsmem_copy(
            cta, target.address, source.address, size, barrier.address, reduction=reduction
        )

    async def st_async(self, cta: int, target: Tile, values: Array, barrier: Mbarrier) -> None:
        """``st.async.shared::cluster``: write ``values`` to ``target`` of another CTA.

        The threads share the values out, 16 bytes each (``.v4.b32``), or 4 or 8 bytes if there are
        no more. ``barrier`` of that CTA counts the bytes.
        """
        await self._asynchronously("st.async", cta, target, values, barrier, None)

    async def red_async(
        self, cta: int, target: Tile, values: Array, op: ReductionOp, barrier: Mbarrier
    ) -> None:
        """``red.async.shared::cluster``: combine ``values`` with ``target`` of another CTA.

        Each thread has one value. ``barrier`` of that CTA counts the bytes.
        """
        await self._asynchronously("red.async", cta, target, values, barrier, op)

    async def _asynchronously(
        self,
        instruction: str,
        cta: int,
        target: Tile,
        values: Array,
        barrier: Mbarrier,
        op: ReductionOp | None,
    ) -> None:
        self.require(instruction, target=(target, Tile), barrier=(barrier, Mbarrier))
        sm, size = self.sm, target.nbytes
        about = f"{self.role}: {instruction} to {target.name} in cycle {sm.env.cycle}"
        target.check_values(about, values)
        element = target.dtype.itemsize
        each = element if op is not None else min(size, PIECE_BYTES)
        if each not in STORE_BYTES or size % each:
            raise KernelError(
                f"{about}: {size} bytes: must be 4, 8 or a multiple of 16; elements of red.async "
                "have 4 or 8 bytes"
            )
        reduction = None
        if op is not None:
            self.require(instruction, op=(op, ReductionOp))
            data_type = DataType.of_dtype(target.dtype)
            if data_type is None:
                raise KernelError(f"{about}: elements of type {described(target.dtype)}")
            reduction = data_type, op
        stores = size // each
        await self.issue(sm.costs.st_async * -(-stores // self.threads))
        await sm.until(sm.env.not_before)
        request = self._request(f"{instruction} to {target.name} of CTA {cta}", size)
        sm.sanitizer.load(
            self.elected,
            request,
            [cta],
            target.address,
            size,
            target.swizzle,
            barrier.address,
            reduces=op is not None,
            by_unit=False,
        )
        words = np.ascontiguousarray(values).view(np.uint8).reshape(stores, each)
        for address, data in zip(target.addresses(each).tolist(), words, strict=True):
            request.number = sm.env.remote.store(
                cta, address, data, barrier.address, reduction=reduction
            )
