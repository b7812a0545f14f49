"""Instructions on mbarriers: ``mbarrier.init``, arrivals, bytes, tests and waits."""

import cocotb

from golden import mbarrier
from sim_tb.sm.errors import KernelError
from sim_tb.sm.sanitizer import Scope, Threads, TrackedBarrier
from sim_tb.sm.sm import Issuer
from sim_tb.sm.smem import BarrierState, Mbarrier

ANSWER_CLOCKS = 1024
"""Clocks by which the unit's answer at a time limit comes later, at most."""


class BarrierInstructions(Issuer):
    """The part of ``Warps`` that is about mbarriers.

    One elected thread executes an initialisation or an arrival, unless ``threads`` says who does:
    ``all``, ``leaders``, or the result of ``select``. All threads wait.
    """

    # Initialisation

    async def mbarrier_init(self, barrier: Mbarrier, count: int, *, v1: bool = False) -> None:
        """``mbarrier.init``, with ``v1`` ``.layout::v1``."""
        self.require("mbarrier.init", barrier=(barrier, Mbarrier))
        self.require_own("mbarrier.init", barrier)
        await self.issue(self.sm.costs.arrive)
        sanitizer, cycle = self.sm.sanitizer, self.sm.env.cycle
        tracked = sanitizer.barrier_init(self.elected, barrier.address, count, cycle)
        counters, name = self.sm.counters, barrier.name
        result = await self.sm.env.barriers.command("INIT", barrier.address, count, v1=v1)
        if result.fault is not None:
            raise KernelError(
                f"{self.role}: mbarrier.init of {count} on {name} in cycle {self.sm.env.cycle}: "
                f"{result.fault}"
            )
        place = tracked.cta, tracked.address

        def on_phase(cycle: int, _: mbarrier.Barrier) -> None:
            if not tracked.invalidated and sanitizer.barriers.get(place) is tracked:
                counters.phase_completions.append((cycle, name))
                sanitizer.phase_completed(tracked, cycle)

        self.sm.env.barriers.unwatch(barrier.address)  # what an earlier initialisation left
        self.sm.env.barriers.watch(barrier.address, on_phase, awaited=False)

    async def fence_mbarrier_init(self) -> None:
        """``fence.mbarrier_init.release.cluster``."""
        await self.issue(self.sm.costs.fence_mbarrier_init)
        self.sm.sanitizer.fence_mbarrier_init(self.elected)

    async def mbarrier_inval(self, barrier: Mbarrier) -> None:
        """``mbarrier.inval``."""
        self.require("mbarrier.inval", barrier=(barrier, Mbarrier))
        self.require_own("mbarrier.inval", barrier)
        await self.issue(self.sm.costs.arrive)
        self.sm.sanitizer.barrier_inval(self.elected, barrier.address, self.sm.env.cycle)
        self._post("mbarrier.inval", "INVAL", barrier, 0)

    # Arrivals

    async def mbarrier_arrive(
        self,
        barrier: Mbarrier,
        count: int = 1,
        *,
        cta: int | None = None,
        scope: Scope = Scope.CTA,
        relaxed: bool = False,
        threads: Threads | None = None,
    ) -> None:
        """``mbarrier.arrive``: each of the threads arrives ``count`` times.

        With ``cta``, the barrier is that of another CTA of the cluster, as after ``mapa``.
        """
        await self._arrive("ARRIVE", barrier, count, cta, scope, relaxed, threads)

    async def mbarrier_arrive_expect_tx(
        self,
        barrier: Mbarrier,
        tx_bytes: int,
        *,
        cta: int | None = None,
        scope: Scope = Scope.CTA,
        relaxed: bool = False,
        threads: Threads | None = None,
    ) -> None:
        """``mbarrier.arrive.expect_tx``: each of the threads expects ``tx_bytes``, and arrives."""
        await self._arrive("ARRIVE_EXPECT_TX", barrier, tx_bytes, cta, scope, relaxed, threads)

    async def mbarrier_arrive_drop(
        self,
        barrier: Mbarrier,
        count: int = 1,
        *,
        cta: int | None = None,
        scope: Scope = Scope.CTA,
        relaxed: bool = False,
        threads: Threads | None = None,
    ) -> None:
        """``mbarrier.arrive_drop``: later phases expect as many arrivals less."""
        await self._arrive("ARRIVE_DROP", barrier, count, cta, scope, relaxed, threads)

    async def mbarrier_arrive_drop_expect_tx(
        self,
        barrier: Mbarrier,
        tx_bytes: int,
        *,
        cta: int | None = None,
        scope: Scope = Scope.CTA,
        relaxed: bool = False,
        threads: Threads | None = None,
    ) -> None:
        """``mbarrier.arrive_drop.expect_tx``."""
        await self._arrive("ARRIVE_DROP_EXPECT_TX", barrier, tx_bytes, cta, scope, relaxed, threads)

    async def mbarrier_arrive_state(
        self, barrier: Mbarrier, count: int = 1, *, scope: Scope = Scope.CTA, drop: bool = False
    ) -> BarrierState:
        """``mbarrier.arrive``, with ``drop`` ``arrive_drop``, of one thread; return its state."""
        op = "ARRIVE_DROP" if drop else "ARRIVE"
        return await self._arrive_state(op, barrier, count, scope)

    async def mbarrier_arrive_no_complete(
        self, barrier: Mbarrier, count: int, *, drop: bool = False
    ) -> BarrierState:
        """``mbarrier.arrive.noComplete``, with ``drop`` ``arrive_drop``; return its state.

        The arrivals must not complete the phase.
        """
        op = "ARRIVE_DROP_NO_COMPLETE" if drop else "ARRIVE_NO_COMPLETE"
        return await self._arrive_state(op, barrier, count, Scope.CTA)

    # Bytes

    async def mbarrier_expect_tx(
        self, barrier: Mbarrier, tx_bytes: int, *, cta: int | None = None
    ) -> None:
        """``mbarrier.expect_tx``."""
        await self._count_bytes("EXPECT_TX", barrier, tx_bytes, cta)

    async def mbarrier_complete_tx(
        self, barrier: Mbarrier, tx_bytes: int, *, cta: int | None = None
    ) -> None:
        """``mbarrier.complete_tx``: count bytes as received, as the unit does."""
        await self._count_bytes("COMPLETE_TX", barrier, tx_bytes, cta)

    async def mbarrier_report(self, barrier: Mbarrier, value: int) -> None:
        """Combine the report of the phase of a barrier of layout v1 with ``value`` (OR)."""
        self.require("mbarrier.report", barrier=(barrier, Mbarrier))
        self.require_own("mbarrier.report", barrier)
        await self.issue(self.sm.costs.expect_tx)
        self._tracked("mbarrier.report", barrier, self.elected)
        self._post("mbarrier.report", "REPORT", barrier, value)

    # Tests and waits

    async def mbarrier_test_wait_parity(
        self,
        barrier: Mbarrier,
        parity: int,
        *,
        scope: Scope = Scope.CTA,
        relaxed: bool = False,
        conditional: bool = False,
    ) -> bool:
        """``mbarrier.test_wait.parity``: return whether the phase is complete.

        ``conditional`` asks for the conditional phase of layout v1.
        """
        return await self._test(barrier, parity, 0, scope, relaxed=relaxed, conditional=conditional)

    async def mbarrier_test_wait(
        self,
        barrier: Mbarrier,
        state: BarrierState,
        *,
        scope: Scope = Scope.CTA,
        relaxed: bool = False,
    ) -> bool:
        """``mbarrier.test_wait``: return whether the phase of a state is complete."""
        self.require("mbarrier.test_wait", state=(state, BarrierState))
        parity = mbarrier.parity_of(state.word)
        return await self._test(barrier, parity, state.word, scope, relaxed=relaxed, by_state=True)

    async def mbarrier_try_wait_parity(
        self,
        barrier: Mbarrier,
        parity: int,
        *,
        scope: Scope = Scope.CTA,
        relaxed: bool = False,
        time_limit: int | None = None,
    ) -> bool:
        """``mbarrier.try_wait.parity``; without ``time_limit`` in a loop, until it returns true.

        With ``time_limit``, which is in clocks, it is executed once: return whether the phase is
        complete.
        """
        return await self._wait(barrier, parity, None, scope, time_limit, relaxed=relaxed)

    async def mbarrier_try_wait(
        self,
        barrier: Mbarrier,
        state: BarrierState,
        *,
        scope: Scope = Scope.CTA,
        relaxed: bool = False,
        time_limit: int | None = None,
    ) -> bool:
        """``mbarrier.try_wait`` for the phase of a state, as ``mbarrier_try_wait_parity`` waits."""
        self.require("mbarrier.try_wait", state=(state, BarrierState))
        parity = mbarrier.parity_of(state.word)
        return await self._wait(barrier, parity, state.word, scope, time_limit, relaxed=relaxed)

    async def mbarrier_pending_count(self, state: BarrierState) -> int:
        """``mbarrier.pending_count``: return the pending arrivals in a state."""
        self.require("mbarrier.pending_count", state=(state, BarrierState))
        await self.issue(1)
        return mbarrier.pending_count(state.word)

    # Parts

    def _tracked(self, instruction: str, barrier: Mbarrier, threads: Threads) -> TrackedBarrier:
        """Return the barrier, on any CTA, as the sanitizer tracks it."""
        owner = self.cta if barrier.cta is None else barrier.cta
        cycle = self.sm.env.cycle
        return self.sm.sanitizer.barrier_at(threads, instruction, owner, barrier.address, cycle)

    async def _arrive(
        self,
        op: str,
        barrier: Mbarrier,
        count: int,
        cta: int | None,
        scope: Scope,
        relaxed: bool,
        threads: Threads | None,
    ) -> None:
        instruction, threads = _name(op), threads or self.elected
        self.require(instruction, barrier=(barrier, Mbarrier))
        if cta is not None:
            barrier = barrier.at(cta)
        await self.issue(self.sm.costs.arrive)
        tracked = self._tracked(instruction, barrier, threads)
        self._follow(op, tracked, count, scope, threads, relaxed=relaxed)
        env, costs = self.sm.env, self.sm.costs
        issued, lanes = env.not_before, threads.lanes.bit_count()
        if not op.endswith("EXPECT_TX"):
            env.not_before += costs.arrival
        if tracked.cta != self.cta and not relaxed:
            env.not_before += costs.release
        for _ in threads.numbers:
            self._send(instruction, op, barrier, count * lanes, lanes)
        env.not_before = issued

    async def _arrive_state(
        self, op: str, barrier: Mbarrier, count: int, scope: Scope
    ) -> BarrierState:
        instruction = _name(op)
        self.require(instruction, barrier=(barrier, Mbarrier))
        self.require_own(instruction, barrier)
        await self.issue(self.sm.costs.arrive)
        self._follow(
            op, self._tracked(instruction, barrier, self.elected), count, scope, self.elected
        )
        with self.span(f"wait {instruction}"):
            ready = self.sm.env.not_before + self.sm.costs.arrival_state
            result = await self.sm.env.barriers.command(
                op, barrier.address, count, None, state=1 if op.endswith("NO_COMPLETE") else 0
            )
            await self.sm.until(max(ready, self.ready_cycle))
        if result.fault is not None:
            text = f"{self.role}: {instruction} of {count} on {barrier.name}"
            raise KernelError(f"{text} in cycle {self.sm.env.cycle}: {result.fault}")
        return BarrierState(result.state)

    def _follow(
        self, op: str, tracked: TrackedBarrier, count: int, scope: Scope, threads: Threads,
        *, relaxed: bool = False,
    ) -> None:  # fmt: skip
        """Let the sanitizer follow an arrival."""
        expects = op.endswith("EXPECT_TX")
        arrivals, tx_bytes = (1, count) if expects else (count, 0)
        drop = op.startswith("ARRIVE_DROP")
        self.sm.sanitizer.arrive(
            threads, tracked, self.sm.env.cycle, arrivals, tx_bytes, scope=scope, relaxed=relaxed,
            drop=drop,
        )  # fmt: skip

    async def _count_bytes(
        self, op: str, barrier: Mbarrier, tx_bytes: int, cta: int | None
    ) -> None:
        instruction, sanitizer = _name(op), self.sm.sanitizer
        self.require(instruction, barrier=(barrier, Mbarrier))
        if cta is not None:
            barrier = barrier.at(cta)
        await self.issue(self.sm.costs.expect_tx)
        tracked = self._tracked(instruction, barrier, self.elected)
        follow = sanitizer.expect_tx if op == "EXPECT_TX" else sanitizer.complete_tx
        follow(self.elected, tracked, self.sm.env.cycle, tx_bytes)
        self._send(instruction, op, barrier, tx_bytes, 1)

    async def _test(
        self, barrier: Mbarrier, parity: int, state: int, scope: Scope, *, relaxed: bool,
        by_state: bool = False, conditional: bool = False,
    ) -> bool:  # fmt: skip
        instruction = "mbarrier.test_wait" if by_state else "mbarrier.test_wait.parity"
        self.require(instruction, barrier=(barrier, Mbarrier))
        self.require_own(instruction, barrier)
        tracked = self._tracked(instruction, barrier, self.all)
        costs = self.sm.costs
        await self.issue(costs.test_wait.slots)
        least = self.sm.env.not_before + costs.test_wait.clocks
        with self.span(f"test {barrier.name}"):
            op = "TEST_WAIT" if by_state else "TEST_WAIT_PARITY"
            result = await self.sm.env.barriers.command(
                op, barrier.address, parity, None, state=state, v1=conditional
            )
            await self.sm.until(max(self.ready_cycle, least))
        if result.done:
            self.sm.sanitizer.wait_returned(
                self.all, tracked, parity, self.sm.env.cycle, scope, relaxed=relaxed
            )
        return result.done

    async def _wait(
        self,
        barrier: Mbarrier,
        parity: int,
        state: int | None,
        scope: Scope,
        time_limit: int | None,
        *,
        relaxed: bool,
    ) -> bool:
        instruction = "mbarrier.try_wait" if state is not None else "mbarrier.try_wait.parity"
        self.require(instruction, barrier=(barrier, Mbarrier))
        self.require_own(instruction, barrier)
        tracked = self._tracked(instruction, barrier, self.all)
        env, costs, sanitizer = self.sm.env, self.sm.costs, self.sm.sanitizer
        await self.issue(costs.try_wait.slots)
        start, least = self.clock, env.not_before + costs.try_wait.clocks
        if time_limit is None:
            sanitizer.wait_begins(self.all, tracked, parity, start)
        done = True
        with self.span(f"wait {barrier.name}"):
            if time_limit is None:
                await env.barriers.wait(barrier.address, parity, None)
            else:
                # While a timer runs, the roles are no deadlock.
                timer = cocotb.start_soon(env.cycles(time_limit + ANSWER_CLOCKS))
                answer = await env.barriers.try_wait(
                    barrier.address,
                    parity if state is None else None,
                    state=state,
                    time_limit=time_limit,
                    timeout=None,
                )
                timer.cancel()
                done = answer.done
            await self.sm.until(max(self.ready_cycle, least))
        end = env.cycle
        self.sm.counters.waits.append((barrier.name, end - start))
        if done:
            sanitizer.wait_returned(self.all, tracked, parity, end, scope, relaxed=relaxed)
        return done

    def _send(self, instruction: str, op: str, barrier: Mbarrier, count: int, lanes: int) -> None:
        """Send an operation to a barrier of the own or of another CTA."""
        if barrier.cta in (None, self.cta):
            self._post(instruction, op, barrier, count, lanes)
        else:
            self.sm.env.remote.send_barrier(barrier.cta, op, barrier.address, count, lanes=lanes)

    def _post(
        self, instruction: str, op: str, barrier: Mbarrier, count: int, lanes: int = 1
    ) -> None:
        """Send an operation to a barrier of the own CTA; a fault ends the run."""
        text = (
            f"{self.role}: {instruction} of {count} on {barrier.name} in cycle {self.sm.env.cycle}"
        )

        def on_fault(fault: str) -> None:
            self.sm.cluster.fail(KernelError(f"{text}: {fault}"))

        self.sm.env.barriers.post(op, barrier.address, count, on_fault, lanes=lanes)


def _name(op: str) -> str:
    """Return the PTX name of an operation of ``BarrierOp``."""
    stem = op.lower().replace("_no_complete", ".noComplete").replace("_expect_tx", ".expect_tx")
    return f"mbarrier.{stem}"
