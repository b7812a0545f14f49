"""The unit of an SM in its bench, as cocotb tests see it.

The clock loop runs in C++ (``dpi/``); Python is woken by events only, at the clock edge at which
they happen, and what it then asks for takes effect at the next edge.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

import cocotb
import numpy as np
from cocotb.triggers import Event
from numpy.typing import NDArray

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
    Prefetch,
    Reduce,
    ReductionOp,
    Store,
    TensorMap,
)
from golden.request import as_descriptor
from sim_tb.sm.smem import PIECE_BYTES
from sim_tb.testbench.bridge import (
    LOG,
    Bridge,
    Bytes,
    Command,
    EventKind,
    LogKind,
    RemoteCommand,
    RemoteStore,
    Request,
    Timing,
    pointer,
)
from sim_tb.testbench.interface import Interface
from sim_tb.testbench.models import PORTS, Models
from sim_tb.testbench.shared import LOGS, Bench, GlobalMemory, described

TIMEOUT = 1_000_000
"""Clocks after which a wait gives up, unless told otherwise."""

TIME_LIMIT = 1 << 20
"""Clocks that a ``try_wait`` may take, unless told otherwise."""

RETRY = 32
"""Clocks until a thread asks again that found no place to wait in."""

QUIET = 256
"""Clocks without a transfer after which the unit counts as idle."""

WORD_BYTES = 4

IN_ORDER = (1, 2)
"""Of the memories: tensor maps and shared memory answer in order."""

Issued = (
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
"""Requests that a unit takes."""


class BenchError(AssertionError):
    """A check of the bench failed: the unit broke a rule of its ports."""


class BenchTimeoutError(BenchError):
    """Nothing came in time; the text is a ledger of what is outstanding."""


class BarrierResult(NamedTuple):
    """The unit's answer to a barrier command.

    ``done``: a test found the phase complete. ``waits``: a ``try_wait`` did not. ``fault``: why the
    operation was not done, a name of ``BarrierFault``. ``state``: the word before the operation.
    """

    done: bool
    waits: bool
    fault: str | None
    state: int


class WaitResult(NamedTuple):
    """How a ``try_wait`` ended. ``waited``: it had to wait for ``done``, its time or a fault."""

    done: bool
    waited: bool
    fault: str | None
    cycle: int


class ErrorRecord(NamedTuple):
    """Why a request was refused or failed. ``cta``: who issued it, in a cluster."""

    request_id: int
    code: int
    cause: str
    dim: int
    value: int
    cycle: int
    cta: int = 0


@dataclass(frozen=True)
class Word:
    """The fields of an mbarrier's word."""

    phase: int
    pending: int
    expected: int
    tx: int
    lock: int

    @classmethod
    def of(cls, word: int) -> "Word":
        """Decode ``word``."""
        count = (1 << 20) - 1
        tx = word >> 21 & (1 << 21) - 1
        return cls(
            phase=word >> 63 & 1,
            pending=-(word >> 43) & count,
            expected=-(word >> 1) & count,
            tx=tx - (tx >> 20 << 21),
            lock=word >> 42 & 1,
        )


