"""A behavioural SM: warps as coroutines that drive the unit, in PTX's terms.

Requests and barrier operations go through the unit's ports; instructions take slots of a warp
scheduler, products the time of Hopper's tensor cores. What each warp did is recorded, for the
report and for the ledger of a hang.
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
from sim_tb.sm.device import Device
from sim_tb.sm.pipes import (
    FMA_PER_CLOCK,
    MUFU_PER_CLOCK,
    REGISTERS,
    SMEM_BYTES_PER_CLOCK,
    WARPGROUP_THREADS,
    Issue,
    Pipe,
)
from sim_tb.sm.sanitizer import KernelError, Request, Sanitizer
from sim_tb.sm.smem import PIECE_BYTES, SmemLayout, Tile
from sim_tb.sm.spans import Span
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError

Array = NDArray[Any]
Role = Callable[["Warp"], Coroutine[Any, Any, None]]

REGISTER_STEP, LEAST_REGISTERS, MOST_REGISTERS = 8, 24, 256
PIECE = np.dtype((np.void, PIECE_BYTES))

AHEAD = 64
"""Clocks that a warp may be ahead of the clock: it sleeps less often."""

BF16 = np.dtype(ml_dtypes.bfloat16)

WGMMA_K_BYTES = 32
"""Of one wgmma: 16 values of 16 bits, 32 of 8 bits."""

WGMMA_ROWS = 64
"""Of one wgmma: the rows of a warpgroup."""


@dataclass
class Counts:
    """What an SM's warps did, summed up."""

    fma: int = 0
    bank_conflicts: int = 0
    waits: list[tuple[str, int]] = field(default_factory=list)
    flips: list[tuple[int, str]] = field(default_factory=list)


