"""Instructions that let the warps of a CTA and of a cluster wait for each other."""

from sim_tb.sm.errors import KernelError
from sim_tb.sm.sm import Issuer

REGISTER_STEP, LEAST_REGISTERS, MOST_REGISTERS = 8, 24, 256
"""Operands that ``setmaxnreg`` takes."""


class SynchronisationInstructions(Issuer):
    """The part of ``Warps`` that is about other warps."""

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
