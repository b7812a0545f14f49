"""Instructions of the tensor cores: ``wgmma``."""

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from sim_tb.sm.accumulators import Accumulator
from sim_tb.sm.pipes import FMA_PER_CLOCK
from sim_tb.sm.sm import SM, Array, Issuer
from sim_tb.sm.smem import Tile

BF16 = np.dtype(ml_dtypes.bfloat16)

WGMMA_K_BYTES = 32
"""Bytes of k per wgmma: 16 values of 16 bits, or 32 of 8 bits."""

WGMMA_ROWS = 64
"""Rows per wgmma of one warpgroup."""


class TensorCoreInstructions(Issuer):
    """The part of ``Warpgroup`` that is about the tensor cores."""

    def __init__(self, sm: SM, role: str, warps: int) -> None:
        super().__init__(sm, role, warps)
        self._wgmma_end = 0
        self._wgmma_group_ends: list[int] = []

    def accumulator(self, rows: int, columns: int) -> Accumulator:
        """Return accumulators, which threads have set to zero."""
        zeros = np.zeros((rows, columns), np.float32)
        return Accumulator(self.tracked, zeros, lambda: self.clock)

    async def wgmma_fence(self) -> None:
        """``wgmma.fence``: products see what threads have written to registers before."""
        await self.issue(self.sm.costs.wgmma_fence)
        self.sm.sanitizer.wgmma_fence(self.tracked.all)

    async def wgmma(
        self, accumulator: Accumulator, a: Tile | Array, b: Tile, *, trans_b: bool = True
    ) -> None:
        """``wgmma.mma_async``: add the product of ``a`` and ``b`` to ``accumulator``.

        All products are exact, and the sum over the k of this call is rounded once (choice).

        Parameters
        ----------
        accumulator : Accumulator
            Accumulators in registers, m x n.
        a : Tile or array
            m rows of k elements. An array is in registers.
        b : Tile
            Rows in shared memory.
        trans_b : bool
            True: ``b`` has n rows of k elements. False: it has k rows of n elements.
        """
        self.require("wgmma", accumulator=(accumulator, Accumulator), b=(b, Tile))
        self.require_own("wgmma", b, *([a] if isinstance(a, Tile) else []))
        m, k = a.shape
        n = accumulator.shape[1]
        steps = -(-k * b.dtype.itemsize // WGMMA_K_BYTES) * -(-m // WGMMA_ROWS)
        await self.issue(self.sm.costs.wgmma * steps)
        cycle = self.sm.env.cycle
        self.sm.sanitizer.wgmma(self.tracked.all, accumulator, a, b, cycle)
        a_values = self.sm.read(a) if isinstance(a, Tile) else a
        b_values = self.sm.read(b)
        with np.errstate(over="ignore", invalid="ignore"):
            product = wide(a_values) @ (wide(b_values).T if trans_b else wide(b_values))
            registers = accumulator.in_flight
            np.add(registers, product, out=registers, casting="same_kind")
        self.sm.counters.fma += m * n * k
        self._wgmma_end = self.sm.tensor_cores.reserve(
            self.ready_cycle, -(-m * n * k // FMA_PER_CLOCK)
        )

    async def wgmma_commit_group(self) -> None:
        """``wgmma.commit_group``."""
        self._wgmma_group_ends.append(self._wgmma_end)
        self.sm.sanitizer.wgmma_commit(self.tracked.all)

    async def wgmma_wait_group(self, groups: int) -> None:
        """``wgmma.wait_group``: wait until at most ``groups`` groups are pending."""
        done = len(self._wgmma_group_ends) - groups
        if done > 0:
            with self.span("mma"):
                await self.sm.until(max(self.ready_cycle, self._wgmma_group_ends[done - 1]))
            del self._wgmma_group_ends[:done]
        self.sm.sanitizer.wgmma_wait_returned(self.tracked.all, groups)


def wide(values: Array) -> NDArray[np.float64]:
    """Convert to double, in which products of two bf16 or f16 numbers are exact."""
    if values.dtype == BF16:
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)
