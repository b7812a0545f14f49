"""Instructions on mbarriers: ``mbarrier.init``, arrivals and waits."""

from golden import mbarrier
from sim_tb.sm.errors import KernelError
from sim_tb.sm.sanitizer import Scope
from sim_tb.sm.sm import Issuer
from sim_tb.sm.smem import Mbarrier


class BarrierInstructions(Issuer):
    """The part of ``Warps`` that is about mbarriers."""

    async def mbarrier_init(self, barrier: Mbarrier, count: int) -> None:
        """``mbarrier.init``."""
        self.require("mbarrier.init", barrier=(barrier, Mbarrier))
        await self.issue(self.sm.costs.arrive)
        sanitizer, cycle = self.sm.sanitizer, self.sm.env.cycle
        tracked = sanitizer.barrier_init(self.tracked.elected, barrier.address, count, cycle)
        counters, name = self.sm.counters, barrier.name
        result = await self.sm.env.barriers.command("INIT", barrier.address, count)
        if result.fault is not None:
            raise KernelError(
                f"{self.role}: mbarrier.init of {count} on {name} in cycle {self.sm.env.cycle}: "
                f"{result.fault}"
            )

        def on_phase(cycle: int, _: mbarrier.Barrier) -> None:
            if not tracked.invalidated:
                counters.phase_completions.append((cycle, name))
                sanitizer.phase_completed(tracked, cycle)

        self.sm.env.barriers.watch(barrier.address, on_phase, awaited=False)

    async def fence_mbarrier_init(self) -> None:
        """``fence.mbarrier_init.release.cluster``."""
        await self.issue(self.sm.costs.arrive)
        self.sm.sanitizer.fence_mbarrier_init(self.tracked.elected)

    async def mbarrier_inval(self, barrier: Mbarrier) -> None:
        """``mbarrier.inval``."""
        self.require("mbarrier.inval", barrier=(barrier, Mbarrier))
        await self.issue(self.sm.costs.arrive)
        self.sm.sanitizer.barrier_inval(self.tracked.elected, barrier.address, self.sm.env.cycle)
        self._post("mbarrier.inval", "INVAL", barrier, 0)

    async def mbarrier_arrive(
        self,
        barrier: Mbarrier,
        count: int = 1,
        *,
        cta: int | None = None,
        scope: Scope = Scope.CTA,
    ) -> None:
        """``mbarrier.arrive``. An arrival at a barrier of another CTA returns no state."""
        await self._arrive("ARRIVE", barrier, count, 0, cta, scope)

    async def mbarrier_arrive_expect_tx(
        self,
        barrier: Mbarrier,
        tx_bytes: int,
        *,
        cta: int | None = None,
        scope: Scope = Scope.CTA,
    ) -> None:
        """``mbarrier.arrive.expect_tx``."""
        await self._arrive("ARRIVE_EXPECT_TX", barrier, tx_bytes, tx_bytes, cta, scope)

    async def mbarrier_expect_tx(self, barrier: Mbarrier, tx_bytes: int) -> None:
        """``mbarrier.expect_tx``."""
        self.require("mbarrier.expect_tx", barrier=(barrier, Mbarrier))
        await self.issue(self.sm.costs.expect_tx)
        sanitizer, cycle = self.sm.sanitizer, self.sm.env.cycle
        tracked = sanitizer.barrier_at(
            self.tracked.elected, "mbarrier.expect_tx", self.cta, barrier.address, cycle
        )
        sanitizer.expect_tx(self.tracked.elected, tracked, cycle, tx_bytes)
        self._post("mbarrier.expect_tx", "EXPECT_TX", barrier, tx_bytes)

    async def mbarrier_try_wait_parity(
        self, barrier: Mbarrier, parity: int, *, scope: Scope = Scope.CTA
    ) -> None:
        """``mbarrier.try_wait.parity`` in a loop, until it returns true."""
        instruction = "mbarrier.try_wait.parity"
        self.require(instruction, barrier=(barrier, Mbarrier))
        name = barrier.name
        tracked = self.sm.sanitizer.barrier_at(
            self.tracked.all, instruction, self.cta, barrier.address, self.sm.env.cycle
        )
        await self.issue(self.sm.costs.try_wait.slots)
        start, least = self.clock, self.sm.env.not_before + self.sm.costs.try_wait.clocks
        self.sm.sanitizer.wait_begins(self.tracked.all, tracked, parity, start)
        with self.span(f"wait {name}"):
            await self.sm.env.barriers.wait(barrier.address, parity, None)
            await self.sm.until(max(self.ready_cycle, least))
        end = self.sm.env.cycle
        self.sm.counters.waits.append((name, end - start))
        self.sm.sanitizer.wait_returned(self.tracked.all, tracked, parity, end, scope)

    async def _arrive(
        self,
        op: str,
        barrier: Mbarrier,
        count: int,
        tx_bytes: int,
        cta: int | None,
        scope: Scope,
    ) -> None:
        instruction = f"mbarrier.{op.lower().replace('_e', '.e', 1)}"
        self.require(instruction, barrier=(barrier, Mbarrier))
        await self.issue(self.sm.costs.arrive)
        sanitizer, cycle = self.sm.sanitizer, self.sm.env.cycle
        threads, owner = self.tracked.elected, self.cta if cta is None else cta
        tracked = sanitizer.barrier_at(threads, instruction, owner, barrier.address, cycle)
        arrivals = 1 if op == "ARRIVE_EXPECT_TX" else count
        sanitizer.arrive(threads, tracked, cycle, arrivals, tx_bytes, scope=scope)
        env, costs = self.sm.env, self.sm.costs
        issued = env.not_before
        if op == "ARRIVE":
            env.not_before += costs.arrival
        if owner == self.cta:
            self._post(instruction, op, barrier, count)
        else:
            env.not_before += costs.release
            env.remote.send_barrier(owner, op, barrier.address, count)
        env.not_before = issued

    def _post(self, instruction: str, op: str, barrier: Mbarrier, count: int) -> None:
        """Send an operation to a barrier of the own CTA; a fault ends the run."""
        text = (
            f"{self.role}: {instruction} of {count} on {barrier.name} in cycle {self.sm.env.cycle}"
        )

        def on_fault(fault: str) -> None:
            self.sm.cluster.fail(KernelError(f"{text}: {fault}"))

        self.sm.env.barriers.post(op, barrier.address, count, on_fault)
