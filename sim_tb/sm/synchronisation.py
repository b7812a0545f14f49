"""Instructions that let the warps of a CTA and of a cluster wait for each other."""

from sim_tb.sm.errors import KernelError
from sim_tb.sm.pipes import WARPGROUP_THREADS
from sim_tb.sm.sm import Issuer, Rendezvous
from sim_tb.sm.smem import LANES

REGISTER_STEP, LEAST_REGISTERS, MOST_REGISTERS = 8, 24, 256
"""Operands that ``setmaxnreg`` takes."""


NAMED_BARRIERS, MOST_THREADS = 16, 1024
"""Named barriers of a CTA, and most threads of a CTA."""


class SynchronisationInstructions(Issuer):
    """The part of ``Warps`` that is about other warps."""

    async def bar_sync(self, number: int, threads: int) -> None:
        """``bar.sync``: wait at named barrier ``number`` until ``threads`` threads have arrived.

        All threads of the role arrive. Their number is ``threads`` if its warps meet each other.
        """
        point = await self._bar("bar.sync", number, threads, waits=True)
        with self.span(f"bar.sync {number}"):
            await point.wait(self)

    async def bar_arrive(self, number: int, threads: int) -> None:
        """``bar.arrive``: arrive at named barrier ``number``, and do not wait."""
        await self._bar("bar.arrive", number, threads, waits=False)

    async def _bar(self, instruction: str, number: int, threads: int, *, waits: bool) -> Rendezvous:
        about = f"{self.role}: {instruction} {number}, {threads} in cycle {self.sm.env.cycle}"
        if number not in range(NAMED_BARRIERS):
            raise KernelError(f"{about}: the number must be from 0 to {NAMED_BARRIERS - 1}")
        if threads % LANES or not self.threads <= threads <= MOST_THREADS:
            raise KernelError(
                f"{about}: {threads} threads: must be a multiple of {LANES} from {self.threads}, "
                f"the threads of this role, to {MOST_THREADS}"
            )
        await self.issue(self.sm.costs.sync)
        await self.sm.until(self.ready_cycle)
        return self.sm.arrive(self, number, threads, waits=waits)

    async def cluster_sync(self) -> None:
        """``barrier.cluster.arrive`` and ``wait``: all threads of the cluster meet.

        Threads whose role has returned count as arrived. The prologue is executed by one warpgroup
        of each CTA.
        """
        point = await self._cluster_arrive(waits=True)
        with self.span("barrier.cluster"):
            await point.wait(self)

    async def cluster_arrive(self, *, relaxed: bool = False) -> Rendezvous:
        """``barrier.cluster.arrive``; return what ``cluster_wait`` takes."""
        return await self._cluster_arrive(waits=False, relaxed=relaxed)

    async def cluster_wait(self, point: Rendezvous) -> None:
        """``barrier.cluster.wait``, for the arrival that returned ``point``."""
        self.require("barrier.cluster.wait", point=(point, Rendezvous))
        point.waiting.append(self)
        with self.span("barrier.cluster"):
            await point.wait(self)

    async def _cluster_arrive(self, *, waits: bool, relaxed: bool = False) -> Rendezvous:
        await self.issue(self.sm.costs.sync)
        await self.sm.until(self.ready_cycle)
        return self.sm.cluster.arrive(self, waits=waits, relaxed=relaxed)

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
        if self.threads % WARPGROUP_THREADS:
            raise KernelError(
                f"{self.role}: setmaxnreg in cycle {self.sm.env.cycle}: the role has {self.warps} "
                "warps: all warps of a warpgroup must execute it"
            )
        with self.span("setmaxnreg"):
            await self.sm.set_registers(self, registers)
