"""Pipelines: rings of stages with acquire, commit, wait and release, as CuTe has them.

A producer acquires a stage, fills it, and commits it; consumers wait for it, use it, and release
it. Each role has a `PipelineState` of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sim_tb.sm.sanitizer import Scope
from sim_tb.sm.smem import Mbarrier, Ring
from sim_tb.sm.warps import Warps


@dataclass
class PipelineState:
    """The stage that a role uses next (CuTe's ``PipelineState``).

    Members
    -------
    stages : int
        Stages of the pipeline.
    index : int
        Number of the stage.
    phase : int
        Parity of the phase that the role waits for.
    count : int
        Number of times that the state has advanced.
    """

    stages: int
    index: int = 0
    phase: int = 0
    count: int = 0

    def advance(self, steps: int = 1) -> None:
        """Go on to the next stage, or by ``steps`` stages."""
        rounds, self.index = divmod(self.index + steps, self.stages)
        self.phase ^= rounds % 2
        self.count += steps


class PipelineAsync:
    """A pipeline whose stages are filled by threads (CuTe's ``PipelineAsync``).

    Parameters
    ----------
    ring : Ring
        Barriers of the stages, from ``smem.ring``.
    scope : Scope
        Scope of the releases: CLUSTER if consumers of other CTAs release stages.
    """

    def __init__(self, ring: Ring, scope: Scope = Scope.CTA) -> None:
        self.ring = ring
        self.scope = scope

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.ring.full)

    async def init(self, warps: Warps, releases: int) -> None:
        """Initialise the barriers, in the prologue.

        A stage may be filled again after ``releases`` calls of ``consumer_release``.
        """
        for full, empty in zip(self.ring.full, self.ring.empty, strict=True):
            await warps.mbarrier_init(full, 1)
            await warps.mbarrier_init(empty, releases)

    def producer_state(self) -> PipelineState:
        """Return the first state of a producer, whose first waits return at once."""
        return PipelineState(self.stages, phase=1)

    def consumer_state(self) -> PipelineState:
        """Return the first state of a consumer."""
        return PipelineState(self.stages)

    async def producer_acquire(self, warps: Warps, state: PipelineState) -> None:
        """Wait until the stage may be filled."""
        await self._wait_empty(warps, state)

    async def producer_commit(self, warps: Warps, state: PipelineState) -> None:
        """Let the consumers use the stage."""
        await warps.mbarrier_arrive(self.ring.full[state.index])

    async def producer_tail(self, warps: Warps, state: PipelineState) -> None:
        """Wait until all stages are released, before the CTA may end.

        In a cluster, other CTAs release stages: their arrivals need the shared memory of this CTA.
        """
        for _ in range(self.stages):
            await self._wait_empty(warps, state)
            state.advance()

    async def _wait_empty(self, warps: Warps, state: PipelineState) -> None:
        empty = self.ring.empty[state.index]
        await warps.mbarrier_try_wait_parity(empty, state.phase, scope=self.scope)

    async def consumer_wait(self, warps: Warps, state: PipelineState) -> None:
        """Wait until the stage is full."""
        await warps.mbarrier_try_wait_parity(self.ring.full[state.index], state.phase)

    async def consumer_release(
        self, warps: Warps, state: PipelineState, ctas: Sequence[int] = ()
    ) -> None:
        """Let the stage be filled again: that of the own CTA, or those of all ``ctas``."""
        empty = self.ring.empty[state.index]
        for barrier in map(empty.at, ctas) if ctas else (empty,):
            await warps.mbarrier_arrive(barrier, scope=self.scope)


class PipelineTmaAsync(PipelineAsync):
    """A pipeline whose stages are filled by loads of the unit (CuTe's ``PipelineTmaAsync``).

    Parameters
    ----------
    ring : Ring
        Barriers of the stages, from ``smem.ring``.
    tx_bytes : int
        Bytes that the loads of a stage bring to this CTA.
    scope : Scope
        As in `PipelineAsync`.
    """

    def __init__(self, ring: Ring, tx_bytes: int, scope: Scope = Scope.CTA) -> None:
        super().__init__(ring, scope)
        self.tx_bytes = tx_bytes

    def barrier(self, state: PipelineState) -> Mbarrier:
        """Return the barrier that the loads of the stage signal."""
        return self.ring.full[state.index]

    async def producer_acquire(self, warps: Warps, state: PipelineState) -> None:
        """Wait until the stage may be filled, and expect the bytes of its loads."""
        await super().producer_acquire(warps, state)
        await warps.mbarrier_arrive_expect_tx(self.barrier(state), self.tx_bytes)

    async def producer_commit(self, warps: Warps, state: PipelineState) -> None:
        """Do nothing: the bytes of the loads complete the phase."""
