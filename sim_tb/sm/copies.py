"""Requests to the unit: copies and reductions of tensors and of bytes, and their bulk groups."""

from collections.abc import Mapping, Sequence

from golden import AccessMode, DataType, Override, Plan, ReductionOp, ReportMechanism, Swizzle
from sim_tb.sm.device import GlobalPointer, TensorMapHandle
from sim_tb.sm.sanitizer import GlobalBytes, TrackedRequest
from sim_tb.sm.sm import Issuer
from sim_tb.sm.smem import Mbarrier, Tile

EVERY_BYTE = 0xFFFF
"""``.cp_mask`` that writes all bytes."""

W_MODES = AccessMode.IM2COL_W, AccessMode.IM2COL_W_128


class CopyInstructions(Issuer):
    """The part of ``Warps`` that is about requests to the unit.

    The elected thread issues them. ``cache_policy`` is the operand of ``.L2::cache_hint``; 0: the
    instruction has none.
    """

    # Loads

    async def cp_async_bulk_tensor(
        self,
        tile: Tile,
        tensor_map: TensorMapHandle,
        coords: Sequence[int],
        barrier: Mbarrier,
        *,
        mode: AccessMode | None = None,
        im2col_offsets: Sequence[int] = (),
        halo: Sequence[int] = (),
        cta_mask: int | None = None,
        cta_group: int = 1,
        cache_policy: int = 0,
        joins_group: bool = False,
        override: Override | None = None,
        report: ReportMechanism = ReportMechanism.DISABLED,
    ) -> None:
        """``cp.async.bulk.tensor``, global to shared memory.

        Parameters
        ----------
        tile : Tile
            The box is written from its start on, in the CTA that ``mapa`` gave, if it gave one.
        tensor_map : TensorMapHandle
            Map of the tensor.
        coords : sequence of int
            Coordinates of the box, innermost first.
        barrier : Mbarrier
            It counts the bytes, in each CTA that receives the box.
        mode : AccessMode, optional
            ``.tile::gather4``, ``.im2col::w`` and so on; None: the mode of the map.
        im2col_offsets : sequence of int
            Offsets of ``.im2col``, W first.
        halo : (int, int), optional
            wHalo and wOffset of ``.im2col::w`` and ``.im2col::w::128``.
        cta_mask : int, optional
            ``.multicast::cluster``: bit i is set if CTA i receives the box.
        cta_group : int
            2: ``.cta_group::2``. The barrier may then be in the other CTA of a pair, as ``mapa``
            says.
        cache_policy : int
            Cache hint.
        joins_group : bool
            The load belongs to the next bulk group, until its map has been read.
        override : Override, optional
            ``.override::global_address`` and ``.override_attribute``.
        report : ReportMechanism
            ``.mbarrier::report::validity``: pattern in the data that is reported to ``barrier``,
            which then has layout v1.
        """
        self.require(
            "cp.async.bulk.tensor",
            tile=(tile, Tile),
            tensor_map=(tensor_map, TensorMapHandle),
            barrier=(barrier, Mbarrier),
        )
        await self.issue(self.sm.costs.tma)
        sm = self.sm
        text = f"cp.async.bulk.tensor of {tensor_map.name} at {tuple(coords)}"
        plan = self._plan(text, tensor_map, mode, override)
        receivers = self._receivers(tile, cta_mask)
        w_halo = halo[0] if halo else 0
        size = plan.bytes(w_halo)
        request = self._request(text, size, tensor_map.address)
        holders = self._holders(receivers, barrier, cta_group)
        source = sm.sanitizer.box(plan, coords, im2col_offsets, halo)
        extent, swizzle = plan.extent(w_halo), plan.descriptor.swizzle
        self._load(request, holders, tile, extent, swizzle, barrier, source)
        request.number = sm.env.requests.load(
            tensor_map.address,
            coords,
            tile.address,
            barrier.address,
            mode=plan.mode.name,
            im2col_info=halo if plan.mode in W_MODES else im2col_offsets,
            cta_mask=cta_mask,
            dst_cta=tile.cta,
            mbarrier_cta=barrier.cta if cta_group == 2 else None,
            cta_group=cta_group,
            cache_policy=cache_policy,
            thread=self.thread,
            joins_group=joins_group,
            override=override,
            report=report,
        )
        sm.load_bytes += size * len(receivers)

    async def cp_async_bulk(
        self,
        tile: Tile,
        source: GlobalPointer,
        size: int,
        barrier: Mbarrier,
        *,
        cta_mask: int | None = None,
        cache_policy: int = 0,
        ignore_first: int = 0,
        ignore_last: int = 0,
        report: ReportMechanism = ReportMechanism.DISABLED,
    ) -> None:
        """``cp.async.bulk``: ``size`` bytes from global memory to the start of ``tile``.

        With ``cta_mask`` the instruction has ``.multicast::cluster``. ``ignore_first`` and
        ``ignore_last`` are the operands of ``.ignore_oob``: so many bytes at the start and at the
        end, up to 15, need not exist. ``report`` is as in `cp_async_bulk_tensor`.
        """
        self.require(
            "cp.async.bulk",
            tile=(tile, Tile),
            source=(source, GlobalPointer),
            barrier=(barrier, Mbarrier),
        )
        await self.issue(self.sm.costs.tma)
        text = f"cp.async.bulk of {size} bytes at {source.address:#x}"
        self._check_range(text, source.address, size, (ignore_first, ignore_last))
        request, receivers = self._request(text, size), self._receivers(tile, cta_mask)
        holders = self._holders(receivers, barrier, 1)
        wanted = max(size - ignore_first - ignore_last, 0)
        read = self.sm.sanitizer.bytes(source.address + ignore_first, wanted)
        self._load(request, holders, tile, size, None, barrier, read)
        request.number = self.sm.env.requests.bulk_load(
            source.address,
            tile.address,
            size,
            barrier.address,
            cta_mask=cta_mask,
            dst_cta=tile.cta,
            cache_policy=cache_policy,
            ignore_first=ignore_first,
            ignore_last=ignore_last,
            report=report,
        )
        self.sm.load_bytes += size * len(receivers)

    def _load(
        self,
        request: TrackedRequest,
        holders: Mapping[int, Sequence[int]],
        tile: Tile,
        size: int,
        swizzle: Swizzle | None,
        barrier: Mbarrier,
        source: GlobalBytes | None,
    ) -> None:
        """Let the sanitizer follow a load: receivers by the CTA that holds their barrier."""
        for holder, receivers in holders.items():
            self.sm.sanitizer.load(
                self.elected,
                request,
                receivers,
                tile.address,
                size,
                swizzle,
                barrier.address,
                source,
                signal_cta=holder,
            )

    def _receivers(self, tile: Tile, cta_mask: int | None) -> list[int]:
        """Return the ranks of the CTAs whose shared memory a load writes."""
        if cta_mask is not None:
            return bits(cta_mask)
        return [self.cta if tile.cta is None else tile.cta]

    def _holders(
        self, receivers: Sequence[int], barrier: Mbarrier, cta_group: int
    ) -> dict[int, list[int]]:
        """Return the receivers of a load by the CTA whose barrier counts their bytes.

        It is the receiver, or with ``.cta_group::2`` the one of its pair that has the parity of the
        barrier's CTA.
        """
        made: dict[int, list[int]] = {}
        own = self.cta if barrier.cta is None else barrier.cta
        for cta in receivers:
            holder = cta & ~1 | own & 1 if cta_group == 2 else cta
            made.setdefault(holder, []).append(cta)
        return made

    # Prefetches

    async def prefetch_tensormap(self, tensor_map: TensorMapHandle) -> None:
        """``prefetch.tensormap``."""
        self.require("prefetch.tensormap", tensor_map=(tensor_map, TensorMapHandle))
        await self.issue(self.sm.costs.tma)
        await self.sm.until(self.ready_cycle)
        await self.sm.env.descriptors.prefetch(tensor_map.address)

    async def cp_async_bulk_prefetch_tensor(
        self,
        tensor_map: TensorMapHandle,
        coords: Sequence[int],
        *,
        mode: AccessMode | None = None,
        im2col_offsets: Sequence[int] = (),
        halo: Sequence[int] = (),
        cache_policy: int = 0,
        override: Override | None = None,
    ) -> None:
        """``cp.async.bulk.prefetch.tensor.L2``: a box of global memory to L2.

        Operands are those of ``cp_async_bulk_tensor``.
        """
        instruction = "cp.async.bulk.prefetch.tensor"
        self.require(instruction, tensor_map=(tensor_map, TensorMapHandle))
        await self.issue(self.sm.costs.tma)
        text = f"{instruction} of {tensor_map.name} at {tuple(coords)}"
        plan = self._plan(text, tensor_map, mode, override)
        self.sm.env.requests.prefetch(
            tensor_map.address,
            coords,
            mode=plan.mode.name,
            im2col_info=halo if plan.mode in W_MODES else im2col_offsets,
            cache_policy=cache_policy,
            override=override,
        )

    async def cp_async_bulk_prefetch(
        self, source: GlobalPointer, size: int, *, cache_policy: int = 0
    ) -> None:
        """``cp.async.bulk.prefetch.L2``: ``size`` bytes of global memory to L2."""
        instruction = "cp.async.bulk.prefetch"
        self.require(instruction, source=(source, GlobalPointer))
        await self.issue(self.sm.costs.tma)
        self._check_range(f"{instruction} of {size} bytes", source.address, size)
        self.sm.env.requests.bulk_prefetch(source.address, size, cache_policy=cache_policy)

    # Stores

    async def cp_async_bulk_tensor_store(
        self,
        tensor_map: TensorMapHandle,
        coords: Sequence[int],
        tile: Tile,
        *,
        mode: AccessMode | None = None,
        cache_policy: int = 0,
        override: Override | None = None,
    ) -> None:
        """``cp.async.bulk.tensor``, shared to global memory, ``.bulk_group``."""
        instruction = "cp.async.bulk.tensor"
        await self._store(instruction, tensor_map, coords, tile, mode, None, cache_policy, override)

    async def cp_reduce_async_bulk_tensor(
        self,
        tensor_map: TensorMapHandle,
        coords: Sequence[int],
        tile: Tile,
        op: ReductionOp,
        *,
        mode: AccessMode | None = None,
        cache_policy: int = 0,
        override: Override | None = None,
    ) -> None:
        """``cp.reduce.async.bulk.tensor``."""
        instruction = "cp.reduce.async.bulk.tensor"
        await self._store(instruction, tensor_map, coords, tile, mode, op, cache_policy, override)

    async def _store(
        self,
        instruction: str,
        tensor_map: TensorMapHandle,
        coords: Sequence[int],
        tile: Tile,
        mode: AccessMode | None,
        op: ReductionOp | None,
        cache_policy: int,
        override: Override | None,
    ) -> None:
        self.require(instruction, tensor_map=(tensor_map, TensorMapHandle), tile=(tile, Tile))
        self.require_own(instruction, tile)
        if op is not None:
            self.require(instruction, op=(op, ReductionOp))
        await self.issue(self.sm.costs.tma)
        sm = self.sm
        text = f"{instruction} to {tensor_map.name} at {tuple(coords)}"
        plan = self._plan(text, tensor_map, mode, override, store=True)
        request = self._request(text, tensor_map=tensor_map.address)
        sm.sanitizer.store(
            self.elected,
            request,
            tile.address,
            plan.footprint,
            plan.descriptor.swizzle,
            target=sm.sanitizer.box(plan, coords),
            reduces=op is not None,
        )
        request.number = sm.env.requests.store(
            tensor_map.address,
            coords,
            tile.address,
            mode=plan.mode.name,
            op=op,
            thread=self.thread,
            cache_policy=cache_policy,
            override=override,
        )

    async def cp_async_bulk_store(
        self,
        target: GlobalPointer,
        tile: Tile,
        size: int,
        *,
        byte_mask: int = EVERY_BYTE,
        cache_policy: int = 0,
    ) -> None:
        """``cp.async.bulk``, shared to global memory: ``size`` bytes from the start of ``tile``.

        ``byte_mask`` is ``.cp_mask``: byte i of each 16 bytes is written if bit i is set.
        """
        await self._bulk_store("cp.async.bulk", target, tile, size, None, byte_mask, cache_policy)

    async def cp_reduce_async_bulk(
        self,
        target: GlobalPointer,
        tile: Tile,
        size: int,
        data_type: DataType,
        op: ReductionOp,
        *,
        cache_policy: int = 0,
    ) -> None:
        """``cp.reduce.async.bulk``, shared to global memory."""
        await self._bulk_store(
            "cp.reduce.async.bulk", target, tile, size, (data_type, op), EVERY_BYTE, cache_policy
        )

    async def _bulk_store(
        self,
        instruction: str,
        target: GlobalPointer,
        tile: Tile,
        size: int,
        reduction: tuple[DataType, ReductionOp] | None,
        byte_mask: int,
        cache_policy: int,
    ) -> None:
        self.require(instruction, target=(target, GlobalPointer), tile=(tile, Tile))
        self.require_own(instruction, tile)
        self._require_reduction(instruction, reduction)
        await self.issue(self.sm.costs.tma)
        text = f"{instruction} of {size} bytes to {target.address:#x}"
        self._check_range(text, target.address, size)
        request = self._request(text)
        self.sm.sanitizer.store(
            self.elected,
            request,
            tile.address,
            size,
            None,
            target=self.sm.sanitizer.bytes(target.address, size),
            reduces=reduction is not None,
        )
        request.number = self.sm.env.requests.bulk_store(
            target.address,
            tile.address,
            size,
            reduction=reduction,
            byte_mask=byte_mask,
            thread=self.thread,
            cache_policy=cache_policy,
        )

    # Bulk groups

    async def commit_group(self) -> None:
        """``cp.async.bulk.commit_group``."""
        self.sm.sanitizer.commit(self.elected)
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
        self.sm.sanitizer.group_wait_returned(self.elected, groups, self.sm.env.cycle, read=read)

    # Parts

    def _plan(
        self, text: str, tensor_map: TensorMapHandle, mode: AccessMode | None,
        override: Override | None, *, store: bool = False,
    ) -> Plan:  # fmt: skip
        """Check the use of a map; return the golden model's plan of the request."""
        sm = self.sm
        if mode is not None:
            self.require(text, mode=(mode, AccessMode))
        if override is not None:
            self.require(text, override=(override, Override))
        sm.sanitizer.use_map(self.elected, text, tensor_map.address, sm.env.not_before)
        return sm.device.plan(tensor_map, mode, override, store=store)

    def _check_range(
        self, text: str, address: int, size: int, ignored: tuple[int, int] = (0, 0)
    ) -> None:
        access = f"{self.role}: {text} in cycle {self.sm.env.not_before}"
        self.sm.device.check_range(access, address, size, ignored)


def bits(mask: int) -> list[int]:
    """Return the numbers of the bits that are set."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]
