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

from golden import Swizzle
from sim_tb.environment import BenchError, Environment

FMA_PER_CYCLE = 2048
"""Dense bf16 multiply-adds per clock of Hopper's four tensor cores together."""

PIECE_BYTES = 16
"""What a swizzle moves as a whole."""

STORE_BYTES_PER_CYCLE = 128
"""What a warpgroup stores to global memory per clock."""


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
    """A warp or warpgroup with a role; its operations are those of one elected thread."""

    def __init__(self, sm: "SM", role: str) -> None:
        self.sm = sm
        self.role = role
        self.waiting_for: str | None = None

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

    async def mbarrier_arrive(self, barrier: int) -> None:
        """``mbarrier.arrive``."""
        await self._barrier("ARRIVE", barrier, 1)

    async def mbarrier_arrive_expect_tx(self, barrier: int, tx_bytes: int) -> None:
        """``mbarrier.arrive.expect_tx``."""
        await self._barrier("ARRIVE_EXPECT_TX", barrier, tx_bytes)

    async def mbarrier_wait_parity(self, barrier: int, parity: int) -> None:
        """``mbarrier.try_wait.parity`` until it is true."""
        await self.sm.env.wait(barrier, parity)

    async def _barrier(self, op: str, barrier: int, count: int) -> None:
        result = await self.sm.env.barrier(op, barrier, count)
        if result.error:
            raise BenchError(f"{self.role}: {op} of {count} at {barrier:#x}: MBAR_FAULT")

    def cp_async_bulk_tensor(
        self, smem: int, tensor_map: int, coords: Sequence[int], barrier: int
    ) -> int:
        """``cp.async.bulk.tensor`` from global to shared memory; return the request's id."""
        return self.sm.env.submit(tensor_map, coords, smem, barrier)


class SM:
    """The warps of one CTA, around the unit of ``env``.

    Members
    -------
    env : Environment
    tensor_cores : TensorCores
    spans : list of Span
        What the warps did.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.tensor_cores = TensorCores(self)
        self.spans: list[Span] = []
        self._warps: list[Warp] = []

    def warp(self, role: str) -> Warp:
        """A warp of this SM."""
        warp = Warp(self, role)
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
        pieces = (address + np.arange(0, rows * row_bytes, PIECE_BYTES)) // PIECE_BYTES
        pieces ^= pieces >> 3 & swizzle.mask // PIECE_BYTES
        memory = self.env.smem.reshape(-1, PIECE_BYTES)
        return memory[pieces].view(dtype).reshape(rows, -1)


async def _coroutine(kernel: Callable[[Warp], Awaitable[None]], warp: Warp) -> None:
    await kernel(warp)
