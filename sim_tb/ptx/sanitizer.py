"""The sanitizer of the behavioural SM, told of what the threads of a PTX kernel do.

Each warp is an agent of its own. A mistake is named with the line and the instruction of both
sides. ``sim_tb.sm.sanitizer`` has the rules.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from golden import (
    BulkLoad,
    BulkReduce,
    BulkStore,
    DsmemCopy,
    DsmemReduce,
    Load,
    Plan,
    Reduce,
    Store,
    Swizzle,
    TmaError,
    mbarrier,
)
from golden.mbarrier import Op
from golden.request import moved_bytes
from sim_tb.ptx.engine import Engine, Origin, Reduction
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.kernel import Kernel, registers_of
from sim_tb.ptx.machine import PARAM_WINDOW, RANK_SHIFT, Cta, Grid, Mask, NamedBarrier, Warp
from sim_tb.ptx.observer import Observer
from sim_tb.ptx.scheduler import Step
from sim_tb.ptx.syntax import Instruction, Number, Vector
from sim_tb.ptx.waits import Answer
from sim_tb.sm.device import Device
from sim_tb.sm.errors import KernelError
from sim_tb.sm.sanitizer import (
    Access,
    Sanitizer,
    Scope,
    Threads,
    TrackedRequest,
    TrackedWarpgroup,
)
from sim_tb.sm.sanitizer.clocks import ALL_LANES, Meeting
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import WARPGROUP_WARPS
from sim_tb.testbench.requests import GoldenRequest

_MAP_BYTES = 128

_SCOPES = {"cta": Scope.CTA, "cluster": Scope.CLUSTER, "gpu": Scope.GPU, "sys": Scope.SYSTEM}

_STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio")

_SWIZZLES = {
    0: Swizzle.NONE,
    1: Swizzle.SWIZZLE_128B,
    2: Swizzle.SWIZZLE_64B,
    3: Swizzle.SWIZZLE_32B,
}
"""Swizzle by bits 63:62 of a matrix descriptor (PTX ISA)."""

_PTX_NAMES = {
    "fence_proxy_async without shared_cta": "fence.proxy.async without .shared::cta",
    "fence_proxy_async": "fence.proxy.async",
    "fence_proxy_tensormap_release": "fence.proxy.tensormap::generic.release",
    "fence_proxy_tensormap": "fence.proxy.tensormap::generic.acquire",
    "fence_mbarrier_init": "fence.mbarrier_init",
    "mbarrier_init": "mbarrier.init",
    "mbarrier_inval": "mbarrier.inval",
    "tensormap_replace": "tensormap.replace",
    "wgmma_wait_group": "wgmma.wait_group",
    "wgmma_commit_group": "wgmma.commit_group",
    "wgmma_fence": "wgmma.fence",
    "wait_group": "cp.async.bulk.wait_group",
    "bar_sync": "bar.sync",
}
"""PTX's names for those of the Python kernels, which the sanitizer's remedies use."""

_NAMES = re.compile("|".join(rf"\b{name}\b" for name in _PTX_NAMES))


@dataclass(frozen=True)
class _Allocation:
    """An allocation in global memory, as the sanitizer takes a tensor."""

    name: str
    address: int
    nbytes: int


class _Maps(Mapping[int, NDArray[np.uint8]]):
    """Tensor maps by generic address: any 128 bytes that may be one. Iteration yields none."""

    def __init__(self, state: Grid) -> None:
        self._state = state

    def __contains__(self, address: object) -> bool:
        return isinstance(address, int) and address % 64 == 0 and self._at(address) is not None

    def __getitem__(self, address: int) -> NDArray[np.uint8]:
        found = self._at(address)
        if found is None:
            raise KeyError(address)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def _at(self, address: int) -> NDArray[np.uint8] | None:
        parameters, memory = self._state.parameters, self._state.memory
        if PARAM_WINDOW <= address <= PARAM_WINDOW + parameters.size - _MAP_BYTES:
            start = address - PARAM_WINDOW
            return parameters[start : start + _MAP_BYTES]
        offset = int(memory.offsets(np.array([address], np.int64), _MAP_BYTES)[0])
        return None if offset < 0 else memory.bytes[offset : offset + _MAP_BYTES]


class _Device:
    """Global memory of a launch, as the sanitizer takes a device."""

    def __init__(self, state: Grid) -> None:
        memory = state.memory
        self.tensors = [
            _Allocation(f"the allocation at {start:#x}", int(start), int(end - start))
            for start, end in zip(memory.starts, memory.ends, strict=True)
        ]
        self.maps = _Maps(state)
        self.freed: dict[int, str] = {}


class _Watched(Answer):
    """Answer of an engine, which lets the sanitizer follow the end of a wait."""

    def __init__(self, inner: Answer, follow: Callable[[Answer], None]) -> None:
        super().__init__()
        self._inner = inner
        self._follow = follow

    def is_there(self) -> bool:
        if self.cycle is None and self._inner.is_there():
            self.give(self._inner.cycle or 0, self._inner.value)
            self._follow(self)
        return self.cycle is not None


@lru_cache(maxsize=64)
def _plan(contents: bytes, store: bool) -> Plan:
    return Plan(contents, store=store)


class SanitizingObserver(Observer):
    """Tells the sanitizer of a grid's accesses, requests and synchronisation.

    Parameters
    ----------
    kernel : Kernel
    state : Grid
    sms : int
        SMs, over all clusters that run at the same time.
    smem_bytes : int
        Bytes of shared memory of a block.
    """

    is_active = True

    def __init__(self, kernel: Kernel, state: Grid, sms: int, smem_bytes: int) -> None:
        layout = SmemLayout(smem_bytes)
        layout.bytes = smem_bytes
        self._kernel = kernel
        device = cast(Device, _Device(state))
        cluster = int(np.prod(state.cluster))
        self.sanitizer = Sanitizer(layout, smem_bytes, sms, device, cluster)
        self._tracked: dict[Warp, TrackedWarpgroup] = {}
        self._threads: dict[tuple[Warp, int], Threads] = {}
        self._sms: dict[Cta, int] = {}
        self._registers: dict[Warp, _Registers] = {}
        products = (each for each in kernel.source if each.parts[:2] == ("wgmma", "mma_async"))
        self._operands = {register for each in products for register in _operands(each)}

    # Blocks and warps

    def begin(self, ctas: list[Cta], first: int) -> list[Engine]:
        """Follow the begin of a cluster; return engines that tell the sanitizer of requests."""
        engines: list[Engine] = []
        for cta in ctas:
            sm = first + cta.rank
            self._sms[cta] = sm
            for warp in cta.warps:
                group = self.sanitizer.add_warpgroup(sm, f"warp {warp.index}", 1)
                self._tracked[warp] = group
                self._share_products(warp, group)
                self._registers[warp] = _Registers()
            self.sanitizer.begin_roles(sm)
            engines.append(_ObservedEngine(cta.engine, self, first))
        return engines

    def _share_products(self, warp: Warp, group: TrackedWarpgroup) -> None:
        """Let the warps of a warpgroup have the same groups of ``wgmma``, which all execute."""
        first = warp.cta.warps[warp.index - warp.index % WARPGROUP_WARPS]
        if first is not warp:
            self.sanitizer.components.drop([group.wgmma_groups])
            group.wgmma_groups = self._tracked[first].wgmma_groups

    def end(self, ctas: list[Cta]) -> None:
        """Forget the blocks, so that others can run on their SMs."""
        for cta in ctas:
            self.sanitizer.end_cta(self._sms.pop(cta))
            for warp in cta.warps:
                del self._tracked[warp], self._registers[warp]
        self._threads.clear()

    def end_grid(self) -> None:
        """Check that nothing is in flight."""
        with self.mistakes(None):
            self.sanitizer.end_kernel()

    def exits(self, warp: Warp) -> None:
        """Follow the end of a warp."""
        with self.mistakes(self._kernel.lines[-1]):
            self.sanitizer.exit_warpgroup(self._tracked[warp], warp.clock)

    def sm_of(self, warp: Warp) -> int:
        """Return the SM of a warp's block."""
        return self._sms[warp.cta]

    def threads(self, warp: Warp, mask: Mask | int) -> Threads:
        """Return threads of a warp, as the sanitizer knows them."""
        lanes = mask if isinstance(mask, int) else _bits(mask)
        key = warp, lanes
        if key not in self._threads:
            self._threads[key] = self._tracked[warp].threads(1, lanes)
        return self._threads[key]

    @contextmanager
    def mistakes(self, line: int | None) -> Iterator[None]:
        """Turn mistakes that the sanitizer finds into errors of a line."""
        try:
            yield
        except KernelError as error:
            text = _NAMES.sub(lambda match: _PTX_NAMES[match.group()], str(error))
            raise PtxError(text, line) from None

    def _here(self, warp: Warp) -> tuple[str, tuple[str, ...], int]:
        """Return text, parts and line of the instruction that a warp executes now."""
        instruction = self._kernel.source[warp.pc]
        text = f"{instruction.opcode} (line {instruction.line})"
        return text, instruction.parts, instruction.line

    # Registers of wgmma

    def executes(self, warp: Warp, pc: int) -> None:
        """Check that registers of a ``wgmma`` in flight are not used, and that fences are there.

        A ``mov`` is a renaming: compilers write it around ``wgmma``, and it is no instruction of
        the machine.
        """
        instruction, step = self._kernel.source[pc], self._kernel.steps[pc]
        parts = instruction.parts
        registers = self._registers[warp]
        if parts[0] == "wgmma":
            self._wgmma(warp, instruction, step)
        elif parts[0] == "mov" and len(step.registers) == 2:
            registers.rename(step.results[0], step.registers[-1])
        else:
            registers.check(warp, instruction, step)
            for register in step.results:
                if register in self._operands:
                    registers.touched[register] = instruction.line

    def _wgmma(self, warp: Warp, instruction: Instruction, step: Step) -> None:
        registers, parts = self._registers[warp], instruction.parts
        threads, group = self.threads(warp, ALL_LANES), self._tracked[warp]
        if parts[1] == "fence":
            registers.touched.clear()
            self.sanitizer.wgmma_fence(threads)
        elif parts[1] == "commit_group":
            self.sanitizer.wgmma_commit(threads)
        elif parts[1] == "wait_group":
            (groups,) = instruction.operands
            self.sanitizer.wgmma_wait_returned(threads, cast(Number, groups).value)
            registers.end_groups(group.wgmma_waited)
        else:
            registers.begin(warp, instruction, step, group.wgmma_committed + 1)

    def product(self, warp: Warp, descriptor: int, places: NDArray[np.int64]) -> None:
        """Follow the read of an operand of ``wgmma`` in shared memory."""
        text, _, line = self._here(warp)
        words = np.unique(places >> 2)
        with self.mistakes(line):
            self.sanitizer.wgmma_reads(
                self.threads(warp, ALL_LANES), text, words, _SWIZZLES[descriptor >> 62], warp.clock
            )

    # Accesses

    def reads(
        self, warp: Warp, space: str, addresses: NDArray[np.int64], size: int, mask: Mask
    ) -> None:
        """Follow a load."""
        self._access(warp, space, addresses, size, mask, Access.READ)

    def writes(
        self,
        warp: Warp,
        space: str,
        addresses: NDArray[np.int64],
        data: NDArray[np.uint8],
        mask: Mask,
        *,
        changes: bool,
    ) -> None:
        """Follow a store.

        Compilers let threads store equal bytes at one address: those of a warp are one store, and
        a race in which nothing changes is none.
        """
        where = addresses[mask]
        _, first, place = np.unique(where, return_index=True, return_inverse=True)
        if first.size < where.size:
            stored = data[mask]
            if (stored == stored[first[place]]).all():
                mask = np.isin(np.arange(mask.size), np.flatnonzero(mask)[first])
        try:
            self._access(warp, space, addresses, data.shape[1], mask, Access.WRITE)
        except PtxError:
            if changes:
                raise

    def updates(
        self, warp: Warp, space: str, addresses: NDArray[np.int64], size: int, mask: Mask
    ) -> None:
        """Follow an atomic operation."""
        self._access(warp, space, addresses, size, mask, Access.ATOMIC)

    def _access(
        self,
        warp: Warp,
        space: str,
        addresses: NDArray[np.int64],
        size: int,
        mask: Mask,
        access: Access,
    ) -> None:
        if space not in ("shared", "global"):
            return
        text, parts, line = self._here(warp)
        where = addresses[mask]
        with self.mistakes(line):
            if space == "global":
                self._global(warp, mask, text, parts, where, size, access)
                return
            ranks = where >> RANK_SHIFT
            for rank in np.unique(ranks).tolist():
                chosen = mask.copy()
                chosen[mask] = ranks == rank
                offsets = where[ranks == rank] & ((1 << RANK_SHIFT) - 1)
                cta = self.sm_of(warp) - warp.cta.rank + rank
                self.sanitizer.shared_access(
                    self.threads(warp, chosen), text, offsets, size, warp.clock, access, cta=cta
                )

    def _global(
        self,
        warp: Warp,
        mask: Mask,
        text: str,
        parts: tuple[str, ...],
        where: NDArray[np.int64],
        size: int,
        access: Access,
    ) -> None:
        threads, scope = self.threads(warp, mask), _scope_of(parts, Scope.GPU)
        places = dict.fromkeys(where.tolist())
        if "release" in parts or "acq_rel" in parts:
            for place in places:
                self.sanitizer.release(threads, place, scope)
        strong = any(part in _STRONG for part in parts)
        self.sanitizer.global_access(threads, text, where, size, warp.clock, access, strong=strong)
        if "acquire" in parts or "acq_rel" in parts:
            for place in places:
                self.sanitizer.acquire(threads, place, scope)

    def fence(self, warp: Warp, mask: Mask) -> None:
        """Follow a fence: between proxies, of an initialisation, of a tensor map, or of memory."""
        _, parts, line = self._here(warp)
        threads = self.threads(warp, mask)
        with self.mistakes(line):
            if "mbarrier_init" in parts:
                self.sanitizer.fence_mbarrier_init(threads)
            elif "tensormap::generic" in parts:
                self.sanitizer.release_map(threads)
            elif "async" in parts:
                shared = not any(part.startswith("global") for part in parts)
                everywhere = parts[-1] == "async"
                self.sanitizer.fence_async(
                    threads, shared=shared, global_memory=everywhere or not shared
                )
            elif "proxy" not in parts:
                names = {"membar": {"cta": "cta", "gl": "gpu", "sys": "sys"}}
                level = names.get(parts[0], {}).get(parts[-1])
                self.sanitizer.fence(threads, _scope_of((level or "", *parts), Scope.GPU))

    def copy_map(self, warp: Warp, lane: int, address: int) -> None:
        """Follow the change of a tensor map, and its release."""
        text, _, line = self._here(warp)
        threads = self.threads(warp, 1 << lane)
        with self.mistakes(line):
            self.sanitizer.replace_map(threads, address, f"{text} by {threads.label}")
            self.sanitizer.release_map(threads, address)

    # Barriers of threads

    def arrive(self, warp: Warp, mask: Mask, barrier: NamedBarrier) -> object:
        """Follow an arrival."""
        _, parts, _ = self._here(warp)
        if barrier.meeting is None:
            barrier.meeting = self.sanitizer.meeting()
        scope = Scope.CLUSTER if "cluster" in parts else Scope.CTA
        meeting = cast(Meeting, barrier.meeting)
        relaxed = "relaxed" in parts
        self.sanitizer.arrive_at(meeting, self.threads(warp, mask), scope, relaxed=relaxed)
        return meeting

    def leave(self, warp: Warp, mask: Mask, meeting: object) -> None:
        """Follow the end of a wait."""
        if meeting is not None:
            self.sanitizer.leave(cast(Meeting, meeting), self.threads(warp, mask))


