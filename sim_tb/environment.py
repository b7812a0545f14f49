"""The unit in its bench, as cocotb tests see it.

The clock loop runs in C++ (``dpi/``); Python is woken by events only, at the clock edge at which
they happen, and what it then asks for takes effect at the next edge.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from zlib import crc32

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import Task
from cocotb.triggers import ClockCycles, Event
from numpy.typing import NDArray

from golden import (
    AccessMode,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    DataType,
    Load,
    Prefetch,
    Reduce,
    ReductionOp,
    Store,
    TensorMap,
)
from golden.descriptor import as_descriptor
from sim_tb.bridge import EVENT, LOG, Bridge, Bytes, EventKind, LogKind, Request, Timing, pointer
from sim_tb.interface import Interface
from sim_tb.models import PORTS, Models

TIMEOUT = 1_000_000
"""Clocks after which a wait gives up, unless told otherwise."""

QUIET = 256
"""Clocks without a transfer after which the unit counts as idle."""

MAPS = 0x7E00_0000_0000
"""Where ``descriptor`` places tensor maps: far from the addresses of recorded vectors."""

MAP_BYTES = 128

BACKGROUNDS = ("hash", "fault", "void")

RESET_CYCLES = 4

IN_ORDER = (1, 2)
"""Of the memories: tensor maps and shared memory answer in order."""

Issued = Load | BulkLoad | Prefetch | BulkPrefetch | Store | BulkStore | BulkReduce
"""Requests that one unit can carry out."""


class BenchError(AssertionError):
    """A check of the bench failed: the unit broke a rule of its ports."""


class BenchTimeoutError(BenchError):
    """Nothing came in time; the text is a ledger of what is outstanding."""


class BarrierResult(NamedTuple):
    """The unit's answer to a barrier command. ``state``: the word before the operation."""

    done: bool
    error: bool
    state: int


class ErrorRecord(NamedTuple):
    """Why a request was refused or failed."""

    request_id: int
    code: int
    cause: str
    dim: int
    value: int
    cycle: int


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


class GlobalMemory:
    """Arrays in the address space of the unit, over a background.

    The background is ``"hash"``, where every byte is a function of its address (that of recorded
    vectors), or ``"fault"``, where a read fails that touches no array. Writes fail outside of
    arrays; over ``"void"``, which reads as ``"hash"`` does, they vanish. Arrays are shared, not
    copied: what Python writes is read from the next clock on. Where two overlap, the later counts.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._regions: dict[int, Bytes] = {}

    def background(self, kind: str) -> None:
        """Choose what is outside of all arrays: ``"hash"``, ``"fault"`` or ``"void"``."""
        self._bridge.background(BACKGROUNDS.index(kind))

    def place(self, address: int, array: NDArray[Any]) -> None:
        """Show ``array``'s bytes at ``address``, in place of what was placed there before."""
        self.remove(address)
        flat = array.reshape(-1).view(np.uint8)
        if flat.size and not np.shares_memory(flat, array):
            raise ValueError("the array must be contiguous")
        self._regions[address] = flat
        self._bridge.region(address, flat.size, pointer(flat))

    def remove(self, address: int) -> None:
        """Take away what was placed at ``address``, if anything."""
        if self._regions.pop(address, None) is not None:
            self._bridge.remove(address)


