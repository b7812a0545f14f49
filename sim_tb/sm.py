"""A behavioural SM: warps as coroutines that drive the unit, in PTX's terms.

Requests and barrier operations go through the unit's ports; arithmetic takes the cycles that
Hopper's tensor cores take. Every wait of a warp is recorded, for the timeline and for the ledger
that a time-out prints.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import Lock
from numpy.typing import NDArray

from golden import ReductionOp, Swizzle
from sim_tb.bridge import Bytes
from sim_tb.environment import BenchError, Environment

FMA_PER_CYCLE = 2048
"""Dense bf16 multiply-adds per clock of Hopper's four tensor cores together."""

PIECE_BYTES = 16
"""What a swizzle moves as a whole."""

SMEM_BYTES_PER_CYCLE = 128
"""What shared memory takes per clock of all warps' writes together."""

WARPGROUP_THREADS = 128
"""Threads of a warpgroup; a warp or warpgroup has as many numbers to itself."""


@dataclass(frozen=True)
class Span:
    """Something that lasted from cycle ``start`` to cycle ``end``."""

    track: str
    name: str
    start: int
    end: int


class TensorCores:
    """One operation at a time; an operation takes its multiply-adds over ``FMA_PER_CYCLE``."""

    def __init__(self, sm: "SM") -> None:
        self._sm = sm
        self._lock = Lock()
        self.busy: list[tuple[int, int]] = []

    async def mma(self, m: int, n: int, k: int) -> None:
        """Take the time of a product of m x k and k x n."""
        async with self._lock:
            start = self._sm.env.cycle
            await self._sm.env.cycles(-(-m * n * k // FMA_PER_CYCLE))
            self.busy.append((start, self._sm.env.cycle))

    @property
    def starved(self) -> float:
        """Share of the cycles from the first operation to the end of the last without one."""
        if not self.busy:
            return 0.0
        total = self.busy[-1][1] - self.busy[0][0]
        return 1 - sum(end - start for start, end in self.busy) / total


class Warp:
    """A warp or warpgroup with a role; its operations are those of one elected thread.

    Members
    -------
    sm : SM
    role : str
    thread : int
        The elected thread, whose bulk groups they are.
    waiting_for : str, optional
        The span that it is in.
    """

    def __init__(self, sm: "SM", role: str, thread: int) -> None:
        self.sm = sm
        self.role = role
        self.thread = thread
        self.waiting_for: str | None = None
        self._unfenced = False
        self._sources: list[list[int]] = [[]]

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record what the warp does in the block, under ``name``."""
        start = self.sm.env.cycle
        self.waiting_for = name
        yield
        self.waiting_for = None
        self.sm.spans.append(Span(self.role, name, start, self.sm.env.cycle))

    async def mbarrier_init(self, barrier: int, count: int) -> None:
        """``mbarrier.init``."""
        await self._barrier("INIT", barrier, count)

    async def mbarrier_arrive(self, barrier: int, *, cta: int | None = None) -> None:
        """``mbarrier.arrive``; at a barrier of another CTA it has no answer."""
        if cta is None or cta == self.sm.cta:
            await self._barrier("ARRIVE", barrier, 1)
        else:
            self.sm.env.send_remote_barrier(cta, "ARRIVE", barrier, 1)

    async def mbarrier_arrive_expect_tx(self, barrier: int, tx_bytes: int) -> None:
        """``mbarrier.arrive.expect_tx``."""
        await self._barrier("ARRIVE_EXPECT_TX", barrier, tx_bytes)

    async def mbarrier_wait_parity(self, barrier: int, parity: int) -> None:
        """``mbarrier.try_wait.parity`` until it is true."""
        await self.sm.env.wait(barrier, parity)

    async def _barrier(self, op: str, barrier: int, count: int) -> None:
        result = await self.sm.env.barrier(op, barrier, count)
        if result.fault is not None:
            raise BenchError(f"{self.role}: {op} of {count} at {barrier:#x}: {result.fault}")

    def cp_async_bulk_tensor(
        self,
        smem: int,
        tensor_map: int,
        coords: Sequence[int],
        barrier: int,
        *,
        cta_mask: int | None = None,
    ) -> int:
        """``cp.async.bulk.tensor`` from global to shared memory, with ``cta_mask``
        ``.multicast::cluster``; return the request's id.
        """
        return self.sm.env.submit(tensor_map, coords, smem, barrier, cta_mask=cta_mask)

    async def write_tile(self, address: int, values: NDArray[Any], swizzle: Swizzle) -> None:
        """``st.shared`` of a tile in rows: `SM.write_tile`, and the time that it takes.

        Raises
        ------
        BenchError
            If a store begins there that the warp has not waited for: a race on silicon, whoever
            wins it here.
        """
        if any(
            0 <= source - address < values.nbytes for group in self._sources for source in group
        ):
            raise BenchError(f"{self.role}: the source of a store is written, without wait_group")
        async with self.sm.smem_writes:
            await self.sm.env.cycles(-(-values.nbytes // SMEM_BYTES_PER_CYCLE))
        self.sm.write_tile(address, values, swizzle)
        self._unfenced = True

    def fence_proxy_async(self) -> None:
        """``fence.proxy.async.shared::cta``: what the warp has written is visible to the unit.

        It takes no time, as the unit reads shared memory where the warps write it. That it is not
        forgotten is checked: a kernel without it is wrong on silicon.
        """
        self._unfenced = False

    def cp_async_bulk_tensor_store(self, tensor_map: int, coords: Sequence[int], smem: int) -> int:
        """``cp.async.bulk.tensor`` from shared to global memory; return the request's id."""
        self._reads(smem)
        return self.sm.env.submit_store(tensor_map, coords, smem, thread=self.thread)

    def cp_reduce_async_bulk_tensor(
        self, tensor_map: int, coords: Sequence[int], smem: int, op: ReductionOp
    ) -> int:
        """``cp.reduce.async.bulk.tensor``; return the request's id."""
        self._reads(smem)
        return self.sm.env.submit_store(tensor_map, coords, smem, op=op, thread=self.thread)

    def _reads(self, smem: int) -> None:
        if self._unfenced:
            raise BenchError(
                f"{self.role}: a store behind writes to shared memory, without fence.proxy.async"
            )
        self._sources[-1].append(smem)

    def commit_group(self) -> None:
        """``cp.async.bulk.commit_group``."""
        self.sm.env.commit_group(self.thread)
        self._sources.append([])

    async def wait_group(self, groups: int, *, read: bool = False) -> None:
        """``cp.async.bulk.wait_group``, or ``.read``."""
        await self.sm.env.wait_group(groups, read=read, thread=self.thread)
        del self._sources[: max(0, len(self._sources) - 1 - groups)]


class SM:
    """The warps of one CTA, around the unit of ``env``.

    Members
    -------
    env : Environment
    tensor_cores : TensorCores
    smem_writes : Lock
        Held by the warp that writes to shared memory.
    spans : list of Span
        What the warps did.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.tensor_cores = TensorCores(self)
        self.smem_writes = Lock()
        self.spans: list[Span] = []
        self._warps: list[Warp] = []

    @property
    def cta(self) -> int:
        """Rank of its CTA in the cluster."""
        return self.env.sm

    def warp(self, role: str) -> Warp:
        """A warp of this SM."""
        warp = Warp(self, role, len(self._warps) * WARPGROUP_THREADS)
        self._warps.append(warp)
        return warp

    async def run(self, kernels: dict[str, Callable[[Warp], Awaitable[None]]]) -> None:
        """Run a coroutine for each role until all are done.

        Raises
        ------
        BenchError
            With what each warp waits for, if one of them fails or times out.
        """
        tasks = [
            cocotb.start_soon(_coroutine(kernel, self.warp(role)))
            for role, kernel in kernels.items()
        ]
        try:
            for task in tasks:
                await task
        except BenchError as error:
            waits = [f"{w.role}: in '{w.waiting_for}'" for w in self._warps if w.waiting_for]
            raise BenchError("\n".join([str(error), *waits])) from error
        if self.env.errors:
            raise BenchError(f"the unit refused a request: {self.env.errors[0]}")

    def read_tile(
        self, address: int, rows: int, row_bytes: int, swizzle: Swizzle, dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """A tile of shared memory in rows, its swizzle undone; ``row_bytes`` is the span."""
        pieces = _pieces(address, rows * row_bytes, swizzle)
        return self._smem_pieces[pieces].view(dtype).reshape(rows, -1)

    def write_tile(self, address: int, values: NDArray[Any], swizzle: Swizzle) -> None:
        """Put a tile into shared memory, row after row, swizzled; a row is the span."""
        pieces = np.ascontiguousarray(values).view(np.uint8).reshape(-1, PIECE_BYTES)
        self._smem_pieces[_pieces(address, values.nbytes, swizzle)] = pieces

    @property
    def _smem_pieces(self) -> Bytes:
        return self.env.smem.reshape(-1, PIECE_BYTES)


def _pieces(address: int, size: int, swizzle: Swizzle) -> NDArray[np.int64]:
    """Where the pieces of ``size`` bytes from ``address`` on are: numbers of 16 bytes."""
    pieces = (address + np.arange(0, size, PIECE_BYTES)) // PIECE_BYTES
    return pieces ^ (pieces >> 3 & swizzle.mask // PIECE_BYTES)


async def _coroutine(kernel: Callable[[Warp], Awaitable[None]], warp: Warp) -> None:
    await kernel(warp)