def _operands(product: Instruction) -> Iterator[int]:
    """Yield the registers of a ``wgmma`` that the tensor cores access: accumulators, and A."""
    yield from registers_of(
        product, [each for each in product.operands[:2] if isinstance(each, Vector)]
    )


def _bits(mask: Mask) -> int:
    return int(np.packbits(mask, bitorder="little").view("<u4")[0])


def _scope_of(parts: Sequence[str], default: Scope) -> Scope:
    """Return the scope that an opcode names."""
    return next((_SCOPES[part] for part in parts if part in _SCOPES), default)


class _Registers:
    """Registers of a warp that ``wgmma`` uses.

    Members
    -------
    written, read : dict of int to (int, int)
        Registers that products in flight write, or only read: number of the group, and line.
    touched : dict of int to int
        Registers that other instructions have written since the last ``wgmma.fence``, and where.
    """

    def __init__(self) -> None:
        self.written: dict[int, tuple[int, int]] = {}
        self.read: dict[int, tuple[int, int]] = {}
        self.touched: dict[int, int] = {}

    def rename(self, target: int, source: int) -> None:
        """Follow a ``mov`` between registers."""
        for table in (self.written, self.read, self.touched):
            if source in table:
                table[target] = cast(Any, table[source])
            else:
                table.pop(target, None)

    def begin(self, warp: Warp, instruction: Instruction, step: Step, group: int) -> None:
        """Follow a product."""
        for register in _operands(instruction):
            if register in self.touched:
                raise PtxError(
                    f"wgmma uses a register that line {self.touched[register]} wrote, without "
                    "wgmma.fence between them: the tensor cores may use the old value; put "
                    f"wgmma.fence before the first wgmma, {warp.thread_name(0)}",
                    instruction.line,
                )
            self.read[register] = group, instruction.line
        for register in step.results:
            self.written[register] = group, instruction.line

    def end_groups(self, last: int) -> None:
        """Follow the end of a wait for groups up to number ``last``."""
        for table in (self.written, self.read):
            for register in [each for each, (group, _) in table.items() if group <= last]:
                del table[register]

    def check(self, warp: Warp, instruction: Instruction, step: Step) -> None:
        """Check that an instruction does not use what products in flight write, nor write theirs.

        Raises
        ------
        PtxError
            If it does.
        """
        if not self.read:
            return
        used = [(each, self.written) for each in step.registers]
        for register, table in [*used, *((each, self.read) for each in step.results)]:
            if register in table:
                _, line = table[register]
                raise PtxError(
                    f"{instruction.opcode} uses a register of the wgmma in line {line}, whose "
                    "group no wgmma.wait_group covers yet: the registers are those of the tensor "
                    f"cores until then; wait first, {warp.thread_name(0)}",
                    instruction.line,
                )