class _Pending:
    """Something that Python waits for."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.event = Event()
        self.value: Any = None
        self.error: BenchError | None = None

    def give(self, value: Any) -> None:
        self.value = value
        self.event.set()


class Environment:
    """The bench around ``dut``; make it with ``start``.

    Members
    -------
    interface : Interface
        Parameters and ports of the unit.
    smem : array of bytes
        Shared memory, barriers included. Shared with the bench.
    gmem : GlobalMemory
    seed : int
    """

    interface: Interface
    smem: Bytes
    gmem: GlobalMemory
    seed: int

    _tasks: ClassVar[list[Task[Any]]] = []

    def __init__(self, dut: Any, interface: Interface, seed: int) -> None:
        self.dut = dut
        self.interface = interface
        self.seed = seed
        self.bridge = Bridge()
        self.smem = np.zeros(interface.parameters["smem_bytes"], np.uint8)
        self._causes = {code: name for name, code in interface.enums["ErrorCode"].items()}
        self._ops = interface.enums["BarrierOp"]
        self._id_mask = (1 << interface.parameters["request_id_bits"]) - 1
        self._next_request = 0
        self._next_id = 0
        self._next_map = MAPS
        self._pending: dict[tuple[EventKind, int], _Pending] = {}
        self._alarms: dict[int, _Pending] = {}
        self._errors: deque[ErrorRecord] = deque()
        self._error_taker: _Pending | None = None
        self._failure: BenchError | None = None
        self._watchers: dict[int, list[Callable[[int, Word], None]]] = {}

    @classmethod
    async def start(
        cls,
        dut: Any,
        models: Models | None = None,
        *,
        seed: int | None = None,
        background: str = "hash",
        logs: Sequence[LogKind] = (LogKind.LINE, LogKind.ACCEPT, LogKind.WORD),
    ) -> "Environment":
        """Reset unit and bench, and start the clock.

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
        interface = Interface(Path(os.environ["TMA_INTERFACE"]))
        env = cls(dut, interface, cocotb.RANDOM_SEED if seed is None else seed)
        for task in cls._tasks:  # of an environment that this test has started before
            task.cancel()
        dut.rst.value = 1
        clock = Clock(dut.clk, 2, unit="ns").start()
        await env.reset(models, background=background, logs=logs)
        cls._tasks = [clock, cocotb.start_soon(env._pump())]
        return env

    async def reset(
        self,
        models: Models | None = None,
        *,
        background: str = "hash",
        logs: Sequence[LogKind] = (LogKind.LINE, LogKind.ACCEPT, LogKind.WORD),
    ) -> None:
        """Reset unit and bench: no array is placed, nothing is logged, cycle 0 comes next.

        Shared memory keeps its contents. Pending waits are forgotten.
        """
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, RESET_CYCLES)
        models = models or Models()
        self.bridge.reset(
            self.interface.parameters["line_bytes"],
            self.interface.parameters["tags"],
            pointer(self.smem),
            self.smem.size,
            BACKGROUNDS.index(background),
        )
        self.gmem = GlobalMemory(self.bridge)
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
        kinds = set(EventKind) - {EventKind.ACCEPTED}
        self.bridge.wake_on(sum(1 << kind for kind in kinds))
        self.bridge.log_kinds(sum(1 << kind for kind in logs))
        self.dut.rst.value = 0

    def rng(self, name: str) -> np.random.Generator:
        """A generator of its own for ``name``, derived from the seed."""
        return np.random.default_rng([self.seed, crc32(name.encode())])

    def _seed(self, name: str) -> int:
        return int(self.rng(name).integers(1 << 63))

    @property
    def cycle(self) -> int:
        """Clock edges since reset; at an event, the edge at which it happened."""
        return int(self.bridge.cycle())

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
        thread: int | None = None,
        request_id: int | None = None,
    ) -> int:
        """Queue a tensor load; return its request id. The unit gets them in this order.

        ``mode`` is a name of ``AccessMode``; ``im2col_info`` are offsets, or wHalo and wOffset.
        With ``thread`` it joins the bulk group of that thread until its map is read.
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
            thread=thread or 0,
            joins_group=thread is not None,
        )

    def submit_bulk(
        self,
        global_address: int,
        smem_address: int,
        size: int,
        mbarrier: int,
        *,
        cache_policy: int = 0,
        request_id: int | None = None,
    ) -> int:
        """Queue a bulk load; return its request id. The unit gets all requests in this order."""
        return self._submit(
            "BULK_LOAD",
            request_id,
            global_address=global_address,
            smem_address=smem_address,
            size=size,
            mbarrier=mbarrier,
            cache_policy=cache_policy,
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

        ``tensor_map`` is where its map is; what concerns other CTAs does not count.
        """
        hint: dict[str, Any] = {"cache_policy": cache_policy}
        match request:
            case BulkLoad():
                where = request.gmem_address, request.smem_address, request.size
                return self.submit_bulk(*where, request.mbarrier, **hint)
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
        return self.submit(tensor_map, request.coords, *target, **walk)

    def commit_group(self, thread: int = 0) -> None:
        """``cp.async.bulk.commit_group``, behind all requests that are queued."""
        self._submit("COMMIT_GROUP", None, thread=thread)

    async def wait_group(
        self, groups: int = 0, *, read: bool = False, thread: int = 0, timeout: int = TIMEOUT
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
        if request_id is None:
            request_id = self._next_request & self._id_mask
            self._next_request += 1
        request = Request(
            operation=self.interface.enums["Operation"][operation],
            request_id=request_id,
            rank=len(coords),
            coords=(ctypes.c_int32 * 5)(*(int(coord) for coord in coords)),
            im2col_info=(ctypes.c_uint16 * 4)(*(int(number) for number in im2col_info)),
            **operands,
        )
        self.bridge.request(ctypes.byref(request))
        return request_id

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
            address = self._next_map
            self._next_map += MAP_BYTES
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

    def send_barrier(self, op: str, address: int, count: int = 0) -> int:
        """Queue a barrier operation, by its name in ``BarrierOp``, without waiting for its result.

        Operations reach the unit in this order; ``result`` takes the number returned.
        """
        number = self._new_id()
        self._pending[EventKind.ANSWERED, number] = _Pending(f"result of {op} at 0x{address:x}")
        self.bridge.command(self._ops[op], address, count, number)
        return number

    async def result(self, number: int, timeout: int = TIMEOUT) -> BarrierResult:
        """The answer to an operation that ``send_barrier`` queued; once."""
        pending = self._pending[EventKind.ANSWERED, number]
        event = await self._wait(pending, timeout)
        return BarrierResult(bool(event["a"]), bool(event["b"]), int(event["c"]))

    async def barrier(
        self, op: str, address: int, count: int = 0, timeout: int = TIMEOUT
    ) -> BarrierResult:
        """Do a barrier operation, by its name in ``BarrierOp``; return the unit's answer."""
        return await self.result(self.send_barrier(op, address, count), timeout)

    async def wait(self, barrier: int, parity: int, timeout: int = TIMEOUT) -> int:
        """Wait for the phase of ``parity`` to complete, as ``mbarrier.try_wait.parity`` in a loop;
        return the cycle at which the unit's answer said so.

        Polls through the unit, after barrier operations queued before. A poll is repeated when the
        word was written.
        """
        number = self._new_id()
        what = f"phase {parity} of the barrier at 0x{barrier:x}"
        pending = self._pending[EventKind.WAIT_DONE, number] = _Pending(what)
        self.bridge.wait(barrier, parity, number)
        event = await self._wait(pending, timeout, barrier)
        if event["b"]:
            raise BenchError(f"waiting for {what}: the unit answered with an error")
        return int(event["cycle"])

    def word(self, barrier: int) -> Word:
        """The barrier's word as it is in shared memory."""
        return Word.of(int(self.smem[barrier : barrier + 8].view(np.uint64)[0]))

    def watch(self, barrier: int, call: Callable[[int, Word], None]) -> None:
        """Call ``call(cycle, word)`` at each change of the barrier's phase."""
        self._watchers.setdefault(barrier, []).append(call)
        self.bridge.watch(barrier, 1)

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

    async def idle(self, quiet: int = QUIET, timeout: int = TIMEOUT) -> None:
        """Wait until nothing is queued or in flight and no port moved for ``quiet`` clocks."""
        number = self._new_id()
        pending = self._pending[EventKind.IDLE, number] = _Pending(f"{quiet} quiet clocks")
        self.bridge.idle(quiet, number)
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

    async def _event(self, kind: EventKind, number: int, what: str, timeout: int) -> int:
        pending = self._pending[kind, number] = _Pending(what)
        if kind is EventKind.ACCEPTED:
            self.bridge.wake_on((1 << len(EventKind)) - 1)
        event = await self._wait(pending, timeout)
        return int(event["cycle"])

    async def _wait(self, pending: _Pending, timeout: int, barrier: int | None = None) -> Any:
        if self._failure is not None:
            raise self._failure
        if not pending.event.is_set():
            self._arm(pending, timeout)
            await pending.event.wait()
        if pending.error is not None:
            raise pending.error
        if self._failure is not None:
            raise self._failure
        if pending.value is None:
            state = "" if barrier is None else f"\nbarrier 0x{barrier:x}: {self.word(barrier)}"
            raise BenchTimeoutError(
                f"waited {timeout} clocks for {pending.what}{state}\n{self.ledger()}"
            )
        return pending.value

    async def _pump(self) -> None:
        while True:
            await self.dut.wake.value_change
            for event in self.bridge.records("events", EVENT):
                self._take(event)

    def _take(self, event: Any) -> None:
        kind, number = EventKind(event["kind"]), int(event["id"])
        if kind is EventKind.FAILURE:
            self._fail(BenchError(bytes(self.bridge.failure()).decode()))
        elif kind is EventKind.ALARM:
            pending = self._alarms.pop(number, None)
            if pending is not None and not pending.event.is_set():
                pending.event.set()
        elif kind is EventKind.REFUSED:
            code, value = int(event["a"]), int(event["c"])
            cause = self._causes.get(code, f"code {code}")
            self._errors.append(
                ErrorRecord(number, code, cause, int(event["b"]), value, int(event["cycle"]))
            )
            if self._error_taker is not None:
                self._error_taker.give(event)
                self._error_taker = None
        elif kind is EventKind.PHASE:
            for call in self._watchers.get(number, []):
                call(int(event["cycle"]), Word.of(int(event["a"])))
        elif (kind, number) in self._pending:
            self._pending.pop((kind, number)).give(event)

    def _fail(self, failure: BenchError) -> None:
        """Fail everybody who waits; if nobody does, the test."""
        self._failure = failure
        known = [*self._pending.values(), *self._alarms.values()]
        waiting = [pending for pending in known if not pending.event.is_set()]
        self._pending.clear()
        if not waiting:
            raise failure
        for pending in waiting:
            pending.event.set()