class Warp:
    """A warpgroup with a role.

    Operations are named as in PTX; those of a single thread are of an elected one. All take issue
    slots, and so are awaited.

    Members
    -------
    sm : SM
    role : str
    thread : int
        The elected thread, whose bulk groups they are.
    registers : int
        Of each thread.
    ready : int
        The cycle from which on it can do the next thing.
    doing : (str, int), optional
        What it waits for, and since which cycle.
    """

    def __init__(self, sm: "SM", role: str, thread: int) -> None:
        self.sm = sm
        self.role = role
        self.thread = thread
        self.registers = 0
        self.ready = 0
        self.doing: tuple[str, int] | None = None
        self._last: int | None = None
        self.watched = sm.sanitizer.thread(sm.cta, role)
        self._wgmma_ends: list[int] = []
        self._wgmma_end = 0

    @property
    def cta(self) -> int:
        """Rank of its CTA in the cluster."""
        return self.sm.cta

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record what the warp does in the block, under ``name``."""
        start = max(self.sm.env.cycle, self.ready)
        self.doing = name, start
        yield
        self.doing = None
        self._did(name, start, self.sm.env.cycle)

    def _did(self, name: str, start: int, end: int) -> None:
        spans, last = self.sm.spans, self._last
        if last is not None and (spans[last].name, spans[last].end) == (name, start):
            spans[last] = spans[last]._replace(end=end)
        elif end > start:
            self._last = len(spans)
            spans.append(Span(self.role, name, start, end))

    async def issue(self, slots: int, name: str = "issue") -> None:
        """Take so many issue slots, in turns with the other warps.

        The warp may be ``AHEAD`` of the clock then: what the instruction does goes to the unit when
        its slots come.
        """
        timing = self.sm.timing
        while slots > 0:
            clocks = min(slots, timing.chunk) * timing.interval
            slots -= timing.chunk
            await self._take(self.sm.scheduler, clocks, name)

    async def _take(self, pipe: Pipe, clocks: int, name: str) -> None:
        """When the warp is ready, be busy with a pipe as soon as that is free."""
        if self.ready > self.sm.env.cycle + AHEAD:
            await self.sm.until(self.ready)
        self.ready = pipe.take(max(self.sm.env.cycle, self.ready), clocks)
        self.sm.env.not_before = self.ready - clocks
        self._did(name, self.ready - clocks, self.ready)

    async def alu(self, elements: int, operations: int = 1) -> None:
        """``operations`` arithmetic instructions on each of so many elements in registers."""
        await self.issue(-(-elements * operations // WARPGROUP_THREADS), "math")

    async def mufu(self, elements: int) -> None:
        """``ex2.approx`` and the like on each of so many elements."""
        await self._take(self.sm.mufu, -(-elements // MUFU_PER_CLOCK), "math")

    # mbarrier

    async def mbarrier_init(self, barrier: int, count: int) -> None:
        """``mbarrier.init``."""
        await self.issue(self.sm.timing.mbarrier)
        watched = self.sm.sanitizer.init(self.watched, barrier, count)
        await self._barrier("INIT", barrier, count)
        counts, name = self.sm.counts, self.sm.layout.name(barrier)

        def flipped(cycle: int, _: mbarrier.Barrier) -> None:
            counts.flips.append((cycle, name))
            try:
                self.sm.sanitizer.flipped(watched, cycle)
            except KernelError as error:
                self.sm.cluster.fail(error)

        self.sm.env.barriers.watch(barrier, flipped, awaited=False)

    async def mbarrier_arrive(
        self, barrier: int, count: int = 1, *, cta: int | None = None
    ) -> None:
        """``mbarrier.arrive``; at a barrier of another CTA it has no answer."""
        await self._arrive("ARRIVE", barrier, count, 0, cta)

    async def mbarrier_arrive_expect_tx(
        self, barrier: int, tx_bytes: int, *, cta: int | None = None
    ) -> None:
        """``mbarrier.arrive.expect_tx``."""
        await self._arrive("ARRIVE_EXPECT_TX", barrier, tx_bytes, tx_bytes, cta)

    async def mbarrier_expect_tx(self, barrier: int, tx_bytes: int) -> None:
        """``mbarrier.expect_tx``."""
        await self.issue(self.sm.timing.mbarrier)
        watched = self.sm.sanitizer.barrier(self.watched, "mbarrier.expect_tx", self.cta, barrier)
        self.sm.sanitizer.expect(self.watched, watched, self.sm.env.cycle, tx_bytes)
        await self._barrier("EXPECT_TX", barrier, tx_bytes)

    async def mbarrier_try_wait_parity(self, barrier: int, parity: int) -> None:
        """``mbarrier.try_wait.parity`` until it is true."""
        what, name = "mbarrier.try_wait.parity", self.sm.layout.name(barrier)
        watched = self.sm.sanitizer.barrier(self.watched, what, self.cta, barrier)
        await self.issue(self.sm.timing.mbarrier)
        start = max(self.sm.env.cycle, self.ready)
        with self.span(f"wait {name}"):
            await self.sm.env.barriers.wait(barrier, parity, None)
            await self.sm.until(self.ready)
        end = self.sm.env.cycle
        self.sm.counts.waits.append((name, end - start))
        self.sm.sanitizer.waited(self.watched, watched, parity, end)

    async def _arrive(
        self, op: str, barrier: int, count: int, tx_bytes: int, cta: int | None
    ) -> None:
        await self.issue(self.sm.timing.mbarrier)
        holder = self.cta if cta is None else cta
        what = f"mbarrier.{op.lower().replace('_e', '.e', 1)}"
        watched = self.sm.sanitizer.barrier(self.watched, what, holder, barrier)
        arrivals = 1 if op == "ARRIVE_EXPECT_TX" else count
        self.sm.sanitizer.arrive(self.watched, watched, self.sm.env.cycle, arrivals, tx_bytes)
        if holder == self.cta:
            name, cluster = self.sm.layout.name(barrier), self.sm.cluster

            def fault(why: str) -> None:
                cluster.fail(KernelError(f"{self.role}: {what} of {count} on {name}: {why}"))

            self.sm.env.barriers.post(op, barrier, count, fault)
        else:
            self.sm.env.remote.send_barrier(holder, op, barrier, count)

    async def _barrier(self, op: str, barrier: int, count: int) -> None:
        result = await self.sm.env.barriers.command(op, barrier, count)
        if result.fault is not None:
            name = self.sm.layout.name(barrier)
            raise KernelError(f"{self.role}: mbarrier {op} of {count} on {name}: {result.fault}")

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
        """``cp.async.bulk.tensor``, global to shared memory; with ``cta_mask``
        ``.multicast::cluster``. The box begins where ``tile`` does.
        """
        await self.issue(self.sm.timing.tma)
        sm, address = self.sm, tile.address
        plan = sm.device.plan(tensor_map, mode)
        text = f"cp.async.bulk.tensor of {sm.device.name(tensor_map)} at {tuple(coords)}"
        sm.sanitizer.uses_map(self.watched, text, tensor_map)
        receivers = [self.cta] if cta_mask is None else bits(cta_mask)
        request = self._request(text, plan.bytes(), tensor_map)
        sm.sanitizer.load(
            self.watched,
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
        """``cp.async.bulk``, ``size`` bytes from global memory to the start of ``tile``."""
        await self.issue(self.sm.timing.tma)
        text = f"cp.async.bulk of {size} bytes at {source:#x}"
        self.sm.device.check_range(f"{self.role}: {text}", source, size)
        request = self._request(text, size)
        self.sm.sanitizer.load(self.watched, request, [self.cta], tile.address, size, None, barrier)
        request.number = self.sm.env.requests.bulk_load(source, tile.address, size, barrier)
        self.sm.load_bytes += size

    async def cp_async_bulk_dsmem(self, cta: int, target: Tile, source: Tile, barrier: int) -> None:
        """``cp.async.bulk.shared::cluster.shared::cta``: ``source`` to ``target`` of another CTA,
        whose barrier counts the bytes.
        """
        await self.issue(self.sm.timing.tma)
        size = source.nbytes
        text = f"cp.async.bulk of {source.name} to {target.name} of CTA {cta}"
        request = self._request(text, size)
        sanitizer = self.sm.sanitizer
        watched = sanitizer.barrier(self.watched, text, cta, barrier)
        sanitizer.store(self.watched, request, source.address, size, None, watched)
        sanitizer.load(self.watched, request, [cta], target.address, size, None, barrier)
        request.number = self.sm.env.requests.dsmem_copy(
            cta, target.address, source.address, size, barrier
        )

    async def prefetch_tensormap(self, tensor_map: int) -> None:
        """``prefetch.tensormap``."""
        await self.issue(self.sm.timing.tma)
        await self.sm.until(self.ready)
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
        await self.issue(self.sm.timing.tma)
        sm = self.sm
        plan = sm.device.plan(tensor_map, mode, store=True)
        text = f"{instruction} to {sm.device.name(tensor_map)} at {tuple(coords)}"
        sm.sanitizer.uses_map(self.watched, text, tensor_map)
        request = self._request(text, tensor_map=tensor_map)
        sm.sanitizer.store(
            self.watched, request, tile.address, plan.footprint, plan.descriptor.swizzle
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
        await self.issue(self.sm.timing.tma)
        text = f"{instruction} of {size} bytes to {target:#x}"
        self.sm.device.check_range(f"{self.role}: {text}", target, size)
        request = self._request(text)
        self.sm.sanitizer.store(self.watched, request, tile.address, size, None)
        request.number = self.sm.env.requests.bulk_store(
            target, tile.address, size, reduction=reduction, thread=self.thread
        )

    async def commit_group(self) -> None:
        """``cp.async.bulk.commit_group``."""
        self.sm.sanitizer.commit(self.watched, self.watched.groups)
        self.sm.env.not_before = self.ready
        self.sm.env.requests.commit_group(self.thread)

    async def wait_group(self, groups: int, *, read: bool = False) -> None:
        """``cp.async.bulk.wait_group``, or ``.read``."""
        self.sm.env.not_before = self.ready
        with self.span("wait read" if read else "wait group"):
            await self.sm.env.requests.wait_group(
                groups, read=read, thread=self.thread, timeout=None
            )
            await self.sm.until(self.ready)
        self.sm.sanitizer.group_waited(
            self.watched, self.watched.groups, groups, self.sm.env.cycle, read=read
        )

    def _request(self, text: str, tx_bytes: int = 0, tensor_map: int | None = None) -> Request:
        return Request(-1, text, self.cta, self.role, self.sm.env.not_before, tx_bytes, tensor_map)

    # Proxies and tensor maps

    async def fence_proxy_async(self) -> None:
        """``fence.proxy.async``: what the warp has written, or knows to be, is visible to the unit.

        The unit reads shared memory where the warps write it, so that it changes nothing here; a
        kernel that forgets it is wrong on silicon, and the sanitizer says so.
        """
        await self.issue(self.sm.timing.fence)
        self.sm.sanitizer.fence_async(self.watched)

    async def tensormap_replace(
        self, tensor_map: int, field: str, value: int, index: int | None = None
    ) -> None:
        """``tensormap.replace.tile`` on a map in global memory."""
        await self.issue(self.sm.timing.mbarrier)
        what = f"tensormap.replace of {field} by {self.role} in cycle {self.sm.env.cycle}"
        self.sm.sanitizer.patched(self.watched, tensor_map, what)
        words = self.sm.device.maps[tensor_map]
        words[:] = np.frombuffer(tensormap_replace(words.tobytes(), field, value, index), np.uint32)

    async def fence_proxy_tensormap(self, tensor_map: int) -> None:
        """``fence.proxy.tensormap::generic.acquire`` of 128 bytes: the descriptor cache forgets."""
        await self.issue(self.sm.timing.fence)
        await self.sm.until(self.ready)
        await self.sm.env.descriptors.invalidate(tensor_map)
        self.sm.sanitizer.acquired(self.watched, tensor_map)

    # Shared memory

    async def ldmatrix(self, tile: Tile) -> Array:
        """``ldmatrix`` of a whole tile, its swizzle undone: an array in rows."""
        await self._smem("ldmatrix", tile, tile.matrix_wavefronts)
        return self._read("ldmatrix of", tile)

    async def ld_shared(self, tile: Tile, *, columns: bool = False) -> Array:
        """``ld.shared`` of a whole tile, each warp along a row or a column."""
        await self._smem("ld.shared", tile, tile.access_wavefronts(columns=columns))
        return self._read("ld.shared of", tile)

    async def stmatrix(self, tile: Tile, values: Array) -> None:
        """``stmatrix`` of a whole tile."""
        self.sm.sanitizer.writes(self.watched, "stmatrix of", tile, self.sm.env.cycle)
        await self._smem("stmatrix", tile, tile.matrix_wavefronts)
        self.sm.write(tile, values)

    async def st_shared(self, tile: Tile, values: Array, *, columns: bool = False) -> None:
        """``st.shared`` of a whole tile, each warp along a row or a column."""
        self.sm.sanitizer.writes(self.watched, "st.shared of", tile, self.sm.env.cycle)
        await self._smem("st.shared", tile, tile.access_wavefronts(columns=columns))
        self.sm.write(tile, values)

    async def _smem(self, name: str, tile: Tile, wavefronts: int) -> None:
        ideal = -(-tile.nbytes // SMEM_BYTES_PER_CLOCK)
        self.sm.counts.bank_conflicts += max(0, wavefronts - ideal)
        await self._take(self.sm.smem_port, wavefronts, name)

    def _read(self, what: str, tile: Tile) -> Array:
        self.sm.sanitizer.reads(self.watched, what, tile, self.sm.env.cycle)
        return self.sm.read(tile)

    # Tensor cores

    async def wgmma(
        self, total: NDArray[np.float32], a: Tile | Array, b: Tile, *, trans_b: bool = True
    ) -> None:
        """``wgmma.mma_async``: add the product of ``a`` and ``b`` to ``total``.

        All products are exact, and their sum over this k is rounded once (choice).

        Parameters
        ----------
        total : array
            Accumulators in registers, m x n.
        a : Tile or array
            m rows of k elements; an array is in registers.
        b : Tile
            n rows of k elements; without ``trans_b``, k rows of n.
        trans_b : bool
            ``b`` has k along its rows.
        """
        what = "wgmma of"
        m, k = a.shape
        n = total.shape[1]
        steps = -(-k * b.dtype.itemsize // WGMMA_K_BYTES) * -(-m // WGMMA_ROWS)
        await self.issue(self.sm.timing.wgmma * steps)
        cycle = self.sm.env.cycle
        for tile in (a, b):
            if isinstance(tile, Tile):
                self.sm.sanitizer.reads(self.watched, what, tile, cycle, wgmma=True)
        left = self.sm.read(a) if isinstance(a, Tile) else a
        right = self.sm.read(b)
        with np.errstate(over="ignore", invalid="ignore"):
            product = wide(left) @ (wide(right).T if trans_b else wide(right))
            np.add(total, product, out=total, casting="same_kind")
        self.sm.counts.fma += m * n * k
        self._wgmma_end = self.sm.tensor_cores.take(self.ready, -(-m * n * k // FMA_PER_CLOCK))

    async def wgmma_commit_group(self) -> None:
        """``wgmma.commit_group``."""
        self._wgmma_ends.append(self._wgmma_end)
        self.sm.sanitizer.commit(self.watched, self.watched.wgmma)

    async def wgmma_wait_group(self, groups: int) -> None:
        """``wgmma.wait_group``: until at most the youngest ``groups`` are pending."""
        over = len(self._wgmma_ends) - groups
        if over > 0:
            with self.span("mma"):
                await self.sm.until(max(self.ready, self._wgmma_ends[over - 1]))
            del self._wgmma_ends[:over]
        self.sm.sanitizer.group_waited(self.watched, self.watched.wgmma, groups, self.sm.env.cycle)

    # The other warps

    async def bar_sync(self, number: int, warps: int) -> None:
        """``bar.sync`` of so many of this CTA's warps and warpgroups (roles) at a named barrier."""
        await self.issue(self.sm.timing.sync)
        await self.sm.until(self.ready)
        with self.span(f"bar.sync {number}"):
            await self.sm.rendezvous(self, number, warps)

    async def cluster_sync(self) -> None:
        """``barrier.cluster.arrive`` and ``wait``, of one warp of each CTA."""
        await self.issue(self.sm.timing.sync)
        await self.sm.until(self.ready)
        with self.span("barrier.cluster"):
            await self.sm.cluster.rendezvous(self)

    async def setmaxnreg(self, registers: int) -> None:
        """``setmaxnreg``: registers of each thread; more of them come when others have let go.

        Raises
        ------
        KernelError
            If the number is none that the instruction takes.
        """
        legal = LEAST_REGISTERS <= registers <= MOST_REGISTERS
        if not legal or registers % REGISTER_STEP:
            raise KernelError(
                f"{self.role}: setmaxnreg {registers}: must be from {LEAST_REGISTERS} to "
                f"{MOST_REGISTERS}, a multiple of {REGISTER_STEP}"
            )
        with self.span("setmaxnreg"):
            await self.sm.set_registers(self, registers)


