"""Mistakes with the scope of synchronisation."""

from sim_tb.sm.sanitizer import Scope
from tests.mistakes.clusters import CTAS, Broadcast
from tests.mistakes.form import Group

GROUP = Group("Scopes")


@GROUP.kernel(
    "arrival-of-cta-scope",
    "producer of CTA 0: cp.async.bulk.tensor of x at (0, 32) in cycle N",
    "the only synchronisation between them is too narrow: the arrival by consumer of CTA",
    "has scope .cta; use scope .cluster",
)
class ArrivalOfCtaScope(Broadcast):
    """Consumers release a stage to other CTAs with an arrival of scope ``.cta``."""

    async def release(self, wg, stage):
        scope = Scope.CTA if self.wrong else Scope.CLUSTER
        for cta in range(CTAS):
            await wg.mbarrier_arrive(stage.empty, cta=cta, scope=scope)


@GROUP.kernel(
    "wait-of-cta-scope",
    "producer of CTA 0: cp.async.bulk.tensor of x at (0, 32) in cycle N",
    "the only synchronisation between them is too narrow",
    "has scope .cta; use scope .cluster",
)
class WaitOfCtaScope(Broadcast):
    """The producer waits with scope ``.cta`` for consumers of other CTAs."""

    async def acquire(self, wg, stage):
        scope = Scope.CTA if self.wrong else Scope.CLUSTER
        await wg.mbarrier_try_wait_parity(stage.empty, stage.parity ^ 1, scope=scope)
