"""A behavioural SM: warpgroups as coroutines that drive the unit, in PTX's terms.

Requests and barrier operations go through the ports of the unit. Instructions take slots of a warp
scheduler, and products take as long as Hopper's tensor cores need. The activities of each warpgroup
are recorded, for the report and for the ledger of a hang.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from cocotb.triggers import Event
from numpy.typing import NDArray

from golden import AccessMode, DataType, ReductionOp, mbarrier, tensormap_replace
from sim_tb.sm.costs import Cost, Costs
from sim_tb.sm.device import Device
from sim_tb.sm.errors import KernelError
from sim_tb.sm.pipes import (
    FMA_PER_CLOCK,
    MUFU_PER_CLOCK,
    REGISTERS,
    SMEM_BYTES_PER_CLOCK,
    WARPGROUP_THREADS,
    Pipe,
)
from sim_tb.sm.sanitizer import Sanitizer, TrackedRequest
from sim_tb.sm.smem import PIECE_BYTES, SmemLayout, Tile
from sim_tb.sm.spans import Span
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError

Array = NDArray[Any]
Role = Callable[["Warpgroup"], Coroutine[Any, Any, None]]
"""Program of a warpgroup."""

REGISTER_STEP, LEAST_REGISTERS, MOST_REGISTERS = 8, 24, 256
"""Operands that ``setmaxnreg`` takes."""

PIECE = np.dtype((np.void, PIECE_BYTES))

MAX_LEAD = 64
"""Clocks that a warpgroup may run ahead of the simulation, so that it sleeps less often."""

BF16 = np.dtype(ml_dtypes.bfloat16)

WGMMA_K_BYTES = 32
"""Bytes of k per wgmma: 16 values of 16 bits, or 32 of 8 bits."""

WGMMA_ROWS = 64
"""Rows per wgmma of one warpgroup."""


@dataclass
class Counters:
    """Totals and lists of events of the warpgroups of an SM.

    Members
    -------
    fma : int
        Multiply-adds.
    bank_conflicts : int
        Clocks lost to bank conflicts.
    waits : list of (str, int)
        Name of the barrier and clocks of each wait.
    phase_completions : list of (int, str)
        Cycle and name of the barrier of each completed phase.
    """

    fma: int = 0
    bank_conflicts: int = 0
    waits: list[tuple[str, int]] = field(default_factory=list)
    phase_completions: list[tuple[int, str]] = field(default_factory=list)


class Warpgroup:
    """A warpgroup of 128 threads with one role.

    Each coroutine is an instruction and has its name in PTX. Instructions of a single thread are
    executed by an elected thread. All instructions take issue slots.

    Parameters
    ----------
    sm : SM
    role : str
        Name of the role.
    thread : int
        Number of the elected thread, which owns the bulk groups.

    Members
    -------
    registers : int
        Registers per thread.
    ready_cycle : int
        First cycle in which it can execute the next instruction.
    activity : (str, int), optional
        What it waits for, and since which cycle.
    tracked : TrackedWarpgroup
        How the sanitizer tracks it.
    """

    def __init__(self, sm: "SM", role: str, thread: int) -> None:
        self.sm = sm
        self.role = role
        self.thread = thread
        self.registers = 0
        self.ready_cycle = 0
        self.activity: tuple[str, int] | None = None
        self.tracked = sm.sanitizer.add_warpgroup(sm.cta, role)
        self._last_span: int | None = None
        self._wgmma_end = 0
        self._wgmma_group_ends: list[int] = []

    @property
    def cta(self) -> int:
        """Rank of its CTA in the cluster."""
        return self.sm.cta

    @property
    def clock(self) -> int:
        """First cycle in which it can execute the next instruction, at the earliest the present."""
        return max(self.sm.env.cycle, self.ready_cycle)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record the time of the ``with`` block as a span called ``name``."""
        start = self.clock
        self.activity = name, start
        yield
        self.activity = None
        self._add_span(name, start, self.clock)

    def _add_span(self, name: str, start: int, end: int) -> None:
        spans, last = self.sm.spans, self._last_span
        if last is not None and (spans[last].name, spans[last].end) == (name, start):
            spans[last] = spans[last]._replace(end=end)
        elif end > start:
            self._last_span = len(spans)
            spans.append(Span(self.role, name, start, end))

    async def issue(self, slots: int, name: str = "issue") -> None:
        """Take ``slots`` issue slots, in turns with the other warpgroups.

        The warpgroup may then be up to ``MAX_LEAD`` clocks ahead of the simulation. The testbench
        hands its requests to the unit in the cycle of their first slot.
        """
        costs = self.sm.costs
        while slots > 0:
            clocks = min(slots, costs.chunk) * costs.interval
            slots -= costs.chunk
            await self._use(self.sm.scheduler, clocks, name)

    async def _execute(self, instruction: str, cost: Cost) -> None:
        """Take the slots of an instruction, and wait for the rest of its clocks."""
        await self.issue(cost.slots)
        ready = self.sm.env.not_before + cost.clocks
        if ready > self.ready_cycle:
            self._add_span(f"wait {instruction}", self.ready_cycle, ready)
            self.ready_cycle = ready

    async def _use(self, pipe: Pipe, clocks: int, name: str) -> None:
        """Use a pipe for ``clocks`` cycles, as soon as the warpgroup and the pipe are free."""
        if self.ready_cycle > self.sm.env.cycle + MAX_LEAD:
            await self.sm.until(self.ready_cycle)
        self.ready_cycle = pipe.reserve(self.clock, clocks)
        self.sm.env.not_before = self.ready_cycle - clocks
        self._add_span(name, self.ready_cycle - clocks, self.ready_cycle)

    async def alu(self, elements: int, operations: int = 1) -> None:
        """Execute ``operations`` arithmetic instructions on each of ``elements`` values."""
        await self.issue(-(-elements * operations // WARPGROUP_THREADS), "math")

    async def mufu(self, elements: int) -> None:
        """Execute ``ex2.approx`` or another special function on each of ``elements`` values."""
        await self._use(self.sm.mufu, -(-elements // MUFU_PER_CLOCK), "math")

    # mbarrier

    async def mbarrier_init(self, barrier: int, count: int) -> None:
        """``mbarrier.init``."""
        await self.issue(self.sm.costs.arrive)
        sanitizer, cycle = self.sm.sanitizer, self.sm.env.cycle
        tracked = sanitizer.barrier_init(self.tracked, barrier, count, cycle)
        counters, name = self.sm.counters, self.sm.layout.name(barrier)
        result = await self.sm.env.barriers.command("INIT", barrier, count)
        if result.fault is not None:
            raise KernelError(
                f"{self.role}: mbarrier.init of {count} on {name} in cycle {self.sm.env.cycle}: "
                f"{result.fault}"
            )

        def on_phase(cycle: int, _: mbarrier.Barrier) -> None:
            if not tracked.invalidated:
                counters.phase_completions.append((cycle, name))
                sanitizer.phase_completed(tracked, cycle)

        self.sm.env.barriers.watch(barrier, on_phase, awaited=False)

    async def mbarrier_inval(self, barrier: int) -> None:
        """``mbarrier.inval``."""
        await self.issue(self.sm.costs.arrive)
        self.sm.sanitizer.barrier_inval(self.tracked, barrier, self.sm.env.cycle)
        self._post("mbarrier.inval", "INVAL", barrier, 0)

    async def mbarrier_arrive(
        self, barrier: int, count: int = 1, *, cta: int | None = None
    ) -> None:
        """``mbarrier.arrive``. An arrival at a barrier of another CTA returns no state."""
        await self._arrive("ARRIVE", barrier, count, 0, cta)

    async def mbarrier_arrive_expect_tx(
        self, barrier: int, tx_bytes: int, *, cta: int | None = None
    ) -> None:
        """``mbarrier.arrive.expect_tx``."""
        await self._arrive("ARRIVE_EXPECT_TX", barrier, tx_bytes, tx_bytes, cta)

    async def mbarrier_expect_tx(self, barrier: int, tx_bytes: int) -> None:
        """``mbarrier.expect_tx``."""
        await self.issue(self.sm.costs.expect_tx)
        sanitizer, cycle = self.sm.sanitizer, self.sm.env.cycle
        tracked = sanitizer.barrier_at(self.tracked, "mbarrier.expect_tx", self.cta, barrier, cycle)
        sanitizer.expect_tx(self.tracked, tracked, cycle, tx_bytes)
        self._post("mbarrier.expect_tx", "EXPECT_TX", barrier, tx_bytes)

    async def mbarrier_try_wait_parity(self, barrier: int, parity: int) -> None:
        """``mbarrier.try_wait.parity`` in a loop, until it returns true."""
        instruction, name = "mbarrier.try_wait.parity", self.sm.layout.name(barrier)
        tracked = self.sm.sanitizer.barrier_at(
            self.tracked, instruction, self.cta, barrier, self.sm.env.cycle
        )
        await self.issue(self.sm.costs.try_wait.slots)
        start, least = self.clock, self.sm.env.not_before + self.sm.costs.try_wait.clocks
        self.sm.sanitizer.wait_begins(self.tracked, tracked, parity, start)
        with self.span(f"wait {name}"):
            await self.sm.env.barriers.wait(barrier, parity, None)
            await self.sm.until(max(self.ready_cycle, least))
        end = self.sm.env.cycle
        self.sm.counters.waits.append((name, end - start))
        self.sm.sanitizer.wait_returned(self.tracked, tracked, parity, end)

    async def _arrive(
        self, op: str, barrier: int, count: int, tx_bytes: int, cta: int | None
    ) -> None:
        await self.issue(self.sm.costs.arrive)
        sanitizer, cycle = self.sm.sanitizer, self.sm.env.cycle
        owner = self.cta if cta is None else cta
        instruction = f"mbarrier.{op.lower().replace('_e', '.e', 1)}"
        tracked = sanitizer.barrier_at(self.tracked, instruction, owner, barrier, cycle)
        arrivals = 1 if op == "ARRIVE_EXPECT_TX" else count
        sanitizer.arrive(self.tracked, tracked, cycle, arrivals, tx_bytes)
        env, costs = self.sm.env, self.sm.costs
        issued = env.not_before
        if op == "ARRIVE":
            env.not_before += costs.arrival
        if owner == self.cta:
            self._post(instruction, op, barrier, count)
        else:
            env.not_before += costs.release
            env.remote.send_barrier(owner, op, barrier, count)
        env.not_before = issued

    def _post(self, instruction: str, op: str, barrier: int, count: int) -> None:
        """Send an operation to a barrier of the own CTA; a fault ends the run."""
        text = (
            f"{self.role}: {instruction} of {count} on {self.sm.layout.name(barrier)} in cycle "
            f"{self.sm.env.cycle}"
        )

        def on_fault(fault: str) -> None:
            self.sm.cluster.fail(KernelError(f"{text}: {fault}"))

        self.sm.env.barriers.post(op, barrier, count, on_fault)

    # Loads

    async def cp_async_bulk_tensor(
        self,
        tile: Tile,
        tensor_map: int,
        coords: Sequence[int],
        barrier: int,
        *,
        mode: AccessMode | None = None,
        im2col_offsets: Sequence[int] = (),
        cta_mask: int | None = None,
    ) -> None:
        """``cp.async.bulk.tensor``, global to shared memory.

        The box is written from the start of ``tile`` on. With ``cta_mask`` the instruction has
        ``.multicast::cluster``.
        """
        await self.issue(self.sm.costs.tma)
        sm, address = self.sm, tile.address
        plan = sm.device.plan(tensor_map, mode)
        text = f"cp.async.bulk.tensor of {sm.device.name(tensor_map)} at {tuple(coords)}"
        sm.sanitizer.use_map(self.tracked, text, tensor_map, sm.env.not_before)
        receivers = [self.cta] if cta_mask is None else bits(cta_mask)
        request = self._request(text, plan.bytes(), tensor_map)
        sm.sanitizer.load(
            self.tracked,
            request,
            receivers,
            address,
            plan.footprint,
            plan.descriptor.swizzle,
            barrier,
        )
        request.number = sm.env.requests.load(
            tensor_map,
            coords,
            address,
            barrier,
            mode=plan.mode.name,
            im2col_info=im2col_offsets,
            cta_mask=cta_mask,
        )
        sm.load_bytes += plan.bytes() * len(receivers)

    async def cp_async_bulk(self, tile: Tile, source: int, size: int, barrier: int) -> None:
        """``cp.async.bulk``: ``size`` bytes from global memory to the start of ``tile``."""
        await self.issue(self.sm.costs.tma)
        text = f"cp.async.bulk of {size} bytes at {source:#x}"
        self._check_range(text, source, size)
        request = self._request(text, size)
        self.sm.sanitizer.load(self.tracked, request, [self.cta], tile.address, size, None, barrier)
        request.number = self.sm.env.requests.bulk_load(source, tile.address, size, barrier)
        self.sm.load_bytes += size

    async def cp_async_bulk_dsmem(self, cta: int, target: Tile, source: Tile, barrier: int) -> None:
        """``cp.async.bulk.shared::cluster.shared::cta``: ``source`` to ``target`` of another CTA.

        ``barrier`` is a barrier of the other CTA, which counts the bytes.
        """
        await self.issue(self.sm.costs.tma)
        size = source.nbytes
        text = f"cp.async.bulk of {source.name} to {target.name} of CTA {cta}"
        request = self._request(text, size)
        sanitizer = self.sm.sanitizer
        tracked = sanitizer.barrier_at(self.tracked, text, cta, barrier, request.cycle)
        sanitizer.store(self.tracked, request, source.address, size, None, tracked)
        sanitizer.load(self.tracked, request, [cta], target.address, size, None, barrier)
        request.number = self.sm.env.requests.dsmem_copy(
            cta, target.address, source.address, size, barrier
        )

    async def prefetch_tensormap(self, tensor_map: int) -> None:
        """``prefetch.tensormap``."""
        await self.issue(self.sm.costs.tma)
        await self.sm.until(self.ready_cycle)
        await self.sm.env.descriptors.prefetch(tensor_map)

    # Stores

    async def cp_async_bulk_tensor_store(
        self,
        tensor_map: int,
        coords: Sequence[int],
        tile: Tile,
        *,
        mode: AccessMode | None = None,
    ) -> None:
        """``cp.async.bulk.tensor``, shared to global memory, ``.bulk_group``."""
        await self._store("cp.async.bulk.tensor", tensor_map, coords, tile, mode, None)

    async def cp_reduce_async_bulk_tensor(
        self,
        tensor_map: int,
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
        tensor_map: int,
        coords: Sequence[int],
        tile: Tile,
        mode: AccessMode | None,
        op: ReductionOp | None,
    ) -> None:
        await self.issue(self.sm.costs.tma)
        sm = self.sm
        plan = sm.device.plan(tensor_map, mode, store=True)
        text = f"{instruction} to {sm.device.name(tensor_map)} at {tuple(coords)}"
        sm.sanitizer.use_map(self.tracked, text, tensor_map, sm.env.not_before)
        request = self._request(text, tensor_map=tensor_map)
        sm.sanitizer.store(
            self.tracked, request, tile.address, plan.footprint, plan.descriptor.swizzle
        )
        request.number = sm.env.requests.store(
            tensor_map, coords, tile.address, mode=plan.mode.name, op=op, thread=self.thread
        )

    async def cp_async_bulk_store(self, target: int, tile: Tile, size: int) -> None:
        """``cp.async.bulk``, shared to global memory: ``size`` bytes from the start of ``tile``."""
        await self._bulk_store("cp.async.bulk", target, tile, size, None)

    async def cp_reduce_async_bulk(
        self, target: int, tile: Tile, size: int, data_type: DataType, op: ReductionOp
    ) -> None:
        """``cp.reduce.async.bulk``."""
        await self._bulk_store("cp.reduce.async.bulk", target, tile, size, (data_type, op))

    async def _bulk_store(
        self,
        instruction: str,
        target: int,
        tile: Tile,
        size: int,
        reduction: tuple[DataType, ReductionOp] | None,
    ) -> None:
        await self.issue(self.sm.costs.tma)
        text = f"{instruction} of {size} bytes to {target:#x}"
        self._check_range(text, target, size)
        request = self._request(text)
        self.sm.sanitizer.store(self.tracked, request, tile.address, size, None)
        request.number = self.sm.env.requests.bulk_store(
            target, tile.address, size, reduction=reduction, thread=self.thread
        )

    async def commit_group(self) -> None:
        """``cp.async.bulk.commit_group``."""
        self.sm.sanitizer.commit(self.tracked, self.tracked.bulk_groups)
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
            self.tracked, self.tracked.bulk_groups, groups, self.sm.env.cycle, read=read
        )

    def _request(
        self, text: str, tx_bytes: int = 0, tensor_map: int | None = None
    ) -> TrackedRequest:
        cycle = self.sm.env.not_before
        return TrackedRequest(None, text, self.cta, self.role, cycle, tx_bytes, tensor_map)

    def _check_range(self, text: str, address: int, size: int) -> None:
        access = f"{self.role}: {text} in cycle {self.sm.env.not_before}"
        self.sm.device.check_range(access, address, size)

    # Proxies and tensor maps

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
        self.sm.sanitizer.fence_async(self.tracked)

    async def tensormap_replace(
        self, tensor_map: int, field: str, value: int, index: int | None = None
    ) -> None:
        """``tensormap.replace.tile`` on a map in global memory."""
        await self._execute("tensormap.replace", self.sm.costs.replace(field))
        text = f"tensormap.replace of {field} by {self.role} in cycle {self.sm.env.cycle}"
        self.sm.sanitizer.replace_map(self.tracked, tensor_map, text)
        words = self.sm.device.maps[tensor_map]
        words[:] = np.frombuffer(tensormap_replace(words.tobytes(), field, value, index), np.uint32)

    async def fence_proxy_tensormap(self, tensor_map: int) -> None:
        """``fence.proxy.tensormap::generic.acquire``: the descriptor cache drops the map."""
        await self.issue(self.sm.costs.fence_tensormap.slots)
        least = self.sm.env.not_before + self.sm.costs.fence_tensormap.clocks
        with self.span("wait fence.proxy.tensormap"):
            await self.sm.until(self.ready_cycle)
            await self.sm.env.descriptors.invalidate(tensor_map)
            await self.sm.until(least)
        self.sm.sanitizer.acquire_map(self.tracked, tensor_map)

    # Shared memory

    async def ldmatrix(self, tile: Tile) -> Array:
        """``ldmatrix`` of a whole tile; return its rows without the swizzle."""
        await self._smem("ldmatrix", tile, tile.matrix_wavefronts)
        return self._read("ldmatrix", tile)

    async def ld_shared(self, tile: Tile, *, columns: bool = False) -> Array:
        """``ld.shared`` of a whole tile; return its rows. A warp reads along a row or a column."""
        await self._smem("ld.shared", tile, tile.access_wavefronts(columns=columns))
        return self._read("ld.shared", tile)

    async def stmatrix(self, tile: Tile, values: Array) -> None:
        """``stmatrix`` of a whole tile. ``values`` are its rows without the swizzle."""
        self.sm.sanitizer.thread_write(self.tracked, "stmatrix", tile, self.sm.env.cycle)
        await self._smem("stmatrix", tile, tile.matrix_wavefronts)
        self.sm.write(tile, values)

    async def st_shared(self, tile: Tile, values: Array, *, columns: bool = False) -> None:
        """``st.shared`` of a whole tile. A warp writes along a row or a column."""
        self.sm.sanitizer.thread_write(self.tracked, "st.shared", tile, self.sm.env.cycle)
        await self._smem("st.shared", tile, tile.access_wavefronts(columns=columns))
        self.sm.write(tile, values)

    async def _smem(self, name: str, tile: Tile, wavefronts: int) -> None:
        ideal = -(-tile.nbytes // SMEM_BYTES_PER_CLOCK)
        self.sm.counters.bank_conflicts += max(0, wavefronts - ideal)
        await self._use(self.sm.smem_port, wavefronts, name)

    def _read(self, instruction: str, tile: Tile) -> Array:
        self.sm.sanitizer.thread_read(self.tracked, instruction, tile, self.sm.env.cycle)
        return self.sm.read(tile)

    # Tensor cores

    async def wgmma(
        self, accumulator: NDArray[np.float32], a: Tile | Array, b: Tile, *, trans_b: bool = True
    ) -> None:
        """``wgmma.mma_async``: add the product of ``a`` and ``b`` to ``accumulator``.

        All products are exact, and the sum over the k of this call is rounded once (choice).

        Parameters
        ----------
        accumulator : array
            Accumulators in registers, m x n.
        a : Tile or array
            m rows of k elements. An array is in registers.
        b : Tile
            Rows in shared memory.
        trans_b : bool
            True: ``b`` has n rows of k elements. False: it has k rows of n elements.
        """
        m, k = a.shape
        n = accumulator.shape[1]
        steps = -(-k * b.dtype.itemsize // WGMMA_K_BYTES) * -(-m // WGMMA_ROWS)
        await self.issue(self.sm.costs.wgmma * steps)
        cycle = self.sm.env.cycle
        for tile in (a, b):
            if isinstance(tile, Tile):
                self.sm.sanitizer.thread_read(self.tracked, "wgmma", tile, cycle, wgmma=True)
        a_values = self.sm.read(a) if isinstance(a, Tile) else a
        b_values = self.sm.read(b)
        with np.errstate(over="ignore", invalid="ignore"):
            product = wide(a_values) @ (wide(b_values).T if trans_b else wide(b_values))
            np.add(accumulator, product, out=accumulator, casting="same_kind")
        self.sm.counters.fma += m * n * k
        self._wgmma_end = self.sm.tensor_cores.reserve(
            self.ready_cycle, -(-m * n * k // FMA_PER_CLOCK)
        )

    async def wgmma_commit_group(self) -> None:
        """``wgmma.commit_group``."""
        self._wgmma_group_ends.append(self._wgmma_end)
        self.sm.sanitizer.commit(self.tracked, self.tracked.wgmma_groups)

    async def wgmma_wait_group(self, groups: int) -> None:
        """``wgmma.wait_group``: wait until at most ``groups`` groups are pending."""
        done = len(self._wgmma_group_ends) - groups
        if done > 0:
            with self.span("mma"):
                await self.sm.until(max(self.ready_cycle, self._wgmma_group_ends[done - 1]))
            del self._wgmma_group_ends[:done]
        self.sm.sanitizer.group_wait_returned(
            self.tracked, self.tracked.wgmma_groups, groups, self.sm.env.cycle
        )

    # Other warpgroups

    async def bar_sync(self, number: int, warpgroups: int) -> None:
        """``bar.sync`` at named barrier ``number``, of ``warpgroups`` warpgroups of the CTA."""
        await self.issue(self.sm.costs.sync)
        await self.sm.until(self.ready_cycle)
        with self.span(f"bar.sync {number}"):
            await self.sm.rendezvous(self, number, warpgroups)

    async def cluster_sync(self) -> None:
        """``barrier.cluster.arrive`` and ``wait``, of one warpgroup of each CTA."""
        await self.issue(self.sm.costs.sync)
        await self.sm.until(self.ready_cycle)
        with self.span("barrier.cluster"):
            await self.sm.cluster.rendezvous(self)

    async def setmaxnreg(self, registers: int) -> None:
        """``setmaxnreg``: set the registers per thread. An increase waits for free registers.

        Raises
        ------
        KernelError
            If the instruction does not take this number.
        """
        is_legal = LEAST_REGISTERS <= registers <= MOST_REGISTERS
        if not is_legal or registers % REGISTER_STEP:
            raise KernelError(
                f"{self.role}: setmaxnreg {registers} in cycle {self.sm.env.cycle}: the number "
                f"must be a multiple of {REGISTER_STEP} from {LEAST_REGISTERS} to {MOST_REGISTERS}"
            )
        with self.span("setmaxnreg"):
            await self.sm.set_registers(self, registers)


def bits(mask: int) -> list[int]:
    """Return the numbers of the bits that are set."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]


def wide(values: Array) -> NDArray[np.float64]:
    """Convert to double, in which products of two bf16 or f16 numbers are exact."""
    if values.dtype == BF16:
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


class SM:
    """An SM with one CTA, around the unit of ``env``.

    Members
    -------
    env : Environment
    device : Device
    layout : SmemLayout
    sanitizer : Sanitizer
    costs : Costs
    cluster : ClusterRun
    scheduler, tensor_cores, smem_port, mufu : Pipe
    spans : list of Span
        Activities of the warpgroups.
    counters : Counters
    load_bytes : int
        Bytes that the loads of this SM write to shared memory, in all receivers together.
    warpgroups : list of Warpgroup
    """

    def __init__(
        self, env: Environment, device: Device, layout: SmemLayout, sanitizer: Sanitizer,
        costs: Costs, cluster: "ClusterRun",
    ) -> None:  # fmt: skip
        self.env = env
        self.device = device
        self.layout = layout
        self.sanitizer = sanitizer
        self.costs = costs
        self.cluster = cluster
        self.scheduler, self.tensor_cores = Pipe(), Pipe()
        self.smem_port, self.mufu = Pipe(), Pipe()
        self.spans: list[Span] = []
        self.counters = Counters()
        self.load_bytes = 0
        self.warpgroups: list[Warpgroup] = []
        self._rendezvous: dict[int, Rendezvous] = {}
        self._registers_released = Event()

    @property
    def cta(self) -> int:
        """Rank of its CTA in the cluster."""
        return self.env.sm

    def add_warpgroup(self, role: str) -> Warpgroup:
        """Start a warpgroup with this role."""
        warpgroup = Warpgroup(self, role, len(self.warpgroups) * WARPGROUP_THREADS)
        self.warpgroups.append(warpgroup)
        return warpgroup

    async def until(self, cycle: int) -> None:
        """Wait until ``cycle``; return at once if it is over."""
        clocks = cycle - self.env.cycle
        if clocks > 0:
            await self.env.cycles(clocks)

    async def rendezvous(self, warpgroup: Warpgroup, number: int, warpgroups: int) -> None:
        """Wait until ``warpgroups`` warpgroups have arrived at named barrier ``number``."""
        rendezvous = self._rendezvous.setdefault(number, Rendezvous(warpgroups))
        if rendezvous.arrive(warpgroup):
            del self._rendezvous[number]
        await rendezvous.complete.wait()

    def rendezvous_points(self) -> "list[tuple[int, Rendezvous]]":
        """Return number and state of each named barrier at which warpgroups wait."""
        return list(self._rendezvous.items())

    async def set_registers(self, warpgroup: Warpgroup, registers: int) -> None:
        """Give each thread of the warpgroup ``registers`` registers, once the SM has enough."""
        before, warpgroup.registers = warpgroup.registers, registers
        if registers < before:
            self._registers_released.set()
            self._registers_released = Event()
            return
        while self._registers_in_use > REGISTERS:
            warpgroup.registers = before
            await self._registers_released.wait()
            warpgroup.registers = registers

    @property
    def _registers_in_use(self) -> int:
        return sum(each.registers for each in self.warpgroups) * WARPGROUP_THREADS

    def read(self, tile: Tile) -> Array:
        """Return the current elements of a tile, without the swizzle."""
        rows = self.env.smem.view(PIECE).take(tile.pieces)
        return rows.view(tile.dtype).reshape(tile.shape)

    def write(self, tile: Tile, values: Array) -> None:
        """Write elements to a tile, with its swizzle.

        Raises
        ------
        KernelError
            If shape or type of ``values`` is not the tile's.
        """
        if values.shape != tile.shape or values.dtype != tile.dtype:
            raise KernelError(
                f"{tile.name}: a tile of shape {tile.shape} and type {tile.dtype} cannot take "
                f"values of shape {values.shape} and type {values.dtype}"
            )
        rows = np.ascontiguousarray(values).view(np.uint8)
        self._smem_pieces[tile.pieces] = rows.reshape(tile.shape[0], -1, PIECE_BYTES)

    @property
    def _smem_pieces(self) -> NDArray[np.uint8]:
        return self.env.smem.reshape(-1, PIECE_BYTES)


class Rendezvous:
    """Warpgroups that wait for each other.

    Members
    -------
    complete : Event
        Set when ``count`` warpgroups have arrived.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.arrived: list[Warpgroup] = []
        self.complete = Event()

    def arrive(self, warpgroup: Warpgroup) -> bool:
        """Let a warpgroup arrive; return whether it was the last one."""
        self.arrived.append(warpgroup)
        if len(self.arrived) < self.count:
            return False
        warpgroup.sm.sanitizer.sync([each.tracked for each in self.arrived])
        self.complete.set()
        return True


class ClusterRun:
    """State that the CTAs of a cluster share during a run.

    Members
    -------
    ctas : int
    error : CheckError, optional
        First failure of any CTA.
    failed : Event
        Set when ``error`` is.
    rendezvous_point : Rendezvous
        State of ``barrier.cluster``.
    """

    def __init__(self, ctas: int) -> None:
        self.ctas = ctas
        self.error: CheckError | None = None
        self.failed = Event()
        self.rendezvous_point = Rendezvous(ctas)

    def fail(self, error: CheckError) -> None:
        """End the run with this failure, unless there is an earlier one."""
        if self.error is None:
            self.error = error
        self.failed.set()

    async def rendezvous(self, warpgroup: Warpgroup) -> None:
        """Wait until one warpgroup of each CTA has arrived (``barrier.cluster``)."""
        rendezvous = self.rendezvous_point
        if rendezvous.arrive(warpgroup):
            self.rendezvous_point = Rendezvous(self.ctas)
        await rendezvous.complete.wait()