class _ObservedEngine:
    """Engine that tells the sanitizer of what it hands on to another one."""

    def __init__(self, engine: Engine, observer: SanitizingObserver, first: int) -> None:
        self._engine = engine
        self._observer = observer
        self._sanitizer = observer.sanitizer
        self._first = first
        self._with_groups: set[int] = set()

    # Requests

    def issue(self, origin: Origin, request: GoldenRequest, map_address: int, policy: int) -> None:
        """Follow a request."""
        # What the golden model refuses, the engine refuses, too, with a message of its own.
        with self._observer.mistakes(origin.instruction.line), suppress(TmaError):
            self._follow(origin, request, map_address)
        self._engine.issue(origin, request, map_address, policy)

    def _follow(self, origin: Origin, request: GoldenRequest, map_address: int) -> None:
        sanitizer, threads = self._sanitizer, self._lane(origin)
        if isinstance(request, Load | Store):
            plan = _plan(bytes(cast(bytes, request.tensor_map)), isinstance(request, Store))
            text = f"{_text(origin)} at {tuple(request.coords)}"
            sanitizer.use_map(threads, text, map_address, origin.warp.clock)
            swizzle = plan.descriptor.swizzle
        match request:
            case Load():
                offsets = request.im2col_offsets
                tracked = self._request(origin, text, plan.bytes(0), map_address)
                source = sanitizer.box(plan, request.coords, offsets)
                extent = plan.extent(0)
                self._load(origin, request, tracked, extent, swizzle, source)
            case BulkLoad():
                size = moved_bytes(request.size)
                text = f"{_text(origin)} of {size} bytes at {request.gmem_address:#x}"
                tracked = self._request(origin, text, size)
                source = sanitizer.bytes(request.gmem_address, size)
                self._load(origin, request, tracked, size, None, source)
            case Store():
                tracked = self._request(origin, text, 0, map_address)
                target = sanitizer.box(plan, request.coords)
                reduces = isinstance(request, Reduce)
                sanitizer.store(
                    threads, tracked, request.smem_address, plan.footprint, swizzle,
                    target=target, reduces=reduces,
                )  # fmt: skip
                self._with_groups.add(origin.thread)
            case BulkStore() | BulkReduce():
                text = f"{_text(origin)} of {request.size} bytes to {request.gmem_address:#x}"
                tracked = self._request(origin, text)
                target = sanitizer.bytes(request.gmem_address, request.size)
                reduces = isinstance(request, BulkReduce)
                sanitizer.store(
                    threads, tracked, request.smem_address, request.size, None,
                    target=target, reduces=reduces,
                )  # fmt: skip
                self._with_groups.add(origin.thread)
            case DsmemCopy():
                self._dsmem(origin, request)

    def _load(
        self, origin: Origin, request: Load | BulkLoad, tracked: TrackedRequest, size: int,
        swizzle: Swizzle | None, source: Any,
    ) -> None:  # fmt: skip
        own = origin.warp.cta.rank
        if request.cta_mask is not None:
            receivers = [rank for rank in range(16) if request.cta_mask >> rank & 1]
            holder = None
        else:
            receivers = [own if request.dst_cta is None else request.dst_cta]
            signals = request.mbarrier_cta
            holder = None if signals is None else self._first + signals
        self._sanitizer.load(
            self._lane(origin), tracked, [self._first + rank for rank in receivers],
            request.smem_address, size, swizzle, request.mbarrier, source, signal_cta=holder,
        )  # fmt: skip

    def _dsmem(self, origin: Origin, request: DsmemCopy) -> None:
        threads, sanitizer = self._lane(origin), self._sanitizer
        text = f"{_text(origin)} of {request.size} bytes to block {request.dst_cta}"
        tracked = self._request(origin, text, request.size)
        target, signals = self._first + request.dst_cta, request.mbarrier_cta
        holder = target if signals is None else self._first + signals
        barrier = sanitizer.barrier_at(threads, text, holder, request.mbarrier, tracked.cycle)
        sanitizer.store(threads, tracked, request.smem_address, request.size, None, barrier)
        sanitizer.load(
            threads, tracked, [target], request.dst_address, request.size, None, request.mbarrier,
            signal_cta=holder, reduces=isinstance(request, DsmemReduce),
        )  # fmt: skip

    def commit_group(self, origin: Origin) -> None:
        """Follow the group, if the thread has issued a request that joins one."""
        if origin.thread in self._with_groups:
            self._sanitizer.commit(self._lane(origin))
        self._engine.commit_group(origin)

    def wait_group(self, origin: Origin, groups: int, *, read: bool) -> Answer:
        """Follow the end of the wait."""
        answer = self._engine.wait_group(origin, groups, read=read)
        if origin.thread not in self._with_groups:
            return answer
        threads = self._lane(origin)

        def follow(given: Answer) -> None:
            cycle = given.cycle or 0
            self._sanitizer.group_wait_returned(threads, groups, cycle, read=read)

        return _Watched(answer, follow)

    def store_async(
        self,
        origin: Origin,
        rank: int,
        stores: list[tuple[int, bytes]],
        mbarrier: int,
        reduction: Reduction | None,
    ) -> None:
        """Follow each thread's store."""
        with self._observer.mistakes(origin.instruction.line):
            for offset, data in stores:
                tracked = self._request(origin, _text(origin), len(data))
                self._sanitizer.load(
                    self._lane(origin), tracked, [self._first + rank], offset, len(data), None,
                    mbarrier, reduces=reduction is not None, by_unit=False,
                )  # fmt: skip
        self._engine.store_async(origin, rank, stores, mbarrier, reduction)

    # Mbarriers

    def initialise(self, origin: Origin, offset: int, count: int | None) -> None:
        """Follow the initialisation, and from then on the phases."""
        sanitizer, threads = self._sanitizer, self._lane(origin)
        with self._observer.mistakes(origin.instruction.line):
            if count is None:
                sanitizer.barrier_inval(threads, offset, origin.warp.clock)
                self._engine.initialise(origin, offset, count)
                return
            self._forget_unused(threads, offset, origin.warp.clock)
            tracked = sanitizer.barrier_init(threads, offset, count, origin.warp.clock)
        if not origin.warp.cta.grid.clustered:
            tracked.published = tracked.initialised[:2]  # compilers leave the fence out here
        self._engine.initialise(origin, offset, count)
        place = tracked.cta, tracked.address

        def on_phase(cycle: int) -> None:
            if not tracked.invalidated and sanitizer.barriers.get(place) is tracked:
                sanitizer.phase_completed(tracked, cycle)

        self._engine.watch_phase(offset, on_phase)

    def _forget_unused(self, threads: Threads, offset: int, cycle: int) -> None:
        """Let a warp initialise a barrier again that nobody has used, as compilers do."""
        before = self._sanitizer.barriers.get((threads.group.cta, offset))
        if before is None or before.invalidated or before.completed_phases:
            return
        is_own = before.initialised[0] == threads.group.warps[0]
        if is_own and not (before.arrivals or before.expects or before.requests):
            before.invalidated = f"{threads.label} in cycle {cycle}"
            self._sanitizer.release_barrier(threads, before, cycle)

    def watch_phase(self, offset: int, call: Callable[[int], None]) -> None:
        """Hand on the call."""
        self._engine.watch_phase(offset, call)

    def update(
        self, origin: Origin, op: Op, rank: int, offset: int, count: int, lanes: int,
        *, returns: bool,
    ) -> Answer:  # fmt: skip
        """Follow arrivals and bytes."""
        sanitizer, cycle = self._sanitizer, origin.warp.clock
        number = lanes.bit_count()
        is_even = count % number == 0
        threads = self._observer.threads(origin.warp, lanes if is_even else 1 << origin.lane)
        each = count // number if is_even else count
        parts = origin.instruction.parts
        with self._observer.mistakes(origin.instruction.line):
            barrier = sanitizer.barrier_at(
                threads, _text(origin), self._first + rank, offset, cycle
            )
            if op is Op.EXPECT_TX:
                sanitizer.expect_tx(threads, barrier, cycle, each)
            elif op is Op.COMPLETE_TX:
                sanitizer.complete_tx(threads, barrier, cycle, each)
            else:
                arrivals, tx_bytes = (1, each) if op.expects_tx else (each, 0)
                sanitizer.arrive(
                    threads, barrier, cycle, arrivals, tx_bytes, scope=self._scope(parts),
                    relaxed="relaxed" in parts, drop=op.drops,
                )  # fmt: skip
        return self._engine.update(origin, op, rank, offset, count, lanes, returns=returns)

    def test(
        self, origin: Origin, offset: int, phase: int, *, by_state: bool, time_limit: int
    ) -> Answer:
        """Follow the end of a wait."""
        sanitizer, parts = self._sanitizer, origin.instruction.parts
        threads, line = self._lane(origin), origin.instruction.line
        parity = mbarrier.parity_of(phase) if by_state else phase
        with self._observer.mistakes(line):
            barrier = sanitizer.barrier_at(
                threads, _text(origin), threads.group.cta, offset, origin.warp.clock
            )
        if time_limit:
            sanitizer.wait_begins(threads, barrier, parity, origin.warp.clock)
        answer = self._engine.test(origin, offset, phase, by_state=by_state, time_limit=time_limit)

        def follow(given: Answer) -> None:
            threads.group.waiting = None
            if given.value:
                sanitizer.wait_returned(
                    threads, barrier, parity, given.cycle or 0, self._scope(parts),
                    relaxed="relaxed" in parts,
                )  # fmt: skip

        return _Watched(answer, follow)

    # Tensor maps

    def fence_tensor_map(self, origin: Origin, address: int) -> Answer:
        """Follow the acquire."""
        self._sanitizer.acquire_map(self._lane(origin), address)
        return self._engine.fence_tensor_map(origin, address)

    def prefetch_tensor_map(self, origin: Origin, address: int) -> None:
        """Hand on the prefetch."""
        self._engine.prefetch_tensor_map(origin, address)

    # Parts

    def _lane(self, origin: Origin) -> Threads:
        return self._observer.threads(origin.warp, 1 << origin.lane)

    def _request(
        self, origin: Origin, text: str, tx_bytes: int = 0, tensor_map: int | None = None
    ) -> TrackedRequest:
        label, sm = self._lane(origin).label, self._observer.sm_of(origin.warp)
        return TrackedRequest(None, text, sm, label, origin.warp.clock, tx_bytes, tensor_map)

    def _scope(self, parts: tuple[str, ...]) -> Scope:
        """Return the scope of an operation on an mbarrier.

        Libraries leave the scope out between blocks of a cluster, and rely on cluster scope.
        """
        return _scope_of(parts, Scope.CLUSTER)


def _text(origin: Origin) -> str:
    return f"{origin.instruction.opcode} (line {origin.instruction.line})"