class _Pending:
    """Something that Python waits for."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.event = Event()
        self.value: Any = None

    def give(self, value: Any) -> None:
        self.value = value
        self.event.set()


class _Notice(_Pending):
    """Something that Python does not wait for: it calls if the answer is a fault."""

    def __init__(self, fault: Callable[[int], str | None], on_fault: Callable[[str], None]) -> None:
        super().__init__("an answer that nobody waits for")
        self._fault, self._on_fault = fault, on_fault

    def give(self, value: Any) -> None:
        super().give(value)
        if (fault := self._fault(value["c"])) is not None:
            self._on_fault(fault)


class Environment:
    """The bench around the unit of one SM; make it with ``start``.

    Members
    -------
    interface : Interface
        Parameters and ports of the design.
    bench : Bench
        What it shares with other SMs.
    sm : int
        Number of the SM, and rank of its CTA in the cluster.
    smem : array of bytes
        Shared memory, barriers included. Shared with the bench.
    gmem : GlobalMemory
    seed : int
    not_before : int
        Cycle before which no request and no barrier operation that is queued from now on goes to
        the unit. They go in the order of these cycles.
    """

    interface: Interface
    bench: Bench
    sm: int
    smem: Bytes
    seed: int

    def __init__(self, dut: Any, interface: Interface, seed: int, sm: int = 0) -> None:
        self.dut = dut
        self.interface = interface
        self.seed = seed
        self.sm = sm
        self.bridge = Bridge(sm)
        self._cycle = ctypes.c_uint64.from_address(self.bridge.cycle())
        self.smem = np.zeros(interface.parameters["smem_bytes"], np.uint8)
        self._causes = {code: name for name, code in interface.enums["ErrorCode"].items()}
        self._ops = interface.enums["BarrierOp"]
        self._faults = {code: name for name, code in interface.enums["BarrierFault"].items()}
        self._id_mask = (1 << interface.parameters["request_id_bits"]) - 1
        self._next_request = 0
        self._next_id = 0
        self._pending: dict[tuple[EventKind, int], _Pending] = {}
        self._alarms: dict[int, _Pending] = {}
        self._errors: deque[ErrorRecord] = deque()
        self._error_taker: _Pending | None = None
        self._failure: BenchError | None = None
        self.not_before = 0
        self._watchers: dict[int, list[Callable[[int, Word], None]]] = {}

    @classmethod
    async def start(
        cls,
        dut: Any,
        models: Models | None = None,
        *,
        seed: int | None = None,
        background: str = "hash",
        logs: Sequence[LogKind] = LOGS,
    ) -> "Environment":
        """Reset a unit that is alone, and its bench, and start the clock.

        Parameters
        ----------
        dut : handle
            cocotb's, of the top.
        models : Models, optional
            Memories and stalls; default ``Models()``.
        seed : int, optional
            Default: cocotb's.
        background : "hash", "fault" or "void"
            What global memory is outside of all arrays.
        logs : sequence of LogKind
            What is recorded from the start.
        """
        env = cls(dut, described(), cocotb.RANDOM_SEED if seed is None else seed)
        await Bench(dut, [env]).begin(models, background, logs)
        return env

    async def reset(
        self,
        models: Models | None = None,
        *,
        background: str = "hash",
        logs: Sequence[LogKind] = LOGS,
    ) -> None:
        """``Bench.reset``, which in a cluster is of all SMs."""
        await self.bench.reset(models, background=background, logs=logs)

    def reset_models(self, models: Models, logs: Sequence[LogKind]) -> None:
        """Reset what is around this SM; the unit is held in reset."""
        self.bridge.reset(
            self.interface.parameters["line_bytes"],
            self.interface.parameters["tags"],
            self.interface.parameters["streams"],
            pointer(self.smem),
            self.smem.size,
        )
        memories = models.lines, models.descriptors, models.smem, models.stores
        for which, memory in enumerate(memories):
            seed = self._seed(f"memory{which}")
            in_order = which in IN_ORDER
            self.bridge.timing(which, ctypes.byref(Timing.of(memory, in_order)), seed)
        for name, stall in models.stalls.items():
            self.bridge.stall(PORTS.index(name), stall.share, stall.mean, self._seed(name))
        self._pending.clear()
        self._alarms.clear()
        self._errors.clear()
        self._watchers.clear()
        self._error_taker = None
        self._failure = None
        self.not_before = 0
        kinds = set(EventKind) - {EventKind.ACCEPTED}
        self.bridge.wake_on(sum(1 << kind for kind in kinds))
        self.bridge.log_kinds(sum(1 << kind for kind in logs))

    @property
    def gmem(self) -> GlobalMemory:
        """Global memory, which all SMs share."""
        return self.bench.gmem

    def rng(self, name: str) -> np.random.Generator:
        """A generator of its own for ``name`` and this SM, derived from the seed."""
        place = [self.sm] if self.sm else []
        return np.random.default_rng([self.seed, crc32(name.encode()), *place])

    def _seed(self, name: str) -> int:
        return int(self.rng(name).integers(1 << 63))

    @property
    def cycle(self) -> int:
        """Clock edges since reset; at an event, the edge at which it happened."""
        return self._cycle.value

    # Requests

    def submit(
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
    ) -> int:
        """Queue a tensor load; return its request id. The unit gets those of a stream in this
        order.

        ``mode`` is a name of ``AccessMode``; ``im2col_info`` are offsets, or wHalo and wOffset.
        With ``joins_group`` it is in the bulk group of ``thread`` until its map is read. CTAs are
        as in ``golden.Load``.
        """
        return self._submit(
            "TENSOR_LOAD",
            request_id,
            coords,
            im2col_info,
            mode=self.interface.enums["AccessMode"][mode],
            global_address=tensor_map,
            smem_address=smem_address,
            mbarrier=mbarrier,
            cache_policy=cache_policy,
            thread=thread,
            joins_group=joins_group,
            cta_group_2=cta_group == 2,
            **self._ctas(cta_mask, dst_cta, mbarrier_cta),
        )

    def submit_bulk(
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
    ) -> int:
        """Queue a bulk load; return its request id. The unit gets all requests of a stream in this
        order.
        """
        return self._submit(
            "BULK_LOAD",
            request_id,
            global_address=global_address,
            smem_address=smem_address,
            size=size,
            mbarrier=mbarrier,
            cache_policy=cache_policy,
            thread=thread,
            **self._ctas(cta_mask, dst_cta, mbarrier_cta),
        )

    def submit_dsmem(
        self,
        dst_cta: int,
        dst_address: int,
        smem_address: int,
        size: int,
        mbarrier: int,
        *,
        reduction: tuple[DataType, ReductionOp] | None = None,
        mbarrier_cta: int | None = None,
        request_id: int | None = None,
    ) -> int:
        """Queue a copy to shared memory of another CTA, or a reduction; return its request id."""
        data_type, op = reduction or (DataType.UINT8, ReductionOp.ADD)
        return self._submit(
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

    def submit_prefetch(
        self,
        tensor_map: int,
        coords: Sequence[int],
        *,
        mode: str = "TILE",
        im2col_info: Sequence[int] = (),
        cache_policy: int = 0,
    ) -> int:
        """Queue a prefetch of a box; return its request id."""
        return self._submit(
            "TENSOR_PREFETCH",
            None,
            coords,
            im2col_info,
            mode=self.interface.enums["AccessMode"][mode],
            global_address=tensor_map,
            cache_policy=cache_policy,
        )

    def submit_bulk_prefetch(self, global_address: int, size: int, *, cache_policy: int = 0) -> int:
        """Queue a prefetch of bytes; return its request id."""
        return self._submit(
            "BULK_PREFETCH",
            None,
            global_address=global_address,
            size=size,
            cache_policy=cache_policy,
        )

    def submit_store(
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
    ) -> int:
        """Queue a tensor store, with ``op`` a reduction; return its request id."""
        return self._submit(
            "TENSOR_STORE" if op is None else "TENSOR_REDUCE",
            request_id,
            coords,
            mode=self.interface.enums["AccessMode"][mode],
            global_address=tensor_map,
            smem_address=smem_address,
            reduction_op=0 if op is None else int(op),
            thread=thread,
            cache_policy=cache_policy,
        )

    def submit_bulk_store(
        self,
        global_address: int,
        smem_address: int,
        size: int,
        *,
        reduction: tuple[DataType, ReductionOp] | None = None,
        byte_mask: int = 0xFFFF,
        thread: int = 0,
        cache_policy: int = 0,
        request_id: int | None = None,
    ) -> int:
        """Queue a bulk store or reduction; return its request id."""
        data_type, op = reduction or (DataType.UINT8, ReductionOp.ADD)
        return self._submit(
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

    def issue(
        self, request: Issued, tensor_map: int = 0, cache_policy: int = 0, thread: int = 0
    ) -> int:
        """Queue a request of the golden model; return its request id.

        ``tensor_map`` is where its map is; ``thread`` issues it.
        """
        hint: dict[str, Any] = {"cache_policy": cache_policy}
        ctas: dict[str, Any] = {}
        if isinstance(request, Load | BulkLoad):
            ctas = {
                "cta_mask": request.cta_mask,
                "dst_cta": request.dst_cta,
                "mbarrier_cta": request.mbarrier_cta,
                "thread": thread,
            }
        match request:
            case BulkLoad():
                where = request.gmem_address, request.smem_address, request.size
                return self.submit_bulk(*where, request.mbarrier, **hint | ctas)
            case DsmemCopy():
                pair = None
                if isinstance(request, DsmemReduce):
                    pair = request.data_type, request.op
                return self.submit_dsmem(
                    request.dst_cta,
                    request.dst_address,
                    request.smem_address,
                    request.size,
                    request.mbarrier,
                    reduction=pair,
                    mbarrier_cta=request.mbarrier_cta,
                )
            case BulkPrefetch():
                return self.submit_bulk_prefetch(request.gmem_address, request.size, **hint)
            case BulkStore():
                where = request.gmem_address, request.smem_address, request.size
                mask = request.byte_mask
                return self.submit_bulk_store(*where, byte_mask=mask, thread=thread, **hint)
            case BulkReduce():
                where = request.gmem_address, request.smem_address, request.size
                pair = request.data_type, request.op
                return self.submit_bulk_store(*where, reduction=pair, thread=thread, **hint)
        mode = request.mode
        if mode is None:
            mode = AccessMode(int(as_descriptor(request.tensor_map).mode))
        if isinstance(request, Store):
            return self.submit_store(
                tensor_map,
                request.coords,
                request.smem_address,
                mode=mode.name,
                op=request.op if isinstance(request, Reduce) else None,
                thread=thread,
                **hint,
            )
        info = request.im2col_offsets
        if mode in (AccessMode.IM2COL_W, AccessMode.IM2COL_W_128):
            info = request.w_halo, request.w_offset
        walk: dict[str, Any] = {"mode": mode.name, "im2col_info": info, **hint}
        if isinstance(request, Prefetch):
            return self.submit_prefetch(tensor_map, request.coords, **walk)
        target = request.smem_address, request.mbarrier
        ctas["cta_group"] = request.cta_group
        return self.submit(tensor_map, request.coords, *target, **walk | ctas)

    def commit_group(self, thread: int = 0) -> None:
        """``cp.async.bulk.commit_group``, behind all requests that are queued."""
        self._submit("COMMIT_GROUP", None, thread=thread)

    async def wait_group(
        self,
        groups: int = 0,
        *,
        read: bool = False,
        thread: int = 0,
        timeout: int | None = TIMEOUT,
    ) -> int:
        """``cp.async.bulk.wait_group``, or ``.read``: wait until at most so many of the youngest
        groups of ``thread`` are pending; return the cycle of the unit's answer.
        """
        operation = "WAIT_GROUP_READ" if read else "WAIT_GROUP"
        number = self._submit(operation, None, thread=thread, groups=groups)
        what = f"all but {groups} bulk groups of thread {thread}"
        return await self._event(EventKind.GROUP_DONE, number, what, timeout)

    def _submit(
        self,
        operation: str,
        request_id: int | None,
        coords: Sequence[int] = (),
        im2col_info: Sequence[int] = (),
        **operands: int,
    ) -> int:
        request_id = self._request_id(request_id)
        request = Request(
            at=self.not_before,
            operation=self.interface.enums["Operation"][operation],
            request_id=request_id,
            rank=len(coords),
            coords=(ctypes.c_int32 * 5)(*(int(coord) for coord in coords)),
            im2col_info=(ctypes.c_uint16 * 4)(*(int(number) for number in im2col_info)),
            **operands,
        )
        self.bridge.request(ctypes.byref(request))
        return request_id

    def _request_id(self, chosen: int | None) -> int:
        if chosen is not None:
            return chosen
        self._next_request += 1
        return (self._next_request - 1) & self._id_mask

    def _ctas(
        self, cta_mask: int | None, dst_cta: int | None, mbarrier_cta: int | None
    ) -> dict[str, Any]:
        """The operands that name CTAs, of a load or DSMEM request."""
        if dst_cta is None:
            dst_cta = self.sm
        if mbarrier_cta is None:
            mbarrier_cta = self.sm if cta_mask is not None else dst_cta
        return {
            "multicast": cta_mask is not None,
            "cta_mask": cta_mask or 0,
            "dst_cta": dst_cta,
            "mbarrier_cta": mbarrier_cta,
        }

    async def accepted(self, request_id: int, timeout: int = TIMEOUT) -> int:
        """Wait until the unit has taken the request submitted last under ``request_id``; return
        the cycle. Ask before it is taken.
        """
        what = f"request {request_id} to be taken"
        return int(await self._event(EventKind.ACCEPTED, request_id, what, timeout))

    def descriptor(self, words: NDArray[np.uint32] | TensorMap, address: int | None = None) -> int:
        """Place a tensor map; return its address, by default one that was never used.

        An array of words is shared: an edit is seen by the next fetch.
        """
        if isinstance(words, TensorMap):
            words = np.frombuffer(words.encode(), np.uint32).copy()
        if address is None:
            return self.gmem.place_map(words)
        self.gmem.place(address, words)
        return address

    async def prefetch(self, address: int, timeout: int = TIMEOUT) -> None:
        """``prefetch.tensormap``; returns when the unit has taken it."""
        number = self._new_id()
        self.bridge.prefetch(address, number)
        await self._event(EventKind.FENCED, number, f"prefetch of 0x{address:x}", timeout)

    async def invalidate(self, address: int | None = None, timeout: int = TIMEOUT) -> None:
        """``fence.proxy.tensormap`` acquire of an address, by default of all; returns when the unit
        has taken it: requests submitted from then on come later.
        """
        number = self._new_id()
        self.bridge.invalidate(address or 0, address is None, number)
        await self._event(EventKind.FENCED, number, "an invalidation", timeout)

    # Barriers

    def send_barrier(
        self,
        op: str,
        address: int,
        count: int = 0,
        *,
        state: int = 0,
        time_limit: int = TIME_LIMIT,
        v1: bool = False,
    ) -> int:
        """Queue a barrier operation, by its name in ``BarrierOp``, without waiting for its result.

        Operations reach the unit in this order; ``result`` takes the number returned. Operands are
        those of ``hw.layouts.BarrierCommand``.
        """
        number = self._new_id()
        self._pending[EventKind.ANSWERED, number] = _Pending(f"result of {op} at 0x{address:x}")
        operands = self._ops[op], address, count, time_limit, v1, False, number
        command = Command(self.not_before, state, *operands)
        self.bridge.command(ctypes.byref(command))
        return number

    def post_barrier(
        self, op: str, address: int, count: int, on_fault: Callable[[str], None]
    ) -> None:
        """Queue a barrier operation whose answer matters only if it is a fault, whose name
        ``on_fault`` gets.
        """
        number = self._new_id()
        self._pending[EventKind.ANSWERED, number] = _Notice(self._fault, on_fault)
        operands = self._ops[op], address, count, 0, False, True, number
        command = Command(self.not_before, 0, *operands)
        self.bridge.command(ctypes.byref(command))

    async def result(self, number: int, timeout: int = TIMEOUT) -> BarrierResult:
        """The answer to an operation that ``send_barrier`` queued; once."""
        event = await self._wait(self._pending[EventKind.ANSWERED, number], timeout)
        return self._barrier_result(event)

    def _barrier_result(self, event: Any) -> BarrierResult:
        fault = self._fault(event["c"])
        return BarrierResult(bool(event["a"]), bool(event["b"]), fault, int(event["d"]))

    def _fault(self, code: int) -> str | None:
        return self._faults[int(code)] if code else None

    async def barrier(
        self,
        op: str,
        address: int,
        count: int = 0,
        timeout: int = TIMEOUT,
        *,
        state: int = 0,
        time_limit: int = TIME_LIMIT,
        v1: bool = False,
    ) -> BarrierResult:
        """Do a barrier operation, by its name in ``BarrierOp``; return the unit's answer."""
        operands: dict[str, Any] = {"state": state, "time_limit": time_limit, "v1": v1}
        return await self.result(self.send_barrier(op, address, count, **operands), timeout)

    async def try_wait(
        self,
        barrier: int,
        parity: int | None = None,
        *,
        state: int | None = None,
        time_limit: int = TIME_LIMIT,
        v1: bool = False,
        timeout: int | None = TIMEOUT,
    ) -> WaitResult:
        """``mbarrier.try_wait`` for the phase of ``state``, or of ``parity``; return its end."""
        if (parity is None) == (state is None):
            raise ValueError("a try_wait is for a parity or for a state")
        op, phase = ("TRY_WAIT", state) if parity is None else ("TRY_WAIT_PARITY", parity)
        what = f"phase {phase} of the barrier at 0x{barrier:x}"
        began = self.cycle
        number = self.send_barrier(
            op, barrier, parity or 0, state=state or 0, time_limit=time_limit, v1=v1
        )
        result = self._pending[EventKind.ANSWERED, number]
        end = self._pending[EventKind.WAIT_OVER, number] = _Pending(what)
        result.what = what
        answer = self._barrier_result(await self._wait(result, timeout, barrier))
        if not answer.waits:
            del self._pending[EventKind.WAIT_OVER, number]
            return WaitResult(answer.done, False, answer.fault, self.cycle)
        event = await self._wait(end, timeout, barrier, began)
        return WaitResult(bool(event["a"]), True, self._fault(event["b"]), int(event["cycle"]))

    async def wait(
        self,
        barrier: int,
        parity: int,
        timeout: int | None = TIMEOUT,
        *,
        time_limit: int = TIME_LIMIT,
    ) -> int:
        """Wait for the phase of ``parity`` to complete, as ``mbarrier.try_wait.parity`` in a loop;
        return the cycle at which the unit's answer said so.

        It comes after barrier operations queued before.
        """
        began = self.cycle
        while True:
            left = None if timeout is None else timeout - (self.cycle - began)
            answer = await self.try_wait(barrier, parity, time_limit=time_limit, timeout=left)
            if answer.fault is not None:
                raise BenchError(
                    f"waiting for phase {parity} of the barrier at 0x{barrier:x}: {answer.fault}"
                )
            if answer.done:
                return answer.cycle
            if not answer.waited:
                await self.cycles(RETRY)

    def send_remote_barrier(
        self, cta: int, op: str, address: int, count: int = 0, *, request_id: int | None = None
    ) -> int:
        """Queue an operation on a barrier of another CTA; return its request id, which comes back
        in an error record. There is no other answer.
        """
        request_id = self._request_id(request_id)
        command = RemoteCommand(self.not_before, cta, self._ops[op], address, count, request_id)
        self.bridge.remote_command(ctypes.byref(command))
        return request_id

    def send_remote_store(
        self,
        cta: int,
        address: int,
        values: NDArray[Any],
        mbarrier: int,
        *,
        reduction: tuple[DataType, ReductionOp] | None = None,
        request_id: int | None = None,
    ) -> int:
        """Queue ``st.async`` or ``red.async`` of ``values`` to another CTA; return its request id.

        Raises
        ------
        ValueError
            If they are no whole words of one piece of 16 bytes.
        """
        raw = values.tobytes()
        first = address % PIECE_BYTES
        if not raw or first + len(raw) > PIECE_BYTES or address % WORD_BYTES or len(raw) % 4:
            raise ValueError(f"{len(raw)} bytes at {address:#x}: no words of 16 aligned bytes")
        data_type, op = reduction or (DataType.UINT8, ReductionOp.ADD)
        request_id = self._request_id(request_id)
        store = RemoteStore(
            request_id=request_id,
            dst_cta=cta,
            address=address - first,
            mbarrier=mbarrier,
            reduces=reduction is not None,
            op=int(op),
            element_type=data_type.format,
            words=((1 << len(raw) // WORD_BYTES) - 1) << first // WORD_BYTES,
            data=(ctypes.c_uint8 * PIECE_BYTES)(*bytes(first), *raw),
        )
        self.bridge.remote_store(ctypes.byref(store))
        return request_id

    def word(self, barrier: int) -> Word:
        """The barrier's word as it is in shared memory."""
        return Word.of(int(self.smem[barrier : barrier + 8].view(np.uint64)[0]))

    def watch(
        self, barrier: int, call: Callable[[int, Word], None], *, awaited: bool = True
    ) -> None:
        """Call ``call(cycle, word)`` at each change of the barrier's phase; if nobody waits for it,
        with whatever happens next.
        """
        self._watchers.setdefault(barrier, []).append(call)
        self.bridge.watch(barrier, awaited)

    # Errors, idleness, time

    @property
    def errors(self) -> tuple[ErrorRecord, ...]:
        """Error records that nobody has taken yet, oldest first."""
        return tuple(self._errors)

    def take_errors(self) -> list[ErrorRecord]:
        """Take all error records that have come."""
        taken = list(self._errors)
        self._errors.clear()
        return taken

    async def next_error(self, timeout: int = TIMEOUT) -> ErrorRecord:
        """Take the oldest error record, waiting for one if there is none."""
        if not self._errors:
            self._error_taker = _Pending("an error record")
            await self._wait(self._error_taker, timeout)
        return self._errors.popleft()

    async def idle(
        self, quiet: int = QUIET, timeout: int = TIMEOUT, *, everywhere: bool = True
    ) -> None:
        """Wait until nothing is queued or in flight and no port moved for ``quiet`` clocks: on all
        SMs, or with ``everywhere`` off on this one. Threads that wait at a barrier do not count.
        """
        number = self._new_id()
        pending = self._pending[EventKind.IDLE, number] = _Pending(f"{quiet} quiet clocks")
        self.bridge.idle(quiet, number, everywhere)
        await self._wait(pending, timeout)

    async def cycles(self, count: int) -> None:
        """Let ``count`` clocks pass."""
        pending = _Pending(f"{count} clocks")
        self._arm(pending, count)
        await pending.event.wait()
        if self._failure is not None:
            raise self._failure

    def log(self, kind: LogKind) -> NDArray[Any]:
        """A copy of what was recorded of ``kind``: an array with cycle, key and value."""
        return self.bridge.records("log", LOG, kind)

    def clear_log(self, kind: LogKind) -> None:
        """Forget what was recorded of ``kind``."""
        self.bridge.clear_log(kind)

    def ledger(self) -> str:
        """What is outstanding, in words."""
        rows = [bytes(self.bridge.ledger()).decode().rstrip()]
        rows += [f"waiting for {item.what}" for item in self._pending.values()]
        rows += [f"error record: {error}" for error in self._errors]
        return "\n".join(rows)

    # How waiting works

    def _new_id(self) -> int:
        self._next_id = (self._next_id + 1) & 0xFFFFFFFF
        return self._next_id

    def _arm(self, pending: _Pending, clocks: int) -> None:
        number = self._new_id()
        self._alarms[number] = pending
        self.bridge.alarm(self.cycle + clocks, number)

    async def _event(self, kind: EventKind, number: int, what: str, timeout: int | None) -> int:
        pending = self._pending[kind, number] = _Pending(what)
        if kind is EventKind.ACCEPTED:
            self.bridge.wake_on((1 << len(EventKind)) - 1)
        event = await self._wait(pending, timeout)
        return int(event["cycle"])

    async def _wait(
        self,
        pending: _Pending,
        timeout: int | None,
        barrier: int | None = None,
        began: int | None = None,
    ) -> Any:
        """What ``pending`` gets within ``timeout`` clocks of the cycle ``began``, or of now; if it
        is None, whenever that is.
        """
        if self._failure is not None:
            raise self._failure
        if not pending.event.is_set():
            if timeout is not None:
                self._arm(pending, timeout if began is None else timeout - (self.cycle - began))
            await pending.event.wait()
        if self._failure is not None:
            raise self._failure
        if pending.value is None:
            state = "" if barrier is None else f"\nbarrier 0x{barrier:x}: {self.word(barrier)}"
            raise BenchTimeoutError(
                f"waited {timeout} clocks for {pending.what}{state}\n{self.bench.ledger()}"
            )
        return pending.value

    def take_events(self) -> None:
        """Handle what the bench of this SM has to tell."""
        for event in self.bridge.events():
            self._take(event)

    def _take(self, event: Any) -> None:
        kind, number = event["kind"], event["id"]
        if kind == EventKind.FAILURE:
            self.bench.fail(BenchError(bytes(self.bridge.failure()).decode()))
        elif kind == EventKind.ALARM:
            pending = self._alarms.pop(number, None)
            if pending is not None and not pending.event.is_set():
                pending.event.set()
        elif kind == EventKind.REFUSED:
            code, value = int(event["a"]), int(event["c"])
            cause = self._causes.get(code, f"code {code}")
            self._errors.append(
                ErrorRecord(
                    number,
                    code,
                    cause,
                    int(event["b"]),
                    value,
                    int(event["cycle"]),
                    int(event["d"]),
                )
            )
            if self._error_taker is not None:
                self._error_taker.give(event)
                self._error_taker = None
        elif kind == EventKind.PHASE:
            for call in self._watchers.get(number, []):
                call(int(event["cycle"]), Word.of(int(event["a"])))
        elif (kind, number) in self._pending:
            self._pending.pop((kind, number)).give(event)

    def give_up(self, failure: BenchError) -> bool:
        """Fail everybody who waits; return whether there is anybody."""
        self._failure = failure
        known = [*self._pending.values(), *self._alarms.values()]
        waiting = [pending for pending in known if not pending.event.is_set()]
        self._pending.clear()
        for pending in waiting:
            pending.event.set()
        return bool(waiting)