def bits(mask: int) -> list[int]:
    """Numbers of the bits that are set."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]


def wide(values: Array) -> NDArray[np.float64]:
    """In double, in which products of two bf16 or half numbers are exact."""
    if values.dtype == BF16:
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


class SM:
    """The warps of one CTA, around the unit of ``env``.

    Members
    -------
    env : Environment
    device : Device
    layout : SmemLayout
    sanitizer : Sanitizer
    timing : Issue
    scheduler, tensor_cores, smem_port, mufu : Pipe
    spans : list of Span
        What the warps did.
    counts : Counts
    load_bytes : int
        What its loads write to shared memory, of all receivers.
    """

    def __init__(
        self, env: Environment, device: Device, layout: SmemLayout, sanitizer: Sanitizer,
        timing: Issue, cluster: "Cluster",
    ) -> None:  # fmt: skip
        self.env = env
        self.device = device
        self.layout = layout
        self.sanitizer = sanitizer
        self.timing = timing
        self.cluster = cluster
        self.scheduler, self.tensor_cores = Pipe(), Pipe()
        self.smem_port, self.mufu = Pipe(), Pipe()
        self.spans: list[Span] = []
        self.counts = Counts()
        self.load_bytes = 0
        self.warps: list[Warp] = []
        self._rendezvous: dict[int, Rendezvous] = {}
        self._released = Event()

    @property
    def cta(self) -> int:
        """Rank of its CTA in the cluster."""
        return self.env.sm

    def warp(self, role: str) -> Warp:
        """A warpgroup of this SM."""
        warp = Warp(self, role, len(self.warps) * WARPGROUP_THREADS)
        self.warps.append(warp)
        return warp

    async def until(self, cycle: int) -> None:
        """Let time pass."""
        left = cycle - self.env.cycle
        if left > 0:
            await self.env.cycles(left)

    async def rendezvous(self, warp: Warp, number: int, warps: int) -> None:
        """Wait until so many warps are at named barrier ``number``."""
        meeting = self._rendezvous.setdefault(number, Rendezvous(warps))
        if meeting.join(warp):
            del self._rendezvous[number]
        await meeting.all_there.wait()

    async def set_registers(self, warp: Warp, registers: int) -> None:
        """Give the warp's threads so many registers each, waiting until there are."""
        before, warp.registers = warp.registers, registers
        if registers < before:
            self._released.set()
            self._released = Event()
            return
        while sum(other.registers for other in self.warps) * WARPGROUP_THREADS > REGISTERS:
            warp.registers = before
            await self._released.wait()
            warp.registers = registers

    def read(self, tile: Tile) -> Array:
        """The elements of a tile in rows, as they are now."""
        rows = self.env.smem.view(PIECE).take(tile.pieces)
        return rows.view(tile.dtype).reshape(tile.shape)

    def write(self, tile: Tile, values: Array) -> None:
        """Put elements into a tile.

        Raises
        ------
        KernelError
            If their shape or type is not the tile's.
        """
        if values.shape != tile.shape or values.dtype != tile.dtype:
            raise KernelError(
                f"{tile.name} has {tile.shape} {tile.dtype}: it cannot take {values.shape} "
                f"{values.dtype}"
            )
        rows = np.ascontiguousarray(values).view(np.uint8)
        self._smem_pieces[tile.pieces] = rows.reshape(tile.shape[0], -1, PIECE_BYTES)

    @property
    def _smem_pieces(self) -> NDArray[np.uint8]:
        return self.env.smem.reshape(-1, PIECE_BYTES)


class Rendezvous:
    """Warps that wait for each other."""

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.there: list[Warp] = []
        self.all_there = Event()

    def join(self, warp: Warp) -> bool:
        """Return whether it was the last."""
        self.there.append(warp)
        if len(self.there) < self.warps:
            return False
        warp.sm.sanitizer.sync([other.watched for other in self.there])
        self.all_there.set()
        return True


class Cluster:
    """The CTAs of a cluster.

    Members
    -------
    error : CheckError, optional
        The first failure of any of them.
    failed : Event
        It is there.
    """

    def __init__(self, ctas: int) -> None:
        self.ctas = ctas
        self.error: CheckError | None = None
        self.failed = Event()
        self._meeting = Rendezvous(ctas)

    def fail(self, error: CheckError) -> None:
        """End the run."""
        if self.error is None:
            self.error = error
        self.failed.set()

    async def rendezvous(self, warp: Warp) -> None:
        """Wait until a warp of each CTA is there."""
        meeting = self._meeting
        if meeting.join(warp):
            self._meeting = Rendezvous(self.ctas)
        await meeting.all_there.wait()
