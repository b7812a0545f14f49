"""Instructions of the tensor cores: ``wgmma``."""

import numpy as np

from sim_tb.arithmetic.tensor_cores import STEP_BYTES, multiply_accumulate
from sim_tb.sm.accumulators import Accumulator
from sim_tb.sm.pipes import FMA_PER_CLOCK
from sim_tb.sm.sm import SM, Array, Issuer
from sim_tb.sm.smem import Tile

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

        Sums are those of ``sim_tb.arithmetic.tensor_cores.multiply_accumulate``: equal to
        silicon's in every bit.

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
        steps = -(-k * b.dtype.itemsize // STEP_BYTES) * -(-m // WGMMA_ROWS)
        await self.issue(self.sm.costs.wgmma * steps)
        cycle = self.sm.env.cycle
        self.sm.sanitizer.wgmma(self.tracked.all, accumulator, a, b, cycle)
        a_values = self.sm.read(a) if isinstance(a, Tile) else a
        b_values = self.sm.read(b)
        registers = accumulator.in_flight
        columns = b_values if trans_b else b_values.T
        registers[...] = multiply_accumulate(a_values, columns, registers)
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
