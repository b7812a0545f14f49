"""Requests of one SM's threads: loads, prefetches, stores, DSMEM requests and bulk groups."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from golden import (
    AccessMode,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    DataType,
    DsmemCopy,
    DsmemReduce,
    Load,
    Override,
    Prefetch,
    Reduce,
    ReductionOp,
    ReportMechanism,
    Store,
)
from golden.request import as_descriptor
from sim_tb.testbench.bridge import Bridge, EventKind, RequestRecord
from sim_tb.testbench.events import TIMEOUT, Events, group_wait

GoldenRequest = (
    Load
    | BulkLoad
    | Prefetch
    | BulkPrefetch
    | Store
    | BulkStore
    | BulkReduce
    | DsmemCopy
    | DsmemReduce
)
"""Requests of the golden model that a unit accepts."""

_FEATURES = {
    "ignore_first": "ignore_oob",
    "ignore_last": "ignore_oob",
    "override": "override",
    "multicast_32b": "multicast_32b",
    "report": "report_mechanism",
}
"""Parameter of the unit that each operand needs, unless it is None or 0."""


def override_fields(override: Override | None) -> dict[str, Any]:
    """Return the fields of a record for an override, which may be None."""
    if override is None:
        return {}
    return {
        "override_kind": 2 if override.global_dim else 1,
        "override_address": override.global_address,
        "override_dim": (ctypes.c_uint8 * 8)(*override.global_dim),
        "override_lower": (ctypes.c_uint32 * 4)(*override.lower_strides),
        "override_upper": override.upper_strides,
    }


Reduction = tuple[DataType, ReductionOp]


class RequestIds:
    """Request ids of one SM, counted modulo 2 to the power of ``bits``."""

    def __init__(self, bits: int) -> None:
        self._mask = (1 << bits) - 1
        self._next = 0

    def begin(self, first: int) -> None:
        """Let ``first`` be the next id that ``choose`` returns by itself."""
        self._next = first

    def choose(self, chosen: int | None) -> int:
        """Return ``chosen``, or the next id if it is None."""
        if chosen is not None:
            return chosen
        self._next += 1
        return (self._next - 1) & self._mask


class Requests:
    """Requests of one SM. They go to the unit in the order of the calls, for each stream.

    Every method that queues a request returns its request id, by default the next one.

    Parameters
    ----------
    bridge : Bridge
    events : Events
    ids : RequestIds
    sm : int
        Number of the SM, which is the rank of its CTA in the cluster.
    enums : mapping
        The design's ``AccessMode`` and ``Operation``: name to number.
    parameters : mapping
        The design's parameters, and what is derived from them: name to number.
    """

    def __init__(
        self,
        bridge: Bridge,
        events: Events,
        ids: RequestIds,
        sm: int,
        enums: Mapping[str, Mapping[str, int]],
        parameters: Mapping[str, int],
    ) -> None:
        self._bridge = bridge
        self._events = events
        self._ids = ids
        self._sm = sm
        self._parameters = parameters
        self._modes = enums["AccessMode"]
        self._operations = enums["Operation"]

    def number_from(self, first: int) -> None:
        """Give the next requests that choose no id the ids from ``first`` on."""
        self._ids.begin(first)

    # Loads and prefetches

    def load(
        self,
        tensor_map: int,
        coords: Sequence[int],
        smem_address: int,
        mbarrier: int,
        *,
        mode: str = "TILE",
        im2col_info: Sequence[int] = (),
        cache_policy: int = 0,
        thread: int = 0,
        joins_group: bool = False,
        request_id: int | None = None,
        cta_mask: int | None = None,
        dst_cta: int | None = None,
        mbarrier_cta: int | None = None,
        cta_group: int = 1,
        override: Override | None = None,
        report: ReportMechanism = ReportMechanism.DISABLED,
    ) -> int:
        """Queue a tensor load.

        Parameters
        ----------
        tensor_map : int
            Address of the tensor map.
        coords, smem_address, mbarrier, cta_mask, dst_cta, mbarrier_cta, cta_group, override, report
            As in ``golden.Load``.
        mode : str
            A name of ``AccessMode``.
        im2col_info : sequence of int
            The im2col offsets, or in the im2col_w modes wHalo and wOffset.
        cache_policy : int
            L2 cache policy of its lines.
        thread : int
            The thread that issues it.
        joins_group : bool
            The load belongs to the bulk group of ``thread`` until its tensor map has been read.
        request_id : int, optional
            Default: the next one.
        """
        return self._queue(
            "TENSOR_LOAD",
            request_id,
            coords,
            im2col_info,
            mode=self._modes[mode],
            global_address=tensor_map,
            smem_address=smem_address,
            mbarrier=mbarrier,
            cache_policy=cache_policy,
            thread=thread,
            joins_group=joins_group,
            cta_group_2=cta_group == 2,
            report=int(report),
            **self._ctas(cta_mask, dst_cta, mbarrier_cta),
            **override_fields(override),
        )

    def bulk_load(
        self,
        global_address: int,
        smem_address: int,
        size: int,
        mbarrier: int,
        *,
        cache_policy: int = 0,
        thread: int = 0,
        request_id: int | None = None,
        cta_mask: int | None = None,
        dst_cta: int | None = None,
        mbarrier_cta: int | None = None,
        ignore_first: int = 0,
        ignore_last: int = 0,
        report: ReportMechanism = ReportMechanism.DISABLED,
    ) -> int:
        """Queue a bulk load of ``size`` bytes. Operands are as in ``golden.BulkLoad``."""
        return self._queue(
            "BULK_LOAD",
            request_id,
            global_address=global_address,
            smem_address=smem_address,
            size=size,
            mbarrier=mbarrier,
            cache_policy=cache_policy,
            thread=thread,
            ignore_first=ignore_first,
            ignore_last=ignore_last,
            report=int(report),
            **self._ctas(cta_mask, dst_cta, mbarrier_cta),
        )

    def prefetch(
        self,
        tensor_map: int,
        coords: Sequence[int],
        *,
        mode: str = "TILE",
        im2col_info: Sequence[int] = (),
        cache_policy: int = 0,
        override: Override | None = None,
    ) -> int:
        """Queue a prefetch of a box to L2. Operands are as in ``load``."""
        return self._queue(
            "TENSOR_PREFETCH",
            None,
            coords,
            im2col_info,
            mode=self._modes[mode],
            global_address=tensor_map,
            cache_policy=cache_policy,
            **override_fields(override),
        )

    def bulk_prefetch(self, global_address: int, size: int, *, cache_policy: int = 0) -> int:
        """Queue a prefetch of ``size`` bytes to L2."""
        return self._queue(
            "BULK_PREFETCH",
            None,
            global_address=global_address,
            size=size,
            cache_policy=cache_policy,
        )

    # Stores, and requests to shared memory of other CTAs

    def store(
        self,
        tensor_map: int,
        coords: Sequence[int],
        smem_address: int,
        *,
        mode: str = "TILE",
        op: ReductionOp | None = None,
        thread: int = 0,
        cache_policy: int = 0,
        request_id: int | None = None,
        override: Override | None = None,
    ) -> int:
        """Queue a tensor store, or with ``op`` a tensor reduction."""
        return self._queue(
            "TENSOR_STORE" if op is None else "TENSOR_REDUCE",
            request_id,
            coords,
            mode=self._modes[mode],
            global_address=tensor_map,
            smem_address=smem_address,
            reduction_op=0 if op is None else int(op),
            thread=thread,
            cache_policy=cache_policy,
            **override_fields(override),
        )

    def bulk_store(
        self,
        global_address: int,
        smem_address: int,
        size: int,
        *,
        reduction: Reduction | None = None,
        byte_mask: int = 0xFFFF,
        thread: int = 0,
        cache_policy: int = 0,
        request_id: int | None = None,
    ) -> int:
        """Queue a bulk store of ``size`` bytes, or with ``reduction`` a bulk reduction."""
        data_type, op = reduction or (DataType.UINT8, ReductionOp.ADD)
        return self._queue(
            "BULK_STORE" if reduction is None else "BULK_REDUCE",
            request_id,
            global_address=global_address,
            smem_address=smem_address,
            size=size,
            reduction_op=int(op),
            element_type=data_type.format,
            byte_mask=byte_mask,
            thread=thread,
            cache_policy=cache_policy,
        )

    def dsmem_copy(
        self,
        dst_cta: int,
        dst_address: int,
        smem_address: int,
        size: int,
        mbarrier: int,
        *,
        reduction: Reduction | None = None,
        mbarrier_cta: int | None = None,
        request_id: int | None = None,
    ) -> int:
        """Queue a copy of ``size`` bytes to shared memory of ``dst_cta``, or with ``reduction`` a
        reduction there.
        """
        data_type, op = reduction or (DataType.UINT8, ReductionOp.ADD)
        return self._queue(
            "DSMEM_COPY" if reduction is None else "DSMEM_REDUCE",
            request_id,
            global_address=dst_address,
            smem_address=smem_address,
            size=size,
            mbarrier=mbarrier,
            reduction_op=int(op),
            element_type=data_type.format,
            **self._ctas(None, dst_cta, mbarrier_cta),
        )

    def submit(
        self,
        request: GoldenRequest,
        tensor_map: int = 0,
        cache_policy: int = 0,
        thread: int = 0,
    ) -> int:
        """Queue a request of the golden model.

        Parameters
        ----------
        request : GoldenRequest
            The request, with its operands.
        tensor_map : int
            Address of its tensor map, if it has one.
        cache_policy : int
            L2 cache policy of its lines.
        thread : int
            The thread that issues it.

        Raises
        ------
        ValueError
            If the request has an operand with an effect that the unit does not have, or a mask of
            CTAs with more bits than the operand of the unit.
        """
        for name, feature in _FEATURES.items():
            value = getattr(request, name, None)
            if value and not self._parameters[feature]:
                raise ValueError(f"{name} = {value}: the unit has no such operand; set {feature}")
        hint: dict[str, Any] = {"cache_policy": cache_policy}
        match request:
            case Load() | Prefetch() | Store():
                return self._submit_tensor(request, tensor_map, cache_policy, thread)
            case BulkLoad():
                return self.bulk_load(
                    request.gmem_address,
                    request.smem_address,
                    request.size,
                    request.mbarrier,
                    thread=thread,
                    cta_mask=request.cta_mask,
                    dst_cta=request.dst_cta,
                    mbarrier_cta=request.mbarrier_cta,
                    ignore_first=request.ignore_first,
                    ignore_last=request.ignore_last,
                    report=request.report,
                    **hint,
                )
            case BulkPrefetch():
                return self.bulk_prefetch(request.gmem_address, request.size, **hint)
            case DsmemCopy():
                reduction = None
                if isinstance(request, DsmemReduce):
                    reduction = request.data_type, request.op
                return self.dsmem_copy(
                    request.dst_cta,
                    request.dst_address,
                    request.smem_address,
                    request.size,
                    request.mbarrier,
                    reduction=reduction,
                    mbarrier_cta=request.mbarrier_cta,
                )
        where = request.gmem_address, request.smem_address, request.size
        if isinstance(request, BulkReduce):
            pair = request.data_type, request.op
            return self.bulk_store(*where, reduction=pair, thread=thread, **hint)
        return self.bulk_store(*where, byte_mask=request.byte_mask, thread=thread, **hint)

    def _submit_tensor(
        self, request: Load | Prefetch | Store, tensor_map: int, cache_policy: int, thread: int
    ) -> int:
        mode = request.mode
        if mode is None:
            mode = AccessMode(int(as_descriptor(request.tensor_map).mode))
        if isinstance(request, Store):
            return self.store(
                tensor_map,
                request.coords,
                request.smem_address,
                mode=mode.name,
                op=request.op if isinstance(request, Reduce) else None,
                thread=thread,
                cache_policy=cache_policy,
                override=request.override,
            )
        info = request.im2col_offsets
        if mode in (AccessMode.IM2COL_W, AccessMode.IM2COL_W_128):
            info = request.w_halo, request.w_offset
        walk: dict[str, Any] = {
            "mode": mode.name,
            "im2col_info": info,
            "cache_policy": cache_policy,
            "override": request.override,
        }
        if isinstance(request, Prefetch):
            return self.prefetch(tensor_map, request.coords, **walk)
        return self.load(
            tensor_map,
            request.coords,
            request.smem_address,
            request.mbarrier,
            thread=thread,
            cta_mask=request.cta_mask,
            dst_cta=request.dst_cta,
            mbarrier_cta=request.mbarrier_cta,
            cta_group=request.cta_group,
            report=request.report,
            **walk,
        )

    # Bulk groups

    def commit_group(self, thread: int = 0) -> None:
        """Queue ``cp.async.bulk.commit_group`` behind all queued requests."""
        self._queue("COMMIT_GROUP", None, thread=thread)

    async def wait_group(
        self,
        groups: int = 0,
        *,
        read: bool = False,
        thread: int = 0,
        timeout: int | None = TIMEOUT,
    ) -> int:
        """Carry out ``cp.async.bulk.wait_group``, or with ``read`` ``wait_group.read``.

        Wait until at most ``groups`` of the youngest groups of ``thread`` are pending.

        Returns
        -------
        int
            Cycle of the unit's answer.

        Raises
        ------
        WaitTimeoutError
            If the answer does not come within ``timeout`` clocks.
        """
        operation = "WAIT_GROUP_READ" if read else "WAIT_GROUP"
        number = self._queue_wait(operation, groups, thread)
        what = f"all but {groups} bulk groups of thread {thread}"
        return await self._events.wait_for(EventKind.GROUP_RESULT, number, what, timeout)

    def call_group(
        self, groups: int, answer: Callable[[int], None], *, read: bool, thread: int
    ) -> None:
        """Queue a wait as ``wait_group`` does; ``answer`` is called with the answer's cycle."""
        operation = "WAIT_GROUP_READ" if read else "WAIT_GROUP"
        number = self._queue_wait(operation, groups, thread)
        self._events.call(EventKind.GROUP_RESULT, number, lambda event: answer(int(event.cycle)))

    def _queue_wait(self, operation: str, groups: int, thread: int) -> int:
        """Queue a wait for bulk groups; return the number of its event.

        The unit takes the number of a thread modulo its ``threads``.
        """
        request_id = self._queue(operation, None, thread=thread, groups=groups)
        return group_wait(thread % self._parameters["threads"], request_id)

    async def accepted(self, request_id: int, timeout: int = TIMEOUT) -> int:
        """Wait until the unit accepts a request; return the cycle.

        It is the request that was queued last with ``request_id``. The wait must begin
        before the request is accepted.

        Raises
        ------
        WaitTimeoutError
            If the unit does not accept it within ``timeout`` clocks.
        """
        what = f"request {request_id} to be accepted"
        return await self._events.wait_for(EventKind.REQUEST_ACCEPTED, request_id, what, timeout)

    def _queue(
        self,
        operation: str,
        request_id: int | None,
        coords: Sequence[int] = (),
        im2col_info: Sequence[int] = (),
        **operands: int,
    ) -> int:
        request_id = self._ids.choose(request_id)
        request = RequestRecord(
            not_before=self._bridge.not_before,
            operation=self._operations[operation],
            request_id=request_id,
            rank=len(coords),
            coords=(ctypes.c_int32 * 5)(*(int(coord) for coord in coords)),
            im2col_info=(ctypes.c_uint16 * 4)(*(int(number) for number in im2col_info)),
            **operands,
        )
        self._bridge.request(ctypes.byref(request))
        return request_id

    def _ctas(
        self, cta_mask: int | None, dst_cta: int | None, mbarrier_cta: int | None
    ) -> dict[str, Any]:
        """Return the fields that name CTAs, with the defaults of ``golden.Load``.

        Raises
        ------
        ValueError
            If the mask has more bits than the operand of the unit.
        """
        bits = self._parameters["mask_bits"]
        if (cta_mask or 0) >> bits:
            raise ValueError(f"cta_mask = {cta_mask:#x}: must have {bits} bits")
        if dst_cta is None:
            dst_cta = self._sm
        if mbarrier_cta is None:
            mbarrier_cta = self._sm if cta_mask is not None else dst_cta
        return {
            "multicast": cta_mask is not None,
            "cta_mask": cta_mask or 0,
            "dst_cta": dst_cta,
            "mbarrier_cta": mbarrier_cta,
        }
